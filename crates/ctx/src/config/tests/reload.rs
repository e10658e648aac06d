//! Configurations that replace a running one.

use super::{Config, LoadContext, TRUST_ALL, TrustRequest, load};
use crate::config::{CliOverrides, ConfigLocation};
use std::path::Path;

const NO_TRUST: LoadContext<'static> = LoadContext {
    is_trusted: &|_: &Path, requests: &[TrustRequest]| vec![false; requests.len()],
    ..TRUST_ALL
};

fn load_untrusted(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ctx.toml");
    std::fs::write(&path, text).unwrap();
    let located =
        ConfigLocation { user: None, workspace: Some(path), root: folder.path().to_owned(), named: true };
    Config::load(&located, &CliOverrides::default(), NO_TRUST).unwrap()
}

const GREET: &str = "[tools.script.greet]\npath = \"greet.lua\"\n";

#[test]
fn changes_are_named_by_section() {
    let before =
        load(&format!("{GREET}[mcp_servers.a]\ncommand = \"a\"\n[apis.p]\nspec = \"p.yaml\"\n")).unwrap();
    let after = "[tools.script.greet]\npath = \"greet.lua\" # as before\nword = 1\n\
                 [mcp_servers.b]\ncommand = \"b\"\n[apis.p]\nspec = \"p.yaml\"\n[retrieval]\nfinal_limit = 3\n";
    let replacement = load(after).unwrap().replace(&before).unwrap();
    assert_eq!(
        replacement.changes.to_string(),
        "added [mcp_servers.b]; changed [retrieval], [tools.script.greet]; removed [mcp_servers.a]"
    );
    assert!(replacement.changes.contains("mcp_servers.a") && !replacement.changes.contains("apis.p"));
    let again = load(after).unwrap().replace(&replacement.config).unwrap();
    assert!(again.changes.is_empty() && again.needs_restart.is_empty());
}

#[test]
fn what_needs_a_restart_stays_and_is_named_as_long_as_it_differs() {
    let before = load("[server]\nbind = \"127.0.0.1:1\"\n").unwrap();
    let edited = "[server]\nbind = \"127.0.0.1:2\"\n[limits]\nhttp_connections = 9\nscript_calls = 7\n";
    let replacement = load(edited).unwrap().replace(&before).unwrap();
    assert_eq!(replacement.needs_restart, ["server", "limits.http_connections"]);
    assert_eq!(replacement.changes.to_string(), "changed [limits]");
    assert_eq!(replacement.config.settings.server.bind, "127.0.0.1:1");
    assert_eq!(replacement.config.settings.limits().nested_calls, 7);
    let again = load(edited).unwrap().replace(&replacement.config).unwrap();
    assert_eq!(again.needs_restart, ["server", "limits.http_connections"]);
    assert!(again.changes.is_empty());
}

#[test]
fn an_untrusted_section_stays_as_it_runs_and_a_new_one_is_left_out() {
    let running = load(&format!("{GREET}word = 1\n")).unwrap();
    let edited = format!("{GREET}word = 2\n[mcp_servers.evil]\ncommand = \"touch\"\n");
    let replacement = load_untrusted(&edited).replace(&running).unwrap();
    assert!(replacement.changes.is_empty(), "{}", replacement.changes);
    assert_eq!(replacement.config.untrusted.len(), 2);
    assert!(replacement.config.settings.mcp_servers.is_empty());
    // A section that was removed from the file is dropped, trusted or not.
    let replacement = load_untrusted("").replace(&running).unwrap();
    assert_eq!(replacement.changes.to_string(), "removed [tools.script.greet]");
}

#[test]
fn the_running_redactor_masks_the_secrets_of_the_edit() {
    let running = load("").unwrap();
    let redactor = running.redactor.clone();
    load("[tools.script.greet]\npath = \"greet.lua\"\napi_key = \"hunter2hunter2\"\n")
        .unwrap()
        .replace(&running)
        .unwrap();
    assert_eq!(redactor.text("hunter2hunter2".to_owned()), "***");
}
