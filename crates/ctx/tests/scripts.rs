//! Tools, agents and connectors made of scripts: from the view of authors and callers.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestServer, TestWorkspace, ctx_snapshot, wait_until};
use serde_json::{Value, json};

const SERVER: &str = "[server]\nbind = \"127.0.0.1:0\"\n";

const TICKET: &str = r#"tool = {
    name = "ticket",
    description = "Create a ticket",
    parameters = {
        { name = "title", type = "string", required = true, description = "Its title" },
        { name = "priority", type = "string", default = "low", enum = { "low", "high" } },
        { name = "count", type = "integer" },
    },
}

function tool.execute(params, context)
    if params.title == "loop" then
        while true do end
    end
    if params.title == "fail" then
        error("it does not work")
    end
    if params.title == "leak" then
        error(context.config.api_token .. " and " .. env.get("TICKET_HOME"))
    end
    log.info("creating " .. params.title)
    return {
        title = params.title,
        priority = params.priority,
        count = params.count,
        project = context.config.project,
        home = env.get("TICKET_HOME"),
        found = #context.search("button"),
    }
end
"#;

/// A tool with this name that returns this text.
fn says(name: &str, text: &str) -> String {
    format!(
        "tool = {{ name = \"{name}\", description = \"Says {text}\", parameters = {{}} }}\n\
         function tool.execute() return \"{text}\" end\n"
    )
}

/// A workspace that is trusted to run scripts.
fn with_config(config: &str) -> TestWorkspace {
    TestWorkspace::empty()
        .config(&format!("[connectors.filesystem.docs]\nroot = \"docs\"\n{SERVER}{config}"))
        .file("docs/deploy.md", "# Deploy\nPush the button.\n")
}

fn with_ticket() -> TestWorkspace {
    with_config(
        "[tools.script.ticket]\npath = \"tools/ticket.lua\"\ntimeout = 1\nproject = \"ENG\"\n\
         api_token = \"hunter2hunter2\"\n",
    )
    .file("tools/ticket.lua", TICKET)
    .env("TICKET_HOME", "nowhere")
}

fn result_of(server: &TestServer, tool: &str) -> Value {
    server.post(&format!("/tools/{tool}"), &json!({})).body["result"].clone()
}

#[test]
fn a_tool_is_called_over_http_with_defaults_configuration_and_knowledge() {
    let w = with_ticket();
    w.ctx("sync").success();
    let server = w.spawn_server();
    let reply = server.post("/tools/ticket", &json!({"title": "x"}));
    assert_eq!(reply.status, 200, "{:?}", reply.body);
    let expected = json!({"title": "x", "priority": "low", "project": "ENG", "home": "nowhere", "found": 1});
    assert_eq!(reply.body["result"], expected);
    server.stop().success();
    let runs = w.ctx("runs --json").json();
    assert_eq!(runs["runs"][0]["tool"], "tools.ticket", "{runs}");
}

#[test]
fn a_tool_fails_in_the_published_ways() {
    let w = with_ticket();
    let server = w.spawn_server();
    let told = |tool: &str, arguments: Value| {
        let reply = server.post(&format!("/tools/{tool}"), &arguments);
        (
            reply.status,
            reply.error_code().to_owned(),
            reply.body["error"]["message"].as_str().unwrap().to_owned(),
        )
    };
    let expect = |status: u16, code: &str, message: &str| (status, code.to_owned(), message.to_owned());
    assert_eq!(told("ticket", json!({})), expect(400, "bad_request", "missing required parameter: title"));
    assert_eq!(
        told("ticket", json!({"title": "x", "priority": "urgent"})),
        expect(400, "bad_request", "parameter `priority`: its value is not one of \"low\" or \"high\"")
    );
    assert_eq!(told("nothing", json!({})), expect(404, "not_found", "no tool registered with name: nothing"));
    assert_eq!(
        told("ticket", json!({"title": "loop"})),
        expect(408, "timeout", "tool 'ticket' timed out after 1 second")
    );
    assert_eq!(
        told("ticket", json!({"title": "fail"})),
        expect(500, "tool_error", "tools/ticket.lua:16: it does not work")
    );
    assert_eq!(
        told("ticket", json!({"title": "leak"})),
        expect(500, "tool_error", "tools/ticket.lua:19: *** and ***"),
        "neither settings nor variables get out"
    );
    server.stop().success();
}

