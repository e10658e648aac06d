//! The program under test of the MCP conformance suite.
//!
//! As a server: a `ctx` with the suite's resources, and with tools that change lists. The suite's other tools
//! and prompts are scripts in `workspace/`. As a client (`client URL`): see the module `client`.
#![allow(clippy::disallowed_methods, reason = "the suite says in the environment what it wants")]

mod change;
mod client;
mod resources;

use change::Change;
use ctx::Harness;
use resources::Fixtures;
use std::process::ExitCode;

/// The argument that runs this program as the browser of a login.
const BROWSER: &str = "__browser";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["client", url] => client::run(url),
        [BROWSER, url] => client::browse(url).map(|()| ExitCode::SUCCESS),
        _ => return serve(),
    };
    done.unwrap_or(ExitCode::FAILURE)
}

fn serve() -> ExitCode {
    Harness::builder()
        .tool(Change::new("test_trigger_tool_change", "tools", "tools/test_changing_tool.lua"))
        .tool(Change::new("test_trigger_prompt_change", "prompts", "agents/test_changing_prompt.lua"))
        .provider(Fixtures)
        .main()
}
