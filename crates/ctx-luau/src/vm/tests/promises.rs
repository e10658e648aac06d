//! Calls without `sdk.`: which of them return promises, and that no promise is mistaken for its value.

use super::{FakeChannel, failed, job, run_in, value};
use crate::engine::protocol::ScriptEntry;
use crate::vm::{LogLevel, Vm};
use serde_json::{Value, json};
use std::rc::Rc;

fn shop() -> Rc<FakeChannel> {
    FakeChannel::new(|_, arguments, _| match arguments["name"].as_str() {
        Some("shop.list") => value(json!([{ "id": 1 }, { "id": 2 }])),
        Some("shop.name") => value(json!("Ada")),
        Some("shop.count") => value(json!(2)),
        Some("shop.yes") => value(json!(true)),
        Some("shop.no") => value(json!(false)),
        Some("shop.nothing") => value(json!(null)),
        Some("shop.bad") => failed("tool_error", "went wrong"),
        Some("shop.worse") => failed("timeout", "went worse"),
        _ => value(arguments["arguments"].clone()),
    })
}

fn run_at(channel: &Rc<FakeChannel>, source: &str) -> Result<Value, String> {
    let mut job = job(ScriptEntry::Chunk, &[]);
    job.apis.push("sdk.shop".to_owned());
    run_in(&mut Vm::new().unwrap(), &job, source, channel.clone()).map_err(|failure| failure.message)
}

#[test]
fn calls_whose_promises_are_used_as_such_run_concurrently() {
    for (source, expected, open) in [
        ("local a, b = shop.count(), shop.echo{ n = 1 } return { a:await(), b:await().n }", json!([2, 1]), 2),
        ("local a = shop.count() local b = shop.name() return b:await() .. a:await()", json!("Ada2"), 2),
        (
            "local a = shop.list() local b = shop.count() a:await() return { #a, a[1].id, b:await() }",
            json!([2, 1, 2]),
            2,
        ),
        ("local a = shop.count() local b = shop.count() local n = a:await() return n + b + 1", json!(5), 2),
        ("return parallel{ shop.count(), shop.name{}, function() return 3 end }", json!([2, "Ada", 3]), 2),
        ("return parallel({ shop.count(), shop.name() })", json!([2, "Ada"]), 2),
        (
            "return parallel{ count = shop.count(), ['name'] = shop.name() }",
            json!({"count": 2, "name": "Ada"}),
            2,
        ),
        (
            "local a, b = shop.count(), shop.name() return parallel{ first = a, second = b }",
            json!({"first": 2, "second": "Ada"}),
            2,
        ),
        (
            "local jobs = {} for n = 1, 3 do table.insert(jobs, shop.echo{ n = n }) end return #parallel(jobs)",
            json!(3),
            3,
        ),
        (
            "local jobs = {} for n = 1, 3 do jobs[n] = shop.echo{ n = n } end return parallel(jobs)[3].n",
            json!(3),
            3,
        ),
        (
            "local jobs = {} for n = 1, 3 do jobs[#jobs + 1] = shop.echo{ n = n } end return parallel(jobs)[3].n",
            json!(3),
            3,
        ),
        (
            "local jobs = { a = shop.count() } jobs.b = shop.name() return parallel(jobs)",
            json!({"a": 2, "b": "Ada"}),
            2,
        ),
        (
            "local jobs, out = {}, {} for n = 1, 3 do local p = shop.echo{ n = n } table.insert(jobs, p) end
          for i, job in ipairs(jobs) do out[i] = job:await().n end return out",
            json!([1, 2, 3]),
            3,
        ),
        (
            "local jobs = { shop.count(), shop.name() } local out = {} for i, job in jobs do out[i] = job:await() end return out",
            json!([2, "Ada"]),
            2,
        ),
        (
            "local jobs = { shop.count(), shop.name() } return { jobs[2]:await(), jobs[1]:await() }",
            json!(["Ada", 2]),
            2,
        ),
        (
            "local api = shop local a, b = api.count(), api.name() return { a:await(), b:await() }",
            json!([2, "Ada"]),
            2,
        ),
        (
            "local tool = 'count' local a = shop[tool]() local b = shop:name() return { a:await(), b:await() }",
            json!([2, "Ada"]),
            2,
        ),
        (
            "local a: number, b: any = shop.count(), shop.name() return { a:await() :: number, b:await() }",
            json!([2, "Ada"]),
            2,
        ),
        (
            "local function f() local a, b = shop.count(), shop.name() return { a:await(), b:await() } end return f()",
            json!([2, "Ada"]),
            2,
        ),
        (
            "return `{shop.count():await()} {shop.nothing():await()} {shop.name():await()}`",
            json!("2 nil Ada"),
            1,
        ),
        (
            "local a, b = shop.name(), shop.count() local n = a:await() return `{a}: {b} {-b} {b:await()} {#n}`",
            json!("Ada: 2 -2 2 3"),
            2,
        ),
        ("local p = shop.nothing() return { p:await() == nil, (shop.nothing():await()) }", json!([true]), 1),
    ] {
        let channel = shop();
        assert_eq!(run_at(&channel, source), Ok(expected), "{source}");
        assert_eq!(channel.open_max(), open, "{source}");
    }
}

