//! Compares two builds of the program: `cargo xtask bench compare OLD [NEW]`.
//!
//! The builds alternate, so that other load on the machine affects both alike and changes of a few per cent are
//! visible.

use super::{corpus, mcp, median, openapi, percentile, process};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use xtask::{HttpConnection, ServerProcess};

/// Number of Markdown files; together 79 MB.
const FILES: usize = 7_000;
const PDFS: usize = 300;
const PICTURE_BYTES: usize = 30_000;
const INDEX_ROUNDS: usize = 5;
const ROUNDS: usize = 9;
const REQUESTS: usize = 400;

pub(super) const ECHO: &str = "tool = { name = 'echo', description = 'Echo', \
    parameters = { { name = 'message', type = 'string', required = true } } }\n\
    function tool.execute(params) return { echo = params.message } end\n";
pub(super) const TOOLS: &str = "[embedding]\nmodel = \"fast\"\n[tools.script.echo]\npath = \"echo.lua\"\n";
const STARTS: usize = 11;
pub(super) const FIVE_CALLS: &str =
    "local bytes = 0 for i = 1, 5 do bytes += #sdk.tools.echo({ message = 'hello' }).echo end return bytes";
const ONE_UPSTREAM_CALL: &str = "return sdk.peer.echo({ message = 'hello' }).echo";
const TEN_UPSTREAM_CALLS: &str =
    "local bytes = 0 for i = 1, 10 do bytes += #sdk.peer.echo({ message = 'hello' }).echo end return bytes";

/// One of the two builds, with its own workspace, since stores of two versions may differ.
struct Build {
    binary: PathBuf,
    name: &'static str,
}

impl Build {
    fn folder(&self, label: &str) -> PathBuf {
        corpus::folder(&format!("compare-{label}-{}", self.name))
    }

    fn sync(&self, workspace: &Path) -> Result<process::Cost> {
        process::cost(Command::new(&self.binary).arg("sync").current_dir(workspace))
    }
}

/// Measures both builds and prints a table.
pub(super) fn measure(old: &Path, new: &Path) -> Result<()> {
    let find = |path: &Path| path.canonicalize().with_context(|| format!("no program at {}", path.display()));
    let builds = [Build { binary: find(old)?, name: "before" }, Build { binary: find(new)?, name: "after" }];
    println!("| | before | after | change |");
    println!("|---|---|---|---|");
    let texts = [
        corpus::workspace_in(builds[0].folder("texts"), FILES)?,
        corpus::workspace_in(builds[1].folder("texts"), FILES)?,
    ];
    let upstreams = configure_upstreams(&builds[0])?;
    for workspace in &texts {
        corpus::configure(workspace, &format!("{TOOLS}{upstreams}"))?;
        fs::write(workspace.join("echo.lua"), ECHO)?;
    }
    compare_indexing(&builds, &texts, &format!("{FILES} Markdown files"))?;
    let pdfs = [pdf_workspace(&builds[0].folder("pdfs"))?, pdf_workspace(&builds[1].folder("pdfs"))?];
    compare_indexing(&builds, &pdfs, &format!("{PDFS} PDF files"))?;
    compare_starts(&builds, &texts)?;
    compare_requests(&builds, &texts)?;
    println!(
        "\nMedians: {INDEX_ROUNDS} rounds of indexing, {ROUNDS} rounds of {REQUESTS} requests, one at a time, in turn."
    );
    Ok(())
}

/// The sections of an API and of an MCP server, the same for both builds: a local service, and a workspace that the build before serves.
fn configure_upstreams(build: &Build) -> Result<String> {
    let peer = corpus::folder("compare-upstream");
    fs::create_dir_all(&peer)?;
    fs::write(peer.join("echo.lua"), ECHO)?;
    fs::write(peer.join("ctx.toml"), TOOLS)?;
    let description = peer.join("pets.json");
    fs::write(&description, openapi::describe_service(&openapi::start_service()?).to_string())?;
    let state = xtask::target().join("state");
    Ok(format!(
        "[apis.pets]\nspec = {description:?}\nexpose = true\n[mcp_servers.peer]\ncommand = {:?}\n\
         args = [\"-c\", {:?}, \"serve\", \"mcp\", \"--stdio\"]\nexpose = true\n\
         env = {{ CTX_TRUST = \"1\", XDG_STATE_HOME = {state:?} }}\n",
        build.binary,
        peer.join("ctx.toml"),
    ))
}

fn pdf_workspace(workspace: &Path) -> Result<PathBuf> {
    let folder = workspace.join("docs");
    fs::create_dir_all(&folder)?;
    for seed in 0..PDFS {
        fs::write(folder.join(format!("{seed:03}.pdf")), ctx_testkit::pdf(seed, PICTURE_BYTES))?;
    }
    corpus::configure(workspace, "include_globs = [\"**/*.pdf\"]\n")?;
    let config = fs::read_to_string(workspace.join("ctx.toml"))?;
    let globs = "include_globs = [\"**/*.pdf\"]\n";
    let config = config.replace(globs, "").replace("root = \"docs\"\n", &format!("root = \"docs\"\n{globs}"));
    fs::write(workspace.join("ctx.toml"), config)?;
    Ok(workspace.to_owned())
}

