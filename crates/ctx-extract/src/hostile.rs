//! Tests with malicious and damaged files.

use super::archive::tests::packed;
use super::samples::extract_within;
use super::*;
use lopdf::{Dictionary, Document, Object, Stream, dictionary};
use std::io::{Cursor, Read};
use std::time::Duration;

/// Limits low enough for tests to reach them.
const LIMITS: ExtractLimits = ExtractLimits {
    text_bytes: 1 << 20,
    unpacked_bytes: 4 << 20,
    time: Duration::from_secs(60),
    ..ExtractLimits::DEFAULT
};

fn read(bytes: Vec<u8>, name: &str) -> Result<ExtractedText, ExtractError> {
    extract_within(RawDocument::new(bytes, name, None), LIMITS)
}

#[track_caller]
fn reason(result: Result<ExtractedText, ExtractError>) -> String {
    match result {
        Err(ExtractError::Failed(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn docx(document: &[u8]) -> Vec<u8> {
    packed(&[("[Content_Types].xml", b"<Types/>"), ("word/document.xml", document)])
}

fn xlsx(sheet: &str) -> Vec<u8> {
    let relations =
        br#"<Relationships><Relationship Id="r" Type="x/worksheet" Target="s.xml"/></Relationships>"#;
    packed(&[
        ("[Content_Types].xml", b"<Types/>"),
        ("xl/workbook.xml", br#"<workbook><sheets><sheet name="A" r:id="r"/></sheets></workbook>"#),
        ("xl/_rels/workbook.xml.rels", relations),
        ("xl/s.xml", sheet.as_bytes()),
    ])
}

#[test]
fn a_bomb_is_refused() {
    let bomb = docx(&vec![b' '; 8 << 20]);
    assert_eq!(reason(read(bomb, "a.docx")), "it unpacks to more than 4194304 bytes");
}

#[test]
fn an_archive_in_an_archive_is_not_opened() {
    let inner = docx(b"<w:document/>");
    assert_eq!(read(packed(&[("a.docx", &inner)]), "a.zip"), Err(ExtractError::NotText));
    assert_eq!(reason(read(docx(&inner), "a.docx")), "it is damaged: word/document.xml is not UTF-8");
}

#[test]
fn entities_are_not_expanded_and_nothing_outside_is_read() {
    let laughs = br#"<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;">
        <!ENTITY c "&b;&b;&b;&b;&b;&b;"><!ENTITY f SYSTEM "file:///etc/passwd">]>
        <w:document><w:p><w:r><w:t>one &c;&f;&lt;two</w:t></w:r></w:p></w:document>"#;
    assert_eq!(read(docx(laughs), "a.docx").unwrap().body, "one <two\n");
}

#[test]
fn depth_without_end_is_refused() {
    let deep = format!("<w:document>{}", "<w:tbl>".repeat(100_000));
    assert_eq!(reason(read(docx(deep.as_bytes()), "a.docx")), "word/document.xml: nested too deeply");
}

#[test]
fn cells_far_apart_are_not_filled_between() {
    let far = r#"<sheetData><row><c r="A1"><v>1</v></c><c r="XFD1"><v>2</v></c></row>
        <row r="1048576"><c r="B1048576"><v>3</v></c><c r="ZZZZZZZZZZ1"><v>4</v></c></row></sheetData>"#;
    assert_eq!(read(xlsx(far), "a.xlsx").unwrap().body, "## A\n\n1\n3\n");

    let repeated = br#"<office:document-content><table:table table:name="A"><table:table-row>
        <table:table-cell table:number-columns-repeated="4000000000"><text:p>x</text:p></table:table-cell>
        </table:table-row></table:table></office:document-content>"#;
    let media_type = b"application/vnd.oasis.opendocument.spreadsheet";
    let ods =
        packed(&[("mimetype", media_type), ("META-INF/manifest.xml", b"<m/>"), ("content.xml", repeated)]);
    assert_eq!(read(ods, "a.ods").unwrap().body.matches('x').count(), LIMITS.cells);
}

/// A PDF of one page that shows `content`, then modified by `change`.
pub(super) fn pdf(content: Stream, change: impl FnOnce(&mut Document)) -> Vec<u8> {
    let mut document = Document::with_version("1.5");
    let dictionaries: [(u32, Dictionary); 4] = [
        (1, dictionary! { "Type" => "Catalog", "Pages" => Object::Reference((2, 0)) }),
        (2, dictionary! { "Type" => "Pages", "Count" => 1, "Kids" => vec![Object::Reference((3, 0))] }),
        (
            3,
            dictionary! {
                "Type" => "Page", "Parent" => Object::Reference((2, 0)), "Contents" => Object::Reference((5, 0)),
                "Resources" => dictionary! {
                    "Font" => dictionary! { "F" => Object::Reference((4, 0)) },
                    "XObject" => dictionary! { "X" => Object::Reference((6, 0)) },
                },
            },
        ),
        (4, dictionary! { "Type" => "Font", "Subtype" => "Type1", "BaseFont" => "Helvetica" }),
    ];
    for (number, dictionary) in dictionaries {
        document.objects.insert((number, 0), dictionary.into());
    }
    document.objects.insert((5, 0), content.into());
    document.max_id = 20;
    document.trailer.set("Root", Object::Reference((1, 0)));
    change(&mut document);
    let mut bytes = Vec::new();
    document.save_to(&mut bytes).unwrap();
    bytes
}

fn text_stream(text: &str) -> Stream {
    Stream::new(Dictionary::new(), format!("BT /F 12 Tf 10 10 Td ({text}) Tj ET /X Do").into_bytes())
}

#[test]
fn a_pdf_that_leads_back_to_itself_ends() {
    let body = |bytes| read(bytes, "a.pdf").map(|extracted| extracted.body);
    assert_eq!(body(pdf(text_stream("ship"), |_| ())).as_deref(), Ok("ship\n"));

    let kids = |document: &mut Document| {
        let kids = vec![Object::Reference((3, 0)), Object::Reference((2, 0))];
        document.get_dictionary_mut((2, 0)).unwrap().set("Kids", kids);
        document.get_dictionary_mut((2, 0)).unwrap().set("Parent", Object::Reference((2, 0)));
    };
    let looped = body(pdf(text_stream("ship"), kids)).unwrap();
    assert!(looped.matches("ship").count() < 10, "{looped}");

    // A form XObject that draws itself, twice each time.
    let drawing = |document: &mut Document| {
        let form = dictionary! { "Type" => "XObject", "Subtype" => "Form" };
        document.objects.insert((6, 0), Stream::new(form, b"/X Do /X Do".to_vec()).into());
    };
    assert_eq!(body(pdf(text_stream("ship"), drawing)).as_deref(), Ok("ship\n"));

    // Cyclic references.
    let references = |document: &mut Document| {
        document.objects.insert((4, 0), Object::Reference((7, 0)));
        document.objects.insert((7, 0), Object::Reference((4, 0)));
        document.get_dictionary_mut((3, 0)).unwrap().set("Contents", Object::Reference((7, 0)));
        document.trailer.set("Info", Object::Reference((7, 0)));
    };
    assert_eq!(body(pdf(text_stream("ship"), references)).as_deref(), Ok(""));
}

#[test]
fn a_pdf_that_unpacks_to_too_much_keeps_the_rest() {
    let mut bomb = Stream::new(Dictionary::new(), vec![b' '; 8 << 20]);
    bomb.compress().unwrap();
    assert!(bomb.content.len() < 64 << 10);
    let read = read(pdf(bomb, |_| ()), "a.pdf").unwrap();
    let note = "only a part of it is kept: its decompressed size exceeds the limit";
    assert_eq!((&*read.body, read.note.as_deref()), ("", Some(note)));
}

#[test]
fn a_font_that_maps_everything_costs_nothing() {
    let bytes = pdf(text_stream("ship"), |document| {
        let map = b"1 begincodespacerange <00> <FF> endcodespacerange
            2 beginbfrange <00000000> <FFFFFFFF> <0000> <00> <FFFFFFFF> [<0041>] endbfrange";
        document.objects.insert((7, 0), Stream::new(Dictionary::new(), map.to_vec()).into());
        document.get_dictionary_mut((4, 0)).unwrap().set("ToUnicode", Object::Reference((7, 0)));
    });
    assert_eq!(read(bytes, "a.pdf").unwrap().body, "ship\n");
}

#[test]
fn many_names_for_one_large_object_are_not_many_objects() {
    // Ten thousand index entries for the same list of ten thousand numbers.
    let index: String = (100..10_100).map(|id| format!("{id} 0 ")).collect();
    let content = format!("{index}[{}]", "1 ".repeat(10_000));
    let bytes = pdf(text_stream("ship"), |document| {
        let about = dictionary! { "Type" => "ObjStm", "N" => 10_000, "First" => index.len() as i64 };
        document.objects.insert((8, 0), Stream::new(about, content.into_bytes()).into());
    });
    assert_eq!(read(bytes, "a.pdf").unwrap().body, "ship\n");
}

#[test]
fn a_pdf_nested_too_deeply_or_cut_off_is_damaged() {
    let deep =
        |open: &str| format!("%PDF-1.4\n1 0 obj\n{}\nendobj\ntrailer<</Root 1 0 R>>", open.repeat(100_000));
    for bytes in [deep("["), deep("<</A"), deep("("), "%PDF-1.7".to_owned(), "%PDF-1.7\n%%EOF".to_owned()] {
        assert!(matches!(read(bytes.into_bytes(), "a.pdf"), Err(ExtractError::Failed(_))));
    }
}

/// Deterministic pseudo-random numbers (xorshift).
struct DamageRng(u64);

impl DamageRng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(12) {
            let (at, other) = (self.below(bytes.len()), self.below(bytes.len()));
            match self.below(5) {
                0 => bytes.truncate(at),
                1 => {
                    let length = self.below(bytes.len() - at.max(other));
                    bytes.copy_within(other..other + length, at);
                }
                2 => drop(bytes.splice(at..at, b"<<[[(( 99999999999 0 R ".iter().copied())),
                _ if at < bytes.len() => bytes[at] = self.below(256) as u8,
                _ => {}
            }
            if bytes.is_empty() {
                return;
            }
        }
    }
}

const SAMPLES: [&str; 8] = [
    "sample.docx",
    "sample.pptx",
    "sample.xlsx",
    "sample.odt",
    "sample.ods",
    "sample.epub",
    "sample.pdf",
    "locked.pdf",
];

#[track_caller]
fn check(bytes: Vec<u8>, name: &str, case: usize) {
    match read(bytes, name) {
        Ok(extracted) => {
            assert!(extracted.body.len() <= LIMITS.text_bytes + 1, "{name} {case}");
        }
        Err(ExtractError::Failed(reason)) => assert!(!reason.contains("panicked"), "{name} {case}: {reason}"),
        Err(ExtractError::NotText) => {}
        Err(ExtractError::NotNow(reason)) => panic!("{name} {case}: {reason}"),
    }
}

#[test]
fn damaged_files_are_read_or_refused() {
    for name in SAMPLES {
        let whole = samples::sample(name);
        for case in 0..40 {
            let mut bytes = whole.clone();
            DamageRng(0x9e37_79b9 + case as u64).damage(&mut bytes);
            check(bytes, name, case);
        }
    }
}

#[test]
fn damaged_members_of_whole_archives_are_read_or_refused() {
    for name in SAMPLES.into_iter().filter(|name| !name.ends_with("pdf")) {
        let whole = samples::sample(name);
        let mut archive = zip::ZipArchive::new(Cursor::new(&whole)).unwrap();
        let mut members = Vec::new();
        for index in 0..archive.len() {
            let mut member = archive.by_index(index).unwrap();
            let mut content = Vec::new();
            member.read_to_end(&mut content).unwrap();
            let name = member.name().unwrap().into_owned();
            if name.ends_with("ml") || name.ends_with("rels") || name.ends_with("opf") || name == "mimetype" {
                members.push((name, content));
            }
        }
        for case in 0..25 {
            let mut dice = DamageRng(0x51ed_270b + case as u64);
            let mut damaged = members.clone();
            for _ in 0..3 {
                let index = dice.below(damaged.len());
                dice.damage(&mut damaged[index].1);
            }
            let parts: Vec<(&str, &[u8])> =
                damaged.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
            check(packed(&parts), name, case);
        }
    }
}

#[test]
fn damaged_texts_are_read_or_refused() {
    let page =
        "<!doctype html><html><head><title>A</title></head><body><main><h1>A</h1><ul><li>b<table><tr><td>c
        </table></ul><pre>d</pre></main></body></html>";
    let matter = "---\ntitle: a\ntags: [b, 'c']\nlist:\n  - d\n---\n# E\n\n```\nf\n```\n";
    let notebook =
        r#"{"cells":[{"cell_type":"code","source":["a"],"outputs":[{"text":"b"}]}],"metadata":{}}"#;
    let samples =
        [("a.html", page), ("a.md", matter), ("a.ipynb", notebook), ("a.csv", "a,\"b\"\n1,\"2\"\"\n\"")];
    for (name, whole) in samples {
        for case in 0..100 {
            let mut bytes = whole.as_bytes().to_vec();
            DamageRng(0x2545_f491 + case as u64).damage(&mut bytes);
            check(bytes, name, case);
        }
    }
}

#[test]
fn a_page_of_42_kb_does_not_end_the_process() {
    let attributes = "a=\"1\" ".repeat(8_000);
    assert_eq!(read(format!("<p {attributes}>ship").into(), "a.html").unwrap().body, "ship\n");
    let book = packed(&[
        ("mimetype", b"application/epub+zip"),
        ("META-INF/container.xml", br#"<container><rootfile full-path="b.opf"/></container>"#),
        (
            "b.opf",
            br#"<package><item id="c" href="c.html" media-type="text/html"/><itemref idref="c"/></package>"#,
        ),
        ("c.html", format!("<p {attributes}>ship").as_bytes()),
    ]);
    assert_eq!(read(book, "a.epub").unwrap().body, "ship\n");
}

#[test]
fn what_a_document_only_refers_to_is_bounded() {
    let limits = ExtractLimits { entries: 10, parts: 10, cells: 10, rows: 10, ..LIMITS };
    let read =
        |bytes, name: &str| extract_within(RawDocument::new(bytes, name, None), limits).map(|read| read.note);
    let relations = |kind: &str| {
        format!(r#"<Relationships><Relationship Id="r" Type="x/{kind}" Target="p.xml"/></Relationships>"#)
    };
    for (kind, part) in
        [("sharedStrings", "<si/>"), ("styles", "<cellXfs><xf/>"), ("styles", "<numFmt numFmtId='1'/>")]
    {
        let book = packed(&[
            ("[Content_Types].xml", b"<Types/>"),
            ("xl/workbook.xml", b"<workbook/>"),
            ("xl/_rels/workbook.xml.rels", relations(kind).as_bytes()),
            ("xl/p.xml", format!("<a>{}", part.repeat(100)).as_bytes()),
        ]);
        // Either the limit ends the reading, or the missing `</a>` behind it is an error.
        assert!(matches!(read(book, "a.xlsx"), Ok(None) | Err(ExtractError::Failed(_))), "{kind}");
    }
    let sheets = format!("<workbook>{}</workbook>", "<sheet/>".repeat(100));
    let book = packed(&[("[Content_Types].xml", b"<Types/>"), ("xl/workbook.xml", sheets.as_bytes())]);
    assert_eq!(read(book, "a.xlsx"), Ok(Some("only its first 10 pages or parts are kept".to_owned())));
}

/// A small intact document of every supported format.
fn intact_documents() -> Vec<(&'static str, Vec<u8>)> {
    let texts: [(&str, &str); 6] = [
        (
            "a.html",
            "<!doctype html><title>A</title><main><p class=\"b\" hidden>c<table><tr><td>d</table></main>",
        ),
        ("a.md", "---\ntitle: a\ntags: [b]\n---\n# C\n\n- d\n\n```\ne\n```\n"),
        ("a.csv", "a,\"b\"\n1,\"2\"\"\"\n"),
        (
            "a.ipynb",
            r#"{"cells":[{"cell_type":"code","source":["a"],"outputs":[{"text":"b"},{"data":{"text/plain":"c"}}]}]}"#,
        ),
        ("a.rs", "fn main() {}\n"),
        ("a.txt", "A sentence. Another!\n"),
    ];
    let samples = SAMPLES.into_iter().map(|name| (name, samples::sample(name)));
    texts.into_iter().map(|(name, text)| (name, text.as_bytes().to_vec())).chain(samples).collect()
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    /// A mutation of bytes.
    #[derive(Clone, Debug)]
    enum Mutation {
        Overwrite(prop::sample::Index, Vec<u8>),
        Insert(prop::sample::Index, Vec<u8>),
        Remove(prop::sample::Index, prop::sample::Index),
        Repeat(prop::sample::Index, prop::sample::Index, u8),
    }

    fn mutation() -> impl Strategy<Value = Mutation> {
        let index = any::<prop::sample::Index>;
        let bytes = prop_oneof![
            prop::collection::vec(any::<u8>(), 1..20),
            prop::sample::select(
                &[
                    "<",
                    "\"",
                    "[[[[",
                    "<<<<",
                    "((((",
                    "{\"a\":",
                    "PK\x05\x06",
                    "99999999999",
                    "&a;",
                    "\0",
                    "\n---\n"
                ][..]
            )
            .prop_map(|text| text.as_bytes().to_vec()),
        ];
        prop_oneof![
            (index(), bytes.clone()).prop_map(|(at, bytes)| Mutation::Overwrite(at, bytes)),
            (index(), bytes).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
            (index(), index()).prop_map(|(from, to)| Mutation::Remove(from, to)),
            (index(), index(), any::<u8>()).prop_map(|(from, to, times)| Mutation::Repeat(from, to, times)),
        ]
    }

    fn apply(bytes: &mut Vec<u8>, mutation: &Mutation) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        let ordered = |a: &prop::sample::Index, b: &prop::sample::Index| {
            let (a, b) = (a.index(length), b.index(length));
            a.min(b)..a.max(b)
        };
        match mutation {
            Mutation::Overwrite(at, new) => {
                let at = at.index(length);
                let end = (at + new.len()).min(length);
                bytes.splice(at..end, new.iter().copied());
            }
            Mutation::Insert(at, new) => {
                let at = at.index(length);
                bytes.splice(at..at, new.iter().copied());
            }
            Mutation::Remove(from, to) => drop(bytes.drain(ordered(from, to))),
            Mutation::Repeat(from, to, times) => {
                let range = ordered(from, to);
                let repeated =
                    bytes[range.clone()].repeat(usize::from(*times).min(50_000 / range.len().max(1)));
                bytes.splice(range.end..range.end, repeated);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn any_bytes_under_any_name_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..2_000),
            name in prop::sample::select(&["a.html", "a.md", "a.csv", "a.ipynb", "a.txt", "a.rs", "a.pdf", "a.docx", "a"][..]),
            magic in prop::sample::select(&["", "%PDF-1.7\n", "PK\x03\x04", "---\n", "{\"cells\":", "<html>", "\u{feff}"][..]),
        ) {
            check([magic.as_bytes(), &bytes].concat(), name, 0);
        }

        #[test]
        fn any_text_under_any_name_is_read_or_refused(
            text in "(<[a-z]{1,5} |=\"|\">|</[a-z]>|[a-z ]{1,9}|\n|\\[|\\{|\"|,|:|#|`|&[a-z]{2,4};|\\PC){0,80}",
            name in prop::sample::select(&["a.html", "a.md", "a.csv", "a.ipynb", "a.txt", "a.xml"][..]),
        ) {
            check(text.into_bytes(), name, 0);
        }

        #[test]
        fn documents_that_were_changed_are_read_or_refused(mutations in prop::collection::vec(mutation(), 1..6)) {
            for (case, (name, mut bytes)) in intact_documents().into_iter().enumerate() {
                mutations.iter().for_each(|mutation| apply(&mut bytes, mutation));
                check(bytes, name, case);
            }
        }
    }
}
