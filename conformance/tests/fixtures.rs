//! Checks the fixtures of the conformance server. The suite itself tests the protocol.
#![cfg(unix)]

use ctx_testkit::{TestWorkspace, wait_until};
use serde_json::json;
use std::path::Path;

fn workspace() -> TestWorkspace {
    TestWorkspace::with_binary(env!("CARGO_BIN_EXE_ctx-conformance").into())
        .copy_from(&Path::new(env!("CARGO_MANIFEST_DIR")).join("workspace"))
}

#[test]
fn every_script_can_be_called() {
    let workspace = workspace();
    let tools = workspace.ctx("tool list --json").success().json();
    assert_eq!(tools["problems"], json!([]));
    let agents = workspace.ctx("agent list --json").success().json();
    assert_eq!(agents["problems"], json!([]));
}

#[test]
fn a_list_is_changed_by_the_tool_made_for_it() {
    let workspace = workspace();
    let server = workspace.spawn_server();
    for (tool, list) in
        [("test_trigger_tool_change", "/tools/list"), ("test_trigger_prompt_change", "/agents/list")]
    {
        for description in ["Changed 1 times", "Changed 2 times"] {
            assert_eq!(server.post(&format!("/tools/{tool}"), &json!({})).status, 200);
            wait_until(description, || server.get(list).body.to_string().contains(description));
        }
    }
}
