//! Throughput of the built-in embedding models, the tokenizer and the dot products, on the repository's Markdown files.

use super::{median, process};
use anyhow::{Result, ensure};
use ctx_embed::{Model, Tokenizer, vector};
use std::fs;
use std::hint::black_box;
use std::process::Command;
use std::time::Instant;
use xtask::{output, root};

/// Length of the texts in tokens, including the two special tokens of the model `best`.
const LENGTHS: [usize; 3] = [16, 64, 256];
const THREADS: [usize; 2] = [1, 2];
/// Number of rounds, of which the median is printed.
const ROUNDS: usize = 7;
/// Number of tokens per round, for each model.
const FAST_TOKENS: usize = 1 << 20;
const BEST_TOKENS: usize = 1 << 12;
const QUERIES: usize = 50;
const TOKENIZER_BYTES: usize = 8 << 20;
const ROWS: usize = 1_000_000;

/// Runs all benchmarks of embeddings.
pub(super) fn measure() -> Result<()> {
    let prose = prose()?;
    println!("| model | tokens | threads | texts a second | texts a CPU second |");
    println!("|---|---|---|---|---|");
    for (model, tokens) in [(Model::Fast, FAST_TOKENS), (Model::Best, BEST_TOKENS)] {
        for length in LENGTHS {
            let texts = texts(&prose, length - 2, tokens / length)?;
            for threads in THREADS {
                let (wall, cpu) = rounds(|| drop(black_box(model.embed(&texts, threads))))?;
                let count = texts.len() as f64;
                println!(
                    "| {} | {length} | {threads} | {:.1} | {:.1} |",
                    model.id(),
                    count / wall,
                    count / cpu
                );
            }
        }
    }
    queries(&prose)?;
    tokenizer(&prose)?;
    for dimensions in [Model::Fast.dimensions(), Model::Best.dimensions()] {
        dot_products(dimensions)?;
    }
    println!("\nMedians of {ROUNDS} rounds.");
    Ok(())
}

fn queries(prose: &str) -> Result<()> {
    println!("\n| one text of {} tokens | median ms |", LENGTHS[0]);
    println!("|---|---|");
    let texts = texts(prose, LENGTHS[0] - 2, QUERIES)?;
    for model in [Model::Fast, Model::Best] {
        let times = texts.iter().map(|text| {
            let started = Instant::now();
            black_box(model.embed(&[text], 1));
            started.elapsed().as_secs_f64() * 1_000.0
        });
        println!("| {} | {:.3} |", model.id(), median(times.collect()));
    }
    Ok(())
}

fn tokenizer(prose: &str) -> Result<()> {
    let text = prose.repeat(TOKENIZER_BYTES.div_ceil(prose.len()));
    let (wall, cpu) = rounds(|| {
        black_box(Tokenizer::builtin().count(&text));
    })?;
    let megabytes = text.len() as f64 / 1e6;
    println!("\nTokenizer: {:.0} MB/s, {:.0} MB a CPU second", megabytes / wall, megabytes / cpu);
    Ok(())
}

fn dot_products(dimensions: usize) -> Result<()> {
    let rows: Vec<i8> = (0..ROWS * dimensions).map(|index| (index * 37 % 251) as i8).collect();
    let query = &rows[..dimensions];
    let mut out = vec![0; ROWS];
    let (wall, cpu) = rounds(|| {
        vector::dots(query, &rows, &mut out);
        black_box(&out);
    })?;
    println!(
        "\nDot products: {ROWS} × {dimensions} in {:.1} ms ({:.1} ms of CPU), {:.1} GB/s",
        wall * 1e3,
        cpu * 1e3,
        rows.len() as f64 / wall / 1e9
    );
    Ok(())
}

/// Median wall and CPU seconds of `work` over [`ROUNDS`] rounds, after a warm-up round.
fn rounds(mut work: impl FnMut()) -> Result<(f64, f64)> {
    work();
    let (mut walls, mut cpus) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (started, cpu_before) = (Instant::now(), process::own_cpu()?);
        work();
        walls.push(started.elapsed().as_secs_f64());
        cpus.push(process::own_cpu()? - cpu_before);
    }
    Ok((median(walls), median(cpus)))
}

/// All Markdown files of the repository, concatenated.
fn prose() -> Result<String> {
    let listed = output(Command::new("git").args(["ls-files", "*.md"]).current_dir(root()))?;
    let mut prose = String::new();
    for path in listed.lines() {
        prose.push_str(&fs::read_to_string(root().join(path))?);
    }
    Ok(prose)
}

/// `count` texts of `pieces` tokens each, spread over the prose.
fn texts(prose: &str, pieces: usize, count: usize) -> Result<Vec<&str>> {
    let ranges = Tokenizer::builtin().pieces(prose);
    ensure!(ranges.len() > 2 * pieces, "too little prose");
    let starts = ranges.len() - pieces;
    let texts = (0..count).map(|number| {
        let first = number * pieces * 7 % starts;
        &prose[ranges[first].start..ranges[first + pieces - 1].end]
    });
    Ok(texts.collect())
}
