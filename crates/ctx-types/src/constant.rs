//! Constants of a schema: the values of `const` and `enum`.

use crate::combine::{CONSTANTS_MAX, union};
use crate::model::{Constant, Table, Type};
use serde_json::{Map, Value};

/// Maximum length of a constant that is kept.
const CONSTANT_LENGTH_MAX: usize = 200;

/// The union of the values of `const` or `enum`; of their types if there are too many, or one is too long.
pub(crate) fn constants(schema: &Map<String, Value>) -> Option<Type> {
    let values: Vec<&Value> = match (schema.get("const"), schema.get("enum")) {
        (Some(constant), _) => vec![constant],
        (None, Some(Value::Array(values))) if !values.is_empty() => values.iter().collect(),
        _ => return None,
    };
    let is_writable =
        |value: &&Value| value.as_str().is_none_or(|text| is_writable(text, CONSTANT_LENGTH_MAX));
    if values.len() > CONSTANTS_MAX || !values.iter().all(is_writable) {
        return Some(union(values.into_iter().map(type_of)));
    }
    Some(union(values.into_iter().map(constant)))
}

/// Whether a text can be a Luau type: Luau rejects NUL in a type, even if it is escaped.
pub(crate) fn is_writable(text: &str, length_max: usize) -> bool {
    text.len() <= length_max && !text.contains('\0')
}

fn constant(value: &Value) -> Type {
    match value {
        Value::String(text) => Type::Exactly(Constant::Text(text.clone())),
        Value::Bool(flag) => Type::Exactly(Constant::Boolean(*flag)),
        Value::Number(number) => {
            number.as_f64().map_or(Type::Number, |number| Type::Exactly(Constant::Number(number)))
        }
        other => type_of(other),
    }
}

fn type_of(value: &Value) -> Type {
    match value {
        Value::Null => Type::Nil,
        Value::Bool(_) => Type::Boolean,
        Value::Number(_) => Type::Number,
        Value::String(_) => Type::String,
        Value::Array(_) => Type::List(Box::new(Type::Any)),
        Value::Object(_) => Type::Table(Table::default()),
    }
}
