//! Hostile PDFs: reference cycles, deep nesting, false lengths and counts.

use super::HostileFile;

/// A page with a font, a form XObject and a content stream.
const PAGE: &str =
    "<</Type/Page/Parent 2 0 R/Contents 5 0 R/Resources<</Font<</F 4 0 R>>/XObject<</X 6 0 R>>>>>>";
const FONT: &str = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>";
const SHOWN: &str = "BT /F 12 Tf 10 10 Td (harm) Tj ET /X Do";

pub(super) fn files() -> Vec<HostileFile> {
    let pages = "<</Type/Pages/Count 1/Kids[3 0 R]>>";
    let catalog = "<</Type/Catalog/Pages 2 0 R>>";
    let shown = |content: &str| pdf(&[catalog, pages, PAGE, FONT, &stream("", content), "null"], "");
    let file = |name: &str, bytes: Vec<u8>| HostileFile::new(format!("pdf-{name}.pdf"), bytes);
    let with = |name: &str, place: usize, object: &str| {
        let content = stream("", SHOWN);
        let mut objects = [catalog, pages, PAGE, FONT, &content, "null"];
        objects[place - 1] = object;
        file(name, pdf(&objects, ""))
    };
    let kids = format!("<</Type/Pages/Count 99999999/Kids[{}]>>", "3 0 R ".repeat(20_000));
    let form = stream("/Type/XObject/Subtype/Form", "/X Do /X Do");
    let object_stream = stream("/Type/ObjStm/N 100000/First 10", "1 0 2 0 3 0");
    let whole = shown(SHOWN);
    let bare =
        |body: String| format!("%PDF-1.7\n1 0 obj\n{body}\nendobj\ntrailer<</Root 1 0 R>>").into_bytes();
    let many: String = (10..20_000).map(|id| format!("{id} 0 obj\n[]\nendobj\n")).collect();
    vec![
        file("whole", whole.clone()),
        with("kids-loop", 2, "<</Type/Pages/Count 2/Kids[3 0 R 2 0 R]/Parent 2 0 R>>"),
        with("kids-many", 2, &kids),
        with("catalog-loop", 1, "1 0 R"),
        with("contents-loop", 5, "5 0 R"),
        with("contents-list", 5, &format!("[{}]", "5 0 R ".repeat(10_000))),
        with(
            "font-loop",
            4,
            "<</Type/Font/Subtype/Type0/DescendantFonts[4 0 R]/ToUnicode 4 0 R/Encoding 4 0 R>>",
        ),
        with("form-loop", 6, &form),
        with("object-stream", 6, &object_stream),
        with("length-lie", 5, "<</Length 99999999999>>\nstream\nharm\nendstream"),
        with("length-loop", 5, "<</Length 5 0 R>>\nstream\nharm\nendstream"),
        with("length-negative", 5, "<</Length -1>>\nstream\nharm\nendstream"),
        with("filters", 5, &stream(&format!("/Filter[{}]", "/ASCIIHexDecode".repeat(2_000)), "3c")),
        with("filter-damaged", 5, &stream("/Filter/FlateDecode", "this is not compressed")),
        with(
            "widths",
            4,
            &format!("<</Type/Font/Subtype/Type1/FirstChar 4294967295/Widths[{}]>>", "1 ".repeat(50_000)),
        ),
        file("arrays-in-content", shown(&format!("BT /F 12 Tf {} TJ ET", "[".repeat(50_000)))),
        file(
            "nested-arrays-in-content",
            shown(&format!("BT /F 12 Tf {}(a){} TJ ET", "[".repeat(90), "]".repeat(90))),
        ),
        file("operators", shown(&"q ".repeat(100_000))),
        file("numbers", shown(&"9999999999999999999999 ".repeat(20_000))),
        file("long-text", shown(&format!("BT /F 12 Tf ({}) Tj ET", "x".repeat(300_000)))),
        file("deep-arrays", bare("[".repeat(100_000))),
        file("deep-maps", bare("<</A".repeat(50_000))),
        file("deep-texts", bare("(".repeat(100_000))),
        file("deep-names", bare(format!("/{}", "#41".repeat(50_000)))),
        file("references", bare(format!("[{}]", "1 0 R ".repeat(50_000)))),
        file("objects", [&whole[..], many.as_bytes()].concat()),
        file("trailer-loop", pdf(&[catalog, pages, PAGE, FONT, &stream("", SHOWN), "null"], "/Prev 9")),
        file(
            "encrypted-nonsense",
            pdf(
                &[catalog, pages, PAGE, FONT, &stream("", SHOWN), "null"],
                "/Encrypt<</Filter/Standard/V 9/R 99/O()/U()/P 0>>",
            ),
        ),
        file("mark-only", b"%PDF-1.7".to_vec()),
        file("no-end", whole[..whole.len() - 40].to_vec()),
        file("start-lie", [&whole[..], b"\nstartxref\n99999999\n%%EOF"].concat()),
    ]
}

fn stream(about: &str, content: &str) -> String {
    format!("<<{about}/Length {}>>\nstream\n{content}\nendstream", content.len())
}

/// A document of these objects, numbered from 1, with a cross-reference table.
fn pdf(objects: &[&str], trailer: &str) -> Vec<u8> {
    let mut text = "%PDF-1.5\n".to_owned();
    let mut places = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        places.push(text.len());
        text.push_str(&format!("{} 0 obj\n{object}\nendobj\n", index + 1));
    }
    let table = text.len();
    text.push_str(&format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1));
    places.iter().for_each(|place| text.push_str(&format!("{place:010} 00000 n \n")));
    let size = objects.len() + 1;
    text.push_str(&format!("trailer\n<</Size {size}/Root 1 0 R{trailer}>>\nstartxref\n{table}\n%%EOF\n"));
    text.into_bytes()
}
