//! `POST /tools/search` over the indexed tree, one request at a time.

use super::http::Connection;
use super::{corpus, median, percentile, process};
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const FILES: usize = 7_000;
const REQUESTS: usize = 1_000;
const ROUNDS: usize = 3;

pub(super) fn measure(binary: &Path) -> Result<()> {
    let workspace = corpus::workspace(FILES)?;
    process::cost(Command::new(binary).arg("sync").current_dir(&workspace))?;
    let mut server = process::Server::of(binary, &workspace)?;
    let mut connection = Connection::open(&server.address)?;
    let bodies: Vec<String> = corpus::questions(REQUESTS)
        .iter()
        .map(|question| serde_json::json!({ "query": question }).to_string())
        .collect();

    let (mut cpu, mut p50, mut p95) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms the page cache and is not counted.
    for round in 0..=ROUNDS {
        let cpu_before = server.cpu();
        let mut times = Vec::with_capacity(REQUESTS);
        for body in &bodies {
            let started = Instant::now();
            let (status, answer) = connection.post("/tools/search", body)?;
            times.push(started.elapsed().as_secs_f64() * 1_000.0);
            ensure!(status == 200 && answer.starts_with("{\"results\":["), "{status} {answer}");
        }
        if round > 0 {
            cpu.push((server.cpu() - cpu_before) * 1_000.0 / REQUESTS as f64);
            p50.push(percentile(&mut times, 0.5));
            p95.push(percentile(&mut times, 0.95));
        }
    }
    println!("| files | CPU ms a request | p50 ms | p95 ms | memory MiB |");
    println!("|---|---|---|---|---|");
    println!(
        "| {FILES} | {:.2} | {:.2} | {:.2} | {:.0} |",
        median(cpu),
        median(p50),
        median(p95),
        process::memory_mib(server.id(), "VmRSS")
    );
    println!("\nQuestions of two to six words, concurrency 1; medians of {ROUNDS} rounds of {REQUESTS}.");
    drop(connection);
    server.stop()
}
