//! Function search over more than a thousand real functions: quality, latency, and the cost of building the directory.

use super::super::engine::{WORKER, engine};
use super::super::process;
use super::{median, percentile};
use anyhow::{Context, Result};
use ctx_core::{Call, Caller, Catalog};
use ctx_gateway::Gateway;
use ctx_luau::{ScriptLimits, Scripts};
use ctx_testkit::{questions, real_functions};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

const TOP: usize = 5;
const LIMIT_MAX: usize = 50;
const ROUNDS: usize = 20;
const DIRECTORIES: usize = 5;
const PAGES_MAX: usize = 30;
const TOKEN_CHARS: usize = 4;

pub(super) fn measure() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(runtime.spawn(measure_functions()))?
}

async fn measure_functions() -> Result<()> {
    let engine = engine(0)?;
    let scripts = Scripts::new(engine.clone(), ScriptLimits::default(), Arc::new(|_: &str| None));
    let gateway = Arc::new(Gateway::new(scripts, true));
    let real = real_functions();
    let build = || {
        let builder = Catalog::builder().provider(gateway.clone());
        real.iter().fold(builder, |builder, one| builder.provider(one.clone())).build()
    };

    // The directory is built lazily, at the first query of a catalog.
    let (mut cpu, mut catalog) = (Vec::new(), build());
    for _ in 0..DIRECTORIES {
        catalog = build();
        let before = process::own_cpu()?;
        call_tool(&catalog, "search_docs", json!({ "query": "anything" })).await?;
        cpu.push((process::own_cpu()? - before) * 1e3);
    }
    let count = catalog.functions().count();
    println!("\nThe directory of {count} functions: {:.0} ms of CPU.", median(cpu));

    let questions = questions();
    let (mut times, mut largest) = (Vec::new(), 0);
    let mut sets = [(0, 0), (0, 0)];
    for question in &questions {
        let set = &mut sets[usize::from(question.held_out)];
        let response =
            call_tool(&catalog, "search_docs", json!({ "query": question.question, "limit": LIMIT_MAX }))
                .await?;
        largest = largest.max(response.chars().count());
        let mut names = response
            .lines()
            .filter_map(|line| line.strip_prefix("sdk.")?.split_once('('))
            .map(|(name, _)| name);
        let rank = names
            .position(|name| question.expected_functions.iter().any(|right| right == name))
            .map(|at| at + 1);
        set.1 += 1;
        if rank.is_some_and(|rank| rank <= TOP) {
            set.0 += 1;
        } else {
            let held_out = if question.held_out { " (held out)" } else { "" };
            println!(
                "- {}{held_out}: {}",
                question.question,
                rank.map_or("not found".to_owned(), |rank| rank.to_string())
            );
        }
        for _ in 0..ROUNDS {
            let started = Instant::now();
            call_tool(&catalog, "search_docs", json!({ "query": question.question })).await?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
    }
    let [golden, held_out] = sets;
    println!("\n| questions | right among the first {TOP} |\n|---|---|");
    println!("| golden | {} of {} |\n| held out | {} of {} |", golden.0, golden.1, held_out.0, held_out.1);
    let (p50, p95) = (median(times.clone()), percentile(&mut times, 0.95));
    println!("\n| `search_docs` p50 ms | p95 ms |\n|---|---|\n| {p50:.2} | {p95:.2} |");

    let mut listed = call_tool(&catalog, "list_functions", json!({})).await?.chars().count();
    for page in 1..=PAGES_MAX {
        let arguments = json!({ "provider": "github", "page": page });
        let Ok(response) = call_tool(&catalog, "list_functions", arguments).await else { break };
        listed = listed.max(response.chars().count());
    }
    println!(
        "\nThe largest answers over them: `list_functions` {} tokens, `search_docs` {}.",
        listed / TOKEN_CHARS,
        largest / TOKEN_CHARS
    );
    engine.shutdown().await;
    Ok(())
}

async fn call_tool(catalog: &Arc<Catalog>, tool: &str, arguments: Value) -> Result<String> {
    let call = Call::new(catalog.clone(), Caller::Library(WORKER.to_owned()));
    let response = Catalog::call(tool, arguments, call).await?.value;
    response.as_str().map(str::to_owned).context("no text")
}
