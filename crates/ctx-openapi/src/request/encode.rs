//! Percent-encoding, and JSON values as text.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Number, Value};

/// All characters but the unreserved ones (RFC 3986).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// [`RESERVED`] without the characters that `allowReserved` leaves unencoded. `#` would end the query, `&`
/// would begin another parameter, and `+` is read as a space.
const RESERVED_EXCEPT_ALLOWED: &AsciiSet = &RESERVED
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'[')
    .remove(b']')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b';')
    .remove(b'=');

/// Characters that a cookie value cannot contain. Many servers do not decode cookies, so no others are
/// encoded.
const NOT_IN_COOKIES: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b',').add(b';').add(b'\\').add(b'%').add(0x7f);

/// Integers beyond this are not exact in floating point.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Encodes a path segment or a query component.
pub(crate) fn encode_component(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Encodes a query component; reserved characters and existing percent-encodings stay.
pub(super) fn encode_component_with_reserved(text: &str) -> String {
    let stays = |text: &str| utf8_percent_encode(text, RESERVED_EXCEPT_ALLOWED).to_string();
    let mut parts = text.split('%');
    let mut encoded = stays(parts.next().unwrap_or_default());
    for part in parts {
        let is_encoded = part.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
        encoded.push_str(if is_encoded { "%" } else { "%25" });
        encoded.push_str(&stays(part));
    }
    encoded
}

/// Encodes a cookie value.
pub(super) fn encode_cookie(text: &str) -> String {
    utf8_percent_encode(text, NOT_IN_COOKIES).to_string()
}

/// A value as text: strings unchanged, all else as JSON; whole numbers without a decimal point.
pub(super) fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number_text(number),
        other => other.to_string(),
    }
}

fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT_INTEGER_MAX => {
            (float as i64).to_string()
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_json_text_and_integers_have_no_decimal_point() {
        for (value, expected) in [
            (json!(3), "3"),
            (json!(3.0), "3"),
            (json!(-0.0), "0"),
            (json!(1.5), "1.5"),
            (json!(9_007_199_254_740_993_u64), "9007199254740993"),
            (json!(true), "true"),
            (json!("plain"), "plain"),
            (json!({ "a": [1] }), "{\"a\":[1]}"),
        ] {
            assert_eq!(value_text(&value), expected);
        }
    }

    #[test]
    fn reserved_characters_stay_only_with_allow_reserved() {
        assert_eq!(encode_component("a/b?c#d&e+f %é"), "a%2Fb%3Fc%23d%26e%2Bf%20%25%C3%A9");
        assert_eq!(encode_component_with_reserved("a/b?c#d&e+f %2F%zz%"), "a/b?c%23d%26e%2Bf%20%2F%25zz%25");
        assert_eq!(encode_cookie("a=b; c+d/é"), "a=b%3B%20c+d/%C3%A9");
    }
}
