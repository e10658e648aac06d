//! What things outside are called inside: ids from paths, and paths in addresses.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// All but the unreserved characters of a URL, and the slashes between a path's segments.
const ESCAPED_IN_PATHS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The path as text; bytes that are none are escaped, so that no two files have the same name.
pub(super) fn source_id(path: &[u8]) -> String {
    let mut name = String::new();
    for chunk in path.utf8_chunks() {
        name.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| name.push_str(&format!("\\x{byte:02x}")));
    }
    name
}

/// The path as part of an address.
pub(super) fn percent_encoded(path: &[u8]) -> String {
    percent_encode(path, ESCAPED_IN_PATHS).to_string()
}

/// What to say of a document that is larger than the limit.
pub(super) fn too_large(bytes: u64, bytes_max: u64) -> String {
    format!("it has {bytes} bytes; the limit is {bytes_max} (limits.document_bytes)")
}

/// Room for a document of this size; asking for too much memory otherwise ends the whole program.
pub(super) fn room(bytes: u64) -> Result<Vec<u8>, String> {
    let mut room = Vec::new();
    let reserved = usize::try_from(bytes).is_ok_and(|size| room.try_reserve_exact(size).is_ok());
    if reserved { Ok(room) } else { Err(format!("there is no memory to read its {bytes} bytes")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        assert!(room(100).unwrap().capacity() >= 100);
        let expected = format!("there is no memory to read its {} bytes", u64::MAX);
        assert_eq!(room(u64::MAX), Err(expected));
    }

    #[test]
    fn names_that_are_not_text_stay_apart() {
        assert_eq!(source_id("Grüße.md".as_bytes()), "Grüße.md");
        assert_eq!(source_id(b"a\xff.md"), "a\\xff.md");
        assert_ne!(source_id(b"a\xff.md"), source_id(b"a\xfe.md"));
    }

    #[test]
    fn what_has_a_meaning_in_an_address_is_escaped() {
        assert_eq!(percent_encoded(b"a b/c#d?e%.md"), "a%20b/c%23d%3Fe%25.md");
        assert_eq!(percent_encoded("ü".as_bytes()), "%C3%BC");
        assert_eq!(percent_encoded(b"\xff"), "%FF");
    }
}
