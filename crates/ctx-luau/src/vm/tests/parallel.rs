//! Concurrent host requests.

use super::{FakeChannel, chunk, chunk_with, failed, job, message, run_in, value};
use crate::engine::protocol::{JobFailure, ScriptEntry};
use crate::vm::Vm;
use serde_json::json;
use std::rc::Rc;

fn echo(last_first: bool) -> Rc<FakeChannel> {
    FakeChannel::with_order(|_, arguments, _| value(arguments["arguments"]["n"].clone()), last_first)
}

#[test]
fn results_keep_their_order_whatever_response_comes_first() {
    for last_first in [false, true] {
        let channel = echo(last_first);
        let source = "local list = {}
            for i = 1, 5 do list[i] = function() local a = sdk.a.b({ n = i }) return sdk.a.b({ n = a * 10 }) end end
            return parallel(list)";
        assert_eq!(chunk_with(source, channel.clone()).unwrap(), json!([10, 20, 30, 40, 50]));
        assert_eq!(channel.open_max(), 5);
    }
}

#[test]
fn names_are_kept_and_gaps_are_null() {
    let source = "return { parallel({ a = function() return sdk.x.y({ n = 1 }) end, b = function() end }),
        parallel({ function() end, function() return 2 end }), parallel({}) }";
    assert_eq!(chunk_with(source, echo(false)).unwrap(), json!([{ "a": 1 }, [null, 2], {}]));
}

#[test]
fn a_nested_parallel_does_not_block_the_others() {
    let channel = echo(false);
    let source = "return parallel({
        function() return parallel({ function() return sdk.a.b({ n = 1 }) end, function() return sdk.a.b({ n = 2 }) end }) end,
        function() return sdk.a.b({ n = 3 }) end,
    })";
    assert_eq!(chunk_with(source, channel.clone()).unwrap(), json!([[1, 2], 3]));
    assert_eq!(channel.open_max(), 3);
}

#[test]
fn the_other_tasks_end_before_an_error_is_raised() {
    let channel = FakeChannel::new(|_, arguments, _| match arguments["name"].as_str() {
        Some("a.bad") => failed("tool_error", "went wrong"),
        _ => value(json!(1)),
    });
    let source = "local done = 0
        local ok, e = pcall(parallel, {
            function() sdk.a.bad() end,
            function() sdk.a.good() sdk.a.good() done += 1 end,
        })
        return { ok, e, done }";
    assert_eq!(chunk_with(source, channel.clone()).unwrap(), json!([false, "tools/x.lua:3: went wrong", 1]));
    let failure = chunk_with("parallel({ function() sdk.a.bad() end })", channel).unwrap_err();
    assert_eq!(failure.code.as_deref(), Some("tool_error"));
}

#[test]
fn a_task_may_yield_and_use_coroutines_and_callbacks() {
    let source = "return parallel({
        function() coroutine.yield() coroutine.yield(5) return 1 end,
        function() local co = coroutine.wrap(function() coroutine.yield(sdk.a.b({ n = 2 })) end) return co() end,
        function() return (string.gsub('x', 'x', function() return sdk.a.b({ n = 'y' }) end)) end,
    })";
    assert_eq!(chunk_with(source, echo(true)).unwrap(), json!([1, 2, "y"]));
}

#[test]
fn values_that_are_not_functions_are_refused() {
    assert_eq!(
        message("\nparallel({ 1 })"),
        "tools/x.lua:2: parallel: expected functions or promises, got number at 1 (write function() return ... end around each call)"
    );
    assert_eq!(message("\nparallel()"), "tools/x.lua:2: parallel: expected a list of functions, got nil");
    assert_eq!(
        chunk("return parallel({ function() return coroutine.isyieldable() end })").unwrap(),
        json!([true])
    );
}

#[test]
fn provider_globals_return_promises() {
    let channel = FakeChannel::new(|_, arguments, _| match arguments["name"].as_str() {
        Some("files.text") => value(json!("{\"a\":1}")),
        Some("files.plain") => value(json!("just text")),
        Some("files.bad") => failed("tool_error", "went wrong"),
        _ => value(arguments["arguments"].clone()),
    });
    let mut job = job(ScriptEntry::Chunk, &[]);
    job.apis.push("sdk.files".to_owned());
    let run = |source: &str| run_in(&mut Vm::new().unwrap(), &job, source, channel.clone());
    let source = "local a, b = files.text(), files.echo({ n = 2 })
        local all = parallel({ files.plain(), function() return 3 end })
        return { b:await(), a:await().a, a:await().a, all }";
    assert_eq!(run(source).unwrap(), json!([{ "n": 2 }, 1, 1, ["just text", 3]]));
    assert_eq!(run("\nfiles.bad():await()").unwrap_err().message, "tools/x.lua:2: went wrong");
    assert_eq!(run("parallel({ files.bad() })").unwrap_err().code.as_deref(), Some("tool_error"));
    assert!(run("return files == sdk.files").is_ok());
    assert_eq!(channel.open_max(), 3);
}

