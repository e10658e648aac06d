//! `cargo xtask ci`: all checks that a change must pass. `cargo xtask test`: the fast ones.

use crate::http::HttpConnection;
use crate::run::{cargo, copy_workspace, release_binary, root, succeed, target};
use crate::server::ServerProcess;
use crate::{clients, codegen, conformance, dependencies, pictures, programs, tidy, tools};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::Command;
use std::time::Instant;

/// Runs all checks.
pub(crate) fn run_all() -> Result<()> {
    step("format", || succeed(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("tidy", tidy::check)?;
    step("licences and dependencies", dependencies::check)?;
    step("lints", || {
        succeed(&mut cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
    })?;
    step("what tests need", tools::install_for_tests)?;
    step("tests", || succeed(&mut cargo(&["test", "--workspace", "--locked"])))?;
    // Uses the binaries of the test build; building them alone would recompile much with other features.
    step("generated pages", || codegen::check_pages_with(&target().join("debug/ctx")))?;
    step("MCP conformance", || conformance::run_once_with(&target().join("debug/ctx-conformance")))?;
    step("MCP clients", || clients::run_with(&target().join("debug/ctx-conformance")))?;
    step("MCP clients that people use", || programs::run_with(&target().join("debug/ctx")))?;
    step("documentation", || {
        succeed(cargo(&["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("the release binary on the example", check_release_binary)?;
    step("pictures", || pictures::check_with(&target().join("release/ctx")))
}

/// Runs the checks that are fast enough to run after every change.
pub(crate) fn run_fast() -> Result<()> {
    step("tidy", tidy::check)?;
    step("what tests need", tools::install_for_tests)?;
    step("tests of the libraries", || {
        succeed(&mut cargo(&[
            "test",
            "--workspace",
            "--exclude",
            "ctx",
            "--exclude",
            "ctx-bench",
            "--exclude",
            "xtask",
        ]))
    })?;
    step("tests of the program's modules", || succeed(&mut cargo(&["test", "--package", "ctx", "--lib"])))?;
    step("one journey", || {
        succeed(&mut cargo(&["test", "--package", "ctx", "--test", "integration", "journey::"]))
    })
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("=== {name}");
    let started = Instant::now();
    work().with_context(|| name.to_owned())?;
    println!("=== {name}: ok, {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// Runs the first command of the README with the release binary.
fn check_release_binary() -> Result<()> {
    let binary = release_binary()?;
    let folder = tempfile::tempdir()?;
    let workspace = folder.path().join("workspace");
    copy_workspace(&root().join("examples/workspace"), &workspace)?;
    let config = workspace.join("ctx.toml");
    // Any free port: a developer's own server may be using the usual one.
    fs::write(&config, fs::read_to_string(&config)?.replace("127.0.0.1:7331", "127.0.0.1:0"))?;

    let mut command = Command::new(&binary);
    command.arg("up").arg(&workspace).arg("--trust").env("XDG_STATE_HOME", folder.path());
    let mut server = ServerProcess::spawn(&mut command, drop)?;
    let mut connection = HttpConnection::open(&server.address)?;
    let (status, body) = connection.get("/tools/sources")?;
    ensure!(status == 200 && body.contains("filesystem:handbook"), "sources: {status} {body}");
    let (status, body) =
        connection.post("/tools/search", r#"{"query":"how do I roll back a release?","limit":3}"#)?;
    ensure!(status == 200 && body.contains("roll-back-a-release.md"), "search: {status} {body}");
    let (status, body) = connection.get("/tools/list")?;
    ensure!(status == 200 && body.contains("echo"), "tools: {status} {body}");
    let (status, body) = connection.get("/agents/list")?;
    ensure!(status == 200 && body.contains("incident-responder"), "agents: {status} {body}");
    let (status, _) = connection.get("/openapi.json")?;
    ensure!(status == 200, "openapi.json: {status}");
    drop(connection);
    server.stop()
}
