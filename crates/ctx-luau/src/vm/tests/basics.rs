//! Chunks: results, errors and limits.

use super::{FakeChannel, chunk, chunk_with, job, message, run_in};
use crate::engine::protocol::{
    HostRequest, HostResponse, JobFailure, JobFailureKind, JobOutcome, ScriptEntry,
};
use crate::vm::{ChannelClosed, HostChannel, LANGUAGE_GLOBALS, LogLevel, Vm};
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn a_chunk_answers_by_return_or_by_result() {
    assert_eq!(chunk("return 1 + 1").unwrap(), json!(2));
    assert_eq!(chunk("result({ a = 1 })").unwrap(), json!({ "a": 1 }));
    assert_eq!(chunk("return nil").unwrap(), json!(null));
    assert_eq!(chunk("result(nil)").unwrap(), json!(null));
    assert_eq!(
        message("return 1, 2"),
        "tools/x.lua: the script returned 2 values: return one, as in `return { a, b }`; `return (f())` returns the \
         first of several"
    );
}

#[test]
fn a_chunk_answers_exactly_once() {
    let none = chunk("local a = 1").unwrap_err();
    assert_eq!(none.kind, JobFailureKind::Contract);
    assert!(
        none.message.contains("the script ended without a result: call result(value) once or return a value")
    );
    assert_eq!(chunk("result(1) return 2").unwrap_err().kind, JobFailureKind::Contract);
    assert_eq!(
        message("result(1)\nresult(2)"),
        "tools/x.lua:2: result(value) was already called: call it only once"
    );
}

#[test]
fn a_variable_that_hides_result_is_explained() {
    let text = message("local result = { a = 1 }\nresult(result)");
    assert!(text.starts_with("tools/x.lua:2: attempt to call a table value"), "{text}");
    assert!(text.contains("line 1 declares a variable `result`"), "{text}");
    let text = message("local sum, result = 1, 2");
    assert!(text.contains("line 1 declares a variable `result`"), "{text}");
}

#[test]
fn errors_name_the_script_and_its_line_and_nothing_else() {
    assert_eq!(message("local a = nil\nreturn a.b"), "tools/x.lua:2: attempt to index nil with 'b'");
    assert_eq!(message("error('no')"), "tools/x.lua:1: no");
    assert_eq!(message("error('no', 0)"), "no");
    assert_eq!(message("error({ message = 'as a table' })"), "as a table");
    assert_eq!(message("error(setmetatable({}, { __tostring = function() return 'shown' end }))"), "shown");
    assert_eq!(message("\n\njson.decode('{')").split(':').take(2).collect::<Vec<_>>(), ["tools/x.lua", "3"]);
    assert_eq!(message("\nstring.find('a', '[')"), "tools/x.lua:2: malformed pattern (missing ']')");
    assert_eq!(
        message("\nstring.rep(nil, 3)"),
        "tools/x.lua:2: invalid argument #1 to 'rep' (string expected, got nil)"
    );
    assert_eq!(
        message("\nhttp = http or sleep(-1)"),
        "tools/x.lua:2: sleep: expected a number of seconds, 0 or more"
    );
}

#[test]
fn an_error_is_a_string_that_pcall_catches() {
    let source = "local ok, e = pcall(function() json.decode('{') end) return { ok, type(e), e }";
    let caught = chunk(source).unwrap();
    assert_eq!(caught[0], json!(false));
    assert_eq!(caught[1], json!("string"));
    assert!(caught[2].as_str().unwrap().starts_with("tools/x.lua:1: not JSON: "), "{caught}");
}

#[test]
fn sources_that_are_not_text_are_refused() {
    let mut vm = Vm::new().unwrap();
    let big = format!("return 1 --{}", "x".repeat(256 * 1024));
    for source in ["return 1\0", "\u{6}\u{3}abc\0", &big, "return", "x ="] {
        let outcome = run_in(&mut vm, &job(ScriptEntry::Chunk, &[]), source, FakeChannel::rejecting());
        let failure = outcome.unwrap_err();
        let expected = if source == "return" { JobFailureKind::Contract } else { JobFailureKind::Source };
        assert_eq!(failure.kind, expected, "{}", failure.message);
    }
    let outcome = vm.run(&job(ScriptEntry::Chunk, &[]), b"return '\xff'", FakeChannel::rejecting());
    assert!(format!("{outcome:?}").contains("not UTF-8"));
}

