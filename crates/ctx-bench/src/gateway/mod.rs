//! Benchmarks of `ctx run` in front of MCP servers: the cost of a script, the overhead of an upstream call over a
//! direct one, startup time, the size of tool lists in tokens, and the quality of function search.

mod function_search;
mod many_functions;
mod script_calls;
mod stdio_client;
mod tool_list;

use super::{median, percentile};
use anyhow::{Context, Result, ensure};
use ctx_testkit::official_server;
pub(super) use script_calls::{STUB, serve_stub};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
pub(super) use stdio_client::StdioClient;
use xtask::{HttpConnection, ServerProcess, release_binary, root, with_test_env};

const WARM_UP_CALLS: usize = 200;
/// Number of calls of each kind. Kinds alternate, so that other load on the machine affects all of them alike.
const CALLS: usize = 2_000;

/// Number of functions of each stub server, in a catalog of few and in one of many functions.
const FEW: &[usize] = &[10];
const MANY: &[usize] = &[5_000, 5_000, 1_000];

const SLOW: Duration = Duration::from_millis(100);
const SLOW_AT_ONCE: usize = 10;
const SLOW_ROUNDS: usize = 11;

const SCRIPTS_AT_ONCE: usize = 16;
const SCRIPTS: usize = 4_000;
const RATE_ROUNDS: usize = 3;

const LONG: Duration = Duration::from_secs(3);
const HANGING: usize = 4;
const STARTS: usize = 21;

const EMPTY: &str = "return 1";
const ECHO: &str = "return sdk.everything.echo{ message = 'hello' }";

/// Runs all benchmarks of the gateway.
pub(super) fn measure() -> Result<()> {
    let binary = release_binary()?;
    measure_functions(&binary)?;
    script_calls::measure(&binary)?;
    measure_calls(&binary)?;
    measure_concurrent_clients(&binary)?;
    measure_starts(&binary)?;
    tool_list::measure(&binary)?;
    many_functions::measure(&binary)?;
    function_search::measure()
}

/// Our program on stdin and stdout, in front of these upstreams.
fn gateway(binary: &Path, upstreams: &[(String, String)]) -> Result<StdioClient> {
    StdioClient::start(ctx_command(binary, upstreams).current_dir(root()))
}

fn ctx_command(binary: &Path, upstreams: &[(String, String)]) -> Command {
    let mut command = Command::new(binary);
    with_test_env(&mut command).arg("run");
    for (name, line) in upstreams {
        command.arg("--mcp").arg(format!("{name}={line}"));
    }
    command
}

fn everything_server() -> Vec<(String, String)> {
    let program = official_server("server-everything");
    vec![("everything".to_owned(), format!("node '{}' stdio", program.display()))]
}

fn stub_servers(sizes: &[usize]) -> Vec<(String, String)> {
    let stub: PathBuf = root().join("crates/ctx-bench/src/gateway/stub.mjs");
    let line = |(number, size): (usize, &usize)| {
        (format!("stub{number}"), format!("node '{}' {size}", stub.display()))
    };
    sizes.iter().enumerate().map(line).collect()
}

fn script(script: &str) -> Value {
    json!({ "script": script })
}

/// Latency of `execute` with a trivial script, with few functions and with many.
fn measure_functions(binary: &Path) -> Result<()> {
    let mut gateways = Vec::new();
    for sizes in [FEW, MANY] {
        let mut gateway = gateway(binary, &stub_servers(sizes))?;
        // A call waits until its server has connected, so after these calls all servers are ready.
        for (number, size) in sizes.iter().enumerate() {
            gateway.call("execute", &script(&format!("return sdk.stub{number}.f{}{{}}", size - 1)))?;
        }
        for _ in 0..WARM_UP_CALLS {
            gateway.call("execute", &script(EMPTY))?;
        }
        gateways.push((sizes.iter().sum::<usize>(), gateway, Vec::new()));
    }
    for _ in 0..CALLS {
        for (_, gateway, times) in &mut gateways {
            times.push(gateway.time("execute", &script(EMPTY))?);
        }
    }
    println!("\n| `execute` of `return 1` on pipes | p50 ms | p95 ms |\n|---|---|---|");
    for (functions, _, mut times) in gateways {
        let (p50, p95) = (median(times.clone()), percentile(&mut times, 0.95));
        println!("| {functions} functions | {p50:.3} | {p95:.3} |");
    }
    Ok(())
}

