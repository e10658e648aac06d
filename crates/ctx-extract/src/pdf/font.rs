//! PDF fonts: decodes text to Unicode, and gives its width.

use lopdf::{Dictionary, Document, Encoding, Object};
use std::collections::HashMap;

/// Maximum unpacked bytes of a ToUnicode map.
const MAP_BYTES_MAX: usize = 4 << 20;
/// Maximum entries of a ToUnicode map, and of a table of widths.
const ENTRIES_MAX: usize = 100_000;
/// Assumed width of a character where the font gives none, in thousandths of the font size.
const ASSUMED_WIDTH: f32 = 500.0;

pub(super) struct Font<'a> {
    map: Option<ToUnicodeMap>,
    encoding: Option<Encoding<'a>>,
    /// Whether its text is UTF-16.
    is_unicode: bool,
    /// Whether character codes have two bytes.
    is_wide: bool,
    widths: HashMap<u32, f32>,
    default_width: Option<f32>,
}

impl<'a> Font<'a> {
    pub(super) fn read(font: &'a Dictionary, document: &'a Document) -> Self {
        let is_wide = font.get(b"Subtype").and_then(Object::as_name).is_ok_and(|name| name == b"Type0");
        let map = font
            .get_deref(b"ToUnicode", document)
            .and_then(Object::as_stream)
            .and_then(|stream| stream.get_plain_content_with_limit(MAP_BYTES_MAX))
            .ok()
            .map(|content| ToUnicodeMap::parse(&content))
            .filter(|map| !map.is_empty());
        let name = font.get_deref(b"Encoding", document).and_then(Object::as_name).unwrap_or_default();
        let holds = |word: &[u8]| name.windows(word.len()).any(|window| window == word);
        // lopdf would read the ToUnicode map itself, without limits, if no other encoding is named.
        let needs_map = font.has(b"ToUnicode") && (!font.has(b"Encoding") || is_identity(font, document));
        let encoding = (!is_wide && !needs_map)
            .then(|| font.get_font_encoding_with_limit(document, MAP_BYTES_MAX).ok())
            .flatten();
        let (widths, default_width) =
            if is_wide { wide_widths(font, document) } else { simple_widths(font, document) };
        Self { map, encoding, is_unicode: holds(b"UCS2") || holds(b"UTF16"), is_wide, widths, default_width }
    }

    /// Decodes bytes; returns the text, and its width in thousandths of the font size if it is known.
    pub(super) fn decode(&self, bytes: &[u8]) -> (String, Option<f32>) {
        let size = if self.is_wide { 2 } else { 1 };
        let codes =
            bytes.chunks(size).map(|code| code.iter().fold(0, |code, byte| code << 8 | u32::from(*byte)));
        let mut width = Some(0.0);
        for code in codes.clone() {
            let known = self.widths.get(&code).copied().or(self.default_width);
            width = width.and_then(|sum: f32| Some(sum + known?));
        }
        let text = match &self.map {
            Some(map) if self.is_wide => codes.filter_map(|code| map.get(code)).collect(),
            Some(map) => bytes
                .iter()
                .map(|byte| map.get(u32::from(*byte)).unwrap_or_else(|| self.decode_with_encoding(&[*byte])))
                .collect(),
            None if self.is_unicode => {
                encoding_rs::UTF_16BE.decode_without_bom_handling(bytes).0.into_owned()
            }
            // Glyph ids, which cannot be decoded without a map.
            None if self.is_wide => String::new(),
            None => self.decode_with_encoding(bytes),
        };
        (text, width)
    }

    fn decode_with_encoding(&self, bytes: &[u8]) -> String {
        match &self.encoding {
            Some(encoding) => Document::decode_text(encoding, bytes).unwrap_or_default(),
            None => encoding_rs::WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned(),
        }
    }

    /// An estimate of the width of a text, in thousandths of the font size.
    pub(super) fn estimated_width(text: &str) -> f32 {
        text.chars().count() as f32 * ASSUMED_WIDTH
    }
}

