//! Composes extracted text as Markdown (headings, paragraphs, list items, table rows, code), from which chunks are
//! made.

use super::bounds::Bounds;
use super::markdown::atx_heading;

/// The kind of the last block in the body. Items and rows follow a block of their kind without a blank line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Other,
    ListItem,
    TableRow,
}

/// Writes a body. At a limit it truncates the text instead of failing.
pub(super) struct Composer<'a> {
    bounds: &'a Bounds,
    body: String,
    last_block: BlockKind,
    rows: usize,
    /// The limit that truncated the text.
    truncated_by: Option<&'static str>,
}

impl<'a> Composer<'a> {
    pub(super) fn new(bounds: &'a Bounds) -> Self {
        Self { bounds, body: String::new(), last_block: BlockKind::Other, rows: 0, truncated_by: None }
    }

    pub(super) fn bounds(&self) -> &'a Bounds {
        self.bounds
    }

    pub(super) fn heading(&mut self, level: usize, text: &str) {
        let text = one_line(text);
        if !text.is_empty() {
            self.add(BlockKind::Other, &format!("{} {text}", "#".repeat(level.clamp(1, 6))));
        }
    }

    /// Adds a paragraph; keeps its line breaks.
    pub(super) fn paragraph(&mut self, text: &str) {
        let mut lines = String::with_capacity(text.len());
        for line in text.trim().lines() {
            let line = line.trim_end();
            if !lines.is_empty() {
                lines.push('\n');
            }
            lines.push_str(escape_marker(line));
            lines.push_str(line);
        }
        if !lines.is_empty() {
            self.add(BlockKind::Other, &lines);
        }
    }

    /// Adds text that is Markdown already.
    pub(super) fn markdown(&mut self, text: &str) {
        let text = text.trim_matches('\n');
        if !text.trim().is_empty() {
            self.add(BlockKind::Other, text);
        }
    }

    pub(super) fn item(&mut self, depth: usize, marker: &str, text: &str) {
        let text = one_line(text);
        if !text.is_empty() {
            let indent = "  ".repeat(depth.min(8));
            self.add(BlockKind::ListItem, &format!("{indent}{marker} {text}"));
        }
    }

    /// Adds a table row with its cells between `|`.
    pub(super) fn row(&mut self, cells: &[String]) {
        if cells.iter().any(|cell| !cell.trim().is_empty()) {
            let cells: Vec<_> =
                cells.iter().take(self.bounds.limits.cells).map(|cell| one_line(cell)).collect();
            self.row_line(&format!("| {} |", cells.join(" | ")));
        }
    }

    /// Adds a table row that is already one line of text.
    pub(super) fn row_line(&mut self, line: &str) {
        self.rows += 1;
        if self.rows > self.bounds.limits.rows {
            self.truncated_by.get_or_insert("rows");
            return;
        }
        self.add(BlockKind::TableRow, &format!("{}{line}", escape_marker(line)));
    }

    pub(super) fn code(&mut self, language: &str, text: &str) {
        let text = text.trim_matches('\n').trim_end();
        if !text.trim().is_empty() {
            let fence =
                if text.lines().any(|line| line.trim_start().starts_with("```")) { "~~~" } else { "```" };
            self.add(BlockKind::Other, &format!("{fence}{language}\n{text}\n{fence}"));
        }
    }

    /// Records that content was left out because of a limit.
    pub(super) fn mark_truncated(&mut self, limit: &'static str) {
        self.truncated_by.get_or_insert(limit);
    }

    /// Whether a limit is reached, so that no more text is accepted.
    pub(super) fn is_full(&mut self) -> bool {
        if self.truncated_by.is_none() && self.bounds.is_late() {
            self.truncated_by = Some("time");
        }
        self.truncated_by.is_some()
    }

    /// Appends the body of another composer with the same limits.
    pub(super) fn append(&mut self, other: Composer<'_>) {
        self.rows += other.rows;
        if !other.body.is_empty() {
            self.add(BlockKind::Other, &other.body);
        }
        self.truncated_by = self.truncated_by.or(other.truncated_by);
    }

    pub(super) fn length(&self) -> usize {
        self.body.len()
    }

    /// The body, and a warning if it is incomplete.
    pub(super) fn finish(mut self) -> (String, Option<String>) {
        if !self.body.is_empty() {
            self.body.push('\n');
        }
        let limits = &self.bounds.limits;
        let note = self.truncated_by.map(|limit| match limit {
            "text" => format!("only its first {} bytes of text are kept", limits.text_bytes),
            "rows" => format!("only its first {} rows are kept", limits.rows),
            "parts" => format!("only its first {} pages or parts are kept", limits.parts),
            "time" => format!("only what could be read in {} s is kept", limits.time.as_secs()),
            damage => damage.to_owned(),
        });
        (self.body, note)
    }

    fn add(&mut self, kind: BlockKind, text: &str) {
        if self.is_full() {
            return;
        }
        if !self.body.is_empty() {
            let together = kind == self.last_block && kind != BlockKind::Other;
            self.body.push_str(if together { "\n" } else { "\n\n" });
        }
        self.last_block = kind;
        let room = self.bounds.limits.text_bytes.saturating_sub(self.body.len());
        if text.len() > room {
            self.truncated_by = Some("text");
        }
        self.body.push_str(&text[..text.floor_char_boundary(room)]);
    }
}

/// A backslash for lines that look like a heading or a fence, so that they stay plain text.
fn escape_marker(line: &str) -> &'static str {
    let is_fence = ["```", "~~~"].iter().any(|fence| line.trim_start().starts_with(fence));
    if is_fence || atx_heading(line).is_some() { "\\" } else { "" }
}

/// Joins the words of a text with single spaces.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::bounds::ExtractLimits;
    use super::*;

    #[test]
    fn blocks_are_apart_and_lines_of_a_kind_together() {
        let bounds = Bounds::start(ExtractLimits::DEFAULT);
        let mut composer = Composer::new(&bounds);
        composer.heading(2, " A\n title ");
        composer.item(0, "-", "one");
        composer.item(1, "-", "two");
        composer.row(&["a".to_owned(), "b\nc".to_owned()]);
        composer.code("sh", "\nls\n");
        composer.paragraph("# not a heading\n``` nor code");
        let expected = "## A title\n\n- one\n  - two\n\n| a | b c |\n\n```sh\nls\n```\n\n\\# not a heading\n\\``` nor code\n";
        assert_eq!(composer.finish(), (expected.to_owned(), None));
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        let bounds = Bounds::start(ExtractLimits { text_bytes: 4, ..ExtractLimits::DEFAULT });
        let mut composer = Composer::new(&bounds);
        composer.paragraph("aéaé");
        composer.paragraph("more");
        let note = "only its first 4 bytes of text are kept".to_owned();
        assert_eq!(composer.finish(), ("aéa\n".to_owned(), Some(note)));
    }
}
