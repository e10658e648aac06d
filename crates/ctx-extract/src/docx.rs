//! Word documents (DOCX).

use super::archive::Archive;
use super::bounds::Bounds;
use super::composer::Composer;
use super::drawing::{compose_drawing, is_drawing};
use super::format::FileFormat;
use super::package::{main_part, read_properties, relationships};
use super::xml::{XmlEvent, XmlReader, attribute};
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, markdown};
use quick_xml::events::BytesStart;
use std::collections::HashMap;
use std::mem;

pub(super) const EXTRACTOR: Extractor =
    Extractor { accepts: |raw| raw.format == FileFormat::Docx, extract, needs_worker: true };

const CONTENT_TYPE: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
    let mut archive = Archive::open(&raw.bytes, bounds)?;
    let mut extracted = ExtractedText {
        structure: TextStructure::Markdown,
        content_type: CONTENT_TYPE.to_owned(),
        ..ExtractedText::default()
    };
    read_properties(&mut archive, "docProps/core.xml", &mut extracted)?;
    let main = main_part(&mut archive, "word/document.xml")?;
    let mut styles = HashMap::new();
    let (mut notes, mut drawings) = (Vec::new(), Vec::new());
    for relationship in relationships(&mut archive, &main)? {
        match relationship.kind.as_str() {
            "styles" => styles = read_styles(&mut archive, &relationship.target)?,
            "footnotes" | "endnotes" => notes.push(relationship.target),
            _ if is_drawing(&relationship) => drawings.push(relationship.target),
            _ => {}
        }
    }
    let mut composer = Composer::new(bounds);
    let mut title = None;
    for part in [main].into_iter().chain(notes) {
        let text = archive.required_text(&part)?;
        let mut walker = DocxWalker::new(&styles, &mut composer, &mut title);
        walker.run(XmlReader::new(&text, &part, bounds))?;
    }
    for part in drawings {
        compose_drawing(&mut archive, &part, &mut composer);
    }
    let (body, note) = composer.finish();
    // A visible title is more reliable than the title property.
    extracted.title = title.or(extracted.title).or_else(|| markdown::title(&body));
    Ok(ExtractedText { body, note, ..extracted })
}

/// The role of paragraphs with a style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ParagraphStyle {
    is_title: bool,
    level: Option<usize>,
    is_item: bool,
}

/// Reads the styles by id. Built-in style names are English in every language of the program.
fn read_styles(
    archive: &mut Archive<'_>,
    part: &str,
) -> Result<HashMap<String, ParagraphStyle>, ExtractError> {
    let mut styles = HashMap::new();
    let Some(text) = archive.text(part)? else { return Ok(styles) };
    let mut xml = XmlReader::new(&text, part, archive.bounds());
    let mut current: Option<(String, ParagraphStyle)> = None;
    loop {
        match xml.next()? {
            XmlEvent::Start(tag) => match (tag.local_name().into_inner(), &mut current) {
                ("style", _) => {
                    current = attribute(&tag, "styleId").map(|id| (id, ParagraphStyle::default()))
                }
                ("name", Some((_, style))) => {
                    let name = attribute(&tag, "val").unwrap_or_default().to_ascii_lowercase();
                    style.is_title = name == "title";
                    style.is_item |= name.starts_with("list bullet") || name.starts_with("list number");
                    let level = name.strip_prefix("heading ").and_then(|level| level.parse().ok());
                    style.level = level.or(style.level);
                }
                ("outlineLvl", Some((_, style))) => style.level = style.level.or_else(|| outline_level(&tag)),
                ("numPr", Some((_, style))) => style.is_item = true,
                _ => {}
            },
            XmlEvent::End(tag) if tag.local_name().into_inner() == "style" => {
                let has_room = styles.len() < archive.bounds().limits.entries;
                styles.extend(current.take().filter(|_| has_room));
            }
            XmlEvent::Eof => return Ok(styles),
            _ => {}
        }
    }
}

/// The heading level from a zero-based outline level; level nine is body text.
fn outline_level(tag: &BytesStart<'_>) -> Option<usize> {
    let level: usize = attribute(tag, "val")?.parse().ok()?;
    (level < 9).then_some(level + 1)
}

#[derive(Default)]
struct OpenParagraph {
    text: String,
    style: ParagraphStyle,
    depth: usize,
}

