//! Helpers that connectors share: source ids, URL paths, and buffers for documents.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Characters to escape in a URL path: all but the unreserved ones, and the slashes between segments.
const ESCAPED_IN_PATHS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path as a source id. Bytes that are not UTF-8 are escaped, so that different files have different ids.
pub(super) fn source_id(path: &[u8]) -> String {
    let mut name = String::new();
    for chunk in path.utf8_chunks() {
        name.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| name.push_str(&format!("\\x{byte:02x}")));
    }
    name
}

/// A path, percent-encoded for a URL.
pub(super) fn percent_encode_path(path: &[u8]) -> String {
    percent_encode(path, ESCAPED_IN_PATHS).to_string()
}

/// The error for a document that is larger than the limit.
pub(super) fn too_large_reason(bytes: u64, bytes_max: u64) -> String {
    format!("it has {bytes} bytes; the limit is {bytes_max} (limits.document_bytes)")
}

/// An empty buffer for a document of this size; an error if memory is short, where an allocation would abort the
/// process.
pub(super) fn allocate_buffer(bytes: u64) -> Result<Vec<u8>, String> {
    let mut buffer = Vec::new();
    let reserved = usize::try_from(bytes).is_ok_and(|size| buffer.try_reserve_exact(size).is_ok());
    if reserved { Ok(buffer) } else { Err(format!("not enough memory to read its {bytes} bytes")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_larger_than_memory_is_an_error() {
        assert!(allocate_buffer(100).unwrap().capacity() >= 100);
        let expected = format!("not enough memory to read its {} bytes", u64::MAX);
        assert_eq!(allocate_buffer(u64::MAX), Err(expected));
    }

    #[test]
    fn names_that_are_not_utf8_stay_distinct() {
        assert_eq!(source_id("Grüße.md".as_bytes()), "Grüße.md");
        assert_eq!(source_id(b"a\xff.md"), "a\\xff.md");
        assert_ne!(source_id(b"a\xff.md"), source_id(b"a\xfe.md"));
    }

    #[test]
    fn reserved_characters_of_urls_are_escaped() {
        assert_eq!(percent_encode_path(b"a b/c#d?e%.md"), "a%20b/c%23d%3Fe%25.md");
        assert_eq!(percent_encode_path("ü".as_bytes()), "%C3%BC");
        assert_eq!(percent_encode_path(b"\xff"), "%FF");
    }
}
