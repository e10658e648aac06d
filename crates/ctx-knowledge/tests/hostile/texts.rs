//! Hostile HTML, Markdown, CSV, notebooks, source code and plain text.

use super::HostileFile;

pub(super) fn files() -> Vec<HostileFile> {
    [pages(), markdown(), front_matter(), tables(), notebooks(), plain()].concat()
}

fn pages() -> Vec<HostileFile> {
    let page = |name: &str, body: String| HostileFile::new(format!("page-{name}.html"), body);
    let numbered =
        |count: usize| (0..count).map(|number| format!("a{number}=\"{number}\" ")).collect::<String>();
    vec![
        page("attributes-8000", format!("<p {}>harm", "a=\"1\" ".repeat(8_000))),
        page("attributes-100000", format!("<p {}>harm", "a=\"1\" ".repeat(100_000))),
        page("attributes-named", format!("<p {}>harm", numbered(50_000))),
        page("attributes-at-the-end", format!("<p>harm</p {}>", "a=\"1\" ".repeat(50_000))),
        page("attributes-single-quoted", format!("<p {}>harm", "a='1' ".repeat(50_000))),
        page("attributes-unquoted", format!("<p {}>harm", "a=1 ".repeat(50_000))),
        page("attributes-without-value", format!("<p {}>harm", "a ".repeat(100_000))),
        page("attributes-unclosed", format!("<p {} a=\"harm", "a=\"1\" ".repeat(20_000))),
        page("deep-div", "<div>".repeat(100_000)),
        page("deep-list", "<ul><li>".repeat(30_000)),
        page("deep-table", "<table><tr><td>".repeat(20_000)),
        page("deep-inline", "<b><i><code>".repeat(30_000)),
        page("deep-svg", "<svg><title>".repeat(30_000)),
        page("closed-only", "</div></p></table>".repeat(30_000)),
        page("unclosed-comment", format!("<!--{}", "x -- y ".repeat(50_000))),
        page("unclosed-script", format!("<script>{}", "</scrip".repeat(50_000))),
        page("unclosed-value", format!("<p title=\"{}", "<p>".repeat(50_000))),
        page("entities", "&amp;&lt;&#x41;&nosuch;&".repeat(20_000)),
        page("entity-numbers", "&#99999999999;&#xffffffff;&#0;".repeat(20_000)),
        page("angles", "<".repeat(200_000)),
        page("long-name", format!("<{}>", "x".repeat(500_000))),
        page("long-title", format!("<title>{}</title>", "word ".repeat(50_000))),
        page("long-description", format!("<meta name=description content=\"{}\">", "x".repeat(500_000))),
        page("titles", "<title>a</title>".repeat(20_000)),
        page("cells", format!("<table><tr>{}", "<td>a".repeat(50_000))),
        page("charset-unknown", "<meta charset=\"x-no-such\"><p>\u{e9}".to_owned()),
        page("doctype", format!("<!DOCTYPE html PUBLIC \"{}\"><p>harm", "x".repeat(200_000))),
        HostileFile::new("page-utf16.html", utf16(&"<p a=\"1\">harm".repeat(2_000))),
        HostileFile::new(
            "page-xml.xhtml",
            format!("<?xml version='1.0'?>{}", "<script a=\"1\"/>".repeat(20_000)),
        ),
    ]
}

fn markdown() -> Vec<HostileFile> {
    let text = |name: &str, body: String| HostileFile::new(format!("text-{name}.md"), body);
    vec![
        text("one-line", "word ".repeat(200_000)),
        text("one-word", "x".repeat(1_000_000)),
        text("one-line-of-spaces", format!("{}x", " ".repeat(1_000_000))),
        text("punctuation", ".,;:!?".repeat(100_000)),
        text("sentences", "A. ".repeat(200_000)),
        text("cjk", "漢字。".repeat(80_000)),
        text("hangul", "가나다".repeat(80_000)),
        text("accents", format!("a{}", "\u{301}".repeat(300_000))),
        text("zero-width", "\u{200b}\u{200d}\u{feff}".repeat(80_000)),
        text("bidi", "\u{202e}harm\u{2066}".repeat(50_000)),
        text("controls", "\u{1}\u{b}\u{c}\n".repeat(80_000)),
        text("headings", "# a\n".repeat(100_000)),
        text(
            "headings-deep",
            format!("{}{}", format!("# {}\n", "h".repeat(300)).repeat(5), "###### a\n".repeat(50_000)),
        ),
        text("heading-long", format!("# {}", "x".repeat(500_000))),
        text("fences", "```\n".repeat(80_000)),
        text("fence-unclosed", format!("```rust\n{}", "fn a() {}\n".repeat(30_000))),
        text("quotes-deep", ">".repeat(300_000)),
        text("list-deep", (0..2_000).map(|depth| format!("{}- a\n", " ".repeat(depth % 500))).collect()),
        text("links", "[".repeat(300_000)),
        text("empty-lines", "\n".repeat(500_000)),
        text("lines", "a\n".repeat(200_000)),
        text("numbers", format!("{}. a", "1".repeat(300_000))),
    ]
}

fn front_matter() -> Vec<HostileFile> {
    let block = |name: &str, body: String| HostileFile::new(format!("matter-{name}.md"), body);
    let aliases: String = (1..30)
        .map(|level| format!("a{level}: &a{level} [*a{0}, *a{0}, *a{0}, *a{0}]\n", level - 1))
        .collect();
    vec![
        block("aliases", format!("---\na0: &a0 ha\n{aliases}---\nbody")),
        block("deep-list", format!("---\ntags: {}\n---\nbody", "[".repeat(30_000))),
        block("deep-map", format!("---\na: {}\n---\nbody", "{a: ".repeat(10_000))),
        block("without-end", format!("---\n{}", "key: value\n".repeat(50_000))),
        block("keys", format!("---\n{}---\nbody", "key: value\n".repeat(5_000))),
        block("long-value", format!("---\ntitle: {}\n---\nbody", "x".repeat(60_000))),
        block("toml-deep", format!("+++\na = {}\n+++\nbody", "[".repeat(30_000))),
        block("toml-unclosed", format!("+++\na = [\n{}+++\nbody", "1,\n".repeat(10_000))),
        block("tabs", format!("---\n{}---\nbody", "\t- a\n".repeat(10_000))),
    ]
}

