//! `ctx connect`: the printed commands, the written settings files, and what must stay unchanged.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{CommandOutput, TestWorkspace, ctx_snapshot};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CONFIG: &str = "[connectors.filesystem.docs]\nroot = \"docs\"\n[server]\nbind = \"0.0.0.0:7331\"\n";
const TOKEN: &str = "sesame-open-4711";
/// Clients with a settings file: the key of the server list, and the key of a server's URL.
const CLIENTS: [(&str, &str, Option<&str>); 8] = [
    ("claude", "mcpServers", Some("url")),
    ("claude-desktop", "mcpServers", None),
    ("cursor", "mcpServers", Some("url")),
    ("vscode", "servers", Some("url")),
    ("codex", "mcp_servers", Some("url")),
    ("gemini", "mcpServers", Some("httpUrl")),
    ("zed", "context_servers", Some("url")),
    ("windsurf", "mcpServers", Some("serverUrl")),
];
/// A typical settings file: with comments, other servers, numbers and irregular spacing.
const SETTINGS: &str = r#"// Mine.
{
  "theme": "One Dark",   // not the light one
  "ratio": 1.50,
  "@KEY@": {
    /* Issues. */
    "github": { "command": "npx", "args": [ "-y", "server-github" ] },
    "wiki": {
      "url": "https://wiki.example.com/mcp",
    }, // read only
  },
  "fonts": [ "a",
             "b" ],
}
"#;
const CODEX: &str = r#"model = 'o9'   # the big one

# Issues.
[mcp_servers.github]
command = "npx"
args = [ "-y", "server-github" ]

[mcp_servers.github.env]
LEVEL = "1"

[tools]
list = [
  1, # one
]
"#;

fn workspace() -> TestWorkspace {
    TestWorkspace::empty().config(CONFIG)
}

/// A workspace whose server requires a token.
fn workspace_with_token() -> TestWorkspace {
    TestWorkspace::empty().config(&format!("{CONFIG}token = \"${{DOOR_KEY}}\"\n")).env("DOOR_KEY", TOKEN)
}

/// The path of the client's settings file on this system.
fn file(w: &TestWorkspace, client: &str) -> PathBuf {
    let answer = w.ctx(&format!("connect {client} --json -q")).success().json();
    let file = PathBuf::from(answer["file"].as_str().unwrap());
    assert!(file.starts_with(w.root().with_file_name("home")), "{file:?}");
    file
}

/// Creates the client's settings file with this content.
fn existing(w: &TestWorkspace, client: &str, text: &str) -> PathBuf {
    let file = file(w, client);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    file
}

fn settings(client: &str, key: &str) -> String {
    if client == "codex" { CODEX.to_owned() } else { SETTINGS.replace("@KEY@", key) }
}

/// Parses a settings file with comments.
fn read(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    if file.extension().is_some_and(|ending| ending == "toml") {
        return serde_json::to_value(toml::from_str::<toml::Table>(&text).unwrap()).unwrap();
    }
    let root = jsonc_parser::cst::CstRootNode::parse(&text, &Default::default()).unwrap();
    root.to_serde_value().unwrap()
}

/// All files in the same folder whose names begin with the name of this file.
fn files_in_folder_of(file: &Path) -> Vec<String> {
    let own = file.file_name().unwrap().to_string_lossy().into_owned();
    let entries = fs::read_dir(file.parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(&own)).collect();
    names.sort();
    names
}

fn backup(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap().to_owned();
    name.push(".ctx-backup");
    file.with_file_name(name)
}

/// Asserts that `after` is `before` with one insertion; returns the insertion.
#[track_caller]
fn inserted_text(before: &str, after: &str) -> String {
    let start = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
    let end = after.len() - (before.len() - start);
    assert_eq!(before[start..], after[end..], "something else was changed:\n{after}");
    after[start..end].to_owned()
}

