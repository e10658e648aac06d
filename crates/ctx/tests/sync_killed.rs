//! A sync can be killed at any moment: the next one ends in the same state as an undisturbed sync.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::TestWorkspace;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

const FILES: u64 = 400;
const KILLS: usize = 60;
/// Fewer, because each round computes all vectors again.
const REBUILD_FILES: u64 = 120;
const REBUILD_KILLS: usize = 12;
/// More than enough; reaching it means that the sync always ended before it was killed.
const ATTEMPTS_MAX: usize = 400;
const SIGKILL: i32 = 9;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const WORDS: [&str; 8] = ["harbour", "anchor", "lighthouse", "chain", "pilot", "tide", "cargo", "buoy"];

/// A pseudo-random generator with a fixed sequence.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn write_note(w: &TestWorkspace, random: &mut SeededRandom, number: u64) {
    let words: Vec<&str> = (0..40).map(|_| WORDS[random.below(8) as usize]).collect();
    w.write(
        &format!("docs/{}/note-{number}.md", number % 7),
        format!("# Note {number}\n\n{} crew{} {}\n", words.join(" "), number % 20, random.below(1_000_000)),
    );
}

/// Adds, changes and deletes a few files.
fn mutate(w: &TestWorkspace, random: &mut SeededRandom) {
    for _ in 0..20 {
        let number = random.below(FILES + 100);
        if random.below(4) == 0 {
            // The file may not exist.
            fs::remove_file(w.path(&format!("docs/{}/note-{number}.md", number % 7))).ok();
        } else {
            write_note(w, random, number);
        }
    }
}

/// All stored documents, without paths and times.
fn exported(w: &TestWorkspace) -> Vec<Value> {
    let mut documents = w.ctx("export").success().json()["documents"].as_array().unwrap().clone();
    documents.iter_mut().for_each(remove_location_and_time);
    documents
}

/// The documents found, without scores: the index counts the words of deleted documents until segments are
/// merged, so scores depend on history.
fn search_results(w: &TestWorkspace, query: &str) -> Vec<Value> {
    let answer =
        w.ctx_args(["search", query, "--mode", "keyword", "--limit", "100", "--json"]).success().json();
    let mut hits = answer["results"].as_array().unwrap().clone();
    assert!(hits.len() < 100, "{query} finds more than can be compared");
    hits.iter_mut().for_each(remove_location_and_time);
    hits.iter_mut().for_each(|hit| hit["score"] = Value::Null);
    hits.sort_by_key(|hit| hit["id"].to_string());
    hits
}

/// The semantic search results with scores: vectors do not depend on history.
fn semantic_results(w: &TestWorkspace, query: &str) -> Vec<Value> {
    let answer =
        w.ctx_args(["search", query, "--mode", "semantic", "--limit", "20", "--json"]).success().json();
    let hits = answer["results"].as_array().unwrap().iter();
    let mut found: Vec<Value> = hits.map(|hit| json!([hit["score"], hit["source_id"]])).collect();
    found.sort_by_key(ToString::to_string);
    found
}

/// Asserts that every chunk has its vector, and that no vector of a deleted chunk is left.
fn assert_whole(w: &TestWorkspace) {
    let stats = w.ctx("stats --json").success().json();
    assert_eq!(stats["vectors"]["vectors"], stats["chunks"]);
    assert_eq!(stats["vectors"]["pending_documents"], 0);
}

/// A workspace with this model and this number of notes.
fn notes(model: &str, count: u64, random: &mut SeededRandom) -> TestWorkspace {
    let w = TestWorkspace::new().config(&format!(
        "[connectors.filesystem.docs]\nroot = \"docs\"\n[embedding]\nmodel = \"{model}\"\n"
    ));
    (0..count).for_each(|number| write_note(&w, random, number));
    w
}

/// Kills a command at a random moment; returns whether it was still running.
fn kill_during(w: &TestWorkspace, command: &[&str], usual: Duration, random: &mut SeededRandom) -> bool {
    let mut child = w.command(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    let moment = usual.mul_f64(random.below(1_000) as f64 / 1_000.0) + Duration::from_millis(1);
    // The moment itself is tested, so there is nothing else to wait for.
    while started.elapsed() < moment {
        thread::sleep(LOOK_EVERY.min(moment.saturating_sub(started.elapsed())));
        // The usual duration may have been measured on a busier machine.
        if child.try_wait().unwrap().is_some() {
            return false;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap().signal() == Some(SIGKILL)
}

fn remove_location_and_time(value: &mut Value) {
    for key in ["source_url", "created_at", "updated_at"] {
        value.as_object_mut().unwrap().remove(key);
    }
}

/// The duration of a sync with a few changes.
fn usual_duration(w: &TestWorkspace, random: &mut SeededRandom) -> Duration {
    let copy = TestWorkspace::copy_of(w.root());
    copy.ctx("sync").success();
    mutate(&copy, random);
    let started = Instant::now();
    copy.ctx("sync").success();
    started.elapsed()
}

#[test]
fn a_sync_that_is_killed_again_and_again_ends_where_an_undisturbed_one_does() {
    let mut random = SeededRandom(0x2545_f491_4f6c_dd1d);
    let w = notes("fast", FILES, &mut random);
    let usual = usual_duration(&w, &mut random);

    let mut kills = 0;
    for _ in 0..ATTEMPTS_MAX {
        mutate(&w, &mut random);
        kills += usize::from(kill_during(&w, &["sync"], usual, &mut random));
        let stats = w.ctx("stats --json").success();
        assert_eq!(stats.stderr, "", "after {kills} kills");
        if kills == KILLS {
            break;
        }
    }
    assert_eq!(kills, KILLS);

    w.ctx("sync").success();
    let fresh = TestWorkspace::copy_of(w.root());
    fresh.ctx("sync").success();
    assert_eq!(exported(&w), exported(&fresh));
    for query in ["crew7", "crew0 crew19", "crew3", "zeppelin"] {
        assert_eq!(search_results(&w, query), search_results(&fresh, query), "{query}");
        assert_eq!(semantic_results(&w, query), semantic_results(&fresh, query), "{query}");
    }
    assert_whole(&w);
    w.ctx("doctor").success();
}

#[test]
fn an_embedding_run_that_is_killed_again_and_again_completes() {
    let mut random = SeededRandom(0x9e37_79b9_7f4a_7c15);
    let w = notes("best", REBUILD_FILES, &mut random);
    w.ctx("sync").success();
    let fresh = TestWorkspace::copy_of(w.root());
    let started = Instant::now();
    w.ctx("embed rebuild").success();
    let usual = started.elapsed();

    let mut kills = 0;
    for round in 0..ATTEMPTS_MAX {
        let command = if round % 2 == 0 { ["embed", "rebuild"] } else { ["embed", "pending"] };
        kills += usize::from(kill_during(&w, &command, usual, &mut random));
        assert_eq!(w.ctx("search crew7 --json").success().stderr, "", "after {kills} kills");
        if kills == REBUILD_KILLS {
            break;
        }
    }
    assert_eq!(kills, REBUILD_KILLS);

    w.ctx("embed pending").success();
    fresh.ctx("sync").success();
    fresh.ctx("embed pending").success();
    for query in ["crew7", "a ship in the harbour"] {
        assert_eq!(semantic_results(&w, query), semantic_results(&fresh, query), "{query}");
    }
    assert_whole(&w);
    w.ctx("doctor").success();
}
