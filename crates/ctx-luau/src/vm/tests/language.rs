//! The language: what plain Lua allows, and what the replaced functions must still do.

use super::{FakeChannel, chunk, job, message, run_in};
use crate::engine::protocol::ScriptEntry;
use crate::vm::Vm;
use serde_json::json;

#[test]
fn plain_lua_scripts_find_what_they_use() {
    let answer = chunk(
        "return { string.format('%s %s %5s|%d%%', nil, true, 'x', 3), string.format('%q', 'a'), ('ab'):rep(3, '-'),
        math.type(1), math.type(1.5), math.type('1') == nil, math.tointeger(3), math.tointeger(3.5) == nil,
        math.maxinteger > 2 ^ 52, select('#', table.unpack({ 1, 2 })), select('#', unpack({ 1 })), table.pack(1, 2).n,
        7 // 2, #utf8.char(228), os.time() > 0, type(os.date()), os.difftime(2, 1), os.clock() < 60 }",
    );
    assert_eq!(
        answer.unwrap(),
        json!([
            "nil true     x|3%",
            "\"a\"",
            "ab-ab-ab",
            "integer",
            "float",
            true,
            3,
            true,
            true,
            2,
            1,
            2,
            3,
            2,
            true,
            "string",
            1,
            true
        ])
    );
    assert_eq!(chunk("return string.format('%s', { 1 })").unwrap(), json!("table: 1"));
    assert_eq!(chunk("return string.format('%s', json.null)").unwrap(), json!("null"));
}

#[test]
fn a_shebang_and_a_byte_order_mark_are_no_errors() {
    assert_eq!(chunk("#!/usr/bin/lua\nreturn 1").unwrap(), json!(1));
    assert_eq!(chunk("\u{feff}return 1").unwrap(), json!(1));
    assert!(message("#!/usr/bin/lua\nerror('x')").starts_with("tools/x.lua:2: "));
}

