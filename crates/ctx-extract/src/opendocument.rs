//! OpenDocument texts, spreadsheets and presentations, which share one XML vocabulary.

use super::archive::Archive;
use super::bounds::Bounds;
use super::composer::Composer;
use super::form::Form;
use super::package::properties;
use super::table::Table;
use super::xlsx::CELL_BYTES_MAX;
use super::xml::{Node, Xml, attribute};
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, failed, markdown};
use quick_xml::events::BytesStart;
use std::mem;

pub(super) const EXTRACTOR: Extractor =
    Extractor { accepts: |raw| raw.form == Form::OpenDocument, extract, needs_worker: true };

const CONTENT_TYPE: &str = "application/vnd.oasis.opendocument.";

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
    let mut archive = Archive::open(&raw.bytes, bounds)?;
    if archive.text("META-INF/manifest.xml")?.is_some_and(|manifest| manifest.contains("encryption-data")) {
        return failed("it is protected by a password");
    }
    let mut extracted = ExtractedText { structure: TextStructure::Markdown, ..ExtractedText::default() };
    properties(&mut archive, "meta.xml", &mut extracted)?;
    let said = archive.text("mimetype")?.filter(|said| said.starts_with(CONTENT_TYPE));
    extracted.content_type =
        said.map_or_else(|| format!("{CONTENT_TYPE}text"), |said| said.trim().to_owned());
    let text = archive.required("content.xml")?;
    let mut composer = Composer::new(bounds);
    let is_sheet = extracted.content_type.contains("spreadsheet");
    let mut walk = Walk {
        composer: &mut composer,
        is_sheet,
        line: String::new(),
        heading: None,
        paragraphs: 0,
        lists: 0,
        parts: 0,
        table: Table::default(),
        tables: 0,
        row: Vec::new(),
        repeated: 1,
    };
    walk.run(Xml::new(&text, "content.xml", bounds))?;
    (extracted.body, extracted.note) = composer.finish();
    if !is_sheet {
        extracted.title = extracted.title.or_else(|| markdown::title(&extracted.body));
    }
    Ok(extracted)
}

struct Walk<'a, 'b> {
    composer: &'a mut Composer<'b>,
    is_sheet: bool,
    line: String,
    heading: Option<usize>,
    paragraphs: usize,
    lists: usize,
    /// Number of sheets and slides so far.
    parts: usize,
    table: Table,
    tables: usize,
    row: Vec<String>,
    /// Number of repetitions of the current cell.
    repeated: usize,
}

impl Walk<'_, '_> {
    fn run(&mut self, mut xml: Xml<'_>) -> Result<(), ExtractError> {
        while !self.composer.is_full() {
            match xml.next()? {
                Node::Open(tag) => match tag.local_name().into_inner() {
                    // Comments, deleted text, styles and scripts.
                    "annotation" | "tracked-changes" | "automatic-styles" | "styles" | "scripts" => {
                        xml.skip()?
                    }
                    name => self.open(name, &tag),
                },
                Node::Text(text) if self.paragraphs > 0 => {
                    let room = CELL_BYTES_MAX.saturating_sub(self.line.len());
                    let kept = if self.tables > 0 { text.floor_char_boundary(room) } else { text.len() };
                    self.line.push_str(&text[..kept]);
                }
                Node::Close(tag) => self.close(tag.local_name().into_inner()),
                Node::Text(_) => {}
                Node::End => break,
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
                self.table = Table::default();
                if self.is_sheet && self.tables == 1 {
                    self.begin_part(&attribute(tag, "table:name").unwrap_or_default());
                }
            }
            "table-cell" | "covered-table-cell" => {
                self.repeated = number("number-columns-repeated").unwrap_or(1);
                self.line.clear();
            }
            _ => {}
        }
    }

    fn begin_part(&mut self, name: &str) {
        self.parts += 1;
        if self.parts > self.composer.bounds().limits.parts {
            self.composer.cut("parts");
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
                for _ in 0..self.repeated.min(room) {
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
