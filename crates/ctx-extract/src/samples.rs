//! Tests with real files of every format, and helpers for other tests.

use super::*;
use std::sync::Arc;

/// [`super::extract`] with the default limits.
pub(super) fn extract(raw: RawDocument) -> Result<ExtractedText, ExtractError> {
    extract_within(raw, ExtractLimits::DEFAULT)
}

/// [`super::extract`] with other limits, on a thread with the required stack size.
pub(super) fn extract_within(raw: RawDocument, limits: ExtractLimits) -> Result<ExtractedText, ExtractError> {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let extracted = thread.spawn(move || super::extract(raw, limits, Arc::new(|| false)));
    extracted.unwrap().join().unwrap()
}

pub(super) fn sample(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    std::fs::read(format!("{folder}/{name}")).unwrap()
}

/// Extracts a sample under a name and media type that give no hint.
fn read(name: &str) -> ExtractedText {
    let extracted =
        extract(RawDocument::new(sample(name), "sample.bin", Some("application/octet-stream"))).unwrap();
    assert_eq!((extracted.structure, extracted.note.as_deref()), (TextStructure::Markdown, None));
    assert_eq!(stored_content_type(&extracted.content_type), "text/markdown");
    extracted
}

fn time(text: &str) -> Option<Timestamp> {
    Some(text.parse().unwrap())
}

#[test]
fn a_word_document_keeps_its_headings_items_and_rows() {
    let extracted = read("sample.docx");
    let expected = "# Harbour handbook\n\nShips arrive at the “Große Mole” — 港口.\n\n## Arrivals\n\n- Tugs first\n- Then pilots\n\n### Berths\n\n| Berth | Depth |\n| North | 12 m |\n\n\\# not a heading\n";
    assert_eq!(extracted.body, expected);
    assert_eq!(extracted.title.as_deref(), Some("Harbour handbook"));
    assert_eq!(extracted.author.as_deref(), Some("Ada Lovelace"));
    assert_eq!(extracted.tags, ["sea", "harbour"]);
    assert_eq!(extracted.created_at, time("2024-03-01T10:00:00Z"));
    assert!(extracted.content_type.ends_with("wordprocessingml.document"));
}

#[test]
fn a_presentation_has_a_heading_for_every_slide() {
    let extracted = read("sample.pptx");
    let expected = "## Harbour plan\n\nFür alle — 港口\n\n## Arrivals\n\n- Tugs first\n  - with ropes\n\nSpeak slowly.\n\n## Slide 3\n\n| Berth | Depth |\n| North | 12 m |\n";
    assert_eq!(extracted.body, expected);
    assert_eq!(extracted.title.as_deref(), Some("Harbour plan"));
    assert_eq!(extracted.updated_at, time("2024-03-01T10:00:00Z"));
    assert!(extracted.content_type.ends_with("presentationml.presentation"));
}

#[test]
fn a_row_of_a_workbook_can_be_understood_alone() {
    let extracted = read("sample.xlsx");
    let expected = "## Berths\n\nHarbour of the North\nBerth: Große Mole; Depth: 12.5; Built: 1902-05-01; Free: true\nBerth: 港口; Depth: 7; Built: 2024-03-01 10:00:00\n\n## Ships\n\n| Name | Length |\n";
    assert_eq!(extracted.body, expected);
    assert_eq!(extracted.author.as_deref(), Some("Ada Lovelace"));
    assert!(extracted.content_type.ends_with("spreadsheetml.sheet"));
}

#[test]
fn open_documents_are_read_as_well() {
    let text = read("sample.odt");
    let expected = "# Harbour\n\nShips at the Große Mole, 港口.\n\n- Tugs first\n- Then pilots\n\n| Berth | Depth |\n| North | 12 m |\n";
    assert_eq!(text.body, expected);
    assert_eq!(text.title.as_deref(), Some("Harbour"));
    assert_eq!(text.content_type, "application/vnd.oasis.opendocument.text");
    let sheet = read("sample.ods");
    assert_eq!(sheet.body, "## Berths\n\nBerth: North; Depth: 12 m\nBerth: 港口; Depth: 7 m\n");
}

#[test]
fn the_chapters_of_a_book_come_in_reading_order() {
    let extracted = read("sample.epub");
    let expected = "# Große Mole\n\n港口\n\n- one\n\n# Tides\n\nThe sea & the moon.\n\n- one\n";
    assert_eq!(extracted.body, expected);
    assert_eq!(extracted.title.as_deref(), Some("The harbour book"));
    assert_eq!(extracted.author.as_deref(), Some("Ada Lovelace"));
    assert_eq!((extracted.tags, &*extracted.content_type), (vec!["sea".to_owned()], "application/epub+zip"));
}

#[test]
fn a_pdf_is_its_pages_in_paragraphs() {
    let extracted = read("sample.pdf");
    let expected = "Ships arrive at the north mole\nbefore the sun rises.\n\nA second paragraph.\n\nNorth 12 m\n\nGroße Mole, café\n";
    assert_eq!(extracted.body, expected);
    assert_eq!(extracted.title.as_deref(), Some("Harbour – handbook"));
    assert_eq!(extracted.author.as_deref(), Some("Ada Lovelace"));
    assert_eq!(
        (extracted.tags, &*extracted.content_type),
        (vec!["sea".to_owned(), "harbour".to_owned()], "application/pdf")
    );
    assert!(extracted.created_at.is_some());
}

#[test]
fn what_is_locked_says_so() {
    let locked = extract(RawDocument::new(sample("locked.pdf"), "locked.pdf", None));
    assert_eq!(locked, Err(ExtractError::Failed("it is protected by a password".to_owned())));
}
