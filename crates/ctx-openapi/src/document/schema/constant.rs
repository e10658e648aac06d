//! Converts constants to the type of their schema: YAML may read `yes` and `1` as another type than was
//! meant.

use serde_json::{Number, Value};

/// A constant converted to its only type, where that is possible; else unchanged.
pub(super) fn coerce(value: &Value, types: &[&str]) -> Value {
    let [type_name] = types else { return value.clone() };
    let fitting = match (*type_name, value) {
        ("string", Value::Number(number)) => Some(Value::String(number.to_string())),
        ("string", Value::Bool(flag)) => Some(Value::String(flag.to_string())),
        ("integer", Value::String(text)) => text.trim().parse::<i64>().ok().map(Value::from),
        ("number", Value::String(text)) => {
            text.trim().parse().ok().and_then(Number::from_f64).map(Value::Number)
        }
        ("boolean", Value::String(text)) => text.trim().parse().ok().map(Value::Bool),
        ("array", Value::Array(_)) | ("object", Value::Object(_)) => None,
        _ => None,
    };
    fitting.unwrap_or_else(|| value.clone())
}

/// The JSON Schema type for a type name, common aliases included; `None` if the name is unknown.
pub(super) fn json_type(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "string" | "str" | "text" | "file" | "date" | "datetime" | "date-time" | "uuid" | "byte"
        | "binary" | "char" | "password" | "email" | "uri" | "url" => "string",
        "integer" | "int" | "int32" | "int64" | "long" | "short" => "integer",
        "number" | "float" | "double" | "decimal" => "number",
        "boolean" | "bool" => "boolean",
        "array" | "list" => "array",
        "object" | "map" | "dict" | "dictionary" | "hash" => "object",
        "null" => "null",
        _ => return None,
    })
}