/// The arguments that start the server from any folder.
fn arguments(w: &TestWorkspace) -> Value {
    json!(["--config", w.path("ctx.toml"), "serve", "mcp", "--stdio"])
}

#[test]
fn every_client_is_told_how_to_start_the_server() {
    let w = workspace();
    for (client, key, _) in CLIENTS {
        let outcome = w.ctx(&format!("connect {client}")).success().stderr_contains("to check: ");
        let answer = w.ctx(&format!("connect {client} --json")).success().json();
        assert_eq!((&answer["client"], &answer["transport"]), (&json!(client), &json!("stdio")));
        let entry = &answer["entry"];
        assert_eq!(entry["args"], arguments(&w), "{client}");
        let command = Path::new(entry["command"].as_str().unwrap());
        assert!(command.is_absolute() && command.is_file(), "{client}: {command:?}");
        match answer["command"].as_str() {
            Some(command) => assert_eq!(outcome.stdout.trim_end(), command),
            None => assert_eq!(outcome.json()[key], json!({ "ctx-workspace": entry })),
        }
        assert!(!Path::new(answer["file"].as_str().unwrap()).exists(), "{client}: printing writes nothing");
    }
}

#[test]
fn clients_with_a_command_of_their_own_get_it_ready_to_paste() {
    let w = workspace();
    let program = w.ctx("connect cursor").json()["mcpServers"]["ctx-workspace"]["command"].clone();
    let program = program.as_str().unwrap();
    let (config, serve) = (w.path("ctx.toml").display().to_string(), "serve mcp --stdio");
    let printed = |arguments: &str| w.ctx(&format!("connect {arguments}")).success().stdout;
    assert_eq!(
        printed("claude"),
        format!("claude mcp add --scope user ctx-workspace -- {program} --config {config} {serve}\n")
    );
    assert_eq!(
        printed("claude --project --name mine"),
        format!("claude mcp add --scope project mine -- {program} --config {config} {serve}\n")
    );
    assert_eq!(
        printed("claude --http"),
        "claude mcp add --scope user --transport http ctx-workspace http://127.0.0.1:7331/mcp\n"
    );
    assert_eq!(
        printed("codex"),
        format!("codex mcp add ctx-workspace -- {program} --config {config} {serve}\n")
    );
    assert_eq!(printed("codex --http"), "codex mcp add ctx-workspace --url http://127.0.0.1:7331/mcp\n");
    // Runs the printed command: a shell must split it into the intended words.
    let words =
        w.shell("claude() { for word in \"$@\"; do echo \"$word\"; done; }; eval \"$(ctx connect claude)\"");
    assert!(
        words
            .success()
            .stdout
            .ends_with(&format!("--\n{program}\n--config\n{config}\nserve\nmcp\n--stdio\n"))
    );
}

#[test]
fn paths_with_spaces_survive_the_shell() {
    let w = TestWorkspace::empty().file("My Notes/it's/ctx.toml", CONFIG);
    let script = "claude() { for word in \"$@\"; do echo \"$word\"; done; }; cd \"My Notes/it's\"; \
                  eval \"$(ctx connect claude)\"";
    let words = w.shell(script).success().stdout;
    let config = w.path("My Notes/it's/ctx.toml");
    assert!(words.contains(&format!("--config\n{}\nserve", config.display())), "{words}");
    assert!(words.contains("\nctx-it-s\n"), "{words}");
}

#[test]
fn a_file_is_made_where_there_was_none() {
    for (client, key, _) in CLIENTS {
        let w = workspace();
        let file = file(&w, client);
        w.ctx(&format!("connect {client} --write")).success();
        assert_eq!(read(&file)[key]["ctx-workspace"]["args"], arguments(&w), "{client}");
        assert_eq!(files_in_folder_of(&file).len(), 1, "{client}: nothing was there to keep");
    }
    let w = workspace();
    let outcome = w.ctx("connect cursor --write").success();
    assert!(outcome.stdout.contains("created the folder"), "{}", outcome.stdout);
}

