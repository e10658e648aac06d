//! Benchmarks of MCP: the overhead of a call compared with plain HTTP, load by many clients, and startup over stdio.

use super::process;
use super::{median, percentile};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xtask::{HttpConnection, ServerProcess, with_test_env};

const CONFIG: &str = "[server]\nbind = \"127.0.0.1:0\"\n[connectors.filesystem.notes]\nroot = \"notes\"\n";
const WARM_UP_CALLS: usize = 500;
const CALLS: usize = 4_000;
/// Number of rounds. Each round measures every protocol, so that other load on the machine affects all of them alike.
const ROUNDS: usize = 5;
const CLIENTS: usize = 200;
const LOAD_TIME: Duration = Duration::from_secs(60);
const STARTS: usize = 21;
const STATELESS_VERSION: &str = "2026-07-28";
const SESSION_VERSION: &str = "2025-11-25";

/// Measures the release binary.
pub(super) fn measure(binary: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("ctx.toml"), CONFIG)?;
    fs::create_dir(folder.path().join("notes"))?;
    fs::write(folder.path().join("notes/a.md"), "# A note\n\nabout nothing.\n")?;
    let config = folder.path().join("ctx.toml");
    xtask::succeed(with_test_env(&mut Command::new(binary)).arg("-q").arg("-c").arg(&config).arg("sync"))?;
    let mut server = ServerProcess::of(binary, folder.path())?;
    measure_overhead(&server)?;
    measure_load(&server)?;
    server.stop()?;
    measure_startup(binary, &config)
}

/// A client that calls the tool `sources` over one of the protocols.
pub(super) trait BenchClient {
    fn call(&mut self) -> Result<()>;
}

struct RestClient(HttpConnection);

impl BenchClient for RestClient {
    fn call(&mut self) -> Result<()> {
        let (status, body) = self.0.post("/tools/sources", "{}")?;
        ensure!(status == 200 && body.contains("filesystem:"), "sources: {status} {body}");
        Ok(())
    }
}

/// An MCP client of revision 2026-07-28, which is stateless: every request repeats protocol version and capabilities.
struct StatelessClient(HttpConnection);

impl StatelessClient {
    const HEADERS: &str = "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: sources\r\n";
}

impl BenchClient for StatelessClient {
    fn call(&mut self) -> Result<()> {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS_VERSION,
            "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "0" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": "sources", "arguments": {}, "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let (status, body) = self.0.post_with("/mcp", Self::HEADERS, &body.to_string())?;
        ensure!(status == 200 && body.contains("filesystem:"), "tools/call: {status} {body}");
        Ok(())
    }
}

/// An MCP client of revision 2025-11-25, with a session.
struct SessionClient {
    connection: HttpConnection,
    headers: String,
}

impl SessionClient {
    fn open(address: &str) -> Result<Self> {
        let mut connection = HttpConnection::open(address)?;
        let accept = "accept: application/json, text/event-stream\r\n";
        let body =
            json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize_params() });
        connection.post_with("/mcp", accept, &body.to_string())?;
        let session = connection.header("mcp-session-id").context("no session")?.to_owned();
        let headers =
            format!("{accept}mcp-session-id: {session}\r\nmcp-protocol-version: {SESSION_VERSION}\r\n");
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        connection.post_with("/mcp", &headers, initialized)?;
        Ok(Self { connection, headers })
    }
}

impl BenchClient for SessionClient {
    fn call(&mut self) -> Result<()> {
        let body =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sources","arguments":{}}}"#;
        let (status, body) = self.connection.post_with("/mcp", &self.headers, body)?;
        ensure!(status == 200 && body.contains("filesystem:"), "tools/call: {status} {body}");
        Ok(())
    }
}

fn initialize_params() -> Value {
    let client_info = json!({ "name": "bench", "version": "0" });
    json!({ "protocolVersion": SESSION_VERSION, "capabilities": {}, "clientInfo": client_info })
}

/// Connects a client. Each round opens new clients, since the server closes connections that are idle for long.
pub(super) type OpenClient = fn(&str) -> Result<Box<dyn BenchClient>>;

pub(super) const PROTOCOLS: [(&str, OpenClient); 3] = [
    ("`POST /tools/sources`", |address| Ok(Box::new(RestClient(HttpConnection::open(address)?)))),
    ("`tools/call`, 2026-07-28", |address| Ok(Box::new(StatelessClient(HttpConnection::open(address)?)))),
    ("`tools/call`, 2025-11-25", |address| Ok(Box::new(SessionClient::open(address)?))),
];

