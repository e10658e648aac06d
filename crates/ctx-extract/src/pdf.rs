//! PDF: the text of each page, joined to lines and paragraphs by its position.

mod font;
mod load;
mod page;

use super::bounds::Bounds;
use super::composer::{Composer, one_line};
use super::format::FileFormat;
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, failed};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use lopdf::{Dictionary, Document, Object, decode_text_string};
use page::PageReader;

pub(super) const EXTRACTOR: Extractor =
    Extractor { accepts: |raw| raw.format == FileFormat::Pdf, extract, needs_worker: true };

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
    let document = load::load(&raw.bytes, bounds)?;
    if document.is_encrypted() {
        return failed("it is protected by a password");
    }
    let mut composer = Composer::new(bounds);
    let mut reader = PageReader::new(&document, bounds);
    let mut pages = 0;
    for page in document.page_iter() {
        if pages == bounds.limits.parts {
            composer.mark_truncated("parts");
        }
        if composer.is_full() {
            break;
        }
        pages += 1;
        for paragraph in reader.read(page)? {
            composer.paragraph(&paragraph);
        }
    }
    if pages == 0 {
        return failed("it is damaged: it has no pages");
    }
    if reader.is_truncated() {
        composer.mark_truncated("only a part of it is kept: its decompressed size exceeds the limit");
    }
    let (body, note) = composer.finish();
    let mut extracted = ExtractedText {
        body,
        note,
        structure: TextStructure::Markdown,
        content_type: "application/pdf".to_owned(),
        ..ExtractedText::default()
    };
    if extracted.body.is_empty() {
        // Not an error: the document can still be found by its title.
        extracted.note.get_or_insert_with(|| "it has no text, only images; run OCR on it first".to_owned());
    }
    if let Some(info) = info_dictionary(&document) {
        apply_info(&mut extracted, info, &document);
    }
    Ok(extracted)
}

fn info_dictionary(document: &Document) -> Option<&Dictionary> {
    let info = document.trailer.get(b"Info").ok()?;
    document.dereference(info).ok()?.1.as_dict().ok()
}

fn apply_info(extracted: &mut ExtractedText, info: &Dictionary, document: &Document) {
    let get = |key: &[u8]| {
        let value: &Object = info.get_deref(key, document).ok()?;
        let text = one_line(&decode_text_string(value).ok()?.replace('\0', ""));
        (!text.is_empty()).then_some(text)
    };
    // Default titles of programs.
    let is_placeholder = |title: &String| title.eq_ignore_ascii_case("untitled") || title == "anonymous";
    let title = get(b"Title").filter(|title| !is_placeholder(title));
    // Printer drivers write `Microsoft Word - name` as the title.
    let without_driver_prefix =
        |title: String| match title.strip_prefix("Microsoft ").and_then(|rest| rest.split_once(" - ")) {
            Some((_, name)) => name.to_owned(),
            None => title,
        };
    extracted.title = title.map(without_driver_prefix);
    extracted.author = get(b"Author").filter(|author| !is_placeholder(author));
    if let Some(keywords) = get(b"Keywords") {
        let tags = keywords.split([',', ';']).map(str::trim).filter(|tag| !tag.is_empty());
        extracted.tags.extend(tags.map(str::to_owned));
    }
    if let Some(subject) = get(b"Subject").filter(|subject| subject != "unspecified") {
        extracted.metadata.insert("subject".to_owned(), subject.into());
    }
    extracted.created_at = get(b"CreationDate").and_then(|text| parse_pdf_date(&text));
    extracted.updated_at = get(b"ModDate").and_then(|text| parse_pdf_date(&text));
}

/// Parses a PDF date, `D:20240301100000+01'00'`, which may be truncated anywhere.
fn parse_pdf_date(text: &str) -> Option<Timestamp> {
    let text = text.strip_prefix("D:").unwrap_or(text);
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let field = |range: std::ops::Range<usize>, missing: i8| match digits.get(range) {
        Some(digits) => digits.parse().ok(),
        None => Some(missing),
    };
    let year: i16 = digits.get(..4)?.parse().ok()?;
    let moment = DateTime::new(
        year,
        field(4..6, 1)?,
        field(6..8, 1)?,
        field(8..10, 0)?,
        field(10..12, 0)?,
        field(12..14, 0)?.min(59),
        0,
    );
    let zone = &text[digits.len()..];
    let part = |range| zone.get(range).and_then(|digits: &str| digits.parse::<i32>().ok()).unwrap_or(0);
    let seconds = part(1..3) * 3_600 + part(4..6) * 60;
    let offset = Offset::from_seconds(if zone.starts_with('-') { -seconds } else { seconds }).ok()?;
    Some(moment.ok()?.to_zoned(TimeZone::fixed(offset)).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_however_short() {
        let read = |text: &str| parse_pdf_date(text).map(|moment| moment.to_string());
        assert_eq!(read("D:20240301100000+01'00'").as_deref(), Some("2024-03-01T09:00:00Z"));
        assert_eq!(read("20240301").as_deref(), Some("2024-03-01T00:00:00Z"));
        assert_eq!(read("D:2024Z").as_deref(), Some("2024-01-01T00:00:00Z"));
        for odd in
            ["D:", "D:20241301", "D:9999999999999999", "é", "D:20240301100000+99'99'", "D:20240301100000é"]
        {
            let _ = read(odd);
        }
    }
}