/// Latency of a call of an official server from a script, compared with the same call made directly.
fn measure_calls(binary: &Path) -> Result<()> {
    let mut direct =
        StdioClient::start(Command::new("node").arg(official_server("server-everything")).arg("stdio"))?;
    let mut gateway = gateway(binary, &everything_server())?;
    let hello = json!({ "message": "hello" });
    for _ in 0..WARM_UP_CALLS {
        direct.call("echo", &hello)?;
        gateway.call("execute", &script(ECHO))?;
        gateway.call("execute", &script(EMPTY))?;
    }
    let (mut direct_times, mut script_times, mut empty_times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CALLS {
        direct_times.push(direct.time("echo", &hello)?);
        script_times.push(gateway.time("execute", &script(ECHO))?);
        empty_times.push(gateway.time("execute", &script(EMPTY))?);
    }
    println!("\n| one call of `echo` | p50 ms | p95 ms |\n|---|---|---|");
    let rows = [
        ("directly", &direct_times),
        ("from a script", &script_times),
        ("a script without it", &empty_times),
    ];
    for (label, times) in rows {
        println!("| {label} | {:.3} | {:.3} |", median(times.clone()), percentile(&mut times.clone(), 0.95));
    }
    let overhead = median(script_times) - median(empty_times) - median(direct_times);
    println!("\nFrom a script it takes {overhead:.3} ms more than directly, less the script itself.");

    let slow = format!(
        "sdk.everything.trigger_long_running_operation{{ duration = {}, steps = 1 }}",
        SLOW.as_secs_f64()
    );
    let one = script(&format!("return {slow}"));
    let ten = script(&format!(
        "local all = {{}} for i = 1, {SLOW_AT_ONCE} do all[i] = function() return {slow} end end return #parallel(all)"
    ));
    let (mut one_times, mut ten_times) = (Vec::new(), Vec::new());
    for _ in 0..SLOW_ROUNDS {
        one_times.push(gateway.time("execute", &one)?);
        ten_times.push(gateway.time("execute", &ten)?);
    }
    let (one, ten) = (median(one_times), median(ten_times));
    println!(
        "\n| a call of {} ms | {SLOW_AT_ONCE} in `parallel` | ratio |\n|---|---|---|\n| {one:.1} ms | {ten:.1} ms | {:.2} |",
        SLOW.as_millis(),
        ten / one
    );

    let (mut scripts, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..RATE_ROUNDS {
        plain.push(direct.rate("echo", &hello, SCRIPTS_AT_ONCE, SCRIPTS)?);
        scripts.push(gateway.rate("execute", &script(ECHO), SCRIPTS_AT_ONCE, SCRIPTS)?);
    }
    println!("\n| {SCRIPTS_AT_ONCE} at once | a second |\n|---|---|");
    println!("| scripts with one call of `echo` | {:.0} |", median(scripts));
    println!("| `echo` directly | {:.0} |", median(plain));
    Ok(())
}

/// Latency of short calls to a server that is busy with long calls of two other clients.
fn measure_concurrent_clients(binary: &Path) -> Result<()> {
    let mut command = ctx_command(binary, &everything_server());
    command.arg("--http=127.0.0.1:0").current_dir(root());
    let mut server = ServerProcess::spawn(&mut command, drop)?;
    let call = |text: &str| -> Result<f64> {
        let mut connection = HttpConnection::open(&server.address)?;
        let started = Instant::now();
        let (status, body) = connection.post("/tools/execute", &script(text).to_string())?;
        ensure!(status == 200, "execute: {status} {body}");
        Ok(started.elapsed().as_secs_f64() * 1e3)
    };
    let idle = median((0..WARM_UP_CALLS).map(|_| call(ECHO)).collect::<Result<Vec<_>>>()?);
    let long = format!(
        "return sdk.everything.trigger_long_running_operation{{ duration = {}, steps = 1 }}",
        LONG.as_secs()
    );
    let started = Instant::now();
    let mut concurrent = Vec::new();
    let both = std::thread::scope(|scope| -> Result<f64> {
        let two = [scope.spawn(|| call(&long)), scope.spawn(|| call(&long))];
        std::thread::sleep(LONG / 10);
        while started.elapsed() < LONG * 9 / 10 {
            concurrent.push(call(ECHO)?);
        }
        two.into_iter().try_for_each(|one| one.join().ok().context("a client failed")?.map(drop))?;
        Ok(started.elapsed().as_secs_f64())
    })?;
    println!(
        "\n| two calls of {} s from two clients | a fast one meanwhile, p50 ms | slowest | otherwise |\n|---|---|---|---|",
        LONG.as_secs()
    );
    let slowest = percentile(&mut concurrent, 1.0);
    println!("| {both:.2} s | {:.2} | {slowest:.2} | {idle:.2} |", median(concurrent));
    server.stop()
}

/// Time to the first response while all upstreams hang.
fn measure_starts(binary: &Path) -> Result<()> {
    let hanging: Vec<_> = (0..HANGING).map(|n| (format!("hanging{n}"), "sleep 600".to_owned())).collect();
    let mut times = Vec::new();
    for _ in 0..STARTS {
        times.push(gateway(binary, &hanging)?.ready_ms);
    }
    println!("\n| start to the answer of `initialize`, {HANGING} upstreams that hang | slowest |\n|---|---|");
    println!("| {:.0} ms | {:.0} ms |", median(times.clone()), percentile(&mut times, 1.0));
    Ok(())
}
