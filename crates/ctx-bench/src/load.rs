//! Memory and latency of a server under a mixed load of many clients: `cargo xtask bench load [MINUTES]`.
//!
//! Two thirds of the requests are searches, the rest calls of a Lua tool and scripts that call it.

use super::compare::{ECHO, FIVE_CALLS, TOOLS};
use super::search::{FILES, request_bodies, sync_workspace};
use super::{corpus, median, percentile, process};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use xtask::{HttpConnection, ServerProcess};

/// Minutes of the mixed load unless the command line says otherwise.
pub(super) const MINUTES: u64 = 3;
const CLIENTS: usize = 100;
/// Clients of the burst after the mixed load.
const BURST_CLIENTS: usize = 500;
const BURST: Duration = Duration::from_secs(30);
/// Within this time after a load, memory must be back.
const REST: Duration = Duration::from_secs(60);
const QUERIES: usize = 500;

/// A request: path, body, and whether it is a search.
struct Request {
    path: &'static str,
    body: String,
    is_search: bool,
}

pub(super) fn measure(binary: &Path, minutes: u64) -> Result<()> {
    let workspace = sync_workspace(binary, corpus::workspace(FILES)?, TOOLS)?;
    fs::write(workspace.join("echo.lua"), ECHO)?;
    let requests = requests();
    let mut server = ServerProcess::of(binary, &workspace)?;
    let memory = || process::memory_mib(server.id(), "VmRSS");
    println!("| | clients | requests a second | search p50 ms | search p99 ms | MiB | threads |");
    println!("|---|---|---|---|---|---|---|");
    println!("| started | | | | | {:.0} | {} |", memory(), process::threads(server.id()));
    for minute in 1..=minutes {
        print_load(&server, &requests, &format!("minute {minute}"), CLIENTS, Duration::from_secs(60))?;
    }
    rest(&server);
    print_load(&server, &requests, "burst", BURST_CLIENTS, BURST)?;
    rest(&server);
    server.stop()
}

fn print_load(
    server: &ServerProcess,
    requests: &[Request],
    label: &str,
    clients: usize,
    time: Duration,
) -> Result<()> {
    let (sent, mut searches) = run_clients(server, requests, clients, time)?;
    println!(
        "| {label} | {clients} | {:.0} | {:.1} | {:.1} | {:.0} | {} |",
        sent as f64 / time.as_secs_f64(),
        median(searches.clone()),
        percentile(&mut searches, 0.99),
        process::memory_mib(server.id(), "VmRSS"),
        process::threads(server.id()),
    );
    Ok(())
}

fn rest(server: &ServerProcess) {
    std::thread::sleep(REST);
    let memory = process::memory_mib(server.id(), "VmRSS");
    println!("| {} s later | | | | | {memory:.0} | {} |", REST.as_secs(), process::threads(server.id()));
}

/// Sends requests from many connections at once; returns their number and the latencies of the searches in milliseconds.
fn run_clients(
    server: &ServerProcess,
    requests: &[Request],
    clients: usize,
    time: Duration,
) -> Result<(usize, Vec<f64>)> {
    let deadline = Instant::now() + time;
    let (sent, searches) = (Mutex::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| -> Result<()> {
        let run_client = |client: usize| -> Result<()> {
            let mut connection = HttpConnection::open(&server.address)?;
            let mut own = Vec::new();
            let mut count = 0;
            for request in requests.iter().cycle().skip(client * 7) {
                if Instant::now() >= deadline {
                    break;
                }
                let started = Instant::now();
                let (status, answer) = connection.post(request.path, &request.body)?;
                ensure!(status == 200, "{}: {status} {answer}", request.path);
                count += 1;
                if request.is_search {
                    own.push(started.elapsed().as_secs_f64() * 1e3);
                }
            }
            searches.lock().unwrap_or_else(|error| error.into_inner()).extend(own);
            *sent.lock().unwrap_or_else(|error| error.into_inner()) += count;
            Ok(())
        };
        let threads: Vec<_> = (0..clients).map(|client| scope.spawn(move || run_client(client))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().ok().context("a client failed")?)
    })?;
    let searches = searches.into_inner().unwrap_or_else(|error| error.into_inner());
    Ok((sent.into_inner().unwrap_or_else(|error| error.into_inner()), searches))
}

fn requests() -> Vec<Request> {
    let hybrid = request_bodies("hybrid", QUERIES).into_iter();
    let keyword = request_bodies("keyword", QUERIES);
    let search = |body: String| Request { path: "/tools/search", body, is_search: true };
    let call = |path: &'static str, body: serde_json::Value| Request {
        path,
        body: body.to_string(),
        is_search: false,
    };
    hybrid
        .zip(keyword)
        .enumerate()
        .flat_map(|(number, (hybrid, keyword))| {
            let other = match number % 2 {
                0 => call("/tools/echo", json!({ "message": "hello" })),
                _ => call("/tools/execute", json!({ "script": FIVE_CALLS })),
            };
            [search(hybrid), search(keyword), other]
        })
        .collect()
}
