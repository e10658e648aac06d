//! Tokenization: whole words, the parts of compound words, and bigrams for scripts without spaces.
//!
//! `maxConnections` also gives `max` and `Connections`, `500ms` also `500` and `ms`. `max_connections`, `ERR-4021` and
//! `src/lib.rs` give their words and themselves, so that an exact name finds exactly that. A run of Chinese, Japanese,
//! Korean or Thai letters gives every pair of neighbours.

use std::ops::Range;

/// A compound name longer than this is not a word itself; only its words are.
const COMPOUND_BYTES_MAX: usize = 80;
/// A compound name of this many words or more is not a word itself; only its words are.
const COMPOUND_WORDS_MAX: usize = 12;
/// Characters that may join two words of a name, at most [`JOINERS_MAX`] in a row.
const JOINERS: &[char] = &['_', '-', '.', '/', ':', '@', '#', '\\'];
const JOINERS_MAX: usize = 2;

/// Iterator over the words of a text, as byte ranges.
pub(crate) struct WordRanges<'a> {
    text: &'a str,
    /// Start of the part of the text that is not read yet.
    offset: usize,
    /// Words that were found but not returned yet.
    ready: Vec<Range<usize>>,
    next: usize,
    /// Whether single letters of scripts without spaces are words, too. They are in documents, so that a query of one
    /// letter finds something.
    single_letters: bool,
}

impl<'a> WordRanges<'a> {
    pub(crate) fn new(text: &'a str, single_letters: bool) -> Self {
        Self { text, offset: 0, ready: Vec::new(), next: 0, single_letters }
    }
}

impl Iterator for WordRanges<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        while self.next >= self.ready.len() {
            self.ready.clear();
            self.next = 0;
            if !self.read_compound() {
                return None;
            }
        }
        let range = self.ready.get(self.next)?.clone();
        self.next += 1;
        Some(range)
    }
}

impl WordRanges<'_> {
    /// Reads one name, which is words with only joints between them; `false` at the end of the text.
    fn read_compound(&mut self) -> bool {
        let rest = &self.text[self.offset..];
        let Some(start) = word_start(rest) else {
            self.offset = self.text.len();
            return false;
        };
        let start = self.offset + start;
        let mut words = 0;
        let mut end = start;
        let mut word_start = start;
        loop {
            let length = word_length(&self.text[word_start..]);
            end = if length == 0 { end } else { word_start + length };
            if length == 0 {
                break;
            }
            words += 1;
            self.add_word(word_start..end);
            let joiners = joiner_length(&self.text[end..]);
            if joiners == 0 || words == COMPOUND_WORDS_MAX {
                break;
            }
            word_start = end + joiners;
        }
        if words > 1 && words < COMPOUND_WORDS_MAX && end - start <= COMPOUND_BYTES_MAX {
            self.ready.push(start..end);
        }
        self.offset = end;
        true
    }

    /// Adds a word with its parts and bigrams.
    fn add_word(&mut self, range: Range<usize>) {
        let text = &self.text[range.clone()];
        if text.is_ascii() {
            self.ready.push(range.clone());
            self.add_parts(range);
            return;
        }
        let mut rest = range.start;
        while rest < range.end {
            let run = &self.text[rest..range.end];
            let spaceless = run.chars().next().is_some_and(is_spaceless);
            let length = run
                .char_indices()
                .find(|(_, char)| is_spaceless(*char) != spaceless)
                .map_or(run.len(), |(at, _)| at);
            if spaceless {
                self.add_bigrams(rest..rest + length);
            } else {
                self.ready.push(rest..rest + length);
                self.add_parts(rest..rest + length);
            }
            rest += length;
        }
    }

    /// Adds the parts of a compound word such as `maxConnections`, `HTTPServer` or `500ms`.
    fn add_parts(&mut self, range: Range<usize>) {
        let text = &self.text[range.clone()];
        if is_one_part(text.as_bytes()) {
            return;
        }
        let digits = text.len() - text.trim_start_matches(|char: char| char.is_ascii_digit()).len();
        if digits > 0 && digits < text.len() && text[digits..].chars().all(char::is_lowercase) {
            self.add_part(range.start..range.start + digits);
            self.add_part(range.start + digits..range.end);
            return;
        }
        let mut start = 0;
        let mut before: Option<char> = None;
        let mut chars = text.char_indices().peekable();
        while let Some((at, char)) = chars.next() {
            let after_is_lower = chars.peek().is_some_and(|(_, next)| next.is_lowercase());
            let starts_part = match before {
                Some(before) if char.is_uppercase() => {
                    before.is_lowercase() || before.is_numeric() || before.is_uppercase() && after_is_lower
                }
                _ => false,
            };
            // `add_part` drops single letters: `iPhone` gives `Phone` and itself.
            if starts_part {
                self.add_part(range.start + start..range.start + at);
                start = at;
            }
            before = Some(char);
        }
        if start > 0 {
            self.add_part(range.start + start..range.end);
        }
    }

    fn add_part(&mut self, range: Range<usize>) {
        if self.text[range.clone()].chars().nth(1).is_some() {
            self.ready.push(range);
        }
    }

    fn add_bigrams(&mut self, range: Range<usize>) {
        let text = &self.text[range.clone()];
        let ends: Vec<usize> =
            text.char_indices().map(|(at, char)| range.start + at + char.len_utf8()).collect();
        let starts = std::iter::once(range.start).chain(ends.iter().copied());
        if self.single_letters || ends.len() == 1 {
            self.ready.extend(starts.clone().zip(ends.iter().copied()).map(|(start, end)| start..end));
        }
        self.ready.extend(starts.zip(ends.iter().copied().skip(1)).map(|(start, end)| start..end));
    }
}

