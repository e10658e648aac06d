//! Time of `ctx search` from a shell, from the start of the process to its end.

use super::{corpus, median, process, search};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const SEARCHES: usize = 41;

pub(super) fn measure(binary: &Path) -> Result<()> {
    let config = "[embedding]\nmodel = \"fast\"\n";
    let workspace = search::sync_workspace(binary, corpus::workspace(search::FILES)?, config)?;
    println!("| `ctx search` | p50 ms | CPU ms |");
    println!("|---|---|---|");
    for mode in ["keyword", "hybrid"] {
        let (mut times, mut cpu) = (Vec::new(), Vec::new());
        // The first search warms the page cache and is not counted.
        for (index, query) in corpus::queries(SEARCHES + 1).iter().enumerate() {
            let mut command = Command::new(binary);
            command.args(["search", "--mode", mode]).args(query.split(' ')).current_dir(&workspace);
            let time = process::time(&mut command)?;
            if index > 0 {
                times.push(time.wall * 1e3);
                cpu.push(time.cpu * 1e3);
            }
        }
        println!("| {mode} | {:.1} | {:.1} |", median(times), median(cpu));
    }
    println!("\nMedians of {SEARCHES} processes over the index of {} files.", search::FILES);
    Ok(())
}
