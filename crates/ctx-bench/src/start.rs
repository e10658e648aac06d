//! Time from the start of `ctx serve mcp` to its first search result, and memory when idle.

use super::{corpus, median, process};
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use xtask::{HttpConnection, ServerProcess};

const FILES: usize = 7_000;
const STARTS: usize = 11;
const IDLE: Duration = Duration::from_secs(3);

pub(super) fn measure(binary: &Path) -> Result<()> {
    let workspace = corpus::workspace(FILES)?;
    process::cost(Command::new(binary).arg("sync").current_dir(&workspace))?;
    let (mut times, mut idle) = (Vec::new(), Vec::new());
    for index in 0..STARTS {
        let started = Instant::now();
        let mut server = ServerProcess::of(binary, &workspace)?;
        let mut connection = HttpConnection::open(&server.address)?;
        let (status, _) = connection.post("/tools/search", r#"{"query":"station verify"}"#)?;
        times.push(started.elapsed().as_secs_f64() * 1_000.0);
        ensure!(status == 200, "search: {status}");
        drop(connection);
        if index == 0 {
            let mut fresh = ServerProcess::of(binary, &workspace)?;
            std::thread::sleep(IDLE);
            idle.push(process::memory_mib(fresh.id(), "VmRSS"));
            fresh.stop()?;
        }
        server.stop()?;
    }
    println!("| start to first search ms | idle MiB |");
    println!("|---|---|");
    println!("| {:.0} | {:.0} |", median(times), median(idle));
    println!("\nMedian of {STARTS} starts over the index of {FILES} files.");
    Ok(())
}
