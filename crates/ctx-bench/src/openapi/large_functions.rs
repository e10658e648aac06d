//! The cost of GitHub's large functions in a script: the check of their calls before it runs, and their first call, for
//! which the schema of their arguments is compiled.

use super::corpora::github;
use crate::gateway::StdioClient;
use crate::{median, percentile};
use anyhow::{Result, ensure};
use serde_json::json;
use std::path::Path;
use std::process::Command;
use xtask::root;

/// Functions with required parameters: a call without any compiles the schema, fails, and reaches no service.
const FUNCTIONS: [&str; 10] = [
    "repos_get",
    "issues_list_for_repo",
    "pulls_create",
    "issues_create",
    "actions_get_workflow_run",
    "repos_create_in_org",
    "orgs_list_members",
    "users_get_by_username",
    "checks_create",
    "git_create_tree",
];
const SCRIPTS: usize = 500;

pub(super) fn measure(binary: &Path) -> Result<()> {
    let state = tempfile::tempdir()?;
    let mut command = Command::new(binary);
    let spec = format!("github={}", github()?.display());
    command.args(["run", &spec]).env("XDG_STATE_HOME", state.path()).current_dir(root());
    let mut client = StdioClient::start(&mut command)?;
    let mut time = |script: &str| client.time("execute", &json!({ "script": script }));
    let call = |name: &str| format!("return (pcall(function() return sdk.github.{name}{{}} end))");
    // Waits until the description is read.
    time(&call("no_such_function"))?;
    let unused = |names: &[&str]| -> String {
        let calls: String =
            names.iter().map(|name| format!("sdk.github.{name}(table.unpack({{}})) ")).collect();
        format!("if false then {calls} end return 1")
    };
    ensure!(FUNCTIONS.len() > 5, "too few functions");
    let five = unused(&FUNCTIONS[..5]);
    let first_check = time(&five)?;
    let (mut empty, mut checked) = (Vec::new(), Vec::new());
    for _ in 0..SCRIPTS {
        empty.push(time("return 1")?);
        checked.push(time(&five)?);
    }
    let empty = median(empty);
    println!("\n| a script with five of GitHub's functions in dead code, above `return 1` | ms |\n|---|---|");
    println!("| the first time | {:.3} |", first_check - empty);
    println!("| p50 later | {:.3} |", median(checked) - empty);
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for name in FUNCTIONS {
        let script = call(name);
        first.push(time(&script)? - empty);
        later.push(median((0..SCRIPTS / 10).map(|_| time(&script)).collect::<Result<_>>()?) - empty);
    }
    println!(
        "\n| a call of GitHub's functions that fails the check of its arguments, above `return 1` | p50 ms | slowest |"
    );
    println!("|---|---|---|");
    for (label, times) in [("first", &mut first), ("later", &mut later)] {
        println!("| {label} | {:.3} | {:.3} |", median(times.clone()), percentile(times, 1.0));
    }
    Ok(())
}
