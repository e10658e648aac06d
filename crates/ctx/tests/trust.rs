//! Workspace trust: untrusted sections are left out, and what grants and revokes trust.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestServer, TestWorkspace, ctx_snapshot, wait_until};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

const CONFIG: &str = "[connectors.filesystem.docs]\nroot = \"docs\"\n[server]\nbind = \"127.0.0.1:0\"\n\
    [embedding]\nprovider = \"disabled\"\n\
    [connectors.script.notes]\npath = \"notes.lua\"\n[tools.script.greet]\npath = \"greet.lua\"\n";

fn greeting(text: &str) -> String {
    format!(
        "tool = {{ name = \"greet\", description = \"Greets\", parameters = {{}} }}\n\
         function tool.execute() return \"{text}\" end\n"
    )
}

/// A workspace written by someone else, and not trusted.
fn discovered_workspace() -> TestWorkspace {
    TestWorkspace::empty()
        .untrusted()
        .config(CONFIG)
        .file("docs/deploy.md", "# Deploy\nPush the button.\n")
        .file("greet.lua", &greeting("hello"))
        .file(
            "notes.lua",
            "connector = { name = \"notes\" }\n\
             function connector.scan() return { { source_id = \"1\", body = \"harbour\" } } end\n",
        )
}

/// The status of a call of the tool; searches must work in any case.
fn greets(w: &TestWorkspace, arguments: &[&str]) -> u16 {
    w.ctx("sync filesystem").success();
    let server = w.spawn([arguments, &["serve", "mcp"]].concat());
    let status = server.post("/tools/greet", &json!({})).status;
    assert_eq!(server.post("/tools/search", &json!({"query": "button"})).status, 200);
    server.stop().success();
    status
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=x", "-c", "user.email=x@y"]).args(arguments).current_dir(folder);
    let done =
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Turns the workspace into a clone of a foreign repository; returns the path of that.
fn clone_workspace(w: &TestWorkspace) -> PathBuf {
    let base = w.root().parent().unwrap().to_owned();
    let theirs = base.join("theirs");
    std::fs::rename(w.root(), &theirs).unwrap();
    git(&theirs, &["init", "-q", "-b", "main"]);
    git(&theirs, &["add", "."]);
    git(&theirs, &["commit", "-q", "-m", "x"]);
    git(&base, &["clone", "-q", "theirs", "workspace"]);
    theirs
}

#[test]
fn untrusted_sections_are_left_out_and_the_rest_works() {
    let w = discovered_workspace();
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 1 added

    ----- stderr -----
    warning: [ROOT]/ctx.toml is not trusted, so this is left out: connectors.script.notes (notes.lua)
    hint: `ctx trust --show` lists what it requests; `ctx trust` allows it (without a terminal: `--trust` or CTX_TRUST=1)
    ");
    w.ctx("sync script:notes")
        .code(1)
        .stderr_contains("error: script:notes cannot be synced: its configuration is not trusted");
    assert_eq!(w.ctx("search button --json").success().stderr, "", "a command that needs none says nothing");
    assert_eq!(greets(&w, &[]), 404);
    let list = w.ctx("tool list").success().stderr_contains("is not trusted");
    assert!(!list.stdout.contains("greet"), "{}", list.stdout);
    w.ctx("doctor").code(1).stdout_contains(
        "✗ trust: these sections are not trusted and left out: connectors.script.notes, tools.script.greet",
    );
}

#[test]
fn what_is_configured_and_not_trusted_is_not_called_missing() {
    let w = TestWorkspace::empty()
        .untrusted()
        .config(
            "[mcp_servers.files]\ncommand = \"no-such-program\"\n\
             [apis.pets]\nspec = \"https://pets.example/openapi.json\"\n\
             [tools.script.greet]\npath = \"greet.lua\"\n[server]\nbind = \"127.0.0.1:0\"\n",
        )
        .file("greet.lua", &greeting("hello"));
    clone_workspace(&w);
    ctx_snapshot!(w.ctx("upstream list"), @r"
    exit_code: 0
    ----- stdout -----
    pets   not trusted    https://pets.example/openapi.json
    files  not trusted    no-such-program

    ----- stderr -----
    warning: [ROOT]/ctx.toml is not trusted, so this is left out: apis.pets (https://pets.example/openapi.json), mcp_servers.files (no-such-program)
    hint: `ctx trust --show` lists what it requests; `ctx trust` allows it (without a terminal: `--trust` or CTX_TRUST=1)
    2 upstreams are configured, but the workspace is not trusted; `ctx trust` allows them
    ");
    let listed = w.ctx("upstream list --json").success().json();
    assert_eq!(listed["upstreams"][0]["state"], "not trusted", "{listed}");
    let doctor = w.ctx("doctor").code(1).stdout;
    assert!(doctor.contains("run `ctx trust`") && !doctor.contains("none is configured"), "{doctor}");
    w.ctx("connect cursor").success().stderr_contains("mcp_servers.files (no-such-program)");
    w.ctx("tool list").success().stderr_contains("tools.script.greet (greet.lua)");
    let refusal = "configured, but the workspace is not trusted; the user can allow it with `ctx trust`";
    let docs = w.ctx("docs").success().stdout;
    for line in ["files – it is ", "pets – it is ", "tools – 1 tool is "] {
        assert!(docs.contains(&format!("{line}{refusal}")), "{docs}");
    }
    let found = w.ctx("docs --search read").success().stdout;
    assert!(found.contains(&format!("not searched: files, pets – it is {refusal}")), "{found}");
    w.ctx("docs files.read").code(1).stderr_contains(&format!("files: it is {refusal}"));
    w.write("a.luau", "return { sdk.files.read{}, sdk.tools.greet{} }");
    let refused = w.ctx("exec a.luau").code(2);
    assert!(refused.stderr.contains(&format!("sdk.files.read: it is {refusal}")), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("sdk.tools.greet: 1 tool is {refusal}")), "{}", refused.stderr);
    // Agents see no terminal; the tools tell them.
    let server = w.spawn_server();
    for (tool, arguments) in [
        ("search_docs", json!({"query": "read a file"})),
        ("list_functions", json!({})),
        ("list_functions", json!({"provider": "files"})),
        ("get_function_docs", json!({"name": "sdk.pets.list"})),
        ("execute", json!({"script": "return sdk.files.read{}"})),
        ("execute", json!({"script": "local name = 'files' return sdk[name].read{}"})),
    ] {
        let reply = server.post(&format!("/tools/{tool}"), &arguments);
        assert!(reply.body.to_string().contains(refusal), "{tool}: {:?}", reply.body);
    }
    server.stop().success();
    // A section that is trusted later is callable.
    w.ctx("trust").success();
    let docs = w.ctx("docs tools.greet").success().stdout;
    assert!(docs.contains("sdk.tools.greet"), "{docs}");
}

#[test]
fn naming_a_configuration_is_not_trusting_it() {
    let w = discovered_workspace();
    assert_eq!(greets(&w, &["--config", "ctx.toml"]), 404);
    let named = discovered_workspace().env("CTX_CONFIG", "ctx.toml");
    assert_eq!(greets(&named, &[]), 404);
    let server = w.spawn(["up", "."]);
    assert_eq!(server.post("/tools/greet", &json!({})).status, 404);
    server.stop().success().stderr_contains("tools.script.greet (greet.lua)");
    // A hidden configuration file is not trusted either.
    let hidden = discovered_workspace();
    std::fs::create_dir(hidden.path(".ctx")).unwrap();
    std::fs::rename(hidden.path("ctx.toml"), hidden.path(".ctx/config.toml")).unwrap();
    let server = hidden.spawn(["up", "."]);
    assert_eq!(server.post("/tools/greet", &json!({})).status, 404);
    server.stop().success().stderr_contains(".ctx/config.toml is not trusted");
}

#[test]
fn the_variable_trusts_for_once_and_the_flag_from_now_on() {
    let w = discovered_workspace();
    let once = discovered_workspace().env("CTX_TRUST", "1");
    assert_eq!(greets(&once, &[]), 200);
    once.ctx("trust --show").success().stdout_contains("is not trusted");
    assert_eq!(greets(&w, &["--trust"]), 200);
    assert_eq!(greets(&w, &[]), 200, "from now on");
    let up = discovered_workspace();
    let server = up.spawn(["up", ".", "--trust"]);
    assert_eq!(server.post("/tools/greet", &json!({})).body["result"], "hello");
    server.stop().success().stderr_contains("  [tools.script.greet]  greet.lua");
}

#[test]
fn trust_lasts_until_something_else_is_wanted() {
    let w = discovered_workspace();
    let state = || w.ctx("trust --show --json").success().json()["state"].as_str().unwrap().to_owned();
    assert_eq!(state(), "not trusted");
    ctx_snapshot!(w.ctx("trust"), @r"
    exit_code: 0
    ----- stdout -----
    [ROOT]/ctx.toml is trusted; it requests:
    ✓  [connectors.script.notes]  notes.lua
    ✓  [tools.script.greet]  greet.lua

    ----- stderr -----
    ");
    assert_eq!(greets(&w, &[]), 200);
    w.ctx("sync").success();
    assert_eq!(w.ctx("search harbour --json").found_ids(), ["1"]);
    w.write("greet.lua", greeting("goodbye"));
    assert_eq!(greets(&w, &[]), 200, "the user's own edit of a script");
    w.write("ctx.toml", CONFIG.replace("greet.lua\"\n", "greet.lua\"\nallow_hosts = [\"evil.example\"]\n"));
    assert_eq!((greets(&w, &[]), state().as_str()), (404, "trusted in part"));
    assert_eq!(w.ctx("sync").success().stderr, "", "the other section is as it was");
    w.write("ctx.toml", CONFIG.replace("notes.lua", "other.lua"));
    w.write("other.lua", "connector = { name = \"notes\" }");
    w.ctx("sync").success().stderr_contains("connectors.script.notes (other.lua)");
    assert_eq!(w.ctx("search harbour --json").found_ids(), ["1"], "what it brought in before stays");
    let sources = w.ctx("sources").success().stdout;
    assert!(sources.contains("script:notes") && sources.contains("not trusted"), "{sources}");
    w.ctx("trust").success();
    assert_eq!(greets(&w, &[]), 200);
    w.ctx("trust --forget").success();
    assert_eq!((greets(&w, &[]), state().as_str()), (404, "not trusted"));
}

#[test]
fn a_script_that_a_pull_changed_asks_again_and_an_edit_does_not() {
    let w = discovered_workspace();
    let theirs = clone_workspace(&w);
    w.ctx("trust").success();
    let mut server = w.spawn_server();
    let answer = |server: &TestServer| -> String {
        server.post("/tools/greet", &json!({})).body["result"].as_str().unwrap().to_owned()
    };
    assert_eq!(answer(&server), "hello");
    // The running server loads the user's own edit.
    std::fs::write(w.path("greet.lua"), greeting("mine")).unwrap();
    wait_until("the edit is loaded", || answer(&server) == "mine");
    git(w.root(), &["checkout", "-q", "."]);
    // A pulled change is not loaded, and the next command leaves the section out.
    std::fs::write(theirs.join("greet.lua"), greeting("evil")).unwrap();
    git(&theirs, &["commit", "-q", "-a", "-m", "y"]);
    git(w.root(), &["pull", "-q"]);
    server.wait_for("greet.lua is no longer what was trusted");
    assert_eq!(answer(&server), "mine", "the previous version stays in use");
    w.ctx("tool list").success().stderr_contains("tools.script.greet (greet.lua)");
    w.ctx("trust").success();
    wait_until("it is loaded", || answer(&server) == "evil");
    server.stop().success();
}

#[test]
fn a_program_that_a_pull_changed_is_not_started_by_a_running_server() {
    let server = "[mcp_servers.theirs]\ncommand = \"sh\"\nargs = [\"server.sh\"]\nstart = \"lazy\"\n";
    let w = TestWorkspace::empty()
        .untrusted()
        .config(&format!("[server]\nbind = \"127.0.0.1:0\"\n{server}"))
        .file("server.sh", "touch first\n");
    let theirs = clone_workspace(&w);
    w.ctx("trust").success();
    let server = w.spawn_server();
    std::fs::write(theirs.join("server.sh"), "touch second\n").unwrap();
    git(&theirs, &["commit", "-q", "-a", "-m", "y"]);
    git(w.root(), &["pull", "-q"]);
    let refused = server.post("/tools/execute", &json!({"script": "return sdk.theirs.anything{}"}));
    let message = refused.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("server.sh is no longer what was trusted"), "{message}");
    server.stop().success();
    assert!(!w.path("second").exists(), "what was trusted may have been started, to know its tools");
}

#[test]
fn a_running_server_keeps_the_configuration_that_was_trusted() {
    let w = discovered_workspace();
    w.ctx("trust").success();
    let mut server = w.spawn_server();
    let evil = "[mcp_servers.evil]\ncommand = \"touch\"\nargs = [\"started\"]\n";
    w.write("ctx.toml", format!("{CONFIG}{evil}"));
    server.wait_for("ctx.toml has changed");
    assert_eq!(server.post("/tools/greet", &json!({})).status, 200);
    server.stop().success().stderr_contains("not trusted: mcp_servers.evil (touch started)");
    assert!(!w.path("started").exists());
    // The next start leaves out the new section and keeps the trusted ones.
    assert_eq!(greets(&w, &[]), 200);
    assert!(!w.path("started").exists());
}

#[test]
fn a_workspace_elsewhere_with_the_same_scripts_is_not_trusted() {
    let w = discovered_workspace();
    w.ctx("trust").success();
    w.write("copy/ctx.toml", CONFIG);
    w.write("copy/greet.lua", greeting("copy"));
    let shown = w.shell("cd copy && ctx trust --show").success();
    assert!(shown.stdout.contains("copy/ctx.toml is not trusted"), "{}", shown.stdout);
}

#[test]
fn scripts_of_the_users_own_configuration_run_and_a_workspace_cannot_change_them() {
    let w = TestWorkspace::empty().untrusted().config("[server]\nbind = \"127.0.0.1:0\"\n").file(
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
    assert_eq!(server.post("/tools/greet", &json!({})).body["result"], "mine", "the user's own goes on");
    server.stop().success().stderr_contains("tools.script.greet ({\"url\":\"theirs\"})");
}

#[test]
fn secrets_that_are_written_down_are_not_shown() {
    let api = |base: &str| {
        format!("[apis.pets]\nspec = \"pets.yaml\"\nbase_url = \"{base}\"\nauth = \"hunter2hunter2\"\n")
    };
    let w = TestWorkspace::empty().untrusted().config(&api("https://a")).file("script.lua", "return 1");
    let warning = "is not trusted, so this is left out: apis.pets (pets.yaml https://a {\"auth\":\"***\"})";
    w.ctx("exec script.lua").success().stderr_contains(warning);
    assert!(!w.ctx("trust").success().stdout.contains("hunter2"));
    assert!(!w.ctx("exec script.lua").success().stderr.contains("trusted"));
    w.write("ctx.toml", api("https://b"));
    w.ctx("exec script.lua").success().stderr_contains("is not trusted");
}

#[test]
fn what_is_shown_cannot_forge_lines() {
    let config = "[mcp_servers.\"a\\n  [ok]  echo\"]\ncommand = \"sh\"\n\
        args = [\"-c\", \"evil\\n  [mcp_servers.b]  echo harmless\\u001b[2K\\u202e\\u200b\"]\n";
    let w = TestWorkspace::empty().untrusted().config(config);
    let shown = w.ctx("trust --show").success().stdout;
    assert_eq!(shown.lines().count(), 2, "{shown}");
    for forged in ['\u{1b}', '\u{202e}', '\u{200b}'] {
        assert!(!shown.contains(forged), "{shown:?}");
    }
    assert!(shown.contains("\\n") && shown.contains("evil"), "{shown}");
    let stderr = w.ctx("upstream list").success().stderr;
    assert_eq!(stderr.lines().filter(|line| line.starts_with("  [")).count(), 0, "{stderr}");
}

#[test]
fn a_configuration_that_is_a_symlink_does_not_inherit_the_trust_of_its_target() {
    let w = discovered_workspace();
    w.ctx("trust").success();
    std::fs::create_dir(w.path("evil")).unwrap();
    std::os::unix::fs::symlink("../ctx.toml", w.path("evil/ctx.toml")).unwrap();
    w.write("evil/greet.lua", greeting("evil"));
    w.shell("cd evil && ctx tool list")
        .code(2)
        .stderr_contains("is a symbolic link to a file outside its folder");
    // The folder of the file is part of its identity, too.
    std::fs::create_dir(w.path("third")).unwrap();
    w.write("real/.ctx/config.toml", CONFIG);
    w.write("real/greet.lua", greeting("hello"));
    w.shell("cd real && ctx trust").success();
    std::os::unix::fs::symlink("../real/.ctx", w.path("third/.ctx")).unwrap();
    w.write("third/greet.lua", greeting("evil"));
    w.shell("cd third && ctx tool list")
        .code(2)
        .stderr_contains("is a symbolic link to a file outside its folder");
}

#[test]
fn trust_holds_however_the_workspace_is_named() {
    let w = discovered_workspace();
    w.ctx("trust").success();
    std::os::unix::fs::symlink("workspace", w.root().parent().unwrap().join("linked")).unwrap();
    for command in [
        "ctx -c ./ctx.toml trust --show",
        "ctx -c docs/../ctx.toml trust --show",
        "cd docs && ctx trust --show",
        "cd ../linked && ctx trust --show",
    ] {
        w.shell(command).success().stdout_contains("ctx.toml is trusted");
    }
    std::fs::write(w.path("greet.lua"), greeting("mine")).unwrap();
    w.shell("cd ../linked && ctx tool list").success();
    w.ctx("trust --show").success().stdout_contains("ctx.toml is trusted");
}

#[test]
fn a_script_whose_path_has_a_variable_is_covered_by_its_content() {
    let w = TestWorkspace::empty()
        .untrusted()
        .config("[server]\nbind = \"127.0.0.1:0\"\n[tools.script.greet]\npath = \"${SCRIPTS:-tools}/greet.lua\"\n")
        .file("tools/greet.lua", &greeting("hello"));
    let theirs = clone_workspace(&w);
    w.ctx("trust").success();
    w.ctx("tool list").success();
    assert_eq!(w.ctx("trust --show --json").success().json()["state"], "trusted");
    std::fs::write(theirs.join("tools/greet.lua"), greeting("evil")).unwrap();
    git(&theirs, &["commit", "-q", "-a", "-m", "y"]);
    git(w.root(), &["pull", "-q"]);
    assert_eq!(w.ctx("trust --show --json").success().json()["state"], "not trusted");
}

#[test]
fn the_end_of_a_long_command_is_shown() {
    let padding = "a ".repeat(2_000);
    let w = TestWorkspace::empty()
        .untrusted()
        .config(&format!("[mcp_servers.a]\ncommand = \"sh\"\nargs = [\"-c\", \"{padding}; curl evil\"]\n"));
    let shown = w.ctx("trust --show").success().stdout_contains("curl evil");
    assert!(shown.stdout.len() < 1_000, "{}", shown.stdout);
    let whole = w.ctx("trust --show --json").success().json();
    assert!(whole["wants"][0]["what"].as_str().unwrap().len() > 4_000);
}
