//! Your own `ctx`: the whole command line, with a tool, a source and an agent in Rust.

mod depots;
mod dispatcher;
mod estimate;

use ctx::{Harness, SourceOptions};
use std::process::ExitCode;
use std::time::Duration;

/// The interval at which a server syncs the depots.
const DEPOTS_EVERY: Duration = Duration::from_secs(60 * 60);

fn main() -> ExitCode {
    let kept = SourceOptions { tags: vec!["depots".to_owned()], every: Some(DEPOTS_EVERY) };
    Harness::builder()
        .tool(estimate::Estimate)
        .connector_with("depots", depots::Depots, kept)
        .agent(dispatcher::Dispatcher)
        .main()
}