#[test]
fn a_promise_never_passes_for_its_value() {
    for (source, expected) in [
        ("if shop.name() == 'Ada' then return 1 end return 2", json!(1)),
        ("local p = shop.name() if p == 'Ada' then return p:await() end return 2", json!("Ada")),
        ("local p = shop.no() if p then return p:await() end return 2", json!(2)),
        ("local p = shop.count() if p > 1 then return p:await() end return 0", json!(2)),
        ("local p = shop.yes() return not p and p:await()", json!(false)),
        ("local a, b = shop.name(), shop.count() return a == 'Ada' and b:await()", json!(2)),
        ("local x x = shop.name() local same = x == 'Ada' return { same, x:await() }", json!([true, "Ada"])),
        ("local p = shop.no() if p then return 1 end do local p = shop.name() return p:await() end", json!("Ada")),
        ("local t = { n = shop.count() } local p = shop.name() return { t.n == 2, p:await() }", json!([true, "Ada"])),
        ("local t = {} t.n = shop.count() if t.n == 2 then return parallel{ t.n } end return 0", json!([2])),
        ("local function f() return shop.count() end return f() == 2 and f():await() == 2", json!(true)),
        ("local function f(n) return n == 2 end return f(shop.count()) and shop.count():await()", json!(2)),
        ("local n = 0 for _, p in { shop.count(), shop.count() } do if p == 2 then n += p:await() end end return n", json!(4)),
        ("local p = shop.name() return { type(p), p:await() }", json!(["string", "Ada"])),
        ("local p = shop.count() return { tonumber(p), typeof(p), p:await() }", json!([2, "number", 2])),
        ("local p = shop.name() return { table.find({ 'Eve', 'Ada' }, p), p:await() }", json!([2, "Ada"])),
        ("local t = { Ada = 1 } local p = shop.name() return { t[p], p:await() }", json!([1, "Ada"])),
        ("local ok, p = pcall(shop.name) return ok and p == 'Ada' and shop.count():await()", json!(2)),
        ("local ok, p = pcall(function() local q = shop.name() return q == 'Ada' end) return p and shop.count():await()", json!(2)),
        ("local ok = pcall(shop.bad) local a = shop.count():await() return ok", json!(false)),
        ("local list = { shop.count() } local all = parallel(list) return list[1] == all[1]", json!(true)),
        ("local p = shop.name() local q = p return { q == 'Ada', q:await() }", json!([true, "Ada"])),
        ("local p = shop.count() p += 1 return { p == 3, p:await() }", json!([true, 3])),
        ("local s = shop local f = s.name return f() == 'Ada' and f():await()", json!("Ada")),
        ("local function fetch(n) return shop.echo{ n = n } end local jobs = {} for n = 1, 2 do jobs[n] = fetch(n) end
          return parallel(jobs)[2].n", json!(2)),
        ("local shop = { name = function() return { await = function() return 'own' end } end } return shop.name():await()",
            json!("own")),
        ("return { shop.yes():await(), (shop.count()):await(), shop.list():await()[2].id }", json!([true, 2, 2])),
    ] {
        assert_eq!(run_at(&shop(), source), Ok(expected), "{source}");
    }
}

#[test]
fn numbers_and_booleans_have_no_field_but_await() {
    for (source, expected) in [
        ("return (5).x", "tools/x.lua:1: attempt to index number with 'x'"),
        ("local yes = true\nreturn yes.x", "tools/x.lua:2: attempt to index boolean with 'x'"),
        ("return shop.count():foo()", "tools/x.lua:1: attempt to index number with 'foo'"),
    ] {
        assert_eq!(run_at(&shop(), source), Err(expected.to_owned()));
    }
    assert_eq!(
        run_at(&shop(), "return { (5):await(), (true):await(), getmetatable(5) }"),
        Ok(json!([5, true, "locked"]))
    );
}

#[test]
fn every_error_of_unawaited_calls_is_reported() {
    let channel = shop();
    let open = "local a, b, c = shop.bad(), shop.worse(), shop.count()\n";
    let late = "if false then return { a:await(), b:await(), c:await() } end\n";
    let bad = "sdk.shop.bad was called and not awaited, and failed: went wrong";
    let worse = "sdk.shop.worse was called and not awaited, and failed: went worse";
    let outcome = run_at(&channel, &format!("{open}{late}return 1"));
    assert_eq!(outcome, Err(format!("tools/x.lua: {bad}")));
    assert_eq!(channel.log_lines(), [(LogLevel::Error, worse.to_owned())]);
    let channel = shop();
    let outcome = run_at(&channel, &format!("{open}error('no')\n{late}"));
    // The run fails with the script's own error, and all others are logged.
    assert_eq!(outcome, Err("tools/x.lua:2: no".to_owned()));
    assert_eq!(channel.log_lines(), [(LogLevel::Error, bad.to_owned()), (LogLevel::Error, worse.to_owned())]);
}

#[test]
fn a_script_is_compiled_for_the_providers_that_it_sees() {
    let source = "local a, b = shop.count(), shop.name() return { a:await(), b:await() }";
    let mut vm = Vm::new().unwrap();
    let mut job = job(ScriptEntry::Chunk, &[]);
    job.apis.push("sdk.other".to_owned());
    let alone = run_in(&mut vm, &job, source, shop()).unwrap_err();
    assert!(alone.message.contains("there is no variable or function `shop`"), "{}", alone.message);
    job.apis.push("sdk.shop".to_owned());
    let channel = shop();
    assert_eq!(run_in(&mut vm, &job, source, channel.clone()).unwrap(), json!([2, "Ada"]));
    assert_eq!(channel.open_max(), 2);
}