#[test]
fn a_listing_tells_of_a_tool_and_nothing_of_its_configuration() {
    let w = with_ticket();
    let server = w.spawn_server();
    let listed = server.get("/tools/list").body;
    let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "ticket").unwrap();
    assert_eq!((&tool["builtin"], &tool["parameters"]["required"]), (&json!(false), &json!(["title"])));
    let shown = w.ctx("config show").success();
    let doctor = w.ctx("doctor --json");
    for text in [listed.to_string(), shown.stdout, doctor.stdout, w.ctx("tool list --json").success().stdout]
    {
        assert!(!text.contains("hunter2"), "{text}");
    }
    server.stop().success();
}

#[test]
fn a_broken_script_is_told_and_stops_nobody() {
    let w = with_config(
        "[tools.script.broken]\npath = \"tools/broken.lua\"\n[tools.script.other]\npath = \"tools/named.lua\"\n\
         [tools.script.gone]\npath = \"tools/gone.lua\"\n[tools.script.search]\npath = \"tools/search.lua\"\n\
         [tools.script.good]\npath = \"tools/good.lua\"\n",
    )
    .file("tools/broken.lua", "tool = {\n  name = \"broken\",\n  = 5\n}\n")
    .file("tools/named.lua", &says("something", "x"))
    .file("tools/search.lua", &says("search", "mine"))
    .file("tools/good.lua", &says("good", "hello"));
    w.ctx("sync").success();
    let server = w.spawn_server();
    assert_eq!(result_of(&server, "good"), "hello");
    for name in ["broken", "other", "gone"] {
        assert_eq!(server.post(&format!("/tools/{name}"), &json!({})).status, 404, "{name}");
    }
    assert!(server.post("/tools/search", &json!({"query": "button"})).body["results"].is_array());
    let stderr = server.stop().success().stderr;
    let doctor = w.ctx("doctor --json").code(1).json();
    let listed = w.ctx("tool list --json").success().json();
    for (section, reason) in [
        ("broken", "tools/broken.lua:3:"),
        ("other", "something"),
        ("gone", "tools/gone.lua"),
        ("search", "reserved for a built-in"),
    ] {
        let line =
            stderr.lines().find(|line| line.contains(&format!("[tools.script.{section}] is left out: ")));
        assert!(line.is_some_and(|line| line.contains(reason)), "{section}: {stderr}");
        let failed =
            |check: &Value| check["name"] == format!("tools.script.{section}") && check["ok"] == false;
        assert!(doctor["checks"].as_array().unwrap().iter().any(failed), "{section}: {doctor}");
        let told = listed["problems"].to_string();
        assert!(told.contains(&format!("tools.script.{section}")), "{section}: {told}");
    }
}

#[test]
fn a_changed_script_is_taken_up_and_a_broken_change_is_not() {
    let w = with_config("[tools.script.greet]\npath = \"tools/greet.lua\"\nrate_limit = \"3/d\"\n")
        .file("tools/greet.lua", &says("greet", "hello"));
    let mut server = w.spawn_server();
    assert_eq!(result_of(&server, "greet"), "hello");
    let describes = |server: &TestServer, description: &str| {
        let listed = server.get("/tools/list").body;
        listed["tools"].as_array().unwrap().iter().any(|tool| tool["description"] == description)
    };
    w.write("tools/greet.lua", says("greet", "goodbye"));
    wait_until("the change is taken up", || describes(&server, "Says goodbye"));
    w.write("tools/greet.lua", "tool = {");
    server.wait_for("the previous version stays in use");
    assert_eq!(result_of(&server, "greet"), "goodbye");
    w.write("tools/greet.lua", says("greet", "again"));
    wait_until("it is in order again", || describes(&server, "Says again"));
    assert_eq!(result_of(&server, "greet"), "again");
    let refused = server.post("/tools/greet", &json!({}));
    assert_eq!(refused.status, 429, "counts go on over a reload");
    server.stop().success();
}

