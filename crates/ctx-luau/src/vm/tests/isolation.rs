//! Isolation: a run leaves no trace for the next one in the same VM.

use super::{FakeChannel, job, run_in};
use crate::engine::protocol::ScriptEntry;
use crate::vm::Vm;
use crate::vm::machine::RUNS_MAX;
use serde_json::json;

/// A name, a script that tries to leave a trace, and a script of the next run that checks for it.
const TRACES: &[(&str, &str, &str)] = &[
    ("a global", "x = 1", "return _G.x == nil"),
    ("a field of _G", "_G.x = 1", "return _G.x == nil and x == nil"),
    ("a replaced library", "string = nil", "return string ~= nil"),
    ("a replaced function", "print = nil json = 1", "return print ~= nil and json.encode ~= nil"),
    (
        "a function in a library",
        "pcall(function() string.own = 1 end)",
        "return rawget(string, 'own') == nil",
    ),
    ("a raw write to a library", "pcall(rawset, table, 'own', 1)", "return table.own == nil"),
    ("a raw write to an API", "pcall(rawset, json, 'own', 1)", "return json.own == nil"),
    ("a raw write to sdk", "pcall(rawset, sdk, 'own', 1)", "return type(sdk.own) == 'table'"),
    ("a raw write to a provider", "rawset(sdk.a, 'own', 1)", "return type(sdk.a.own) == 'function'"),
    (
        "a field of context",
        "pcall(function() context.own = 1 end) pcall(rawset, context.config, 'own', 2)",
        "return context.own == nil and context.config.own == nil",
    ),
    (
        "the metatable of strings",
        "pcall(function() getmetatable('').__index.own = 1 end)",
        "return not pcall(function() return ('').own end)",
    ),
    (
        "a metatable of a library",
        "pcall(setmetatable, string, { __index = { own = 1 } })",
        "return rawget(string, 'own') == nil",
    ),
    ("a metatable of globals", "pcall(setmetatable, _G, { __index = { own = 1 } })", "return _G.own == nil"),
    (
        "the metatable of arrays",
        "pcall(function() getmetatable(json.array()).__index = { own = 1 } end)",
        "return json.array().own == nil",
    ),
    (
        "the metatable of null",
        "pcall(function() getmetatable(json.null).own = 1 end)",
        "return type(getmetatable(json.null)) == 'string'",
    ),
    (
        "a coroutine",
        "co = coroutine.create(function() coroutine.yield() end) coroutine.resume(co)",
        "return _G.co == nil",
    ),
    ("the clock", "local t = os.clock() while os.clock() - t < 0.02 do end", "return os.clock() < 0.02"),
    ("memory", "keep = string.rep('x', 8e6)", "local s = string.rep('y', 12e6) return true"),
    ("a result", "pcall(result, print)", "return true"),
    ("a frozen table", "pcall(table.freeze, _G)", "x = 1 return x == 1"),
    (
        "a task of parallel",
        "parallel({ function() coroutine.yield() end })",
        "return not coroutine.isyieldable()",
    ),
    ("an error", "pcall(error, 'x')", "return true"),
];

#[test]
fn no_run_sees_a_trace_of_another() {
    let mut vm = Vm::new().unwrap();
    for (name, leave, look) in TRACES {
        let left = run_in(
            &mut vm,
            &job(ScriptEntry::Chunk, &[]),
            &format!(
                "{leave}
return 1"
            ),
            FakeChannel::rejecting(),
        );
        left.unwrap_or_else(|failure| panic!("{name}: {}", failure.message));
        let seen = run_in(&mut vm, &job(ScriptEntry::Chunk, &[]), look, FakeChannel::rejecting());
        assert_eq!(seen.unwrap(), json!(true), "{name}");
        assert!(!vm.needs_replacement(), "{name}");
    }
}

#[test]
fn a_seed_does_not_reach_the_next_run() {
    let mut vm = Vm::new().unwrap();
    let mut draw = || {
        let source = "local first = math.random(1, 2 ^ 30) math.randomseed(1) return first";
        run_in(&mut vm, &job(ScriptEntry::Chunk, &[]), source, FakeChannel::rejecting()).unwrap()
    };
    let drawn = [draw(), draw(), draw()];
    assert!(drawn[0] != drawn[1] || drawn[1] != drawn[2]);
}

#[test]
fn a_vm_is_replaced_after_failures_or_many_runs_but_not_after_syntax_errors() {
    let mut vm = Vm::new().unwrap();
    run_in(&mut vm, &job(ScriptEntry::Chunk, &[]), "return (", FakeChannel::rejecting()).unwrap_err();
    assert!(!vm.needs_replacement());
    for _ in 1..RUNS_MAX {
        assert!(!vm.needs_replacement());
        let _ = run_in(&mut vm, &job(ScriptEntry::Chunk, &[]), "return 1", FakeChannel::rejecting());
    }
    assert!(vm.needs_replacement());
    let mut vm = Vm::new().unwrap();
    run_in(&mut vm, &job(ScriptEntry::Chunk, &[]), "error('x')", FakeChannel::rejecting()).unwrap_err();
    assert!(vm.needs_replacement());
}
