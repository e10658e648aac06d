//! A [`SmallTextSegment`] as bytes, to be kept across starts. The bytes are not trusted: reading them never fails
//! otherwise than by `None`, and whatever is read can be searched.

use super::segment::{Posting, SmallTextSegment, TermEmbeddings};
use ctx_embed::Model;

impl SmallTextSegment {
    /// Version of the bytes and of the analysis; to be increased whenever the same texts give another segment.
    pub const FORMAT: u32 = 1;

    /// Its tables, each with its length before it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_table(&mut bytes, self.terms.as_bytes(), |byte| [*byte]);
        write_table(&mut bytes, &self.term_ends, |end| end.to_le_bytes());
        write_table(&mut bytes, &self.postings, |posting| {
            let ([a, b, c, d], [e, f, g, h]) = (posting.text.to_le_bytes(), posting.weight.to_le_bytes());
            [a, b, c, d, e, f, g, h]
        });
        write_table(&mut bytes, &self.posting_ends, |end| end.to_le_bytes());
        write_table(&mut bytes, &self.lengths, |length| length.to_le_bytes());
        write_table(&mut bytes, &self.actions, |action| [*action]);
        write_table(&mut bytes, &self.vectors, |value| value.to_le_bytes());
        write_table(&mut bytes, &self.vocabulary.terms, |term| term.to_le_bytes());
        write_table(&mut bytes, &self.vocabulary.codes, |code| code.to_le_bytes());
        write_table(&mut bytes, &self.vocabulary.scales, |scale| scale.to_le_bytes());
        bytes
    }

    /// The segment of these bytes; `None` if they are damaged.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let segment = Self {
            terms: String::from_utf8(read_table(bytes, |[byte]| byte)?).ok()?,
            term_ends: read_table(bytes, u32::from_le_bytes)?,
            postings: read_table(bytes, |[a, b, c, d, e, f, g, h]| Posting {
                text: u32::from_le_bytes([a, b, c, d]),
                weight: f32::from_le_bytes([e, f, g, h]),
            })?,
            posting_ends: read_table(bytes, u32::from_le_bytes)?,
            lengths: read_table(bytes, f32::from_le_bytes)?,
            actions: read_table(bytes, |[action]| action)?,
            vectors: read_table(bytes, f32::from_le_bytes)?,
            vocabulary: TermEmbeddings {
                terms: read_table(bytes, u32::from_le_bytes)?,
                codes: read_table(bytes, i8::from_le_bytes)?,
                scales: read_table(bytes, f32::from_le_bytes)?,
            },
        };
        (bytes.is_empty() && segment.is_consistent()).then_some(segment)
    }

    /// Whether all tables have the size that the others say.
    fn is_consistent(&self) -> bool {
        let dimensions = Model::Fast.dimensions();
        let (texts, rows) = (self.lengths.len(), self.vocabulary.terms.len());
        self.term_ends.len() == self.posting_ends.len()
            && self.actions.len() == texts
            && self.vectors.len() == texts * dimensions
            && self.vocabulary.scales.len() == rows
            && self.vocabulary.codes.len() == rows * dimensions
            && self.postings.iter().all(|posting| (posting.text as usize) < texts)
    }
}

fn write_table<T, const SIZE: usize>(bytes: &mut Vec<u8>, table: &[T], to_bytes: impl Fn(&T) -> [u8; SIZE]) {
    bytes.reserve(size_of::<u64>() + table.len() * SIZE);
    bytes.extend((table.len() as u64).to_le_bytes());
    for row in table {
        bytes.extend(to_bytes(row));
    }
}

fn read_table<T, const SIZE: usize>(bytes: &mut &[u8], of_bytes: impl Fn([u8; SIZE]) -> T) -> Option<Vec<T>> {
    let (length, rest) = bytes.split_first_chunk()?;
    let size = usize::try_from(u64::from_le_bytes(*length)).ok()?.checked_mul(SIZE)?;
    let (table, rest) = rest.split_at_checked(size)?;
    *bytes = rest;
    Some(table.as_chunks().0.iter().copied().map(of_bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{SmallText, SmallTextIndex};
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn segment() -> SmallTextSegment {
        SmallTextSegment::new(&[
            SmallText { name: "github create_issue", description: "Opens an issue.", detail: "title body" },
            SmallText { name: "café menü", description: "Lists the menu.", detail: "" },
        ])
    }

    #[test]
    fn a_segment_is_the_same_after_it_was_stored() {
        for segment in [segment(), SmallTextSegment::new(&[])] {
            assert_eq!(SmallTextSegment::from_bytes(&segment.to_bytes()), Some(segment));
        }
    }

    proptest! {
        /// Damaged bytes are refused, or give a segment that can be searched.
        #[test]
        fn damaged_bytes_cause_no_panic(at in 0_usize..4_000, byte in any::<u8>(), cut in 0_usize..4_000) {
            let mut bytes = segment().to_bytes();
            let length = bytes.len();
            bytes[at % length] = byte;
            if cut % 3 == 0 {
                bytes.truncate(cut % length);
            }
            if let Some(segment) = SmallTextSegment::from_bytes(&bytes) {
                SmallTextIndex::of_segments(vec![Arc::new(segment)]).best("create an issue menu", 5, |_| true);
            }
        }
    }
}
