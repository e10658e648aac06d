//! `ctx upstream import`: takes MCP servers over from the settings of editors.
#![cfg(unix)]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use serde_json::json;

const CONFIG: &str =
    "# mine\n[server]\nbind = \"127.0.0.1:7331\" # here\n\n[mcp_servers.kept]\ncommand = \"old\"\n";

fn workspace(file: &str) -> TestWorkspace {
    TestWorkspace::empty().file("ctx.toml", CONFIG).file("mcp.json", file)
}

#[test]
fn servers_of_an_editor_are_added_and_all_else_stays() {
    let w = workspace(
        r#"{
          // as Claude and Cursor have it
          "mcpServers": {
            "kept": { "command": "new" },
            "git-hub": {
              "command": "npx", "args": ["-y", "server", "${env:HOME}/x", "${not this}"],
              "env": { "GITHUB_TOKEN": "ghp_0123456789" }, "alwaysAllow": [],
            },
            "docs": { "type": "sse", "url": "https://docs.example/sse", "headers": { "X-Team": "${input:team-key}" } },
            "off": { "command": "x", "disabled": true },
            "ctx-notes": { "command": "/usr/local/bin/ctx", "args": ["--config", "x", "serve", "mcp", "--stdio"] },
            "here": { "url": "http://localhost:7331/mcp/" },
            "ctx": { "command": "x" },
            "wrong": { "url": "ftp://x" },
            "git_hub": { "command": "y" },
          },
        }"#,
    );
    ctx_snapshot!(w.ctx("upstream import mcp.json --dry-run"), @r#"
    exit_code: 0
    ----- stdout -----
    [mcp_servers.git-hub]
    command = "npx"
    args = ["-y", "server", "${HOME}/x", "$${not this}"]
    env = { GITHUB_TOKEN = "ghp_0123456789" }

    [mcp_servers.docs]
    url = "https://docs.example/sse"
    headers = { X-Team = "${TEAM_KEY}" }
    transport = "sse"

    ----- stderr -----
    kept is left out: there is a [mcp_servers.kept] already, which is not changed
    off is left out: it is disabled
    ctx-notes is left out: it is ctx itself
    here is left out: it is ctx itself
    ctx is left out: the name `ctx` is reserved for a built-in; choose another name
    wrong is left out: `url` must begin with https:// or http://
    git_hub is left out: in scripts it would have the same name as `git-hub`
    warning: git-hub: not imported, ctx has no such setting: alwaysAllow
    warning: docs: the editor asks for `team-key`; set the variable TEAM_KEY instead
    warning: docs: needs the variable TEAM_KEY, which is not set
    hint: git-hub: `env.GITHUB_TOKEN` looks like a secret; "${GITHUB_TOKEN}" takes it from the environment instead
    "#);
    assert_eq!(w.read("ctx.toml"), CONFIG);
    let added = w.ctx("upstream import mcp.json --dry-run").success().stdout;
    let done = w.ctx("upstream import mcp.json").success();
    assert!(done.stdout.starts_with("added git-hub, docs to "), "{}", done.stdout);
    assert_eq!(w.read("ctx.toml"), format!("{CONFIG}\n{added}"));
    assert_eq!(w.read("ctx.toml.ctx-backup"), CONFIG);
    let again = w.ctx("upstream import mcp.json --json").success().json();
    assert_eq!((&again["added"], &again["backup"]), (&json!([]), &json!(null)));
    assert_eq!(w.read("ctx.toml"), format!("{CONFIG}\n{added}"));
    // The written configuration is valid.
    let w = w.env("TEAM_KEY", "blue");
    let shown = w.ctx("config show").success().stdout;
    assert!(shown.contains("blue") && shown.contains("[mcp_servers.git-hub"), "{shown}");
}

