//! Reads descriptions and prints what can be made of them: `survey [--schemas] FILE…`.

#![allow(clippy::print_stdout, reason = "it is what it is for")]

use ctx_core::ArgumentSchema;
use ctx_openapi::Survey;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Sums {
    files: usize,
    unreadable: usize,
    operations: usize,
    skipped: usize,
    faulty: usize,
    refused_schemas: usize,
    time: Duration,
    reasons: BTreeMap<String, usize>,
}

fn main() {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let with_schemas = files.first().is_some_and(|first| first == "--schemas");
    if with_schemas {
        files.remove(0);
    }
    let mut sums = Sums::default();
    for file in &files {
        sums.files += 1;
        let text = match std::fs::read(file) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                println!("{file}: {error}");
                continue;
            }
        };
        let start = Instant::now();
        let survey = Survey::of(&text);
        let time = start.elapsed();
        sums.time += time;
        match survey {
            Ok(survey) => look(file, &survey, time, with_schemas, &mut sums),
            Err(error) => {
                sums.unreadable += 1;
                println!("{file}: {error}");
            }
        }
    }
    println!(
        "{} files, {} unreadable, {} operations, {} skipped, {} faulty, {} refused schemas, {:?}",
        sums.files,
        sums.unreadable,
        sums.operations,
        sums.skipped,
        sums.faulty,
        sums.refused_schemas,
        sums.time
    );
    for (reason, count) in sums.reasons {
        println!("{count:7} {reason}");
    }
}

fn look(file: &str, survey: &Survey, time: Duration, with_schemas: bool, sums: &mut Sums) {
    sums.operations += survey.operations();
    for (what, why) in survey.skipped() {
        sums.skipped += 1;
        println!("{file}: {what}: {why}");
        *sums.reasons.entry(why.split('`').next().unwrap_or_default().to_owned()).or_default() += 1;
    }
    for (_, why) in survey.faults() {
        sums.faulty += 1;
        *sums.reasons.entry(why.to_owned()).or_default() += 1;
    }
    if with_schemas {
        for (name, input, output) in survey.schemas() {
            for (kind, schema) in [("input", Some(input)), ("output", output)] {
                if let Some(error) = schema.and_then(|schema| ArgumentSchema::compile(schema).err()) {
                    sums.refused_schemas += 1;
                    let told: String = error.to_string().chars().take(200).collect();
                    println!("{file}: {name}: {kind}: {told}");
                }
            }
        }
    }
    if time > Duration::from_millis(200) {
        let (operations, definitions) = (survey.operations(), survey.definitions());
        println!("{file}: {operations} operations, {definitions} definitions, {time:?}");
    }
}
