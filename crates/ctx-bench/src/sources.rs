//! Cost of the tool `sources`, which must not grow with the number of documents.

use super::{corpus, median, percentile, process};
use anyhow::{Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use xtask::{HttpConnection, ServerProcess};

const SIZES: [usize; 2] = [1, 100_000];
const FILES_PER_FOLDER: usize = 1_000;
const WARM_UP_CALLS: usize = 200;
const CALLS: usize = 2_000;
const ROUNDS: usize = 5;

pub(super) fn measure(binary: &Path) -> Result<()> {
    println!("| documents | CPU ms a call | p50 ms | p95 ms |");
    println!("|---|---|---|---|");
    for documents in SIZES {
        let workspace = small_documents(documents)?;
        process::cost(Command::new(binary).arg("sync").current_dir(&workspace))?;
        let mut server = ServerProcess::of(binary, &workspace)?;
        let mut connection = HttpConnection::open(&server.address)?;
        let mut call = || -> Result<f64> {
            let started = Instant::now();
            let (status, body) = connection.post("/tools/sources", "{}")?;
            ensure!(status == 200 && body.contains("filesystem:"), "sources: {status} {body}");
            Ok(started.elapsed().as_secs_f64() * 1e3)
        };
        (0..WARM_UP_CALLS).try_for_each(|_| call().map(drop))?;
        let (mut cpu, mut latencies) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = process::cpu_of(server.id());
            for _ in 0..CALLS {
                latencies.push(call()?);
            }
            cpu.push((process::cpu_of(server.id()) - before) * 1e3 / CALLS as f64);
        }
        let (p50, p95) = (median(latencies.clone()), percentile(&mut latencies, 0.95));
        println!("| {documents} | {:.3} | {p50:.3} | {p95:.3} |", median(cpu));
        server.stop()?;
    }
    println!("\n`POST /tools/sources`, medians of {ROUNDS} rounds of {CALLS} calls, one at a time.");
    Ok(())
}

/// A workspace with this number of short notes, made once and kept for later runs.
fn small_documents(count: usize) -> Result<PathBuf> {
    let workspace = corpus::folder(&format!("notes-{count}"));
    if !workspace.join("complete").exists() {
        for number in 0..count {
            let folder = workspace.join("docs").join(format!("{:03}", number / FILES_PER_FOLDER));
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(format!("{number:06}.md")), format!("# Note {number}\n\nA short text.\n"))?;
        }
        corpus::configure(&workspace, "[embedding]\nprovider = \"disabled\"\n")?;
        fs::write(workspace.join("complete"), "")?;
    }
    Ok(workspace)
}
