//! The globals that all scripts of a VM share: nothing that reaches out, and nothing that can be changed.

use crate::host::{self, Host, freeze};
use crate::value::Marks;
use crate::vm::Slot;
use mlua::state::{GcIncParams, GcMode};
use mlua::{Function, LightUserData, Lua, LuaOptions, LuaString, StdLib, Table, Value};
use std::rc::Rc;

/// What is taken out of the standard library.
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
/// Size of the heap at which a collection should be done, in percent of what lived after the last.
pub(super) const GC_GOAL: i32 = 200;
/// The same where the heap could not double any more without running into its limit.
pub(super) const GC_GOAL_TIGHT: i32 = 120;
/// Work of the collector, in percent of what is allocated meanwhile.
const GC_STEP_MULTIPLIER: i32 = 400;
/// Memory that is allocated between two steps of the collector, in KiB: by default its steps are small
/// beside a large string.
const GC_STEP_KB: i32 = 256;
/// What `getmetatable` says of values whose metatable is ours.
const LOCKED: &str = "locked";

/// What a VM keeps of itself for its runs.
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
        // Scripts get another one, which hides the errors that we look for.
        let pcall = globals.raw_get("pcall")?;
        let host = host::install(&lua, &marks, slot)?;
        for name in REMOVED {
            globals.raw_set(*name, Value::Nil)?;
        }
        // Each run has its own.
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
/// Luau does not collect when memory runs out, so garbage must go before it counts against a script.
pub(super) fn collect_at(lua: &Lua, goal: i32) {
    let pace = GcIncParams::default().goal(goal).step_multiplier(GC_STEP_MULTIPLIER).step_size(GC_STEP_KB);
    lua.gc_set_mode(GcMode::Incremental(pace));
    lua.gc_restart();
}
