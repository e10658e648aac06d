//! The engine with real worker processes.
//!
//! Workers, faulty workers and parents to be killed are all this program, started again with an argument; so
//! it has a `main` of its own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "all of it is tests, and the harness that runs them"
)]

use harness::Test;
use std::process::ExitCode;

#[macro_use]
#[path = "../harness/mod.rs"]
mod harness;

mod fake;
mod faults;
mod hostile;
mod limits;
mod runs;
mod world;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(world::WORKER) => return ctx_luau::worker_main(),
        Some(world::FAKE) => return fake::main(arguments.get(1).map_or("", String::as_str)),
        Some(world::PARENT) => return faults::parent(),
        _ => {}
    }
    let tests = [runs::TESTS, limits::TESTS, faults::TESTS, hostile::TESTS].concat();
    harness::run(&tests, &arguments)
}
