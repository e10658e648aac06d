//! Measurements. They print figures and assert nothing: machines differ and are noisy.

mod corpus;
pub(crate) mod http;
mod index;
pub(crate) mod process;
mod retrieval;
mod search;
mod start;

use crate::run::release_binary;
use anyhow::{Result, bail};
use std::path::Path;

struct Part {
    name: &'static str,
    measure: fn(&Path) -> Result<()>,
}

const PARTS: &[Part] = &[
    Part { name: "index", measure: index::measure },
    Part { name: "search", measure: search::measure },
    Part { name: "start", measure: start::measure },
];

/// Measures these parts, or all; or retrieval, which needs collections that are not ours to keep here.
pub(crate) fn run(wanted: &[&str]) -> Result<()> {
    if let ["retrieval", options @ ..] = wanted {
        let options = retrieval::Options::read(options)?;
        let binary = release_binary()?;
        process::describe_machine();
        return retrieval::measure(&binary, &options);
    }
    if let Some(unknown) = wanted.iter().find(|name| !PARTS.iter().any(|part| part.name == **name)) {
        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        bail!("there is nothing to measure called `{unknown}`; known: {}, retrieval", known.join(", "));
    }
    let binary = release_binary()?;
    process::describe_machine();
    for part in PARTS.iter().filter(|part| wanted.is_empty() || wanted.contains(&part.name)) {
        println!("\n## {}\n", part.name);
        (part.measure)(&binary)?;
    }
    Ok(())
}

/// The middle of some figures.
fn median(mut figures: Vec<f64>) -> f64 {
    percentile(&mut figures, 0.5)
}

fn percentile(figures: &mut [f64], part: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    let index = (figures.len() as f64 * part) as usize;
    figures.get(index.min(figures.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
