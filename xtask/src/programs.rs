//! Runs popular MCP clients (Claude Code, Codex, Gemini CLI, MCP Inspector), each in a fresh home with the
//! settings that `ctx connect` wrote there. They need neither a model nor an account.

use crate::run::{cargo, copy_workspace, root, succeed, target};
use crate::server::ServerProcess;
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Names of the server in the clients' settings: over stdio, and over HTTP.
const STDIO: &str = "handbook";
const HTTP: &str = "handbook-http";
/// The clients' Node scripts.
const CLAUDE: &str = "@anthropic-ai/claude-code/cli-wrapper.cjs";
const CODEX: &str = "@openai/codex/bin/codex.js";
const GEMINI: &str = "@google/gemini-cli/bundle/gemini.js";
const INSPECTOR: &str = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";

/// A check of one client; the string is the address of the running server.
type Check = fn(&ClientMachine, &str) -> Result<()>;

const CHECKS: [(&str, Check); 4] =
    [("Claude Code", claude), ("Codex", codex), ("Gemini CLI", gemini), ("MCP Inspector", inspector)];

/// Builds the program and runs all clients against it.
pub(crate) fn run() -> Result<()> {
    succeed(&mut cargo(&["build", "--quiet", "--package", "ctx", "--locked"]))?;
    run_with(&target().join("debug/ctx"))
}

/// Runs all clients against a program that is already built.
pub(crate) fn run_with(program: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let machine = ClientMachine::new(fs::canonicalize(folder.path())?, program)?;
    let mut serve = machine.ctx(&["serve", "mcp"]);
    let mut server = ServerProcess::spawn(&mut serve, drop)?;
    // From now on `ctx connect --http` writes the address that the server chose.
    machine.edit_config("127.0.0.1:0", &server.address)?;
    for (name, check) in CHECKS {
        let started = Instant::now();
        check(&machine, &server.address)
            .with_context(|| format!("{name} cannot use what `ctx connect` wrote"))?;
        println!("  {name:<14} stdio and http, {:.1} s", started.elapsed().as_secs_f64());
    }
    server.stop()
}

/// A simulated user's machine: a fresh home, a workspace, and the clients.
struct ClientMachine {
    home: PathBuf,
    workspace: PathBuf,
    program: PathBuf,
    node: PathBuf,
    modules: PathBuf,
    path: OsString,
}

impl ClientMachine {
    fn new(folder: PathBuf, program: &Path) -> Result<Self> {
        let node = tools::node()?;
        let machine = Self {
            home: folder.join("home"),
            // With a space: clients must quote paths correctly.
            workspace: folder.join("my workspace"),
            program: fs::canonicalize(program)?,
            path: tools::path_with(&node)?,
            node: node.join("node"),
            modules: tools::programs()?,
        };
        fs::create_dir(&machine.home)?;
        copy_workspace(&root().join("examples/workspace"), &machine.workspace)?;
        machine.edit_config("127.0.0.1:7331", "127.0.0.1:0")?;
        for arguments in [["trust"].as_slice(), &["sync", "--quiet"]] {
            output(&mut machine.ctx(arguments))?;
        }
        Ok(machine)
    }

    fn edit_config(&self, from: &str, to: &str) -> Result<()> {
        let config = self.workspace.join("ctx.toml");
        Ok(fs::write(&config, fs::read_to_string(&config)?.replace(from, to))?)
    }

    fn ctx(&self, arguments: &[&str]) -> Command {
        let mut command = self.clean_command(&self.program);
        command.args(arguments);
        command
    }

    /// Writes the workspace into the settings of a client, once for each transport.
    fn connect(&self, client: &str, file: Option<&str>) -> Result<()> {
        for arguments in [["--name", STDIO].as_slice(), &["--name", HTTP, "--http"]] {
            let mut connect = self.ctx(&["connect", client, "--write", "--quiet"]);
            connect
                .args(arguments)
                .args(file.map(|file| format!("--file={}", self.home.join(file).display())));
            output(&mut connect)?;
        }
        Ok(())
    }

    /// Runs a client; returns its stdout.
    fn client(&self, script: &str, arguments: &[&str]) -> Result<String> {
        Ok(self.run_client(script, arguments)?.0)
    }

    /// Runs a client; returns its stdout and stderr.
    fn run_client(&self, script: &str, arguments: &[&str]) -> Result<(String, String)> {
        let script = self.modules.join(script);
        ensure!(script.is_file(), "{} is not there: run `cargo xtask tools`", script.display());
        output(self.clean_command(&self.node).arg(script).args(arguments))
    }

    /// A command with a clean environment.
    fn clean_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.workspace)
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", &self.home)
            // Without update checks.
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("DISABLE_AUTOUPDATER", "1")
            .env("MCP_INSPECTOR_SECRET_STORE", "memory");
        command
    }
}