#[derive(Default)]
struct OpenTable {
    row: Vec<String>,
    cell: String,
}

/// The state of the walk over a document's elements.
struct DocxWalker<'a, 'b> {
    styles: &'a HashMap<String, ParagraphStyle>,
    composer: &'a mut Composer<'b>,
    title: &'a mut Option<String>,
    /// The open paragraphs, outermost first; more than one inside a text box.
    paragraphs: Vec<OpenParagraph>,
    tables: Vec<OpenTable>,
    in_text: bool,
}

impl<'a, 'b> DocxWalker<'a, 'b> {
    fn new(
        styles: &'a HashMap<String, ParagraphStyle>,
        composer: &'a mut Composer<'b>,
        title: &'a mut Option<String>,
    ) -> Self {
        Self { styles, composer, title, paragraphs: Vec::new(), tables: Vec::new(), in_text: false }
    }

    fn run(&mut self, mut xml: XmlReader<'_>) -> Result<(), ExtractError> {
        while !self.composer.is_full() {
            match xml.next()? {
                XmlEvent::Start(tag) => match tag.local_name().into_inner() {
                    // Fallbacks for programs without support for the original content; moved text; separators of notes.
                    "Fallback" | "moveFrom" | "separator" | "continuationSeparator" => xml.skip()?,
                    name => self.open(name, &tag),
                },
                XmlEvent::End(tag) => self.close(tag.local_name().into_inner()),
                XmlEvent::Text(text) if self.in_text => self.text(&text),
                XmlEvent::Text(_) => {}
                XmlEvent::Eof => break,
            }
        }
        Ok(())
    }

    fn open(&mut self, name: &str, tag: &BytesStart<'_>) {
        let value = || attribute(tag, "val").unwrap_or_default();
        match name {
            "p" => self.paragraphs.push(OpenParagraph::default()),
            "t" => self.in_text = true,
            "tab" => self.text("\t"),
            "br" | "cr" => self.text("\n"),
            "noBreakHyphen" => self.text("-"),
            "tbl" => self.tables.push(OpenTable::default()),
            _ => {}
        }
        let Some(paragraph) = self.paragraphs.last_mut() else { return };
        match name {
            "pStyle" => paragraph.style = self.styles.get(&value()).copied().unwrap_or_default(),
            "outlineLvl" => paragraph.style.level = outline_level(tag),
            "numPr" => paragraph.style.is_item = true,
            "numId" if value() == "0" => paragraph.style.is_item = false,
            "ilvl" => paragraph.depth = value().parse().unwrap_or(0),
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "t" => self.in_text = false,
            "p" => self.end_paragraph(),
            "tc" => {
                if let Some(table) = self.tables.last_mut() {
                    let cell = mem::take(&mut table.cell);
                    if table.row.len() < self.composer.bounds().limits.cells {
                        table.row.push(cell);
                    }
                }
            }
            "tr" => {
                let row = self.tables.last_mut().map(|table| mem::take(&mut table.row)).unwrap_or_default();
                match self.tables.len() {
                    0 => {}
                    1 => self.composer.row(&row),
                    // A nested table becomes part of the text of its cell.
                    inner => push_word(&mut self.tables[inner - 2].cell, &row.join(" ")),
                }
            }
            "tbl" => drop(self.tables.pop()),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(paragraph) = self.paragraphs.last_mut() {
            paragraph.text.push_str(text);
        }
    }

    fn end_paragraph(&mut self) {
        let Some(OpenParagraph { text, style, depth }) = self.paragraphs.pop() else { return };
        if let Some(table) = self.tables.last_mut() {
            push_word(&mut table.cell, &text);
            return;
        }
        match style {
            _ if text.trim().is_empty() => {}
            ParagraphStyle { is_title: true, .. } => {
                self.composer.heading(1, &text);
                self.title.get_or_insert_with(|| text.trim().to_owned());
            }
            // One level lower if the document has a title.
            ParagraphStyle { level: Some(level), .. } => {
                self.composer.heading(level + usize::from(self.title.is_some()), &text);
            }
            ParagraphStyle { is_item: true, .. } => self.composer.item(depth, "-", &text),
            _ => self.composer.paragraph(&text),
        }
    }
}

fn push_word(text: &mut String, word: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(word);
}
