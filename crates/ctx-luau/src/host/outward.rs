//! Native functions that concern the run: host requests, conversion of values, the log and the result.

use crate::engine::protocol::{Answer, Question};
use crate::value::{Marks, Reading, ValueError, Writing, make_room, read, write};
use crate::vm::{LogLevel, NO_MEMORY, Run, Slot};
use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};
use std::rc::Rc;

/// Maximum size of a JSON text that a script encodes or sends with a host request.
const JSON_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Error of a host function that is called between runs.
const NO_RUN: &str = "there is no run";

/// Adds the functions to `host`.
pub(super) fn add(lua: &Lua, host: &Table, marks: &Marks, slot: &Rc<Slot>) -> mlua::Result<()> {
    host.raw_set("null", Value::NULL)?;
    host.raw_set("no_memory", NO_MEMORY)?;
    add_questions(lua, host, marks, slot)?;
    add_values(lua, host, marks, slot)?;
    let runs = slot.clone();
    let log = lua.create_function(move |_, (level, line): (LuaString, LuaString)| {
        if let Some(run) = runs.run() {
            run.log(level_of(&level.as_bytes()), &line.as_bytes());
        }
        Ok(())
    })?;
    host.raw_set("log", log)?;
    let runs = slot.clone();
    let clock = lua.create_function(move |_, ()| {
        Ok(runs.run().map_or(0.0, |run| run.started.elapsed().as_secs_f64()))
    })?;
    host.raw_set("clock", clock)
}

fn level_of(name: &[u8]) -> LogLevel {
    match name {
        b"debug" => LogLevel::Debug,
        b"warn" => LogLevel::Warn,
        b"error" => LogLevel::Error,
        _ => LogLevel::Info,
    }
}

fn add_questions(lua: &Lua, host: &Table, marks: &Marks, slot: &Rc<Slot>) -> mlua::Result<()> {
    let (runs, own) = (slot.clone(), marks.clone());
    let ask = lua.create_function(move |lua, (about, arguments, bytes): Asked| {
        let Some(run) = runs.run() else { return (Value::Nil, NO_RUN).into_lua_multi(lua) };
        match put(&own, &run, &about, &arguments, bytes)? {
            Ok(id) => id.into_lua_multi(lua),
            Err(message) => (Value::Nil, message).into_lua_multi(lua),
        }
    })?;
    host.raw_set("ask", ask)?;

    let (runs, own) = (slot.clone(), marks.clone());
    let ask_and_wait = lua.create_function(move |lua, (about, arguments, bytes): Asked| {
        let Some(run) = runs.run() else { return failed(lua, NO_RUN) };
        let waited = match put(&own, &run, &about, &arguments, bytes)? {
            Ok(id) => run.wait_any(&[id]).map(|()| id),
            Err(message) => Err(message),
        };
        match waited {
            Ok(id) => taken(lua, &own, &run, id),
            Err(message) => failed(lua, &message),
        }
    })?;
    host.raw_set("ask_and_wait", ask_and_wait)?;

    let (runs, own) = (slot.clone(), marks.clone());
    let take = lua.create_function(move |lua, id: u32| match runs.run() {
        Some(run) => taken(lua, &own, &run, id),
        None => failed(lua, NO_RUN),
    })?;
    host.raw_set("take", take)?;

    let runs = slot.clone();
    let promised = lua.create_function(move |_, (id, function): (u32, LuaString)| {
        if let Some(run) = runs.run() {
            run.promise(id, function.to_string_lossy());
        }
        Ok(())
    })?;
    host.raw_set("promised", promised)?;

    let runs = slot.clone();
    let note_value = lua.create_function(move |_, ()| {
        if let Some(run) = runs.run() {
            run.note_value();
        }
        Ok(())
    })?;
    host.raw_set("note_value", note_value)?;

    let runs = slot.clone();
    let has_given_values =
        lua.create_function(move |_, ()| Ok(runs.run().is_some_and(|run| run.has_given_values())))?;
    host.raw_set("has_given_values", has_given_values)?;

    let runs = slot.clone();
    let undefined = lua.create_function(move |_, name: Value| match name {
        Value::String(name) => Ok(runs.run().and_then(|run| run.undefined(&name.to_string_lossy()))),
        _ => Ok(None),
    })?;
    host.raw_set("undefined", undefined)?;

    let runs = slot.clone();
    let arrived = lua.create_function(move |_, id: u32| {
        // After the end of a run no response arrives, so nothing should wait for one.
        Ok(runs.run().is_none_or(|run| run.has_arrived(id) || run.was_over()))
    })?;
    host.raw_set("arrived", arrived)?;

    let runs = slot.clone();
    let wait = lua.create_function(move |_, ids: Vec<u32>| {
        // An error is ignored here: `take` reports that there is no response.
        let _ = runs.run().map(|run| run.wait_any(&ids));
        Ok(())
    })?;
    host.raw_set("wait", wait)
}

