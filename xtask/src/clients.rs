//! Runs clients made with the official MCP SDKs against the server in `conformance/`: each over stdio and
//! HTTP, in every protocol revision that it supports. Their assertions are in `clients/`.

use crate::run::{cargo, copy_workspace, root, succeed, target};
use crate::server::ServerProcess;
use crate::tools;
use crate::upstreams::check_slow_starter;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The prefix of a line that reports a passed assertion: `ok stdio 2026-07-28 a tool is called`.
const PASSED_PREFIX: &str = "ok ";
/// More prompts than fit on a page of a list; the clients count them.
const MANY_PROMPTS: usize = 450;
/// Number of transports: stdio and HTTP.
const TRANSPORTS: usize = 2;

/// Builds the server and runs all clients.
pub(crate) fn run() -> Result<()> {
    succeed(&mut cargo(&["build", "--quiet", "--package", "ctx-conformance", "--locked"]))?;
    run_with(&target().join("debug/ctx-conformance"))
}

/// Runs all clients against a server that is already built.
pub(crate) fn run_with(program: &Path) -> Result<()> {
    let mut clients = python_clients()?;
    clients.extend(typescript_clients()?);
    let program = fs::canonicalize(program)?;
    let folder = tempfile::tempdir()?;
    let workspace = folder.path().join("workspace");
    copy_workspace(&root().join("conformance/workspace"), &workspace)?;
    let config = workspace.join("ctx.toml");
    let many_prompts: String = (0..MANY_PROMPTS).map(prompt_section).collect();
    fs::write(&config, fs::read_to_string(&config)? + &many_prompts)?;
    // Clients pass hardly any variables to the servers they start; `HOME` gives all of them the same user state.
    let home = folder.path();
    let mut serve = Command::new(&program);
    serve
        .args(["--trust", "-c"])
        .arg(&config)
        .args(["serve", "mcp"])
        .env("HOME", home)
        .env_remove("XDG_STATE_HOME");
    let mut server = ServerProcess::spawn(&mut serve, drop)?;
    let url = format!("http://{}/mcp", server.address);

    println!("  {:<20} {:<9} {:<10} claims", "client", "transport", "revision");
    let mut failed = 0;
    for (name, mut client) in clients {
        client.arg(&url).arg(&program).arg(&config).env("HOME", home).env_remove("XDG_STATE_HOME");
        let output = client.output().with_context(|| format!("cannot run {name}"))?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let claim_counts = count_claims(&stdout);
        for (setting, claims) in &claim_counts {
            println!("  {name:<20} {setting} {claims:>6}");
        }
        if output.status.success() {
            ensure!(claim_counts.len() >= TRANSPORTS, "{name} has not claimed anything over both transports");
        } else {
            failed += 1;
            let errors = String::from_utf8_lossy(&output.stderr);
            println!("  {name} {}\n{errors}", stdout.lines().last().unwrap_or("said nothing"));
        }
    }
    server.stop()?;
    if failed > 0 {
        bail!("{failed} clients were failed");
    }
    check_slow_starter(&program, home)
}

/// An inline agent, which is a prompt in MCP.
fn prompt_section(number: usize) -> String {
    format!(
        "\n[agents.inline.many_{number}]\ndescription = \"One of many\"\nsystem_prompt = \"Be one of many.\"\n"
    )
}

/// Number of passed assertions for each transport and revision.
fn count_claims(stdout: &str) -> Vec<(String, usize)> {
    let mut claim_counts: Vec<(String, usize)> = Vec::new();
    for line in stdout.lines().filter_map(|line| line.strip_prefix(PASSED_PREFIX)) {
        let mut words = line.split(' ');
        let (transport, revision) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let setting = format!("{transport:<9} {revision}");
        match claim_counts.last_mut() {
            Some((last, claims)) if *last == setting => *claims += 1,
            _ => claim_counts.push((setting, 1)),
        }
    }
    claim_counts
}

fn python_clients() -> Result<Vec<(String, Command)>> {
    let client = |version: &str| {
        let mut command = Command::new(tools::python_sdk(version)?);
        // Without a bytecode cache, which would be written into the repository.
        command.arg("-B").arg(root().join("clients/python/suite.py")).arg(adapter(version));
        Ok((format!("python {version}"), command))
    };
    tools::PYTHON_SDKS.into_iter().map(client).collect()
}

fn typescript_clients() -> Result<Vec<(String, Command)>> {
    let (node, folder) = (tools::node()?.join("node"), tools::typescript_sdks()?);
    // Copied beside the packages, where Node looks for them.
    copy_workspace(&root().join("clients/typescript"), &folder)?;
    let client = |package: &str| {
        let manifest = folder.join("node_modules").join(package).join("package.json");
        let manifest: serde_json::Value = serde_json::from_str(&fs::read_to_string(manifest)?)?;
        let version = manifest["version"].as_str().unwrap_or_default();
        let mut command = Command::new(&node);
        command.arg(folder.join("suite.mjs")).arg(adapter(version));
        Ok((format!("typescript {version}"), command))
    };
    ["@modelcontextprotocol/sdk", "@modelcontextprotocol/client"].into_iter().map(client).collect()
}

/// The module for this major version of an SDK.
fn adapter(version: &str) -> String {
    format!("v{}", version.split('.').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_counted_for_each_transport_and_revision() {
        let stdout = "ok stdio 2026-07-28 a tool is called\nok stdio 2026-07-28 a prompt is read\n\
                    ok http 2026-07-28 a tool is called\nFAILED http 2026-07-28 a prompt is read: no answer\n";
        let expected = [("stdio     2026-07-28".to_owned(), 2), ("http      2026-07-28".to_owned(), 1)];
        assert_eq!(count_claims(stdout), expected);
    }
}
