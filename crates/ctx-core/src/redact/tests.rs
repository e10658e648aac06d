//! Masking of secrets in every supported encoding and nesting of encodings.

use super::*;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn what_is_learned_is_masked_by_every_clone() {
    let redactor = Redactor::new([]);
    let clone = redactor.clone();
    redactor.learn(&Secret::new("hunter2!"));
    redactor.learn(&Secret::new("no"));
    assert_eq!(clone.text("no hunter2!".to_owned()), "no ***");
    clone.unlearn(&Secret::new("hunter2!"));
    assert_eq!(redactor.text("no hunter2!".to_owned()), "no hunter2!");
}

#[test]
fn absorbed_secrets_are_masked_by_every_clone_in_addition_to_earlier_ones() {
    let redactor = Redactor::new([Secret::new("hunter2!")]);
    let clone = redactor.clone();
    let other = Redactor::new([Secret::new("swordfish"), Secret::new("hunter2!")]);
    other.learn(&Secret::new("open-sesame"));
    redactor.absorb(&other);
    assert_eq!(clone.text("hunter2! swordfish open-sesame".to_owned()), "*** *** ***");
    assert_eq!(other.text("hunter2! swordfish".to_owned()), "*** ***");
}

#[test]
fn a_secret_that_ends_with_the_beginning_of_an_escape_is_masked_before_any_text() {
    for end in ["\\", "%", "%4", "&", "&am", "\\u00"] {
        let secret = format!("a é aß\"{end}");
        let redactor = Redactor::new([Secret::new(secret.clone())]);
        let json = serde_json::Value::from(secret.as_str()).to_string();
        for after in ["", "b", "n", "4f", "p;", "e9 "] {
            let escaped = format!("<{}{after}>", json.trim_matches('"'));
            let in_query = percent(&escaped, |byte| byte.is_ascii_graphic() && !b"\"#<>'%".contains(&byte));
            for text in [escaped, in_query] {
                let shown = redactor.text(text.clone());
                assert!(shown.contains(MASK) && !shown.contains("aß"), "{text}: {shown}");
                assert!(!shown.contains("a%C3%9F"), "{text}: {shown}");
            }
        }
    }
}

#[test]
fn secrets_are_masked_by_value_and_by_key() {
    let redactor = Redactor::new([Secret::new("hunter2!"), Secret::new("no")]);
    let shown = redactor.json(&json!({
        "url": "https://x/?k=hunter2!", "api_token": 7, "note": "no", "max_tokens": 3,
        "list": ["hunter2!"],
    }));
    assert_eq!(
        shown,
        json!({
            "url": "https://x/?k=***", "api_token": "***", "note": "no", "max_tokens": 3,
            "list": ["***"],
        })
    );
}

#[test]
fn keys_of_credentials_are_masked_and_counts_of_tokens_are_not() {
    for key in [
        "token",
        "access_token",
        "accessToken",
        "access_tokens",
        "refreshTokens",
        "refresh-tokens",
        "api_tokens",
        "apiKeys",
        "X-API-Key",
        "client_secrets",
        "passwords",
        "passphrase",
        "db_pwd",
        "id_tokens",
        "Authorization",
        "Cookie",
        "set-cookie",
        "private_keys",
        "signing_key",
        "encryptionKey",
        "aws_access_key_id",
        "connection_string",
        "bearer",
        "credentials",
        "client_secret_tokens",
    ] {
        assert!(Redactor::is_secret_key(key), "{key}");
    }
    for key in [
        "tokens",
        "max_tokens",
        "maxTokens",
        "valid_tokens",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "reasoning_tokens",
        "max_completion_tokens",
        "author",
        "key",
        "keyboard",
        "name",
        "pwd",
        "primary_key",
        "public_key",
        "sort_keys",
    ] {
        assert!(!Redactor::is_secret_key(key), "{key}");
    }
}

#[test]
fn a_text_is_masked_whole_where_it_cannot_be_searched() {
    let matcher = SecretMatcher { automaton: SearchAutomaton::Unavailable, margins: Vec::new() };
    assert_eq!(matcher.spans(b"any text"), [(0, 8)]);
}

#[test]
fn a_very_long_secret_is_masked_by_its_beginning() {
    let secret: String = (0..100_000).map(|n| format!("{n}-")).collect();
    let redactor = Redactor::new([Secret::new(secret.clone())]);
    assert_eq!(redactor.text(format!("<{secret}>")), "<***>");
    assert_eq!(redactor.text(format!("{secret}, {secret}")), "***, ***");
    assert_eq!(redactor.text(secret[..5_000].to_owned()), "***");
}

#[test]
fn base64_in_lines_is_masked() {
    let secret = "correct horse battery staple ".repeat(8);
    let redactor = Redactor::new([Secret::new(secret.clone())]);
    let encoded = base64(format!("user:{secret}").as_bytes(), b"+/");
    for line_end in ["\n", "\r\n", "\n "] {
        let lines: Vec<&str> =
            encoded.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let shown = redactor.text(format!("Key:\n{}\n.", lines.join(line_end)));
        let rest = shown.replace(MASK, "");
        assert!(shown.contains(MASK) && rest.len() < 40, "{shown}");
    }
}

#[test]
fn secrets_that_touch_or_overlap_are_masked_whole() {
    let redactor = Redactor::new(["abcdef", "defghi", "abcdefghijkl"].map(Secret::new));
    for (text, shown) in [
        ("abcdef", "***"),
        ("abcdefghi!", "***!"),
        ("abcdefabcdef", "***"),
        ("abcdef abcdef", "*** ***"),
        ("-abcdefghijkl-", "-***-"),
        ("abcde", "abcde"),
    ] {
        assert_eq!(redactor.text(text.to_owned()), shown);
    }
}

