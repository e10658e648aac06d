//! EPUB: chapters in reading order.

use super::archive::Archive;
use super::bounds::Bounds;
use super::composer::{Composer, one_line};
use super::format::FileFormat;
use super::front_matter::parse_timestamp;
use super::package::resolve_path;
use super::xml::{XmlEvent, XmlReader, attribute};
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, failed, html};
use std::collections::HashMap;

pub(super) const EXTRACTOR: Extractor =
    Extractor { accepts: |raw| raw.format == FileFormat::Epub, extract, needs_worker: true };

/// Maximum bytes kept of the book's description.
const DESCRIPTION_BYTES_MAX: usize = 2_000;

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
    let mut archive = Archive::open(&raw.bytes, bounds)?;
    let container = archive.required_text("META-INF/container.xml")?;
    let Some(package_path) = root_file(XmlReader::new(&container, "META-INF/container.xml", bounds))? else {
        return failed("it is damaged: its container names no package document");
    };
    let text = archive.required_text(&package_path)?;
    let mut package = PackageDocument::default();
    package.read(XmlReader::new(&text, &package_path, bounds), bounds)?;
    let encryption = archive.text("META-INF/encryption.xml")?.unwrap_or_default();

    let folder = package_path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut composer = Composer::new(bounds);
    for (index, id) in package.spine.iter().enumerate() {
        let Some(chapter) = package.manifest.get(id) else { continue };
        if index >= bounds.limits.parts {
            composer.mark_truncated("parts");
        }
        if composer.is_full() {
            break;
        }
        let name = resolve_path(folder, &decode_path(chapter));
        if encryption.contains(&format!("\"{name}\"")) {
            return failed("it is protected by DRM");
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
        ..package.metadata
    })
}

fn root_file(mut xml: XmlReader<'_>) -> Result<Option<String>, ExtractError> {
    loop {
        match xml.next()? {
            XmlEvent::Start(tag) if tag.local_name().into_inner() == "rootfile" => {
                return Ok(attribute(&tag, "full-path"));
            }
            XmlEvent::Eof => return Ok(None),
            _ => {}
        }
    }
}

#[derive(Default)]
struct PackageDocument {
    metadata: ExtractedText,
    /// The manifest: chapter files, by id.
    manifest: HashMap<String, String>,
    /// The spine: ids of the chapters, in reading order.
    spine: Vec<String>,
}

impl PackageDocument {
    fn read(&mut self, mut xml: XmlReader<'_>, bounds: &Bounds) -> Result<(), ExtractError> {
        let mut in_metadata = false;
        let limits = &bounds.limits;
        loop {
            match xml.next()? {
                XmlEvent::Start(tag) => {
                    let get = |name| attribute(&tag, name).unwrap_or_default();
                    match tag.local_name().into_inner() {
                        "metadata" => in_metadata = true,
                        "item"
                            if self.manifest.len() < limits.members && get("media-type").contains("html") =>
                        {
                            self.manifest.insert(get("id"), get("href"));
                        }
                        // One more than the limit, so that the truncation is noticed and reported.
                        "itemref" if get("linear") != "no" && self.spine.len() <= limits.parts => {
                            self.spine.push(get("idref"));
                        }
                        "meta" if in_metadata && get("property") == "dcterms:modified" => {
                            self.metadata.updated_at = parse_timestamp(&xml.text()?);
                        }
                        key @ ("title" | "creator" | "subject" | "description" | "date") if in_metadata => {
                            let value = one_line(&xml.text()?);
                            self.add_metadata(key, value);
                        }
                        _ => {}
                    }
                }
                XmlEvent::End(tag) if tag.local_name().into_inner() == "metadata" => in_metadata = false,
                XmlEvent::Eof => return Ok(()),
                _ => {}
            }
        }
    }

    fn add_metadata(&mut self, key: &str, mut value: String) {
        let metadata = &mut self.metadata;
        match key {
            _ if value.is_empty() => {}
            "title" => drop(metadata.title.get_or_insert(value)),
            "creator" => match &mut metadata.author {
                Some(author) => author.extend([", ", &value]),
                None => metadata.author = Some(value),
            },
            "subject" => metadata.tags.push(value),
            "date" => metadata.created_at = metadata.created_at.or_else(|| parse_timestamp(&value)),
            _ => {
                value.truncate(value.floor_char_boundary(DESCRIPTION_BYTES_MAX));
                metadata.metadata.insert(key.to_owned(), value.into());
            }
        }
    }
}

/// Decodes percent-encoding in a path and removes the fragment.
fn decode_path(name: &str) -> String {
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