#[test]
fn the_files_of_vs_code_are_read() {
    for (file, name) in [
        (r#"{"inputs": [], "servers": {"a": {"type": "http", "url": "https://x.example/mcp"}}}"#, "a"),
        (r#"{"mcp": {"servers": {"b": {"command": "x"}}}}"#, "b"),
    ] {
        let w = workspace(file);
        let done = w.ctx("upstream import mcp.json --json").success().json();
        assert_eq!(done["added"], json!([name]));
    }
}

#[test]
fn comments_blank_lines_and_order_stay_where_they_are() {
    for config in [
        "# head\n\n[server]\nbind = \"127.0.0.1:7331\"\n# about its last key\n\n# the end\n",
        "[mcp_servers.a]\ncommand = \"a\" # why\n# more of a\n\n\n# about the server\n[server] # here\n\n# the end\n",
        "[mcp_servers]\n# about servers\n[mcp_servers.a]\ncommand = \"a\"\n[mcp_servers.a.env]\nX = \"1\"\n# about X\n",
        "[mcp_servers.b]\ncommand = \"b\"\n# about db\n[db]\n[mcp_servers.a]\ncommand = \"a\"\n# [mcp_servers.off]\n",
        "# nothing but a comment\n",
    ] {
        let w = workspace(r#"{"mcpServers": {"new": {"command": "x"}, "other": {"command": "y"}}}"#);
        w.write("ctx.toml", config);
        w.ctx("upstream import mcp.json").success();
        let added = "\n[mcp_servers.new]\ncommand = \"x\"\n\n[mcp_servers.other]\ncommand = \"y\"\n";
        assert_eq!(w.read("ctx.toml"), format!("{config}{added}"));
    }
}

#[test]
fn the_servers_of_codex_are_added_and_what_is_left_out_is_named() {
    let w = workspace("{}").file(
        "config.toml",
        "model = \"x\"\n\
         [mcp_servers.files]\ncommand = \"npx\"\nargs = [\"-y\", \"server\"]\ncwd = \"/srv\"\n\
         env = { API_TOKEN = \"sk-0123456789\", MODE = \"fast\" }\nenv_vars = [\"LANG\"]\n\
         startup_timeout_sec = 20\ntool_timeout_sec = 90.5\nenabled = true\nrequired = true\n\
         enabled_tools = [\"read\", \"write\"]\ndisabled_tools = [\"write\"]\n\
         [mcp_servers.issues]\nurl = \"https://issues.example/mcp\"\nbearer_token_env_var = \"ISSUES_TOKEN\"\n\
         http_headers = { X-Team = \"blue\" }\nenv_http_headers = { X-Key = \"ISSUES_KEY\" }\n\
         [mcp_servers.off]\ncommand = \"x\"\nenabled = false\n",
    );
    let w = w.env("ISSUES_TOKEN", "secret-t");
    ctx_snapshot!(w.ctx("upstream import config.toml --dry-run"), @r#"
    exit_code: 0
    ----- stdout -----
    [mcp_servers.files]
    command = "npx"
    args = ["-y", "server"]
    cwd = "/srv"
    env = { API_TOKEN = "sk-0123456789", MODE = "fast", LANG = "${LANG}" }
    timeout = 91
    allowed_tools = ["read", "write"]
    denied_tools = ["write"]

    [mcp_servers.issues]
    url = "https://issues.example/mcp"
    headers = { X-Team = "blue", X-Key = "${ISSUES_KEY}", Authorization = "Bearer ${ISSUES_TOKEN}" }

    ----- stderr -----
    off is left out: it is disabled
    warning: files: not imported: startup_timeout_sec; `upstream_start_timeout` in [limits] applies to all servers
    warning: files: not imported, ctx has no such setting: required
    warning: files: needs the variable LANG, which is not set
    warning: issues: needs the variable ISSUES_KEY, which is not set
    hint: files: `env.API_TOKEN` looks like a secret; "${API_TOKEN}" takes it from the environment instead
    "#);
    w.ctx("upstream import config.toml").success();
    let w = w.env("LANG", "C").env("ISSUES_KEY", "secret-k");
    let shown = w.ctx("config show").success().stdout;
    assert!(shown.contains("[mcp_servers.files") && !shown.contains("secret-"), "{shown}");
    // The entry that `ctx connect` wrote for Codex is ctx itself, not an upstream.
    w.write(
        "codex.toml",
        "[mcp_servers.ctx-notes]\ncommand = \"/bin/ctx\"\nargs = [\"serve\", \"mcp\", \"--stdio\"]\n",
    );
    w.ctx("upstream import codex.toml").success().stderr_contains("ctx-notes is left out: it is ctx itself");
    w.write("codex.toml", "[mcp_servers\n");
    w.ctx("upstream import codex.toml").code(2).stderr_contains("codex.toml:1:");
}

#[test]
fn a_file_that_cannot_be_taken_over_is_told() {
    let w = workspace("{\"mcpServers\": {,}}");
    w.ctx("upstream import mcp.json").code(2).stderr_contains("mcp.json:1:");
    w.ctx("upstream import nowhere.json").code(2).stderr_contains("there is no file nowhere.json");
    w.write("mcp.json", "{\"editor\": {}}");
    w.ctx("upstream import mcp.json").code(2).stderr_contains("mcp.json has no servers");
    assert_eq!(w.read("ctx.toml"), CONFIG);
    TestWorkspace::empty()
        .file("mcp.json", "{}")
        .ctx("upstream import mcp.json")
        .code(2)
        .stderr_contains("there is no workspace here");
}
