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
mod misbehaviours;
mod offers;
mod rude;
mod server;
mod shelf;
mod slow;
mod web;
mod wild;
mod world;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |number: usize| arguments.get(number).map_or("", String::as_str);
    match argument(0) {
        world::REAPER => return ctx_mcp::reaper_main(),
        world::SERVER if argument(1) == rude::KIND => return rude::main(argument(2)),
        world::SERVER if argument(1) == slow::KIND => {
            return slow::main(argument(2), argument(3), argument(4));
        }
        world::SERVER if argument(1) == wild::KIND => return wild::main(argument(2)),
        world::SERVER => return server::main(argument(1), argument(2)),
        world::PARENT => return faults::parent(),
        _ => {}
    }
    let all = [
        calls::TESTS,
        definitions::TESTS,
        faults::TESTS,
        misbehaviours::TESTS,
        offers::TESTS,
        rude::TESTS,
        slow::TESTS,
        web::TESTS,
    ];
    harness::run(&all.concat(), &arguments)
}
