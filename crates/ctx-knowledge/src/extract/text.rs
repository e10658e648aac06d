//! Plain text in any common encoding.

use super::{Extracted, Extractor, NoText, Raw, ending};
use encoding_rs::{Encoding, WINDOWS_1252};

/// Bytes looked at to tell text from the rest.
const SNIFF_BYTES: usize = 8 << 10;

pub(super) const EXTRACTOR: Extractor = Extractor { accepts: |_| true, extract };

fn extract(raw: &Raw<'_>) -> Result<Extracted, NoText> {
    let content_type = raw.content_type.unwrap_or(match ending(raw.name).as_str() {
        "html" | "htm" => "text/html",
        "csv" => "text/csv",
        "json" => "application/json",
        _ => "text/plain",
    });
    Ok(Extracted { body: decode(raw.bytes)?, title: None, content_type: content_type.to_owned() })
}

/// Text by byte-order mark, else UTF-8, else Windows-1252, which covers what western files that
/// are not UTF-8 almost always are.
pub(super) fn decode(bytes: &[u8]) -> Result<String, NoText> {
    if let Some((encoding, mark_length)) = Encoding::for_bom(bytes) {
        let (text, _) = encoding.decode_without_bom_handling(&bytes[mark_length..]);
        return Ok(text.replace('\0', ""));
    }
    let head = &bytes[..bytes.len().min(SNIFF_BYTES)];
    if head.contains(&0) || head.starts_with(b"%PDF-") {
        return Err(NoText::NotText);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.replace('\0', "")),
        Err(_) if control_share(head) > 0.02 => Err(NoText::NotText),
        Err(_) => Ok(WINDOWS_1252.decode_without_bom_handling(bytes).0.replace('\0', "")),
    }
}

fn control_share(bytes: &[u8]) -> f64 {
    let controls = bytes.iter().filter(|byte| **byte < 0x20 && !b"\t\n\r\x0c\x1b".contains(byte)).count();
    controls as f64 / bytes.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_encodings_become_text() {
        assert_eq!(decode("naïve".as_bytes()).unwrap(), "naïve");
        assert_eq!(decode(b"na\xefve caf\xe9").unwrap(), "naïve café");
        assert_eq!(decode(b"\xff\xfeh\0i\0").unwrap(), "hi");
        assert_eq!(decode(b"\xef\xbb\xbfhi").unwrap(), "hi");
        assert_eq!(decode(b"").unwrap(), "");
    }

    #[test]
    fn what_is_not_text_says_so() {
        assert_eq!(decode(b"\x89PNG\r\n\x1a\n\0\0\0"), Err(NoText::NotText));
        assert_eq!(decode(b"%PDF-1.7 text"), Err(NoText::NotText));
        assert_eq!(decode(&[0x81, 0x02, 0x03, 0x04, 0x9d, 0x05]), Err(NoText::NotText));
    }
}
