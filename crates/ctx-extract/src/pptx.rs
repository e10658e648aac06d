//! PowerPoint presentations (PPTX): a heading per slide, with its text, tables, charts and notes.

use super::archive::Archive;
use super::bounds::Bounds;
use super::composer::{Composer, one_line};
use super::drawing::{compose_drawing, is_drawing};
use super::format::FileFormat;
use super::package::{main_part, read_properties, relationships};
use super::xml::{XmlEvent, XmlReader, attribute};
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure};
use quick_xml::events::BytesStart;
use std::mem;

pub(super) const EXTRACTOR: Extractor =
    Extractor { accepts: |raw| raw.format == FileFormat::Pptx, extract, needs_worker: true };

const CONTENT_TYPE: &str = "application/vnd.openxmlformats-officedocument.presentationml.presentation";

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
    let mut archive = Archive::open(&raw.bytes, bounds)?;
    let mut extracted = ExtractedText {
        structure: TextStructure::Markdown,
        content_type: CONTENT_TYPE.to_owned(),
        ..ExtractedText::default()
    };
    read_properties(&mut archive, "docProps/core.xml", &mut extracted)?;
    let main = main_part(&mut archive, "ppt/presentation.xml")?;
    let mut composer = Composer::new(bounds);
    let mut first_title = None;
    for (index, part) in slides(&mut archive, &main)?.iter().enumerate() {
        if index >= bounds.limits.parts {
            composer.mark_truncated("parts");
        }
        if composer.is_full() {
            break;
        }
        let slide = read_slide(&mut archive, part)?;
        let title = slide.title.unwrap_or_else(|| format!("Slide {}", index + 1));
        composer.heading(2, &title);
        slide.blocks.iter().for_each(|block| block.compose(&mut composer));
        if index == 0 {
            first_title = Some(one_line(&title));
        }
        let relationships = relationships(&mut archive, part)?;
        for drawing in relationships.iter().filter(|relationship| is_drawing(relationship)) {
            compose_drawing(&mut archive, &drawing.target, &mut composer);
        }
        let notes = relationships.iter().find(|relationship| relationship.kind == "notesSlide");
        if let Some(notes) = notes {
            for block in read_slide(&mut archive, &notes.target)?.blocks {
                block.into_prose().compose(&mut composer);
            }
        }
    }
    let (body, note) = composer.finish();
    // The first slide is the title page; the title property is often filled in by the program.
    extracted.title = first_title.filter(|title| title != "Slide 1").or(extracted.title);
    Ok(ExtractedText { body, note, ..extracted })
}

/// The parts of the slides, in the order of presentation.
fn slides(archive: &mut Archive<'_>, main: &str) -> Result<Vec<String>, ExtractError> {
    let relationships = relationships(archive, main)?;
    let text = archive.required_text(main)?;
    let mut xml = XmlReader::new(&text, main, archive.bounds());
    let mut slides = Vec::new();
    loop {
        match xml.next()? {
            // One more than the limit, so that the truncation is noticed and reported.
            XmlEvent::Start(tag)
                if tag.local_name().into_inner() == "sldId"
                    && slides.len() <= archive.bounds().limits.parts =>
            {
                let id = attribute(&tag, "r:id").unwrap_or_default();
                slides.extend(
                    relationships
                        .iter()
                        .find(|relationship| relationship.id == id)
                        .map(|found| found.target.clone()),
                );
            }
            XmlEvent::Eof => return Ok(slides),
            _ => {}
        }
    }
}

enum SlideBlock {
    Paragraph(String),
    Item(usize, String),
    Row(Vec<String>),
}

impl SlideBlock {
    /// Converts items to paragraphs, because the body of speaker notes is prose.
    fn into_prose(self) -> Self {
        match self {
            Self::Item(_, text) => Self::Paragraph(text),
            other => other,
        }
    }

    fn compose(&self, composer: &mut Composer<'_>) {
        match self {
            Self::Paragraph(text) => composer.paragraph(text),
            Self::Item(depth, text) => composer.item(*depth, "-", text),
            Self::Row(cells) => composer.row(cells),
        }
    }
}

#[derive(Default)]
struct Slide {
    title: Option<String>,
    blocks: Vec<SlideBlock>,
}

/// The role of a shape on a slide.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ShapeRole {
    #[default]
    Other,
    Title,
    Body,
    /// Date, slide number, header and footer: repeated on every slide.
    Repeated,
}

fn read_slide(archive: &mut Archive<'_>, part: &str) -> Result<Slide, ExtractError> {
    let text = archive.required_text(part)?;
    let mut xml = XmlReader::new(&text, part, archive.bounds());
    let mut slide = Slide::default();
    let mut role = ShapeRole::Other;
    let (mut line, mut depth, mut in_text) = (String::new(), 0, false);
    let mut row: Option<Vec<String>> = None;
    let limits = archive.bounds().limits;
    loop {
        if slide.blocks.len() >= limits.rows {
            return Ok(slide);
        }
        match xml.next()? {
            XmlEvent::Start(tag) => match tag.local_name().into_inner() {
                "Fallback" => xml.skip()?,
                "sp" | "graphicFrame" => role = ShapeRole::Other,
                "ph" => role = shape_role(&tag),
                "pPr" => depth = attribute(&tag, "lvl").and_then(|level| level.parse().ok()).unwrap_or(0),
                "t" => in_text = true,
                "br" => line.push('\n'),
                "tr" => row = Some(Vec::new()),
                "tc" => {
                    let row = row.iter_mut().filter(|row| row.len() < limits.cells);
                    row.for_each(|row| row.push(String::new()));
                }
                _ => {}
            },
            XmlEvent::Text(text) if in_text => line.push_str(&text),
            XmlEvent::End(tag) => match tag.local_name().into_inner() {
                "t" => in_text = false,
                "p" => {
                    let (text, depth) = (mem::take(&mut line), mem::take(&mut depth));
                    let cell = row.as_mut().and_then(|row| row.last_mut());
                    match (cell, role) {
                        (Some(cell), _) => {
                            cell.push(' ');
                            cell.push_str(&text);
                        }
                        _ if text.trim().is_empty() => {}
                        (None, ShapeRole::Title) => {
                            let title = slide.title.get_or_insert_default();
                            title.push(' ');
                            title.push_str(&text);
                        }
                        (None, ShapeRole::Body) => slide.blocks.push(SlideBlock::Item(depth, text)),
                        (None, ShapeRole::Other) => slide.blocks.push(SlideBlock::Paragraph(text)),
                        (None, ShapeRole::Repeated) => {}
                    }
                }
                "tr" => slide.blocks.extend(row.take().map(SlideBlock::Row)),
                _ => {}
            },
            XmlEvent::Text(_) => {}
            XmlEvent::Eof => return Ok(slide),
        }
    }
}

fn shape_role(tag: &BytesStart<'_>) -> ShapeRole {
    match attribute(tag, "type").as_deref() {
        Some("title" | "ctrTitle") => ShapeRole::Title,
        Some("dt" | "ftr" | "hdr" | "sldNum" | "sldImg") => ShapeRole::Repeated,
        Some("subTitle") => ShapeRole::Other,
        _ => ShapeRole::Body,
    }
}
