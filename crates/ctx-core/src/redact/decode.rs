//! Decoding of one layer of escapes: JSON (`\"`, `\/`, `\u00e9`), URLs and forms (`%2F`), HTML (`&amp;`).
//!
//! All kinds in one pass: error texts nest them in any order, and the search is for known values, so that decoding too
//! much does no harm.

/// Minimum number of base64 digits at the end of a line of wrapped base64; the narrowest usual line has 64.
const WRAPPED_LINE_MIN: usize = 40;

/// Maximum indentation of a line of wrapped base64, as in YAML.
const WRAPPED_INDENT_MAX: usize = 32;

/// Decoded bytes with their positions in the source.
pub(super) struct DecodedText {
    pub(super) bytes: Vec<u8>,
    /// For each byte, the start of its source character or escape.
    starts: Vec<usize>,
    source_length: usize,
}

impl DecodedText {
    /// Source span of a span of decoded bytes.
    pub(super) fn source_span(&self, span: (usize, usize)) -> (usize, usize) {
        let start = self.starts.get(span.0).copied().unwrap_or(self.source_length);
        let last = span.1.checked_sub(1).and_then(|last| self.starts.get(last)).copied().unwrap_or(start);
        // Several bytes of one character may come from one escape.
        let next = self.starts.get(span.1..).unwrap_or_default().iter().find(|begin| **begin > last);
        (start, next.copied().unwrap_or(self.source_length))
    }
}

/// Decodes one layer of escapes; `None` where there is none.
pub(super) fn decode(source: &[u8]) -> Option<DecodedText> {
    // Most texts have nothing to decode, and positions take eight times the text.
    let mut at = (0..source.len()).find(|at| escape(&source[*at..]).is_some())?;
    let mut bytes = source[..at].to_vec();
    let mut starts: Vec<usize> = (0..at).collect();
    while let Some(byte) = source.get(at) {
        let (piece, length) = escape(&source[at..]).unwrap_or((EscapeBytes::byte(*byte), 1));
        bytes.extend_from_slice(&piece.bytes[..piece.length]);
        starts.resize(bytes.len(), at);
        at += length;
    }
    Some(DecodedText { bytes, starts, source_length: source.len() })
}

/// Joins the lines of wrapped base64 (MIME, PEM): drops line breaks, and indentation after them, between long runs of
/// base64 digits. `None` where there is nothing to join.
pub(super) fn join_lines(source: &[u8]) -> Option<DecodedText> {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    let (mut line_start, mut copied) = (0, 0);
    while let Some(length) = source[line_start..].iter().position(|byte| *byte == b'\n') {
        let line_end = line_start + length;
        let line = source[line_start..line_end].trim_ascii_end();
        let next = &source[line_end + 1..];
        let indent =
            next.iter().take(WRAPPED_INDENT_MAX).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let run = line.iter().rev().take(WRAPPED_LINE_MIN).take_while(|byte| is_digit(byte)).count();
        if run == WRAPPED_LINE_MIN && next.get(indent).is_some_and(is_digit) {
            let joined_end = line_start + line.len();
            bytes.extend_from_slice(&source[copied..joined_end]);
            starts.extend(copied..joined_end);
            copied = line_end + 1 + indent;
        }
        line_start = line_end + 1;
    }
    if copied == 0 {
        return None;
    }
    bytes.extend_from_slice(&source[copied..]);
    starts.extend(copied..source.len());
    Some(DecodedText { bytes, starts, source_length: source.len() })
}

/// Decodes the escape that the source begins with; returns its value and source length.
fn escape(source: &[u8]) -> Option<(EscapeBytes, usize)> {
    match source.first()? {
        b'\\' => backslash(source),
        b'%' => hex(source.get(1..3)).map(|byte| (EscapeBytes::byte(byte), 3)),
        b'&' => entity(source),
        _ => None,
    }
}

/// The longest escape, a surrogate pair.
const ESCAPE_LENGTH_MAX: usize = 12;

/// Length of an incomplete escape at the end of the source, such as `\` or `%2`.
pub(super) fn incomplete_escape(source: &[u8]) -> Option<usize> {
    let lengths = (1..ESCAPE_LENGTH_MAX.min(source.len() + 1)).rev();
    lengths.into_iter().find(|length| {
        let end = &source[source.len() - length..];
        let is_begun = match end {
            [b'\\' | b'%' | b'&'] => true,
            [b'%', digit] => digit.is_ascii_hexdigit(),
            [b'\\', b'x' | b'u', rest @ ..] => {
                rest.iter().all(|byte| byte.is_ascii_hexdigit() || b"{\\u".contains(byte))
            }
            [b'&', rest @ ..] => rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'#'),
            _ => false,
        };
        is_begun && escape(end).is_none()
    })
}

