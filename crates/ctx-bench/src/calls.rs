//! Latency and throughput of calls: a Lua tool over HTTP, and `execute` with few and with many functions.

use super::compare::ECHO;
use super::engine::{WORKER, engine};
use super::process;
use super::{median, percentile};
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use ctx_core::{Call, Caller, Catalog, Identifier, Limits, Output, Provider, Tool, ToolError, ToolSpec};
use ctx_gateway::Gateway;
use ctx_luau::{ScriptLimits, Scripts};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use xtask::{HttpConnection, ServerProcess};

const WARM_WORKERS: usize = 4;
const WARM_UP_CALLS: usize = 200;
const CALLS: usize = 5_000;
const CALLS_AT_ONCE: usize = 20_000;
const AT_ONCE: usize = 32;

const FEW: usize = 10;
const MANY: usize = 10_000;
const EXECUTIONS: usize = 2_000;
const ROUND_TRIPS: u32 = 1_000;
const ROUNDS: usize = 20;

const CONFIG: &str = "[server]\nbind = \"127.0.0.1:0\"\n[tools.script.echo]\npath = \"echo.lua\"\n";
const BODY: &str = r#"{"message":"hello"}"#;

/// Measures the program as a server, then the gateway in this process, where a catalog can have any number of
/// functions.
pub(super) fn measure(binary: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("ctx.toml"), CONFIG)?;
    fs::write(folder.path().join("echo.lua"), ECHO)?;
    let mut server = ServerProcess::of(binary, folder.path())?;
    measure_memory(&server)?;
    measure_sequential(&server)?;
    measure_concurrent(&server)?;
    server.stop()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(runtime.spawn(measure_functions()))?
}

fn call(connection: &mut HttpConnection) -> Result<()> {
    let (status, body) = connection.post("/tools/echo", BODY)?;
    ensure!(status == 200, "echo: {status} {body}");
    Ok(())
}

/// Sends `calls` calls on each of `connections` concurrent connections.
fn load(server: &ServerProcess, connections: usize, calls: usize) -> Result<()> {
    std::thread::scope(|scope| {
        let client = || -> Result<()> {
            let mut connection = HttpConnection::open(&server.address)?;
            (0..calls).try_for_each(|_| call(&mut connection))
        };
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(client)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a client failed")?)
    })
}

fn measure_memory(server: &ServerProcess) -> Result<()> {
    load(server, WARM_WORKERS, WARM_UP_CALLS)?;
    let workers = process::children(server.id())?;
    let resident = |name| median(workers.iter().map(|id| process::memory_mib(*id, name)).collect());
    println!("\n| server MiB | warm workers | MiB each, resident | own |");
    println!("|---|---|---|---|");
    println!(
        "| {:.1} | {} | {:.1} | {:.1} |",
        process::memory_mib(server.id(), "VmRSS"),
        workers.len(),
        resident("VmRSS"),
        resident("RssAnon")
    );
    Ok(())
}

fn measure_sequential(server: &ServerProcess) -> Result<()> {
    let mut connection = HttpConnection::open(&server.address)?;
    (0..WARM_UP_CALLS).try_for_each(|_| call(&mut connection))?;
    let cpu = process::cpu_of_tree(server.id())?;
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let started = Instant::now();
        call(&mut connection)?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let cpu = (process::cpu_of_tree(server.id())? - cpu) * 1e3 / CALLS as f64;
    println!("\n| `POST /tools/echo`: CPU ms, all processes | p50 ms | p95 ms |");
    println!("|---|---|---|");
    println!("| {cpu:.3} | {:.3} | {:.3} |", median(times.clone()), percentile(&mut times, 0.95));
    Ok(())
}

fn measure_concurrent(server: &ServerProcess) -> Result<()> {
    load(server, AT_ONCE, CALLS_AT_ONCE / AT_ONCE / 10)?;
    let (cpu, own, started) = (process::cpu_of_tree(server.id())?, process::own_cpu()?, Instant::now());
    load(server, AT_ONCE, CALLS_AT_ONCE / AT_ONCE)?;
    let wall = started.elapsed().as_secs_f64();
    let per_call = |seconds: f64| seconds * 1e3 / CALLS_AT_ONCE as f64;
    println!("\n| at once | calls a second | CPU ms a call, all processes | and the client's |");
    println!("|---|---|---|---|");
    println!(
        "| {AT_ONCE} | {:.0} | {:.3} | {:.3} |",
        CALLS_AT_ONCE as f64 / wall,
        per_call(process::cpu_of_tree(server.id())? - cpu),
        per_call(process::own_cpu()? - own)
    );
    Ok(())
}

/// A function that returns its arguments and does no other work.
struct EchoFunction(Arc<ToolSpec>);

#[async_trait]
impl Tool for EchoFunction {
    fn spec(&self) -> Arc<ToolSpec> {
        self.0.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, _: &Call) -> Result<Output, ToolError> {
        Ok(Value::Object(arguments).into())
    }
}

struct ManyFunctions(usize);

impl Provider for ManyFunctions {
    fn name(&self) -> Identifier {
        Identifier::sanitize("many")
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let spec = |number| ToolSpec::new(format!("f{number}"), "Does nothing.", schema.clone());
        (0..self.0).map(|number| Arc::new(EchoFunction(Arc::new(spec(number)))) as Arc<dyn Tool>).collect()
    }
}

async fn execute(catalog: &Arc<Catalog>, script: &str) -> Result<f64> {
    let call = Call::new(catalog.clone(), Caller::Library(WORKER.to_owned()));
    let started = Instant::now();
    Catalog::call("execute", json!({ "script": script }), call).await?;
    Ok(started.elapsed().as_secs_f64() * 1e6)
}

async fn measure_functions() -> Result<()> {
    let engine = engine(1)?;
    let scripts = Scripts::new(engine.clone(), ScriptLimits::default(), Arc::new(|_: &str| None));
    let gateway = Arc::new(Gateway::new(scripts, true));
    let catalog = |functions| {
        let limits = Limits { nested_calls: ROUND_TRIPS, ..Limits::default() };
        let builder = Catalog::builder().limits(limits).provider(gateway.clone());
        builder.provider(Arc::new(ManyFunctions(functions))).build()
    };
    let (few, many) = (catalog(FEW), catalog(MANY));
    let trivial = "return sdk.many.f7 ~= nil";
    let mut times = (Vec::new(), Vec::new());
    // Alternating, so that other load on the machine affects both alike.
    for _ in 0..EXECUTIONS {
        times.0.push(execute(&few, trivial).await?);
        times.1.push(execute(&many, trivial).await?);
    }
    println!("\n| `execute` with {FEW} functions, µs | with {MANY} | ratio |");
    println!("|---|---|---|");
    let (few_time, many_time) = (median(times.0), median(times.1));
    println!("| {few_time:.0} | {many_time:.0} | {:.2} |", many_time / few_time);

    let script = format!("for i = 1, {ROUND_TRIPS} do sdk.many.f7{{ a = 'b' }} end return 1");
    execute(&many, &script).await?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(execute(&many, &script).await? / f64::from(ROUND_TRIPS));
    }
    println!("\nA call of a function from a script and back: {:.0} µs.", median(times));
    engine.shutdown().await;
    Ok(())
}
