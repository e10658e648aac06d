//! The host APIs inside of the VM: what scripts can call besides the language.
//!
//! Each API is a Luau chunk over a few native functions (`host` in the chunks), which compute or send host
//! requests. The APIs hold no state of a run; `vm::Run` does.

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

/// One host API: a global of scripts.
pub(crate) struct HostApi {
    pub(crate) name: &'static str,
    /// Luau source that creates the global.
    body: &'static str,
    /// Luau type declarations.
    pub(crate) types: &'static str,
    /// The runs in which the global is visible.
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

/// All host APIs.
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

/// The name and the Luau type declarations of each host API.
pub fn api_types() -> impl Iterator<Item = (&'static str, &'static str)> {
    HOST_APIS.iter().map(|api| (api.name, api.types))
}

/// Chunks that run before those of the APIs: shared functions, and changes of the standard library.
const BEFORE: &[&str] = &[
    include_str!("show.luau"),
    include_str!("common.luau"),
    include_str!("base.luau"),
    include_str!("server.luau"),
    include_str!("catch.luau"),
];
/// Prefix of a provider, in the list of a run's host APIs, that the script also sees as a global.
pub(crate) const SERVER_PREFIX: &str = "sdk.";

/// The host APIs of one VM, and the functions behind them.
pub(crate) struct Host {
    /// In the order of [`HOST_APIS`].
    pub(crate) apis: Vec<Value>,
    /// Creates the global of a provider.
    pub(crate) server: Function,
    /// The `__concat` metamethod of strings.
    pub(crate) concat: Function,
    /// For each error value that may end a run: the code of the failed host request, or true if
    /// `result(value)` refused its value.
    pub(crate) codes: Table,
    /// The `__index` metamethod of numbers and booleans.
    pub(crate) plain_index: Function,
    /// The metatable of the shared globals, through which reading an undefined global may raise an error.
    pub(crate) undefined: Table,
}

/// Creates the host APIs and changes the standard library.
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

/// The chunks in this folder, compiled once per process. Without line numbers: see `common.luau`.
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

/// Makes a table read-only, with all tables in it and its metatables.
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

/// A shallow copy of a table, which a run may change.
pub(crate) fn copied(lua: &Lua, table: &Table) -> mlua::Result<Table> {
    let copy = lua.create_table()?;
    table.for_each(|name: Value, value: Value| copy.raw_set(name, value))?;
    Ok(copy)
}
