//! Edits of the configuration while a server runs.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::apis::StdioSession;
use ctx_testkit::{TestServer, TestWorkspace, wait_until};
use serde_json::{Value, json};

const CONFIG: &str = "[server]\nbind = \"127.0.0.1:0\"\n[embedding]\nprovider = \"disabled\"\n\
    [connectors.filesystem.docs]\nroot = \"docs\"\n";
const GREET: &str = "[tools.script.greet]\npath = \"greet.lua\"\n";

fn tool(name: &str, answer: &str) -> String {
    format!(
        "tool = {{ name = \"{name}\", description = \"Answers.\", parameters = {{}} }}\n\
         function tool.execute() return \"{answer}\" end\n"
    )
}

fn workspace() -> TestWorkspace {
    TestWorkspace::empty()
        .config(CONFIG)
        .file("docs/harbour.md", "# Harbour\nShips moor here.\n")
        .file("greet.lua", &tool("greet", "hello"))
}

fn call(server: &TestServer, tool: &str) -> (u16, Value) {
    let reply = server.post(&format!("/tools/{tool}"), &json!({}));
    (reply.status, reply.body["result"].clone())
}

/// Number of search results; `None` while the first index is built, which refuses searches.
fn hits(server: &TestServer, words: &str) -> Option<usize> {
    let reply = server.post("/tools/search", &json!({"query": words, "mode": "keyword"}));
    (reply.status != 503).then(|| reply.found_ids().len())
}

fn finds(server: &TestServer, words: &str) -> bool {
    hits(server, words).is_some_and(|found| found > 0)
}

fn lacks(server: &TestServer, words: &str) -> bool {
    hits(server, words) == Some(0)
}

fn edit(w: &TestWorkspace, added: &str) {
    w.write("ctx.toml", format!("{CONFIG}{added}"));
}

#[test]
fn a_tool_that_is_made_while_serving_can_be_called() {
    let w = workspace();
    let server = w.spawn_server();
    w.ctx("tool init shout").success();
    wait_until("the new tool is listed", || server.get("/tools/list").body.to_string().contains("\"shout\""));
    edit(&w, "");
    wait_until("the tool is gone with its section", || call(&server, "shout").0 == 404);
    server.stop().success();
}

#[test]
fn sections_are_added_changed_and_removed_while_serving() {
    let w = workspace().file("more/anchor.md", "# Anchor\nIron that holds a ship.\n");
    let server = w.spawn(["up", "."]);
    wait_until("the folder is indexed", || finds(&server, "moor"));
    assert_eq!(call(&server, "greet").0, 404);
    edit(
        &w,
        &format!("{GREET}[connectors.filesystem.more]\nroot = \"more\"\n[retrieval]\nfinal_limit = 1\n"),
    );
    wait_until("the new folder is indexed", || finds(&server, "iron"));
    assert_eq!(call(&server, "greet"), (200, json!("hello")));
    let found = server.post("/tools/search", &json!({"query": "ship ships", "mode": "keyword"})).found_ids();
    assert_eq!(found.len(), 1, "`final_limit` is in effect");
    // The new source is watched, too.
    w.write("more/rope.md", "# Rope\nHemp and tar.\n");
    wait_until("a file of the new source", || finds(&server, "hemp"));
    server
        .stop()
        .success()
        .stderr_contains("was reloaded: added [connectors.filesystem.more], [tools.script.greet]");
}

#[test]
fn a_broken_edit_keeps_the_configuration_before_it() {
    let w = workspace();
    edit(&w, GREET);
    let mut server = w.spawn_server();
    w.write("ctx.toml", format!("{CONFIG}{GREET}[retrieval\n"));
    server.wait_for("the previous configuration stays in use");
    assert_eq!(call(&server, "greet"), (200, json!("hello")));
    w.write("ctx.toml", format!("{CONFIG}{GREET}[retrieval]\nfinal_limits = 3\n"));
    server.wait_for("final_limits");
    w.remove("ctx.toml");
    server.wait_for("cannot be used");
    assert_eq!(call(&server, "greet"), (200, json!("hello")));
    w.write("other.lua", tool("other", "also here"));
    edit(&w, &format!("{GREET}[tools.script.other]\npath = \"other.lua\"\n"));
    wait_until("the next good edit is used", || call(&server, "other") == (200, json!("also here")));
    server.stop().success();
}

