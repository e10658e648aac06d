//! Where everything is printed: answers on stdout, talk on stderr.

use crate::error::CommandError;
use crate::masks;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

/// How to print.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Output {
    /// Answers as JSON.
    pub(crate) json: bool,
    /// No talk.
    pub(crate) quiet: bool,
}

impl Output {
    /// Prints an answer of our own with secrets masked: as JSON with `--json`, else `text`.
    pub(crate) fn answer(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CommandError> {
        let value = serde_json::to_value(value).map(masks::json).map_err(json_error)?;
        self.content(&value, || masks::text(text()))
    }

    /// Prints the content of a tool result, document or agent, unmasked.
    pub(crate) fn content(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CommandError> {
        let answer =
            if self.json { serde_json::to_string_pretty(value).map_err(json_error)? } else { text() };
        self.print(&answer)
    }

    /// Prints text to stdout. A reader that went away, like `head`, is not an error.
    pub(crate) fn print(&self, text: &str) -> Result<(), CommandError> {
        let mut stdout = io::stdout().lock();
        let safe = if stdout.is_terminal() { harmless(text) } else { Cow::Borrowed(text) };
        let text = &*safe;
        let ending = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        match write!(stdout, "{text}{ending}").and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(CommandError::new(format!("cannot write the answer: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Says something that is not the answer.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            talk(text);
        }
    }

    /// Warns.
    pub(crate) fn warn(&self, text: &str) {
        if !self.quiet {
            talk(&format!("warning: {text}"));
        }
    }

    /// Says what can be done about a warning.
    pub(crate) fn hint(&self, text: &str) {
        if !self.quiet {
            talk(&format!("hint: {text}"));
        }
    }

    /// Asks, on the line that the answer is typed on.
    pub(crate) fn ask(&self, question: &str) {
        let mut stderr = io::stderr().lock();
        if write!(stderr, "{}", harmless(question)).and_then(|()| stderr.flush()).is_err() {
            // Whoever cannot see the question will not say yes.
        }
    }

    /// Says what went wrong; never silenced.
    pub(crate) fn fail(&self, error: &CommandError) {
        for message in &error.messages {
            talk(&format!("error: {message}"));
        }
        for hint in &error.hints {
            talk(&format!("hint: {hint}"));
        }
    }
}

fn json_error(error: serde_json::Error) -> CommandError {
    CommandError::new(format!("the answer has no JSON: {error}"))
}

/// Writes a line to stderr with secrets masked. A closed stderr is not an error; `eprintln!` would panic.
fn talk(line: &str) {
    if writeln!(io::stderr().lock(), "{}", harmless(&masks::text(line.to_owned()))).is_err() {
        // There is nowhere left to say so.
    }
}

/// The text without what a terminal would obey: titles and names come from documents that anybody
/// may have written.
fn harmless(text: &str) -> Cow<'_, str> {
    let obeyed = |char: char| char.is_control() && char != '\n' && char != '\t';
    if text.contains(obeyed) { Cow::Owned(text.replace(obeyed, "\u{FFFD}")) } else { Cow::Borrowed(text) }
}

/// Lines up columns, each as wide as its widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        })
        .collect()
}

/// Bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A count and its noun.
pub(crate) fn count(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_made_to_obey_documents() {
        assert_eq!(harmless("a\u{1b}]0;title\u{7}b\n\tc"), "a\u{FFFD}]0;title\u{FFFD}b\n\tc");
        assert!(matches!(harmless("plain\ntext"), Cow::Borrowed(_)));
    }

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["a", "b"]), row(["ccc", ""])]), "a    b\nccc\n");
        assert_eq!(bytes(1536), "1.5 KiB");
    }
}
