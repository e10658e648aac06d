//! OpenDocument texts, spreadsheets and presentations, which share one XML vocabulary.

use super::archive::Archive;
use super::bounds::Bounds;
use super::composer::Composer;
use super::format::FileFormat;
use super::package::read_properties;
use super::table::TableWriter;
use super::xlsx::CELL_BYTES_MAX;
use super::xml::{XmlEvent, XmlReader, attribute};
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, failed, markdown};
use quick_xml::events::BytesStart;
use std::mem;

pub(super) const EXTRACTOR: Extractor =
    Extractor { accepts: |raw| raw.format == FileFormat::OpenDocument, extract, needs_worker: true };

const CONTENT_TYPE: &str = "application/vnd.oasis.opendocument.";

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
    let mut archive = Archive::open(&raw.bytes, bounds)?;
    if archive.text("META-INF/manifest.xml")?.is_some_and(|manifest| manifest.contains("encryption-data")) {
        return failed("it is protected by a password");
    }
    let mut extracted = ExtractedText { structure: TextStructure::Markdown, ..ExtractedText::default() };
    read_properties(&mut archive, "meta.xml", &mut extracted)?;
    let declared = archive.text("mimetype")?.filter(|declared| declared.starts_with(CONTENT_TYPE));
    extracted.content_type =
        declared.map_or_else(|| format!("{CONTENT_TYPE}text"), |declared| declared.trim().to_owned());
    let text = archive.required_text("content.xml")?;
    let mut composer = Composer::new(bounds);
    let is_sheet = extracted.content_type.contains("spreadsheet");
    let mut walker = OdfWalker {
        composer: &mut composer,
        is_sheet,
        line: String::new(),
        heading: None,
        paragraphs: 0,
        lists: 0,
        parts: 0,
        table: TableWriter::default(),
        tables: 0,
        row: Vec::new(),
        cell_repetitions: 1,
    };
    walker.run(XmlReader::new(&text, "content.xml", bounds))?;
    (extracted.body, extracted.note) = composer.finish();
    if !is_sheet {
        extracted.title = extracted.title.or_else(|| markdown::title(&extracted.body));
    }
    Ok(extracted)
}

struct OdfWalker<'a, 'b> {
    composer: &'a mut Composer<'b>,
    is_sheet: bool,
    line: String,
    heading: Option<usize>,
    paragraphs: usize,
    lists: usize,
    /// Number of sheets and slides so far.
    parts: usize,
    table: TableWriter,
    tables: usize,
    row: Vec<String>,
    /// Number of repetitions of the current cell.
    cell_repetitions: usize,
}

impl OdfWalker<'_, '_> {
    fn run(&mut self, mut xml: XmlReader<'_>) -> Result<(), ExtractError> {
        while !self.composer.is_full() {
            match xml.next()? {
                XmlEvent::Start(tag) => match tag.local_name().into_inner() {
                    // Comments, deleted text, styles and scripts.
                    "annotation" | "tracked-changes" | "automatic-styles" | "styles" | "scripts" => {
                        xml.skip()?
                    }
                    name => self.open(name, &tag),
                },
                XmlEvent::Text(text) if self.paragraphs > 0 => {
                    let room = CELL_BYTES_MAX.saturating_sub(self.line.len());
                    let length = if self.tables > 0 { text.floor_char_boundary(room) } else { text.len() };
                    self.line.push_str(&text[..length]);
                }
                XmlEvent::End(tag) => self.close(tag.local_name().into_inner()),
                XmlEvent::Text(_) => {}
                XmlEvent::Eof => break,
            }
        }
        Ok(())
    }

    fn open(&mut self, name: &str, tag: &BytesStart<'_>) {
        let number = |name| attribute(tag, name).and_then(|value| value.parse::<usize>().ok());
        match name {
            "h" | "p" => {
                self.paragraphs += 1;
                self.heading = (name == "h").then(|| number("outline-level").unwrap_or(1));
            }
            "s" => self.line.push(' '),
            "tab" | "line-break" => self.line.push(if name == "tab" { '\t' } else { '\n' }),
            "list" => self.lists += 1,
            "page" if attribute(tag, "master-page-name").is_some() => {
                self.begin_part(&attribute(tag, "draw:name").unwrap_or_default());
            }
            "table" => {
                self.tables += 1;
                self.table = TableWriter::default();
                if self.is_sheet && self.tables == 1 {
                    self.begin_part(&attribute(tag, "table:name").unwrap_or_default());
                }
            }
            "table-cell" | "covered-table-cell" => {
                self.cell_repetitions = number("number-columns-repeated").unwrap_or(1);
                self.line.clear();
            }
            _ => {}
        }
    }

    fn begin_part(&mut self, name: &str) {
        self.parts += 1;
        if self.parts > self.composer.bounds().limits.parts {
            self.composer.mark_truncated("parts");
        }
        self.composer.heading(2, name);
    }

    fn close(&mut self, name: &str) {
        match name {
            "h" | "p" => {
                self.paragraphs = self.paragraphs.saturating_sub(1);
                self.end_paragraph();
            }
            "list" => self.lists = self.lists.saturating_sub(1),
            "table-cell" | "covered-table-cell" => {
                let cell = mem::take(&mut self.line);
                let room = self.composer.bounds().limits.cells.saturating_sub(self.row.len());
                for _ in 0..self.cell_repetitions.min(room) {
                    self.row.push(cell.clone());
                }
            }
            "table-row" => {
                let row = mem::take(&mut self.row);
                match self.is_sheet {
                    true => self.table.push(row, self.composer),
                    false => self.composer.row(&row),
                }
            }
            "table" => {
                self.tables = self.tables.saturating_sub(1);
                mem::take(&mut self.table).finish(self.composer);
            }
            _ => {}
        }
    }

    fn end_paragraph(&mut self) {
        if self.tables > 0 {
            self.line.push(' ');
            return;
        }
        let line = mem::take(&mut self.line);
        match self.heading.take() {
            Some(level) => self.composer.heading(level, &line),
            None if self.lists > 0 => self.composer.item(self.lists - 1, "-", &line),
            None => self.composer.paragraph(&line),
        }
    }
}
