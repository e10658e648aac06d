//! Extraction in sandboxed processes, with workers that are killed, hang, crash, or exceed their limits.
//!
//! The workers are this program, started with an argument, so it has a `main` of its own.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "all of it is tests, and the harness that runs them"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../hostile/mod.rs"]
mod hostile;
#[macro_use]
#[path = "../../../ctx-luau/tests/harness/mod.rs"]
mod harness;

mod misbehaving;
mod syncs;

use ctx_knowledge::{Extraction, ExtractionSettings};
use harness::Test;
use std::process::ExitCode;

const WORKER: &str = "__extract";
const MISBEHAVING: &str = "__misbehaving";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(WORKER) => return ctx_knowledge::extraction_worker_main(),
        Some(MISBEHAVING) => return misbehaving::worker_main(),
        _ => {}
    }
    harness::run(&[syncs::TESTS, misbehaving::TESTS].concat(), &arguments)
}

/// Settings for workers that are this program, started with an argument.
fn settings(argument: &str) -> ExtractionSettings {
    ExtractionSettings::new(std::env::current_exe().unwrap(), vec![argument.into()])
}

fn extraction() -> Extraction {
    Extraction::confined(settings(WORKER))
}
