//! CPU time and memory of reading large OpenAPI descriptions, first and from the cache, and of preparing requests.

use super::check::URL;
use super::corpora::{github, graph};
use super::sample::{PropertySelection, sample};
use crate::{median, percentile, process};
use anyhow::{Context, Result, anyhow, ensure};
use ctx_core::{ArgumentSchema, Catalog, Identifier};
use ctx_openapi::{ApiOptions, ApiSettings, ApiState, Apis, Spec, Survey};
use serde_json::{Value, json};
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use xtask::{output, target};

/// The hidden argument that makes this program read one description and print the cost.
pub(crate) const LOAD_ONE: &str = "openapi-one";
/// Number of runs, of which the median is printed.
const ROUNDS: usize = 5;
/// Number of requests prepared per operation.
const REPETITIONS: usize = 20;

/// Measures each description in a separate process.
pub(super) fn measure() -> Result<()> {
    println!("\n| description | MB | functions | start | CPU s | wall s | peak MB | kept MB |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, file) in [("GitHub", github()?), ("Microsoft Graph", graph()?)] {
        let cache = cache_folder(&file);
        for (start, is_first) in [("first", true), ("second", false)] {
            let mut runs: Vec<Value> = Vec::new();
            for _ in 0..ROUNDS {
                if is_first && cache.exists() {
                    fs::remove_dir_all(&cache)?;
                }
                runs.push(measure_in_process(&file)?);
            }
            let median_of = |word: &str| median(runs.iter().filter_map(|run| run[word].as_f64()).collect());
            println!(
                "| {name} | {:.1} | {} | {start} | {:.2} | {:.2} | {:.0} | {:.1} |",
                fs::metadata(&file)?.len() as f64 / 1e6,
                median_of("functions"),
                median_of("cpu"),
                median_of("wall"),
                median_of("peak"),
                folder_size(&cache)? / 1e6
            );
        }
    }
    measure_requests(&github()?)
}

/// The cache folder of a description.
fn cache_folder(file: &Path) -> PathBuf {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    target().join("bench").join(format!("openapi-{name}"))
}

fn folder_size(folder: &Path) -> Result<f64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes as f64)
}

/// Cost of a call without the network: validating the arguments and building the request.
fn measure_requests(file: &Path) -> Result<()> {
    let text = fs::read_to_string(file)?;
    let survey = Survey::of(&text, URL).map_err(|error| anyhow!("{}: {error}", file.display()))?;
    let mut times = Vec::new();
    for operation in survey.operations() {
        let schema = operation.input_schema();
        let Some(sample_arguments) = sample(&schema, PropertySelection::Full) else { continue };
        let Ok(arguments) = ArgumentSchema::compile(schema) else { continue };
        let started = Instant::now();
        for _ in 0..REPETITIONS {
            let Ok(prepared) = arguments.prepare(sample_arguments.clone()) else { continue };
            black_box(operation.request(&prepared).ok());
        }
        times.push(started.elapsed().as_secs_f64() * 1e6 / REPETITIONS as f64);
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

fn measure_in_process(file: &Path) -> Result<Value> {
    let program = std::env::current_exe()?;
    let output_text = output(Command::new(program).arg(LOAD_ONE).arg(file))?;
    serde_json::from_str(&output_text).context("the process told something else")
}

/// Loads one description as the program does, until its functions can be called, and prints the cost as JSON.
pub(crate) fn load_one(file: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let file = PathBuf::from(file);
    let started = Instant::now();
    let functions = runtime.block_on(async {
        let settings = ApiSettings::new(Identifier::sanitize("api"), Spec::File(file.clone()));
        let options = ApiOptions {
            cache: Some(cache_folder(&file)),
            on_change: Arc::new(|| ()),
            is_trusted: Arc::new(|_, _| true),
        };
        let apis = Apis::start(vec![settings], &options);
        apis.wait_until_loaded().await;
        let state = apis.statuses().remove(0).state;
        ensure!(state == ApiState::Ready, "{}: {state:?}", file.display());
        let providers = apis.providers().into_iter();
        let catalog = providers.fold(Catalog::builder(), |builder, api| builder.provider(api)).build();
        Ok(catalog.entries().count())
    })?;
    let wall = started.elapsed().as_secs_f64();
    let peak = process::memory_mib(std::process::id(), "VmHWM") * 1.048_576;
    println!("{}", json!({"cpu": process::own_cpu()?, "wall": wall, "peak": peak, "functions": functions}));
    Ok(())
}
