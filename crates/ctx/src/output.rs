//! Where everything is printed: answers on stdout, talk on stderr.

use crate::error::CommandError;
use crate::style::{self, Painter};
use crate::{log, masks, progress};
use ctx_core::escape_line;
use serde::Serialize;
use std::io::{self, BufRead, IsTerminal, Write};
use tracing::Level;

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
        self.answer_painted(value, |painter| painter.plain(&text()).into_owned())
    }

    /// The same with colour. Whatever `text` takes from elsewhere it hands to the painter.
    pub(crate) fn answer_painted(
        &self,
        value: &impl Serialize,
        text: impl FnOnce(Painter) -> String,
    ) -> Result<(), CommandError> {
        let value = serde_json::to_value(value).map(masks::json).map_err(json_error)?;
        self.painted(&value, |painter| masks::text(text(painter)))
    }

    /// Prints the content of a tool result, document or agent, unmasked.
    pub(crate) fn content(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<(), CommandError> {
        self.painted(value, |painter| painter.plain(&text()).into_owned())
    }

    /// Prints content with colour, unmasked. Whatever `text` takes from elsewhere it hands to the painter.
    pub(crate) fn painted(
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

    /// Writes to stdout. A reader that went away, like `head`, is not an error.
    fn write(&self, text: &str) -> Result<(), CommandError> {
        let mut stdout = io::stdout().lock();
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
        self.log(Level::INFO, text);
    }

    /// Warns.
    pub(crate) fn warn(&self, text: &str) {
        self.log(Level::WARN, text);
    }

    /// Says something in the style of the log.
    pub(crate) fn log(&self, level: Level, text: &str) {
        if !self.quiet {
            talk(&log::prefix(level, Painter::stderr()), text);
        }
    }

    /// Says what can be done about a warning.
    pub(crate) fn hint(&self, text: &str) {
        if !self.quiet {
            talk(&hint_prefix(), text);
        }
    }

    /// Asks, on the line that the answer is typed on.
    fn ask(&self, question: &str) {
        let mut stderr = io::stderr().lock();
        let question = masks::text(question.to_owned());
        if write!(stderr, "{}", Painter::stderr().plain(&question)).and_then(|()| stderr.flush()).is_err() {
            // Whoever cannot see the question will not say yes.
        }
    }

    /// Asks for a yes in a terminal; `None` where there is nobody to answer.
    pub(crate) fn confirm(&self, question: &str) -> Option<bool> {
        if self.quiet || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return None;
        }
        self.ask(question);
        let mut answer = String::new();
        let heard = io::stdin().lock().read_line(&mut answer).is_ok();
        Some(heard && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    /// Says what went wrong; never silenced. With `--json` it is one line, an object of the shape that the HTTP API has.
    pub(crate) fn fail(&self, error: &CommandError) {
        if self.json {
            return talk("", &error.to_json().to_string());
        }
        for message in &error.messages {
            talk(&log::prefix(Level::ERROR, Painter::stderr()), message);
        }
        for hint in &error.hints {
            talk(&hint_prefix(), hint);
        }
    }
}

fn hint_prefix() -> String {
    Painter::stderr().paint(style::HINT, "hint:") + " "
}

fn json_error(error: serde_json::Error) -> CommandError {
    CommandError::new(format!("the answer has no JSON: {error}"))
}

/// Writes a line to stderr with secrets masked. A closed stderr is not an error; `eprintln!` would panic.
fn talk(prefix: &str, text: &str) {
    let text = masks::text(text.to_owned());
    let line = format!("{prefix}{}\n", Painter::stderr().plain(&text));
    if progress::aside(|| io::stderr().lock().write_all(line.as_bytes())).is_err() {
        // There is nowhere left to say so.
    }
}

/// Lines up columns, each as wide as its widest cell. A cell is one line, whatever is in it.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    // Masked first: escaping may change a secret so that it is not recognized.
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
    fn columns_line_up() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["a", "b"]), row(["ccc", ""])]), "a    b\nccc\n");
        assert_eq!(table(&[row(["a\n<html>", "b"]), row(["c", "d"])]), "a\\n<html>  b\nc          d\n");
        assert_eq!(bytes(1536), "1.5 KiB");
    }
}