#[test]
fn an_existing_file_gains_one_entry_and_loses_nothing() {
    for (client, key, _) in CLIENTS {
        let w = workspace();
        let before = settings(client, key);
        let file = existing(&w, client, &before);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();

        let outcome = w.ctx(&format!("connect {client} --write")).success();
        assert!(outcome.stdout.starts_with("added `ctx-workspace` to "), "{}", outcome.stdout);
        let after = fs::read_to_string(&file).unwrap();
        assert!(inserted_text(&before, &after).contains("ctx-workspace"), "{client}:\n{after}");
        assert_eq!(read(&file)[key]["ctx-workspace"]["args"], arguments(&w), "{client}");
        assert_eq!(fs::read_to_string(backup(&file)).unwrap(), before, "{client}");
        for file in [&file, &backup(&file)] {
            assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o640, "{client}");
        }

        let again = w.ctx(&format!("connect {client} --write")).success();
        assert!(again.stdout.contains("nothing was changed"), "{}", again.stdout);
        assert_eq!(fs::read_to_string(&file).unwrap(), after);
        assert_eq!(files_in_folder_of(&file).len(), 2, "{client}: the file and one copy of it");
    }
}

#[test]
fn another_entry_of_the_name_is_replaced_and_every_copy_is_kept() {
    let w = workspace();
    let file = existing(
        &w,
        "cursor",
        "{\n  \"mcpServers\": {\n    \"mine\": { \"command\": \"old\" } // ours\n  }\n}\n",
    );
    let first = w.ctx("connect cursor --write --name mine").success();
    assert!(first.stdout.starts_with("replaced `mine` in "), "{}", first.stdout);
    let answer = w.ctx("connect cursor --write --name mine --http --json").success().json();
    assert_eq!(answer["change"], "replaced");
    assert!(answer["backup"].as_str().unwrap().ends_with("mcp.json.ctx-backup-2"), "{answer}");
    assert_eq!(read(&file), json!({"mcpServers": {"mine": {"url": "http://127.0.0.1:7331/mcp"}}}));
    assert!(fs::read_to_string(&file).unwrap().contains("} // ours\n"));
    assert!(fs::read_to_string(backup(&file)).unwrap().contains("\"old\""), "the first copy is the first");
    assert_eq!(w.ctx("connect cursor --write --name mine --http --json").json()["change"], "unchanged");
    assert_eq!(files_in_folder_of(&file), ["mcp.json", "mcp.json.ctx-backup", "mcp.json.ctx-backup-2"]);
}

#[test]
fn a_file_that_cannot_be_read_is_left_alone() {
    for (client, text, place) in [
        ("cursor", "{\n  \"mcpServers\": {\n    \"a\": oops\n  }\n}\n", ":3:10: "),
        ("cursor", "{ \"mcpServers\": [] }", "was not changed: its `mcpServers` is not a table"),
        ("zed", "[]", ":1:1: "),
        ("codex", "model = \"x\"\n[mcp_servers\n", ":2:"),
    ] {
        let w = workspace();
        let file = existing(&w, client, text);
        let refused = w.ctx(&format!("connect {client} --write")).code(1);
        assert!(refused.stderr.contains(&format!("{}", file.display())), "{}", refused.stderr);
        assert!(refused.stderr.contains(place), "{}", refused.stderr);
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), files_in_folder_of(&file).len()), (text, 1));
    }
    let w = workspace();
    let file = existing(&w, "cursor", "");
    fs::write(&file, [0xff, 0xfe, 0x00]).unwrap();
    w.ctx("connect cursor --write").code(1).stderr_contains("it is not UTF-8 text");
    assert_eq!(fs::read(&file).unwrap(), [0xff, 0xfe, 0x00]);
}

