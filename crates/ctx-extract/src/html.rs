//! HTML: the text of the article, without navigation and other page elements.
//!
//! Works on a stream of tokens without a tree, so deep nesting costs no more than flat content.

use super::bounds::Bounds;
use super::composer::{Composer, one_line};
use super::front_matter::parse_timestamp;
use super::{ExtractError, ExtractedText, Extractor, RawDocument, TextStructure, text};

mod blocks;
mod tokens;

use blocks::BlockBuilder;
use tokens::{HtmlToken, HtmlTokens, Tag};

pub(super) const EXTRACTOR: Extractor = Extractor { accepts, extract, needs_worker: true };

/// Bytes at the start of a page that are searched for its character set.
const CHARSET_BYTES: usize = 2 << 10;
/// If the article is shorter than this fraction of the page (one eighth), the whole page is used.
const ARTICLE_SHARE_MIN: usize = 8;

fn accepts(raw: &RawDocument) -> bool {
    let is_hinted = || raw.matches_hints(&["text/html", "application/xhtml+xml"], &["html", "htm", "xhtml"]);
    raw.is_text() && (is_hinted() || looks_like_html(&raw.bytes) && text::code_type(raw).is_none())
}

fn looks_like_html(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).to_ascii_lowercase();
    let head = head.trim_start_matches('\u{feff}').trim_start();
    ["<!doctype html", "<html"]
        .iter()
        .any(|start| head.starts_with(start) || head.starts_with("<?xml") && head.contains(start))
}

fn extract(raw: &RawDocument, bounds: &Bounds) -> Result<ExtractedText, ExtractError> {
    let declared = raw.charset.clone().or_else(|| declared_charset(&raw.bytes));
    let page = text::decode(&raw.bytes, declared.as_deref())?;
    let mut extracted = ExtractedText {
        structure: TextStructure::Markdown,
        content_type: "text/html".to_owned(),
        ..ExtractedText::default()
    };
    let mut composer = Composer::new(bounds);
    let metadata = compose(&page, &mut composer);
    (extracted.body, extracted.note) = composer.finish();
    extracted.title = metadata.title();
    extracted.author = metadata.author;
    extracted.created_at = metadata.published.as_deref().and_then(parse_timestamp);
    extracted.updated_at = metadata.modified.as_deref().and_then(parse_timestamp);
    if let Some(description) = metadata.description {
        extracted.metadata.insert("description".to_owned(), description.into());
    }
    Ok(extracted)
}

/// The character set declared in the page.
fn declared_charset(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(CHARSET_BYTES)]).to_ascii_lowercase();
    let after = &head[head.find("charset=")? + "charset=".len()..];
    let name = after.trim_start_matches(['"', '\'', ' ']);
    let end = name.find(|char: char| !char.is_ascii_alphanumeric() && !"-_".contains(char));
    let name = &name[..end.unwrap_or(name.len())];
    (!name.is_empty()).then(|| name.to_owned())
}

/// Metadata of a page.
#[derive(Debug, Default)]
pub(super) struct PageMetadata {
    pub(super) title_element: Option<String>,
    pub(super) first_heading: Option<String>,
    author: Option<String>,
    description: Option<String>,
    published: Option<String>,
    modified: Option<String>,
    has_article: bool,
}

impl PageMetadata {
    /// The first heading if the page's `<title>` contains it (and only adds the site's name), else the `<title>`.
    pub(super) fn title(&self) -> Option<String> {
        let title = self.title_element.as_deref().map(one_line).filter(|title| !title.is_empty());
        let heading = self.first_heading.clone();
        match (title, heading) {
            (Some(title), Some(heading)) if title.contains(&heading) => Some(heading),
            (title, heading) => title.or(heading),
        }
    }

    fn read_meta_tag(&mut self, tag: &Tag) {
        let Some(content) = tag.attribute("content").filter(|content| !content.trim().is_empty()) else {
            return;
        };
        let name = tag.attribute("name").or_else(|| tag.attribute("property")).unwrap_or_default();
        let field = match name.to_ascii_lowercase().as_str() {
            "author" => &mut self.author,
            "description" | "og:description" => &mut self.description,
            "article:published_time" | "dcterms.created" => &mut self.published,
            "article:modified_time" | "dcterms.modified" => &mut self.modified,
            _ => return,
        };
        field.get_or_insert_with(|| one_line(&content));
    }
}

/// Adds the text of a page: its article if one is marked, else everything except navigation and the like.
pub(super) fn compose(page: &str, composer: &mut Composer<'_>) -> PageMetadata {
    let bounds = composer.bounds();
    let mut whole = Composer::new(bounds);
    let metadata = read_page(page, &mut whole, false);
    let mut best = whole;
    if metadata.has_article {
        let mut article = Composer::new(bounds);
        read_page(page, &mut article, true);
        if article.length() * ARTICLE_SHARE_MIN >= best.length() {
            best = article;
        }
    }
    composer.append(best);
    metadata
}

fn read_page(page: &str, composer: &mut Composer<'_>, only_article: bool) -> PageMetadata {
    let mut metadata = PageMetadata::default();
    let mut blocks = BlockBuilder::new(composer, only_article);
    let xml = page.trim_start_matches('\u{feff}').starts_with("<?xml");
    let mut in_title = false;
    for token in HtmlTokens::new(page, xml) {
        match token {
            HtmlToken::StartTag(tag) => {
                match &*tag.name {
                    "title" if metadata.title_element.is_none() && !blocks.is_in("svg") => {
                        in_title = !(xml && tag.self_closing)
                    }
                    "meta" => metadata.read_meta_tag(&tag),
                    "main" | "article" => metadata.has_article = true,
                    _ => {}
                }
                blocks.open(&tag.name, &|name| tag.attribute(name), tag.self_closing && xml);
            }
            HtmlToken::EndTag(name) => {
                in_title &= name != "title";
                blocks.close(&name);
            }
            HtmlToken::Text(text) if in_title => {
                metadata.title_element.get_or_insert_default().push_str(&text)
            }
            HtmlToken::Text(text) => blocks.text(&text),
            HtmlToken::Pending => {}
        }
        if blocks.is_full() {
            break;
        }
    }
    metadata.first_heading = blocks.finish();
    metadata
}

