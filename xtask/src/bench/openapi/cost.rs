//! What it costs to read a large description, to read it back as it is kept, and to make a request.

use super::check::URL;
use super::corpora::{github, graph};
use super::sample::{Extent, sample};
use crate::bench::{median, percentile, process};
use crate::run::{output, target};
use anyhow::{Context, Result, anyhow, bail};
use ctx_core::ArgumentSchema;
use ctx_openapi::Survey;
use serde_json::{Value, json};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What this program is told to be a process that reads one description.
pub(crate) const ONE: &str = "openapi-one";
/// Runs of which the middle counts.
const ROUNDS: usize = 5;
/// How often a request is made before the next operation.
const REPEATS: usize = 20;

/// Measures, each description in a process of its own.
pub(super) fn measure() -> Result<()> {
    println!("\n| description | MB | operations | | CPU s | wall s | peak MB | kept MB |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, file) in [("GitHub", github()?), ("Microsoft Graph", graph()?)] {
        let kept =
            target().join("bench").join(format!("openapi-{}.kept", name.to_lowercase().replace(' ', "-")));
        keep(&file, &kept)?;
        let size = |file: &Path| fs::metadata(file).map_or(0.0, |about| about.len() as f64 / 1e6);
        for (what, way, file) in [("read", "read", &file), ("read back", "back", &kept)] {
            let runs: Vec<Value> = (0..ROUNDS).map(|_| in_a_process(way, file)).collect::<Result<_>>()?;
            let middle = |word: &str| median(runs.iter().filter_map(|run| run[word].as_f64()).collect());
            println!(
                "| {name} | {:.1} | {} | {what} | {:.2} | {:.2} | {:.0} | {:.1} |",
                size(file),
                middle("operations"),
                middle("cpu"),
                middle("wall"),
                middle("peak"),
                size(&kept)
            );
        }
    }
    calls(&github()?)
}

/// What a call costs besides waiting for the other end: arguments checked, request made.
fn calls(file: &Path) -> Result<()> {
    let survey = read(file)?;
    let mut times = Vec::new();
    for operation in survey.operations() {
        let schema = operation.input_schema();
        let Some(given) = sample(&schema, Extent::Full) else { continue };
        let Ok(arguments) = ArgumentSchema::compile(schema) else { continue };
        let started = Instant::now();
        for _ in 0..REPEATS {
            let Ok(prepared) = arguments.prepare(given.clone()) else { continue };
            black_box(operation.request(&prepared).ok());
        }
        times.push(started.elapsed().as_secs_f64() * 1e6 / REPEATS as f64);
    }
    println!(
        "\nArguments checked and a request made of them, GitHub's {} operations with all their arguments: median \
         {:.0} µs, 99 % below {:.0} µs.",
        times.len(),
        percentile(&mut times, 0.5),
        percentile(&mut times, 0.99)
    );
    Ok(())
}

fn in_a_process(way: &str, file: &Path) -> Result<Value> {
    let program = std::env::current_exe()?;
    let told = output(Command::new(program).args(["bench", ONE, way]).arg(file))?;
    serde_json::from_str(&told).context("the process told something else")
}

/// Reads one description and tells what that cost.
pub(crate) fn one(way: &str, file: &str) -> Result<()> {
    let started = Instant::now();
    let survey = match way {
        "read" => read(Path::new(file))?,
        "back" => Survey::of_kept(&fs::read(file)?, URL).map_err(|error| anyhow!(error))?,
        _ => bail!("there is no such way: {way}"),
    };
    let wall = started.elapsed().as_secs_f64();
    let peak = process::memory_mib(std::process::id(), "VmHWM") * 1.048_576;
    println!(
        "{}",
        json!({"cpu": process::own_cpu()?, "wall": wall, "peak": peak, "operations": survey.operations().len()})
    );
    Ok(())
}

fn read(file: &Path) -> Result<Survey> {
    let text = fs::read_to_string(file)?;
    Survey::of(&text, URL).map_err(|error| anyhow!("{}: {error}", file.display()))
}

fn keep(file: &Path, kept: &Path) -> Result<()> {
    fs::create_dir_all(target().join("bench"))?;
    let kept_form = read(file)?.kept().map_err(|error| anyhow!(error))?;
    Ok(fs::write(kept, kept_form)?)
}