#[test]
fn syntax_errors_say_what_to_write() {
    for (source, hint) in [
        ("local x = 1\nlocal y = x & 3\nreturn y", "bit32.band(a, b)"),
        ("return 1 << 3", "bit32.lshift(a, b)"),
        ("return 1 | 3", "bit32.bor(a, b)"),
        ("return 1 ~ 3", "bit32.bxor(a, b)"),
        ("for i = 1, 3 do\ngoto continue\n::continue::\nend", "`continue`"),
        ("local x <const> = 1\nreturn x", "`local name = value`"),
        ("let x = 1\nreturn x", "`local name = value`"),
        ("const all = await sdk.a.b{}\nreturn all", "calls need no `await`"),
        ("local x = await sdk.a.b{}", "calls need no `await`"),
        ("return { status: \"open\" }", "{ name = value }"),
        ("return { [\"!\"]: 1 }", "{ name = value }"),
        ("if 1 != 2 then return 1 end", "`~=`"),
        ("if !done then return 1 end", "`not`"),
        ("return 1 && 2", "write `and`"),
        ("return a || b", "write `or`"),
        ("local f = (x) => x", "function(x)"),
        ("// the first\nreturn 1", "`--`"),
        ("local x = 1\n# the first\nreturn 1", "`--`"),
        ("if a then\nelif b then\nend", "`elseif`"),
        ("def f(x):\n  return x", "function name"),
        ("import json", "no modules"),
        ("try {\n}", "pcall"),
        ("try:\n    x = 1", "pcall"),
        ("local x = a ? 1 : 2", "if condition then a else b"),
        ("if x > 1:\n  y = 2\nend", "write `if condition then"),
        ("for o in { 1 }:\n  y = 2\nend", "write `for _, item in list do"),
        ("while x:\n  y = 2\nend", "write `while condition do"),
        ("if x then\n  y = 1\nelse:\n  y = 2\nend", "without a colon"),
        ("if x then\n  y = 1\nelse if z then\n  y = 2\nend", "write `elseif`"),
        ("local x = [1, 2]", "a list is written { 1, 2 }"),
        ("if a === b then return 1 end", "equal is `==`"),
        ("if a !== b then return 1 end", "not equal is `~=`"),
        ("if a is None then return 1 end", "as in `x == nil`"),
        ("if a is not None then return 1 end", "as in `x ~= nil`"),
    ] {
        let Err(JobFailure { message: text, .. }) = chunk(source) else { panic!("{source}") };
        assert!(text.starts_with("tools/x.lua:") && text.contains(hint), "{text}");
    }
    assert!(message("local x = 1\nreturn x ~= )").starts_with("tools/x.lua:2: "));
}

#[test]
fn absent_functions_name_their_replacement() {
    for (source, hint) in [
        ("local m = require('json')", "there are no modules; json, sdk, log"),
        ("io.open('x')", "scripts have no file access here"),
        ("return os.getenv('X')", "scripts have no environment variables here"),
        ("http.get('https://example.com')", "no network here"),
        ("load('return 1')()", "cannot be run as code"),
    ] {
        let text = message(source);
        assert!(text.starts_with("tools/x.lua:1: ") && text.contains(hint), "{text}");
    }
    // Only `execute` scripts lack files, environment variables and a network.
    let file = "tool = {} function tool.execute() return io.open('x') end";
    let failure = run_in(
        &mut Vm::new().unwrap(),
        &job(ScriptEntry::Tool, &[json!({})]),
        file,
        FakeChannel::rejecting(),
    );
    assert!(failure.unwrap_err().message.contains("fs.read(path) reads a file"));
}

