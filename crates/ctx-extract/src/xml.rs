//! XML as a stream of elements and texts: no tree, and no entities except the five predefined ones and character
//! references.

use super::bounds::Bounds;
use super::{ExtractError, failed};
use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesEnd, BytesStart, Event};
use std::borrow::Cow;

/// Events between two checks of the deadline.
const EVENTS_PER_CHECK: u32 = 4_096;

/// An item of the XML stream.
pub(super) enum XmlEvent<'a> {
    Start(BytesStart<'a>),
    End(BytesEnd<'a>),
    Text(Cow<'a, str>),
    Eof,
}

/// A streaming XML reader for one member of a document.
pub(super) struct XmlReader<'a> {
    reader: Reader<&'a [u8]>,
    /// Name for error messages.
    name: &'a str,
    bounds: &'a Bounds,
    depth: usize,
    events: u32,
}

impl<'a> XmlReader<'a> {
    pub(super) fn new(text: &'a str, name: &'a str, bounds: &'a Bounds) -> Self {
        let mut reader = Reader::from_str(text);
        // Every element gets an end event, so callers need no case for empty elements.
        reader.config_mut().expand_empty_elements = true;
        Self { reader, name, bounds, depth: 0, events: 0 }
    }

    pub(super) fn next(&mut self) -> Result<XmlEvent<'a>, ExtractError> {
        loop {
            self.events = self.events.wrapping_add(1);
            if self.events.is_multiple_of(EVENTS_PER_CHECK) {
                self.bounds.check_time()?;
            }
            let event = match self.reader.read_event() {
                Ok(event) => event,
                Err(error) => return failed(format!("it is damaged: {}: {error}", self.name)),
            };
            return Ok(match event {
                Event::Start(tag) => {
                    self.depth += 1;
                    if self.depth > self.bounds.limits.depth {
                        return failed(format!("{}: nested too deeply", self.name));
                    }
                    XmlEvent::Start(tag)
                }
                Event::End(tag) => {
                    self.depth = self.depth.saturating_sub(1);
                    XmlEvent::End(tag)
                }
                Event::Text(text) => XmlEvent::Text(text.into_inner()),
                Event::CData(text) => XmlEvent::Text(text.into_inner()),
                Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                    Ok(Some(char)) => XmlEvent::Text(Cow::Owned(char.to_string())),
                    // Entities that the document defines are never expanded.
                    _ => match resolve_predefined_entity(&reference.into_inner()) {
                        Some(text) => XmlEvent::Text(Cow::Borrowed(text)),
                        None => continue,
                    },
                },
                Event::Eof if self.depth > 0 => {
                    return failed(format!("it is damaged: {}: it is truncated", self.name));
                }
                Event::Eof => XmlEvent::Eof,
                _ => continue,
            });
        }
    }

    /// Reads the text of the element that has just been opened, up to its end.
    pub(super) fn text(&mut self) -> Result<String, ExtractError> {
        let outer_depth = self.depth.saturating_sub(1);
        let mut text = String::new();
        loop {
            match self.next()? {
                XmlEvent::Text(part) => text.push_str(&part),
                XmlEvent::End(_) if self.depth <= outer_depth => return Ok(text),
                XmlEvent::Eof => return Ok(text),
                _ => {}
            }
        }
    }

    /// Skips the element that has just been opened.
    pub(super) fn skip(&mut self) -> Result<(), ExtractError> {
        self.text().map(drop)
    }
}

/// The value of an attribute with exactly this name, else with this name and a prefix.
pub(super) fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let find = |exact: bool| {
        tag.attributes().with_checks(false).flatten().find(|attribute| match exact {
            true => attribute.key.into_inner() == name,
            false => attribute.key.local_name().into_inner() == name,
        })
    };
    let found = find(true).or_else(|| find(false))?;
    Some(match found.normalized_value(XmlVersion::Implicit1_0) {
        Ok(value) => value.into_owned(),
        Err(_) => found.value.into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::bounds::ExtractLimits;
    use super::*;

    fn text(xml: &str) -> Result<String, ExtractError> {
        let bounds = Bounds::start(ExtractLimits::DEFAULT);
        let mut xml = XmlReader::new(xml, "a.xml", &bounds);
        let mut all = String::new();
        loop {
            match xml.next()? {
                XmlEvent::Text(part) => all.push_str(&part),
                XmlEvent::Eof => return Ok(all),
                _ => {}
            }
        }
    }

    #[test]
    fn entities_of_the_document_are_never_expanded() {
        let laughs = "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;'>
            <!ENTITY c SYSTEM 'file:///etc/passwd'>]><x>&b;&c;&lt;&#233;&amp;</x>";
        assert_eq!(text(laughs).unwrap().trim(), "<é&");
    }

    #[test]
    fn depth_is_bounded_and_what_is_cut_off_says_so() {
        let deep = "<a>".repeat(100_000);
        assert_eq!(text(&deep), Err(ExtractError::Failed("a.xml: nested too deeply".to_owned())));
        for damaged in ["<a>", "<a><b></a>", "<a", "</a>"] {
            assert!(matches!(text(damaged), Err(ExtractError::Failed(_))), "{damaged}");
        }
    }
}
