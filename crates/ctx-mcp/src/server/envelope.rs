//! Strict checks of the JSON-RPC envelope: one object with unique keys and a valid ID. Lenient parsers
//! disagree on anything else, which is an attack vector.

use ctx_core::check_unique_keys;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;

/// Why a body is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EnvelopeError {
    /// It is not JSON, or ambiguous.
    Malformed(String),
    /// It is JSON, but no JSON-RPC message.
    NotARequest(String),
}

/// Checks a request body.
pub(super) fn check(body: &[u8]) -> Result<(), EnvelopeError> {
    check_unique_keys(body).map_err(|error| EnvelopeError::Malformed(format!("malformed JSON: {error}")))?;
    let not_a_request = |message: &str| Err(EnvelopeError::NotARequest(message.to_owned()));
    if !body.trim_ascii_start().starts_with(b"{") {
        return not_a_request("send one JSON-RPC message at a time, as an object");
    }
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        jsonrpc: Option<Cow<'a, str>>,
        #[serde(default, deserialize_with = "present")]
        id: Option<Value>,
    }
    let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(body) else {
        return not_a_request("`jsonrpc` must be \"2.0\"");
    };
    match envelope.id {
        None | Some(Value::String(_)) => {}
        Some(Value::Number(id)) if id.is_i64() || id.is_u64() => {}
        Some(_) => return not_a_request("`id` must be a string or an integer"),
    }
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return not_a_request("`jsonrpc` must be \"2.0\"");
    }
    Ok(())
}

/// Tells a field that is `null` from a missing one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_message_passes() {
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#" {"jsonrpc":"2.0","id":"a","method":"x","params":{"a":{"k":1},"b":{"k":1},"c":[{"k":1},{"k":2}]}} "#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":-3,"result":{}}"#,
        ] {
            assert_eq!(check(body.as_bytes()), Ok(()), "{body}");
        }
    }

    #[test]
    fn invalid_json_and_duplicate_keys_are_malformed() {
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let nested = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{deep}}}"#);
        let many: String = (0..100).map(|n| format!("\"k{n}\":{n},")).collect();
        let twice_among_many = format!(r#"{{"jsonrpc":"2.0",{many}"k7":0}}"#);
        for body in [
            "",
            "{",
            "nonsense",
            "{}{}",
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"a","nam\u0065":"b"}}"#,
            &nested,
            &twice_among_many,
        ] {
            assert!(matches!(check(body.as_bytes()), Err(EnvelopeError::Malformed(_))), "{body}");
        }
        assert!(matches!(check(b"{\"jsonrpc\":\"2.0\xff\"}"), Err(EnvelopeError::Malformed(_))));
    }

    #[test]
    fn json_that_is_no_json_rpc_message_is_not_a_request() {
        for body in [
            "[]",
            "null",
            "7",
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
            r#"{"id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":2,"id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"}"#,
        ] {
            assert!(matches!(check(body.as_bytes()), Err(EnvelopeError::NotARequest(_))), "{body}");
        }
    }
}
