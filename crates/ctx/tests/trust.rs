//! Configurations that were found, not named: what they run, and who has agreed to it.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use serde_json::json;

const CONFIG: &str = "[connectors.filesystem.docs]\nroot = \"docs\"\n[server]\nbind = \"127.0.0.1:0\"\n\
    [embedding]\nprovider = \"disabled\"\n\
    [connectors.script.notes]\npath = \"notes.lua\"\n[tools.script.greet]\npath = \"greet.lua\"\n";

fn greeting(text: &str) -> String {
    format!(
        "tool = {{ name = \"greet\", description = \"Greets\", parameters = {{}} }}\n\
         function tool.execute() return \"{text}\" end\n"
    )
}

/// A workspace as somebody else might have written it.
fn found() -> TestWorkspace {
    TestWorkspace::empty()
        .config(CONFIG)
        .file("docs/deploy.md", "# Deploy\nPush the button.\n")
        .file("greet.lua", &greeting("hello"))
        .file(
            "notes.lua",
            "connector = { name = \"notes\" }\n\
             function connector.scan() return { { source_id = \"1\", body = \"harbour\" } } end\n",
        )
}

/// What a server answers to a call of the tool, while it finds what there is to find.
fn greets(w: &TestWorkspace, arguments: &[&str]) -> u16 {
    w.ctx("sync filesystem").success();
    let server = w.spawn([arguments, &["serve", "mcp"]].concat());
    let status = server.post("/tools/greet", &json!({})).status;
    assert_eq!(server.post("/tools/search", &json!({"query": "button"})).status, 200);
    server.stop().success();
    status
}

#[test]
fn scripts_of_a_configuration_that_was_found_are_left_out_and_the_rest_works() {
    let w = found();
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 1 added

    ----- stderr -----
    warning: [ROOT]/ctx.toml is not trusted, so its scripts are left out: connectors.script.notes (notes.lua), tools.script.greet (greet.lua)
    hint: look at them, then let them run with `ctx trust` (or CTX_TRUST=1 where nobody can answer)
    ");
    w.ctx("sync script:notes")
        .code(1)
        .says("error: script:notes cannot be synced: its configuration is not trusted");
    assert_eq!(w.ctx("search button --json").success().stderr, "", "a command that runs none says nothing");
    assert_eq!(greets(&w, &[]), 404);
    let list = w.ctx("tool list").success().says("is not trusted");
    assert!(!list.stdout.contains("greet"), "{}", list.stdout);
    let doctor = w.ctx("doctor --json").code(1).json();
    assert!(doctor["checks"].to_string().contains("not trusted"), "{doctor}");
}

#[test]
fn whoever_names_a_configuration_has_agreed_to_it() {
    let w = found();
    assert_eq!(greets(&w, &["--config", "ctx.toml"]), 200);
    assert_eq!(greets(&w, &[]), 404, "for that once");
    let w = w.env("CTX_CONFIG", "ctx.toml");
    assert_eq!(greets(&w, &[]), 200);
    let up = found();
    let server = up.spawn(["up", "."]);
    assert_eq!(server.post("/tools/greet", &json!({})).status, 200);
    server.stop().success();
    let trusting = found().env("CTX_TRUST", "1");
    assert_eq!(greets(&trusting, &[]), 200);
}

#[test]
fn trust_lasts_until_other_scripts_would_run() {
    let w = found();
    let state = || w.ctx("trust --show --json").success().json()["state"].as_str().unwrap().to_owned();
    assert_eq!(state(), "not trusted");
    ctx_snapshot!(w.ctx("trust"), @r"
    exit_code: 0
    ----- stdout -----
    [ROOT]/ctx.toml is trusted; it would run:
      [connectors.script.notes]  notes.lua
      [tools.script.greet]  greet.lua

    ----- stderr -----
    ");
    assert_eq!(greets(&w, &[]), 200);
    w.ctx("sync").success();
    assert_eq!(w.ctx("search harbour --json").found(), ["1"]);
    w.write("greet.lua", greeting("goodbye"));
    w.write("ctx.toml", CONFIG.replace("greet.lua\"\n", "greet.lua\"\nword = \"x\"\n"));
    assert_eq!(greets(&w, &[]), 200, "an edit of the script, or of its settings, is no other script");
    w.write("ctx.toml", CONFIG.replace("greet.lua", "other.lua"));
    w.write("other.lua", greeting("other"));
    assert_eq!(
        (greets(&w, &[]), state().as_str()),
        (404, "trusted no longer, since it would run other scripts now")
    );
    w.ctx("sync").success().says("is not trusted");
    assert_eq!(w.ctx("search harbour --json").found(), ["1"], "what it brought in before stays");
    w.ctx("trust").success();
    assert_eq!(greets(&w, &[]), 200);
    w.ctx("trust --forget").success();
    assert_eq!((greets(&w, &[]), state().as_str()), (404, "not trusted"));
}

#[test]
fn a_workspace_elsewhere_with_the_same_scripts_is_not_trusted() {
    let w = found();
    w.ctx("trust").success();
    w.write("copy/ctx.toml", CONFIG);
    w.write("copy/greet.lua", greeting("copy"));
    let shown = w.shell("cd copy && ctx trust --show").success();
    assert!(shown.stdout.contains("copy/ctx.toml is not trusted"), "{}", shown.stdout);
}

#[test]
fn scripts_of_the_users_own_configuration_run_and_a_workspace_cannot_change_them() {
    let w = TestWorkspace::empty().config("[server]\nbind = \"127.0.0.1:0\"\n").file(
        "own/greet.lua",
        "tool = { name = \"greet\", description = \"Greets\", parameters = {} }\n\
         function tool.execute(_, context) return context.config.url end\n",
    );
    let path = w.path("own/greet.lua");
    let user = format!("[tools.script.greet]\npath = \"{}\"\nurl = \"mine\"\n", path.display());
    w.write("../home/.config/ctx/config.toml", user);
    let server = w.spawn_server();
    assert_eq!(server.post("/tools/greet", &json!({})).body["result"], "mine");
    server.stop().success();
    w.write("ctx.toml", "[server]\nbind = \"127.0.0.1:0\"\n[tools.script.greet]\nurl = \"theirs\"\n");
    let server = w.spawn_server();
    assert_eq!(server.post("/tools/greet", &json!({})).status, 404);
    server.stop().success().says("tools.script.greet ({\"url\":\"theirs\"})");
}

#[test]
fn apis_of_a_configuration_that_was_found_are_left_out_and_their_secrets_are_not_told() {
    let api = |base: &str, key: &str| {
        format!("[apis.pets]\nspec = \"pets.yaml\"\nbase_url = \"{base}\"\nauth = \"{key}\"\n")
    };
    let w = TestWorkspace::empty().config(&api("https://a", "hunter2hunter2")).file("script.lua", "return 1");
    let told = "is not trusted, so its APIs are left out: apis.pets (pets.yaml https://a {\"auth\":\"***\"})";
    w.ctx("exec script.lua").success().says(told);
    assert!(!w.ctx("trust").success().stdout.contains("hunter2"));
    assert!(!w.ctx("exec script.lua").success().stderr.contains("trusted"));
    // Another key of its own is its own affair; another place to send the user's to is not.
    w.write("ctx.toml", api("https://a", "hunter3hunter3"));
    assert!(!w.ctx("exec script.lua").success().stderr.contains("trusted"));
    w.write("ctx.toml", api("https://b", "hunter3hunter3"));
    w.ctx("exec script.lua").success().says("is not trusted");
}
