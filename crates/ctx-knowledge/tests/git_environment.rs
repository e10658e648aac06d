//! Settings that the git connector takes over from the user's git configuration and environment variables: proxies and headers,
//! but no formats. Each case runs in a process of its own.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::{AUTHORIZATION, GitServer, LOGIN, Repository, Workspace, redirecting_host, sync_source};
use serde_json::json;
use std::fs;
use std::process::Command;

/// Variables of [`reads_the_repository_of_its_environment_twice`].
const URL: &str = "CTX_TEST_URL";
const ERROR: &str = "CTX_TEST_ERROR";

fn one_file() -> Repository {
    let repository = Repository::new();
    repository.file("a.md", "harbour").commit("Ada", "2026-01-01T00:00:00Z");
    repository
}

/// Reads the repository at `url` in a process with this global git configuration and these variables. With an `error`,
/// that must fail so; several are separated by `|`.
#[track_caller]
fn read(url: &str, config: &str, variables: &[(&str, &str)], error: Option<&str>) {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("gitconfig");
    fs::write(&file, config).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "git_environment::reads_the_repository_of_its_environment_twice", "--ignored"]);
    for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"]
    {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_GLOBAL", file).env("GIT_CONFIG_NOSYSTEM", "1");
    command.env(URL, url).envs(error.map(|error| (ERROR, error))).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{config} {variables:?}: {said}");
}

#[allow(clippy::disallowed_methods, reason = "the environment is what it tests")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[tokio::test]
#[ignore = "run by the other tests, in processes with other environment variables"]
async fn reads_the_repository_of_its_environment_twice() {
    let mut workspace = Workspace::new();
    let settings = json!({"url": variable(URL).unwrap()});
    let connector = workspace.connector_in("git", &settings, &variable).unwrap();
    let knowledge = workspace.open_with("git", connector);
    let first = sync_source(&knowledge, "git:test").await;
    if let Some(expected) = variable(ERROR) {
        let error = first.unwrap_err().to_string();
        return assert!(expected.split('|').any(|expected| error.contains(expected)), "{error}");
    }
    assert_eq!(first.unwrap().added, 1);
    let mark = workspace.cache("git").join("repository.git/mark");
    fs::write(&mark, "").unwrap();
    assert_eq!(sync_source(&knowledge, "git:test").await.unwrap().unchanged, 1);
    assert!(mark.exists(), "the copy was made anew");
}

#[test]
fn a_repository_behind_the_users_proxy_is_read_and_the_proxy_resolves_its_host() {
    let repository = one_file();
    let server = GitServer::start(&repository);
    let (url, proxy) = (format!("http://{LOGIN}repository.invalid/.git"), server.proxy_url());
    read(&url, &format!("[http]\nproxy = {proxy}\n"), &[], None);
    read(&url, &format!("[http \"http://repository.invalid\"]\nproxy = {proxy}\n"), &[], None);
    read(&url, "", &[("http_proxy", &proxy)], None);
    read(&url, "", &[], Some("its host `repository.invalid` cannot be resolved"));
    // A host that the proxy is not used for is not resolved by git either.
    read(&url, "", &[("http_proxy", &proxy), ("NO_PROXY", "repository.invalid")], Some("onnect"));
}

#[test]
fn a_header_without_a_url_is_not_sent_to_another_origin() {
    let repository = one_file();
    let server = GitServer::start(&repository);
    let header = |scope: &str| format!("[http{scope}]\nextraHeader = \"Authorization: {AUTHORIZATION}\"\n");
    read(&server.url(""), &header(""), &[], None);
    let moved = format!("http://{}/old.git", redirecting_host(server.url("")));
    read(&moved, &header(""), &[], Some("it requires authentication|unable to get password"));
    let scope = format!(" \"{}\"", server.proxy_url());
    read(&moved, &header(&scope), &[], None);
}

#[test]
fn a_mirror_has_its_own_formats_whatever_the_users_defaults_are() {
    let repository = one_file();
    let config = "[init]\ndefaultRefFormat = reftable\ndefaultObjectFormat = sha256\n";
    let variables = [("GIT_DEFAULT_HASH", "sha256"), ("GIT_DEFAULT_REF_FORMAT", "reftable")];
    for variables in [&variables[..1], &variables[1..], &[]] {
        read(&repository.url(), config, variables, None);
    }
}
