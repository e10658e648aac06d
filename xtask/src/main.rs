//! The development tasks of the repository: `cargo xtask <task>`.
#![allow(
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a tool for developers, not part of the product"
)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match xtask::dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