#[test]
fn an_undefined_global_is_an_error_with_a_hint() {
    for (source, expected) in [
        (
            "\nreturn prnt('x')",
            "tools/x.lua:2: there is no variable or function `prnt` (did you mean `print`?)",
        ),
        ("return total", "tools/x.lua:1: there is no variable or function `total`"),
        ("return null", "tools/x.lua:1: there is no `null`: write nil, or json.null where JSON needs a null"),
        ("console.log('x')", "tools/x.lua:1: there is no `console`: print(...) writes to the log"),
        ("return len({})", "tools/x.lua:1: there is no `len`: write #list"),
        (
            "if total == 1 then return 1 end return 2",
            "tools/x.lua:1: there is no variable or function `total`",
        ),
        ("print(total, 1) return 1", "tools/x.lua:1: there is no variable or function `total`"),
        ("return { total = total }", "tools/x.lua:1: there is no variable or function `total`"),
        ("-- _G\nreturn total", "tools/x.lua:2: there is no variable or function `total`"),
        ("_G.limit = 1 return total", "tools/x.lua:1: there is no variable or function `total`"),
        (
            "local total = 1\nreturn totl",
            "tools/x.lua:2: there is no variable or function `totl` (did you mean `total` of line 1?)",
        ),
        (
            "do\n  local total = 1\nend\nreturn total",
            "tools/x.lua:4: there is no variable `total` here: the one of line 2 is local to its block; declare it before \
             the block",
        ),
    ] {
        assert_eq!(message(source), expected);
    }
    for source in [
        "count = (count or 0) + 1 return count == 1",
        "a, b = nil, 1 return a == nil",
        "if false then later = 1 end return later == nil",
        "function f() return g == nil end function g() end return not f()",
        "return _G.anything == nil",
        "local name = 'later' if _G[name] then return 1 end return later == nil",
        "a, _G.b = nil, 1 return a == nil",
    ] {
        assert_eq!(chunk(source).unwrap(), json!(true), "{source}");
    }
    let file = "tool = tool or {} function tool.execute() return unknown == nil end";
    let answer = run_in(
        &mut Vm::new().unwrap(),
        &job(ScriptEntry::Tool, &[json!({})]),
        file,
        FakeChannel::rejecting(),
    );
    assert_eq!(answer.unwrap(), json!(true));
}

#[test]
fn every_global_of_the_language_is_there() {
    for name in LANGUAGE_GLOBALS {
        assert_eq!(chunk(&format!("return _G[\"{name}\"] ~= nil")).unwrap(), json!(true), "{name}");
    }
}

#[test]
fn a_field_of_a_text_is_an_error_that_names_json() {
    assert_eq!(
        message("local text = '{\"PATH\":1}'\nreturn text.PATH"),
        "tools/x.lua:2: a string has no field 'PATH' (if it is JSON text, json.decode(text) parses it)"
    );
    assert!(message("local t = 'x' return t[1]").contains("text:sub(i, i)"));
    assert!(message("local t = 'x' return t.length").contains("(#text is its length)"));
    assert!(message("local t = 'x' return t.trim()").contains("text:match("));
    for walk in [
        "for k in '[1]' do end",
        "for _ in ipairs('[1]') do end",
        "for _ in pairs('{}') do end",
        "next('{}')",
    ] {
        let text = message(walk);
        assert!(
            text.starts_with("tools/x.lua:1: ") && text.contains("json.decode(text) parses it"),
            "{text}"
        );
    }
    assert_eq!(chunk("local price = 3 return { #'[1]', `\\${price}` }").unwrap(), json!([3, "$3"]));
    assert_eq!(chunk("return ('x'):upper() .. tostring(string.dump)").unwrap(), json!("Xnil"));
    assert!(message("return 'a' + 'b'").contains("concatenated with `..`"));
}

#[test]
fn print_and_log_are_captured_and_bounded() {
    let channel = FakeChannel::rejecting();
    let source = "print('a', 1, nil, { x = 1 }) log.warn('b') log.debug('c') log.error('d') return 1";
    chunk_with(source, channel.clone()).unwrap();
    assert_eq!(
        channel.log_lines(),
        [
            (LogLevel::Info, "a\t1\tnil\t{\"x\":1}".to_owned()),
            (LogLevel::Warn, "b".to_owned()),
            (LogLevel::Debug, "c".to_owned()),
            (LogLevel::Error, "d".to_owned()),
        ]
    );
    let channel = FakeChannel::rejecting();
    chunk_with("for i = 1, 10000 do print(string.rep('x', 99)) end return 1", channel.clone()).unwrap();
    let lines = channel.log_lines();
    assert_eq!(lines.len(), 4096 / (99 + 16) + 1);
    assert!(lines.last().unwrap().1.contains("the rest is dropped"));
}