#[test]
fn a_test_of_a_tool_shows_each_step_and_the_result() {
    let w = with_ticket();
    w.ctx("sync").success();
    let tested =
        w.ctx_args(["tool", "test", "tools/ticket.lua", "--param", "title=A b", "--param", "count=3"]);
    let mut tested = tested.success();
    // Durations vary.
    let (before, after) = tested.stdout.split_once("Returned result in ").unwrap();
    tested.stdout = format!("{before}Returned result in [TIME]{}", &after[after.find('\n').unwrap()..]);
    ctx_snapshot!(tested, @r#"
    exit_code: 0
    ----- stdout -----
    Testing tool: ticket (tools/ticket.lua)
      ✓ Script loaded
      ✓ tool.execute defined
      ✓ 3 parameters declared
      ✓ Calling execute({title: "A b", count: 3})...
      ✓ Returned result in [TIME]

    Result:
      {
        "count": 3,
        "found": 1,
        "home": "nowhere",
        "priority": "low",
        "project": "ENG",
        "title": "A b"
      }

    ----- stderr -----
    creating A b
    "#);
    let json = w.ctx_args(["tool", "test", "tools/ticket.lua", "--params", r#"{"title": "x"}"#, "--json"]);
    let json = json.success().json();
    assert_eq!((&json["ok"], &json["result"]["project"]), (&json!(true), &json!("ENG")));
    assert!(w.ctx("runs --json").json()["runs"].as_array().unwrap().is_empty(), "a test is no run");
}

#[test]
fn a_test_that_fails_says_where() {
    let w = with_ticket().file("tools/broken.lua", "tool = {\n  = 5\n}\n").file("tools/plain.lua", "x = 5\n");
    ctx_snapshot!(w.ctx("tool test tools/ticket.lua --param title=fail"), @r#"
    exit_code: 1
    ----- stdout -----
    Testing tool: ticket (tools/ticket.lua)
      ✓ Script loaded
      ✓ tool.execute defined
      ✓ 3 parameters declared
      ✓ Calling execute({title: "fail"})...
      ✗ tools/ticket.lua:16: it does not work

    ----- stderr -----
    error: the test of ticket (tools/ticket.lua) failed
    "#);
    let missing = w.ctx("tool test tools/ticket.lua").code(1);
    assert!(missing.stdout.contains("  ✗ missing required parameter: title\n"), "{}", missing.stdout);
    let wrong = w.ctx("tool test tools/ticket.lua --param title=x --param count=many").code(1);
    assert!(wrong.stdout.contains("  ✗ parameter `count`: its value is not of type"), "{}", wrong.stdout);
    let broken = w.ctx("tool test tools/broken.lua").code(1);
    assert!(broken.stdout.contains("  ✗ tools/broken.lua:2:"), "{}", broken.stdout);
    let plain = w.ctx("tool test tools/plain.lua").code(1);
    assert!(plain.stdout.contains("  ✗ "), "{}", plain.stdout);
    w.ctx("tool test tools/nothing.lua").code(2).stderr_contains("there is no script tools/nothing.lua");
    w.ctx("tool test tools/ticket.lua --source tickt").code(2).stderr_contains("did you mean `ticket`?");
    w.ctx("tool test tools/ticket.lua --param title").code(2).stderr_contains("NAME=VALUE");
    w.ctx("tool test tools/ticket.lua --params [1]").code(2).stderr_contains("not a JSON object");
}

#[test]
fn a_tool_can_be_tried_without_a_workspace_and_without_its_name() {
    let w = TestWorkspace::empty().file("greet.lua", &says("greet", "hello"));
    let tested = w.ctx("tool test greet.lua").success();
    assert!(tested.stdout.starts_with("Testing tool: greet (greet.lua)\n"), "{}", tested.stdout);
    assert!(tested.stdout.ends_with("\nResult:\n  \"hello\"\n"), "{}", tested.stdout);
    assert!(!w.path(".ctx").exists(), "nothing is written");
}

#[test]
fn what_init_writes_runs_as_it_is() {
    let w = TestWorkspace::empty().file("docs/deploy.md", "# Deploy\nPush the button.\n");
    w.ctx("init").success();
    w.ctx("sync -q").success();
    let made = w.ctx("tool init find-titles").success();
    assert!(made.stdout.contains("added [tools.script.find_titles] to ctx.toml"), "{}", made.stdout);
    w.ctx("connector init example").success();
    w.ctx("agent init guide").success();
    let tested = w.ctx("tool test tools/find-titles.lua --param query=button --json").success().json();
    assert_eq!(tested["result"], json!({"count": 1, "titles": ["Deploy"]}));
    let scanned = w.ctx("connector test connectors/example.lua --json").success().json();
    assert_eq!(
        (&scanned["scan"]["items"], &scanned["scan"]["shown"][0]["title"]),
        (&json!(1), &json!("An example"))
    );
    let prompt = w.ctx("agent test agents/guide.lua --arg topic=button --json").success().json();
    assert_eq!(prompt["prompt"]["tools"], json!(["search", "get"]));
    assert!(prompt["prompt"]["system"].as_str().unwrap().contains("- Deploy ("), "{prompt}");
    // Trusted: the user's own command has written it.
    w.ctx("sync -q").success();
    assert_eq!(w.ctx("search example --mode keyword --json").found_ids(), ["example-1"]);
    let doctor = w.ctx("doctor --json").json();
    assert_eq!(doctor["ok"], true, "{doctor}");
    w.ctx("tool init find-titles")
        .code(2)
        .stderr_contains("tools/find-titles.lua already exists; nothing was changed");
    w.ctx("tool init search").code(2).stderr_contains("reserved for a built-in");
    w.ctx("tool init ../x").code(2).stderr_contains("is not a valid script name");
}

#[test]
fn a_connector_brings_in_changes_and_takes_out_what_is_gone() {
    let connector = |items: &str| {
        format!(
            "connector = {{ name = \"notes\", description = \"Notes\" }}\n\
             function connector.scan(config, cursor) return {{ {items} }} end\n"
        )
    };
    let (one, two) = (
        "{ source_id = \"1\", title = \"One\", body = \"harbour \" .. config.word }",
        "{ source_id = \"2\", title = \"Two\", body = \"lighthouse\" }",
    );
    let w = with_config(
        "[connectors.script.notes]\npath = \"connectors/notes.lua\"\ntags = [\"note\"]\nword = \"anchor\"\n",
    )
    .file("connectors/notes.lua", &connector(&format!("{one}, {two}")));
    let synced = w.ctx("sync script:notes").success();
    assert_eq!(synced.stdout, "script:notes: 2 added\n");
    assert_eq!(w.ctx("search anchor --tag note --json").found_ids(), ["1"]);
    w.write("connectors/notes.lua", connector(one));
    assert_eq!(w.ctx("sync script").success().stdout, "script:notes: 1 deleted, 1 unchanged\n");
    assert_eq!(w.ctx("search lighthouse --json").found_ids(), [""; 0]);
    w.write("connectors/notes.lua", "connector = {");
    w.ctx("sync script:notes").code(1).stderr_contains("error: script:notes: connectors/notes.lua:1");
    assert_eq!(w.ctx("search anchor --json").found_ids(), ["1"], "what is known stays");
    let source = w.ctx("sources --json").json()["sources"].clone();
    let source = source.as_array().unwrap().iter().find(|source| source["name"] == "script:notes").unwrap();
    assert_eq!(source["healthy"], false, "{source}");
}

#[test]
fn agents_are_listed_and_resolved_wherever_they_are_written() {
    let w = with_config(
        "[agents.inline.reviewer]\ndescription = \"Reviews\"\ntools = [\"search\"]\n\
         system_prompt = \"Review {{service}}.\"\narguments = [{ name = \"service\", required = true }]\n\
         [agents.script.broken]\npath = \"agents/broken.lua\"\n",
    )
    .file("agents/broken.lua", "agent = {");
    let listed = w.ctx("agent list --json").success().json();
    assert_eq!(
        listed["agents"],
        json!([{
            "name": "reviewer", "description": "Reviews", "tools": ["search"], "source": "toml",
            "arguments": [{"name": "service", "description": "", "required": true}],
        }])
    );
    assert!(
        listed["problems"][0].as_str().unwrap().contains("[agents.script.broken] is left out: "),
        "{listed}"
    );
    assert_eq!(w.ctx("agent test reviewer --arg service=payments").success().stdout, "Review payments.\n");
    w.ctx("agent test reviewer").code(2).stderr_contains("missing required parameter: service");
}

#[test]
fn what_needs_no_script_loads_none() {
    let w = with_config("[tools.script.broken]\npath = \"tools/broken.lua\"\n")
        .file("tools/broken.lua", "tool = {");
    w.ctx("sync").success();
    let found = w.ctx("search button --json").success();
    assert_eq!((found.found_ids(), found.stderr.as_str()), (vec!["deploy.md".to_owned()], ""));
    assert_eq!(w.ctx("stats").success().stderr, "");
    w.ctx("tool list").success().stderr_contains("[tools.script.broken] is left out: ");
}

#[test]
fn an_agent_and_a_source_are_called_what_they_were_named() {
    let w = with_config("");
    let made = w.ctx("agent init on-call").success();
    assert!(made.stdout.contains("added [agents.script.on-call] to ctx.toml"), "{}", made.stdout);
    let made = w.ctx("connector init my-notes").success();
    assert!(made.stdout.contains("added [connectors.script.my-notes] to ctx.toml"), "{}", made.stdout);
    assert_eq!(w.ctx("agent list --json").success().json()["agents"][0]["name"], "on-call");
    assert_eq!(w.ctx("sync script:my-notes").success().stdout, "script:my-notes: 1 added\n");
}

#[test]
fn a_script_that_is_too_large_is_not_run_in_part() {
    let w = with_config("[limits]\nscript_source_bytes = 4194304\n");
    w.write("large.luau", format!("return 1 --{}", "x".repeat(1 << 20)));
    w.ctx("exec large.luau").code(2).stderr_contains("error: large.luau is larger than 1 MiB");
}