fn tables() -> Vec<HostileFile> {
    let table = |name: &str, body: String| HostileFile::new(format!("table-{name}.csv"), body);
    vec![
        table("columns", "a,".repeat(1_000_000)),
        table("rows", "a,b\n".repeat(150_000)),
        table("cell", format!("a,b\n\"{}\",1\n", "x".repeat(500_000))),
        table("unclosed-quote", format!("a,b\n\"{}", "1,2\n".repeat(100_000))),
        table("quotes", "\"".repeat(500_000)),
        table("quoted-quotes", "\"\"\"\"\"\",".repeat(50_000)),
        table(
            "long-headings",
            format!("{}\n{}", "heading of a column,".repeat(256), "1,".repeat(255)).repeat(50),
        ),
        table("zero-bytes", "a\0b,".repeat(20_000)),
        HostileFile::new("table-tabs.tsv", "\t".repeat(500_000)),
        HostileFile::new("table-returns.csv", "\r".repeat(300_000)),
    ]
}

fn notebooks() -> Vec<HostileFile> {
    let notebook = |name: &str, body: String| HostileFile::new(format!("notebook-{name}.ipynb"), body);
    let cell = |source: &str| format!("{{\"cells\":[{{\"cell_type\":\"code\",\"source\":{source}}}]}}");
    vec![
        notebook("deep-lists", "[".repeat(200_000)),
        notebook("deep-maps", "{\"a\":".repeat(100_000)),
        notebook("deep-source", cell(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)))),
        notebook("deep-ignored", format!("{{\"other\":{}", "[".repeat(200_000))),
        notebook("numbers", cell(&format!("[{}0]", "0,".repeat(400_000)))),
        notebook("strings", cell(&format!("[{}\"\"]", "\"\",".repeat(300_000)))),
        notebook(
            "outputs",
            format!(
                "{{\"cells\":[{{\"cell_type\":\"code\",\"source\":\"a\",\"outputs\":[{}{{}}]}}]}}",
                "{},".repeat(300_000)
            ),
        ),
        notebook(
            "cells",
            format!("{{\"cells\":[{}{{\"cell_type\":\"\"}}]}}", "{\"cell_type\":\"\"},".repeat(60_000)),
        ),
        notebook("worksheets", format!("{{\"worksheets\":[{}{{}}]}}", "{},".repeat(300_000))),
        notebook("long-text", cell(&format!("\"{}\"", "x".repeat(500_000)))),
        notebook("escapes", cell(&format!("\"{}\"", "\\ud800\\u0000\\n".repeat(30_000)))),
        notebook("keys", format!("{{{}\"cells\":[]}}", "\"cells\":[],".repeat(50_000))),
        notebook("number", format!("{{\"nbformat\":{}}}", "9".repeat(300_000))),
    ]
}

fn plain() -> Vec<HostileFile> {
    let laughs: String =
        (1..20).map(|level| format!("<!ENTITY a{level} \"&a{0};&a{0};&a{0};\">\n", level - 1)).collect();
    let deep_json = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    vec![
        HostileFile::new("plain-empty.txt", ""),
        HostileFile::new("plain-zero-bytes.txt", vec![0; 100_000]),
        HostileFile::new("plain-zero-bytes-late.txt", [vec![b'a'; 10_000], vec![0; 100_000]].concat()),
        HostileFile::new("plain-invalid-utf8.txt", b"harm \xff\xfe\xfd\xc0\xaf\xed\xa0\x80 ".repeat(5_000)),
        HostileFile::new("plain-overlong-utf8.txt", b"\xf0\x82\x82\xac\xe0\x80\xaf".repeat(10_000)),
        HostileFile::new("plain-utf16.txt", utf16(&"harm ".repeat(20_000))),
        HostileFile::new("plain-utf16-odd.txt", [utf16("harm"), vec![0xd8]].concat()),
        HostileFile::new(
            "plain-utf16-surrogates.txt",
            [&b"\xff\xfe"[..], &b"\x00\xd8".repeat(50_000)].concat(),
        ),
        HostileFile::new(
            "plain-utf16-big-endian.txt",
            [&b"\xfe\xff"[..], &b"\xd8\x00\x00a".repeat(20_000)].concat(),
        ),
        HostileFile::new("plain-mark-only.txt", "\u{feff}"),
        HostileFile::new("plain-escapes.txt", "\x1b[2J\x1b]0;harm\x07".repeat(20_000)),
        HostileFile::new("code-deep.json", deep_json),
        HostileFile::new(
            "code-entities.xml",
            format!("<!DOCTYPE a [<!ENTITY a0 \"ha\">\n{laughs}]><a>&a19;</a>"),
        ),
        HostileFile::new("code-deep.svg", "<g>".repeat(100_000)),
        HostileFile::new("code-aliases.yaml", "a: &a [*a, *a]\n".repeat(20_000)),
        HostileFile::new("code-one-line.js", "var a=1;".repeat(100_000)),
        HostileFile::new("code-lines.rs", "}\n".repeat(200_000)),
    ]
}

/// Text as UTF-16 with a byte order mark.
fn utf16(text: &str) -> Vec<u8> {
    std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}