#[test]
fn a_restart_alone_changes_where_the_server_is_and_its_store() {
    let w = workspace();
    let mut server = w.spawn_server();
    w.write(
        "ctx.toml",
        format!("{CONFIG}{GREET}[db]\npath = \"other.sqlite\"\n[limits]\ndrain_timeout = 1\n")
            .replace("127.0.0.1:0", "127.0.0.1:1"),
    );
    server.wait_for("a restart is needed to apply server, db, limits.drain_timeout");
    wait_until("the rest of the edit is used", || call(&server, "greet") == (200, json!("hello")));
    assert!(!w.path("other.sqlite").exists());
    server.stop().success();
}

#[test]
fn an_edit_leaves_other_upstreams_and_scripts_as_they_are() {
    let upstream = TestWorkspace::empty()
        .config("[tools.script.greet]\npath = \"greet.lua\"\n")
        .file("greet.lua", &tool("greet", "from upstream"));
    let section = |name: &str| {
        let config = upstream.path("ctx.toml");
        format!(
            "[mcp_servers.{name}]\ncommand = \"sh\"\nargs = [\"-c\", \"echo {name} >> starts; \
             exec ctx --trust --config {} serve mcp --stdio\"]\n",
            config.display()
        )
    };
    let calls = |name: &str| json!({"script": format!("return sdk.{name}.greet{{}}")});
    let w = workspace();
    edit(&w, &format!("{GREET}{}", section("one")));
    let server = w.spawn_server();
    let answers = |name: &str| {
        let reply = server.post("/tools/execute", &calls(name));
        reply.body.to_string().contains("from upstream")
    };
    wait_until("the upstream answers", || answers("one"));
    // A script with a broken newest version keeps its old version, also after an edit of the configuration.
    w.write("greet.lua", "tool = nonsense(");
    edit(&w, &format!("{GREET}{}{}", section("one"), section("two")));
    wait_until("the added upstream answers", || answers("two"));
    assert_eq!(call(&server, "greet"), (200, json!("hello")));
    edit(&w, &format!("{GREET}{}", section("two")));
    wait_until("the removed upstream is gone", || !answers("one"));
    assert!(answers("two"));
    assert_eq!(w.read("starts"), "one\ntwo\n", "neither was started twice");
    server.stop().success();
}

#[test]
fn an_untrusted_edit_keeps_what_was_trusted_until_the_user_trusts_it() {
    let w = workspace().untrusted();
    edit(&w, &format!("{GREET}word = \"one\"\n"));
    w.write(
        "greet.lua",
        "tool = { name = \"greet\", description = \"Greets.\", parameters = {} }\n\
         function tool.execute(_, context) return context.config.word end\n",
    );
    // `--trust` covers the file as it is when the command starts.
    let mut server = w.spawn(["--trust", "serve", "mcp"]);
    assert_eq!(call(&server, "greet"), (200, json!("one")));
    w.write("other.lua", tool("other", "new"));
    edit(&w, &format!("{GREET}word = \"two\"\n[tools.script.other]\npath = \"other.lua\"\n"));
    server.wait_for("not trusted: tools.script.greet");
    assert_eq!(call(&server, "greet"), (200, json!("one")), "the trusted section stays");
    assert_eq!(call(&server, "other").0, 404);
    w.ctx("trust").success();
    wait_until("what is trusted now is used", || call(&server, "greet") == (200, json!("two")));
    assert_eq!(call(&server, "other"), (200, json!("new")));
    server.stop().success();
}

