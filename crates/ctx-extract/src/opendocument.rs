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
        paragraphs: Vec::new(),
        asides: Vec::new(),
        lists: 0,
        parts: 0,
        tables: Vec::new(),
    };
    walker.run(XmlReader::new(&text, "content.xml", bounds))?;
    (extracted.body, extracted.note) = composer.finish();
    if !is_sheet {
        extracted.title = extracted.title.or_else(|| markdown::title(&extracted.body));
    }
    Ok(extracted)
}

#[derive(Default)]
struct OpenParagraph {
    text: String,
    heading: Option<usize>,
    /// Number of tables around it.
    tables: usize,
    /// Number of lists around it.
    lists: usize,
}

#[derive(Default)]
struct OpenTable {
    /// Converts the rows of a sheet.
    writer: TableWriter,
    row: Vec<String>,
    cell: String,
    /// Number of repetitions of the current cell.
    cell_repetitions: usize,
}

struct OdfWalker<'a, 'b> {
    composer: &'a mut Composer<'b>,
    is_sheet: bool,
    /// The open paragraphs, outermost first; more than one inside a note or a text box.
    paragraphs: Vec<OpenParagraph>,
    /// Paragraphs of the notes and text boxes of the open paragraph, which follow it.
    asides: Vec<OpenParagraph>,
    lists: usize,
    /// Number of sheets and slides so far.
    parts: usize,
    /// The open tables, outermost first.
    tables: Vec<OpenTable>,
}

impl OdfWalker<'_, '_> {
    fn run(&mut self, mut xml: XmlReader<'_>) -> Result<(), ExtractError> {
        while !self.composer.is_full() {
            match xml.next()? {
                XmlEvent::Start(tag) => match tag.local_name().into_inner() {
                    // Comments, deleted text, styles, scripts and the numbers of notes.
                    "annotation" | "tracked-changes" | "automatic-styles" | "styles" | "scripts"
                    | "note-citation" => xml.skip()?,
                    name => self.open(name, &tag),
                },
                XmlEvent::Text(text) => self.text(&text),
                XmlEvent::End(tag) => self.close(tag.local_name().into_inner()),
                XmlEvent::Eof => break,
            }
        }
        Ok(())
    }