/// Whether the codes of a font are glyph ids (`Identity` encodings).
fn is_identity(font: &Dictionary, document: &Document) -> bool {
    let named = match font.get_deref(b"Encoding", document) {
        Ok(Object::Dictionary(encoding)) => encoding.get(b"BaseEncoding"),
        other => other,
    };
    named.and_then(Object::as_name).is_ok_and(|name| name.starts_with(b"Identity"))
}

fn number(object: &Object) -> Option<f32> {
    object.as_float().ok().filter(|number| number.is_finite())
}

fn simple_widths(font: &Dictionary, document: &Document) -> (HashMap<u32, f32>, Option<f32>) {
    let first = font.get_deref(b"FirstChar", document).and_then(Object::as_i64).unwrap_or(0);
    let first = u32::try_from(first).unwrap_or(0);
    let widths = font.get_deref(b"Widths", document).and_then(Object::as_array);
    let Ok(widths) = widths else { return (HashMap::new(), None) };
    let numbered = (first..=u32::MAX).zip(widths.iter().take(256));
    (numbered.filter_map(|(code, width)| Some((code, number(width)?))).collect(), None)
}

/// Reads the widths of a composite font, listed as `first [w w w]` or `first last w`.
fn wide_widths(font: &Dictionary, document: &Document) -> (HashMap<u32, f32>, Option<f32>) {
    let mut widths = HashMap::new();
    let descendant = font
        .get_deref(b"DescendantFonts", document)
        .and_then(Object::as_array)
        .ok()
        .and_then(|fonts| document.dereference(fonts.first()?).ok()?.1.as_dict().ok());
    let Some(descendant) = descendant else { return (widths, None) };
    let default = descendant.get_deref(b"DW", document).ok().and_then(number).unwrap_or(1000.0);
    let listed = descendant
        .get_deref(b"W", document)
        .and_then(Object::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let code = |object: &Object| object.as_i64().ok().and_then(|code| u32::try_from(code).ok());
    let mut rest = listed;
    while let [first, second, after @ ..] = rest {
        rest = after;
        let Some(first) = code(first) else { break };
        match (document.dereference(second).map(|(_, second)| second), after) {
            (Ok(Object::Array(each)), _) => {
                widths.extend(
                    (first..=u32::MAX).zip(each).filter_map(|(code, width)| Some((code, number(width)?))),
                );
            }
            (Ok(last), [width, after @ ..]) => {
                rest = after;
                if let (Some(last), Some(width)) = (code(last), number(width)) {
                    widths.extend((first..=last).take(ENTRIES_MAX).map(|code| (code, width)));
                }
            }
            _ => break,
        }
        if widths.len() > ENTRIES_MAX {
            break;
        }
    }
    (widths, Some(default))
}

/// A ToUnicode map: character codes to Unicode.
#[derive(Debug, Default)]
struct ToUnicodeMap {
    characters: HashMap<u32, String>,
    /// Ranges: first code, last code, and the Unicode text of the first; sorted by the first.
    ranges: Vec<(u32, u32, Vec<u16>)>,
}

impl ToUnicodeMap {
    fn parse(content: &[u8]) -> Self {
        let mut map = Self::default();
        let mut section = &b""[..];
        let mut operands: Vec<Vec<u16>> = Vec::new();
        let mut list: Option<Vec<Vec<u16>>> = None;
        for token in CMapTokens(content) {
            if map.characters.len() + map.ranges.len() > ENTRIES_MAX {
                break;
            }
            match token {
                CMapToken::Word(word @ (b"beginbfchar" | b"beginbfrange")) => {
                    section = word;
                    operands.clear();
                }
                CMapToken::Word(b"endbfchar" | b"endbfrange") => section = b"",
                CMapToken::Word(_) => {}
                CMapToken::ArrayStart => list = Some(Vec::new()),
                CMapToken::ArrayEnd => {
                    if let ([first, _], Some(list)) = (operands.as_slice(), list.take()) {
                        let first = code(first);
                        map.characters.extend(
                            (first..=u32::MAX).zip(list.iter().map(|units| String::from_utf16_lossy(units))),
                        );
                    }
                    operands.clear();
                }
                CMapToken::HexString(units) => match &mut list {
                    Some(list) => list.push(units),
                    None => operands.push(units),
                },
            }
            match (section, operands.as_slice()) {
                (b"beginbfchar", [from, to]) => {
                    map.characters.insert(code(from), String::from_utf16_lossy(to));
                    operands.clear();
                }
                (b"beginbfrange", [first, last, to]) => {
                    map.ranges.push((code(first), code(last), to.clone()));
                    operands.clear();
                }
                _ => {}
            }
        }
        map.ranges.sort_by_key(|(first, ..)| *first);
        map
    }

    fn is_empty(&self) -> bool {
        self.characters.is_empty() && self.ranges.is_empty()
    }

    fn get(&self, code: u32) -> Option<String> {
        if let Some(text) = self.characters.get(&code) {
            return Some(text.clone());
        }
        let index = self.ranges.partition_point(|(first, ..)| *first <= code);
        let (first, _, units) =
            self.ranges.get(index.checked_sub(1)?).filter(|(_, last, _)| code <= *last)?;
        let mut units = units.clone();
        if let Some(unit) = units.last_mut() {
            *unit = unit.wrapping_add((code - first) as u16);
        }
        Some(String::from_utf16_lossy(&units))
    }
}

/// The character code of a hexadecimal string, which was read in units of two bytes; the last unit may be shorter.
fn code(units: &[u16]) -> u32 {
    units.iter().take(2).fold(0, |code, unit| code << 16 | u32::from(*unit))
}

enum CMapToken<'a> {
    Word(&'a [u8]),
    /// A hexadecimal string, in units of up to four digits.
    HexString(Vec<u16>),
    ArrayStart,
    ArrayEnd,
}

/// Iterator over the tokens of a ToUnicode map.
struct CMapTokens<'a>(&'a [u8]);

