//! Cost of indexing a tree of text files: the first sync, and a second one without changes.

use super::{corpus, median, process};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

const SIZES: [usize; 3] = [500, 2_000, 7_000];
const ROUNDS: usize = 3;

pub(super) fn measure(binary: &Path) -> Result<()> {
    println!("| files | CPU s | CPU ms per file | wall s | peak MiB | again: CPU s | again: wall s |");
    println!("|---|---|---|---|---|---|---|");
    for files in SIZES {
        let workspace = corpus::workspace(files)?;
        let sync = || process::cost(Command::new(binary).arg("sync").current_dir(&workspace));
        let (mut first, mut again) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            corpus::reset(&workspace)?;
            first.push(sync()?);
            again.push(sync()?);
        }
        let median_of = |costs: &[process::Cost], field: fn(&process::Cost) -> f64| {
            median(costs.iter().map(field).collect())
        };
        let cpu = median_of(&first, |cost| cost.cpu);
        println!(
            "| {files} | {cpu:.2} | {:.2} | {:.2} | {:.0} | {:.2} | {:.2} |",
            cpu * 1_000.0 / files as f64,
            median_of(&first, |cost| cost.wall),
            median_of(&first, |cost| cost.peak_mib),
            median_of(&again, |cost| cost.cpu),
            median_of(&again, |cost| cost.wall),
        );
    }
    println!("\nMedians of {ROUNDS} rounds; the tree of 7,000 files has 79 MB.");
    Ok(())
}
