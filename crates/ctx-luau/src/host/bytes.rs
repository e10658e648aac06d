//! Native functions that only compute on bytes: base64, hashes, and parts of the string library.

use crate::host::run_functions::{create_string, failure};
use crate::vm::{CurrentRun, NO_MEMORY};
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use memchr::memmem;
use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};
use std::fmt::Write as _;
use std::rc::Rc;

/// Base64 with or without padding. [`to_standard_alphabet`] converts text of the URL-safe alphabet before.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Adds the functions to `host`.
pub(super) fn add(lua: &Lua, host: &Table, current_run: &Rc<CurrentRun>) -> mlua::Result<()> {
    let encode = lua.create_function(|lua, bytes: Value| {
        with_bytes(lua, "base64.encode", &bytes, |lua, bytes| {
            (true, create_string(lua, STANDARD.encode(bytes).as_bytes())?).into_lua_multi(lua)
        })
    })?;
    host.raw_set("base64_encode", encode)?;
    let decode = lua.create_function(|lua, text: Value| {
        with_bytes(lua, "base64.decode", &text, |lua, text| {
            match LENIENT.decode(to_standard_alphabet(text)) {
                Ok(bytes) => (true, create_string(lua, &bytes)?).into_lua_multi(lua),
                Err(error) => failure(lua, &format!("base64.decode: {error}")),
            }
        })
    })?;
    host.raw_set("base64_decode", decode)?;
    let sha256 = lua.create_function(|lua, bytes: Value| {
        with_bytes(lua, "crypto.sha256", &bytes, |lua, bytes| {
            let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
            (true, hex(digest.as_ref())).into_lua_multi(lua)
        })
    })?;
    host.raw_set("sha256", sha256)?;
    let hmac = lua.create_function(|lua, (key, bytes): (Value, Value)| {
        with_bytes(lua, "crypto.hmac_sha256", &key, |lua, key| {
            with_bytes(lua, "crypto.hmac_sha256", &bytes, |lua, bytes| {
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
                (true, hex(ring::hmac::sign(&key, bytes).as_ref())).into_lua_multi(lua)
            })
        })
    })?;
    host.raw_set("hmac_sha256", hmac)?;
    host.raw_set("find", lua.create_function(find)?)?;
    host.raw_set("split", lua.create_function(split)?)?;
    let current = current_run.clone();
    let rep = lua.create_function(move |lua, (text, count, separator): (LuaString, f64, LuaString)| {
        let bytes_max = current.get().map_or(0, |run| run.bounds.memory_bytes);
        rep(lua, &text.as_bytes(), count, &separator.as_bytes(), bytes_max)
    })?;
    host.raw_set("rep", rep)
}

fn with_bytes(
    lua: &Lua,
    function: &str,
    value: &Value,
    then: impl FnOnce(&Lua, &[u8]) -> mlua::Result<MultiValue>,
) -> mlua::Result<MultiValue> {
    match value {
        Value::String(bytes) => then(lua, &bytes.as_bytes()),
        Value::Buffer(buffer) => then(lua, &buffer.to_vec()),
        Value::Integer(_) | Value::Number(_) => match lua.coerce_string(value.clone())? {
            Some(text) => then(lua, &text.as_bytes()),
            None => failure(lua, &format!("{function}: expected a string")),
        },
        other => failure(lua, &format!("{function}: expected a string, got {}", other.type_name())),
    }
}

/// The text in the standard alphabet, without white space.
fn to_standard_alphabet(text: &[u8]) -> Vec<u8> {
    let translate = |byte: &u8| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => *other,
    };
    text.iter().filter(|byte| !byte.is_ascii_whitespace()).map(translate).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `string.find` for plain text, in linear time.
fn find(lua: &Lua, (text, needle, init): (LuaString, LuaString, f64)) -> mlua::Result<MultiValue> {
    let (text, needle) = (text.as_bytes(), needle.as_bytes());
    let length = text.len() as f64;
    // As in Lua: a negative `init` counts from the end, and the search begins at the first byte at the
    // earliest.
    let start = if init < 0.0 { (length + init).max(0.0) } else { (init - 1.0).max(0.0) };
    if start > length {
        return Value::Nil.into_lua_multi(lua);
    }
    let start = start as usize;
    match memmem::find(&text[start..], &needle) {
        Some(at) => (start + at + 1, start + at + needle.len()).into_lua_multi(lua),
        None => Value::Nil.into_lua_multi(lua),
    }
}

fn split(lua: &Lua, (text, separator): (LuaString, LuaString)) -> mlua::Result<Table> {
    let (text, separator) = (text.as_bytes(), separator.as_bytes());
    let parts = lua.create_table()?;
    let (mut start, mut count) = (0, 0);
    for at in memmem::find_iter(&text, &separator) {
        count += 1;
        parts.raw_set(count, lua.create_string(&text[start..at])?)?;
        start = at + separator.len();
    }
    parts.raw_set(count + 1, lua.create_string(&text[start..])?)?;
    Ok(parts)
}

fn rep(lua: &Lua, text: &[u8], count: f64, separator: &[u8], bytes_max: usize) -> mlua::Result<MultiValue> {
    if count.is_nan() || count < 1.0 {
        return (true, "").into_lua_multi(lua);
    }
    let bytes = count * (text.len() + separator.len()) as f64;
    if bytes > bytes_max as f64 {
        return failure(lua, NO_MEMORY);
    }
    let count = count as usize;
    let repeated = if separator.is_empty() {
        text.repeat(count)
    } else {
        let mut repeated = [text, separator].concat().repeat(count - 1);
        repeated.extend_from_slice(text);
        repeated
    };
    (true, create_string(lua, &repeated)?).into_lua_multi(lua)
}
