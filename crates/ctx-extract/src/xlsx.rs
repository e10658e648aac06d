//! Excel workbooks (XLSX): a heading per sheet, a line per row.

use super::archive::Archive;
use super::bounds::Bounds;
use super::composer::Composer;
use super::format::FileFormat;
use super::package::{main_part, read_properties, relationships};
use super::table::TableWriter;
use super::xml::{XmlEvent, XmlReader, attribute};
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure};
use jiff::ToSpan;
use jiff::civil::{DateTime, date};
use quick_xml::events::BytesStart;
use std::collections::HashMap;
use std::mem;

pub(super) const EXTRACTOR: Extractor =
    Extractor { accepts: |raw| raw.format == FileFormat::Xlsx, extract, needs_worker: true };

const CONTENT_TYPE: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
/// Maximum bytes kept of a cell; Excel itself allows 32,767 characters.
pub(super) const CELL_BYTES_MAX: usize = 64 << 10;
/// The last date of a workbook, as a day number.
const DAYS_MAX: f64 = 2_958_465.0;

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
    let mut archive = Archive::open(&raw.bytes, bounds)?;
    let mut extracted = ExtractedText {
        structure: TextStructure::Markdown,
        content_type: CONTENT_TYPE.to_owned(),
        ..ExtractedText::default()
    };
    read_properties(&mut archive, "docProps/core.xml", &mut extracted)?;
    let main = main_part(&mut archive, "xl/workbook.xml")?;
    if !archive.has(&main) && archive.has("xl/workbook.bin") {
        return Err(ExtractError::NotText);
    }
    let mut workbook = Workbook::default();
    let mut targets = HashMap::new();
    for relationship in relationships(&mut archive, &main)? {
        match relationship.kind.as_str() {
            "sharedStrings" => {
                workbook.shared_strings = read_shared_strings(&mut archive, &relationship.target)?
            }
            "styles" => workbook.date_styles = read_date_styles(&mut archive, &relationship.target)?,
            "worksheet" => drop(targets.insert(relationship.id, relationship.target)),
            _ => {}
        }
    }
    let mut composer = Composer::new(bounds);
    let sheets = workbook.read_sheets(&archive.required_text(&main)?, &main, bounds)?;
    for (index, (name, id)) in sheets.iter().enumerate() {
        if index >= bounds.limits.parts {
            composer.mark_truncated("parts");
        }
        let Some(part) = targets.get(id) else { continue };
        if composer.is_full() {
            break;
        }
        composer.heading(2, name);
        let text = archive.required_text(part)?;
        workbook.read_sheet(XmlReader::new(&text, part, bounds), &mut composer)?;
    }
    (extracted.body, extracted.note) = composer.finish();
    Ok(extracted)
}

/// Reads the shared strings.
fn read_shared_strings(archive: &mut Archive<'_>, part: &str) -> Result<Vec<String>, ExtractError> {
    let text = archive.required_text(part)?;
    let mut xml = XmlReader::new(&text, part, archive.bounds());
    let mut texts = Vec::new();
    let mut current = String::new();
    loop {
        match xml.next()? {
            XmlEvent::Start(tag) => match tag.local_name().into_inner() {
                "t" => current.push_str(&xml.text()?),
                // Phonetic text.
                "rPh" => xml.skip()?,
                _ => {}
            },
            XmlEvent::End(tag) if tag.local_name().into_inner() == "si" => {
                current.truncate(current.floor_char_boundary(CELL_BYTES_MAX));
                if texts.len() >= archive.bounds().limits.entries {
                    return Ok(texts);
                }
                texts.push(mem::take(&mut current));
            }
            XmlEvent::Eof => return Ok(texts),
            _ => {}
        }
    }
}