type Asked = (LuaString, Value, Option<LuaString>);

fn put(
    marks: &Marks,
    run: &Run,
    about: &LuaString,
    arguments: &Value,
    bytes: Option<LuaString>,
) -> mlua::Result<Result<u32, String>> {
    let how = Writing { name: "", bytes_max: JSON_BYTES_MAX };
    let arguments = match write(marks, arguments, how) {
        Ok(arguments) => arguments,
        Err(ValueError::Lua(error)) => return Err(error),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let bytes = bytes.map_or_else(Vec::new, |bytes| bytes.as_bytes().to_vec());
    Ok(run.ask(Question { about: about.to_string_lossy(), arguments, bytes }))
}

fn taken(lua: &Lua, marks: &Marks, run: &Run, id: u32) -> mlua::Result<MultiValue> {
    match run.take(id) {
        None => failed(lua, "the answer is lost"),
        Some(Answer::Failed { code, message, data }) if data.is_empty() => {
            (false, message, code).into_lua_multi(lua)
        }
        Some(Answer::Failed { code, message, data }) => match read(lua, marks, &data, Reading::default()) {
            Ok(data) => (false, message, code, data).into_lua_multi(lua),
            Err(error) => told(lua, error),
        },
        Some(Answer::Value { json, bytes }) => match read(lua, marks, &json, Reading::default()) {
            Ok(value) => (true, value, string(lua, &bytes)?).into_lua_multi(lua),
            Err(error) => told(lua, error),
        },
    }
}

fn add_values(lua: &Lua, host: &Table, marks: &Marks, slot: &Rc<Slot>) -> mlua::Result<()> {
    let own = marks.clone();
    let encode = lua.create_function(move |lua, value: Value| {
        match write(&own, &value, Writing { name: "value", bytes_max: JSON_BYTES_MAX }) {
            Ok(text) => (true, string(lua, &text)?).into_lua_multi(lua),
            Err(error) => told(lua, error),
        }
    })?;
    host.raw_set("encode", encode)?;

    let own = marks.clone();
    let decode = lua.create_function(move |lua, (text, nulls): (LuaString, bool)| {
        match read(lua, &own, &text.as_bytes(), Reading { nulls }) {
            Ok(value) => (true, value).into_lua_multi(lua),
            Err(ValueError::Lua(error)) => Err(error),
            Err(error) => failed(lua, &format!("not JSON: {error}")),
        }
    })?;
    host.raw_set("decode", decode)?;

    let own = marks.clone();
    let mark_array = lua.create_function(move |lua, table: Table| {
        if table.is_readonly() {
            return failed(lua, "json.array: the table is frozen");
        }
        own.mark_array(&table)?;
        (true, table).into_lua_multi(lua)
    })?;
    host.raw_set("mark_array", mark_array)?;

    let metamethod = lua.create_function(|_, (value, name): (Value, LuaString)| match value {
        Value::Table(table) => table.metatable().map_or(Ok(Value::Nil), |metatable| metatable.raw_get(name)),
        _ => Ok(Value::Nil),
    })?;
    host.raw_set("metamethod", metamethod)?;

    let runs = slot.clone();
    let identity = lua.create_function(move |_, value: Value| {
        Ok(runs.run().map_or(0, |run| run.identity(value.to_pointer())))
    })?;
    host.raw_set("identity", identity)?;

    let (runs, own) = (slot.clone(), marks.clone());
    let result = lua.create_function(move |lua, value: Value| {
        let Some(run) = runs.run() else { return failed(lua, NO_RUN) };
        if run.result.borrow().is_some() {
            return failed(lua, "result(value) was called before: call it once");
        }
        match write(&own, &value, Writing { name: "result", bytes_max: run.bounds.result_bytes }) {
            Ok(text) => {
                *run.result.borrow_mut() = Some(text);
                true.into_lua_multi(lua)
            }
            Err(ValueError::Lua(error)) => Err(error),
            Err(unfit) => (false, unfit.to_string(), true).into_lua_multi(lua),
        }
    })?;
    host.raw_set("result", result)
}

/// Creates a Lua string; collects garbage before if memory is short.
pub(super) fn string(lua: &Lua, bytes: &[u8]) -> mlua::Result<LuaString> {
    make_room(lua, bytes.len())?;
    lua.create_string(bytes)
}

/// The return values of a failed function: false and the message.
pub(super) fn failed(lua: &Lua, message: &str) -> mlua::Result<MultiValue> {
    (false, message).into_lua_multi(lua)
}

fn told(lua: &Lua, error: ValueError) -> mlua::Result<MultiValue> {
    match error {
        ValueError::Lua(error) => Err(error),
        other => failed(lua, &other.to_string()),
    }
}
