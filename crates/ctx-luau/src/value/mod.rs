//! One conversion between Lua values and JSON text, both ways.
//!
//! Nothing stands between the two: a table is written as it is walked, and made as the text is read.
//!
//! - A table whose keys are 1 to n is an array, one whose keys are strings an object, an empty one
//!   `{}`, unless it is marked as an array: those read from JSON are, and those of `json.array`.
//! - A null reads as nil in an object, and as `json.null` in an array, so that positions hold.
//! - Integers up to 2^53 are numbers. Those beyond are Luau's `integer` where they are in a table, and
//!   strings of digits where they are alone or need more than 64 bits.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use read::{Reading, read};
pub(crate) use write::{Writing, write, write_fields};

use crate::vm::NO_MEMORY;
use mlua::{Function, Lua, LuaString, Table, Value};
use std::cell::OnceCell;
use std::rc::Rc;

/// Tables within tables at most; with what the innermost holds that makes 128 levels.
pub(crate) const TABLES_DEEP_MAX: usize = 127;
/// Values in one conversion at most, counted as often as they are visited.
pub(crate) const NODES_MAX: usize = 100_000;
/// The largest integer up to which every one is a number.
const NUMBER_EXACT_MAX: u64 = 1 << 53;

/// See `Marks::put_integer`.
const PUT_INTEGER: &str = "local from_digits = integer.fromstring
return function(into, key, digits) rawset(into, key, from_digits(digits)) end";

/// What the conversion needs of a VM; made once for each.
#[derive(Clone)]
pub(crate) struct Marks {
    /// The metatable of arrays. It is frozen, so scripts cannot change what it does.
    array: Table,
    /// Puts an `integer`, given as digits, into a table: whatever passes through mlua becomes a number.
    put_integer: Function,
    /// Awaits a promise: `true` and the value, or `false` with the message and the code of its error.
    settle: Rc<OnceCell<Function>>,
}

impl Marks {
    /// Makes them, before the globals are frozen.
    pub(crate) fn new(lua: &Lua) -> mlua::Result<Self> {
        let array = lua.create_table()?;
        let put_integer = lua.load(PUT_INTEGER).set_name("=value").call(())?;
        Ok(Self { array, put_integer, settle: Rc::default() })
    }

    /// Sets the function that arrays read missing fields with, and freezes their metatable.
    pub(crate) fn set_list_index(&self, list_index: Function) -> mlua::Result<()> {
        self.array.raw_set("__index", list_index)?;
        self.array.set_readonly(true);
        Ok(())
    }

    /// Sets the function that awaits promises, which are written as their values.
    pub(crate) fn set_settle(&self, settle: Function) {
        let _ = self.settle.set(settle);
    }

    /// The value of a promise; any other userdata is itself.
    fn settled(&self, value: &Value) -> mlua::Result<Value> {
        let Some(settle) = self.settle.get() else { return Ok(value.clone()) };
        let (is_value, settled, code): (bool, Value, Option<String>) = settle.call(value)?;
        if is_value {
            return Ok(settled);
        }
        Err(mlua::Error::external(PromiseError { message: settled.to_string()?, code }))
    }

    /// Marks a table as an array, for ever.
    pub(crate) fn mark_array(&self, table: &Table) -> mlua::Result<()> {
        table.set_metatable(Some(self.array.clone()))
    }

    fn is_array(&self, table: &Table) -> bool {
        table.metatable().is_some_and(|metatable| metatable == self.array)
    }
}

/// A promise that was to be written and whose call failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct PromiseError {
    pub(crate) message: String,
    /// The code of the failed call.
    pub(crate) code: Option<String>,
}

/// Why a value cannot become the other.
#[derive(Debug)]
pub(crate) enum ValueError {
    /// It is not fit; the text says where and why.
    Unfit(String),
    /// It, or its text, is larger than allowed.
    TooLarge(String),
    /// The VM could not hold it.
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
            Self::Unfit(text) | Self::TooLarge(text) => formatter.write_str(text),
            Self::Lua(mlua::Error::MemoryError(_)) => formatter.write_str(NO_MEMORY),
            Self::Lua(error) => error.fmt(formatter),
        }
    }
}

/// A string as text, if it is.
fn text(string: &LuaString) -> Option<String> {
    std::str::from_utf8(&string.as_bytes()).ok().map(str::to_owned)
}

/// Collects garbage if these many bytes would not fit otherwise: Luau itself would not.
pub(crate) fn make_room(lua: &Lua, bytes: usize) -> mlua::Result<()> {
    let limit = lua.set_memory_limit(0)?;
    if limit > 0 && lua.used_memory().saturating_add(bytes) > limit {
        lua.gc_collect()?;
    }
    lua.set_memory_limit(limit)?;
    Ok(())
}
