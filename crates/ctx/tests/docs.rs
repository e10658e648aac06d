//! `ctx docs`: what an agent sees of the functions, in a terminal and over HTTP.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use serde_json::json;

const TICKET: &str = r#"tool = {
    name = "create_ticket",
    description = "Create a ticket. It is given a number.",
    tags = { "support" },
    parameters = {
        { name = "title", type = "string", required = true, description = "Its title" },
        { name = "priority", type = "string", default = "low", enum = { "low", "high" } },
    },
}

function tool.execute(params)
    return params
end
"#;

fn workspace() -> TestWorkspace {
    TestWorkspace::empty()
        .config(
            "[server]\nbind = \"127.0.0.1:0\"\n[tools.script.create_ticket]\npath = \"create_ticket.lua\"\n",
        )
        .file("create_ticket.lua", TICKET)
}

#[test]
fn a_function_is_shown_as_an_agent_sees_it() {
    let w = workspace();
    ctx_snapshot!(w.ctx("docs tools.create_ticket"), @r#"
    exit_code: 0
    ----- stdout -----
    -- Create a ticket. It is given a number.
    -- @param title - Its title
    -- @param priority - default "low"
    function sdk.tools.create_ticket(params: { title: string, priority: ("low" | "high")? }): any end

    ----- stderr -----
    "#);
    ctx_snapshot!(w.ctx("docs"), @r"
    exit_code: 0
    ----- stdout -----
    10 functions of 3 providers
    context – 3 functions: get, search, sources
    ctx – 6 functions: execute, file, get_function_docs, list_functions, result, …
    tools – 1 function: create_ticket

    ----- stderr -----
    ");
    let shown = w.ctx("docs create_ticket --json").success().json();
    assert!(shown["result"].as_str().unwrap().contains("function sdk.tools.create_ticket("), "{shown}");
}

#[test]
fn functions_are_found_by_words() {
    let w = workspace();
    let found = w.ctx("docs --search open a ticket").success().stdout;
    let expected = "sdk.tools.create_ticket(title, priority?) – Create a ticket.";
    assert_eq!(found.lines().next(), Some(expected), "{found}");
    ctx_snapshot!(w.ctx("docs --search zxqvy"), @r"
    exit_code: 0
    ----- stdout -----
    no function matches; `list_functions` lists all

    ----- stderr -----
    ");
}

#[test]
fn a_name_that_is_wrong_is_told_the_nearest() {
    let w = workspace();
    ctx_snapshot!(w.ctx("docs tools.create_tikcet"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: no function is called tools.create_tikcet (did you mean `sdk.tools.create_ticket`?)
    ");
    w.ctx("docs a --search b").code(2);
}

#[test]
fn the_server_answers_the_same() {
    let w = workspace();
    let shown = w.ctx("docs tools.create_ticket --json").success().json();
    let server = w.spawn_server();
    let tagged = server.post("/tools/list_functions", &json!({"tag": "support"}));
    let listed = "1 function of 1 provider with the tag `support`\ntools – 1 function: create_ticket";
    assert_eq!(tagged.body["result"], listed);
    let wrong = server.post("/tools/list_functions", &json!({"tag": "suport"}));
    assert_eq!(wrong.status, 404, "{wrong:?}");
    let asked = server.post("/tools/get_function_docs", &json!({"name": "tools.create_ticket"}));
    assert_eq!(asked.status, 200, "{:?}", asked.body);
    assert_eq!(
        asked.body["result"].as_str().map(str::trim_end),
        shown["result"].as_str(),
        "the terminal ends the last line by itself"
    );
    let found = server.post("/tools/search_docs", &json!({"query": "ticket", "limit": 1}));
    assert!(
        found.body["result"].as_str().unwrap().starts_with("sdk.tools.create_ticket("),
        "{:?}",
        found.body
    );
    assert_eq!(server.post("/tools/list_functions", &json!({"provider": "nobody"})).status, 404);
    server.stop().success();
}
