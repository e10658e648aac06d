//! The host APIs inside of the VM: what scripts can call besides the language.
//!
//! Each API is a Luau chunk over a few native functions (`host` in the chunks), which compute or send host
//! requests. The APIs hold no state of a run; `vm::RunState` does.

mod bytes;
mod run_functions;

use crate::engine::protocol::ScriptEntry;
use crate::syntax::PROMISES_FIELD;
use crate::value::JsonBridge;
use crate::vm::CurrentRun;
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
    pub(crate) entries: &'static [ScriptEntry],
}

const ALL_ENTRIES: &[ScriptEntry] = &[
    ScriptEntry::Describe,
    ScriptEntry::Tool,
    ScriptEntry::Connector,
    ScriptEntry::Agent,
    ScriptEntry::Chunk,
];
const CONFIGURED_ENTRIES: &[ScriptEntry] =
    &[ScriptEntry::Describe, ScriptEntry::Tool, ScriptEntry::Connector, ScriptEntry::Agent];
const CALL_ENTRIES: &[ScriptEntry] =
    &[ScriptEntry::Describe, ScriptEntry::Tool, ScriptEntry::Agent, ScriptEntry::Chunk];

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
    host_api!("base64", ALL_ENTRIES),
    host_api!("context", CALL_ENTRIES),
    host_api!("crypto", ALL_ENTRIES),
    host_api!("emit", &[ScriptEntry::Connector]),
    host_api!("env", CONFIGURED_ENTRIES),
    host_api!("fs", CONFIGURED_ENTRIES),
    host_api!("http", CONFIGURED_ENTRIES),
    host_api!("json", ALL_ENTRIES),
    host_api!("log", ALL_ENTRIES),
    host_api!("paginate", CALL_ENTRIES),
    host_api!("parallel", CALL_ENTRIES),
    host_api!("result", &[ScriptEntry::Chunk]),
    host_api!("sdk", CALL_ENTRIES),
    host_api!("sleep", ALL_ENTRIES),
];

/// The name and the Luau type declarations of each host API.
pub fn api_types() -> impl Iterator<Item = (&'static str, &'static str)> {
    HOST_APIS.iter().map(|api| (api.name, api.types))
}

/// Chunks that run before those of the APIs: shared functions, and changes of the standard library.
const PRELUDE: &[&str] = &[
    include_str!("show.luau"),
    include_str!("common.luau"),
    include_str!("base.luau"),
    include_str!("provider.luau"),
    include_str!("catch.luau"),
];
/// Prefix of a provider, in the list of a run's host APIs, that the script also sees as a global.
pub(crate) const PROVIDER_PREFIX: &str = "sdk.";

/// The host APIs of one VM, and the functions behind them.
pub(crate) struct HostApis {
    /// In the order of [`HOST_APIS`].
    pub(crate) apis: Vec<Value>,
    /// Creates the global of a provider.
    pub(crate) provider_global: Function,
    /// The `__concat` metamethod of strings.
    pub(crate) concat: Function,
    /// For each error value that may end a run: the code of the failed host request, or true if
    /// `result(value)` refused its value.
    pub(crate) codes: Table,
    /// The `__index` metamethod of numbers and booleans.
    pub(crate) scalar_index: Function,
    /// The metatable of the shared globals, through which reading an undefined global may raise an error.
    pub(crate) undefined_meta: Table,
}

/// Creates the host APIs and changes the standard library.
pub(crate) fn install(
    lua: &Lua,
    bridge: &JsonBridge,
    current_run: &Rc<CurrentRun>,
) -> mlua::Result<HostApis> {
    let host = lua.create_table()?;
    run_functions::add(lua, &host, bridge, current_run)?;
    bytes::add(lua, &host, current_run)?;
    host.raw_set("promises_field", PROMISES_FIELD)?;
    let compiled = compiled_chunks()?;
    let (before, apis) = compiled.split_at(PRELUDE.len());
    for code in before {
        load_chunk(lua, code).call::<()>(&host)?;
    }
    bridge.set_await_promise(host.raw_get("await_parts")?);
    bridge.set_list_index(host.raw_get("list_index")?)?;
    let apis =
        apis.iter().map(|code| load_chunk(lua, code).call(&host)).collect::<mlua::Result<Vec<Value>>>()?;
    for api in &apis {
        freeze(api)?;
    }
    let (provider_global, concat) = (host.raw_get("provider_global")?, host.raw_get("concat")?);
    let (codes, scalar_index) = (host.raw_get("codes")?, host.raw_get("scalar_index")?);
    Ok(HostApis {
        apis,
        provider_global,
        concat,
        codes,
        scalar_index,
        undefined_meta: host.raw_get("undefined_meta")?,
    })
}

fn load_chunk<'a>(lua: &Lua, code: &'a [u8]) -> Chunk<'a> {
    lua.load(code).set_mode(ChunkMode::Binary).set_name("=host")
}

/// The chunks in this folder, compiled once per process. Without line numbers: see `common.luau`.
fn compiled_chunks() -> mlua::Result<&'static Vec<Vec<u8>>> {
    static COMPILED: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    if let Some(compiled) = COMPILED.get() {
        return Ok(compiled);
    }
    let compiler = Compiler::new().set_debug_level(0);
    let bodies = PRELUDE.iter().copied().chain(HOST_APIS.iter().map(|api| api.body));
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
pub(crate) fn shallow_copy(lua: &Lua, table: &Table) -> mlua::Result<Table> {
    let copy = lua.create_table()?;
    table.for_each(|name: Value, value: Value| copy.raw_set(name, value))?;
    Ok(copy)
}