// Both look at bytes as far as the text is ASCII, which is several times as fast.

fn word_start(text: &str) -> Option<usize> {
    let start = text.bytes().position(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii())?;
    match text.as_bytes().get(start) {
        Some(byte) if byte.is_ascii() => Some(start),
        _ => text[start..].find(char::is_alphanumeric).map(|length| start + length),
    }
}

fn word_length(text: &str) -> usize {
    let end = text.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(text.len());
    match text.as_bytes().get(end) {
        Some(byte) if !byte.is_ascii() => {
            let rest = &text[end..];
            end + rest.find(|char: char| !char.is_alphanumeric()).unwrap_or(rest.len())
        }
        _ => end,
    }
}

/// Whether an ASCII word is its only part, as most are: no digit at the start, no capital inside.
fn is_one_part(word: &[u8]) -> bool {
    word.is_ascii()
        && word
            .split_first()
            .is_some_and(|(first, rest)| !first.is_ascii_digit() && !rest.iter().any(u8::is_ascii_uppercase))
}

/// Length of the joint between two words; zero if there is none.
fn joiner_length(text: &str) -> usize {
    let mut length = 0;
    for (count, char) in text.chars().enumerate() {
        if char.is_alphanumeric() {
            return length;
        }
        if count == JOINERS_MAX || !JOINERS.contains(&char) {
            return 0;
        }
        length += char.len_utf8();
    }
    0
}

/// Whether the letter belongs to a script that has no spaces between words.
fn is_spaceless(char: char) -> bool {
    matches!(u32::from(char),
        0x0E00..=0x0EFF // Thai, Lao
        | 0x1000..=0x109F // Burmese
        | 0x1780..=0x17FF // Khmer
        | 0x2E80..=0x9FFF // CJK, kana
        | 0xAC00..=0xD7AF // Hangul
        | 0xF900..=0xFAFF | 0xFF66..=0xFF9F | 0x2_0000..=0x3_FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        WordRanges::new(text, false).map(|range| text[range].to_owned()).collect()
    }

    #[test]
    fn a_name_is_its_words_and_itself() {
        assert_eq!(words("set max_connections now"), ["set", "max", "connections", "max_connections", "now"]);
        assert_eq!(words("ERR-4021."), ["ERR", "4021", "ERR-4021"]);
        assert_eq!(words("see src/lib.rs"), ["see", "src", "lib", "rs", "src/lib.rs"]);
        assert_eq!(words("std::fs::read"), ["std", "fs", "read", "std::fs::read"]);
    }

    #[test]
    fn a_word_of_several_is_also_its_parts() {
        assert_eq!(words("maxConnections"), ["maxConnections", "max", "Connections"]);
        assert_eq!(words("HTTPServer2Go"), ["HTTPServer2Go", "HTTP", "Server2", "Go"]);
        assert_eq!(words("iPhone API E0382"), ["iPhone", "Phone", "API", "E0382"]);
        assert_eq!(words("429s in 500ms, 9f86d0"), ["429s", "429", "in", "500ms", "500", "ms", "9f86d0"]);
    }

    #[test]
    fn sentences_are_not_names() {
        assert_eq!(words("It ended. Then - it began..."), ["It", "ended", "Then", "it", "began"]);
    }

    #[test]
    fn scripts_without_spaces_become_pairs() {
        assert_eq!(words("障害復旧 plan"), ["障害", "害復", "復旧", "plan"]);
        assert_eq!(words("猫"), ["猫"]);
        assert_eq!(words("AWS移行"), ["AWS", "移行"]);
    }

    proptest! {
        #[test]
        fn every_letter_is_in_some_word(text in "([a-zA-Z0-9é猫復ก_./ -]|\\PC){0,80}") {
            let mut covered = vec![false; text.len()];
            for range in WordRanges::new(&text, true) {
                prop_assert!(text.get(range.clone()).is_some());
                covered[range].fill(true);
            }
            for (at, char) in text.char_indices() {
                prop_assert!(covered[at] || !char.is_alphanumeric(), "{:?} at {}", char, at);
            }
        }
    }
}