fn compare_indexing(builds: &[Build; 2], workspaces: &[PathBuf; 2], label: &str) -> Result<()> {
    let (mut first, mut again) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..INDEX_ROUNDS {
        for (index, build) in builds.iter().enumerate() {
            corpus::reset(&workspaces[index])?;
            first[index].push(build.sync(&workspaces[index])?.cpu);
            again[index].push(build.sync(&workspaces[index])?.cpu);
        }
    }
    print_row(&format!("index {label}, CPU s"), first);
    print_row(&format!("sync {label} again, CPU s"), again);
    Ok(())
}

fn compare_starts(builds: &[Build; 2], workspaces: &[PathBuf; 2]) -> Result<()> {
    let (mut times, mut memory) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..STARTS {
        for (index, build) in builds.iter().enumerate() {
            let started = Instant::now();
            let mut server = ServerProcess::of(&build.binary, &workspaces[index])?;
            send(&server, "/tools/search", &[json!({ "query": "station verify" }).to_string()])?;
            times[index].push(started.elapsed().as_secs_f64() * 1e3);
            memory[index].push(process::memory_mib(server.id(), "VmRSS"));
            server.stop()?;
        }
    }
    print_row("start to first search, ms", times);
    print_row("memory after the first search, MiB", memory);
    Ok(())
}

/// Sends the requests of a workload to a server; returns their latencies in milliseconds.
type Workload<'a> = Box<dyn Fn(&ServerProcess) -> Result<Vec<f64>> + 'a>;

fn compare_requests(builds: &[Build; 2], workspaces: &[PathBuf; 2]) -> Result<()> {
    let mut servers = [
        ServerProcess::of(&builds[0].binary, &workspaces[0])?,
        ServerProcess::of(&builds[1].binary, &workspaces[1])?,
    ];
    let post = |path: &'static str, bodies: Vec<String>| -> Workload<'_> {
        Box::new(move |server| send(server, path, &bodies))
    };
    let search = |mode: &str| -> Vec<String> {
        let body = |query: &String| json!({ "query": query, "mode": mode }).to_string();
        corpus::queries(REQUESTS).iter().map(body).collect()
    };
    let same = |body: serde_json::Value| vec![body.to_string(); REQUESTS];
    let mut workloads: Vec<(&str, Workload<'_>)> = vec![
        ("keyword search", post("/tools/search", search("keyword"))),
        ("hybrid search", post("/tools/search", search("hybrid"))),
        ("a Lua tool", post("/tools/echo", same(json!({ "message": "hello" })))),
        ("a script that returns 1", post("/tools/execute", same(json!({ "script": "return 1" })))),
        ("a script with five calls", post("/tools/execute", same(json!({ "script": FIVE_CALLS })))),
        (
            "a script with one call of an MCP server",
            post("/tools/execute", same(json!({ "script": ONE_UPSTREAM_CALL }))),
        ),
        (
            "a script with ten calls of an MCP server",
            post("/tools/execute", same(json!({ "script": TEN_UPSTREAM_CALLS }))),
        ),
        ("sources", post("/tools/sources", same(json!({})))),
        ("a tool of an MCP server", post("/tools/peer__echo", same(json!({ "message": "hello" })))),
        ("an operation of an API", post("/tools/pets__get_pet", same(json!({ "id": 7 })))),
    ];
    for (label, open) in &mcp::PROTOCOLS {
        let calls = move |server: &ServerProcess| {
            let mut client = open(&server.address)?;
            (0..REQUESTS).map(|_| timed(|| client.call())).collect()
        };
        workloads.push((label, Box::new(calls)));
    }
    for (label, run) in &workloads {
        let (mut cpu, mut p50) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        // The first round warms up caches and workers, and is not counted.
        for round in 0..=ROUNDS {
            for (index, server) in servers.iter().enumerate() {
                let before = process::cpu_of_tree(server.id())?;
                let mut times = run(server)?;
                if round > 0 {
                    let spent = process::cpu_of_tree(server.id())? - before;
                    cpu[index].push(spent * 1e3 / times.len() as f64);
                    p50[index].push(percentile(&mut times, 0.5));
                }
            }
        }
        print_row(&format!("{label}, CPU ms, all processes"), cpu);
        print_row(&format!("{label}, p50 ms"), p50);
    }
    servers.iter_mut().try_for_each(ServerProcess::stop)
}

/// The duration of a request in milliseconds.
fn timed(request: impl FnOnce() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    request()?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Sends requests one after the other; returns the latencies in milliseconds.
fn send(server: &ServerProcess, path: &str, bodies: &[String]) -> Result<Vec<f64>> {
    let mut connection = HttpConnection::open(&server.address)?;
    let mut times = Vec::with_capacity(bodies.len());
    for body in bodies {
        times.push(timed(|| {
            let (status, answer) = connection.post(path, body)?;
            ensure!(status == 200, "{path}: {status} {answer}");
            Ok(())
        })?);
    }
    Ok(times)
}

fn print_row(label: &str, [before, after]: [Vec<f64>; 2]) {
    let (before, after) = (median(before), median(after));
    println!("| {label} | {before:.3} | {after:.3} | {:+.1} % |", (after / before - 1.0) * 100.0);
}
