//! Parameter styles: how a value is serialized in path, query, headers, cookies and multipart parts.
//!
//! A style that is invalid in its location is treated as the default style there. Values that a style cannot
//! express, such as nested lists, are written as JSON.

use super::encode::{encode_component, encode_component_with_reserved, encode_cookie, value_text};
use crate::operation::ParameterStyle;
use serde_json::Value;

/// Nesting depth of `deepObject` brackets; deeper values are written as JSON.
const BRACKETS_DEPTH_MAX: usize = 16;

/// A value, as far as styles distinguish values. Null counts as absent.
enum StyledValue {
    One(String),
    List(Vec<String>),
    Fields(Vec<(String, String)>),
}

impl StyledValue {
    /// `None` if there is nothing to serialize.
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Array(items) => {
                let items: Vec<_> = items.iter().filter(|item| !item.is_null()).map(value_text).collect();
                (!items.is_empty()).then_some(Self::List(items))
            }
            Value::Object(fields) => {
                let fields = fields.iter().filter(|(_, value)| !value.is_null());
                let fields: Vec<_> = fields.map(|(key, value)| (key.clone(), value_text(value))).collect();
                (!fields.is_empty()).then_some(Self::Fields(fields))
            }
            one => Some(Self::One(value_text(one))),
        }
    }

    /// All of it in one text: the fields of an object as alternating keys and values, or as pairs.
    fn join(&self, encode: impl Fn(&str) -> String, delimiter: &str, pairs: bool) -> String {
        let parts: Vec<String> = match self {
            Self::One(text) => vec![encode(text)],
            Self::List(items) => items.iter().map(|item| encode(item)).collect(),
            Self::Fields(fields) if pairs => fields.iter().map(|field| encode_pair(field, &encode)).collect(),
            Self::Fields(fields) => {
                fields.iter().flat_map(|(key, value)| [encode(key), encode(value)]).collect()
            }
        };
        parts.join(delimiter)
    }

    /// One name and value per item or field (`explode`). Only values are encoded.
    fn explode_pairs(&self, name: &str, encode: impl Fn(&str) -> String) -> Vec<(String, String)> {
        let named = |value: &String| (name.to_owned(), encode(value));
        match self {
            Self::One(text) => vec![named(text)],
            Self::List(items) => items.iter().map(named).collect(),
            Self::Fields(fields) => fields.iter().map(|(key, value)| (key.clone(), encode(value))).collect(),
        }
    }
}

fn encode_pair((key, value): &(String, String), encode: impl Fn(&str) -> String) -> String {
    format!("{}={}", encode_component(key), encode(value))
}

/// `name=value`; the value is encoded already.
fn join_pair((name, value): (String, String)) -> String {
    format!("{}={value}", encode_component(&name))
}

/// The delimiter between the items of a list: plain, and percent-encoded.
fn delimiter_of(style: ParameterStyle) -> (&'static str, &'static str) {
    match style {
        ParameterStyle::SpaceDelimited => (" ", "%20"),
        ParameterStyle::PipeDelimited => ("|", "%7C"),
        ParameterStyle::TabDelimited => ("\t", "%09"),
        _ => (",", ","),
    }
}

/// Serializes a value for the path; `None` if there is nothing to serialize.
pub(super) fn path_text(name: &str, value: &Value, style: ParameterStyle, explode: bool) -> Option<String> {
    let styled = StyledValue::of(value)?;
    Some(match (style, &styled) {
        (ParameterStyle::Label, _) => {
            format!(".{}", styled.join(encode_component, if explode { "." } else { "," }, explode))
        }
        (ParameterStyle::Matrix, StyledValue::One(text)) if text.is_empty() => {
            format!(";{}", encode_component(name))
        }
        (ParameterStyle::Matrix, _) if explode => styled
            .explode_pairs(name, encode_component)
            .into_iter()
            .map(|part| format!(";{}", join_pair(part)))
            .collect(),
        (ParameterStyle::Matrix, _) => {
            format!(";{}={}", encode_component(name), styled.join(encode_component, ",", false))
        }
        _ => styled.join(encode_component, delimiter_of(style).1, explode),
    })
}

/// Serializes a value for a query or a form, as pairs `name=value`.
pub(super) fn query_pairs(
    name: &str,
    value: &Value,
    style: ParameterStyle,
    explode: bool,
    allow_reserved: bool,
) -> Vec<String> {
    let encode = if allow_reserved { encode_component_with_reserved } else { encode_component };
    let pairs = pairs_of(name, value, style, explode, encode, delimiter_of(style).1);
    pairs.into_iter().map(join_pair).collect()
}

/// Serializes a value as named multipart parts, unencoded.
pub(super) fn part_pairs(
    name: &str,
    value: &Value,
    style: ParameterStyle,
    explode: bool,
) -> Vec<(String, String)> {
    pairs_of(name, value, style, explode, str::to_owned, delimiter_of(style).0)
}

fn pairs_of(
    name: &str,
    value: &Value,
    style: ParameterStyle,
    explode: bool,
    encode: fn(&str) -> String,
    delimiter: &str,
) -> Vec<(String, String)> {
    let Some(styled) = StyledValue::of(value) else { return Vec::new() };
    match style {
        ParameterStyle::DeepObject if !matches!(styled, StyledValue::One(_)) => {
            let mut pairs = Vec::new();
            add_bracketed(name, value, encode, BRACKETS_DEPTH_MAX, &mut pairs);
            pairs
        }
        _ if explode => styled.explode_pairs(name, encode),
        _ => vec![(name.to_owned(), styled.join(encode, delimiter, false))],
    }
}

/// `deepObject`: `name[key]=value`. For lists, which OpenAPI does not define here, `name[]=value`, and
/// `name[0][key]=value` if the items are objects: services that accept lists in this style expect that.
fn add_bracketed(
    name: &str,
    value: &Value,
    encode: fn(&str) -> String,
    depth: usize,
    pairs: &mut Vec<(String, String)>,
) {
    match value {
        Value::Null => {}
        Value::Object(fields) if depth > 0 => {
            for (key, value) in fields {
                add_bracketed(&format!("{name}[{key}]"), value, encode, depth - 1, pairs);
            }
        }
        Value::Array(items) if depth > 0 => {
            for (index, item) in items.iter().enumerate() {
                let name = match item {
                    Value::Object(_) | Value::Array(_) => format!("{name}[{index}]"),
                    _ => format!("{name}[]"),
                };
                add_bracketed(&name, item, encode, depth - 1, pairs);
            }
        }
        one => pairs.push((name.to_owned(), encode(&value_text(one)))),
    }
}

/// Serializes a value for a header, unencoded.
pub(super) fn header_text(value: &Value, style: ParameterStyle, explode: bool) -> Option<String> {
    Some(match StyledValue::of(value)? {
        StyledValue::Fields(fields) if explode => {
            let pairs: Vec<_> = fields.iter().map(|(key, value)| format!("{key}={value}")).collect();
            pairs.join(",")
        }
        styled => styled.join(str::to_owned, delimiter_of(style).0, explode),
    })
}

/// Serializes a value as cookies, pairs `name=value`.
pub(super) fn cookie_pairs(name: &str, value: &Value, explode: bool) -> Vec<String> {
    match StyledValue::of(value) {
        None => Vec::new(),
        Some(styled) if explode => {
            styled.explode_pairs(name, encode_cookie).into_iter().map(join_pair).collect()
        }
        Some(styled) => {
            vec![format!("{}={}", encode_component(name), styled.join(encode_cookie, ",", false))]
        }
    }
}

#[cfg(test)]
mod tests;