/// Claude Code connects to every server to check its health.
fn claude(machine: &ClientMachine, address: &str) -> Result<()> {
    machine.connect("claude", None)?;
    let list_output = machine.client(CLAUDE, &["mcp", "list"])?;
    expect_connected(&list_output, &machine.program.display().to_string(), "✔ Connected")?;
    expect_connected(&list_output, address, "✔ Connected")
}

/// Codex lists servers without connecting to them.
fn codex(machine: &ClientMachine, address: &str) -> Result<()> {
    machine.connect("codex", None)?;
    let list_output = machine.client(CODEX, &["mcp", "list"])?;
    ensure!(list_output.contains(STDIO) && list_output.contains(HTTP), "it lists:\n{list_output}");
    let get = |name| -> Result<Value> {
        let entry: Value = serde_json::from_str(&machine.client(CODEX, &["mcp", "get", name, "--json"])?)?;
        ensure!(entry["enabled"] == true, "{name} is not enabled:\n{entry:#}");
        Ok(entry["transport"].clone())
    };
    let stdio = get(STDIO)?;
    let config = machine.workspace.join("ctx.toml");
    let arguments = serde_json::json!(["--config", config, "serve", "mcp", "--stdio"]);
    ensure!(
        stdio["command"] == machine.program.display().to_string() && stdio["args"] == arguments,
        "it would start:\n{stdio:#}"
    );
    let http = get(HTTP)?;
    ensure!(http["url"] == format!("http://{address}/mcp"), "it would call:\n{http:#}");
    Ok(())
}

/// Gemini CLI connects to every server, in folders that the user trusts.
fn gemini(machine: &ClientMachine, address: &str) -> Result<()> {
    machine.connect("gemini", None)?;
    let trusted = serde_json::json!({ &*machine.workspace.to_string_lossy(): "TRUST_FOLDER" });
    fs::write(machine.home.join(".gemini/trustedFolders.json"), trusted.to_string())?;
    // Without a terminal, it prints its list to stderr.
    let (_, list_output) = machine.run_client(GEMINI, &["mcp", "list"])?;
    expect_connected(&list_output, &machine.program.display().to_string(), "Connected")?;
    expect_connected(&list_output, address, "Connected")
}

/// MCP Inspector lists and calls tools. It reads the settings of Cursor for stdio, and generic settings for
/// HTTP, because these name the transport in its format.
fn inspector(machine: &ClientMachine, _: &str) -> Result<()> {
    machine.connect("cursor", None)?;
    machine.connect("generic", Some("generic.json"))?;
    for (file, server) in [(".cursor/mcp.json", STDIO), ("generic.json", STDIO), ("generic.json", HTTP)] {
        let file = machine.home.join(file).display().to_string();
        let call_method = |arguments: &[&str]| -> Result<Value> {
            let target = ["--cli", "--config", &file, "--server", server, "--method"];
            let stdout = machine.client(INSPECTOR, &[&target, arguments].concat())?;
            serde_json::from_str(&stdout).with_context(|| format!("{server} of {file}: no JSON: {stdout}"))
        };
        let list_output = call_method(&["tools/list"])?;
        let names: Vec<&str> = list_output["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        ensure!(names.contains(&"search") && names.contains(&"execute"), "{server}: {list_output:#}");
        let question = "query=how do I roll back a release?";
        let search_result = call_method(&["tools/call", "--tool-name", "search", "--tool-arg", question])?;
        let best = &search_result["structuredContent"]["results"][0]["source_id"];
        ensure!(
            best.as_str().is_some_and(|id| id.ends_with("roll-back-a-release.md")),
            "{server}: {search_result:#}"
        );
        let script = "script=return sdk.tools.echo({ message = \"hi\" }).message";
        let execute_result = call_method(&["tools/call", "--tool-name", "execute", "--tool-arg", script])?;
        ensure!(execute_result["content"][0]["text"] == "hi", "{server}: {execute_result:#}");
    }
    Ok(())
}

/// Fails unless a line that contains `target` ends with `mark`.
fn expect_connected(list_output: &str, target: &str, mark: &str) -> Result<()> {
    let is_connected = |line: &str| line.contains(target) && line.trim_end().ends_with(mark);
    ensure!(list_output.lines().any(is_connected), "{target} is not connected; it lists:\n{list_output}");
    Ok(())
}

/// The stdout and stderr of a command that must succeed.
fn output(command: &mut Command) -> Result<(String, String)> {
    let finished = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&finished.stdout), text(&finished.stderr));
    if !finished.status.success() {
        bail!("{command:?} failed ({}):\n{stdout}{stderr}", finished.status);
    }
    Ok((stdout, stderr))
}
