//! Benchmarks, run by `cargo xtask bench`. They print figures and assert nothing, since machines differ and are noisy.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a tool for developers, not part of the product"
)]

mod calls;
mod clients;
mod compare;
mod corpus;
mod embed;
mod engine;
mod gateway;
mod index;
mod load;
mod mcp;
mod openapi;
mod process;
mod retrieval;
mod search;
mod shell;
mod sources;
mod start;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use xtask::release_binary;

struct Benchmark {
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

const BENCHMARKS: &[Benchmark] = &[
    Benchmark { name: "embed", measure: Library(embed::measure) },
    Benchmark { name: "engine", measure: Library(engine::measure) },
    Benchmark { name: "gateway", measure: Library(gateway::measure) },
    Benchmark { name: "index", measure: Program(index::measure) },
    Benchmark { name: "load", measure: Program(|binary| load::measure(binary, load::MINUTES)) },
    Benchmark { name: "mcp", measure: Program(mcp::measure) },
    Benchmark { name: "openapi", measure: Library(openapi::measure) },
    Benchmark { name: "search", measure: Program(search::measure) },
    Benchmark { name: "meanwhile", measure: Program(search::measure_during_sync) },
    Benchmark { name: "million", measure: Program(search::measure_million) },
    Benchmark { name: "sources", measure: Program(sources::measure) },
    Benchmark { name: "clients", measure: Program(clients::measure) },
    Benchmark { name: "shell", measure: Program(shell::measure) },
    Benchmark { name: "start", measure: Program(start::measure) },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if arguments == [engine::WORKER] {
        return ctx_luau::worker_main();
    }
    let result = if arguments == [gateway::STUB] { gateway::serve_stub() } else { run(&arguments) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the named benchmarks, or all. `compare` (two builds) and `retrieval` (external data sets) run only when named.
fn run(arguments: &[&str]) -> Result<()> {
    if cfg!(debug_assertions) {
        bail!("the figures of a debug build say nothing; run `cargo xtask bench`");
    }
    if let ["retrieval", options @ ..] = arguments {
        let options = retrieval::Options::read(options)?;
        let binary = release_binary()?;
        process::describe_machine();
        return retrieval::measure(&binary, &options);
    }
    if let ["compare", old, new @ ..] = arguments {
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
    if let ["load", minutes] = arguments
        && let Ok(minutes) = minutes.parse()
    {
        let binary = release_binary()?;
        process::describe_machine();
        return load::measure(&binary, minutes);
    }
    if let [openapi::LOAD_ONE, file] = arguments {
        return openapi::load_one(file);
    }
    if let Some(unknown) =
        arguments.iter().find(|name| !BENCHMARKS.iter().any(|benchmark| benchmark.name == **name))
    {
        let known: Vec<_> = BENCHMARKS.iter().map(|benchmark| benchmark.name).collect();
        bail!(
            "there is nothing to measure called `{unknown}`; known: {}, compare, retrieval",
            known.join(", ")
        );
    }
    let benchmarks: Vec<&Benchmark> = BENCHMARKS
        .iter()
        .filter(|benchmark| arguments.is_empty() || arguments.contains(&benchmark.name))
        .collect();
    let programs = benchmarks.iter().any(|benchmark| matches!(benchmark.measure, Program(_)));
    let binary = if programs { release_binary()? } else { PathBuf::new() };
    process::describe_machine();
    for benchmark in benchmarks {
        println!("\n## {}\n", benchmark.name);
        match benchmark.measure {
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

fn percentile(figures: &mut [f64], fraction: f64) -> f64 {
    figures.sort_by(f64::total_cmp);
    let index = (figures.len() as f64 * fraction) as usize;
    figures.get(index.min(figures.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
