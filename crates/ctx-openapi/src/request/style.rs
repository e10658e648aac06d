//! Parameter styles: how a value is serialized in path, query, headers, cookies and multipart parts.
//!
//! A style that is invalid in its location is treated as the default style there. Values that a style cannot
//! express, such as nested lists, are written as JSON.

use super::encode::{component, component_with_reserved, cookie, text};
use crate::operation::Style;
use serde_json::Value;

/// Nesting depth of `deepObject` brackets; deeper values are written as JSON.
const BRACKETS_MAX: usize = 16;

/// A value, as far as styles distinguish values. Null counts as absent.
enum Shape {
    One(String),
    List(Vec<String>),
    Fields(Vec<(String, String)>),
}

impl Shape {
    /// `None` if there is nothing to serialize.
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Array(items) => {
                let items: Vec<_> = items.iter().filter(|item| !item.is_null()).map(text).collect();
                (!items.is_empty()).then_some(Self::List(items))
            }
            Value::Object(fields) => {
                let fields = fields.iter().filter(|(_, value)| !value.is_null());
                let fields: Vec<_> = fields.map(|(key, value)| (key.clone(), text(value))).collect();
                (!fields.is_empty()).then_some(Self::Fields(fields))
            }
            one => Some(Self::One(text(one))),
        }
    }

    /// All of it in one text: the fields of an object as alternating keys and values, or as pairs.
    fn joined(&self, encode: impl Fn(&str) -> String, delimiter: &str, pairs: bool) -> String {
        let parts: Vec<String> = match self {
            Self::One(text) => vec![encode(text)],
            Self::List(items) => items.iter().map(|item| encode(item)).collect(),
            Self::Fields(fields) if pairs => fields.iter().map(|field| pair(field, &encode)).collect(),
            Self::Fields(fields) => {
                fields.iter().flat_map(|(key, value)| [encode(key), encode(value)]).collect()
            }
        };
        parts.join(delimiter)
    }

    /// One name and value per item or field (`explode`). Only values are encoded.
    fn exploded(&self, name: &str, encode: impl Fn(&str) -> String) -> Vec<(String, String)> {
        let named = |value: &String| (name.to_owned(), encode(value));
        match self {
            Self::One(text) => vec![named(text)],
            Self::List(items) => items.iter().map(named).collect(),
            Self::Fields(fields) => fields.iter().map(|(key, value)| (key.clone(), encode(value))).collect(),
        }
    }
}

fn pair((key, value): &(String, String), encode: impl Fn(&str) -> String) -> String {
    format!("{}={}", component(key), encode(value))
}

/// `name=value`; the value is encoded already.
fn written((name, value): (String, String)) -> String {
    format!("{}={value}", component(&name))
}

/// The delimiter between the items of a list: plain, and percent-encoded.
fn delimiter(style: Style) -> (&'static str, &'static str) {
    match style {
        Style::SpaceDelimited => (" ", "%20"),
        Style::PipeDelimited => ("|", "%7C"),
        Style::TabDelimited => ("\t", "%09"),
        _ => (",", ","),
    }
}

/// Serializes a value for the path; `None` if there is nothing to serialize.
pub(super) fn in_path(name: &str, value: &Value, style: Style, explode: bool) -> Option<String> {
    let shape = Shape::of(value)?;
    Some(match (style, &shape) {
        (Style::Label, _) => {
            format!(".{}", shape.joined(component, if explode { "." } else { "," }, explode))
        }
        (Style::Matrix, Shape::One(text)) if text.is_empty() => format!(";{}", component(name)),
        (Style::Matrix, _) if explode => {
            shape.exploded(name, component).into_iter().map(|part| format!(";{}", written(part))).collect()
        }
        (Style::Matrix, _) => format!(";{}={}", component(name), shape.joined(component, ",", false)),
        _ => shape.joined(component, delimiter(style).1, explode),
    })
}

/// Serializes a value for a query or a form, as pairs `name=value`.
pub(super) fn in_query(
    name: &str,
    value: &Value,
    style: Style,
    explode: bool,
    allow_reserved: bool,
) -> Vec<String> {
    let encode = if allow_reserved { component_with_reserved } else { component };
    let pairs = pairs(name, value, style, explode, encode, delimiter(style).1);
    pairs.into_iter().map(written).collect()
}

/// Serializes a value as named multipart parts, unencoded.
pub(super) fn in_parts(name: &str, value: &Value, style: Style, explode: bool) -> Vec<(String, String)> {
    pairs(name, value, style, explode, str::to_owned, delimiter(style).0)
}

fn pairs(
    name: &str,
    value: &Value,
    style: Style,
    explode: bool,
    encode: fn(&str) -> String,
    delimiter: &str,
) -> Vec<(String, String)> {
    let Some(shape) = Shape::of(value) else { return Vec::new() };
    match style {
        Style::DeepObject if !matches!(shape, Shape::One(_)) => {
            let mut pairs = Vec::new();
            with_brackets(name, value, encode, BRACKETS_MAX, &mut pairs);
            pairs
        }
        _ if explode => shape.exploded(name, encode),
        _ => vec![(name.to_owned(), shape.joined(encode, delimiter, false))],
    }
}

/// `deepObject`: `name[key]=value`. For lists, which OpenAPI does not define here, `name[]=value`, and
/// `name[0][key]=value` if the items are objects: services that accept lists in this style expect that.
fn with_brackets(
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
                with_brackets(&format!("{name}[{key}]"), value, encode, depth - 1, pairs);
            }
        }
        Value::Array(items) if depth > 0 => {
            for (index, item) in items.iter().enumerate() {
                let name = match item {
                    Value::Object(_) | Value::Array(_) => format!("{name}[{index}]"),
                    _ => format!("{name}[]"),
                };
                with_brackets(&name, item, encode, depth - 1, pairs);
            }
        }
        one => pairs.push((name.to_owned(), encode(&text(one)))),
    }
}

/// Serializes a value for a header, unencoded.
pub(super) fn in_header(value: &Value, style: Style, explode: bool) -> Option<String> {
    Some(match Shape::of(value)? {
        Shape::Fields(fields) if explode => {
            let pairs: Vec<_> = fields.iter().map(|(key, value)| format!("{key}={value}")).collect();
            pairs.join(",")
        }
        shape => shape.joined(str::to_owned, delimiter(style).0, explode),
    })
}

/// Serializes a value as cookies, pairs `name=value`.
pub(super) fn in_cookies(name: &str, value: &Value, explode: bool) -> Vec<String> {
    match Shape::of(value) {
        None => Vec::new(),
        Some(shape) if explode => shape.exploded(name, cookie).into_iter().map(written).collect(),
        Some(shape) => vec![format!("{}={}", component(name), shape.joined(cookie, ",", false))],
    }
}

#[cfg(test)]
mod tests;
