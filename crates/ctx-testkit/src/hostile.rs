//! The hostile scripts of `ctx-luau/tests/hostile/*.luau`, which try to escape the sandbox or exhaust it.
//!
//! Header lines describe each script. `--! expect:` is the required result: a kind of failure, several with `|`,
//! `any`, or `value` and a JSON value. `--! in_process: no` marks a script that may crash the process. `--! fill:
//! MARK "text" count` replaces a mark in the source by repeated text.

use serde_json::Value;
use std::fs;
use std::path::Path;

/// The kind of failure of a script that runs until its time is over.
const TIME: &str = "time";

/// A hostile script.
#[derive(Clone, Debug)]
pub struct HostileScript {
    /// Its file name without the extension.
    pub name: String,
    /// Its source, with marks replaced.
    pub source: String,
    /// Whether it can run in the test's own process without crashing it.
    pub in_process: bool,
    expect: ExpectedResult,
}

#[derive(Clone, Debug)]
enum ExpectedResult {
    Any,
    Failures(Vec<String>),
    Value(Value),
}

impl HostileScript {
    /// Whether it is expected to run into the time limit.
    pub fn expects_timeout(&self) -> bool {
        matches!(&self.expect, ExpectedResult::Failures(kinds) if kinds.iter().any(|kind| kind == TIME))
    }

    /// Whether this result, a value or a kind of failure, is the expected one.
    pub fn matches(&self, result: Result<&Value, &str>) -> bool {
        match (&self.expect, result) {
            (ExpectedResult::Any, _) => true,
            (ExpectedResult::Failures(kinds), Err(kind)) => kinds.iter().any(|expected| expected == kind),
            (ExpectedResult::Value(expected), Ok(value)) => expected == value,
            _ => false,
        }
    }
}

/// All hostile scripts, sorted by name.
pub fn hostile_scripts() -> Vec<HostileScript> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ctx-luau/tests/hostile");
    let entries = fs::read_dir(folder).expect("the folder of hostile scripts");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let scripts: Vec<HostileScript> = paths.iter().map(|path| parse_script(path)).collect();
    assert!(scripts.len() > 150, "{} hostile scripts are too few to be all", scripts.len());
    scripts
}

fn parse_script(path: &Path) -> HostileScript {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).unwrap();
    let header = text.lines().map_while(|line| line.strip_prefix("--! "));
    let mut source: String =
        text.lines().filter(|line| !line.starts_with("--! ")).collect::<Vec<_>>().join("\n");
    let (mut expect, mut in_process) = (None, true);
    for line in header {
        match line.split_once(": ").expect("a key and a value") {
            ("expect", value) => expect = Some(parse_expect(value)),
            ("in_process", value) => in_process = value != "no",
            ("fill", value) => {
                let (mark, rest) = value.split_once(' ').expect("a mark");
                let (text, count) = rest.rsplit_once(' ').expect("a text and a count");
                let text: String = serde_json::from_str(text).expect("a text in quotes");
                source = source.replace(mark, &text.repeat(count.parse().expect("a count")));
            }
            (other, _) => panic!("{name}: unknown key {other}"),
        }
    }
    let expect = expect.unwrap_or_else(|| panic!("{name}: no `expect`"));
    HostileScript { name, source, in_process, expect }
}

fn parse_expect(text: &str) -> ExpectedResult {
    match text.strip_prefix("value ") {
        Some(json) => ExpectedResult::Value(serde_json::from_str(json).expect("a JSON value")),
        None if text == "any" => ExpectedResult::Any,
        None => ExpectedResult::Failures(text.split('|').map(str::to_owned).collect()),
    }
}
