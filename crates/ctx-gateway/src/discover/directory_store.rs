//! Directory parts that are kept across starts, under a hash of the functions that they were made of.

use ctx_core::CatalogEntry;
use ctx_rank::SmallTextSegment;

/// To be increased whenever the same functions give another line or other search texts.
const FORMAT: u32 = 1;

/// Maximum bytes of a stored part; a larger one is made again at each start.
const PART_BYTES_MAX: usize = 256 << 20;

/// Storage of directory parts. It may block. Whoever can write to it decides what functions seem to do, so it must be
/// the user's own.
pub trait DirectoryStore: Send + Sync + 'static {
    /// Loads what was stored under a key, a hexadecimal hash.
    fn load(&self, key: &str) -> Option<Vec<u8>>;

    /// Stores a part. If that fails, the part is made again at the next start.
    fn save(&self, key: &str, part: &[u8]);
}

/// The key of the part of these functions: a hash of all that it is made of. `None` if a schema has no identity.
pub(super) fn part_key(entries: &[&CatalogEntry]) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    // With its length before it, so that different lists of texts do not hash alike.
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    add(env!("CARGO_PKG_VERSION"));
    add(&format!("{FORMAT} {}", SmallTextSegment::FORMAT));
    for CatalogEntry { name, spec, .. } in entries {
        add(name.provider().as_str());
        add(name.tool().as_str());
        add(spec.title.as_deref().unwrap_or_default());
        add(&spec.description);
        add(&format!("{} {:?} {}", spec.tags.len(), spec.body, spec.output_schema.is_some()));
        spec.tags.iter().for_each(|tag| add(tag));
        for schema in std::iter::once(&spec.input_schema).chain(&spec.output_schema) {
            add(&schema.identity()?);
        }
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// A part as bytes, a checksum first.
pub(super) fn part_to_bytes<'a>(
    lines: impl ExactSizeIterator<Item = &'a str>,
    texts: &SmallTextSegment,
) -> Vec<u8> {
    let mut content = (lines.len() as u64).to_le_bytes().to_vec();
    for line in lines {
        content.extend((line.len() as u64).to_le_bytes());
        content.extend(line.as_bytes());
    }
    content.extend(texts.to_bytes());
    [blake3::hash(&content).as_bytes().as_slice(), &content].concat()
}

/// The lines and the segment of a stored part; `None` if it is damaged.
pub(super) fn part_from_bytes(bytes: &[u8]) -> Option<(Vec<String>, SmallTextSegment)> {
    let (checksum, content) = bytes.split_first_chunk::<{ blake3::OUT_LEN }>()?;
    if bytes.len() > PART_BYTES_MAX || blake3::hash(content) != *checksum {
        return None;
    }
    let (count, mut rest) = read_length(content)?;
    let mut lines = Vec::new();
    for _ in 0..count {
        let (length, after) = read_length(rest)?;
        let (line, after) = after.split_at_checked(length)?;
        lines.push(std::str::from_utf8(line).ok()?.to_owned());
        rest = after;
    }
    Some((lines, SmallTextSegment::from_bytes(rest)?))
}

fn read_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u64::from_le_bytes(*length)).ok()?, rest))
}
