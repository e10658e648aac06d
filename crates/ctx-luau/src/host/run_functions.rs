//! Native functions that concern the run: host requests, conversion of values, the log and the result.

use crate::engine::protocol::{HostRequest, HostResponse};
use crate::value::{JsonBridge, ReadOptions, ValueError, WriteOptions, make_room, read, write};
use crate::vm::{CurrentRun, LogLevel, NO_MEMORY, RunState};
use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};
use std::rc::Rc;

/// Maximum size of a JSON text that a script encodes or sends with a host request.
const JSON_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Error of a host function that is called between runs.
const NO_RUN: &str = "no script is running";

/// Adds the functions to `host`.
pub(super) fn add(
    lua: &Lua,
    host: &Table,
    bridge: &JsonBridge,
    current_run: &Rc<CurrentRun>,
) -> mlua::Result<()> {
    host.raw_set("null", Value::NULL)?;
    host.raw_set("no_memory", NO_MEMORY)?;
    add_request_functions(lua, host, bridge, current_run)?;
    add_value_functions(lua, host, bridge, current_run)?;
    let current = current_run.clone();
    let log = lua.create_function(move |_, (level, line): (LuaString, LuaString)| {
        if let Some(run) = current.get() {
            run.log(parse_level(&level.as_bytes()), &line.as_bytes());
        }
        Ok(())
    })?;
    host.raw_set("log", log)?;
    let current = current_run.clone();
    let clock = lua.create_function(move |_, ()| {
        Ok(current.get().map_or(0.0, |run| run.started.elapsed().as_secs_f64()))
    })?;
    host.raw_set("clock", clock)
}

fn parse_level(name: &[u8]) -> LogLevel {
    match name {
        b"debug" => LogLevel::Debug,
        b"warn" => LogLevel::Warn,
        b"error" => LogLevel::Error,
        _ => LogLevel::Info,
    }
}

fn add_request_functions(
    lua: &Lua,
    host: &Table,
    bridge: &JsonBridge,
    current_run: &Rc<CurrentRun>,
) -> mlua::Result<()> {
    let (current, own) = (current_run.clone(), bridge.clone());
    let send_request = lua.create_function(move |lua, (method, arguments, bytes): RequestArguments| {
        let Some(run) = current.get() else { return (Value::Nil, NO_RUN).into_lua_multi(lua) };
        match send_host_request(&own, &run, &method, &arguments, bytes)? {
            Ok(id) => id.into_lua_multi(lua),
            Err(message) => (Value::Nil, message).into_lua_multi(lua),
        }
    })?;
    host.raw_set("send_request", send_request)?;

    let (current, own) = (current_run.clone(), bridge.clone());
    let request_and_wait =
        lua.create_function(move |lua, (method, arguments, bytes): RequestArguments| {
            let Some(run) = current.get() else { return failure(lua, NO_RUN) };
            let waited = match send_host_request(&own, &run, &method, &arguments, bytes)? {
                Ok(id) => run.wait_any(&[id]).map(|()| id),
                Err(message) => Err(message),
            };
            match waited {
                Ok(id) => take_response(lua, &own, &run, id),
                Err(message) => failure(lua, &message),
            }
        })?;
    host.raw_set("request_and_wait", request_and_wait)?;

    let (current, own) = (current_run.clone(), bridge.clone());
    let take_response = lua.create_function(move |lua, id: u32| match current.get() {
        Some(run) => take_response(lua, &own, &run, id),
        None => failure(lua, NO_RUN),
    })?;
    host.raw_set("take_response", take_response)?;

    let current = current_run.clone();
    let note_promise = lua.create_function(move |_, (id, function): (u32, LuaString)| {
        if let Some(run) = current.get() {
            run.note_promise(id, function.to_string_lossy());
        }
        Ok(())
    })?;
    host.raw_set("note_promise", note_promise)?;

    let current = current_run.clone();
    let note_returned_value = lua.create_function(move |_, ()| {
        if let Some(run) = current.get() {
            run.note_returned_value();
        }
        Ok(())
    })?;
    host.raw_set("note_returned_value", note_returned_value)?;

    let current = current_run.clone();
    let has_returned_values =
        lua.create_function(move |_, ()| Ok(current.get().is_some_and(|run| run.has_returned_values())))?;
    host.raw_set("has_returned_values", has_returned_values)?;

    let current = current_run.clone();
    let undefined_global_error = lua.create_function(move |_, name: Value| match name {
        Value::String(name) => {
            Ok(current.get().and_then(|run| run.undefined_global_error(&name.to_string_lossy())))
        }
        _ => Ok(None),
    })?;
    host.raw_set("undefined_global_error", undefined_global_error)?;

    let current = current_run.clone();
    let has_arrived = lua.create_function(move |_, id: u32| {
        // After the end of a run no response arrives, so nothing should wait for one.
        Ok(current.get().is_none_or(|run| run.has_arrived(id) || run.is_timed_out()))
    })?;
    host.raw_set("has_arrived", has_arrived)?;

    let current = current_run.clone();
    let wait_any = lua.create_function(move |_, ids: Vec<u32>| {
        // An error is ignored here: `take_response` reports that there is no response.
        let _ = current.get().map(|run| run.wait_any(&ids));
        Ok(())
    })?;
    host.raw_set("wait_any", wait_any)
}

