//! Latency of `POST /tools/search` in each search mode, one request at a time.

use super::{corpus, median, percentile, process};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use xtask::{HttpConnection, ServerProcess, with_test_env};

/// Number of files that have about 50,000 chunks of the default size.
pub(super) const FILES: usize = 2_150;
/// Numbers of files that have 102,189 and 137,070 chunks, and the modes measured with them.
const LARGER: &[(usize, &[&str])] = &[(4_370, &["hybrid"]), (5_850, &["keyword"])];
/// Number of files that have about 50,000 chunks of a quarter of the default size. With chunks of the default size, the
/// model `best` needs half an hour.
const FILES_OF_SMALL_CHUNKS: usize = 540;
const SMALL_CHUNKS: &str = "[chunking]\nmax_tokens = 64\noverlap_tokens = 0\n";
/// Number of files that have about 1,000,000 chunks.
const FILES_OF_A_MILLION: usize = 43_000;
const REQUESTS: usize = 1_000;
const REQUESTS_OF_A_MILLION: usize = 100;
const ROUNDS: usize = 3;

/// CPU time and latency of search requests.
struct SearchFigures {
    cpu_ms: f64,
    p50_ms: f64,
    p95_ms: f64,
}

pub(super) fn measure(binary: &Path) -> Result<()> {
    println!("| chunks | vectors | mode | CPU ms a request | p50 ms | p95 ms | memory MiB |");
    println!("|---|---|---|---|---|---|---|");
    let default_chunks =
        sync_workspace(binary, corpus::workspace(FILES)?, "[embedding]\nmodel = \"fast\"\n")?;
    print_rows(binary, &default_chunks, "fast", &["keyword", "semantic", "hybrid"], REQUESTS)?;
    for (files, modes) in LARGER {
        let workspace =
            sync_workspace(binary, corpus::workspace(*files)?, "[embedding]\nmodel = \"fast\"\n")?;
        print_rows(binary, &workspace, "fast", modes, REQUESTS)?;
    }
    let config = format!("{SMALL_CHUNKS}[embedding]\nmodel = \"best\"\nfill = \"wait\"\n");
    let small_chunks = sync_workspace(binary, corpus::workspace(FILES_OF_SMALL_CHUNKS)?, &config)?;
    print_rows(binary, &small_chunks, "best", &["semantic", "hybrid"], REQUESTS)?;
    println!("\nQuestions of two to six words, concurrency 1; medians of {ROUNDS} rounds of {REQUESTS}.");
    Ok(())
}

/// Search latency at twenty times the size: a million chunks.
pub(super) fn measure_million(binary: &Path) -> Result<()> {
    println!("| chunks | vectors | mode | CPU ms a request | p50 ms | p95 ms | memory MiB |");
    println!("|---|---|---|---|---|---|---|");
    let workspace =
        sync_workspace(binary, corpus::workspace(FILES_OF_A_MILLION)?, "[embedding]\nmodel = \"fast\"\n")?;
    print_rows(binary, &workspace, "fast", &["semantic", "hybrid"], REQUESTS_OF_A_MILLION)?;
    println!("\nConcurrency 1; medians of {ROUNDS} rounds of {REQUESTS_OF_A_MILLION}.");
    Ok(())
}

/// Search latency while another process syncs changes into the same store.
pub(super) fn measure_during_sync(binary: &Path) -> Result<()> {
    let workspace =
        sync_workspace(binary, corpus::workspace_to_change(FILES)?, "[embedding]\nmodel = \"fast\"\n")?;
    println!("| mode | p50 ms idle | p50 ms during a sync | requests during it |");
    println!("|---|---|---|---|");
    for mode in ["keyword", "hybrid"] {
        let mut server = ServerProcess::of(binary, &workspace)?;
        let mut connection = HttpConnection::open(&server.address)?;
        let bodies = request_bodies(mode, REQUESTS);
        run_round(&mut connection, &bodies, || true)?;
        let mut idle = run_round(&mut connection, &bodies, || true)?;

        corpus::append_sentences(&workspace)?;
        let mut sync = with_test_env(&mut Command::new(binary))
            .args(["sync", "-q"])
            .current_dir(&workspace)
            .stdout(Stdio::null())
            .spawn()?;
        let mut ended = None;
        let mut during = Vec::new();
        while ended.is_none() {
            during.extend(run_round(&mut connection, &bodies, || {
                ended = sync.try_wait().ok().flatten();
                ended.is_none()
            })?);
        }
        ensure!(ended.is_some_and(|status| status.success()), "the sync failed");
        println!(
            "| {mode} | {:.2} | {:.2} | {} |",
            percentile(&mut idle, 0.5),
            percentile(&mut during, 0.5),
            during.len()
        );
        drop(connection);
        server.stop()?;
    }
    println!("\nConcurrency 1, {FILES} files; each of them has changed when it is synced again.");
    Ok(())
}

pub(super) fn sync_workspace(binary: &Path, workspace: PathBuf, config: &str) -> Result<PathBuf> {
    corpus::configure(&workspace, config)?;
    process::cost(Command::new(binary).arg("sync").current_dir(&workspace))?;
    Ok(workspace)
}

fn print_rows(binary: &Path, workspace: &Path, model: &str, modes: &[&str], requests: usize) -> Result<()> {
    let stats =
        with_test_env(&mut Command::new(binary)).args(["stats", "--json"]).current_dir(workspace).output()?;
    let stats: Value = serde_json::from_slice(&stats.stdout).context("no statistics")?;
    for mode in modes {
        let mut server = ServerProcess::of(binary, workspace)?;
        let figures = measure_search(&server, mode, requests)?;
        println!(
            "| {} | `{model}` | {mode} | {:.2} | {:.2} | {:.2} | {:.0} |",
            stats["chunks"],
            figures.cpu_ms,
            figures.p50_ms,
            figures.p95_ms,
            process::memory_mib(server.id(), "VmRSS")
        );
        server.stop()?;
    }
    Ok(())
}

fn measure_search(server: &ServerProcess, mode: &str, requests: usize) -> Result<SearchFigures> {
    let mut connection = HttpConnection::open(&server.address)?;
    let bodies = request_bodies(mode, requests);
    let (mut cpu, mut p50, mut p95) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms the page cache and is not counted.
    run_round(&mut connection, &bodies, || true)?;
    for _ in 0..ROUNDS {
        let cpu_before = process::cpu_of(server.id());
        let mut times = run_round(&mut connection, &bodies, || true)?;
        cpu.push((process::cpu_of(server.id()) - cpu_before) * 1_000.0 / requests as f64);
        p50.push(percentile(&mut times, 0.5));
        p95.push(percentile(&mut times, 0.95));
    }
    Ok(SearchFigures { cpu_ms: median(cpu), p50_ms: median(p50), p95_ms: median(p95) })
}

/// Sends the requests while `keep_going` returns true; returns the latencies in milliseconds.
fn run_round(
    connection: &mut HttpConnection,
    bodies: &[String],
    mut keep_going: impl FnMut() -> bool,
) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(bodies.len());
    for body in bodies {
        if !keep_going() {
            break;
        }
        let started = Instant::now();
        let (status, answer) = connection.post("/tools/search", body)?;
        times.push(started.elapsed().as_secs_f64() * 1_000.0);
        ensure!(status == 200 && answer.starts_with("{\"results\":["), "{status} {answer}");
    }
    Ok(times)
}

pub(super) fn request_bodies(mode: &str, count: usize) -> Vec<String> {
    let body = |question: &String| serde_json::json!({ "query": question, "mode": mode }).to_string();
    corpus::queries(count).iter().map(body).collect()
}
