//! MinHash signatures, by which near-duplicate texts are recognised.
//!
//! Every shingle of [`SHINGLE_WORDS`] words is hashed into one of [`BINS`] bins; each bin keeps its smallest hash
//! (one-permutation MinHash). The share of equal bins estimates the Jaccard similarity of two texts.

/// Words per shingle.
const SHINGLE_WORDS: usize = 4;
/// Bins of a signature.
const BINS: usize = 64;
/// Minimum share of equal bins for two texts to be near-duplicates.
const DUPLICATE_SHARE_MIN: f64 = 0.92;
/// Minimum number of bins that are filled in either text: short texts are often equal without being copies.
const FILLED_BINS_MIN: u32 = 12;
/// A bin without a hash.
const EMPTY_BIN: u32 = u32::MAX;

/// The MinHash signature of a text.
pub(crate) fn signature(text: &str) -> Vec<u8> {
    let mut bins = [EMPTY_BIN; BINS];
    let mut shingle = [0u64; SHINGLE_WORDS];
    for word in text.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty()) {
        shingle.rotate_left(1);
        shingle[SHINGLE_WORDS - 1] = hash_word(word);
        let shingle_hash = shingle.iter().fold(0, |shingle_hash: u64, hash| {
            (shingle_hash.rotate_left(23) ^ hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let bin = &mut bins[(shingle_hash >> 58) as usize % BINS];
        *bin = (*bin).min((shingle_hash as u32).min(EMPTY_BIN - 1));
    }
    bins.iter().flat_map(|bin| bin.to_le_bytes()).collect()
}

/// Whether two signatures belong to near-duplicate texts.
pub(crate) fn are_near_duplicates(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (mut filled, mut equal) = (0u32, 0u32);
    let empty = EMPTY_BIN.to_le_bytes();
    for (a, b) in a.chunks_exact(4).zip(b.chunks_exact(4)) {
        if a != empty || b != empty {
            filled += 1;
            equal += u32::from(a == b);
        }
    }
    filled >= FILLED_BINS_MIN && f64::from(equal) >= f64::from(filled) * DUPLICATE_SHARE_MIN
}

/// FNV-1a over the lowercased word. Signatures are stored: this function must not change.
fn hash_word(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(seed: u64, words: u64) -> String {
        (0..words).map(|word| format!("w{} ", (word * 7919 + seed * 104_729) % 5_000)).collect()
    }

    #[test]
    fn a_copy_with_a_small_change_is_a_copy() {
        let original = text(1, 900);
        let changed = format!("Copied from the wiki. {original}");
        assert!(are_near_duplicates(&signature(&original), &signature(&changed)));
        let shouted = original.to_uppercase();
        assert!(are_near_duplicates(&signature(&original), &signature(&shouted)));
    }

    #[test]
    fn texts_that_share_a_half_are_not_copies() {
        let (a, b) = (text(1, 400), text(2, 400));
        let half = format!("{}{}", text(1, 200), text(3, 200));
        assert!(!are_near_duplicates(&signature(&a), &signature(&b)));
        assert!(!are_near_duplicates(&signature(&a), &signature(&half)));
        assert!(!are_near_duplicates(&signature("Release 1.2 is out"), &signature("Release 1.3 is out")));
    }

    #[test]
    fn short_texts_are_no_copies_even_when_they_are_equal() {
        assert!(!are_near_duplicates(&signature("One short line."), &signature("One short line.")));
        assert!(!are_near_duplicates(&signature(""), &signature("")));
    }

    proptest! {
        #[test]
        fn a_long_text_is_a_copy_of_itself(text in "(\\pL{1,9} ){60,90}") {
            let signature = signature(&text);
            prop_assert!(are_near_duplicates(&signature, &signature));
        }
    }
}
