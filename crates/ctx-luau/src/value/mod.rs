//! Converts between Lua values and JSON text, in both directions and without an intermediate tree.
//!
//! - Keys 1 to n make an array, string keys an object; an empty table is `{}`, unless marked as an array.
//! - A null reads as nil in an object, and as `json.null` in an array, so that positions hold.
//! - Integers up to 2^53 are numbers; larger ones are Luau's `integer` in a table, and strings if alone or
//!   beyond 64 bits.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use read::{ReadOptions, read};
pub(crate) use write::{WriteOptions, write, write_fields};

use crate::vm::NO_MEMORY;
use mlua::{Function, Lua, LuaString, Table, Value};
use std::cell::OnceCell;
use std::rc::Rc;

/// Maximum nesting of tables; with the values in the innermost table that makes 128 levels.
pub(crate) const TABLES_DEEP_MAX: usize = 127;
/// Maximum number of values in one conversion; a table that is visited twice counts twice.
pub(crate) const NODES_MAX: usize = 100_000;
/// The largest integer up to which a double represents every integer exactly.
const NUMBER_EXACT_MAX: u64 = 1 << 53;

/// Luau source of `JsonBridge::put_integer`.
const PUT_INTEGER: &str = "local from_digits = integer.fromstring
return function(into, key, digits) rawset(into, key, from_digits(digits)) end";

/// The metatables and functions of one VM that the conversion uses.
#[derive(Clone)]
pub(crate) struct JsonBridge {
    /// The metatable that marks arrays. Frozen, so that scripts cannot change its behaviour.
    array: Table,
    /// Stores an `integer`, given as digits, in a table: mlua itself would convert it to a number.
    put_integer: Function,
    /// Awaits a promise; returns `true` and the value, or `false` with the message and the code of its error.
    await_promise: Rc<OnceCell<Function>>,
}

impl JsonBridge {
    /// Creates the metatables and functions; must be called before the globals are frozen.
    pub(crate) fn new(lua: &Lua) -> mlua::Result<Self> {
        let array = lua.create_table()?;
        let put_integer = lua.load(PUT_INTEGER).set_name("=value").call(())?;
        Ok(Self { array, put_integer, await_promise: Rc::default() })
    }

    /// Sets the `__index` of arrays, which handles missing fields, and freezes their metatable.
    pub(crate) fn set_list_index(&self, list_index: Function) -> mlua::Result<()> {
        self.array.raw_set("__index", list_index)?;
        self.array.set_readonly(true);
        Ok(())
    }

    /// Sets the function that awaits promises, so that a promise is written as its value.
    pub(crate) fn set_await_promise(&self, await_promise: Function) {
        let _ = self.await_promise.set(await_promise);
    }

    /// Awaits a promise; any other userdata is returned unchanged.
    fn await_value(&self, value: &Value) -> mlua::Result<Value> {
        let Some(await_promise) = self.await_promise.get() else { return Ok(value.clone()) };
        let (is_value, value, code): (bool, Value, Option<String>) = await_promise.call(value)?;
        if is_value {
            return Ok(value);
        }
        Err(mlua::Error::external(PromiseError { message: value.to_string()?, code }))
    }

    /// Marks a table as an array.
    pub(crate) fn mark_array(&self, table: &Table) -> mlua::Result<()> {
        table.set_metatable(Some(self.array.clone()))
    }

    fn is_array(&self, table: &Table) -> bool {
        table.metatable().is_some_and(|metatable| metatable == self.array)
    }
}

/// The error of a promise whose call failed, met while converting a value that contains it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct PromiseError {
    pub(crate) message: String,
    /// The code of the failed call.
    pub(crate) code: Option<String>,
}

/// Why a value cannot be converted.
#[derive(Debug)]
pub(crate) enum ValueError {
    /// The value has no counterpart; the message says where and why.
    Unrepresentable(String),
    /// The value or its JSON text exceeds a limit.
    TooLarge(String),
    /// An error of the VM, such as exhausted memory.
    Lua(mlua::Error),
}

impl From<mlua::Error> for ValueError {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

impl std::fmt::Display for ValueError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unrepresentable(text) | Self::TooLarge(text) => formatter.write_str(text),
            Self::Lua(mlua::Error::MemoryError(_)) => formatter.write_str(NO_MEMORY),
            Self::Lua(error) => error.fmt(formatter),
        }
    }
}

/// A Lua string as text; `None` if it is not UTF-8.
fn utf8_text(string: &LuaString) -> Option<String> {
    std::str::from_utf8(&string.as_bytes()).ok().map(str::to_owned)
}

/// Collects garbage if `bytes` more would exceed the memory limit: Luau itself does not.
pub(crate) fn make_room(lua: &Lua, bytes: usize) -> mlua::Result<()> {
    let limit = lua.set_memory_limit(0)?;
    if limit > 0 && lua.used_memory().saturating_add(bytes) > limit {
        lua.gc_collect()?;
    }
    lua.set_memory_limit(limit)?;
    Ok(())
}
