//! Tests upstream servers made with the official SDKs, in situations that fakes do not reproduce.

use crate::run::{output, root};
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Delay before the server listens, in seconds: longer than clients usually wait for the response to their
/// probe before they fall back to `initialize`.
const LISTEN_DELAY: u32 = 11;
/// Start timeout in seconds, long enough for a busy machine.
const START_TIMEOUT: u32 = 60;
const SCRIPT: &str = "return sdk.slow.add({ a = 40, b = 2 })";

/// Connects to a server of the Python SDK 2.x that starts late. It answers the probe that was sent before it
/// listened, speaks 2026-07-28 from then on, and refuses `initialize`.
pub(crate) fn check_slow_starter(program: &Path, home: &Path) -> Result<()> {
    let (python, server) =
        (tools::python_sdk(tools::PYTHON_SDKS[1])?, root().join("clients/python/slow_server.py"));
    let workspace = home.join("slow");
    fs::create_dir(&workspace)?;
    let config = workspace.join("ctx.toml");
    let delayed_start = format!("sleep {LISTEN_DELAY}; exec \\\"$0\\\" -B \\\"$1\\\"");
    let arguments =
        format!("[\"-c\", \"{delayed_start}\", \"{}\", \"{}\"]", python.display(), server.display());
    fs::write(
        &config,
        format!(
            "[limits]\nupstream_start_timeout = {START_TIMEOUT}\n[mcp_servers.slow]\ncommand = \"sh\"\nargs = {arguments}\n"
        ),
    )?;
    let script = workspace.join("add.luau");
    fs::write(&script, SCRIPT)?;
    let mut exec = Command::new(program);
    exec.args(["--trust", "-c"]).arg(&config).arg("exec").arg(&script);
    exec.env("HOME", home).env_remove("XDG_STATE_HOME");
    let started = Instant::now();
    let answer =
        output(&mut exec).context("a server of the Python SDK 2.x that starts late cannot be used")?;
    ensure!(answer.contains("42"), "a server that starts late answered {answer}");
    println!(
        "  a python {} server that starts after {LISTEN_DELAY} s: {:.1} s",
        tools::PYTHON_SDKS[1],
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
