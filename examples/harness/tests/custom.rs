//! Tests the example through its command line and its server.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::TestWorkspace;
use serde_json::{Value, json};

/// A script tool that calls the Rust tool.
const ROUND_TRIP: &str = r#"tool = {
    name = "round_trip",
    description = "There and back",
    parameters = { { name = "distance_km", type = "number", required = true } },
}

function tool.execute(params)
    return { minutes = 2 * sdk.tools.estimate{ distance_km = params.distance_km }.minutes }
end
"#;

fn workspace(config: &str) -> TestWorkspace {
    TestWorkspace::with_binary(env!("CARGO_BIN_EXE_harness-example").into())
        .config(&format!("[server]\nbind = \"127.0.0.1:0\"\n{config}"))
}

fn with_script() -> TestWorkspace {
    workspace("[tools.script.round_trip]\npath = \"tools/round_trip.lua\"\n")
        .file("tools/round_trip.lua", ROUND_TRIP)
}

fn outward_names(list: &Value) -> Vec<&str> {
    list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn documents_of_an_added_connector_are_found() {
    let workspace = workspace("");
    workspace.ctx("sync").success();
    let found = workspace.ctx("search punctures --tag depots --json").success().json();
    assert_eq!(found["results"][0]["title"], "Depot old-town");
    assert_eq!(found["results"][0]["source"], "rust:depots");
    let sources = workspace.ctx("sources --json").success().json();
    assert_eq!(sources["sources"][0]["every"], "1h");
}

#[test]
fn an_added_tool_is_called_like_any_other() {
    let workspace = with_script();
    let list = workspace.ctx("tool list --json").success().json();
    assert_eq!(list["problems"], json!([]));
    assert!(outward_names(&list).contains(&"estimate"), "{list}");

    let server = workspace.spawn_server();
    let reply = server.post("/tools/estimate", &json!({"distance_km": 6}));
    assert_eq!((reply.status, &reply.body["result"]), (200, &json!({"minutes": 24})));
    let refused = server.post("/tools/estimate", &json!({"distance_km": 6, "bike": "tandem"}));
    assert_eq!(refused.status, 400);
    // The script's worker process is this program, too.
    let reply = server.post("/tools/round_trip", &json!({"distance_km": 6}));
    assert_eq!((reply.status, &reply.body["result"]), (200, &json!({"minutes": 48})));

    workspace.write("plan.lua", "return sdk.tools.estimate{ distance_km = 3, bike = 'cargo' }.minutes");
    assert_eq!(workspace.ctx("exec plan.lua --json").success().json()["result"], 19);
}

#[test]
fn an_added_agent_resolves_with_what_the_workspace_knows() {
    let workspace = workspace("");
    workspace.ctx("sync").success();
    let server = workspace.spawn_server();
    let listed = server.get("/agents/list").body;
    assert_eq!(listed["agents"][0]["name"], "dispatcher");
    assert_eq!(listed["agents"][0]["source"], "rust");
    let prompt = server.post("/agents/dispatcher/prompt", &json!({"depot": "harbour"})).body;
    assert!(prompt["system"].as_str().unwrap().contains("forty city bikes"), "{prompt}");
    assert_eq!(prompt["tools"], json!(["search", "estimate"]));
}

#[test]
fn a_script_goes_before_an_added_tool_of_its_name() {
    let own = ROUND_TRIP.replace("round_trip", "estimate").replace(
        "{ minutes = 2 * sdk.tools.estimate{ distance_km = params.distance_km }.minutes }",
        "\"as the script says\"",
    );
    let workspace =
        workspace("[tools.script.estimate]\npath = \"estimate.lua\"\n").file("estimate.lua", &own);
    let list = workspace.ctx("tool list --json").success().json();
    let problems = json!(["tools.estimate is left out: the name `estimate` is taken"]);
    assert_eq!(list["problems"], problems);
    let server = workspace.spawn_server();
    let reply = server.post("/tools/estimate", &json!({"distance_km": 6})).body;
    assert_eq!(reply["result"], "as the script says");
}
