//! Cost of scripts in worker processes: of a run, a call of a host API, and the start of a worker, in the engine
//! alone and in the program.

use super::{calls, median, percentile, process};
use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use ctx_luau::{Engine, EngineSettings, HostError, HostHandler, ScriptEntry, ScriptRun};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use xtask::release_binary;

/// The hidden argument that makes this program a worker.
pub(crate) const WORKER: &str = "__worker";

const RUNS: usize = 20_000;
const AT_ONCE: usize = 32;
const HOST_CALLS: usize = 1_000;
const ROUNDS: usize = 20;
const STARTS: usize = 31;
const RUN_TIME: Duration = Duration::from_secs(60);

const DEADLINES: usize = 21;
const SHORT_TIME: Duration = Duration::from_millis(50);

const TRIVIAL: &str = "return 1";
const TOOL: &str = "tool = { name = 't', execute = function(params) return { text = params.a } end }";

struct ConstantWorld;

#[async_trait]
impl HostHandler for ConstantWorld {
    async fn handle(&self, _: &str, _: Value, _: Vec<u8>) -> Result<(Value, Vec<u8>), HostError> {
        Ok((json!("answer"), Vec::new()))
    }
}

/// Measures the engine alone, then the program.
pub(super) fn measure() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    println!("| what | wall µs, median | p99 | CPU µs, parent | CPU µs, worker |");
    println!("|---|---|---|---|---|");
    // As in a server, the work runs in a spawned task, not on the thread that blocks on the runtime.
    let measure_script = |label, entry, source: &str, runs, operations| {
        let source = source.to_owned();
        runtime.block_on(
            runtime.spawn(async move { measure_sequential(label, entry, &source, runs, operations).await }),
        )?
    };
    measure_script("an expression", ScriptEntry::Chunk, TRIVIAL, RUNS, 1)?;
    measure_script("a tool", ScriptEntry::Tool, TOOL, RUNS, 1)?;
    let host_calls = format!("for i = 1, {HOST_CALLS} do env.get('X') end return 1");
    measure_script("a question", ScriptEntry::Chunk, &host_calls, ROUNDS, HOST_CALLS)?;
    runtime.block_on(measure_concurrent())?;
    runtime.block_on(measure_starts())?;
    runtime.block_on(measure_deadlines())?;
    calls::measure(&release_binary()?)
}

pub(super) fn engine(workers_spare: usize) -> Result<Engine> {
    let program = std::env::current_exe()?;
    let mut settings = EngineSettings::new(program, vec![WORKER.into()]);
    settings.workers_spare = workers_spare;
    Ok(Engine::new(settings)?)
}

fn script(entry: ScriptEntry, source: &str) -> ScriptRun {
    ScriptRun {
        chunk_name: String::from("bench.lua"),
        source: source.as_bytes().into(),
        entry,
        arguments: vec![json!({ "a": "b" })],
        config: None,
        apis: ["context", "env", "http", "json", "log", "sdk"].map(String::from).to_vec(),
        deadline: Instant::now() + RUN_TIME,
        memory_bytes: 64 << 20,
        result_bytes: 1 << 20,
        log_bytes: 256 << 10,
        depth: 0,
    }
}

/// Runs the same script `runs` times, one at a time. Figures are per operation, of which a run has `operations`.
async fn measure_sequential(
    label: &str,
    entry: ScriptEntry,
    source: &str,
    runs: usize,
    operations: usize,
) -> Result<()> {
    let engine = engine(1)?;
    engine
        .run(&script(entry, source), &ConstantWorld)
        .await
        .map_err(anyhow::Error::from)
        .context(label.to_owned())?;
    let (own, workers) = (process::own_cpu()?, process::children_cpu()?);
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let run = script(entry, source);
        let started = Instant::now();
        engine.run(&run, &ConstantWorld).await?;
        times.push(started.elapsed().as_secs_f64() * 1e6 / operations as f64);
    }
    engine.shutdown().await;
    let per_operation = |seconds: f64| seconds * 1e6 / (runs * operations) as f64;
    let (own, workers) = (process::own_cpu()? - own, process::children_cpu()? - workers);
    println!(
        "| {label} | {:.0} | {:.0} | {:.0} | {:.0} |",
        median(times.clone()),
        percentile(&mut times, 0.99),
        per_operation(own),
        per_operation(workers)
    );
    Ok(())
}

async fn measure_concurrent() -> Result<()> {
    let engine = engine(1)?;
    let (own, workers, started) = (process::own_cpu()?, process::children_cpu()?, Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let engine = engine.clone();
        tasks.spawn(async move {
            for _ in 0..RUNS / AT_ONCE {
                engine.run(&script(ScriptEntry::Tool, TOOL), &ConstantWorld).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let wall = started.elapsed().as_secs_f64();
    let count = engine.figures().workers;
    let children = process::children(std::process::id())?;
    let resident = |name| median(children.iter().map(|id| process::memory_mib(*id, name)).collect());
    let (resident, own_memory) = (resident("VmRSS"), resident("RssAnon"));
    engine.shutdown().await;
    let (own, workers) = (process::own_cpu()? - own, process::children_cpu()? - workers);
    println!(
        "\n| at once | runs a second | CPU µs a run, all processes | workers | MiB each, resident | own |"
    );
    println!("|---|---|---|---|---|---|");
    println!(
        "| {AT_ONCE} | {:.0} | {:.0} | {count} | {resident:.1} | {own_memory:.1} |",
        RUNS as f64 / wall,
        (own + workers) * 1e6 / RUNS as f64
    );
    Ok(())
}

async fn measure_starts() -> Result<()> {
    let (mut times, workers) = (Vec::new(), process::children_cpu()?);
    for _ in 0..STARTS {
        let engine = engine(0)?;
        let started = Instant::now();
        engine.run(&script(ScriptEntry::Chunk, "return 1"), &ConstantWorld).await?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        engine.shutdown().await;
    }
    let cpu = (process::children_cpu()? - workers) * 1e3 / STARTS as f64;
    println!("\nStart of a worker to its first result: {:.1} ms, {cpu:.1} ms of CPU in it.", median(times));
    Ok(())
}

/// Delay between the deadline of an endless script and its end.
async fn measure_deadlines() -> Result<()> {
    let engine = engine(1)?;
    let mut delays = Vec::new();
    for _ in 0..DEADLINES {
        let mut run = script(ScriptEntry::Chunk, "while true do pcall(function() while true do end end) end");
        run.deadline = Instant::now() + SHORT_TIME;
        ensure!(engine.run(&run, &ConstantWorld).await.is_err(), "an endless script ended");
        delays.push(run.deadline.elapsed().as_secs_f64() * 1e3);
    }
    engine.shutdown().await;
    let most = percentile(&mut delays, 1.0);
    println!("\nAn endless script ends {:.2} ms after its deadline, {most:.2} ms at most.", median(delays));
    Ok(())
}