type RequestArguments = (LuaString, Value, Option<LuaString>);

fn send_host_request(
    bridge: &JsonBridge,
    run: &RunState,
    method: &LuaString,
    arguments: &Value,
    bytes: Option<LuaString>,
) -> mlua::Result<Result<u32, String>> {
    let options = WriteOptions { name: "", bytes_max: JSON_BYTES_MAX };
    let arguments = match write(bridge, arguments, options) {
        Ok(arguments) => arguments,
        Err(ValueError::Lua(error)) => return Err(error),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let bytes = bytes.map_or_else(Vec::new, |bytes| bytes.as_bytes().to_vec());
    Ok(run.send_request(HostRequest { method: method.to_string_lossy(), arguments, bytes }))
}

fn take_response(lua: &Lua, bridge: &JsonBridge, run: &RunState, id: u32) -> mlua::Result<MultiValue> {
    match run.take_response(id) {
        None => failure(lua, "the response is no longer available"),
        Some(HostResponse::Failed { code, message, data }) if data.is_empty() => {
            (false, message, code).into_lua_multi(lua)
        }
        Some(HostResponse::Failed { code, message, data }) => {
            match read(lua, bridge, &data, ReadOptions::default()) {
                Ok(data) => (false, message, code, data).into_lua_multi(lua),
                Err(error) => value_failure(lua, error),
            }
        }
        Some(HostResponse::Value { json, bytes }) => match read(lua, bridge, &json, ReadOptions::default()) {
            Ok(value) => (true, value, create_string(lua, &bytes)?).into_lua_multi(lua),
            Err(error) => value_failure(lua, error),
        },
    }
}

fn add_value_functions(
    lua: &Lua,
    host: &Table,
    bridge: &JsonBridge,
    current_run: &Rc<CurrentRun>,
) -> mlua::Result<()> {
    let own = bridge.clone();
    let encode = lua.create_function(move |lua, value: Value| {
        match write(&own, &value, WriteOptions { name: "value", bytes_max: JSON_BYTES_MAX }) {
            Ok(text) => (true, create_string(lua, &text)?).into_lua_multi(lua),
            Err(error) => value_failure(lua, error),
        }
    })?;
    host.raw_set("encode", encode)?;

    let own = bridge.clone();
    let decode = lua.create_function(move |lua, (text, nulls): (LuaString, bool)| {
        match read(lua, &own, &text.as_bytes(), ReadOptions { nulls }) {
            Ok(value) => (true, value).into_lua_multi(lua),
            Err(ValueError::Lua(error)) => Err(error),
            Err(error) => failure(lua, &format!("not JSON: {error}")),
        }
    })?;
    host.raw_set("decode", decode)?;

    let own = bridge.clone();
    let mark_array = lua.create_function(move |lua, table: Table| {
        if table.is_readonly() {
            return failure(lua, "json.array: the table is frozen");
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

    let current = current_run.clone();
    let identity = lua.create_function(move |_, value: Value| {
        Ok(current.get().map_or(0, |run| run.identity(value.to_pointer())))
    })?;
    host.raw_set("identity", identity)?;

    let (current, own) = (current_run.clone(), bridge.clone());
    let result = lua.create_function(move |lua, value: Value| {
        let Some(run) = current.get() else { return failure(lua, NO_RUN) };
        if run.result.borrow().is_some() {
            return failure(lua, "result(value) was already called: call it only once");
        }
        match write(&own, &value, WriteOptions { name: "result", bytes_max: run.bounds.result_bytes }) {
            Ok(text) => {
                *run.result.borrow_mut() = Some(text);
                true.into_lua_multi(lua)
            }
            Err(ValueError::Lua(error)) => Err(error),
            Err(error) => (false, error.to_string(), true).into_lua_multi(lua),
        }
    })?;
    host.raw_set("result", result)
}

/// Creates a Lua string; collects garbage before if memory is short.
pub(super) fn create_string(lua: &Lua, bytes: &[u8]) -> mlua::Result<LuaString> {
    make_room(lua, bytes.len())?;
    lua.create_string(bytes)
}

/// The return values of a failed function: false and the message.
pub(super) fn failure(lua: &Lua, message: &str) -> mlua::Result<MultiValue> {
    (false, message).into_lua_multi(lua)
}

fn value_failure(lua: &Lua, error: ValueError) -> mlua::Result<MultiValue> {
    match error {
        ValueError::Lua(error) => Err(error),
        other => failure(lua, &other.to_string()),
    }
}