#[test]
fn what_is_read_only_stays_as_it_is() {
    let w = workspace().unprivileged();
    let file = existing(&w, "cursor", "{}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    w.ctx("connect cursor --write").code(1).stderr_contains("was not changed: it is read-only");
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), files_in_folder_of(&file).len()), ("{}", 1));

    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    w.mode("../home/.cursor", 0o500);
    w.ctx("connect cursor --write").code(1).stderr_contains("was not changed: Permission denied");
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), files_in_folder_of(&file).len()), ("{}", 1));
}

#[test]
fn a_link_stays_a_link() {
    let w = workspace();
    w.write("../home/dotfiles/mcp.json", "{}\n");
    let link = file(&w, "cursor");
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink("../dotfiles/mcp.json", &link).unwrap();
    w.ctx("connect cursor --write").success();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(w.read("../home/dotfiles/mcp.json").contains("ctx-workspace"));
    assert_eq!(
        files_in_folder_of(&link),
        ["mcp.json", "mcp.json.ctx-backup"],
        "the copy is where the user looks"
    );

    w.remove("../home/dotfiles/mcp.json");
    w.ctx("connect cursor --write").code(1).stderr_contains("is a broken symbolic link");
}

#[test]
fn a_server_that_runs_is_called_where_it_is_served() {
    let w = workspace();
    for (client, key, url) in CLIENTS {
        let Some(url) = url else {
            w.ctx(&format!("connect {client} --http"))
                .code(2)
                .stderr_contains("supports only servers that it starts itself (stdio)");
            continue;
        };
        w.ctx(&format!("connect {client} --http --write"))
            .success()
            .stderr_contains("the server must be running");
        let entry = &read(&file(&w, client))[key]["ctx-workspace"];
        assert_eq!(entry[url], "http://127.0.0.1:7331/mcp", "{client}: {entry}");
        assert!(entry.get("command").is_none() && entry.get("headers").is_none(), "{client}: {entry}");
    }
    w.ctx("connect generic --http").success();
    let any = TestWorkspace::new();
    any.ctx("connect cursor --http").code(2).stderr_contains("uses another port on every start");
}

#[test]
fn a_token_is_named_and_not_shown() {
    let w = workspace_with_token();
    let entry =
        |client: &str| w.ctx(&format!("connect {client} --http --json")).success().json()["entry"].clone();
    for (client, header) in [
        ("claude", "Bearer ${DOOR_KEY}"),
        ("cursor", "Bearer ${env:DOOR_KEY}"),
        ("vscode", "Bearer ${env:DOOR_KEY}"),
        ("gemini", "Bearer ${DOOR_KEY}"),
        ("windsurf", "Bearer ${env:DOOR_KEY}"),
        ("zed", "Bearer <DOOR_KEY>"),
        ("generic", "Bearer ${DOOR_KEY}"),
    ] {
        assert_eq!(entry(client)["headers"], json!({ "Authorization": header }), "{client}");
    }
    assert_eq!(entry("codex")["bearer_token_env_var"], "DOOR_KEY");
    let shown = |outcome: &CommandOutput| format!("{}{}", outcome.stdout, outcome.stderr);
    for (client, _, url) in CLIENTS {
        let ways: &[&str] = if url.is_some() { &["", " --http"] } else { &[""] };
        for way in ways {
            for write in ["", " --write", " --write --json"] {
                let outcome = w.ctx(&format!("connect {client}{way}{write}")).success();
                assert!(!shown(&outcome).contains(TOKEN), "{client}{way}{write}: {}", shown(&outcome));
            }
            let written = fs::read_to_string(file(&w, client)).unwrap();
            let needed = (client, *way) == ("zed", " --http");
            assert_eq!(written.contains(TOKEN), needed, "{client}{way}:\n{written}");
        }
    }
    w.ctx("connect claude --http").success().stderr_contains("start Claude Code where DOOR_KEY is set");
}