/// Reads whether each cell style shows a date.
fn read_date_styles(archive: &mut Archive<'_>, part: &str) -> Result<Vec<bool>, ExtractError> {
    let text = archive.required_text(part)?;
    let mut xml = XmlReader::new(&text, part, archive.bounds());
    let mut formats: HashMap<String, bool> = HashMap::new();
    let mut dates = Vec::new();
    let mut in_cells = false;
    let entries_max = archive.bounds().limits.entries;
    while formats.len() + dates.len() < entries_max {
        match xml.next()? {
            XmlEvent::Start(tag) => match tag.local_name().into_inner() {
                "numFmt" => {
                    let get = |name| attribute(&tag, name).unwrap_or_default();
                    formats.insert(get("numFmtId"), is_date_format(&get("formatCode")));
                }
                "cellXfs" => in_cells = true,
                "xf" if in_cells => {
                    let id = attribute(&tag, "numFmtId").unwrap_or_default();
                    let built_in = matches!(id.parse(), Ok(14..=22 | 27..=36 | 45..=47 | 50..=58));
                    dates.push(formats.get(&id).copied().unwrap_or(built_in));
                }
                _ => {}
            },
            XmlEvent::End(tag) if tag.local_name().into_inner() == "cellXfs" => in_cells = false,
            XmlEvent::Eof => break,
            _ => {}
        }
    }
    Ok(dates)
}

/// Whether a number format contains a year, month, day, hour or second outside quotes and brackets.
fn is_date_format(format: &str) -> bool {
    let mut hidden_until = None;
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        match (hidden_until, char) {
            (Some(end), char) if char == end => hidden_until = None,
            (Some(_), _) => {}
            (None, '"') => hidden_until = Some('"'),
            (None, '[') => hidden_until = Some(']'),
            (None, '\\' | '_' | '*') => drop(chars.next()),
            (None, 'y' | 'Y' | 'm' | 'M' | 'd' | 'D' | 'h' | 'H' | 's' | 'S') => return true,
            _ => {}
        }
    }
    false
}

/// Data shared by the sheets of a workbook.
#[derive(Default)]
struct Workbook {
    shared_strings: Vec<String>,
    date_styles: Vec<bool>,
    /// Whether days are counted from 1904 instead of 1900.
    uses_1904_epoch: bool,
}

impl Workbook {
    /// Names and relationship ids of the visible sheets.
    fn read_sheets(
        &mut self,
        text: &str,
        part: &str,
        bounds: &Bounds,
    ) -> Result<Vec<(String, String)>, ExtractError> {
        let mut xml = XmlReader::new(text, part, bounds);
        let mut sheets = Vec::new();
        loop {
            match xml.next()? {
                XmlEvent::Start(tag) => {
                    let get = |name| attribute(&tag, name).unwrap_or_default();
                    match tag.local_name().into_inner() {
                        // One more than the limit, so that the truncation is noticed and reported.
                        "sheet" if sheets.len() > bounds.limits.parts => {}
                        "sheet" if get("state").is_empty() || get("state") == "visible" => {
                            sheets.push((get("name"), get("r:id")));
                        }
                        "workbookPr" => self.uses_1904_epoch = matches!(&*get("date1904"), "1" | "true"),
                        _ => {}
                    }
                }
                XmlEvent::Eof => return Ok(sheets),
                _ => {}
            }
        }
    }

    fn read_sheet(&self, mut xml: XmlReader<'_>, composer: &mut Composer<'_>) -> Result<(), ExtractError> {
        let mut table = TableWriter::default();
        let mut row: Vec<String> = Vec::new();
        let cells_max = composer.bounds().limits.cells;
        while !composer.is_full() {
            match xml.next()? {
                XmlEvent::Start(tag) if tag.local_name().into_inner() == "c" => {
                    let column =
                        attribute(&tag, "r").and_then(|name| column_index(&name)).unwrap_or(row.len());
                    let value = self.cell(&tag, &mut xml)?;
                    if column < cells_max && !value.is_empty() {
                        row.resize(row.len().max(column + 1), String::new());
                        row[column] = value;
                    }
                }
                XmlEvent::End(tag) if tag.local_name().into_inner() == "row" => {
                    table.push(mem::take(&mut row), composer);
                }
                XmlEvent::Eof => break,
                _ => {}
            }
        }
        table.finish(composer);
        Ok(())
    }

