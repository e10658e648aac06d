//! Runs the hostile scripts that cannot harm the process of the test itself.

use super::{FakeChannel, failed, job};
use crate::engine::protocol::{JobOutcome, ScriptEntry};
use crate::vm::Vm;
use ctx_testkit::{HostileScript, hostile_scripts};
use serde_json::Value;

/// Time for a script that never ends by itself.
const ENDLESS_MS: u64 = 30;

fn mismatch(case: &HostileScript) -> Option<String> {
    let mut job = job(ScriptEntry::Chunk, &[]);
    if case.expects_timeout() {
        job.bounds.time_ms = ENDLESS_MS;
    }
    let mut vm = Vm::new().expect("a VM");
    let channel = FakeChannel::new(|_, _, _| failed("not_found", "no such function"));
    let (fits, description) = match vm.run(&job, case.source.as_bytes(), channel) {
        JobOutcome::Value(json) => {
            let value = serde_json::from_slice::<Value>(&json);
            (value.is_ok_and(|value| case.matches(Ok(&value))), String::from_utf8_lossy(&json).into_owned())
        }
        JobOutcome::Failed(failure) => {
            let kind = format!("{:?}", failure.kind).to_lowercase();
            (case.matches(Err(&kind)), format!("{kind}: {}", failure.message))
        }
    };
    (!fits).then(|| format!("{}: {description}", case.name))
}

#[test]
fn every_hostile_script_ends_as_it_must() {
    let cases = hostile_scripts();
    let mismatches: Vec<_> = cases.iter().filter(|case| case.in_process).filter_map(mismatch).collect();
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}
