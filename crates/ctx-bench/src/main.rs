//! Benchmarks, run by `cargo xtask bench`. They print figures and assert nothing, since machines differ and are noisy.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a tool for developers, not part of the product"
)]

mod calls;
mod compare;
mod corpus;
mod embed;
mod engine;
mod gateway;
mod index;
mod mcp;
mod openapi;
mod process;
mod retrieval;
mod search;
mod start;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::release_binary;

struct Part {
    name: &'static str,
    measure: Measure,
}

enum Measure {
    /// Measures the release binary at this path.
    Program(fn(&Path) -> Result<()>),
    /// Measures library crates in this process.
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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if arguments == [engine::WORKER] {
        return ctx_luau::worker_main();
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the named benchmarks, or all. `compare` (two builds) and `retrieval` (external data sets) run only when named.
fn run(wanted: &[&str]) -> Result<()> {
    if cfg!(debug_assertions) {
        bail!("the figures of a debug build say nothing; run `cargo xtask bench`");
    }
    if let ["retrieval", options @ ..] = wanted {
        let options = retrieval::Options::read(options)?;
        let binary = release_binary()?;
        process::describe_machine();
        return retrieval::measure(&binary, &options);
    }
    if let ["compare", old, new @ ..] = wanted {
        let new = match new {
            [] => release_binary()?,
            [new] => PathBuf::from(new),
            _ => bail!(
                "compare takes two programs: the one before and, unless it is what would be built now, the one after"
            ),
        };
        process::describe_machine();
        return compare::measure(Path::new(old), &new);
    }
    if let [openapi::ONE, file] = wanted {
        return openapi::one(file);
    }
    if let Some(unknown) = wanted.iter().find(|name| !PARTS.iter().any(|part| part.name == **name)) {
        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        bail!(
            "there is nothing to measure called `{unknown}`; known: {}, compare, retrieval",
            known.join(", ")
        );
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

/// The median.
fn median(mut figures: Vec<f64>) -> f64 {
    percentile(&mut figures, 0.5)
}

fn percentile(figures: &mut [f64], part: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    let index = (figures.len() as f64 * part) as usize;
    figures.get(index.min(figures.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
