//! The encoded forms of a secret that are searched for: verbatim, with apparent escapes decoded, base64 and hex.

use super::MASKED_LENGTH_MIN;
use super::decode::{decode, incomplete_escape};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::collections::HashSet;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// All but the unreserved characters of a URL.
const ESCAPED_IN_COMPONENTS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// All that `application/x-www-form-urlencoded` escapes, except spaces: they become `+`.
const ESCAPED_IN_FORMS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_').remove(b' ');

/// Minimum length of a line that is masked on its own, in a multi-line secret such as a private key.
const LINE_LENGTH_MIN: usize = 16;

/// Maximum layers of apparent escapes in the secret itself that are decoded.
const LAYERS_MAX: usize = 3;

/// Maximum number of lines of a secret that are masked on their own.
const LINES_MAX: usize = 512;

/// Maximum length of a form that is searched for; the rest of a longer one is masked by its length. Every byte is a
/// state of the automaton, in some thirty forms.
const SEARCHED_LENGTH_MAX: usize = 512;

/// A pattern, and the number of base64 digits around a match that also hold bits of the secret.
pub(super) struct SecretForm {
    pub(super) bytes: Vec<u8>,
    /// Bytes of the form that follow the pattern.
    pub(super) rest: usize,
    pub(super) before: usize,
    pub(super) after: usize,
}

/// All searched forms of a secret.
pub(super) fn forms(secret: &str) -> Vec<SecretForm> {
    let mut plain = vec![secret.as_bytes().to_vec()];
    if secret.contains('\n') {
        let lines = secret.lines().map(str::trim);
        let is_masked = |line: &&str| line.len() >= LINE_LENGTH_MIN && !line.starts_with("-----");
        plain.extend(lines.filter(is_masked).take(LINES_MAX).map(|line| line.as_bytes().to_vec()));
    }
    // Texts are decoded before the search, which also changes a secret that merely looks escaped.
    let mut last = secret.as_bytes().to_vec();
    for _ in 0..LAYERS_MAX {
        let Some(decoded) = decode(&last) else { break };
        last = decoded.bytes;
        plain.push(last.clone());
    }
    let spaced = plain.iter().filter(|form| form.contains(&b' '));
    let spaced: Vec<Vec<u8>> = spaced
        .map(|form| form.iter().map(|byte| if *byte == b' ' { b'+' } else { *byte }).collect())
        .collect();
    plain.extend(spaced);

    // An incomplete escape at the end of a secret is decoded together with the text that follows it.
    let cut = plain.iter().filter_map(|form| {
        let end = form.len() - incomplete_escape(form)?;
        let bytes = form[..end].to_vec();
        Some(SecretForm { bytes, rest: form.len() - end, before: 0, after: 0 })
    });
    let cut: Vec<SecretForm> = cut.collect();
    let mut forms: Vec<SecretForm> =
        plain.into_iter().map(|bytes| SecretForm { bytes, rest: 0, before: 0, after: 0 }).collect();
    forms.extend(cut);
    for digits in [b"0123456789abcdef", b"0123456789ABCDEF"] {
        let digit = |value: u8| digits[usize::from(value)];
        let bytes = secret.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        forms.push(SecretForm { bytes, rest: 0, before: 0, after: 0 });
    }
    // Basic credentials may be form-encoded before base64, and JSON is escaped before it.
    let component = utf8_percent_encode(secret, ESCAPED_IN_COMPONENTS).to_string();
    let form = utf8_percent_encode(secret, ESCAPED_IN_FORMS).to_string().replace(' ', "+");
    let escaped = [secret.to_owned(), component, form, json(secret)];
    for text in HashSet::from(escaped) {
        for alphabet in [STANDARD, URL_SAFE] {
            forms.extend((0..3).map(|offset| base64(text.as_bytes(), offset, alphabet)));
        }
    }
    let mut seen = HashSet::new();
    forms.retain(|form| form.bytes.len() >= MASKED_LENGTH_MIN && seen.insert(form.bytes.clone()));
    for form in &mut forms {
        form.rest += form.bytes.len().saturating_sub(SEARCHED_LENGTH_MAX);
        form.bytes.truncate(SEARCHED_LENGTH_MAX);
    }
    forms
}

/// Base64 of bytes at this offset in a group of three, without the digits that also depend on their neighbours.
fn base64(bytes: &[u8], offset: usize, alphabet: &[u8; 64]) -> SecretForm {
    let (mut digits, mut buffer, mut bits) = (Vec::new(), 0_u32, 0);
    for byte in std::iter::repeat_n(&0, offset).chain(bytes) {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 6 {
            bits -= 6;
            digits.push(alphabet[((buffer >> bits) & 63) as usize]);
        }
    }
    let (shared_digits, before) = [(0, 0), (2, 1), (3, 1)][offset];
    digits.drain(..shared_digits.min(digits.len()));
    SecretForm { bytes: digits, rest: 0, before, after: usize::from(bits > 0) }
}

/// The text as a JSON string, without its quotes.
fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_known_wherever_the_secret_stands_in_it() {
        let has = |form: &str| forms("hunter2!").iter().any(|found| found.bytes == form.as_bytes());
        // From `hunter2!`, `u:hunter2!` and `me:hunter2!`, without the digits that depend on neighbours.
        for form in ["aHVudGVyMi", "odW50ZXIyI", "h1bnRlcjIh", "68756e7465723221", "68756E7465723221"] {
            assert!(has(form), "{form}");
        }
    }
}