/// The UTF-8 bytes of one decoded escape.
#[derive(Clone, Copy)]
struct EscapeBytes {
    bytes: [u8; 4],
    length: usize,
}

impl EscapeBytes {
    fn byte(byte: u8) -> Self {
        Self { bytes: [byte, 0, 0, 0], length: 1 }
    }

    fn char(code: u32) -> Option<Self> {
        let mut bytes = [0; 4];
        let length = char::from_u32(code)?.encode_utf8(&mut bytes).len();
        Some(Self { bytes, length })
    }
}

/// Decodes a backslash escape; returns its value and source length.
fn backslash(source: &[u8]) -> Option<(EscapeBytes, usize)> {
    let plain = |byte| Some((EscapeBytes::byte(byte), 2));
    match source.get(1)? {
        b'n' => plain(b'\n'),
        b'r' => plain(b'\r'),
        b't' => plain(b'\t'),
        b'b' => plain(8),
        b'f' => plain(12),
        b'0' => plain(0),
        byte @ (b'"' | b'\'' | b'\\' | b'/') => plain(*byte),
        b'x' => Some((EscapeBytes::byte(hex(source.get(2..4))?), 4)),
        b'u' if source.get(2) == Some(&b'{') => {
            let digits = source.get(3..)?.iter().take(7).position(|byte| *byte == b'}')?;
            Some((EscapeBytes::char(number(source.get(3..3 + digits)?, 16)?)?, digits + 4))
        }
        b'u' => {
            let first = number(source.get(2..6)?, 16)?;
            let second = || {
                let low = source.get(6..12)?.strip_prefix(b"\\u")?;
                number(low, 16).filter(|low| (0xdc00..0xe000).contains(low))
            };
            match (first, second()) {
                (0xd800..0xdc00, Some(low)) => {
                    let code = 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00);
                    Some((EscapeBytes::char(code)?, 12))
                }
                _ => Some((EscapeBytes::char(first)?, 6)),
            }
        }
        _ => None,
    }
}

/// Decodes an HTML character reference; returns its value and source length.
fn entity(source: &[u8]) -> Option<(EscapeBytes, usize)> {
    const NAMED: [(&[u8], u8); 5] =
        [(b"&amp;", b'&'), (b"&lt;", b'<'), (b"&gt;", b'>'), (b"&quot;", b'"'), (b"&apos;", b'\'')];
    if let Some((name, byte)) = NAMED.iter().find(|(name, _)| source.starts_with(name)) {
        return Some((EscapeBytes::byte(*byte), name.len()));
    }
    let digits = source.strip_prefix(b"&#")?;
    let end = digits.iter().take(8).position(|byte| *byte == b';')?;
    let code = match digits.get(..end)? {
        [b'x' | b'X', digits @ ..] => number(digits, 16)?,
        digits => number(digits, 10)?,
    };
    Some((EscapeBytes::char(code)?, end + 3))
}

fn hex(digits: Option<&[u8]>) -> Option<u8> {
    u8::try_from(number(digits?, 16)?).ok()
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let value = |sum: u32, byte: &u8| sum.checked_mul(radix)?.checked_add(char::from(*byte).to_digit(radix)?);
    if digits.is_empty() { None } else { digits.iter().try_fold(0, value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_layer_is_taken_off() {
        let decoded =
            |text: &str| decode(text.as_bytes()).map(|decoded| String::from_utf8(decoded.bytes).unwrap());
        for (text, expected) in [
            (r#"a\"b\\c\/d\n"#, "a\"b\\c/d\n"),
            (r"\u00e9\u00E9\ud83d\ude00\u{e9}\x41", "éé😀éA"),
            ("%C3%a9%2F%%41", "é/%A"),
            ("&amp;&quot;&#39;&#x27;&lt;", "&\"''<"),
            (r"\\u00e9", r"\u00e9"),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["plain", "100 %", "%zz", r"\q", r"\u00", r"\ud83d", "&", "&#;", "&#xfffffff;", "%", "\\"]
        {
            assert_eq!(decoded(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_decoded_is_found_where_it_stood() {
        let decoded = decode(r"x\u00e9%41y".as_bytes()).unwrap();
        assert_eq!(decoded.bytes, "xéAy".as_bytes());
        assert_eq!(decoded.source_span((1, 3)), (1, 7));
        assert_eq!(decoded.source_span((1, 4)), (1, 10));
        assert_eq!(decoded.source_span((3, 5)), (7, 11));
    }
}