#[test]
fn string_find_behaves_as_in_luau() {
    // The longer text is searched with the linear algorithm.
    for length in [3, 3000] {
        let setup = format!(
            "local h = string.rep('a', {length}) .. 'b' .. string.rep('a', {length}) local n = string.rep('a', {length} - 1) .. 'b'"
        );
        let answer = chunk(&format!(
            "{setup} return {{ {{ h:find(n, 1, true) }}, {{ h:find(n) }}, {{ h:find(n, 3) }}, {{ h:find(n, -1, true) }},
            {{ h:find(n, #h + 5, true) }}, {{ h:find('') }}, {{ h:find('', #h + 1, true) }} }}"
        ));
        assert_eq!(
            answer.unwrap(),
            json!([[2, length + 1], [2, length + 1], {}, {}, {}, [1, 0], [2 * length + 2, 2 * length + 1]])
        );
        let answer = chunk(&format!("{setup} local p = h:split(n) return {{ #p, p[1], #p[2] }}"));
        assert_eq!(answer.unwrap(), json!([2, "a", length]));
    }
    assert_eq!(chunk("return ('a,b,'):split(',')").unwrap(), json!(["a", "b", ""]));
    assert_eq!(chunk("return ('a,b'):split()").unwrap(), json!(["a", "b"]));
    assert_eq!(chunk("return { ('ab'):find('(a)(b)') }").unwrap(), json!([1, 2, "a", "b"]));
}

#[test]
fn string_rep_behaves_as_in_luau() {
    let answer = chunk(
        "return { ('x'):rep(0), ('x'):rep(-1), ('x'):rep(1, ','), #('x'):rep(5000), #('x'):rep(5000, ', '), string.rep(5, 2) }",
    );
    assert_eq!(answer.unwrap(), json!(["", "", "x", 5000, 14998, "55"]));
}

#[test]
fn table_move_and_concat_behave_as_in_luau() {
    let answer = chunk(
        "return { table.move({ 1, 2, 3 }, 2, 3, 1), table.move({ 1 }, 1, 1, 2, { 9 }), table.concat({ 1, 2 }, ',') }",
    );
    assert_eq!(answer.unwrap(), json!([[2, 3, 3], [9, 1], "1,2"]));
    assert_eq!(
        message("\ntable.move({}, 1, 1e9, 2)"),
        "tools/x.lua:2: table.move: more than 4000000 elements"
    );
}

#[test]
fn globals_of_a_script_are_its_own_and_reachable_by_name() {
    assert_eq!(
        chunk("x = 1 _G.y = 2 return { _G.x, y, rawget(_G, 'string') == nil }").unwrap(),
        json!([1, 2, true])
    );
    assert_eq!(
        chunk("string = { find = function() return 'own' end } return string.find()").unwrap(),
        json!("own")
    );
}

#[test]
fn a_global_that_is_replaced_by_name_is_replaced() {
    let source = "_G.print = function() return 'own' end _G.math = { floor = function() return 'own' end }
        return { print(), math.floor(1.5) }";
    assert_eq!(chunk(source).unwrap(), json!(["own", "own"]));
}

#[test]
fn sorting_is_the_same_for_long_lists() {
    let source = "local t = {} for i = 1, 60000 do t[i] = (i * 7919) % 60000 end table.sort(t)
        for i = 2, #t do if t[i - 1] > t[i] then return i end end return 'sorted'";
    assert_eq!(chunk(source).unwrap(), json!("sorted"));
    assert_eq!(message("\ntable.sort({ 1, 'a' })"), "tools/x.lua:2: attempt to compare string < number");
    assert_eq!(message("table.sort({ 1, 2 }, function()\nerror('no') end)"), "tools/x.lua:2: no");
}

#[test]
fn a_large_integer_keeps_its_digits_in_text_and_as_a_key() {
    let source = "local t = json.decode('{\"id\":9007199254740993,\"same\":9007199254740993}')
        local seen = { [t.id] = 'seen' }
        return { '/items/' .. t.id .. '/x', t.id .. '', t.id == t.same, seen[t.same], t.id, math.type(t.id) }";
    let id = 9_007_199_254_740_993_i64;
    assert_eq!(
        chunk(source).unwrap(),
        json!([format!("/items/{id}/x"), id.to_string(), true, "seen", id, "integer"])
    );
    let text = message("local t = json.decode('[9007199254740993]')\nreturn t[1] / 2");
    assert!(
        text.starts_with("tools/x.lua:2: attempt to perform arithmetic (div) on integer and number ("),
        "{text}"
    );
    assert!(text.contains("integer.tonumber(x)"), "{text}");
}

#[test]
fn concatenation_behaves_as_in_luau() {
    let source = "local t = setmetatable({}, { __concat = function(a, b) return type(a) .. type(b) end, __metatable = 1 })
        return { 'a' .. t, t .. 'a', 'a' .. 1 }";
    assert_eq!(chunk(source).unwrap(), json!(["stringtable", "tablestring", "a1"]));
    assert_eq!(message("\nreturn 'a' .. nil"), "tools/x.lua:2: attempt to concatenate string with nil");
    assert_eq!(message("\nreturn {} .. 'a'"), "tools/x.lua:2: attempt to concatenate table with string");
}

#[test]
fn no_address_is_shown() {
    let source = "local t, u, f, co = {}, {}, function() end, coroutine.create(function() end)
        local shown = { tostring(t), tostring(u), tostring(t), tostring(f), tostring(co), tostring(print), tostring(buffer.create(1)),
            string.format('%s %*', t, u), `{t} {f}`, ('%*'):format(co), tostring(context), tostring(sdk.a) }
        local ok, why = pcall(error, t)
        table.insert(shown, tostring(why))
        return shown";
    let shown = json!([
        "table: 1",
        "table: 2",
        "table: 1",
        "function: 3",
        "thread: 4",
        "function: 5",
        "buffer: 6",
        "table: 1 table: 2",
        "table: 1 function: 3",
        "thread: 4",
        "table: 7",
        "table: 8",
        "table: 1",
    ]);
    assert_eq!(chunk(source).unwrap(), shown);
    // The numbering restarts in every run.
    let (mut vm, job) = (Vm::new().unwrap(), job(ScriptEntry::Chunk, &[]));
    for _ in 0..2 {
        let answer = run_in(&mut vm, &job, "return tostring({})", FakeChannel::rejecting());
        assert_eq!(answer.unwrap(), json!("table: 1"));
    }
    let channel = FakeChannel::rejecting();
    run_in(&mut vm, &job, "print(print, coroutine.create(print), { print }) return 1", channel.clone())
        .unwrap();
    assert_eq!(channel.log_lines()[0].1, "function: 1\tthread: 2\ttable: 3");
    assert_eq!(message("error({})"), "table: 1");
    assert_eq!(message("\nerror(print)"), "function: 1");
}

#[test]
fn tostring_uses_the_metamethod() {
    let source = "local t = setmetatable({}, { __tostring = function() return 'own' end, __metatable = 'x' })
        return { tostring(t), tostring(nil), tostring(true), tostring(1.5), tostring('a'), tostring(json.null), `{t}`,
            string.format('%s|%*', t, t), tostring(vector.create(1, 2, 3)) }";
    let shown = json!(["own", "nil", "true", "1.5", "a", "null", "own", "own|own", "1, 2, 3"]);
    assert_eq!(chunk(source).unwrap(), shown);
    assert_eq!(message("\ntostring()"), "tools/x.lua:2: missing argument #1");
}

#[test]
fn context_cannot_be_changed() {
    let change = |body: &str| {
        let source = format!("tool = {{}}\nfunction tool.execute(params, context)\n{body}\nend");
        let mut job = job(ScriptEntry::Tool, &[json!({})]);
        let nested = json!({ "list": [1], "deep": { "a": { "b": 1 } } }).to_string();
        job.config = Some(serde_json::value::RawValue::from_string(nested).unwrap());
        run_in(&mut Vm::new().unwrap(), &job, &source, FakeChannel::rejecting())
    };
    for body in [
        "context.own = 1",
        "context.search = nil",
        "context.config = {}",
        "context.config.own = 1",
        "context.config.deep.a.b = 2",
        "context.config.list[2] = 2",
    ] {
        let message = change(body).unwrap_err().message;
        let expected = "tools/x.lua:3: attempt to modify a readonly table (`context` cannot be changed; ";
        assert!(message.starts_with(expected), "{body}: {message}");
    }
    let copied =
        "local mine = table.clone(context.config.list) table.insert(mine, 2) params.own = 1 return mine";
    assert_eq!(change(copied).unwrap(), json!([1, 2]));
}