#[test]
fn a_deadline_cannot_be_caught() {
    for source in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "pcall(function() while true do end end) return 1",
        "coroutine.wrap(function() while true do pcall(error) end end)()",
        "xpcall(function() while true do end end, function() while true do end end) return 1",
    ] {
        let mut job = job(ScriptEntry::Chunk, &[]);
        job.bounds.time_ms = 20;
        let mut vm = Vm::new().unwrap();
        let failure = run_in(&mut vm, &job, source, FakeChannel::rejecting()).unwrap_err();
        assert_eq!(failure.kind, JobFailureKind::Time, "{source}: {}", failure.message);
        assert_eq!(failure.message, "tools/x.lua: timed out after 0.02 seconds");
        assert!(vm.needs_replacement());
    }
}

#[test]
fn memory_is_bounded_and_may_be_caught() {
    let bomb = "local t = {} while true do t[#t + 1] = string.rep('x', 100000) .. #t end";
    assert_eq!(chunk(bomb).unwrap_err().kind, JobFailureKind::Memory);
    assert_eq!(chunk("return #string.rep('x', 1e9)").unwrap_err().kind, JobFailureKind::Memory);
    assert_eq!(chunk("return buffer.len(buffer.create(1e9))").unwrap_err().kind, JobFailureKind::Memory);
    assert_eq!(chunk(&format!("pcall(function() {bomb} end) return 1")).unwrap(), json!(1));
}

#[test]
fn a_result_without_a_json_form_names_the_field() {
    let failure = chunk("return { items = { { name = 'a' }, { name = print } } }").unwrap_err();
    assert_eq!(failure.kind, JobFailureKind::Result);
    assert_eq!(failure.message, "tools/x.lua: result.items[2].name: JSON has no functions");
    let failure = chunk("result({ a = 0/0 })").unwrap_err();
    assert_eq!(failure.kind, JobFailureKind::Result);
    assert_eq!(failure.message, "tools/x.lua:1: result.a: JSON has no NaN");
    let failure = chunk("return string.rep('x', 2 ^ 20)").unwrap_err();
    assert_eq!(failure.kind, JobFailureKind::Result);
}

/// A channel whose responses arrive after the deadline of the run.
struct LateChannel;

impl HostChannel for LateChannel {
    fn send_request(&self, _: HostRequest) -> Result<u32, ChannelClosed> {
        Ok(1)
    }

    fn next_response(&self) -> Result<(u32, HostResponse), ChannelClosed> {
        std::thread::sleep(Duration::from_millis(60));
        Ok((1, HostResponse::Value { json: b"1".to_vec(), bytes: Vec::new() }))
    }

    fn log(&self, _: LogLevel, _: &str) -> Result<(), ChannelClosed> {
        Ok(())
    }
}

#[test]
fn waiting_counts_unless_it_is_for_a_person() {
    let mut job = job(ScriptEntry::Chunk, &[]);
    job.bounds.time_ms = 50;
    let outcome = Vm::new().unwrap().run(&job, b"return sdk.a.b()", Rc::new(LateChannel));
    assert!(matches!(outcome, JobOutcome::Failed(failure) if failure.kind == JobFailureKind::Time));
    let outcome = Vm::new().unwrap().run(&job, b"return context.elicit('Sure?')", Rc::new(LateChannel));
    assert!(matches!(outcome, JobOutcome::Value(json) if json == b"1"));
}

/// A closed channel.
struct ClosedChannel;

impl HostChannel for ClosedChannel {
    fn send_request(&self, _: HostRequest) -> Result<u32, ChannelClosed> {
        Ok(1)
    }

    fn next_response(&self) -> Result<(u32, HostResponse), ChannelClosed> {
        Err(ChannelClosed)
    }

    fn log(&self, _: LogLevel, _: &str) -> Result<(), ChannelClosed> {
        Err(ChannelClosed)
    }
}

#[test]
fn a_script_ends_when_the_channel_is_closed() {
    for source in [
        "while true do pcall(sdk.a.b) end",
        "while true do print('x') end",
        "parallel({ function() while true do pcall(sdk.a.b) end end })",
    ] {
        let outcome =
            Vm::new().unwrap().run(&job(ScriptEntry::Chunk, &[]), source.as_bytes(), Rc::new(ClosedChannel));
        assert!(matches!(outcome, JobOutcome::Failed(_)), "{source}");
    }
}
