//! Inline snapshots of an outcome, with values that differ between runs replaced by placeholders.

use crate::CommandOutput;

/// Patterns of values that differ between runs, and their placeholders. The order matters: a time contains a date.
const FILTERS: &[(&str, &str)] = &[
    (r"/[^ ]*/\.local/state/ctx/workspaces/[\w.-]+-[0-9a-f]{16}", "[DATA]"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "[ID]"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[TIME]"),
    (r"\b\d{4}-\d\d-\d\d\b", "[DATE]"),
    (r"\b\d+(\.\d+)? (ms|s)\b", "[DURATION]"),
    (r"\b\d+(\.\d+)? (B|[KMGT]iB)\b", "[SIZE]"),
    (r"\b(127\.0\.0\.1|localhost|\[::1\]):\d+\b", "$1:[PORT]"),
];

/// Compares exit code, stdout and stderr of an [`CommandOutput`] with an inline snapshot.
#[macro_export]
macro_rules! ctx_snapshot {
    ($outcome:expr, @$snapshot:literal) => {{
        let outcome: &$crate::CommandOutput = &$outcome;
        outcome.snapshot_settings().bind(|| {
            $crate::insta::assert_snapshot!(outcome.snapshot_text(), @$snapshot);
        });
    }};
}

impl CommandOutput {
    #[doc(hidden)]
    pub fn snapshot_text(&self) -> String {
        let code = self.code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        let (stdout, stderr) = (&self.stdout, &self.stderr);
        format!("exit_code: {code}\n----- stdout -----\n{stdout}\n----- stderr -----\n{stderr}")
    }

    #[doc(hidden)]
    pub fn snapshot_settings(&self) -> insta::Settings {
        let mut settings = insta::Settings::clone_current();
        settings.add_filter(&escape_regex(&self.root.display().to_string()), "[ROOT]");
        for (pattern, replacement) in FILTERS {
            settings.add_filter(pattern, *replacement);
        }
        settings
    }
}

/// A regular expression that matches only this text.
fn escape_regex(text: &str) -> String {
    let escape = |c: char| if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() };
    text.chars().map(escape).collect()
}
