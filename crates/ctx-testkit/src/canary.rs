//! Canary secrets in many shapes, the encodings in which they may leak, and a leak detector for text.

use serde_json::json;

/// Canary secrets. The first eight are valid header values and need no escaping in a URL.
pub const CANARIES: [&str; 20] = [
    "sk-proj-9fK2mQ7xT4vB8nL1cR6w",
    "ghp_0aZ1bY2cX3dW4eV5fU6gT7hS8iR9jQ0kP1l",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.c2lnbmF0dXJl-x_y",
    "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY",
    "xoxb-123456789012-AbCdEfGhIjKl",
    "0123456789abcdef0123456789abcdef",
    "correct-horse-battery-staple-7",
    "AKIAIOSFODNN7EXAMPLE~canary",
    "pl+us/sl=ash+and/equals==",
    "quo\"te's and \"doubles\" inside",
    "back\\slash\\n\\u0041\\path",
    "per%cent%20%41%zz%sign",
    "spaces between many words here",
    "ünïcödé-gehéîmnis-ß-ключ",
    "emoji-😀🔑-secret-value",
    "<html>&amp;&lt;entity>'x'",
    "semi;colon&amp=er?sand#hash",
    "tab\tand\u{7f}control\u{1}chars",
    "{\"json\":[\"like\",\"secret\"]}",
    "$dollar`tick$(sub)*star*|pipe",
];

/// An encoding: its name and its function.
pub type CanaryForm = (&'static str, fn(&str) -> String);

/// Encodings in which a secret may appear in other text.
pub const CANARY_FORMS: [CanaryForm; 14] = [
    ("as it is", str::to_owned),
    ("JSON", |text| json!(text).to_string()),
    ("ASCII JSON", |text| text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()),
    ("JSON with escaped slashes", |text| json!(text).to_string().replace('/', "\\/")),
    ("JSON in JSON", |text| json!(json!(text).to_string()).to_string()),
    ("Debug", |text| format!("{text:?}")),
    ("URL component", |text| percent_encode(text, |byte| byte.is_ascii_alphanumeric())),
    ("URL query", |text| {
        percent_encode(text, |byte| byte.is_ascii_graphic() && !b"\"#<>'%&+".contains(&byte))
    }),
    ("form", |text| {
        percent_encode(text, |byte| byte.is_ascii_alphanumeric() || byte == b' ').replace(' ', "+")
    }),
    ("HTML", |text| {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('\'', "&#39;")
    }),
    ("hexadecimal", |text| text.bytes().map(|byte| format!("{byte:02x}")).collect()),
    ("base64", |text| base64(text.as_bytes(), b"+/")),
    ("base64 for URLs", |text| base64(text.as_bytes(), b"-_")),
    ("HTTP Basic", |text| format!("Basic {}", base64(format!("user:{text}").as_bytes(), b"+/"))),
];

/// Every canary in every encoding, one line per canary.
pub fn canary_text() -> String {
    let line = |canary: &&str| CANARY_FORMS.map(|(_, form)| form(canary)).join("  ");
    CANARIES.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Leaked canaries in a text, as `number (encoding)`. The first or second half of an encoded canary counts as a leak
/// as well, unless it is too short to tell or not secret.
pub fn canary_leaks(text: &str) -> Vec<String> {
    let mut leaks = Vec::new();
    for (number, canary) in CANARIES.iter().enumerate() {
        for (name, encode) in CANARY_FORMS {
            let encoded = encode(canary);
            let middle = encoded.floor_char_boundary(encoded.len() / 2);
            let parts = [encoded.as_str(), &encoded[..middle], &encoded[middle..]];
            // The first half of the Basic form may encode only `user:`, which is not secret.
            let is_telling_half = |part: &&str| part.len() >= 8 && !part.starts_with("Basic ");
            if parts
                .iter()
                .filter(|part| part.len() == encoded.len() || is_telling_half(part))
                .any(|part| text.contains(part))
            {
                leaks.push(format!("{number} ({name})"));
            }
        }
    }
    leaks
}

fn percent_encode(text: &str, is_literal: impl Fn(u8) -> bool) -> String {
    let shown =
        |byte: u8| if is_literal(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(shown).collect()
}

fn base64(bytes: &[u8], last_digits: &[u8; 2]) -> String {
    const FIRST_DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let digit = |value: u32| {
        let value = value as usize;
        char::from(*FIRST_DIGITS.get(value).unwrap_or_else(|| &last_digits[value - FIRST_DIGITS.len()]))
    };
    let group = |group: &[u8]| {
        let bits = group.iter().chain(&[0; 2]).take(3).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let digits = [18, 12, 6, 0].map(|shift| digit(bits >> shift & 63));
        let padding = std::iter::repeat_n('=', 3 - group.len());
        digits.into_iter().take(group.len() + 1).chain(padding).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}
