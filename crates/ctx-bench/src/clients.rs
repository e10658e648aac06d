//! `POST /tools/search` by 100 clients at once: latency, and memory before and after.

use super::{corpus, percentile, process, search};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::thread;
use std::time::Instant;
use xtask::{HttpConnection, ServerProcess};

const CLIENTS: usize = 100;
const REQUESTS_PER_CLIENT: usize = 50;

pub(super) fn measure(binary: &Path) -> Result<()> {
    let config = "[embedding]\nmodel = \"fast\"\n";
    let workspace = search::sync_workspace(binary, corpus::workspace(search::FILES)?, config)?;
    println!("| mode | searches a second | p50 ms | p99 ms | memory MiB before | after | threads at most |");
    println!("|---|---|---|---|---|---|---|");
    for mode in ["keyword", "hybrid"] {
        let mut server = ServerProcess::of(binary, &workspace)?;
        let bodies = search::request_bodies(mode, CLIENTS * REQUESTS_PER_CLIENT);
        send_in_turn(&server, &bodies[..CLIENTS])?;
        let before = process::memory_mib(server.id(), "VmRSS");
        let started = Instant::now();
        let mut threads = 0;
        let mut times = thread::scope(|scope| -> Result<Vec<f64>> {
            let clients: Vec<_> = bodies
                .chunks(REQUESTS_PER_CLIENT)
                .map(|bodies| scope.spawn(|| send_in_turn(&server, bodies)))
                .collect();
            while !clients.iter().all(thread::ScopedJoinHandle::is_finished) {
                threads = threads.max(process::threads(server.id()));
                thread::sleep(std::time::Duration::from_millis(20));
            }
            let mut times = Vec::new();
            for client in clients {
                times.extend(client.join().ok().context("a client panicked")??);
            }
            Ok(times)
        })?;
        println!(
            "| {mode} | {:.0} | {:.0} | {:.0} | {before:.0} | {:.0} | {threads} |",
            times.len() as f64 / started.elapsed().as_secs_f64(),
            percentile(&mut times, 0.5),
            percentile(&mut times, 0.99),
            process::memory_mib(server.id(), "VmRSS"),
        );
        server.stop()?;
    }
    println!(
        "\n{CLIENTS} clients, {REQUESTS_PER_CLIENT} requests each, over the index of {} files.",
        search::FILES
    );
    Ok(())
}

/// Sends requests one after the other on one connection; returns the latencies in milliseconds.
fn send_in_turn(server: &ServerProcess, bodies: &[String]) -> Result<Vec<f64>> {
    let mut connection = HttpConnection::open(&server.address)?;
    let mut times = Vec::with_capacity(bodies.len());
    for body in bodies {
        let started = Instant::now();
        let (status, answer) = connection.post("/tools/search", body)?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        ensure!(status == 200, "{status} {answer}");
    }
    Ok(times)
}
