//! Runs the official MCP conformance suite against the program in `conformance/`: as a server, as a client,
//! and through a gateway that has this server as its upstream.
//!
//! The suite lists the scenarios that each protocol revision requires, and runs further ones. Required
//! scenarios must pass without a warning; the others are only reported.

mod report;

use crate::run::{cargo, copy_workspace, root, succeed, target, with_test_env};
use crate::server::ServerProcess;
use crate::tools;
use anyhow::{Context, Result, bail};
use report::{Report, TestedRole};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The supported protocol revisions that are tested: one with sessions, one without.
const REVISIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];
/// Number of rounds: a round must not depend on state that the previous one left behind.
const ROUNDS: usize = 2;
/// Timeout of a scenario; the suite's own timeouts inside a scenario are shorter.
const SCENARIO_TIMEOUT_MS: &str = "60000";

/// Builds the program and runs the suite against it.
pub(crate) fn run() -> Result<()> {
    succeed(&mut cargo(&["build", "--quiet", "--package", "ctx-conformance", "--locked"]))?;
    run_with(&target().join("debug/ctx-conformance"), ROUNDS)
}

/// Runs the suite once, against a program that is already built.
pub(crate) fn run_once_with(binary: &Path) -> Result<()> {
    run_with(binary, 1)
}

fn run_with(binary: &Path, rounds: usize) -> Result<()> {
    let suite = ConformanceSuite { node: tools::node()?.join("node"), script: tools::conformance_suite()? };
    let results = target().join("conformance");
    if results.exists() {
        fs::remove_dir_all(&results)?;
    }
    fs::create_dir_all(&results)?;
    let folder = tempfile::tempdir()?;
    let workspace = folder.path().join("workspace");
    copy_workspace(&root().join("conformance/workspace"), &workspace)?;
    let mut server = start_server(binary, &workspace, &results.join("server.log"))?;
    let url = format!("http://{}/mcp", server.address);
    let mut failed = 0;
    for round in 1..=rounds {
        for revision in REVISIONS {
            let folder = results.join(format!("{revision}-{round}"));
            let report = suite.run(TestedRole::Server, revision, &["--url", &url], &folder)?;
            println!("server, {revision}, round {round} of {rounds}");
            println!("{report}");
            failed += report.failed();
        }
    }
    server.stop()?;
    failed += run_through_gateway(binary, &suite, folder.path(), &results)?;
    // Each scenario starts a process of its own, so one round is enough.
    let command = format!("{} client", fs::canonicalize(binary)?.display());
    for revision in REVISIONS {
        let folder = results.join(format!("{revision}-client"));
        let report = suite.run(TestedRole::Client, revision, &["--command", &command], &folder)?;
        println!("client, {revision}");
        println!("{report}");
        failed += report.failed();
    }
    if failed > 0 {
        bail!("a required scenario failed {failed} times; every check is in {}", results.display());
    }
    Ok(())
}

/// Runs the suite against a gateway that starts the server as its only upstream; returns the number of
/// failures. A proxy between suite and gateway renames tools and prompts, because a gateway lists them under
/// its server's name.
fn run_through_gateway(
    binary: &Path,
    suite: &ConformanceSuite,
    folder: &Path,
    results: &Path,
) -> Result<usize> {
    // In a separate workspace, because the server counts how often it has changed its scripts.
    let (workspace, gateway) = (folder.join("behind"), folder.join("gateway"));
    copy_workspace(&root().join("conformance/workspace"), &workspace)?;
    fs::create_dir_all(&gateway)?;
    let binary = fs::canonicalize(binary)?;
    let config = format!(
        "[server]\nbind = \"127.0.0.1:0\"\n[mcp_servers.up]\ncommand = {binary:?}\ncwd = {workspace:?}\n\
         args = [\"-c\", \"ctx.toml\", \"serve\", \"mcp\", \"--stdio\"]\nenv = {{ CTX_TRUST = \"1\", XDG_STATE_HOME = \"${{XDG_STATE_HOME}}\" }}\nexpose = true\n"
    );
    fs::write(gateway.join("ctx.toml"), config)?;
    let mut gateway_server = start_server(&binary, &gateway, &results.join("gateway.log"))?;
    let mut command = Command::new(&suite.node);
    command.arg(root().join("conformance/suite/rename.mjs")).arg(&gateway_server.address);
    let mut renaming_proxy = ServerProcess::spawn(&mut command, |line| eprintln!("{line}"))?;
    let url = format!("http://{}/mcp", renaming_proxy.address);
    let mut failed = 0;
    for revision in REVISIONS {
        let report = suite.run(
            TestedRole::Server,
            revision,
            &["--url", &url],
            &results.join(format!("{revision}-gateway")),
        )?;
        println!("{revision}, through a gateway");
        println!("{report}");
        failed += report.failed();
    }
    renaming_proxy.stop()?;
    gateway_server.stop()?;
    Ok(failed)
}

/// Starts the server in a copy of its workspace, because it changes scripts there.
fn start_server(binary: &Path, workspace: &Path, log: &Path) -> Result<ServerProcess> {
    let mut log = File::create(log)?;
    let mut command = Command::new(fs::canonicalize(binary)?);
    with_test_env(&mut command).args(["-c", "ctx.toml", "serve", "mcp"]).current_dir(workspace);
    ServerProcess::spawn(&mut command, move |line| {
        if let Err(error) = writeln!(log, "{line}") {
            eprintln!("the server's log cannot be written: {error}");
        }
    })
}

struct ConformanceSuite {
    node: PathBuf,
    script: PathBuf,
}

impl ConformanceSuite {
    /// Runs all scenarios of a revision for one side; `tested` names the program under test. Writes results
    /// and log to `folder`.
    fn run(&self, role: TestedRole, revision: &str, tested: &[&str], folder: &Path) -> Result<Report> {
        fs::create_dir_all(folder)?;
        let log = File::create(folder.join("suite.log"))?;
        let arguments = ["--requirements", revision, "--timeout", SCENARIO_TIMEOUT_MS];
        let mut command = Command::new(&self.node);
        command.arg(&self.script).arg(role.name()).args(tested).args(arguments);
        command.arg("--output-dir").arg(folder);
        let status = command.stdout(log.try_clone()?).stderr(log).status().context("cannot run the suite")?;
        let report = Report::read(&self.required(role, revision)?, role, folder)?;
        // The suite's exit status counts, too: a scenario that our reading of the results misses must not
        // pass.
        if !status.success() && report.failed() == 0 {
            bail!("the suite failed ({status}), and its results do not say why; see {}", folder.display());
        }
        Ok(report)
    }

    /// The scenarios that a revision requires, from the suite's own list.
    fn required(&self, role: TestedRole, revision: &str) -> Result<Vec<String>> {
        let package = self.script.parent().and_then(Path::parent).context("the suite is not in a package")?;
        let file = package.join(format!("requirements/{revision}.yaml"));
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let required = report::required_scenarios(role, &text);
        if required.is_empty() {
            bail!("{} requires nothing of a {}", file.display(), role.name());
        }
        Ok(required)
    }
}
