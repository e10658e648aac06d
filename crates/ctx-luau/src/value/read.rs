//! Reads JSON text into Lua values.

use super::{JsonBridge, NODES_MAX, NUMBER_EXACT_MAX, ValueError, make_room};
use crate::vm::NO_MEMORY;
use mlua::{IntoLua, Lua, Table, Value};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;

/// Options of [`read`].
#[derive(Clone, Copy, Default)]
pub(crate) struct ReadOptions {
    /// Whether a null is `json.null` everywhere, not only in arrays.
    pub(crate) nulls: bool,
}

/// Reads one JSON text.
pub(crate) fn read(
    lua: &Lua,
    bridge: &JsonBridge,
    text: &[u8],
    options: ReadOptions,
) -> Result<Value, ValueError> {
    let state = ReadState { lua, bridge, options, nodes: Cell::new(0), error: RefCell::new(None) };
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    // With a memory limit set, mlua protects each step against an allocation error, which takes longer than
    // the step. The size of a value is bounded by its text and `NODES_MAX`, so the limit is lifted here and
    // checked once afterwards.
    let limit = lua.set_memory_limit(0)?;
    let parsed = ValueSeed { state: &state, in_array: false }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    lua.set_memory_limit(limit)?;
    make_room(lua, 0)?;
    if limit > 0 && lua.used_memory() > limit {
        return Err(ValueError::Lua(mlua::Error::MemoryError(NO_MEMORY.to_owned())));
    }
    match (parsed, state.error.take()) {
        (Ok(ParsedValue::Value(value)), _) => Ok(value),
        (Ok(ParsedValue::Text(text)), _) => Ok(Value::String(lua.create_string(text.as_ref())?)),
        (Ok(ParsedValue::Integer(integer)), _) => Ok(Value::String(lua.create_string(integer.to_string())?)),
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(ValueError::Unrepresentable(error.to_string())),
    }
}

/// A value that was read and is not stored yet. Text is stored directly, without an intermediate mlua string.
enum ParsedValue<'de> {
    Value(Value),
    Text(Cow<'de, str>),
    /// An integer that is not exact as a double.
    Integer(i64),
}

struct ReadState<'a> {
    lua: &'a Lua,
    bridge: &'a JsonBridge,
    options: ReadOptions,
    nodes: Cell<usize>,
    /// The error if it is not one of syntax: serde can carry only its own errors.
    error: RefCell<Option<ValueError>>,
}

impl ReadState<'_> {
    fn record_error<T, E: serde::de::Error>(&self, result: mlua::Result<T>) -> Result<T, E> {
        result.map_err(|error| {
            *self.error.borrow_mut() = Some(ValueError::Lua(error));
            E::custom("")
        })
    }

    fn store<E: serde::de::Error>(
        &self,
        table: &Table,
        key: impl IntoLua,
        parsed: ParsedValue<'_>,
    ) -> Result<(), E> {
        self.record_error(match parsed {
            ParsedValue::Value(value) => table.raw_set(key, value),
            ParsedValue::Text(text) => table.raw_set(key, text.as_ref()),
            ParsedValue::Integer(integer) => self.bridge.put_integer.call((table, key, integer.to_string())),
        })
    }
}

#[derive(Clone, Copy)]
struct ValueSeed<'a> {
    state: &'a ReadState<'a>,
    in_array: bool,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ParsedValue<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ParsedValue<'de>, D::Error> {
        let nodes = self.state.nodes.get() + 1;
        if nodes > NODES_MAX {
            let message = format!("more than {NODES_MAX} values");
            *self.state.error.borrow_mut() = Some(ValueError::TooLarge(message));
            return Err(D::Error::custom(""));
        }
        self.state.nodes.set(nodes);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ParsedValue<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<ParsedValue<'de>, E> {
        Ok(ParsedValue::Value(if self.in_array || self.state.options.nulls {
            Value::NULL
        } else {
            Value::Nil
        }))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<ParsedValue<'de>, E> {
        Ok(ParsedValue::Value(Value::Boolean(value)))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<ParsedValue<'de>, E> {
        Ok(if value.unsigned_abs() <= NUMBER_EXACT_MAX {
            ParsedValue::Value(Value::Integer(value))
        } else {
            ParsedValue::Integer(value)
        })
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<ParsedValue<'de>, E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_str(&value.to_string()),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<ParsedValue<'de>, E> {
        Ok(ParsedValue::Value(Value::Number(value)))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<ParsedValue<'de>, E> {
        Ok(ParsedValue::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, value: &'de str) -> Result<ParsedValue<'de>, E> {
        Ok(ParsedValue::Text(Cow::Borrowed(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ParsedValue<'de>, A::Error> {
        let table = self.state.record_error(self.state.lua.create_table())?;
        self.state.record_error(self.state.bridge.mark_array(&table))?;
        let mut index = 0;
        while let Some(item) = items.next_element_seed(ValueSeed { in_array: true, ..self })? {
            index += 1;
            self.state.store(&table, index, item)?;
        }
        Ok(ParsedValue::Value(Value::Table(table)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<ParsedValue<'de>, A::Error> {
        let table = self.state.record_error(self.state.lua.create_table())?;
        while let Some(name) = fields.next_key_seed(KeySeed)? {
            let value = fields.next_value_seed(ValueSeed { in_array: false, ..self })?;
            self.state.store(&table, name.as_ref(), value)?;
        }
        Ok(ParsedValue::Value(Value::Table(table)))
    }
}

/// Deserializes the name of a field.
struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }
}