    fn open(&mut self, name: &str, tag: &BytesStart<'_>) {
        let number = |name| attribute(tag, name).and_then(|value| value.parse::<usize>().ok());
        match name {
            "h" | "p" => self.paragraphs.push(OpenParagraph {
                text: String::new(),
                heading: (name == "h").then(|| number("outline-level").unwrap_or(1)),
                tables: self.tables.len(),
                lists: self.lists,
            }),
            "s" => self.text(" "),
            "tab" => self.text("\t"),
            "line-break" => self.text("\n"),
            "list" => self.lists += 1,
            "page" if attribute(tag, "master-page-name").is_some() => {
                self.begin_part(&attribute(tag, "draw:name").unwrap_or_default());
            }
            "table" => {
                self.tables.push(OpenTable::default());
                if self.is_sheet && self.tables.len() == 1 {
                    self.begin_part(&attribute(tag, "table:name").unwrap_or_default());
                }
            }
            "table-cell" | "covered-table-cell" => {
                // Elsewhere cells are not repeated, and nested tables could multiply a text.
                let may_repeat = self.is_sheet && self.tables.len() == 1;
                let repetitions = number("number-columns-repeated").filter(|_| may_repeat);
                if let Some(table) = self.tables.last_mut() {
                    table.cell_repetitions = repetitions.unwrap_or(1);
                    table.cell.clear();
                }
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

    /// Adds text to the open paragraph; in a table, as much as a cell may hold.
    fn text(&mut self, text: &str) {
        let Some(paragraph) = self.paragraphs.last_mut() else { return };
        let room = match paragraph.tables {
            0 => text.len(),
            _ => CELL_BYTES_MAX.saturating_sub(paragraph.text.len()),
        };
        paragraph.text.push_str(&text[..text.floor_char_boundary(room)]);
    }

    fn close(&mut self, name: &str) {
        match name {
            "h" | "p" => self.end_paragraph(),
            "list" => self.lists = self.lists.saturating_sub(1),
            "table-cell" | "covered-table-cell" => {
                let Some(table) = self.tables.last_mut() else { return };
                let cell = mem::take(&mut table.cell);
                let room = self.composer.bounds().limits.cells.saturating_sub(table.row.len());
                for _ in 0..table.cell_repetitions.min(room) {
                    table.row.push(cell.clone());
                }
            }
            "table-row" => self.end_row(),
            "table" => {
                if let Some(table) = self.tables.pop() {
                    table.writer.finish(self.composer);
                }
            }
            _ => {}
        }
    }

    fn end_row(&mut self) {
        match self.tables.as_mut_slice() {
            [] => {}
            [table] if self.is_sheet => table.writer.push(mem::take(&mut table.row), self.composer),
            [table] => self.composer.row(&mem::take(&mut table.row)),
            // A nested table becomes part of the text of its cell.
            [.., outer, table] => outer.push(&mem::take(&mut table.row).join(" ")),
        }
    }

    fn end_paragraph(&mut self) {
        let Some(paragraph) = self.paragraphs.pop() else { return };
        let tables = paragraph.tables;
        if let Some(outer) = self.paragraphs.last().filter(|outer| outer.tables == tables) {
            let lists = paragraph.lists.saturating_sub(outer.lists);
            self.asides.push(OpenParagraph { lists, ..paragraph });
            return;
        }
        self.compose(paragraph);
        // Those of a paragraph around this table wait for its end.
        let first = self.asides.iter().position(|aside| aside.tables == tables);
        let asides = self.asides.split_off(first.unwrap_or(self.asides.len()));
        asides.into_iter().for_each(|aside| self.compose(aside));
    }

    fn compose(&mut self, paragraph: OpenParagraph) {
        let OpenParagraph { text, heading, lists, .. } = paragraph;
        match (self.tables.last_mut(), heading) {
            (Some(table), _) => table.push(&text),
            (None, Some(level)) => self.composer.heading(level, &text),
            (None, None) if lists > 0 => self.composer.item(lists - 1, "-", &text),
            (None, None) => self.composer.paragraph(&text),
        }
    }
}

impl OpenTable {
    /// Adds a paragraph to the open cell, as much as a cell may hold.
    fn push(&mut self, text: &str) {
        let room = CELL_BYTES_MAX.saturating_sub(self.cell.len());
        if !self.cell.is_empty() && room > 0 {
            self.cell.push(' ');
        }
        self.cell.push_str(&text[..text.floor_char_boundary(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::archive::tests::packed;
    use super::super::samples;
    use super::*;

    /// The body of a text document with this content.
    fn body(content: &str) -> String {
        let content =
            format!("<o:body xmlns:o='o' xmlns:text='t' xmlns:table='b' xmlns:draw='d'>{content}</o:body>");
        let mimetype = format!("{CONTENT_TYPE}text");
        let bytes = packed(&[
            ("mimetype", mimetype.as_bytes()),
            ("META-INF/manifest.xml", b"<m/>"),
            ("content.xml", content.as_bytes()),
        ]);
        samples::extract(RawDocument::new(bytes, "a.odt", None)).unwrap().body
    }

    #[test]
    fn notes_and_text_boxes_follow_their_paragraph() {
        let note = |text: &str| {
            format!(
                "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>{text}</text:p>\
                 <text:list><text:list-item><text:p>item</text:p></text:list-item></text:list></text:note-body></text:note>"
            )
        };
        let text_box = "<draw:frame><draw:text-box><text:h text:outline-level='3'>box</text:h></draw:text-box></draw:frame>";
        let content = format!(
            "<text:h text:outline-level='2'>Tugs{}</text:h><text:p>before{text_box}{}, after</text:p>",
            note("first"),
            note("second")
        );
        let expected = "## Tugs\n\nfirst\n\n- item\n\nbefore, after\n\n### box\n\nsecond\n\n- item\n";
        assert_eq!(body(&content), expected);
    }

    #[test]
    fn a_nested_table_is_part_of_its_cell() {
        let cell = |content: &str| format!("<table:table-cell>{content}</table:table-cell>");
        let table =
            |cells: &str| format!("<table:table><table:table-row>{cells}</table:table-row></table:table>");
        let inner = table(&(cell("<text:p>b</text:p>") + &cell("<text:p>c</text:p>")));
        let note = "<text:note><text:note-body><text:p>f</text:p></text:note-body></text:note>";
        let outer = table(
            &(cell(&format!("<text:p>a</text:p>{inner}<text:p>d</text:p>"))
                + &cell(&format!("<text:p>e{note}</text:p>"))),
        );
        assert_eq!(body(&outer), "| a b c d | e f |\n");
        let boxed = format!(
            "<text:p>x<draw:frame><draw:text-box>{outer}</draw:text-box></draw:frame>{note}</text:p>"
        );
        assert_eq!(body(&boxed), "| a b c d | e f |\n\nx\n\nf\n");
    }
}
