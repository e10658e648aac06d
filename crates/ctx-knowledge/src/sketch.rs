//! A small picture of a text by which near-copies are recognised.
//!
//! Every run of [`RUN`] words is hashed; each of [`CELLS`] cells keeps the smallest hash that falls
//! into it. Two texts agree in about as many cells as they share runs.

/// Words that are looked at together.
const RUN: usize = 4;
/// Cells of a sketch.
const CELLS: usize = 64;
/// How much of two sketches must agree for their texts to be copies.
const COPY_SHARE: f64 = 0.92;
/// Cells that must be used: short texts are often equal without being copies.
const USED_MIN: u32 = 12;
/// A cell that nothing fell into.
const EMPTY: u32 = u32::MAX;

/// The sketch of a text.
pub(crate) fn sketch(text: &str) -> Vec<u8> {
    let mut cells = [EMPTY; CELLS];
    let mut window = [0u64; RUN];
    for word in text.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty()) {
        window.rotate_left(1);
        window[RUN - 1] = hash_word(word);
        let mixed = window
            .iter()
            .fold(0, |mixed: u64, hash| (mixed.rotate_left(23) ^ hash).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let cell = &mut cells[(mixed >> 58) as usize % CELLS];
        *cell = (*cell).min((mixed as u32).min(EMPTY - 1));
    }
    cells.iter().flat_map(|cell| cell.to_le_bytes()).collect()
}

/// Whether two sketches are of texts that say nearly the same.
pub(crate) fn are_copies(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (mut used, mut same) = (0u32, 0u32);
    let empty = EMPTY.to_le_bytes();
    for (a, b) in a.chunks_exact(4).zip(b.chunks_exact(4)) {
        if a != empty || b != empty {
            used += 1;
            same += u32::from(a == b);
        }
    }
    used >= USED_MIN && f64::from(same) >= f64::from(used) * COPY_SHARE
}

/// FNV-1a over the lowercased word. Sketches are stored: this must not change.
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
        assert!(are_copies(&sketch(&original), &sketch(&changed)));
        let shouted = original.to_uppercase();
        assert!(are_copies(&sketch(&original), &sketch(&shouted)));
    }

    #[test]
    fn texts_that_share_a_half_are_not_copies() {
        let (a, b) = (text(1, 400), text(2, 400));
        let half = format!("{}{}", text(1, 200), text(3, 200));
        assert!(!are_copies(&sketch(&a), &sketch(&b)));
        assert!(!are_copies(&sketch(&a), &sketch(&half)));
        assert!(!are_copies(&sketch("Release 1.2 is out"), &sketch("Release 1.3 is out")));
    }

    #[test]
    fn short_texts_are_no_copies_even_when_they_are_equal() {
        assert!(!are_copies(&sketch("One short line."), &sketch("One short line.")));
        assert!(!are_copies(&sketch(""), &sketch("")));
    }

    proptest! {
        #[test]
        fn a_long_text_is_a_copy_of_itself(text in "(\\pL{1,9} ){60,90}") {
            let sketch = sketch(&text);
            prop_assert!(are_copies(&sketch, &sketch));
        }
    }
}
