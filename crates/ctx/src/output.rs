//! Prints the output of commands: results on stdout, messages on stderr.

use crate::error::CommandError;
use crate::style::{self, Painter};
use crate::{log, masks, progress};
use ctx_core::escape_line;
use serde::Serialize;
use std::io::{self, BufRead, IsTerminal, Write};
use tracing::Level;

/// The output options of a command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CommandOutput {
    /// Print results and errors as JSON.
    pub(crate) json: bool,
    /// Print no messages except errors.
    pub(crate) quiet: bool,
}

impl CommandOutput {
    /// Prints a result with secrets masked: as JSON with `--json`, else `text`.
    pub(crate) fn print_result(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CommandError> {
        self.print_result_painted(value, |painter| painter.plain(&text()).into_owned())
    }

    /// Like [`CommandOutput::print_result`], with colour. `text` must pass untrusted text through the painter.
    pub(crate) fn print_result_painted(
        &self,
        value: &impl Serialize,
        text: impl FnOnce(Painter) -> String,
    ) -> Result<(), CommandError> {
        let value = serde_json::to_value(value).map(masks::json).map_err(json_error)?;
        self.print_painted(&value, |painter| masks::text(text(painter)))
    }

    /// Prints the content of a tool result, document or agent, unmasked.
    pub(crate) fn print_content(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CommandError> {
        self.print_painted(value, |painter| painter.plain(&text()).into_owned())
    }

    /// Like [`CommandOutput::print_content`], with colour. `text` must pass untrusted text through the painter.
    pub(crate) fn print_painted(
        &self,
        value: &impl Serialize,
        text: impl FnOnce(Painter) -> String,
    ) -> Result<(), CommandError> {
        match self.json {
            true => self.print(&serde_json::to_string_pretty(value).map_err(json_error)?),
            false => self.write(&text(Painter::stdout())),
        }
    }

    /// Prints text to stdout.
    pub(crate) fn print(&self, text: &str) -> Result<(), CommandError> {
        let painter = if self.json { Painter::colorless_stdout() } else { Painter::stdout() };
        self.write(&painter.plain(text))
    }

    /// Writes to stdout. A closed pipe, as with `head`, is not an error.
    fn write(&self, text: &str) -> Result<(), CommandError> {
        let mut stdout = io::stdout().lock();
        let ending = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        match write!(stdout, "{text}{ending}").and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(CommandError::new(format!("cannot write the output: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Prints a message to stderr.
    pub(crate) fn say(&self, text: &str) {
        self.log(Level::INFO, text);
    }

    /// Prints a warning to stderr.
    pub(crate) fn warn(&self, text: &str) {
        self.log(Level::WARN, text);
    }

    /// Prints a message of this level to stderr, in the format of the log.
    pub(crate) fn log(&self, level: Level, text: &str) {
        if !self.quiet {
            print_to_stderr(&log::prefix(level, Painter::stderr()), text);
        }
    }

    /// Prints a hint on how to solve a warning.
    pub(crate) fn hint(&self, text: &str) {
        if !self.quiet {
            print_to_stderr(&hint_prefix(), text);
        }
    }

    /// Prints a question, without a line break.
    fn ask(&self, question: &str) {
        let mut stderr = io::stderr().lock();
        let question = masks::text(question.to_owned());
        if write!(stderr, "{}", Painter::stderr().plain(&question)).and_then(|()| stderr.flush()).is_err() {
            // A user who does not see the question cannot confirm it.
        }
    }

    /// Asks for confirmation in a terminal; `None` if there is no terminal.
    pub(crate) fn confirm(&self, question: &str) -> Option<bool> {
        if self.quiet || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return None;
        }
        self.ask(question);
        let mut answer = String::new();
        let was_read = io::stdin().lock().read_line(&mut answer).is_ok();
        Some(was_read && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    /// Prints an error, even with `--quiet`. With `--json` it is one line, in the format of the HTTP API's
    /// errors.
    pub(crate) fn fail(&self, error: &CommandError) {
        if self.json {
            return print_to_stderr("", &error.to_json().to_string());
        }
        for message in &error.messages {
            print_to_stderr(&log::prefix(Level::ERROR, Painter::stderr()), message);
        }
        for hint in &error.hints {
            print_to_stderr(&hint_prefix(), hint);
        }
    }
}

fn hint_prefix() -> String {
    Painter::stderr().paint(style::HINT, "hint:") + " "
}

fn json_error(error: serde_json::Error) -> CommandError {
    CommandError::new(format!("cannot serialize the result: {error}"))
}

/// Writes a line to stderr with secrets masked. A closed stderr is not an error; `eprintln!` would panic.
fn print_to_stderr(prefix: &str, text: &str) {
    let text = masks::text(text.to_owned());
    let line = format!("{prefix}{}\n", Painter::stderr().plain(&text));
    if progress::suspend_bar(|| io::stderr().lock().write_all(line.as_bytes())).is_err() {
        // stderr is closed; there is no other place to report that.
    }
}

/// Formats a table with aligned columns. Line breaks in cells are escaped.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    // Masked first: escaping could change a secret so that it is not recognised.
    let cell = |cell: &String| escape_line(&masks::text(cell.clone())).into_owned();
    let cells = |row: &Vec<String>| row.iter().map(cell).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
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

/// Formats a size in bytes with a binary unit.
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

/// Formats a count with its noun.
pub(crate) fn count(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["a", "b"]), row(["ccc", ""])]), "a    b\nccc\n");
        assert_eq!(table(&[row(["a\n<html>", "b"]), row(["c", "d"])]), "a\\n<html>  b\nc          d\n");
        assert_eq!(bytes(1536), "1.5 KiB");
    }
}
