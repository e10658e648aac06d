//! The cost of many functions: the first question about them after a start and after a script changed, the start itself,
//! and memory.

use super::super::{corpus, openapi, process};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use xtask::{HttpConnection, ServerProcess, root};

/// Number of servers of the largest catalog, and of functions of each: the most that a server may have.
const SERVERS: usize = 10;
const FUNCTIONS: usize = 5_000;
/// Number of servers whose second start is compared with the first.
const STARTED_SERVERS: usize = 2;

const STARTS: usize = 3;
const SCRIPT_CHANGES: usize = 5;
/// A server is idle once it has used no CPU time for this long.
const IDLE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(1);
const WAIT_MAX: Duration = Duration::from_secs(300);

const QUESTION: &str = r#"{"query":"send a mail message to a user"}"#;

pub(super) fn measure(binary: &Path) -> Result<()> {
    measure_questions(binary)?;
    println!(
        "\n| functions of MCP servers | start | all can be called ms | CPU s then | CPU s when idle | memory MiB |"
    );
    println!("|---|---|---|---|---|---|");
    measure_servers(binary, STARTED_SERVERS)?;
    measure_servers(binary, SERVERS)
}

/// The first `search_docs` over Microsoft Graph: when its functions have just become known, later, and after a script
/// has changed.
fn measure_questions(binary: &Path) -> Result<()> {
    let description = openapi::graph()?;
    let sections = format!(
        "[server]\nbind = \"127.0.0.1:0\"\n[apis.graph]\nspec = {description:?}\n[tools.script.probe]\npath = \"probe.lua\"\n"
    );
    let workspace = fresh_workspace("many-functions-graph", &sections)?;
    let script = workspace.join("probe.lua");
    println!(
        "\n| `search_docs` over Microsoft Graph, ms | first, at once | first, when idle | again | after a script changed |"
    );
    println!("|---|---|---|---|---|");
    for start in 0..STARTS {
        write_script(&script, "first")?;
        let mut server = start_server(binary, &workspace)?;
        let at_once = ask(&server)?;
        server.stop()?;
        let mut server = start_server(binary, &workspace)?;
        wait_until_idle(&server)?;
        let (idle, again) = (ask(&server)?, ask(&server)?);
        let mut changed = Vec::new();
        for change in 0..SCRIPT_CHANGES {
            let description = format!("change{change} of start{start}");
            write_script(&script, &description)?;
            // The question that finds the changed script is the first over the new catalog; others find the old one.
            changed.push(wait_until(|| {
                let (answer, milliseconds) =
                    post(&server, "/tools/search_docs", &json!({ "query": description }))?;
                Ok(answer.contains(&description).then_some(milliseconds))
            })?);
        }
        println!(
            "| start {} | {at_once:.1} | {idle:.1} | {again:.1} | {:.1} |",
            start + 1,
            super::median(changed)
        );
        server.stop()?;
    }
    Ok(())
}

/// Starts with many functions of MCP servers, for the first time and again.
fn measure_servers(binary: &Path, servers: usize) -> Result<()> {
    let stub = root().join("crates/ctx-bench/src/gateway/realistic_stub.mjs");
    let section = |number: usize| {
        format!("[mcp_servers.stub{number}]\ncommand = \"node\"\nargs = [{stub:?}, \"{FUNCTIONS}\"]\n")
    };
    let sections: String = (0..servers).map(section).collect();
    let workspace = fresh_workspace(
        &format!("many-functions-{servers}"),
        &format!("[server]\nbind = \"127.0.0.1:0\"\n{sections}"),
    )?;
    for start in ["first", "second"] {
        let started = Instant::now();
        let mut server = start_server(binary, &workspace)?;
        for number in 0..servers {
            let call = format!("return sdk.stub{number}.f{}{{ id = '1', title = 'x' }}", FUNCTIONS - 1);
            // A call waits until the tools of its server are known, though not for ever.
            wait_until(|| Ok(post(&server, "/tools/execute", &json!({ "script": call })).ok()))?;
        }
        let (known, cpu) = (started.elapsed().as_secs_f64() * 1e3, process::cpu_of(server.id()));
        wait_until_idle(&server)?;
        ask(&server)?;
        let (functions, memory) = (servers * FUNCTIONS, process::memory_mib(server.id(), "VmRSS"));
        let idle_cpu = process::cpu_of(server.id());
        println!("| {functions} | {start} | {known:.0} | {cpu:.2} | {idle_cpu:.2} | {memory:.0} |");
        server.stop()?;
    }
    Ok(())
}

/// An empty workspace without anything from an earlier run.
fn fresh_workspace(name: &str, config: &str) -> Result<PathBuf> {
    let workspace = corpus::folder(name);
    if workspace.exists() {
        fs::remove_dir_all(&workspace)?;
    }
    fs::create_dir_all(&workspace)?;
    let store = "[db]\npath = \".ctx/data/ctx.sqlite\"\n";
    fs::write(workspace.join("ctx.toml"), format!("{store}{config}"))?;
    Ok(workspace)
}

fn write_script(path: &Path, description: &str) -> Result<()> {
    let script = format!(
        "tool = {{ name = 'probe', description = '{description}' }}\nfunction tool.execute() return 1 end\n"
    );
    Ok(fs::write(path, script)?)
}

fn start_server(binary: &Path, workspace: &Path) -> Result<ServerProcess> {
    ServerProcess::of(binary, workspace)
}

/// The time of a `search_docs`.
fn ask(server: &ServerProcess) -> Result<f64> {
    Ok(post(server, "/tools/search_docs", &serde_json::from_str(QUESTION)?)?.1)
}

/// The answer and its time in milliseconds.
fn post(server: &ServerProcess, path: &str, body: &Value) -> Result<(String, f64)> {
    let mut connection = HttpConnection::open(&server.address)?;
    let started = Instant::now();
    let (status, answer) = connection.post(path, &body.to_string())?;
    if status != 200 {
        bail!("{path}: {status} {answer}");
    }
    Ok((answer, started.elapsed().as_secs_f64() * 1e3))
}

fn wait_until<T>(condition: impl Fn() -> Result<Option<T>>) -> Result<T> {
    let started = Instant::now();
    while started.elapsed() < WAIT_MAX {
        if let Some(found) = condition()? {
            return Ok(found);
        }
        sleep(POLL);
    }
    None.context("a server does not get where it should")
}

fn wait_until_idle(server: &ServerProcess) -> Result<()> {
    wait_until(|| {
        let before = process::cpu_of(server.id());
        sleep(IDLE);
        Ok((process::cpu_of(server.id()) <= before).then_some(()))
    })
}
