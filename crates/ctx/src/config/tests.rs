//! Loads configuration files and compares the settings, warnings or problems.

mod apis;
mod arbitrary;
mod reload;
mod untrusted;

use super::{CliOverrides, Config, ConfigError, ConfigLocation, LoadContext, TrustRequest};
use std::fs;
use std::path::{Path, PathBuf};

fn load(text: &str) -> Result<Config, ConfigError> {
    load_with_overrides(text, &CliOverrides::default())
}

fn load_with_overrides(text: &str, overrides: &CliOverrides) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ctx.toml");
    fs::write(&path, text).unwrap();
    let located =
        ConfigLocation { user: None, workspace: Some(path), root: folder.path().to_owned(), named: true };
    Config::load(&located, overrides, TRUST_ALL)
}

/// A user who trusts everything.
const TRUST_ALL: LoadContext<'static> = LoadContext {
    variables: &variable,
    data_folder: &data_folder,
    is_trusted: &|_: &Path, requests: &[TrustRequest]| vec![true; requests.len()],
};

fn variable(name: &str) -> Option<String> {
    match name {
        "SET" => Some("value".to_owned()),
        "KEY" => Some("hunter2hunter2".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn data_folder(_: &Path) -> Option<PathBuf> {
    Some(PathBuf::from("/state/ctx/workspaces/x"))
}

/// Section and description of each trust request.
fn requests(config: &Config) -> Vec<(&str, &str)> {
    config
        .trust_requests
        .iter()
        .map(|request| (request.section.as_str(), request.description.as_str()))
        .collect()
}

fn problems(text: &str) -> Vec<String> {
    load(text).err().unwrap().problems
}

#[test]
fn an_empty_file_is_valid() {
    let config = load("").unwrap();
    assert_eq!(config.settings.server.bind, "127.0.0.1:7331");
    assert_eq!(config.settings.limits(), ctx_core::Limits::default());
}

#[test]
fn all_unknown_keys_are_reported_with_line_and_suggestion() {
    assert_eq!(
        problems(
            "[server]\nbnd = \"x\"\n\n[retreival]\nmode = \"keyword\"\n[connectors.filesystem.a]\nroot = \".\"\nroots = 1\n"
        ),
        [
            "ctx.toml:2: unknown key `server.bnd`; did you mean `bind`?",
            "ctx.toml:4: unknown key `retreival`; did you mean `retrieval`?",
            "ctx.toml:8: unknown key `connectors.filesystem.a.roots`; did you mean `root`?",
        ]
    );
    let kinds: Vec<&str> = ctx_knowledge::KINDS.iter().map(|kind| kind.name).chain(["script"]).collect();
    assert_eq!(
        problems("[connectors.floppy.a]\nroot = \".\"\n"),
        [format!("ctx.toml:1: unknown key `connectors.floppy`; known keys: {}", kinds.join(", "))]
    );
}

#[test]
fn wrong_types_and_values_name_key_and_line() {
    assert_eq!(
        problems("[server]\nbind = 5\n"),
        ["ctx.toml:2: `server.bind`: invalid type: integer `5`, expected a string"]
    );
    assert_eq!(
        problems("[limits]\n\nscript_calls = 0\n"),
        ["ctx.toml:3: `limits.script_calls`: invalid value: integer `0`, expected a nonzero u32"]
    );
    assert_eq!(
        problems("[retrieval]\nmode = \"fuzzy\"\n"),
        [
            "ctx.toml:2: `retrieval.mode`: unknown variant `fuzzy`, expected one of `keyword`, `semantic`, `hybrid`"
        ]
    );
    assert_eq!(
        problems("[chunking]\nmax_tokens = 4\noverlap_tokens = 3\n"),
        [
            "ctx.toml:2: `chunking.max_tokens`: must be at least 16",
            "ctx.toml:3: `chunking.overlap_tokens`: must be at most half of `chunking.max_tokens`",
        ]
    );
}

#[test]
fn problems_of_a_source_name_its_key() {
    assert_eq!(
        problems("[connectors.filesystem.a]\nroot = \".\"\nevery = \"5s\"\n"),
        ["ctx.toml:3: `connectors.filesystem.a.every`: \"5s\" must be between 10s and 366d"]
    );
    assert_eq!(
        problems("[connectors.filesystem.a]\nroot = \".\"\nevery = 15\n"),
        ["ctx.toml:3: `connectors.filesystem.a.every`: invalid type: integer `15`, expected a string"]
    );
    assert_eq!(
        problems("[connectors.filesystem.a]\nroot = \".\"\nwatch = \"no\"\n"),
        ["ctx.toml:3: `connectors.filesystem.a.watch`: invalid type: string \"no\", expected a boolean"]
    );
}

#[test]
fn keys_of_a_script_are_its_own_and_those_that_are_ours_are_checked() {
    let config = load(
        "[tools.script.post]\npath = \"tools/post.lua\"\ntimeout = 5\nrate_limit = \"10/m\"\napprove = false\n\
         channel = \"#ops\"\n[tools.script.post.deep]\nanything = [1]\n\
         [connectors.script.jira]\npath = \"jira.lua\"\nevery = \"15m\"\ntags = [\"jira\"]\nproject = \"ENG\"\n",
    )
    .unwrap();
    let tools = config.settings.script_tools();
    let shown = serde_json::to_string(&tools[0].config).unwrap();
    assert_eq!(shown, r##"{"channel":"#ops","deep":{"anything":[1]}}"##);
    assert_eq!(tools[0].settings.timeout().unwrap().as_secs(), 5);
    let connectors = config.settings.script_connectors();
    assert_eq!(serde_json::to_string(&connectors[0].0.config).unwrap(), r#"{"project":"ENG"}"#);
    for (text, problem) in [
        ("[tools.script.a]\nurl = \"x\"\n", "ctx.toml:1: `tools.script.a`: missing field `path`"),
        (
            "[tools.script.a]\npath = \"a.lua\"\ntimeout = 0\n",
            "ctx.toml:3: `tools.script.a.timeout`: invalid value: integer `0`, expected a nonzero u32",
        ),
        (
            "[tools.script.a]\npath = \"a.lua\"\nrate_limit = \"often\"\n",
            "ctx.toml:3: `tools.script.a.rate_limit`: `often` is not a rate limit; write calls per second, minute, \
             hour or day, like `10/m`",
        ),
        (
            "[tools.script.a]\npath = \"a.lua\"\napprove = true\n",
            "ctx.toml:3: `tools.script.a.approve`: approval of calls is not supported yet; remove this key, or \
             the tool",
        ),
        (
            "[connectors.script.a]\npath = \"a.lua\"\nevery = \"1s\"\n",
            "ctx.toml:3: `connectors.script.a.every`: \"1s\" must be between 10s and 366d",
        ),
        (
            "[tools.scripts.a]\npath = \"a.lua\"\n",
            "ctx.toml:1: unknown key `tools.scripts`; did you mean `script`?",
        ),
        (
            "[agents.inline.a]\ndescription = \"x\"\nsystem_prompt = \"y\"\ntool = []\n",
            "ctx.toml:4: unknown key `agents.inline.a.tool`; did you mean `tools`?",
        ),
        (
            "[agents.inline.a]\ndescription = \"x\"\nsystem_prompt = \"y\"\narguments = [{ nam = \"x\" }]\n",
            "ctx.toml:1: `agents.inline.a.arguments[0].nam`: unknown field `nam`, expected one of `name`, \
             `description`, `required`, `choices`",
        ),
    ] {
        assert_eq!(problems(text), [problem], "{text}");
    }
}

#[test]
fn what_a_file_would_run_is_known_by_section_and_path() {
    let config = load(
        "[tools.script.b]\npath = \"b.lua\"\nurl = \"x\"\n[agents.script.a]\npath = \"a.lua\"\n\
         [agents.inline.c]\ndescription = \"x\"\nsystem_prompt = \"y\"\n",
    )
    .unwrap();
    let expected = [("agents.script.a", "a.lua"), ("tools.script.b", "b.lua {\"url\":\"x\"}")];
    assert_eq!(requests(&config), expected);
}

#[test]
fn a_secret_of_a_script_is_masked_and_one_that_is_not_set_leaves_it_out() {
    let config = load(
        "[tools.script.a]\npath = \"a.lua\"\napi_token = \"hunter2hunter2\"\n[tools.script.b]\npath = \"b.lua\"\n\
         key = \"${UNSET}\"\n",
    )
    .unwrap();
    assert!(!serde_json::to_string(&config.shown_settings()).unwrap().contains("hunter2"));
    assert_eq!(config.settings.script_tools().len(), 1);
    assert_eq!(
        config.warnings,
        [
            "ctx.toml:6: [tools.script.b] is left out: `tools.script.b.key` needs the variable UNSET, which is not set"
        ]
    );
}

#[test]
fn a_secret_of_the_wrong_type_is_not_quoted() {
    assert_eq!(problems("[server]\ntoken = 12345678\n"), ["ctx.toml:2: `server.token`: has the wrong type"]);
}

#[test]
fn broken_toml_names_the_line() {
    let problem = &problems("[server]\nbind = \n")[0];
    assert!(problem.starts_with("ctx.toml:2: "), "{problem}");
}

#[test]
fn an_unset_variable_leaves_its_section_out() {
    let config = load(
        "[connectors.filesystem.a]\nroot = \"${UNSET}\"\n[connectors.filesystem.b]\nroot = \"${SET}\"\n[retrieval]\nfinal_limit = 3\n",
    )
    .unwrap();
    assert_eq!(
        config.warnings,
        [
            "ctx.toml:2: [connectors.filesystem.a] is left out: `connectors.filesystem.a.root` needs the variable UNSET, which is not set"
        ]
    );
    let sources = &config.settings.connectors["filesystem"];
    assert_eq!(sources.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(sources["b"]["root"], "value");
}

#[test]
fn an_unset_variable_in_a_vital_section_is_an_error() {
    assert_eq!(
        problems("[server]\ntoken = \"${UNSET}\"\n"),
        ["ctx.toml:2: `server.token` needs the variable UNSET, which is not set"]
    );
}

#[test]
fn a_secret_is_masked_wherever_it_is_shown() {
    let config = load("[server]\ntoken = \"hunter2hunter2\"\nbind = \"127.0.0.1:1\"\n").unwrap();
    let shown = serde_json::to_string(&config.shown_settings()).unwrap();
    assert!(!shown.contains("hunter2") && shown.contains("***"), "{shown}");
    assert!(!format!("{:?}", config.settings).contains("hunter2"));
    let bind = config.shown_settings().into_iter().find(|setting| setting.key == "bind").unwrap();
    assert_eq!((bind.origin.as_str(), bind.section.as_str()), ("ctx.toml:3", "server"));
}

#[test]
fn a_password_inside_an_address_is_masked() {
    let config = load(
        "[connectors.git.a]\nurl = \"https://jane:hunter2hunter2@example.test/a.git\"\n\
         [connectors.git.b]\nurl = \"https://ghp_hunter2@example.test/b.git\"\n\
         [connectors.git.c]\nurl = \"git@example.test:c.git\"\n",
    )
    .unwrap();
    let shown = serde_json::to_string(&config.shown_settings()).unwrap();
    assert!(!shown.contains("hunter2") && shown.contains("https://jane:***@example.test/a.git"), "{shown}");
    assert!(shown.contains("git@example.test:c.git"), "{shown}");
}

#[test]
fn the_workspace_overrides_the_user_key_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let (user, workspace) = (folder.path().join("user.toml"), folder.path().join("ctx.toml"));
    fs::write(&user, "[retrieval]\nfinal_limit = 5\nmode = \"keyword\"\n").unwrap();
    fs::write(&workspace, "[retrieval]\nfinal_limit = 7\n").unwrap();
    let located = ConfigLocation {
        user: Some(user),
        workspace: Some(workspace),
        root: folder.path().to_owned(),
        named: true,
    };
    let config = Config::load(&located, &CliOverrides::default(), TRUST_ALL).unwrap();
    assert_eq!(config.settings.retrieval.final_limit.get(), 7);
    assert_eq!(config.settings.retrieval.mode, ctx_knowledge::SearchMode::Keyword);
}

#[test]
fn an_authorization_server_is_understood_or_told_apart() {
    let with = |keys: &str| format!("[server.oauth]\nissuer = \"https://login.example.com\"\n{keys}");
    let config = load(&with("tool_scopes = { search = [\"a\"], \"tools.*\" = [\"b\", \"c\"] }\n")).unwrap();
    let policy = config.settings.server.oauth.unwrap().policy().unwrap();
    assert_eq!(policy.scopes().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(
        problems("[server.oauth]\nscopes = []\n"),
        ["ctx.toml:1: `server.oauth`: missing field `issuer`"]
    );
    for (keys, problem) in [
        ("isuer = 1\n", "unknown key `server.oauth.isuer`; did you mean `issuer`?"),
        (
            "resource = \"http://ctx.example.com/mcp\"\n",
            "`server.oauth.resource`: `http://ctx.example.com/mcp` is not a URL like \
             `https://login.example.com` (http is for loopback only)",
        ),
        ("scopes = [\"a b\"]\n", "`server.oauth.scopes`: `a b` is not a scope like `ctx:read`"),
        ("audience = \"\"\n", "`server.oauth.audience`: `` is not the audience of the tokens"),
        (
            "tool_scopes = { search = [\"\"] }\n",
            "`server.oauth.tool_scopes`: `` is not a scope like `ctx:read`",
        ),
        (
            "tool_scopes = { \"tools.[\" = [\"a\"] }\n",
            "`server.oauth.tool_scopes`: `tools.[` is not a pattern of tool names like `tools.*`",
        ),
    ] {
        assert_eq!(problems(&with(keys)), [format!("ctx.toml:3: {problem}")]);
    }
}

#[test]
fn a_server_is_started_or_reached_and_each_key_goes_with_one_of_these() {
    for (section, problem) in [
        ("", "1: `mcp_servers.a`: needs a `command` to start or a `url` to reach"),
        (
            "command = \"a\"\nurl = \"https://a\"",
            "3: `mcp_servers.a.url`: cannot be combined with `command`: a server is either started or connected to",
        ),
        ("command = \" \"", "2: `mcp_servers.a.command`: must not be empty"),
        ("url = \"ftp://a\"", "2: `mcp_servers.a.url`: must begin with https:// or http://"),
        ("url = \"https://a\"\nargs = []", "3: `mcp_servers.a.args`: is only valid with `command`"),
        ("url = \"https://a\"\nenv = {}", "3: `mcp_servers.a.env`: is only valid with `command`"),
        ("url = \"https://a\"\ncwd = \"x\"", "3: `mcp_servers.a.cwd`: is only valid with `command`"),
        (
            "command = \"a\"\ntransport = \"streamable-http\"",
            "3: `mcp_servers.a.transport`: is only valid with `url`",
        ),
        ("command = \"a\"\noauth = {}", "3: `mcp_servers.a.oauth`: is only valid with `url`"),
        (
            "url = \"https://a\"\noauth = { client_secret = \"x\" }",
            "3: `mcp_servers.a.oauth`: has a `client_secret` and no `client_id`",
        ),
        (
            "url = \"https://a\"\noauth = { client_metadata_url = \"http://x\" }",
            "3: `mcp_servers.a.oauth`: its `client_metadata_url` must begin with https://",
        ),
        ("command = \"a\"\nheaders = {}", "3: `mcp_servers.a.headers`: is only valid with `url`"),
        (
            "url = \"https://a\"\nheaders = { \"Mcp-Session-Id\" = \"1\" }",
            "3: `mcp_servers.a.headers`: the header `Mcp-Session-Id` is set by the protocol itself",
        ),
        (
            "command = \"a\"\nallowed_tools = [\"read_[\"]",
            "3: `mcp_servers.a.allowed_tools`: `read_[` is not a pattern of tool names like `read_*`",
        ),
        (
            "url = \"https://a\"\ntransport = \"ws\"",
            "3: `mcp_servers.a.transport`: unknown variant `ws`, expected `streamable-http` or `sse`",
        ),
        (
            "command = \"a\"\nstart = \"never\"",
            "3: `mcp_servers.a.start`: unknown variant `never`, expected `eager` or `lazy`",
        ),
        ("command = \"a\"\ncomand = \"b\"", "3: unknown key `mcp_servers.a.comand`; did you mean `command`?"),
    ] {
        assert_eq!(problems(&format!("[mcp_servers.a]\n{section}\n")), [format!("ctx.toml:{problem}")]);
    }
}

#[test]
fn a_server_cannot_have_the_name_of_what_is_built_in() {
    for name in ["context", "tools", "ctx"] {
        assert_eq!(
            problems(&format!("[mcp_servers.{name}]\ncommand = \"a\"\n")),
            [format!(
                "ctx.toml:1: `mcp_servers.{name}`: the name `{name}` is reserved for a built-in; choose another name"
            )]
        );
    }
}

#[test]
fn colliding_server_names_are_numbered_with_a_warning() {
    let config =
        load("[mcp_servers.\"my.api\"]\ncommand = \"a\"\n[mcp_servers.my-api]\ncommand = \"b\"\n").unwrap();
    let (servers, warnings) = config.upstreams(&|_| true);
    let names: Vec<String> = servers.iter().map(|server| server.name.to_string()).collect();
    assert_eq!(names, ["my_api", "my_api_2"]);
    assert_eq!(
        warnings,
        ["ctx.toml:1: two servers have the same name in scripts; `my.api` is renamed to my_api_2"]
    );
}

#[test]
fn what_a_server_would_run_is_told_as_it_is_written() {
    let config = load(
        "[mcp_servers.a]\ncommand = \"npx\"\nargs = [\"-y\", \"${SET}\"]\nenv = { KEY = \"${SET}\" }\n\
         [mcp_servers.b]\nurl = \"https://b\"\n[mcp_servers.c]\nurl = \"https://${UNSET}\"\n",
    )
    .unwrap();
    assert_eq!(
        requests(&config),
        [
            ("mcp_servers.a", "npx -y ${SET} {\"env\":{\"KEY\":\"${SET}\"}}"),
            ("mcp_servers.b", "https://b"),
            ("mcp_servers.c", "https://${UNSET}"),
        ]
    );
    assert!(config.warnings[0].contains("[mcp_servers.c] is left out"), "{:?}", config.warnings);
}
