//! Parses YAML into a JSON value: keys are always strings, tags are ignored, merge keys (`<<`) are applied,
//! and alias expansion is bounded.

mod nesting;

use super::text::{DescriptionError, TEXT_BYTES_MAX};
use serde::Deserializer;
use serde::de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;

/// Values in one document, each alias counted as often as it is used.
const VALUES_MAX: usize = 8_000_000;

/// Bytes of strings and keys in one document, each alias counted as often as it is used.
const BYTES_MAX: usize = 4 * TEXT_BYTES_MAX;

/// The merge key.
const MERGE: &str = "<<";

/// Maximum nesting depth of flow collections (`[`, `{`). The parser has a limit of its own, half as high, but
/// takes quadratic time before it applies it.
const FLOW_DEPTH_MAX: usize = 256;

/// Parses YAML.
pub(super) fn parse(text: &str) -> Result<Value, DescriptionError> {
    if let Some((line, column)) = nesting::find_excessive(text, FLOW_DEPTH_MAX) {
        return Err(DescriptionError::Syntax { line, column, why: "it is nested too deeply".to_owned() });
    }
    let budget = ExpansionBudget { values: Cell::new(VALUES_MAX), bytes: Cell::new(BYTES_MAX) };
    let seed = ValueSeed { budget: &budget };
    seed.deserialize(yaml_serde::Deserializer::from_str(text)).map_err(|error| syntax_error(&error, text))
}

/// The position of an error, at its cause. For a quote or a bracket that is never closed, the parser reports
/// the end of the text, and the cause is where it was opened. For a key without a colon, it reports the line
/// after.
fn syntax_error(error: &yaml_serde::Error, text: &str) -> DescriptionError {
    let why = error.to_string();
    let mut position = error.location().map_or((0, 0), |position| (position.line(), position.column()));
    let is_open_quote = why.contains("scanning a quoted scalar") && why.starts_with("found unexpected");
    let is_bare_name = why.contains("scanning a simple key");
    let is_at_end = position.0 > text.lines().count();
    let start = why.rsplit_once(" at line ").and_then(|(_, position)| parse_position(position));
    if let Some(start) = start.filter(|_| is_open_quote || is_bare_name || is_at_end) {
        position = start;
    }
    let opened_at = start.filter(|start| why.contains("parsing a flow") && *start != position);
    let problem = why.split(" at line ").next().unwrap_or(&why);
    let why = match opened_at {
        _ if is_open_quote => "a quote is not closed".to_owned(),
        Some((line, column)) => {
            format!("{problem}, in the collection that begins at line {line}, column {column}")
        }
        None => problem.to_owned(),
    };
    DescriptionError::Syntax { line: position.0, column: position.1, why }
}

/// Parses `12 column 3`.
fn parse_position(position: &str) -> Option<(usize, usize)> {
    let (line, column) = position.split_once(" column ")?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// The budget that is left for a document.
struct ExpansionBudget {
    values: Cell<usize>,
    bytes: Cell<usize>,
}

impl ExpansionBudget {
    fn spend_value<E: Error>(&self) -> Result<(), E> {
        spend(&self.values, 1)
    }

    fn spend_bytes<E: Error>(&self, text: &str) -> Result<(), E> {
        spend(&self.bytes, text.len())
    }
}

fn spend<E: Error>(budget: &Cell<usize>, count: usize) -> Result<(), E> {
    let rest = budget.get().checked_sub(count).ok_or_else(|| E::custom("aliases make it too large"))?;
    budget.set(rest);
    Ok(())
}

#[derive(Clone, Copy)]
struct ValueSeed<'a> {
    budget: &'a ExpansionBudget,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.budget.spend_value()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    #[allow(clippy::cast_precision_loss, reason = "no number of JSON is larger")]
    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok((value as f64).into())
    }

    #[allow(clippy::cast_precision_loss, reason = "no number of JSON is larger")]
    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok((value as f64).into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.budget.spend_bytes(value)?;
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.budget.spend_bytes(&value)?;
        Ok(value.into())
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Value, A::Error> {
        let (_, content) = tagged.variant::<String>()?;
        content.newtype_variant_seed(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        let mut merged = Vec::new();
        while let Some(name) = entries.next_key_seed(KeySeed { budget: self.budget })? {
            let value = entries.next_value_seed(self)?;
            match value {
                Value::Object(others) if name == MERGE => merged.push(others),
                Value::Array(lists) if name == MERGE => {
                    merged.extend(lists.into_iter().filter_map(|others| match others {
                        Value::Object(others) => Some(others),
                        _ => None,
                    }));
                }
                value => {
                    fields.insert(name, value);
                }
            }
        }
        for (name, value) in merged.into_iter().flatten() {
            fields.entry(name).or_insert(value);
        }
        Ok(Value::Object(fields))
    }
}

/// A mapping key as it is written: `200` is `"200"`.
struct KeySeed<'a> {
    budget: &'a ExpansionBudget,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<String, E> {
        self.budget.spend_bytes(name)?;
        Ok(name.to_owned())
    }
}