fn measure_overhead(server: &ServerProcess) -> Result<()> {
    // For each protocol: CPU time per call (one figure per round), and the latency of every call, both in ms.
    let mut figures: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); PROTOCOLS.len()];
    for _ in 0..ROUNDS {
        for ((_, open), (cpu, latencies)) in PROTOCOLS.iter().zip(&mut figures) {
            let mut client = open(&server.address)?;
            (0..WARM_UP_CALLS).try_for_each(|_| client.call())?;
            let cpu_before = process::cpu_of(server.id());
            for _ in 0..CALLS {
                let started = Instant::now();
                client.call()?;
                latencies.push(started.elapsed().as_secs_f64() * 1e3);
            }
            cpu.push((process::cpu_of(server.id()) - cpu_before) * 1e3 / CALLS as f64);
        }
    }
    println!("\n| protocol | CPU ms | CPU ms above plain HTTP | p50 ms | p95 ms |\n|---|---|---|---|---|");
    let plain = median(figures.first().map(|(cpu, _)| cpu.clone()).unwrap_or_default());
    for ((name, _), (cpu, mut latencies)) in PROTOCOLS.iter().zip(figures) {
        let cpu = median(cpu);
        let (p50, p95) = (median(latencies.clone()), percentile(&mut latencies, 0.95));
        println!("| {name} | {cpu:.3} | {:.3} | {p50:.3} | {p95:.3} |", cpu - plain);
    }
    Ok(())
}

fn measure_load(server: &ServerProcess) -> Result<()> {
    let memory = || process::memory_mib(server.id(), "VmRSS");
    let before = memory();
    let calls = AtomicU64::new(0);
    let deadline = Instant::now() + LOAD_TIME;
    let mut halfway = 0.0;
    std::thread::scope(|scope| -> Result<()> {
        let run_client = |number: usize| -> Result<()> {
            let mut client: Box<dyn BenchClient> = match number % 2 {
                0 => Box::new(StatelessClient(HttpConnection::open(&server.address)?)),
                _ => Box::new(SessionClient::open(&server.address)?),
            };
            while Instant::now() < deadline {
                client.call()?;
                calls.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || run_client(number))).collect();
        std::thread::sleep(LOAD_TIME / 2);
        halfway = memory();
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a client failed")?)
    })?;
    let (calls, after) = (calls.into_inner(), memory());
    println!(
        "\n| clients at once | calls | calls per second | MiB before | halfway | after |\n|---|---|---|---|---|---|"
    );
    println!(
        "| {CLIENTS} for {} s, no error | {calls} | {:.0} | {before:.1} | {halfway:.1} | {after:.1} |",
        LOAD_TIME.as_secs(),
        calls as f64 / LOAD_TIME.as_secs_f64()
    );
    Ok(())
}

/// Measures the time from the start of the process to its first response, and from closing its stdin to its exit.
fn measure_startup(binary: &Path, config: &Path) -> Result<()> {
    let (mut startup_times, mut exit_times) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let started = Instant::now();
        let mut child = with_test_env(&mut Command::new(binary))
            .arg("-c")
            .arg(config)
            .args(["serve", "mcp", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        startup_times.push(first_response_ms(&mut child, started)?);
        let closed = Instant::now();
        drop(child.stdin.take());
        ensure!(child.wait()?.success(), "it did not end well");
        exit_times.push(closed.elapsed().as_secs_f64() * 1e3);
    }
    println!("\n| on pipes | p50 ms | slowest ms |\n|---|---|---|");
    for (name, mut figures) in
        [("start to first response", startup_times), ("stdin closed to exit", exit_times)]
    {
        println!("| {name} | {:.0} | {:.0} |", median(figures.clone()), percentile(&mut figures, 1.0));
    }
    Ok(())
}

/// Sends `initialize`, and returns the milliseconds from `started` to the response.
fn first_response_ms(child: &mut Child, started: Instant) -> Result<f64> {
    let stdin = child.stdin.as_mut().context("no stdin")?;
    let request = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize_params() });
    writeln!(stdin, "{request}")?;
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().context("no stdout")?).read_line(&mut line)?;
    ensure!(line.contains("protocolVersion"), "initialize: {line}");
    Ok(started.elapsed().as_secs_f64() * 1e3)
}
