//! Table rows as self-contained lines: each cell with the heading of its column.

use super::composer::{Composer, one_line};

/// Maximum bytes of a column heading.
const HEADING_BYTES_MAX: usize = 80;

/// Converts the rows of one sheet as they arrive.
#[derive(Default)]
pub(super) struct TableWriter {
    headings: Option<Vec<String>>,
    /// Whether a data row has been written, so that no heading row can follow.
    has_data_rows: bool,
}

impl TableWriter {
    pub(super) fn push(&mut self, row: Vec<String>, composer: &mut Composer<'_>) {
        let row: Vec<String> =
            row.iter().take(composer.bounds().limits.cells).map(|cell| one_line(cell)).collect();
        let filled = row.iter().filter(|cell| !cell.is_empty()).count();
        match &self.headings {
            _ if filled == 0 => {}
            Some(headings) => {
                let cells = row.iter().enumerate().filter(|(_, cell)| !cell.is_empty());
                let named = cells.map(|(column, cell)| match headings.get(column).map(String::as_str) {
                    None | Some("") => cell.clone(),
                    Some(heading) => format!("{heading}: {cell}"),
                });
                composer.row_line(&named.collect::<Vec<_>>().join("; "));
                self.has_data_rows = true;
            }
            // A row with a single cell is a title above the table.
            None if filled == 1 => {
                composer.row_line(row.iter().find(|cell| !cell.is_empty()).map_or("", |cell| cell))
            }
            None if !self.has_data_rows && row.iter().all(|cell| is_heading(cell)) => {
                self.headings = Some(row)
            }
            None => {
                composer.row(&row);
                self.has_data_rows = true;
            }
        }
    }

    pub(super) fn finish(self, composer: &mut Composer<'_>) {
        if let Some(headings) = self.headings
            && !self.has_data_rows
        {
            composer.row(&headings);
        }
    }
}

/// Whether a cell can be a column heading: a word or a year, but no other number.
fn is_heading(cell: &str) -> bool {
    let is_year = cell.len() == 4
        && cell.bytes().all(|byte| byte.is_ascii_digit())
        && (cell.starts_with("19") || cell.starts_with("20"));
    let is_number = cell.starts_with(|char: char| char.is_ascii_digit() || "+-.$€£".contains(char));
    cell.len() <= HEADING_BYTES_MAX && (is_year || !is_number)
}
