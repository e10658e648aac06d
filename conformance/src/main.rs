//! The server that the MCP conformance suite is run against: a `ctx` with the suite's resources, and with
//! tools that change what is listed. Everything else that the suite expects is a script in `workspace/`.

mod change;
mod resources;

use change::Change;
use ctx::Harness;
use resources::Fixtures;
use std::process::ExitCode;

fn main() -> ExitCode {
    Harness::builder()
        .tool(Change::new("test_trigger_tool_change", "tools", "tools/test_changing_tool.lua"))
        .tool(Change::new("test_trigger_prompt_change", "prompts", "agents/test_changing_prompt.lua"))
        .provider(Fixtures)
        .main()
}
