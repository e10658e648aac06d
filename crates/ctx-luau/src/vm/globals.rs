//! The globals that all scripts of a VM share: read-only, and without access to the system.

use crate::host::{self, Host, freeze};
use crate::value::Marks;
use crate::vm::Slot;
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
pub(super) const GC_GOAL_TIGHT: i32 = 120;
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
    pub(super) marks: Marks,
    pub(super) host: Host,
    /// The metatable of every run's environment.
    pub(super) environment: Table,
    pub(super) pcall: Function,
    pub(super) tostring: Function,
    pub(super) seed_random: Function,
}

impl Globals {
    pub(super) fn new(slot: &Rc<Slot>) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::new())?;
        let globals = lua.globals();
        let marks = Marks::new(&lua)?;
        // The original `pcall`: that of scripts replaces error values by their text, but the VM needs the
        // values.
        let pcall = globals.raw_get("pcall")?;
        let host = host::install(&lua, &marks, slot)?;
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
        let plain = lua.create_table()?;
        plain.raw_set("__index", &host.plain_index)?;
        plain.raw_set("__metatable", LOCKED)?;
        freeze(&Value::Table(plain.clone()))?;
        lua.set_type_metatable::<mlua::Number>(Some(plain.clone()));
        lua.set_type_metatable::<bool>(Some(plain));
        let null = lua.create_table()?;
        null.raw_set("__tostring", lua.create_function(|_, _: Value| Ok("null"))?)?;
        null.raw_set("__metatable", LOCKED)?;
        freeze(&Value::Table(null.clone()))?;
        lua.set_type_metatable::<LightUserData>(Some(null));
        collect_at(&lua, GC_GOAL);
        globals.set_metatable(Some(host.undefined.clone()))?;
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
            marks,
            host,
            environment,
        })
    }
}

/// Sets how large the heap may grow between two collections, and begins one.
///
/// Luau does not collect when the memory limit is reached, so garbage must be collected before it counts
/// against a script.
pub(super) fn collect_at(lua: &Lua, goal: i32) {
    let pace = GcIncParams::default().goal(goal).step_multiplier(GC_STEP_MULTIPLIER).step_size(GC_STEP_KB);
    lua.gc_set_mode(GcMode::Incremental(pace));
    lua.gc_restart();
}
