//! Coverage of real OpenAPI descriptions: the share of operations that can be called, and the cost of reading them.

mod check;
mod conformance;
mod corpora;
mod cost;
mod large_functions;
mod overhead;
mod sample;
mod swagger2;

pub(crate) use corpora::graph;
pub(crate) use cost::{LOAD_ONE, load_one};
pub(crate) use overhead::{describe_service, start_service};

use anyhow::Result;
use check::Coverage;
use std::time::Instant;

/// Maximum number of reasons printed.
const REASONS_MAX: usize = 40;

/// Counts the operations that can be called, then measures costs.
pub(super) fn measure() -> Result<()> {
    let started = Instant::now();
    let corpora = corpora::all_corpora()?;
    let coverages = check::check_all(&corpora);
    println!("| descriptions | | load | | operations | checked | can be called | | typed answers |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut reasons: Vec<(usize, &str, &str, &str)> = Vec::new();
    let mut total = Coverage::default();
    for (corpus, coverage) in corpora.iter().zip(&coverages) {
        print_row(corpus.name, coverage);
        total.add(coverage);
        let own = coverage.reasons.iter();
        reasons
            .extend(own.map(|(why, (count, example))| (*count, corpus.name, why.as_str(), example.as_str())));
    }
    print_row("all together", &total);
    println!("\nWhy not:\n");
    reasons.sort_by(|one, other| other.cmp(one));
    for (count, corpus, why, example) in reasons.iter().take(REASONS_MAX) {
        println!("- {count} of {corpus}: {why}\n  {example}");
    }
    if reasons.len() > REASONS_MAX {
        println!("- and {} reasons more", reasons.len() - REASONS_MAX);
    }
    println!("\nAll of that took {:.0} s.", started.elapsed().as_secs_f64());
    cost::measure()?;
    overhead::measure()
}

fn print_row(name: &str, coverage: &Coverage) {
    let Coverage { specs, loaded, operations, checked, callable, typed, .. } = coverage;
    println!(
        "| {name} | {specs} | {loaded} | {} | {operations} | {checked} | {callable} | {} | {} |",
        share(*loaded, *specs),
        share(*callable, *checked),
        share(*typed, *callable)
    );
}

fn share(part: usize, total: usize) -> String {
    format!("{:.2} %", 100.0 * part as f64 / total.max(1) as f64)
}
