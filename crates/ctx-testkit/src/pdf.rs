//! Generated PDF documents, for benchmarks and tests.

use std::fmt::Write;

/// Number of pages of a generated document.
pub const PDF_PAGES: usize = 8;

/// A document with text and an image of `picture_bytes` bytes on each page; different seeds have different texts.
pub fn pdf(seed: usize, picture_bytes: usize) -> Vec<u8> {
    let mut objects: Vec<Vec<u8>> = Vec::new();
    let kids: String = (0..PDF_PAGES).map(|page| format!("{} 0 R ", 4 + page * 3)).collect();
    objects.push(b"<< /Type /Catalog /Pages 2 0 R >>".to_vec());
    objects.push(format!("<< /Type /Pages /Count {PDF_PAGES} /Kids [{kids}] >>").into_bytes());
    objects.push(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_vec());
    for page in 0..PDF_PAGES {
        let (content, picture) = (5 + page * 3, 6 + page * 3);
        objects.push(
            format!(
                "<< /Type /Page /Parent 2 0 R /Contents {content} 0 R /Resources << /Font << /F 3 0 R >> /XObject << /X {picture} 0 R >> >> >>"
            )
            .into_bytes(),
        );
        let mut text = String::from("BT /F 11 Tf 14 TL 50 800 Td\n");
        for line in 0..50 {
            let _ = writeln!(
                text,
                "(Line {line} of page {page} in document {seed}: ships arrive at the harbour before noon.) Tj T*"
            );
        }
        text.push_str("ET /X Do");
        objects.push(stream("", text.as_bytes()));
        objects.push(stream(
            "/Type /XObject /Subtype /Image /Width 100 /Height 100",
            &vec![b'\x7f'; picture_bytes],
        ));
    }
    let mut bytes = b"%PDF-1.5\n".to_vec();
    let mut xref_entries = String::new();
    for (index, object) in objects.iter().enumerate() {
        let _ = writeln!(xref_entries, "{:010} 00000 n ", bytes.len());
        bytes.extend(format!("{} 0 obj\n", index + 1).into_bytes());
        bytes.extend(object);
        bytes.extend(b"\nendobj\n");
    }
    let (xref_offset, count) = (bytes.len(), objects.len() + 1);
    bytes.extend(
        format!(
            "xref\n0 {count}\n0000000000 65535 f \n{xref_entries}trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{xref_offset}\n%%EOF\n"
        )
        .into_bytes(),
    );
    bytes
}

fn stream(about: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = format!("<< {about} /Length {} >>\nstream\n", content.len()).into_bytes();
    bytes.extend(content);
    bytes.extend(b"\nendstream");
    bytes
}