/// Runs a script that has the provider `shop` as a global, with one response for each of its functions.
fn with_shop(source: &str) -> Result<serde_json::Value, String> {
    run_with_shop(source).map_err(|failure| failure.message)
}

fn code_with_shop(source: &str) -> Option<String> {
    run_with_shop(source).unwrap_err().code
}

fn run_with_shop(source: &str) -> Result<serde_json::Value, JobFailure> {
    let channel = FakeChannel::new(|_, arguments, _| match arguments["name"].as_str() {
        Some("shop.list") => value(json!([{ "id": 1 }, { "id": 2 }])),
        Some("shop.text") => value(json!("[1,2]")),
        Some("shop.name") => value(json!("Ada")),
        Some("shop.count") => value(json!(2)),
        Some("shop.nothing") => value(json!(null)),
        Some("shop.bad") => failed("tool_error", "went wrong"),
        _ => value(arguments["arguments"].clone()),
    });
    let mut job = job(ScriptEntry::Chunk, &[]);
    job.apis.push("sdk.shop".to_owned());
    run_in(&mut Vm::new().unwrap(), &job, source, channel)
}

#[test]
fn a_promise_is_used_like_its_value() {
    let uses = [
        ("return shop.list()", json!([{ "id": 1 }, { "id": 2 }])),
        (
            "return { orders = shop.list(), n = shop.count() }",
            json!({"orders": [{"id": 1}, {"id": 2}], "n": 2}),
        ),
        ("result(shop.count())", json!(2)),
        ("return #shop.list()", json!(2)),
        ("return shop.list()[2].id", json!(2)),
        ("local n = 0 for _, order in ipairs(shop.list()) do n += order.id end return n", json!(3)),
        ("local n = 0 for _, order in pairs(shop.list()) do n += order.id end return n", json!(3)),
        ("local n = 0 for _, order in shop.list() do n += order.id end return n", json!(3)),
        ("local n = 0 for _, i in shop.text() do n += i end return n", json!(3)),
        ("local _, first = next(shop.list()) return first.id", json!(1)),
        ("return 'Hello ' .. shop.name() .. '!'", json!("Hello Ada!")),
        ("return shop.name():upper()", json!("ADA")),
        ("return `{shop.name()} has {shop.count()}`", json!("Ada has 2")),
        ("return string.format('%s', shop.name())", json!("Ada")),
        ("return shop.count() + 1", json!(3)),
        ("return 2 ^ shop.count() - -shop.count()", json!(6)),
        ("return shop.count() <= shop.count() and not (shop.count() < shop.count())", json!(true)),
        ("return shop.count() == shop.count()", json!(true)),
        ("return json.encode(shop.list())", json!("[{\"id\":1},{\"id\":2}]")),
        ("return sdk.shop.echo({ n = shop.count() })", json!({"n": 2})),
        ("local list = shop.list() list[1].id = 5 return list", json!([{ "id": 5 }, { "id": 2 }])),
        ("return shop.nothing()", json!(null)),
        ("local a, b = shop.count(), shop.count() return a + b", json!(4)),
        ("shop.echo({ n = 1 }) return 'created'", json!("created")),
    ];
    for (source, expected) in uses {
        assert_eq!(with_shop(source), Ok(expected.clone()), "{source}");
        for words in ["-- await parallel", "local awaited = 'await'", "local other = shop.count():await()"] {
            let source = format!("{words}\n{source}");
            assert_eq!(with_shop(&source), Ok(expected.clone()), "{source}");
        }
    }
    assert_eq!(with_shop("return parallel({ function() return shop.list() end })[1][1].id"), Ok(json!(1)));
    assert_eq!(
        with_shop(
            "local p = shop.count() return parallel({ function() return p:await() end, function() return p + 1 end })"
        ),
        Ok(json!([2, 3]))
    );
}

#[test]
fn no_error_of_a_call_is_lost() {
    for source in [
        "shop.bad() return 'created'",
        "return shop.bad()",
        "return { 1, { shop.bad() } }",
        "local list = shop.bad() return #list",
        "local list = shop.bad() for _ in list do end return 1",
        "result(1) shop.bad()",
    ] {
        for source in [source.to_owned(), format!("local other = shop.count():await()\n{source}")] {
            let error = with_shop(&source).unwrap_err();
            assert!(error.ends_with("went wrong"), "{source}: {error}");
            assert_eq!(code_with_shop(&source).as_deref(), Some("tool_error"), "{source}");
        }
    }
    assert_eq!(
        with_shop("local ok, e = pcall(function() return shop.bad():await() end) return { ok, e }"),
        Ok(json!([false, "tools/x.lua:1: went wrong"]))
    );
}
