//! CSV, TSV and variants with other separators.

use super::bounds::Bounds;
use super::composer::Composer;
use super::table::TableWriter;
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, extension, text};

pub(super) const EXTRACTOR: Extractor = Extractor { accepts, extract, needs_worker: false };

/// Bytes examined to detect the separator.
const SNIFF_BYTES: usize = 8 << 10;

fn accepts(raw: &RawDocument) -> bool {
    raw.is_text()
        && raw.matches_hints(
            &["text/csv", "text/tab-separated-values", "application/csv"],
            &["csv", "tsv", "tab"],
        )
}

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
    let text = text::decode(&raw.bytes, raw.charset.as_deref())?;
    let tabs = raw.content_type.as_deref() == Some("text/tab-separated-values")
        || matches!(&*extension(&raw.name), "tsv" | "tab");
    let separator = if tabs { '\t' } else { detect_separator(&text) };
    let mut composer = Composer::new(bounds);
    let mut table = TableWriter::default();
    let mut rows = CsvReader { rest: &text, separator, cells_max: bounds.limits.cells };
    while let Some(row) = rows.next_row() {
        table.push(row, &mut composer);
        if composer.is_full() {
            break;
        }
    }
    table.finish(&mut composer);
    let (body, note) = composer.finish();
    let content_type = if separator == '\t' { "text/tab-separated-values" } else { "text/csv" };
    Ok(ExtractedText {
        body,
        note,
        structure: TextStructure::Markdown,
        content_type: content_type.to_owned(),
        ..ExtractedText::default()
    })
}

/// The most frequent separator in the first non-empty line.
fn detect_separator(text: &str) -> char {
    let head = &text[..text.floor_char_boundary(SNIFF_BYTES)];
    let line = head.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let count = |separator: &char| line.matches(*separator).count();
    // For equal counts, `max_by_key` returns the last: the comma.
    ['|', '\t', ';', ','].into_iter().max_by_key(count).unwrap_or(',')
}

struct CsvReader<'a> {
    rest: &'a str,
    separator: char,
    cells_max: usize,
}

impl CsvReader<'_> {
    fn next_row(&mut self) -> Option<Vec<String>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut row = Vec::new();
        loop {
            let (cell, length) = self.parse_cell();
            if row.len() < self.cells_max {
                row.push(cell);
            }
            let after = &self.rest[length..];
            if let Some(next) = after.strip_prefix(self.separator) {
                self.rest = next;
                continue;
            }
            let after = after.strip_prefix('\r').unwrap_or(after);
            self.rest = after.strip_prefix('\n').unwrap_or(after);
            return Some(row);
        }
    }

    /// Parses the first cell; returns its text and its length in bytes.
    fn parse_cell(&self) -> (String, usize) {
        let ends = |char: char| char == self.separator || char == '\n' || char == '\r';
        let Some(quoted) = self.rest.strip_prefix('"') else {
            let end = self.rest.find(ends).unwrap_or(self.rest.len());
            return (self.rest[..end].to_owned(), end);
        };
        let mut cell = String::new();
        let mut chars = quoted.char_indices().peekable();
        while let Some((index, char)) = chars.next() {
            if char != '"' {
                cell.push(char);
            } else if chars.next_if(|(_, next)| *next == '"').is_some() {
                cell.push('"');
            } else {
                // Text between the closing quote and the separator belongs to the cell.
                let after = &quoted[index + 1..];
                let end = after.find(ends).unwrap_or(after.len());
                cell.push_str(&after[..end]);
                return (cell, 1 + index + 1 + end);
            }
        }
        (cell, self.rest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bounds::ExtractLimits;
    use super::super::samples::extract;
    use super::*;
    use proptest::prelude::*;

    fn body(text: &str, name: &str) -> String {
        extract(RawDocument::new(text.as_bytes().to_vec(), name, None)).unwrap().body
    }

    #[test]
    fn a_row_can_be_understood_alone() {
        let text = "Name,Rôle,2024\r\n\"Ada \"\"A\"\" L.\",\"Lead,\nplans\",7\r\nBo,,8,extra\r\n\r\n";
        let expected = "Name: Ada \"A\" L.; Rôle: Lead, plans; 2024: 7\nName: Bo; 2024: 8; extra\n";
        assert_eq!(body(text, "a.csv"), expected);
        assert_eq!(body("a;b\n1;2", "a.csv"), "a: 1; b: 2\n");
        assert_eq!(body("a\tb\n1,5\t2", "a.tsv"), "a: 1,5; b: 2\n");
    }

    #[test]
    fn rows_without_headings_stay_as_they_are() {
        assert_eq!(body("Ada,3\nBo,4\n", "a.csv"), "| Ada | 3 |\n| Bo | 4 |\n");
        assert_eq!(body("only\n", "a.csv"), "only\n");
        assert_eq!(body("a,b\n", "a.csv"), "| a | b |\n");
        assert_eq!(body("", "a.csv"), "");
    }

    #[test]
    fn rows_and_cells_are_bounded() {
        let bounds = Bounds::start(ExtractLimits { rows: 2, cells: 2, ..ExtractLimits::DEFAULT });
        let raw = RawDocument::new(b"1,2,3\n4,5,6\n7,8,9\n".to_vec(), "a.csv", None);
        let extracted = super::extract(&raw, &bounds).unwrap();
        assert_eq!(extracted.body, "| 1 | 2 |\n| 4 | 5 |\n");
        assert_eq!(extracted.note.as_deref(), Some("only its first 2 rows are kept"));
    }

    proptest! {
        #[test]
        fn what_is_quoted_comes_back(rows in prop::collection::vec(prop::collection::vec("[a,\"\r\n é]{0,6}", 1..4), 1..4)) {
            let quoted = |cell: &String| format!("\"{}\"", cell.replace('"', "\"\""));
            let lines = rows.iter().map(|row| row.iter().map(quoted).collect::<Vec<_>>().join(","));
            let text = lines.collect::<Vec<_>>().join("\n");
            let mut read = CsvReader { rest: &text, separator: ',', cells_max: 10 };
            let back: Vec<_> = std::iter::from_fn(|| read.next_row()).collect();
            prop_assert_eq!(back, rows);
        }
    }
}
