//! How a command ended and what it said.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// How a command ended and what it said.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `None` when a signal ended it.
    pub code: Option<i32>,
    /// The answer.
    pub stdout: String,
    /// The talk.
    pub stderr: String,
    pub(crate) root: PathBuf,
}

impl Outcome {
    /// No outcome of any test may show a panic or a backtrace, so that is asked here for all.
    #[track_caller]
    pub(crate) fn new(code: Option<i32>, stdout: String, stderr: String, root: &Path) -> Self {
        for trace in ["panicked", "stack backtrace"] {
            assert!(!stderr.contains(trace), "a panic reached the user:\n{stderr}");
        }
        Self { code, stdout, stderr, root: root.to_owned() }
    }

    /// Asserts exit code 0.
    #[track_caller]
    pub fn success(self) -> Self {
        self.code(0)
    }

    /// Asserts this exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Asserts that stderr has this somewhere.
    #[track_caller]
    pub fn says(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "`{part}` is missing from stderr:\n{}", self.stderr);
        self
    }

    /// Asserts that stdout has this somewhere.
    #[track_caller]
    pub fn answers(self, part: &str) -> Self {
        assert!(self.stdout.contains(part), "`{part}` is missing from stdout:\n{}", self.stdout);
        self
    }

    /// The answer as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("not JSON: {error}\n{}\nstderr:\n{}", self.stdout, self.stderr))
    }

    /// The `source_id` of every search result, best first.
    #[track_caller]
    pub fn found(&self) -> Vec<String> {
        crate::reply::found(&self.json())
    }
}
