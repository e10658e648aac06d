//! EPUB: chapters in reading order.

use super::archive::Archive;
use super::bounds::Bounds;
use super::composer::{Composer, one_line};
use super::form::Form;
use super::front_matter::timestamp;
use super::package::resolved;
use super::xml::{Node, Xml, attribute};
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, failed, html};
use std::collections::HashMap;

pub(super) const EXTRACTOR: Extractor =
    Extractor { accepts: |raw| raw.form == Form::Epub, extract, needs_worker: true };

/// Maximum bytes kept of the book's description.
const DESCRIPTION_BYTES_MAX: usize = 2_000;

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
    let mut archive = Archive::open(&raw.bytes, bounds)?;
    let container = archive.required("META-INF/container.xml")?;
    let Some(package) = root_file(Xml::new(&container, "META-INF/container.xml", bounds))? else {
        return failed("it is damaged: no package is named");
    };
    let text = archive.required(&package)?;
    let mut book = Book::default();
    book.read(Xml::new(&text, &package, bounds), bounds)?;
    let locked = archive.text("META-INF/encryption.xml")?.unwrap_or_default();

    let folder = package.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut composer = Composer::new(bounds);
    for (index, id) in book.spine.iter().enumerate() {
        let Some(chapter) = book.chapters.get(id) else { continue };
        if index >= bounds.limits.parts {
            composer.cut("parts");
        }
        if composer.is_full() {
            break;
        }
        let name = resolved(folder, &decoded(chapter));
        if locked.contains(&format!("\"{name}\"")) {
            return failed("it is protected against copying");
        }
        // A missing chapter must not lose the others.
        if let Some(page) = archive.text(&name)? {
            html::compose(&page, &mut composer);
        }
    }
    let (body, note) = composer.finish();
    Ok(ExtractedText {
        body,
        note,
        structure: TextStructure::Markdown,
        content_type: "application/epub+zip".to_owned(),
        ..book.about
    })
}

fn root_file(mut xml: Xml<'_>) -> Result<Option<String>, ExtractError> {
    loop {
        match xml.next()? {
            Node::Open(tag) if tag.local_name().into_inner() == "rootfile" => {
                return Ok(attribute(&tag, "full-path"));
            }
            Node::End => return Ok(None),
            _ => {}
        }
    }
}

#[derive(Default)]
struct Book {
    about: ExtractedText,
    /// Files of the chapters, by id.
    chapters: HashMap<String, String>,
    /// Ids of the chapters, in reading order.
    spine: Vec<String>,
}

impl Book {
    fn read(&mut self, mut xml: Xml<'_>, bounds: &Bounds) -> Result<(), ExtractError> {
        let mut in_metadata = false;
        let limits = &bounds.limits;
        loop {
            match xml.next()? {
                Node::Open(tag) => {
                    let get = |name| attribute(&tag, name).unwrap_or_default();
                    match tag.local_name().into_inner() {
                        "metadata" => in_metadata = true,
                        "item"
                            if self.chapters.len() < limits.members && get("media-type").contains("html") =>
                        {
                            self.chapters.insert(get("id"), get("href"));
                        }
                        // One more than the limit, so that the truncation is noticed and reported.
                        "itemref" if get("linear") != "no" && self.spine.len() <= limits.parts => {
                            self.spine.push(get("idref"));
                        }
                        "meta" if in_metadata && get("property") == "dcterms:modified" => {
                            self.about.updated_at = timestamp(&xml.text()?);
                        }
                        key @ ("title" | "creator" | "subject" | "description" | "date") if in_metadata => {
                            let value = one_line(&xml.text()?);
                            self.note(key, value);
                        }
                        _ => {}
                    }
                }
                Node::Close(tag) if tag.local_name().into_inner() == "metadata" => in_metadata = false,
                Node::End => return Ok(()),
                _ => {}
            }
        }
    }

    fn note(&mut self, key: &str, mut value: String) {
        let about = &mut self.about;
        match key {
            _ if value.is_empty() => {}
            "title" => drop(about.title.get_or_insert(value)),
            "creator" => match &mut about.author {
                Some(author) => author.extend([", ", &value]),
                None => about.author = Some(value),
            },
            "subject" => about.tags.push(value),
            "date" => about.created_at = about.created_at.or_else(|| timestamp(&value)),
            _ => {
                value.truncate(value.floor_char_boundary(DESCRIPTION_BYTES_MAX));
                about.metadata.insert(key.to_owned(), value.into());
            }
        }
    }
}

/// Decodes percent-encoding in a path and removes the fragment.
fn decoded(name: &str) -> String {
    let name = name.split('#').next().unwrap_or_default();
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
