//! Tools, agents and connectors defined by scripts, with real worker processes, files and sockets.

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

mod agents;
mod bench;
mod calls;
mod connectors;
mod contract;
mod files;
mod http;
mod problems;
mod tools;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().map(String::as_str) == Some(bench::WORKER) {
        return ctx_luau::worker_main();
    }
    let tests = [
        agents::TESTS,
        calls::TESTS,
        connectors::TESTS,
        contract::TESTS,
        files::TESTS,
        http::TESTS,
        problems::TESTS,
        tools::TESTS,
    ]
    .concat();
    harness::run(&tests, &arguments)
}
