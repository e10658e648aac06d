//! Charts and SmartArt diagrams in office packages. Each is a part of its own, with the words that the page shows.

use super::archive::Archive;
use super::composer::Composer;
use super::package::Relationship;
use super::xml::{XmlEvent, XmlReader};
use std::mem;

/// Whether a part of this relationship is read by [`compose_drawing`].
pub(super) fn is_drawing(relationship: &Relationship) -> bool {
    matches!(relationship.kind.as_str(), "chart" | "diagramData")
}

/// Adds the paragraphs of a drawing, and a row for the names of the series and for the categories of a chart. Numbers
/// are left out, and so is a drawing that cannot be read: it is no reason to lose the document.
pub(super) fn compose_drawing(archive: &mut Archive<'_>, part: &str, composer: &mut Composer<'_>) {
    let Ok(Some(text)) = archive.text(part) else { return };
    let mut xml = XmlReader::new(&text, part, archive.bounds());
    let (mut line, mut in_text) = (String::new(), false);
    // The cached names of the series or of the categories, which every series repeats.
    let mut names: Option<Vec<String>> = None;
    let mut last_categories = Vec::new();
    while !composer.is_full() {
        let Ok(event) = xml.next() else { return };
        match event {
            XmlEvent::Start(tag) => match tag.local_name().into_inner() {
                "t" => in_text = true,
                "v" if names.is_some() => in_text = true,
                "br" => line.push('\n'),
                "strCache" => names = Some(Vec::new()),
                _ => {}
            },
            XmlEvent::Text(text) if in_text => line.push_str(&text),
            XmlEvent::End(tag) => match tag.local_name().into_inner() {
                "t" => in_text = false,
                "p" => composer.paragraph(&mem::take(&mut line)),
                "v" => {
                    in_text = false;
                    let name = mem::take(&mut line);
                    if let Some(names) =
                        names.as_mut().filter(|names| names.len() < composer.bounds().limits.cells)
                    {
                        names.push(name);
                    }
                }
                "strCache" => {
                    let row = names.take().unwrap_or_default();
                    if row != last_categories {
                        composer.row(&row);
                    }
                    if row.len() > 1 {
                        last_categories = row;
                    }
                }
                _ => {}
            },
            XmlEvent::Text(_) => {}
            XmlEvent::Eof => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::archive::tests::packed;
    use super::super::{RawDocument, samples};

    const CHART: &str = "<c:chartSpace xmlns:c='c' xmlns:a='a'><c:title><a:p><a:r><a:t>Ships</a:t></a:r></a:p></c:title>\
        <c:ser><c:tx><c:strCache><c:pt><c:v>North</c:v></c:pt></c:strCache></c:tx>\
        <c:cat><c:strCache><c:pt><c:v>May</c:v></c:pt><c:pt><c:v>June</c:v></c:pt></c:strCache></c:cat>\
        <c:val><c:numCache><c:pt><c:v>7</c:v></c:pt></c:numCache></c:val></c:ser>\
        <c:ser><c:tx><c:strCache><c:pt><c:v>South</c:v></c:pt></c:strCache></c:tx>\
        <c:cat><c:strCache><c:pt><c:v>May</c:v></c:pt><c:pt><c:v>June</c:v></c:pt></c:strCache></c:cat></c:ser></c:chartSpace>";
    const DIAGRAM: &str = "<d:dataModel xmlns:d='d' xmlns:a='a'><d:pt><d:t><a:p><a:r><a:t>Pilot</a:t></a:r></a:p></d:t></d:pt></d:dataModel>";
    const RELATIONSHIPS: &str = "<Relationships><Relationship Id='r1' Type='x/chart' Target='/c.xml'/>\
        <Relationship Id='r2' Type='x/diagramData' Target='/d.xml'/><Relationship Id='r3' Type='x/chart' Target='/none.xml'/><Relationship Id='r4' Type='x/chart' Target='/damaged.xml'/>\
        <Relationship Id='s' Type='x/slide' Target='s.xml'/></Relationships>";
    const WORDS: &str = "Ships\n\n| North |\n| May | June |\n| South |\n\nPilot\n";

    fn body(name: &str, members: &[(&str, &str)]) -> String {
        let drawings = [
            ("[Content_Types].xml", "<Types/>"),
            ("c.xml", CHART),
            ("d.xml", DIAGRAM),
            ("damaged.xml", "<c:"),
        ];
        let members = drawings.iter().chain(members).map(|(name, text)| (*name, text.as_bytes()));
        let bytes = packed(&members.collect::<Vec<_>>());
        samples::extract(RawDocument::new(bytes, name, None)).unwrap().body
    }

    #[test]
    fn the_words_of_charts_and_diagrams_are_read() {
        let document = "<w:document xmlns:w='w'><w:p><w:r><w:t>a</w:t></w:r></w:p></w:document>";
        let docx = [("word/document.xml", document), ("word/_rels/document.xml.rels", RELATIONSHIPS)];
        assert_eq!(body("a.docx", &docx), format!("a\n\n{WORDS}"));
        let pptx = [
            (
                "ppt/presentation.xml",
                "<p:presentation xmlns:p='p' xmlns:r='r'><p:sldId r:id='s'/></p:presentation>",
            ),
            ("ppt/_rels/presentation.xml.rels", RELATIONSHIPS),
            ("ppt/s.xml", "<p:sld xmlns:p='p'/>"),
            ("ppt/_rels/s.xml.rels", RELATIONSHIPS),
        ];
        assert_eq!(body("a.pptx", &pptx), format!("## Slide 1\n\n{WORDS}"));
    }
}