    /// Reads the value of the cell that has just been opened, as Excel shows it.
    fn cell(&self, tag: &BytesStart<'_>, xml: &mut XmlReader<'_>) -> Result<String, ExtractError> {
        let kind = attribute(tag, "t").unwrap_or_default();
        let style: usize = attribute(tag, "s").and_then(|style| style.parse().ok()).unwrap_or(0);
        let mut value = String::new();
        loop {
            match xml.next()? {
                XmlEvent::Start(tag) => match tag.local_name().into_inner() {
                    "v" | "t" => value.push_str(&xml.text()?),
                    "f" | "rPh" => xml.skip()?,
                    _ => {}
                },
                XmlEvent::End(tag) if tag.local_name().into_inner() == "c" => break,
                XmlEvent::Eof => break,
                _ => {}
            }
        }
        value.truncate(value.floor_char_boundary(CELL_BYTES_MAX));
        let number = || value.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        Ok(match kind.as_str() {
            "s" => value
                .trim()
                .parse()
                .ok()
                .and_then(|index: usize| self.shared_strings.get(index))
                .cloned()
                .unwrap_or_default(),
            "b" => if value.trim() == "1" { "true" } else { "false" }.to_owned(),
            "" | "n" => match number() {
                Some(days) if self.date_styles.get(style) == Some(&true) => {
                    self.format_date(days).unwrap_or_else(|| format_number(days))
                }
                Some(number) => format_number(number),
                None => value,
            },
            _ => value,
        })
    }

    /// Formats a day number as a date, a time or both.
    fn format_date(&self, days: f64) -> Option<String> {
        if !(0.0..=DAYS_MAX).contains(&days) {
            return None;
        }
        let first = if self.uses_1904_epoch { date(1904, 1, 1) } else { date(1899, 12, 30) };
        let seconds = (days.fract() * 86_400.0).round() as i64;
        let moment: DateTime =
            first.at(0, 0, 0, 0).checked_add((days.trunc() as i64).days().seconds(seconds)).ok()?;
        Some(match (days < 1.0, seconds) {
            (true, _) => moment.time().to_string(),
            (false, 0) => moment.date().to_string(),
            (false, _) => moment.to_string().replace('T', " "),
        })
    }
}

/// Formats a number with 15 significant digits, without floating-point noise.
fn format_number(number: f64) -> String {
    format!("{number:.14e}").parse::<f64>().unwrap_or(number).to_string()
}

/// The zero-based column of a cell reference: `B7` is in column 1.
fn column_index(name: &str) -> Option<usize> {
    let letters = name.bytes().take_while(u8::is_ascii_alphabetic);
    let number =
        letters.take(4).fold(0, |sum, letter| sum * 26 + usize::from(letter.to_ascii_uppercase() - b'@'));
    number.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_dates_and_numbers_are_read_as_they_are_shown() {
        assert_eq!((column_index("A1"), column_index("AB12"), column_index("7")), (Some(0), Some(27), None));
        assert!(is_date_format("yyyy\\-mm\\-dd") && is_date_format("[$-409]h:mm AM/PM"));
        assert!(
            !is_date_format("0.00\"days\"") && !is_date_format("[Red]#,##0") && !is_date_format("General")
        );
        let workbook = Workbook::default();
        assert_eq!(workbook.format_date(45_352.0).as_deref(), Some("2024-03-01"));
        assert_eq!(workbook.format_date(45_352.5).as_deref(), Some("2024-03-01 12:00:00"));
        assert_eq!(workbook.format_date(0.25).as_deref(), Some("06:00:00"));
        assert_eq!(workbook.format_date(1e300), None);
        assert_eq!(
            (format_number(0.1 + 0.2), format_number(1e20)),
            ("0.3".to_owned(), "100000000000000000000".to_owned())
        );
    }
}
