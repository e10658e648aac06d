//! The globals that all scripts of a VM share: read-only, and without access to the system.

use crate::host::{self, HostApis, freeze};
use crate::value::JsonBridge;
use crate::vm::CurrentRun;
use mlua::state::{GcIncParams, GcMode};
use mlua::{Function, LightUserData, Lua, LuaOptions, LuaString, StdLib, Table, Value};
use std::rc::Rc;

/// Globals that are removed from the standard library.
const REMOVED: &[&str] = &[
    "collectgarbage",
    "debug",
    "dofile",
    "gcinfo",
    "getfenv",
    "load",
    "loadfile",
    "loadstring",
    "newproxy",
    "package",
    "require",
    "setfenv",
];
/// Heap size at which a garbage collection should be complete, in percent of the live heap after the last
/// one.
pub(super) const GC_GOAL: i32 = 200;
/// [`GC_GOAL`] for a heap that could not double without exceeding its limit.
pub(super) const GC_GOAL_EAGER: i32 = 120;
/// Speed of the garbage collector, in percent of the rate of allocation.
const GC_STEP_MULTIPLIER: i32 = 400;
/// Allocation between two steps of the garbage collector, in KiB. The default steps are small compared with a
/// large string.
const GC_STEP_KB: i32 = 256;
/// The result of `getmetatable` for values with a protected metatable.
const LOCKED: &str = "locked";

/// The Lua state of a VM, and the values of it that all runs use.
pub(super) struct Globals {
    pub(super) lua: Lua,
    pub(super) bridge: JsonBridge,
    pub(super) host: HostApis,
    /// The metatable of every run's environment.
    pub(super) environment: Table,
    pub(super) pcall: Function,
    pub(super) tostring: Function,
    pub(super) seed_random: Function,
}

impl Globals {
    pub(super) fn new(current_run: &Rc<CurrentRun>) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::new())?;
        let globals = lua.globals();
        let bridge = JsonBridge::new(&lua)?;
        // The original `pcall`: that of scripts replaces error values by their text, but the VM needs the
        // values.
        let pcall = globals.raw_get("pcall")?;
        let host = host::install(&lua, &bridge, current_run)?;
        for name in REMOVED {
            globals.raw_set(*name, Value::Nil)?;
        }
        // Each run has its own `_G`.
        globals.raw_set("_G", Value::Nil)?;
        if let Some(strings) = lua.type_metatable::<LuaString>() {
            strings.raw_set("__concat", &host.concat)?;
            strings.raw_set("__metatable", LOCKED)?;
            freeze(&Value::Table(strings))?;
        }
        let scalar_meta = lua.create_table()?;
        scalar_meta.raw_set("__index", &host.scalar_index)?;
        scalar_meta.raw_set("__metatable", LOCKED)?;
        freeze(&Value::Table(scalar_meta.clone()))?;
        lua.set_type_metatable::<mlua::Number>(Some(scalar_meta.clone()));
        lua.set_type_metatable::<bool>(Some(scalar_meta));
        let null_meta = lua.create_table()?;
        null_meta.raw_set("__tostring", lua.create_function(|_, _: Value| Ok("null"))?)?;
        null_meta.raw_set("__metatable", LOCKED)?;
        freeze(&Value::Table(null_meta.clone()))?;
        lua.set_type_metatable::<LightUserData>(Some(null_meta));
        restart_gc(&lua, GC_GOAL);
        globals.set_metatable(Some(host.undefined_meta.clone()))?;
        let environment = lua.create_table()?;
        environment.raw_set("__index", &globals)?;
        environment.raw_set("__metatable", LOCKED)?;
        freeze(&Value::Table(environment.clone()))?;
        globals.set_safeenv(true);
        let math: Table = globals.raw_get("math")?;
        Ok(Self {
            pcall,
            tostring: globals.raw_get("tostring")?,
            seed_random: math.raw_get("randomseed")?,
            lua,
            bridge,
            host,
            environment,
        })
    }
}

/// Sets how large the heap may grow between two collections, and begins one.
///
/// Luau does not collect when the memory limit is reached, so garbage must be collected before it counts
/// against a script.
pub(super) fn restart_gc(lua: &Lua, goal: i32) {
    let mode = GcIncParams::default().goal(goal).step_multiplier(GC_STEP_MULTIPLIER).step_size(GC_STEP_KB);
    lua.gc_set_mode(GcMode::Incremental(mode));
    lua.gc_restart();
}
