//! The tokenizer of the models: BERT's uncased WordPiece.
//!
//! A text is split into words at white space and around punctuation and CJK characters. Control characters and accents
//! are removed, and capitals lowercased. A word is then split greedily into the longest pieces of the vocabulary. A
//! word that cannot be split, or has more than [`WORD_MAX`] characters, becomes one unknown piece. Markers such as
//! `[SEP]` are tokenized like any other text, so a text cannot forge special tokens.

use std::ops::{ControlFlow, Range};

/// Size of the vocabulary.
pub(crate) const VOCABULARY: usize = 30_522;
/// `[UNK]`, the piece for words that cannot be split.
const UNKNOWN: u32 = 100;
/// `[CLS]`, the special token before a text.
pub(crate) const CLASS: u32 = 101;
/// `[SEP]`, the special token after a text.
pub(crate) const SEPARATOR: u32 = 102;

/// Maximum number of characters of a word; longer words are unknown.
const WORD_MAX: usize = 100;

const NODES: usize = 65_280;
const PAGES: usize = 0x11_0000 / PAGE;
const PAGE: usize = 256;
const BLOCKS: usize = 101;
const EXPANSIONS: usize = 2_269;

/// The trie node at which words start.
const WORDS: usize = 0;
/// The trie node at which pieces that continue a word start: the node of `##`.
const CONTINUATIONS: usize = 32;
const NO_ID: u16 = u16::MAX;

const KEEP: u16 = 0;
const DROP: u16 = 1;
const SPACE: u16 = 2;
const ALONE: u16 = 3;
const HANGUL: u16 = 4;
const FIRST_EXPANSION: u16 = 8;
const ALONE_BIT: u32 = 1 << 30;
const LAST_BIT: u32 = 1 << 31;

#[repr(C)]
struct TrieNode {
    base: u32,
    id: u16,
    label: u8,
    zero: u8,
}

/// Splits text into word pieces.
///
/// `models/make_tokenizer.py` documents the tables.
#[repr(C)]
pub struct Tokenizer {
    nodes: [TrieNode; NODES],
    pages: [u8; PAGES],
    actions: [[u16; PAGE]; BLOCKS],
    expansions: [u32; EXPANSIONS],
}

