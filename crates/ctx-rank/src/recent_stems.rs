//! Cache of stems: a few thousand words make up most of the words of any text.

use std::str;

/// Words that are remembered; a power of two.
const SLOTS: usize = 1 << 12;
/// Longer words are stemmed each time.
const WORD_BYTES_MAX: usize = 23;

/// Remembers the stems of recent words, in bounded memory: a word replaces the one with the same slot.
#[derive(Clone, Debug, Default)]
pub struct RecentStems {
    /// Empty until the first word.
    slots: Vec<Slot>,
}

/// A word and its stem; the word of an unused slot is empty.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    word: ShortText,
    stem: ShortText,
}

#[derive(Clone, Copy, Debug, Default)]
struct ShortText {
    bytes: [u8; WORD_BYTES_MAX],
    length: u8,
}

impl RecentStems {
    /// Replaces a word by its stem, which `stem` makes if it is not remembered.
    pub(crate) fn replace(&mut self, word: &mut String, stem: impl FnOnce(&mut String)) {
        let Some(key) = ShortText::of(word).filter(|_| !word.is_empty()) else { return stem(word) };
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, Slot::default());
        }
        let Some(slot) = self.slots.get_mut(slot_of(word)) else { return stem(word) };
        if slot.word.as_bytes() == word.as_bytes() {
            if slot.stem.as_bytes() != word.as_bytes() {
                word.clear();
                word.push_str(str::from_utf8(slot.stem.as_bytes()).unwrap_or_default());
            }
            return;
        }
        stem(word);
        if let Some(stem) = ShortText::of(word) {
            *slot = Slot { word: key, stem };
        }
    }
}

impl ShortText {
    /// `None` if the text is too long.
    fn of(text: &str) -> Option<Self> {
        let mut short = Self { length: u8::try_from(text.len()).ok()?, ..Self::default() };
        short.bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(short)
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// The slot of a word, by its FNV-1a hash.
fn slot_of(word: &str) -> usize {
    let hash = word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    ((hash >> 32 ^ hash) as usize) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Analyzer;
    use proptest::prelude::*;

    fn cached(texts: &[String]) -> Vec<Vec<String>> {
        let mut stems = RecentStems::default();
        let tokens = |text: &String| Analyzer::DOCUMENTS.tokens_with(text, &mut stems).collect();
        texts.iter().map(tokens).collect()
    }

    fn fresh(texts: &[String]) -> Vec<Vec<String>> {
        texts.iter().map(|text| Analyzer::DOCUMENTS.tokens(text).collect()).collect()
    }

    #[test]
    fn words_of_one_slot_replace_each_other() {
        let mut slots = vec![None; SLOTS];
        let pair = (0..)
            .map(|number| format!("running{number}"))
            .find_map(|word| slots[slot_of(&word)].replace(word.clone()).map(|other: String| [other, word]));
        let pair = pair.unwrap();
        let texts = [pair.clone(), pair].concat();
        assert_eq!(cached(&texts), fresh(&texts));
    }

    proptest! {
        #[test]
        fn a_remembered_stem_is_the_one_that_is_made(
            texts in prop::collection::vec("([a-z]{1,4}(ing|ed|ies|ly|s|ational)?|[a-zé猫]{1,40}| ){0,40}", 1..8)
        ) {
            let texts = [texts.clone(), texts].concat();
            prop_assert_eq!(cached(&texts), fresh(&texts));
        }
    }
}