#[cfg(test)]
mod tests {
    use super::super::bounds::ExtractLimits;
    use super::super::samples::extract;
    use super::*;

    fn page(html: &str) -> ExtractedText {
        extract(RawDocument::new(html.as_bytes().to_vec(), "page", Some("text/html"))).unwrap()
    }

    #[test]
    fn a_page_becomes_its_article() {
        let extracted = page(
            "<!doctype html><html><head><title>Tides – Harbour site</title>
             <meta name=description content='When the sea comes'><meta name=author content='Ada'>
             <style>p{}</style><script>var a = '<p>no</p>';</script></head>
             <body><nav><a href=/>Home</a></nav><header>Menu</header>
             <main><h1>Tides</h1><p>The   sea &amp; the\nmoon.<br>Twice a <b>day</b>.
             <ul><li>High<li>Low <ol><li>very<li>less</ol></ul>
             <h2>Code</h2><pre><code class='language-rust'>fn main() {\n    a();\n}</code></pre>
             <p>Use <code>cargo</code>.</p>
             <table><thead><tr><th>Day<th>Height</thead><tr><td>Mon<td><p>3</p><p>m</p></tr></table>
             <img src=x alt='A chart'></main>
             <aside>Subscribe!</aside><footer>© 2024</footer></body></html>",
        );
        let expected = "# Tides\n\nThe sea & the moon.\nTwice a day.\n\n- High\n- Low\n  1. very\n  2. less\n\n## Code\n\n```rust\nfn main() {\n    a();\n}\n```\n\nUse `cargo`.\n\n| Day | Height |\n| Mon | 3 m |\n\nA chart\n";
        assert_eq!(extracted.body, expected);
        assert_eq!(extracted.title.as_deref(), Some("Tides"));
        assert_eq!(extracted.author.as_deref(), Some("Ada"));
        assert_eq!(extracted.metadata["description"], "When the sea comes");
        assert_eq!((extracted.structure, &*extracted.content_type), (TextStructure::Markdown, "text/html"));
    }

    #[test]
    fn a_page_without_marks_is_read_whole() {
        let extracted =
            page("<title>Old</title><body><center><font>Hello</font> <i>w</i>orld<hr>Next<p>A<p>B");
        assert_eq!(extracted.body, "Hello world\n\nNext\n\nA\n\nB\n");
        assert_eq!(extracted.title.as_deref(), Some("Old"));
    }

    #[test]
    fn a_table_that_only_lays_out_is_no_table() {
        let extracted =
            page("<table><tr><td>Left<td><h1>Title</h1><table><tr><td>a<td>b</table>After</table>");
        assert_eq!(extracted.body, "Left\n\n# Title\n\n| a | b |\n\nAfter\n");
    }

    #[test]
    fn html_is_known_by_what_it_begins_with() {
        let kind = |bytes: &[u8], name: &str| {
            extract(RawDocument::new(bytes.to_vec(), name, None)).unwrap().content_type
        };
        assert_eq!(kind(b"\n<!DOCTYPE HTML><p>x", "a.md"), "text/html");
        assert_eq!(kind(b"<?xml version='1.0'?>\n<html xmlns='x'>", "a"), "text/html");
        assert_eq!(kind(b"<html>", "a.php"), "text/x-php");
        assert_eq!(kind(b"<p>not a page</p>", "a.md"), "text/markdown");
    }

    #[test]
    fn the_declared_character_set_is_used() {
        let bytes = b"<meta http-equiv=content-type content='text/html; charset=windows-1251'>\xcf\xf0\xe8\xe2\xe5\xf2";
        let text =
            |content_type| extract(RawDocument::new(bytes.to_vec(), "a", Some(content_type))).unwrap().body;
        assert_eq!(text("text/html"), "Привет\n");
        assert_eq!(text("text/html; charset=\"koi8-r\""), "оПХБЕР\n");
    }

    #[test]
    fn in_xml_an_empty_script_has_ended() {
        let extracted = page(
            "<?xml version='1.0'?><html><head><title/><script src='a'/></head><body><p>Text</p></body></html>",
        );
        assert_eq!(extracted.body, "Text\n");
    }

    #[test]
    fn depth_without_end_costs_nothing() {
        for (tag, times) in
            [("div", 100_000), ("ul><li", 10_000), ("table><tr><td", 10_000), ("article", 10_000)]
        {
            let html = format!("{}deep{}", format!("<{tag}>").repeat(times), "</div>".repeat(1_000));
            assert_eq!(page(&html).body.trim_start_matches([' ', '-']), "deep\n", "{tag}");
        }
        // Unclosed elements swallow the rest, as in a browser, but nothing hangs.
        for html in ["<script>", "<!--", "<title>", "<p a='", "<", "&#xffffffffff;", "<svg><title>"] {
            page(&format!("before {}", html.repeat(2_000)));
        }
    }

    #[test]
    fn a_page_stops_at_the_bounds() {
        let bounds = Bounds::start(ExtractLimits { text_bytes: 100, ..ExtractLimits::DEFAULT });
        let raw = RawDocument::new("<p>word word".repeat(1_000).into_bytes(), "a.html", None);
        let extracted = super::extract(&raw, &bounds).unwrap();
        assert!(extracted.body.len() <= 101 && extracted.note.is_some());
    }
}
