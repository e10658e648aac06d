//! Upstream servers over real processes.
//!
//! The servers, the reaper, and a parent to be killed are this same program, started again with an argument.
//! So it has a `main` of its own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "all of it is tests, and the harness that runs them"
)]

use std::process::ExitCode;

#[macro_use]
#[path = "../../../ctx-luau/tests/harness/mod.rs"]
mod harness;

mod calls;
mod definitions;
mod faults;
mod features;
mod fixture;
mod http_servers;
mod misbehaving_server;
mod misbehaviours;
mod protocol_errors;
mod server_features;
mod slow_start;
mod stdio_server;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |number: usize| arguments.get(number).map_or("", String::as_str);
    match argument(0) {
        fixture::REAPER => return ctx_mcp::reaper_main(),
        fixture::SERVER if argument(1) == protocol_errors::KIND => return protocol_errors::main(argument(2)),
        fixture::SERVER if argument(1) == slow_start::KIND => {
            return slow_start::main(argument(2), argument(3), argument(4));
        }
        fixture::SERVER if argument(1) == misbehaving_server::KIND => {
            return misbehaving_server::main(argument(2));
        }
        fixture::SERVER => return stdio_server::main(argument(1), argument(2)),
        fixture::PARENT => return faults::parent(),
        _ => {}
    }
    let all = [
        calls::TESTS,
        definitions::TESTS,
        faults::TESTS,
        misbehaviours::TESTS,
        features::TESTS,
        protocol_errors::TESTS,
        slow_start::TESTS,
        http_servers::TESTS,
    ];
    harness::run(&all.concat(), &arguments)
}
