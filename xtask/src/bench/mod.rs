//! Measurements. They print figures and assert nothing: machines differ and are noisy.

mod calls;
mod corpus;
mod embed;
pub(crate) mod engine;
mod gateway;
pub(crate) mod http;
mod index;
mod mcp;
mod openapi;
pub(crate) mod process;
mod retrieval;
mod search;
mod start;

use crate::run::{cargo, release_binary, succeed};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

struct Part {
    name: &'static str,
    measure: Measure,
}

enum Measure {
    /// The program, built for release.
    Program(fn(&Path) -> Result<()>),
    /// A crate of ours, by itself.
    Library(fn() -> Result<()>),
}
use Measure::{Library, Program};

const PARTS: &[Part] = &[
    Part { name: "embed", measure: Library(embed::measure) },
    Part { name: "engine", measure: Library(engine::measure) },
    Part { name: "gateway", measure: Library(gateway::measure) },
    Part { name: "index", measure: Program(index::measure) },
    Part { name: "mcp", measure: Program(mcp::measure) },
    Part { name: "openapi", measure: Library(openapi::measure) },
    Part { name: "search", measure: Program(search::measure) },
    Part { name: "meanwhile", measure: Program(search::measure_meanwhile) },
    Part { name: "million", measure: Program(search::measure_million) },
    Part { name: "start", measure: Program(start::measure) },
];

/// Measures these parts, or all; or retrieval, which needs collections that are not ours to keep here.
pub(crate) fn run(wanted: &[&str]) -> Result<()> {
    if let ["retrieval", options @ ..] = wanted {
        let options = retrieval::Options::read(options)?;
        let binary = release_binary()?;
        process::describe_machine();
        return retrieval::measure(&binary, &options);
    }
    if let [openapi::ONE, file] = wanted {
        return openapi::one(file);
    }
    if let Some(unknown) = wanted.iter().find(|name| !PARTS.iter().any(|part| part.name == **name)) {
        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        bail!("there is nothing to measure called `{unknown}`; known: {}, retrieval", known.join(", "));
    }
    let parts: Vec<&Part> =
        PARTS.iter().filter(|part| wanted.is_empty() || wanted.contains(&part.name)).collect();
    let programs = parts.iter().any(|part| matches!(part.measure, Program(_)));
    let binary = if programs { release_binary()? } else { PathBuf::new() };
    process::describe_machine();
    for part in parts {
        println!("\n## {}\n", part.name);
        match part.measure {
            Program(measure) => measure(&binary)?,
            Library(measure) => measure()?,
        }
    }
    Ok(())
}

/// Measures a part in a release build of this program.
fn in_release(part: &str) -> Result<()> {
    succeed(&mut cargo(&["run", "--quiet", "--release", "--package", "xtask", "bench", part]))
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
