//! Hostile scripts in workers: each has the expected outcome, and the next run is unaffected.

use super::world::{LATE, LONG, SHORT, TestWorld, engine, script, value};
use crate::Test;
use ctx_luau::Engine;
use ctx_testkit::{HostileScript, hostile_scripts};
use serde_json::json;
use std::time::Instant;

pub(crate) const TESTS: &[Test] = tests!(hostile:
    every_hostile_script_ends_as_it_must_and_in_time,
);

/// Number of concurrent scripts.
const AT_ONCE: usize = 4;

async fn mismatch(engine: &Engine, case: &HostileScript) -> Option<String> {
    let endless = case.expects_timeout();
    let mut run = script(&case.source, if endless { SHORT } else { LONG });
    let apis = ["base64", "context", "crypto", "json", "log", "parallel", "result", "sdk", "sleep"];
    run.apis = apis.map(String::from).to_vec();
    // The hostile scripts assume these limits.
    (run.memory_bytes, run.log_bytes) = (16 << 20, 4 << 10);
    let began = Instant::now();
    let outcome = engine.run(&run, &TestWorld::default()).await;
    if endless && began.elapsed() > SHORT + LATE {
        return Some(format!("{}: took {:?}", case.name, began.elapsed()));
    }
    let fits = match &outcome {
        Ok(completed) => case.matches(Ok(&completed.value)),
        Err(error) => case.matches(Err(&format!("{:?}", error.kind).to_lowercase())),
    };
    (!fits).then(|| format!("{}: {outcome:?}", case.name))
}

async fn every_hostile_script_ends_as_it_must_and_in_time() {
    use futures::StreamExt;
    let (engine, cases) = (engine(), hostile_scripts());
    let mismatches: Vec<Option<String>> =
        futures::stream::iter(&cases).map(|case| mismatch(&engine, case)).buffered(AT_ONCE).collect().await;
    let mismatches: Vec<String> = mismatches.into_iter().flatten().collect();
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
    assert_eq!(value(&engine, "return 1").await, json!(1));
}
