//! Detection of duplicate keys in untrusted JSON. Parsers disagree on which of the two values counts, so one component
//! could validate one value and another component use the other (parser differential).

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

/// Keys of one object up to which a linear search is used instead of a hash set.
const LINEAR_KEYS_MAX: usize = 16;

/// Characters of a key in an error message.
const SHOWN_CHARS_MAX: usize = 80;

/// Checks that a text is one JSON value, and that no object in it, at any depth, has a duplicate key; the error names
/// the key. Keys are compared after unescaping.
pub fn check_unique_keys(text: &[u8]) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    UniqueKeys.deserialize(&mut reader).and_then(|()| reader.end())
}

/// Visitor that discards any JSON value, but refuses objects with duplicate keys.
struct UniqueKeys;

impl<'de> DeserializeSeed<'de> for UniqueKeys {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut few: Vec<ObjectKey<'de>> = Vec::new();
        let mut many: HashSet<ObjectKey<'de>> = HashSet::new();
        while let Some(key) = fields.next_key::<ObjectKey<'de>>()? {
            let is_duplicate = if many.is_empty() { few.contains(&key) } else { many.contains(&key) };
            if is_duplicate {
                let shown: String = key.0.chars().take(SHOWN_CHARS_MAX).collect();
                let shown = shown.escape_debug();
                return Err(A::Error::custom(format_args!("an object has the key `{shown}` twice")));
            }
            if many.is_empty() && few.len() < LINEAR_KEYS_MAX {
                few.push(key);
            } else {
                many.extend(few.drain(..));
                many.insert(key);
            }
            fields.next_value_seed(Self)?;
        }
        Ok(())
    }
}

/// An object key; borrowed unless it contains escapes.
#[derive(Deserialize, PartialEq, Eq, Hash)]
#[serde(transparent)]
struct ObjectKey<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        check_unique_keys(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_key_that_stands_twice_is_named() {
        assert_eq!(error_of(r#"{"a":1,"a":2}"#), "an object has the key `a` twice at line 1 column 10");
        assert!(error_of(r#"{"b":[{"c":{"name":1,"nam\u0065":2}}]}"#).contains("the key `name` twice"));
        let many: String = (0..100).map(|n| format!("\"k{n}\":{n},")).collect();
        assert!(error_of(&format!("{{{many}\"k7\":0}}")).contains("the key `k7` twice"));
        let long = "k".repeat(1_000);
        assert!(error_of(&format!(r#"{{"{long}":1,"{long}":2}}"#)).len() < 200);
    }

    #[test]
    fn the_same_key_in_different_objects_is_fine() {
        assert!(check_unique_keys(br#"{"a":{"k":1},"b":{"k":1},"c":[{"k":1},{"k":2}]}"#).is_ok());
        assert!(check_unique_keys(b"[1, 2.5, -3, null, true, \"x\"]").is_ok());
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "{", "{}{}", "nonsense", "{\"a\":}"] {
            assert!(check_unique_keys(text.as_bytes()).is_err(), "{text}");
        }
    }
}
