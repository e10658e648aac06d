//! Hostile Office files, EPUB books and ZIP archives.

use super::HostileFile;
use std::io::{Cursor, Write};
use zip::write::{SimpleFileOptions, ZipWriter};

/// Uncompressed size of a ZIP bomb.
const BOMB_BYTES: usize = 16 << 20;

/// Name and content of a file in an archive.
type Member = (&'static str, Vec<u8>);

/// A ZIP-based document format.
struct PackageFormat {
    extension: &'static str,
    /// Members without which the format is not recognized.
    frame: fn() -> Vec<Member>,
    /// The member that holds the text.
    part: &'static str,
    /// Start tags to nest deeply.
    nested: &'static str,
    /// An element to repeat.
    repeated: &'static str,
}

const FORMATS: [PackageFormat; 6] = [
    PackageFormat {
        extension: "docx",
        frame: || vec![content_types()],
        part: "word/document.xml",
        nested: "<w:tbl><w:tr><w:tc><w:p>",
        repeated: "<w:p><w:r><w:t>a</w:t></w:r></w:p>",
    },
    PackageFormat {
        extension: "pptx",
        frame: || {
            let slide = r#"<p:presentation><p:sldIdLst><p:sldId r:id="r"/></p:sldIdLst></p:presentation>"#;
            vec![
                content_types(),
                ("ppt/presentation.xml", slide.into()),
                ("ppt/_rels/presentation.xml.rels", relation("slide", "slides/slide1.xml")),
            ]
        },
        part: "ppt/slides/slide1.xml",
        nested: "<p:sp><p:txBody><a:p>",
        repeated: "<a:p><a:r><a:t>a</a:t></a:r></a:p>",
    },
    PackageFormat {
        extension: "xlsx",
        frame: || {
            let book = r#"<workbook><sheets><sheet name="A" r:id="r"/></sheets></workbook>"#;
            vec![
                content_types(),
                ("xl/workbook.xml", book.into()),
                ("xl/_rels/workbook.xml.rels", relation("worksheet", "s.xml")),
            ]
        },
        part: "xl/s.xml",
        nested: "<row><c><v>",
        repeated: "<row><c r=\"XFD9\"><v>1</v></c></row>",
    },
    PackageFormat {
        extension: "odt",
        frame: || opendocument("text"),
        part: "content.xml",
        nested: "<text:list><text:list-item><text:p>",
        repeated: "<text:p>a<text:s/></text:p>",
    },
    PackageFormat {
        extension: "ods",
        frame: || opendocument("spreadsheet"),
        part: "content.xml",
        nested: "<table:table><table:table-row>",
        repeated: "<table:table-row><table:table-cell table:number-columns-repeated=\"999999999\"><text:p>a</text:p></table:table-cell></table:table-row>",
    },
    PackageFormat {
        extension: "epub",
        frame: || {
            let container = r#"<container><rootfiles><rootfile full-path="b.opf"/></rootfiles></container>"#;
            let book = r#"<package><manifest><item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="c"/></spine></package>"#;
            vec![
                ("mimetype", b"application/epub+zip".to_vec()),
                ("META-INF/container.xml", container.into()),
                ("b.opf", book.into()),
            ]
        },
        part: "c.xhtml",
        nested: "<div><ul><li>",
        repeated: "<p a=\"1\">a</p>",
    },
];

pub(super) fn files() -> Vec<HostileFile> {
    let mut files: Vec<HostileFile> = FORMATS.iter().flat_map(files_of_format).collect();
    files.extend(workbooks());
    files.extend(archives());
    files
}

fn files_of_format(format: &PackageFormat) -> Vec<HostileFile> {
    let PackageFormat { extension, frame, part, nested, repeated } = format;
    let with = |name: &str, content: Vec<u8>| {
        let members: Vec<Member> = frame().into_iter().chain([(*part, content)]).collect();
        HostileFile::new(format!("package-{name}.{extension}"), zip_archive(&members))
    };
    let laughs: String =
        (1..20).map(|level| format!("<!ENTITY a{level} \"&a{0};&a{0};&a{0};\">", level - 1)).collect();
    let attributes: String = (0..20_000).map(|number| format!("a{number}=\"1\" ")).collect();
    vec![
        with("bomb", vec![b' '; BOMB_BYTES]),
        with("deep", nested.repeat(20_000).into()),
        with("entities", format!("<!DOCTYPE a [<!ENTITY a0 \"ha\">{laughs}]><a>&a19;{repeated}</a>").into()),
        with(
            "outside",
            format!("<!DOCTYPE a [<!ENTITY f SYSTEM \"file:///etc/passwd\">]><a>&f;{repeated}</a>").into(),
        ),
        with("repeated", format!("<a>{}</a>", repeated.repeat(20_000)).into()),
        with("attributes", format!("<a {attributes}>{repeated}</a>").into()),
        with("one-text", format!("<a>{}</a>", "x".repeat(500_000)).into()),
        with("not-xml", super::noise(50_000)),
        with("empty", Vec::new()),
        with("unclosed", format!("<a>{repeated}<b").into()),
        HostileFile::new(format!("package-missing.{extension}"), zip_archive(&frame())),
    ]
}

/// Hostile shared strings, styles and sheet lists of workbooks.
fn workbooks() -> Vec<HostileFile> {
    let with = |name: &str, kind: &str, content: String| {
        let book = r#"<workbook><sheets><sheet name="A" r:id="r"/></sheets></workbook>"#;
        let members = [
            content_types(),
            ("xl/workbook.xml", book.into()),
            ("xl/_rels/workbook.xml.rels", relation(kind, "p.xml")),
            ("xl/p.xml", content.into()),
        ];
        HostileFile::new(format!("workbook-{name}.xlsx"), zip_archive(&members))
    };
    let sheets = [content_types(), ("xl/workbook.xml", "<sheet/>".repeat(300_000).into())];
    vec![
        with("texts", "sharedStrings", "<si/>".repeat(500_000)),
        with("long-text", "sharedStrings", format!("<si><t>{}</t></si>", "x".repeat(500_000))),
        with("formats", "styles", (0..50_000).map(|id| format!("<numFmt numFmtId=\"{id}\"/>")).collect()),
        with("styles", "styles", format!("<cellXfs>{}</cellXfs>", "<xf/>".repeat(300_000))),
        HostileFile::new("workbook-sheets.xlsx", zip_archive(&sheets)),
    ]
}

fn archives() -> Vec<HostileFile> {
    let inner = zip_archive(&[content_types(), ("word/document.xml", vec![b' '; 1 << 20])]);
    let many: Vec<(String, Vec<u8>)> =
        (0..30_000).map(|number| (format!("word/{number}"), Vec::new())).collect();
    let relations = "<Relationship/>".repeat(200_000);
    let styles = "<w:style w:styleId=\"a\"></w:style>".repeat(50_000);
    let mut lying = zip_archive(&[content_types(), ("word/document.xml", b"<a/>".to_vec())]);
    // False sizes in every header of the central directory.
    for at in 0..lying.len().saturating_sub(28) {
        if lying[at..].starts_with(b"PK\x01\x02") {
            lying[at + 20..at + 28].fill(0xff);
        }
    }
    let ends = [
        &zip_archive(&[content_types()])[..],
        &b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x00\0\0\0\0\0\0".repeat(2_000),
    ]
    .concat();
    vec![
        HostileFile::new(
            "archive-nested.docx",
            zip_archive(&[content_types(), ("word/document.xml", inner.clone())]),
        ),
        HostileFile::new("archive-in-archive.zip", zip_archive(&[("a.docx", inner)])),
        HostileFile::new("archive-members.docx", zip_archive(&many)),
        HostileFile::new("archive-sizes.docx", lying),
        HostileFile::new("archive-ends.docx", ends),
        HostileFile::new(
            "archive-outside.docx",
            zip_archive(&[content_types(), ("../../../../etc/passwd", b"harm".to_vec())]),
        ),
        HostileFile::new(
            "archive-relations.docx",
            zip_archive(&[
                content_types(),
                ("word/document.xml", b"<a/>".to_vec()),
                ("_rels/.rels", relations.into()),
            ]),
        ),
        HostileFile::new(
            "archive-styles.docx",
            zip_archive(&[
                content_types(),
                ("word/document.xml", b"<a/>".to_vec()),
                ("word/_rels/document.xml.rels", relation("styles", "s.xml")),
                ("word/s.xml", styles.into()),
            ]),
        ),
        HostileFile::new("archive-magic-only.docx", b"PK\x03\x04".to_vec()),
    ]
}

fn content_types() -> Member {
    ("[Content_Types].xml", b"<Types/>".to_vec())
}

fn relation(kind: &str, target: &str) -> Vec<u8> {
    format!(r#"<Relationships><Relationship Id="r" Type="x/{kind}" Target="{target}"/></Relationships>"#)
        .into()
}

fn opendocument(kind: &str) -> Vec<Member> {
    let media_type = format!("application/vnd.oasis.opendocument.{kind}");
    vec![("mimetype", media_type.into()), ("META-INF/manifest.xml", b"<m/>".to_vec())]
}

fn zip_archive<N: AsRef<str>>(members: &[(N, Vec<u8>)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        writer.start_file(name.as_ref(), SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}
