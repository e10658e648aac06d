//! Files in, settings or problems out.

use super::{Config, ConfigError, Located};
use std::fs;

fn load(text: &str) -> Result<Config, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ctx.toml");
    fs::write(&path, text).unwrap();
    let located = Located { user: None, workspace: Some(path), root: folder.path().to_owned() };
    Config::load(&located, &|name| (name == "SET").then(|| "value".to_owned()))
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
fn unknown_keys_are_all_told_with_line_and_suggestion() {
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
    let kinds: Vec<&str> = ctx_knowledge::KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(
        problems("[connectors.floppy.a]\nroot = \".\"\n"),
        [format!("ctx.toml:1: unknown key `connectors.floppy`; known here: {}", kinds.join(", "))]
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
fn what_is_wrong_with_a_source_names_its_key() {
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
fn a_secret_of_the_wrong_type_is_not_told() {
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
    let shown = serde_json::to_string(&config.shown()).unwrap();
    assert!(!shown.contains("hunter2") && shown.contains("***"), "{shown}");
    assert!(!format!("{:?}", config.settings).contains("hunter2"));
    let bind = config.shown().into_iter().find(|setting| setting.key == "bind").unwrap();
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
    let shown = serde_json::to_string(&config.shown()).unwrap();
    assert!(!shown.contains("hunter2") && shown.contains("https://jane:***@example.test/a.git"), "{shown}");
    assert!(shown.contains("git@example.test:c.git"), "{shown}");
}

#[test]
fn the_workspace_overrides_the_user_key_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let (user, workspace) = (folder.path().join("user.toml"), folder.path().join("ctx.toml"));
    fs::write(&user, "[retrieval]\nfinal_limit = 5\nmode = \"keyword\"\n").unwrap();
    fs::write(&workspace, "[retrieval]\nfinal_limit = 7\n").unwrap();
    let located = Located { user: Some(user), workspace: Some(workspace), root: folder.path().to_owned() };
    let config = Config::load(&located, &|_| None).unwrap();
    assert_eq!(config.settings.retrieval.final_limit.get(), 7);
    assert_eq!(config.settings.retrieval.mode, ctx_knowledge::Mode::Keyword);
}
