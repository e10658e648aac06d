//! Cost of indexing a tree of text files: the first sync, and a second one without changes.

use super::{corpus, median, process};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Numbers of files, and the settings of vectors.
const RUNS: [(usize, &str, &str); 4] =
    [(500, "`fast`", ""), (2_000, "`fast`", ""), (7_000, "`fast`", ""), (7_000, "none", NO_VECTORS)];
const NO_VECTORS: &str = "[embedding]\nprovider = \"disabled\"\n";
const ROUNDS: usize = 3;

pub(super) fn measure(binary: &Path) -> Result<()> {
    println!(
        "| files | vectors | CPU s | CPU ms per file | wall s | peak MiB | again: CPU s | again: wall s |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (files, vectors, settings) in RUNS {
        let workspace = corpus::workspace(files)?;
        corpus::configure(&workspace, settings)?;
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
            "| {files} | {vectors} | {cpu:.2} | {:.2} | {:.2} | {:.0} | {:.2} | {:.2} |",
            cpu * 1_000.0 / files as f64,
            median_of(&first, |cost| cost.wall),
            median_of(&first, |cost| cost.peak_mib),
            median_of(&again, |cost| cost.cpu),
            median_of(&again, |cost| cost.wall),
        );
        // Other benchmarks use the same workspace.
        corpus::configure(&workspace, "")?;
    }
    println!("\nMedians of {ROUNDS} rounds; the tree of 7,000 files has 79 MB.");
    Ok(())
}