#[test]
fn a_client_that_reads_no_variables_gets_the_token_in_a_file_for_its_owner_alone() {
    let w = workspace_with_token();
    w.ctx("connect zed --http").success().stderr_contains("replace <DOOR_KEY> with the token");
    w.ctx("connect zed --http --write --project")
        .code(2)
        .stderr_contains("a project's file must not contain the token");
    assert!(!w.path(".zed").exists());
    w.ctx("connect zed --http --write")
        .success()
        .stderr_contains("warning: Zed does not expand environment variables");
    let file = file(&w, "zed");
    let entry = &read(&file)["context_servers"]["ctx-workspace"];
    assert_eq!(entry["headers"]["Authorization"], format!("Bearer {TOKEN}"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(w.ctx("connect zed --http --write --json").json()["change"], "unchanged");
}

#[test]
fn a_token_in_clear_text_gets_a_variable_to_be_put_in() {
    let w = TestWorkspace::empty().config(&format!("{CONFIG}token = \"{TOKEN}\"\n"));
    let outcome =
        w.ctx("connect claude --http").success().stderr_contains("start Claude Code where CTX_TOKEN is set");
    assert!(
        outcome.stdout.ends_with(" --header 'Authorization: Bearer ${CTX_TOKEN}'\n"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn variables_of_the_configuration_reach_a_server_that_is_started() {
    let w = workspace_with_token();
    let entry = |client: &str| w.ctx(&format!("connect {client} --json")).success().json()["entry"].clone();
    assert_eq!(entry("codex")["env_vars"], json!(["DOOR_KEY"]));
    assert_eq!(entry("gemini")["env"], json!({"DOOR_KEY": "${DOOR_KEY}"}));
    assert_eq!(entry("cursor").get("env"), None);
    w.ctx("connect cursor").success().stderr_contains("start Cursor where they are set (DOOR_KEY)");
    w.ctx("connect claude-desktop").success().stderr_contains("does not pass on");
    // The command itself cannot name variables.
    assert!(w.ctx("connect codex").success().stdout.starts_with("[mcp_servers.ctx-workspace]\n"));
}

#[test]
fn a_project_has_files_of_its_own() {
    for (client, path) in [
        ("claude", ".mcp.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("zed", ".zed/settings.json"),
    ] {
        let w = workspace();
        w.ctx(&format!("connect {client} --project --write"))
            .success()
            .stderr_contains("paths of this machine");
        assert!(w.read(path).contains("ctx-workspace"), "{client}");
        assert!(!file(&w, client).exists(), "{client}");
    }
    let w = workspace();
    w.ctx("connect windsurf --project").code(2).stderr_contains("Windsurf has no project-level settings");
    w.ctx("connect generic --write").code(2).stderr_contains("--file PATH");
    w.ctx("connect generic --write --file mine/servers.json").success();
    assert_eq!(read(&w.path("mine/servers.json"))["mcpServers"]["ctx-workspace"]["args"], arguments(&w));
}

#[test]
fn connecting_a_workspace_says_what_is_not_trusted_and_trusts_nothing() {
    let config =
        "[connectors.filesystem.docs]\nroot = \"docs\"\n[tools.script.greet]\npath = \"greet.lua\"\n";
    let w = TestWorkspace::empty().config(config).file("greet.lua", "").untrusted();
    let warning = "ctx.toml is not trusted, so this is left out: tools.script.greet (greet.lua)";
    w.ctx("connect cursor --write").success().stderr_contains(warning);
    assert!(w.path("../home/.cursor").exists());
    w.ctx("trust --show").success().stdout_contains("is not trusted");
    w.ctx("connect cursor --write --trust").success().stderr_contains("[tools.script.greet]  greet.lua");
    assert!(!w.ctx("connect cursor --write").success().stderr.contains("trusted"));
}

#[test]
fn a_server_that_is_trusted_for_once_is_called_and_not_started() {
    let config = CONFIG.replace("0.0.0.0:7331", "127.0.0.1:0");
    let config = format!("{config}token = \"${{DOOR_KEY}}\"\n[tools.script.greet]\npath = \"greet.lua\"\n");
    let w = TestWorkspace::empty().config(&config).env("DOOR_KEY", TOKEN).file("greet.lua", "");
    // `CTX_TRUST=1` covers this process only: a server that a client starts would be untrusted.
    let stderr = w.spawn(["up"]).stop().success().stderr;
    assert!(stderr.contains(" --transport http ctx-workspace http://127.0.0.1:"), "{stderr}");
    assert!(stderr.contains("/mcp --header 'Authorization: Bearer ${DOOR_KEY}'\n"), "{stderr}");
    assert!(stderr.contains("ctx connect cursor --write --http -c "), "{stderr}");
}

#[test]
fn invalid_arguments_are_refused_with_a_hint() {
    let w = workspace();
    ctx_snapshot!(w.ctx("connect emacs"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: invalid value 'emacs' for '<CLIENT>'
      [possible values: claude, claude-desktop, cursor, vscode, codex, gemini, zed, windsurf, generic]

    For more information, try '--help'.
    ");
    ctx_snapshot!(w.ctx("connect cursor --name a.b"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: `a.b` is not a valid server name
    hint: at most 32 letters, digits, `-` and `_`, like `handbook`
    ");
    TestWorkspace::empty().ctx("connect cursor").code(2).stderr_contains("there is no workspace here");
}

#[test]
fn a_configuration_that_was_named_is_found_from_anywhere() {
    let w = TestWorkspace::empty().file("a/b/ctx.toml", CONFIG).file("a/c/x.md", "");
    let outcome = w.shell("cd a/c && ctx -c ../b/ctx.toml connect cursor").success();
    let entry = &outcome.json()["mcpServers"]["ctx-b"];
    assert_eq!(entry["args"][1], json!(w.path("a/b/ctx.toml")));
}

#[test]
fn the_guide_shows_what_is_printed() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/connect.md");
    let guide = fs::read_to_string(guide).unwrap();
    let w = workspace();
    let program = w.command([""]).get_program().to_string_lossy().into_owned();
    let as_printed = |w: &TestWorkspace, arguments: &str| {
        let printed = w.ctx(&format!("connect {arguments} --name ctx-handbook")).success().stdout;
        let config = w.path("ctx.toml").display().to_string();
        printed.replace(&program, "/usr/local/bin/ctx").replace(&config, "/home/you/handbook/ctx.toml")
    };
    for (client, _, _) in CLIENTS {
        let printed = as_printed(&w, client);
        assert!(guide.contains(&format!("\n{printed}")), "{client}:\n{printed}");
    }
    for client in ["claude", "codex"] {
        let printed = as_printed(&w, &format!("{client} --http"));
        assert!(guide.contains(&format!("\n{printed}")), "{client}:\n{printed}");
    }
    let config = format!("{CONFIG}allowed_hosts = [\"${{JIRA_TOKEN}}\"]\n");
    let printed = as_printed(&TestWorkspace::empty().config(&config).env("JIRA_TOKEN", "x"), "codex");
    assert!(guide.contains(&format!("\n```toml\n{printed}```")), "{printed}");
    for line in guide.lines().filter(|line| line.starts_with("ctx connect ")) {
        w.shell(line).success();
    }
}

#[test]
fn what_is_written_starts_a_server_that_answers() {
    let w = workspace();
    w.ctx("connect cursor --write").success();
    let settings: Value = serde_json::from_str(&fs::read_to_string(file(&w, "cursor")).unwrap()).unwrap();
    let servers = settings["mcpServers"].as_object().unwrap();
    let entry = servers.values().next().unwrap();
    let arguments = entry["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    // In a minimal environment, as clients may provide, and in another folder.
    let mut server = Command::new(entry["command"].as_str().unwrap())
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let client = json!({"name": "test", "version": "0"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    writeln!(server.stdin.take().unwrap(), "{request}").unwrap();
    let mut answer = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
    assert!(server.wait().unwrap().success());
}
