//! What scripts can call besides the language, seen from inside of the VM.
//!
//! Each API is a chunk of Luau over a few functions of ours (`host` in those chunks), which compute or
//! ask. It answers the same in every run: whatever belongs to one is in `vm::Run`.

mod bytes;
mod outward;

use crate::engine::protocol::Entry;
use crate::syntax::PROMISES_FIELD;
use crate::value::Marks;
use crate::vm::Slot;
use mlua::chunk::{Chunk, ChunkMode, Compiler};
use mlua::{Function, Lua, Table, Value};
use std::rc::Rc;
use std::sync::OnceLock;

/// One API, as scripts see it: a global.
pub(crate) struct HostApi {
    pub(crate) name: &'static str,
    /// Makes it.
    body: &'static str,
    /// Says what it is, in Luau's types.
    pub(crate) types: &'static str,
    /// The scripts that see it.
    pub(crate) entries: &'static [Entry],
}

const EVERY: &[Entry] = &[Entry::Describe, Entry::Tool, Entry::Connector, Entry::Agent, Entry::Chunk];
const FILES: &[Entry] = &[Entry::Describe, Entry::Tool, Entry::Connector, Entry::Agent];
const CALLERS: &[Entry] = &[Entry::Describe, Entry::Tool, Entry::Agent, Entry::Chunk];

macro_rules! host_api {
    ($name:literal, $entries:expr) => {
        HostApi {
            name: $name,
            body: include_str!(concat!($name, ".luau")),
            types: include_str!(concat!($name, ".d.luau")),
            entries: $entries,
        }
    };
}

/// All of them.
pub(crate) const HOST_APIS: &[HostApi] = &[
    host_api!("base64", EVERY),
    host_api!("context", CALLERS),
    host_api!("crypto", EVERY),
    host_api!("emit", &[Entry::Connector]),
    host_api!("env", FILES),
    host_api!("fs", FILES),
    host_api!("http", FILES),
    host_api!("json", EVERY),
    host_api!("log", EVERY),
    host_api!("paginate", CALLERS),
    host_api!("parallel", CALLERS),
    host_api!("result", &[Entry::Chunk]),
    host_api!("sdk", CALLERS),
    host_api!("sleep", EVERY),
];

/// What each API is, in Luau's types, by its name.
pub fn api_types() -> impl Iterator<Item = (&'static str, &'static str)> {
    HOST_APIS.iter().map(|api| (api.name, api.types))
}

/// The chunks that come before the APIs: what they share, and changes of the standard library.
const BEFORE: &[&str] = &[
    include_str!("show.luau"),
    include_str!("common.luau"),
    include_str!("base.luau"),
    include_str!("server.luau"),
    include_str!("catch.luau"),
];
/// Before the name of a provider that a script also sees as a global of its own.
pub(crate) const SERVER_PREFIX: &str = "sdk.";

/// What scripts see, and how more of it is made.
pub(crate) struct Host {
    /// By their place in `HOST_APIS`.
    pub(crate) apis: Vec<Value>,
    /// Makes the global of a provider.
    pub(crate) server: Function,
    /// The metamethod of strings for `..`.
    pub(crate) concat: Function,
    /// By an error that a script may let through: the code of the failed question, or true where `result(value)` refused
    /// its value.
    pub(crate) codes: Table,
    /// The metamethod of numbers and booleans for reading a field.
    pub(crate) plain_index: Function,
    /// The metatable of the shared globals: reading one that is not there may be an error.
    pub(crate) undefined: Table,
}

/// Makes every API and changes the standard library.
pub(crate) fn install(lua: &Lua, marks: &Marks, slot: &Rc<Slot>) -> mlua::Result<Host> {
    let host = lua.create_table()?;
    outward::add(lua, &host, marks, slot)?;
    bytes::add(lua, &host, slot)?;
    host.raw_set("promises_field", PROMISES_FIELD)?;
    let compiled = compiled()?;
    let (before, apis) = compiled.split_at(BEFORE.len());
    for code in before {
        chunk(lua, code).call::<()>(&host)?;
    }
    marks.set_settle(host.raw_get("settled")?);
    marks.set_list_index(host.raw_get("list_index")?)?;
    let apis = apis.iter().map(|code| chunk(lua, code).call(&host)).collect::<mlua::Result<Vec<Value>>>()?;
    for api in &apis {
        freeze(api)?;
    }
    let (server, concat) = (host.raw_get("server")?, host.raw_get("concat")?);
    let (codes, plain_index) = (host.raw_get("codes")?, host.raw_get("plain_index")?);
    Ok(Host { apis, server, concat, codes, plain_index, undefined: host.raw_get("undefined_meta")? })
}

fn chunk<'a>(lua: &Lua, code: &'a [u8]) -> Chunk<'a> {
    lua.load(code).set_mode(ChunkMode::Binary).set_name("=host")
}

/// Our own chunks, compiled once for all VMs of a process. Without line numbers: see `common.luau`.
fn compiled() -> mlua::Result<&'static Vec<Vec<u8>>> {
    static COMPILED: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    if let Some(compiled) = COMPILED.get() {
        return Ok(compiled);
    }
    let compiler = Compiler::new().set_debug_level(0);
    let bodies = BEFORE.iter().copied().chain(HOST_APIS.iter().map(|api| api.body));
    let compiled: Vec<_> = bodies.map(|body| compiler.compile(body)).collect::<mlua::Result<_>>()?;
    Ok(COMPILED.get_or_init(|| compiled))
}

/// Freezes a value, whatever it holds, and its metatables.
pub(crate) fn freeze(value: &Value) -> mlua::Result<()> {
    let Value::Table(table) = value else { return Ok(()) };
    if table.is_readonly() {
        return Ok(());
    }
    table.set_readonly(true);
    if let Some(metatable) = table.metatable() {
        freeze(&Value::Table(metatable))?;
    }
    for pair in table.pairs::<Value, Value>() {
        freeze(&pair?.1)?;
    }
    Ok(())
}

/// A table that a run may change, with the same fields.
pub(crate) fn copied(lua: &Lua, table: &Table) -> mlua::Result<Table> {
    let copy = lua.create_table()?;
    table.for_each(|name: Value, value: Value| copy.raw_set(name, value))?;
    Ok(copy)
}
