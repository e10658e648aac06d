//! The result of a command, with assertions.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// The result of a command: exit code and output.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// The exit code; `None` if a signal ended the command.
    pub code: Option<i32>,
    /// Its stdout: the result.
    pub stdout: String,
    /// Its stderr: messages, warnings and errors.
    pub stderr: String,
    pub(crate) root: PathBuf,
}

impl CommandOutput {
    /// Fails the test if the output contains a panic or backtrace, which no command may ever show.
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

    /// Asserts that stderr contains `part`.
    #[track_caller]
    pub fn stderr_contains(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "`{part}` is missing from stderr:\n{}", self.stderr);
        self
    }

    /// Asserts that stdout contains `part`.
    #[track_caller]
    pub fn stdout_contains(self, part: &str) -> Self {
        assert!(self.stdout.contains(part), "`{part}` is missing from stdout:\n{}", self.stdout);
        self
    }

    /// Stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("not JSON: {error}\n{}\nstderr:\n{}", self.stdout, self.stderr))
    }

    /// The `source_id` of every search result, best first.
    #[track_caller]
    pub fn found_ids(&self) -> Vec<String> {
        crate::http_response::result_ids(&self.json())
    }
}