impl<'a> Iterator for CMapTokens<'a> {
    type Item = CMapToken<'a>;

    fn next(&mut self) -> Option<CMapToken<'a>> {
        let start = self.0.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let rest = &self.0[start..];
        let (token, length) = match rest {
            [b'<', b'<', ..] | [b'>', b'>', ..] => (CMapToken::Word(&rest[..2]), 2),
            [b'<', inner @ ..] => {
                let end = inner.iter().position(|byte| *byte == b'>').unwrap_or(inner.len());
                let digits: Vec<u16> = inner[..end]
                    .iter()
                    .filter_map(|byte| Some(char::from(*byte).to_digit(16)? as u16))
                    .collect();
                let units =
                    digits.chunks(4).map(|digits| digits.iter().fold(0, |unit, digit| unit << 4 | digit));
                (CMapToken::HexString(units.collect()), end + 2)
            }
            [b'[', ..] => (CMapToken::ArrayStart, 1),
            [b']', ..] => (CMapToken::ArrayEnd, 1),
            _ => {
                let ends = |byte: &u8| byte.is_ascii_whitespace() || b"<>[]".contains(byte);
                let end = rest.iter().skip(1).position(ends).map_or(rest.len(), |end| end + 1);
                (CMapToken::Word(&rest[..end]), end)
            }
        };
        self.0 = rest.get(length..).unwrap_or_default();
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_says_what_characters_mean() {
        let map = ToUnicodeMap::parse(
            b"1 begincodespacerange <0000> <FFFF> endcodespacerange
              2 beginbfchar <0003> <0020> <01> <00660069> endbfchar
              2 beginbfrange <0010> <0012> <0041> <20><21>[<0061> <D83DDE00>] endbfrange",
        );
        let text: String =
            [3, 1, 0x10, 0x12, 0x13, 0x20, 0x21].map(|code| map.get(code).unwrap_or_default()).concat();
        assert_eq!(text, " fiACa😀");
    }

    #[test]
    fn a_map_of_everything_costs_nothing() {
        let map = ToUnicodeMap::parse(b"1 beginbfrange <00000000> <FFFFFFFF> <0000> endbfrange");
        assert_eq!((map.ranges.len(), map.get(0x41)), (1, Some("A".to_owned())));
        for odd in [
            &b"<"[..],
            b"beginbfchar <",
            b"[[]]]<>",
            b"beginbfrange <1> <0> <2> <1> [",
            b"beginbfrange <2> <1> <0>",
        ] {
            ToUnicodeMap::parse(odd).get(1);
        }
    }
}