#[test]
fn apis_agents_and_repositories_are_added_changed_and_removed_while_serving() {
    let operation = |name: &str| json!({"operationId": name, "responses": {"200": {"description": "ok"}}});
    let api = json!({
        "openapi": "3.1.0",
        "info": {"title": "Kennel", "version": "1"},
        "servers": [{"url": "http://127.0.0.1:9"}],
        "paths": {"/dogs": {"get": operation("list_dogs"), "delete": operation("drop_dogs")}},
    });
    let w = workspace()
        .file("kennel.json", &api.to_string())
        .file("repository/buoy.md", "# Buoy\nMarks the channel.\n");
    w.shell(
        "cd repository && git init -q -b main && git add --all && \
         git -c user.name=a -c user.email=a@example.com commit -q -m all",
    )
    .success();
    let server = w.spawn_server();
    let knows = |function: &str| {
        let reply = server.post("/tools/get_function_docs", &json!({"name": function}));
        reply.body.to_string().contains(&format!("function sdk.{function}("))
    };
    let agents = || server.get("/agents/list").body.to_string();
    let kennel = "[apis.kennel]\nspec = \"kennel.json\"\n";
    let pilot = "[agents.inline.pilot]\ndescription = \"Steers\"\nsystem_prompt = \"Steer.\"\n";
    let repository = "[connectors.git.charts]\nurl = \"repository\"\n";
    edit(&w, &format!("{kennel}{pilot}{repository}"));
    wait_until("the repository is indexed", || finds(&server, "channel"));
    wait_until("the API is known", || knows("kennel.list_dogs") && knows("kennel.drop_dogs"));
    assert!(agents().contains("Steers"), "{}", agents());

    edit(
        &w,
        &format!(
            "{kennel}exclude = [\"DELETE /**\"]\n{}{repository}include_globs = [\"*.txt\"]\n",
            pilot.replace("Steers", "Moors")
        ),
    );
    wait_until("the repository is read by other globs", || lacks(&server, "channel"));
    wait_until("the API has other operations", || knows("kennel.list_dogs") && !knows("kennel.drop_dogs"));
    assert!(agents().contains("Moors") && !agents().contains("Steers"), "{}", agents());

    edit(&w, "");
    wait_until("the agent is gone with its section", || !agents().contains("Moors"));
    assert!(!knows("kennel.list_dogs"));
    server.stop().success();
}

#[test]
fn embedding_chunking_and_limits_change_while_serving() {
    let lines: String = (0..60).map(|number| format!("Ships moor at berth number {number}.\n\n")).collect();
    let w = workspace().file("docs/berths.md", &lines);
    let server = w.spawn(["up", "."]);
    wait_until("the folder is indexed", || finds(&server, "berth"));
    let chunks = || w.ctx("stats --json").success().json()["chunks"].as_u64().unwrap();
    let before = chunks();
    edit(&w, "[chunking]\nmax_tokens = 64\noverlap_tokens = 0\n");
    wait_until("the documents are split anew", || chunks() > before);

    let long = || {
        let reply = server.post("/tools/execute", &json!({"script": "return string.rep(\"x\", 5000)"}));
        reply.body.to_string().contains(&"x".repeat(5000))
    };
    assert!(long());
    edit(&w, "[limits]\nanswer_bytes = 2000\n");
    wait_until("a long result is kept", || !long());

    let semantic = || server.post("/tools/search", &json!({"query": "harbour", "mode": "semantic"}));
    assert_eq!(semantic().error_code(), "embeddings_disabled");
    w.write("ctx.toml", CONFIG.replace("\"disabled\"", "\"builtin\"\nmodel = \"fast\""));
    wait_until("documents are found by meaning", || {
        let reply = semantic();
        reply.status == 200 && !reply.found_ids().is_empty()
    });
    server.stop().success();
}

#[test]
fn a_tool_that_is_made_while_serving_over_stdio_can_be_called() {
    let w = workspace();
    let mut client = StdioSession::start(&w, &["serve", "mcp", "--stdio"]);
    let mut greet = || client.call(json!({"name": "greet", "arguments": {}}));
    assert_ne!(greet()["structuredContent"], json!("hello"));
    edit(&w, GREET);
    wait_until("the tool answers", || greet().to_string().contains("hello"));
    edit(&w, "");
    wait_until("the tool is gone", || !greet().to_string().contains("hello"));
    client.end();
}

#[test]
fn the_users_own_file_is_followed_from_the_moment_it_is_there() {
    let w = workspace().file("docs/anchor.md", "# Anchor\nIron that holds ships.\n");
    let server = w.spawn(["up", "."]);
    let found =
        || server.post("/tools/search", &json!({"query": "ships", "mode": "keyword"})).found_ids().len();
    wait_until("the folder is indexed", || found() == 2);
    let user = "../home/.config/ctx/config.toml";
    w.write(user, "[retrieval]\nfinal_limit = 1\n");
    wait_until("the new file is used", || found() == 1);
    w.write(user, "[retrieval]\nfinal_limit = 2\n");
    wait_until("its edit is used", || found() == 2);
    w.write(user, "[retrieval]\nfinal_limit = 1\n");
    wait_until("another edit is used", || found() == 1);
    w.remove(user);
    wait_until("it is gone", || found() == 2);
    server.stop().success();
}