#[allow(unsafe_code, reason = "read in place")]
// SAFETY: a `Tokenizer` consists of integers without padding, so every sequence of bytes of its size is valid.
static BUILTIN: Tokenizer = unsafe { std::mem::transmute(*include_bytes!("../models/tokenizer.bin")) };

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The tokenizer of all models.
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }

    /// Number of word pieces of a text, without special tokens.
    pub fn count(&self, text: &str) -> usize {
        let mut count = 0;
        self.visit_pieces(text, |_, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        count
    }

    /// Counts word pieces up to `max`, and does not read the text further.
    pub fn count_up_to(&self, text: &str, max: usize) -> usize {
        let mut count = 0;
        if max > 0 {
            self.visit_pieces(text, |_, _| {
                count += 1;
                if count == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
        count
    }

    /// Byte offset of the word piece after the first `skipped` ones.
    pub fn start_of(&self, text: &str, skipped: usize) -> Option<usize> {
        let mut start = None;
        let mut passed = 0;
        self.visit_pieces(text, |_, range| {
            if passed == skipped {
                start = Some(range.start);
                return ControlFlow::Break(());
            }
            passed += 1;
            ControlFlow::Continue(())
        });
        start
    }

    /// The ids of the first `max` word pieces of a text, without special tokens.
    pub fn encode(&self, text: &str, max: usize) -> Vec<u32> {
        let mut ids = Vec::new();
        if max == 0 {
            return ids;
        }
        self.visit_pieces(text, |id, _| {
            ids.push(id);
            if ids.len() == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        ids
    }

    /// Byte ranges of the word pieces in the text: in order, without overlap, at character boundaries. A range is empty
    /// if one character became several pieces.
    pub fn pieces(&self, text: &str) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        self.visit_pieces(text, |_, range| {
            ranges.push(range);
            ControlFlow::Continue(())
        });
        ranges
    }

    /// All word pieces by id; pieces that continue a word begin with `##`.
    pub fn vocabulary(&self) -> Vec<String> {
        // No two nodes share a base, so the base identifies the parent of a child.
        let mut parents = vec![WORDS; NODES.next_multiple_of(PAGE)];
        for (number, node) in self.nodes.iter().enumerate() {
            if let Some(parent) = parents.get_mut(node.base as usize) {
                *parent = number;
            }
        }
        let mut vocabulary = vec![String::new(); VOCABULARY];
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(piece) = vocabulary.get_mut(usize::from(node.id)) else { continue };
            let mut bytes = Vec::new();
            let mut at = number;
            while at != WORDS && bytes.len() < WORD_MAX {
                let label = self.nodes[at].label;
                bytes.push(label);
                at = parents.get(at ^ usize::from(label)).copied().unwrap_or(WORDS);
            }
            bytes.reverse();
            *piece = String::from_utf8_lossy(&bytes).into_owned();
        }
        vocabulary
    }

    fn visit_pieces(&self, text: &str, mut visit: impl FnMut(u32, Range<usize>) -> ControlFlow<()>) {
        let bytes = text.as_bytes();
        let mut word = WordBuffer::default();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match BYTE_CLASSES[usize::from(byte)] {
                ByteClass::Space => {
                    at += 1;
                    continue;
                }
                ByteClass::Punctuation => {
                    let id = self.longest_piece(WORDS, &[byte]).map_or(UNKNOWN, |(_, id)| id);
                    if visit(id, at..at + 1).is_break() {
                        return;
                    }
                    at += 1;
                    continue;
                }
                ByteClass::Word => {
                    let end = word.read_ascii(bytes, at);
                    // Other bytes may belong to the same word, or be removed from it.
                    let whole = bytes.get(end).is_none_or(|&next| {
                        matches!(BYTE_CLASSES[usize::from(next)], ByteClass::Space | ByteClass::Punctuation)
                    });
                    if whole {
                        if self.split_word(&mut word, at..end, &mut visit).is_break() {
                            return;
                        }
                        at = end;
                        continue;
                    }
                }
                ByteClass::Other => {}
            }
            let (range, next) = self.read_word(&mut word, text, at);
            if word.characters > 0 && self.split_word(&mut word, range, &mut visit).is_break() {
                return;
            }
            at = next;
        }
    }

    /// Reads one word character by character; returns the range of its characters and the offset to continue from.
    fn read_word(&self, word: &mut WordBuffer, text: &str, from: usize) -> (Range<usize>, usize) {
        word.clear();
        let mut range = from..from;
        let mut characters = text.get(from..).unwrap_or_default().char_indices();
        for (offset, character) in characters.by_ref() {
            let source = from + offset..from + offset + character.len_utf8();
            let point = character as usize;
            let action = self.actions[usize::from(self.pages[point / PAGE])][point % PAGE];
            let expansion = match action {
                FIRST_EXPANSION.. => &self.expansions[usize::from(action - FIRST_EXPANSION)..],
                _ => &[],
            };
            let is_alone = action == ALONE || expansion.first().is_some_and(|entry| entry & ALONE_BIT != 0);
            if (is_alone || action == SPACE) && word.characters > 0 {
                return (range, source.start);
            }
            match action {
                DROP => continue,
                SPACE => return (range, source.end),
                KEEP | ALONE => word.push(character, &source),
                HANGUL => decompose_hangul(character).for_each(|letter| word.push(letter, &source)),
                _ => {
                    for entry in expansion {
                        if let Some(character) = char::from_u32(entry & !(ALONE_BIT | LAST_BIT)) {
                            word.push(character, &source);
                        }
                        if entry & LAST_BIT != 0 {
                            break;
                        }
                    }
                }
            }
            if word.characters > 0 && range.is_empty() {
                range.start = source.start;
            }
            range.end = source.end;
            if is_alone {
                return (range, source.end);
            }
        }
        (range, text.len())
    }

    fn split_word(
        &self,
        word: &mut WordBuffer,
        range: Range<usize>,
        visit: &mut impl FnMut(u32, Range<usize>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        word.pieces.clear();
        let mut rest = word.bytes.as_slice();
        let mut root = WORDS;
        let mut known = word.characters <= WORD_MAX;
        while known && !rest.is_empty() {
            match self.longest_piece(root, rest) {
                Some((length, id)) => {
                    rest = &rest[length..];
                    word.pieces.push((id, word.bytes.len() - rest.len()));
                    root = CONTINUATIONS;
                }
                None => known = false,
            }
        }
        if !known {
            return visit(UNKNOWN, range);
        }
        let (mut begin, mut previous_end) = (0, range.start);
        for &(id, end) in &word.pieces {
            let source = if word.sources.is_empty() {
                range.start + begin..range.start + end
            } else {
                let first = word.sources[begin].start.max(previous_end);
                first..word.sources[end - 1].end.max(first)
            };
            begin = end;
            previous_end = source.end;
            visit(id, source)?;
        }
        ControlFlow::Continue(())
    }

    /// The longest piece at the start of `bytes`: its length and id.
    fn longest_piece(&self, root: usize, bytes: &[u8]) -> Option<(usize, u32)> {
        let mut base = self.nodes[root].base;
        let mut found = None;
        for (position, &byte) in bytes.iter().enumerate() {
            let child = self.nodes.get((base ^ u32::from(byte)) as usize)?;
            if child.label != byte {
                break;
            }
            if child.id != NO_ID {
                found = Some((position + 1, u32::from(child.id)));
            }
            base = child.base;
        }
        found
    }
}

/// The word that is being read.
#[derive(Default)]
struct WordBuffer {
    bytes: Vec<u8>,
    /// Source range of each byte in the text; empty if the bytes are contiguous there.
    sources: Vec<Range<usize>>,
    characters: usize,
    /// Id of each piece and its end in `bytes`.
    pieces: Vec<(u32, usize)>,
}

impl WordBuffer {
    fn clear(&mut self) {
        self.bytes.clear();
        self.sources.clear();
        self.characters = 0;
    }

    fn push(&mut self, character: char, source: &Range<usize>) {
        self.characters += 1;
        if self.characters > WORD_MAX {
            return;
        }
        let mut buffer = [0; 4];
        for byte in character.encode_utf8(&mut buffer).bytes() {
            self.bytes.push(byte);
            self.sources.push(source.clone());
        }
    }

    /// Reads ASCII letters and digits from `from`; returns the offset of their end.
    fn read_ascii(&mut self, bytes: &[u8], from: usize) -> usize {
        self.clear();
        let rest = bytes.get(from..).unwrap_or_default();
        let length = rest
            .iter()
            .position(|byte| BYTE_CLASSES[usize::from(*byte)] != ByteClass::Word)
            .unwrap_or(rest.len());
        self.characters = length;
        self.bytes.extend(rest.iter().take(length.min(WORD_MAX)).map(u8::to_ascii_lowercase));
        from + length
    }
}

/// The class of a byte that is a whole character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    Space,
    Punctuation,
    Word,
    /// A control character, or a byte of a longer character.
    Other,
}

static BYTE_CLASSES: [ByteClass; 256] = {
    let mut table = [ByteClass::Other; 256];
    let mut byte = 0;
    while byte < 128 {
        let character = byte as u8;
        table[byte] = match character {
            b' ' | b'\t' | b'\n' | b'\r' => ByteClass::Space,
            _ if character.is_ascii_punctuation() => ByteClass::Punctuation,
            _ if character.is_ascii_alphanumeric() => ByteClass::Word,
            _ => ByteClass::Other,
        };
        byte += 1;
    }
    table
};

/// Decomposes a Hangul syllable into its letters, by the arithmetic of the Unicode standard.
fn decompose_hangul(syllable: char) -> impl Iterator<Item = char> {
    const SYLLABLES: u32 = 0xAC00;
    const LEADING: u32 = 0x1100;
    const VOWELS: u32 = 0x1161;
    const TRAILING: u32 = 0x11A7;
    const VOWEL_COUNT: u32 = 21;
    const TRAILING_COUNT: u32 = 28;
    let index = (syllable as u32).saturating_sub(SYLLABLES);
    let trailing = index % TRAILING_COUNT;
    [
        LEADING + index / (VOWEL_COUNT * TRAILING_COUNT),
        VOWELS + index / TRAILING_COUNT % VOWEL_COUNT,
        TRAILING + trailing,
    ]
    .into_iter()
    .take(if trailing == 0 { 2 } else { 3 })
    .filter_map(char::from_u32)
}