#[test]
fn base64_is_masked_with_the_digits_that_tell_a_part() {
    let redactor = Redactor::new([Secret::new("hunter2!")]);
    for (text, shown) in [
        ("Basic dXNlcjpodW50ZXIyIQ==", "Basic dXNlcj***=="),
        ("Basic bWU6aHVudGVyMiE=", "Basic bWU6***="),
        ("x aHVudGVyMiE= y", "x ***= y"),
    ] {
        assert_eq!(redactor.text(text.to_owned()), shown, "{text}");
    }
}

#[test]
fn a_key_of_several_lines_is_masked_line_by_line() {
    let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----";
    let redactor = Redactor::new([Secret::new(key)]);
    assert_eq!(redactor.text(key.to_owned()), "***");
    assert_eq!(redactor.text("at AQEFAASCBKcwggSjAgEAAoIB!".to_owned()), "at ***!");
    assert_eq!(redactor.text("-----BEGIN KEY-----".to_owned()), "-----BEGIN KEY-----");
}

#[test]
fn values_that_say_how_to_work_are_ordinary() {
    for value in ["", "1", "true", "8080", "production", "Production", "127000001", "debug", " no "] {
        assert!(is_ordinary_value(value), "{value}");
    }
    for value in ["hunter2", "1234567890", "sk-123", "http://a.example", "a b c d"] {
        assert!(!is_ordinary_value(value), "{value}");
    }
}

#[test]
fn the_debug_output_of_a_redactor_contains_no_secret() {
    let redactor = Redactor::new([Secret::new("hunter2!")]);
    redactor.learn(&Secret::new("swordfish"));
    redactor.text(String::new());
    let shown = format!("{redactor:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("swordfish"), "{shown}");
}

/// An encoding of a text, and its name.
type Encoding = (&'static str, fn(&str) -> String);

const ENCODINGS: [Encoding; 14] = [
    ("as it is", str::to_owned),
    ("json", |text| json!(text).to_string()),
    ("ascii json", |text| text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()),
    ("upper ascii json", |text| text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect()),
    ("json with slashes", |text| json!(text).to_string().replace('/', "\\/")),
    ("debug", |text| format!("{text:?}")),
    ("component", |text| percent(text, |byte| byte.is_ascii_alphanumeric())),
    ("lower case component", |text| percent(text, |byte| byte.is_ascii_alphanumeric()).to_ascii_lowercase()),
    ("query", |text| percent(text, |byte| byte.is_ascii_graphic() && !b"\"#<>'%".contains(&byte))),
    ("form", |text| percent(text, |byte| byte.is_ascii_alphanumeric() || byte == b' ').replace(' ', "+")),
    ("html", |text| {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('\'', "&#39;")
    }),
    ("hex", |text| text.bytes().map(|byte| format!("{byte:02x}")).collect()),
    ("base64", |text| base64(text.as_bytes(), b"+/")),
    ("base64 for URLs", |text| base64(text.as_bytes(), b"-_")),
];

fn percent(text: &str, is_kept: impl Fn(u8) -> bool) -> String {
    let shown = |byte: u8| if is_kept(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(shown).collect()
}

fn base64(bytes: &[u8], last: &[u8; 2]) -> String {
    let digit = |value: u32| match value {
        0..26 => char::from(b'A' + value as u8),
        26..52 => char::from(b'a' + (value - 26) as u8),
        52..62 => char::from(b'0' + (value - 52) as u8),
        value => char::from(last[(value - 62) as usize]),
    };
    let group = |group: &[u8]| {
        let bits = group.iter().chain(&[0; 2]).take(3).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let digits = [18, 12, 6, 0].map(|shift| digit(bits >> shift & 63));
        digits
            .into_iter()
            .take(group.len() + 1)
            .chain(std::iter::repeat_n('=', 3 - group.len()))
            .collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// Lower-casing would change a secret with upper-case letters.
fn is_lossless(encoding: &str, secret: &str) -> bool {
    encoding != "lower case component" || !secret.bytes().any(|byte| byte.is_ascii_uppercase())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_secret_is_masked_in_every_way_within_every_other(
        secret in r#"[ -~éß😀]{8,40}"#,
        before in r"[a-z:= ]{0,5}",
        after in r"[a-z:= ]{0,5}",
        inner in 0..ENCODINGS.len(),
        outer in 0..11_usize,
    ) {
        let redactor = Redactor::new([Secret::new(secret.clone())]);
        let ((inner, inside), (outer, around)) = (ENCODINGS[inner], ENCODINGS[outer]);
        prop_assume!(is_lossless(inner, &secret) && outer != "lower case component");
        let text = around(&format!("<{}>", inside(&format!("{before}{secret}{after}"))));
        let shown = redactor.text(text.clone());
        prop_assert_ne!(&shown, &text, "{} in {}", inner, outer);
        prop_assert!(shown.contains(MASK), "{} in {}: {}", inner, outer, shown);
        prop_assert!(shown.len() <= text.len());
    }

    #[test]
    fn a_text_without_secrets_stays_as_it_is(text in any::<String>()) {
        let redactor = Redactor::new([Secret::new("correct horse battery staple")]);
        prop_assert_eq!(redactor.text(text.clone()), text);
    }

    #[test]
    fn any_text_can_be_masked(text in any::<String>(), secret in any::<String>()) {
        let redactor = Redactor::new([Secret::new(secret.clone())]);
        let shown = redactor.text(format!("{text}{secret}{text}"));
        prop_assert!(secret.len() < MASKED_LENGTH_MIN || !shown.contains(&secret) || MASK.contains(&secret));
    }
}
