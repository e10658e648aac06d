//! Tests of the check: it finds problems, and none in sound scripts.

use super::SignatureCache;
use ctx_core::{Catalog, Identifier, Provider, Tool, ToolError};
use ctx_testkit::{echo, provider};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// An issue tracker, a shop, and a tool of the user's own.
fn catalog() -> Arc<Catalog> {
    let issue = json!({
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "priority": {"type": "integer"},
            "state": {"enum": ["open", "closed"]},
            "labels": {"type": "array", "items": {"type": "string"}},
            "author": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
        "required": ["title"],
        "additionalProperties": false,
    });
    let pet = json!({"type": "object", "properties": {"id": {"type": "number"}}, "required": ["id"]});
    let anything = json!({"type": "object"});
    let github = [
        echo("create_issue").schema(issue),
        echo("get-issue").schema(pet.clone()),
        echo("list_issues").schema(anything.clone()),
    ];
    let named = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let update = json!({
        "type": "object",
        "properties": {"id": {"type": "integer"}, "body": named},
        "required": ["id", "body"],
        "additionalProperties": false,
    });
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let add_tags = json!({
        "type": "object", "properties": {"body": texts}, "required": ["body"], "additionalProperties": false,
    });
    let shop = [
        echo("get_pet").schema(pet),
        echo("ping").schema(anything),
        echo("update_pet").schema(update).body("body", true),
        echo("add_tags").schema(add_tags).body("body", false),
    ];
    Catalog::builder()
        .provider(provider("github", github))
        .provider(provider("pet_store", shop))
        .provider(provider("tools", [echo("echo")]))
        .build()
}

fn check_script(script: &str, catalog: &Catalog) -> Result<(), ToolError> {
    super::check_script(script, catalog, &SignatureCache::default())
}

fn problems(script: &str) -> Vec<String> {
    match check_script(script, &catalog()) {
        Ok(()) => Vec::new(),
        Err(error) => error.message().lines().skip(1).map(|line| line.trim().to_owned()).collect(),
    }
}

const CREATE: &str = "sdk.github.create_issue(params: { title: string, priority: number?, state: (\"open\" | \"closed\")?, \
     labels: {string}?, author: { name: string }? }): any";

#[test]
fn unknown_names_are_reported_with_the_nearest_name() {
    for (script, problem) in [
        (
            "return sdk.github.create_isue{ title = 'x' }",
            "1:8: sdk.github.create_isue: github has no function `create_isue` (did you mean `create_issue`?)",
        ),
        (
            "local a = 1\n  sdk.gihub.create_issue({ title = 'x' })",
            "2:3: sdk.gihub.create_issue: there is no provider `gihub` (did you mean `github`?)",
        ),
        (
            "return sdk['pet_store']['get_pat']({ id = 1 })",
            "1:8: sdk.pet_store.get_pat: pet_store has no function `get_pat` (did you mean `get_pet`?)",
        ),
        (
            "return pet_store.pink():await()",
            "1:8: sdk.pet_store.pink: pet_store has no function `pink` (did you mean `ping`?)",
        ),
        (
            "for x in paginate(sdk.github.list_isues, {}) do print(x) end",
            "1:19: sdk.github.list_isues: github has no function `list_isues` (did you mean `list_issues`?)",
        ),
        (
            "return paginate(sdk.zebra.x):all(3)",
            "1:17: sdk.zebra.x: there is no provider `zebra`; there are `github`, `pet_store`, `tools`",
        ),
        (
            "return `{sdk.zebra.x()}`",
            "1:10: sdk.zebra.x: there is no provider `zebra`; there are `github`, `pet_store`, `tools`",
        ),
        (
            "return { é = sdk.zebra.x() }",
            "1:14: sdk.zebra.x: there is no provider `zebra`; there are `github`, `pet_store`, `tools`",
        ),
    ] {
        assert_eq!(problems(script), [problem], "{script}");
    }
}

#[test]
fn invalid_arguments_are_reported_with_the_signature() {
    for (script, problem) in [
        ("sdk.github.create_issue{}", "missing required parameter: title"),
        ("sdk.github.create_issue()", "missing required parameter: title"),
        ("sdk.github.create_issue{ title = 7 }", "`title` must be string"),
        (
            "sdk.github.create_issue{ title = 'x', state = 'opened' }",
            "`state` must be (\"open\" | \"closed\")",
        ),
        ("sdk.github.create_issue{ title = 'x', titel = 'y' }", "`titel` is unknown (did you mean `title`?)"),
        ("sdk.github.create_issue{ title = 'x', labels = { 'a', 2 } }", "`labels[2]` must be string"),
        ("sdk.github.create_issue({ title = 'x', author = {} })", "missing required parameter: author.name"),
        ("github.create_issue({ ['title'] = true }):await()", "`title` must be string"),
        ("paginate(sdk.github.create_issue, { title = 7 })", "`title` must be string"),
        ("paginate(sdk.github.create_issue)", "missing required parameter: title"),
    ] {
        let found = problems(script);
        assert_eq!(found.len(), 2, "{script}: {found:?}");
        assert!(found[0].ends_with(problem), "{script}: {found:?}");
        assert_eq!(found[1], CREATE);
    }
}

#[test]
fn a_body_is_checked_however_it_is_passed() {
    for (script, problem) in [
        ("sdk.pet_store.update_pet{ id = 1 }", "missing required parameter: name"),
        ("sdk.pet_store.update_pet{ id = 1, name = 7 }", "`name` must be string"),
        ("sdk.pet_store.update_pet{ id = 1, body = { name = 7 } }", "`body.name` must be string"),
        ("sdk.pet_store.update_pet({ id = 1 }, { name = 7 })", "`name` must be string"),
        ("sdk.pet_store.update_pet{ name = 'Rex' }", "missing required parameter: id"),
        ("sdk.pet_store.update_pet('Rex', { name = 'Rex' })", "argument 1 must be { id: number }"),
    ] {
        let found = problems(script);
        assert_eq!(found.len(), 2, "{script}: {found:?}");
        assert!(found[0].ends_with(problem), "{script}: {found:?}");
        assert_eq!(found[1], "sdk.pet_store.update_pet(params: { id: number }, body: { name: string }): any");
    }
    let found = problems("sdk.pet_store.add_tags{ 'a', 2 }");
    assert!(found[0].ends_with("`[2]` must be string"), "{found:?}");
    let found = problems("sdk.pet_store.add_tags()");
    assert!(found[0].ends_with("missing required parameter: body"), "{found:?}");
}

#[test]
fn all_problems_are_reported_at_once() {
    let found =
        problems("sdk.github.create_issue{ state = 1 }\nsdk.nope.x()\nsdk.pet_store.get_pet{ id = '1' }");
    assert_eq!(found.len(), 6, "{found:?}");
    let long = format!("sdk.{}.x() sdk.github.{}()", "n".repeat(100_000), "m".repeat(100_000));
    assert!(problems(&long).iter().all(|problem| problem.len() < 600), "names are cut");
    let many = "sdk.nope.x()\n".repeat(1_000);
    assert_eq!(problems(&many).len(), super::PROBLEMS_MAX);
}

/// Sound scripts, one a paragraph.
const SOUND: &str = r#"
return sdk.github.create_issue{ title = "x" }

return sdk.github.create_issue({ title = "x", priority = 2, state = "open", labels = { "a", "b" } })

return sdk.github.create_issue{ title = title_of(3), priority = n, state = s, labels = labels, author = who }

return sdk.github.create_issue{ title = "a" .. "b", priority = -1, author = { name = `n {1 + 1}` } }

return sdk.github["get-issue"]{ id = 1 }

return sdk.github.get_issue({ id = 1.5 })

return sdk.github["list_issues"]()

return sdk.github.list_issues{ whatever = { 1, 2 }, [1] = 2 }

local arguments = { title = "x" } arguments.state = "open" return sdk.github.create_issue(arguments)

return sdk.github.create_issue(make())

local fields = {} fields["title"] = "x" return sdk.github.create_issue(table.clone(fields))

return sdk.github.create_issue{ [key] = "x" }

return sdk.github.create_issue{ title = "x", [key] = 1 }

return sdk.github.create_issue{ title = (1 :: any) }

return sdk.github.create_issue{ title = if a then "b" else 3 }

return sdk.github.create_issue({ title = "x" } :: any)

return sdk.github.create_issue{ title = "x", priority = 0x10, --[[ state = "no" ]] state = "closed" }

-- sdk.nope.x()
return 1

return "sdk.nope.x()"

return [[ sdk.nope.x() ]]

return `sdk.nope.x() {1}`

local ok, why = pcall(function() return sdk.nope.x() end) return ok

local ok = pcall(sdk.nope.x, {}) return ok

return xpcall(function() sdk.github.create_issue{} end, print)

if sdk.nope then sdk.nope.x() end return 1

local f = sdk.github.maybe if f then sdk.github.maybe() end return 1

local sdk = { nope = { x = print } } sdk.nope.x() return 1

local function run(sdk) return sdk.nope.x() end return 1

for _, sdk in list do sdk.nope.x() end return 1

sdk = other sdk.nope.x() return 1

local github = { close = print } github.close() return 1

local function f(github) github.nope() end return 1

return github.create_issue{ title = "x" }:await()

local a, b = github.list_issues(), pet_store.ping() return { a:await(), b:await() }

local pets = parallel{ pet_store.get_pet{ id = 1 }, pet_store.get_pet{ id = 2 } } return pets

for issue in paginate(sdk.github.list_issues, { state = "all", per_page = 2 }) do print(issue.id) end return 1

return paginate(sdk.pet_store.get_pet, { id = n }):all(10)

return paginate(sdk.github.create_issue, arguments):all()

return paginate(sdk.github["list_issues"]):all()

return paginate(github.list_issues, { a = function() end }):all()

return paginate(sdk.nope and sdk.nope.x or sdk.github.list_issues)

return paginate(sdk.github.maybe or sdk.github.list_issues, {})

local function paginate(f) return f end return paginate(sdk.nope.x, {})

return other.paginate(sdk.nope.x, {})

return paginate(sdk.github.create_issue{ title = "x" })

return parallel{ function() return sdk.pet_store.get_pet{ id = 1 } end, function() return sdk.pet_store.ping() end }

return string.format("%d", math.floor(1.5))

return tools.nothing

return tools.echo ~= nil

context.nothing()

return context.search("x", { limit = 1 })

return sdk.tools.echo{ a = nil }

return sdk.pet_store.get_pet{ id = tonumber("1") }

local store = sdk.pet_store return store.get_pet{ id = 1 }

return sdk[name][tool]{ a = 1 }

return sdk[name].x()

return other.sdk.nope.x()

return x:sdk().nope.x()

local t = { sdk = { nope = 1 } } return t.sdk.nope

return sdk.github.create_issue{ title = "x", author = { name = "y", age = 3 }, labels = {} }

return sdk.github.create_issue{ title = "\u{48}\x49", labels = { "a"; "b"; } }

return sdk.github.create_issue { title = 'it''s' and "x" }

return sdk.pet_store.get_pet{ id = 1, extra = true }

local result = sdk.github.list_issues{ nested = { a = { b = { c = {} } } } } return result

return sdk.github.create_issue{ title = ... }

while sdk.pet_store.ping() do break end return 1

return #sdk.github.list_issues{} + 1 // 2

local x: { [string]: number } = {} return sdk.pet_store.ping(x)

type T = { sdk: number } return 1

return (sdk.pet_store.ping())

return not sdk.pet_store.ping{}

return sdk.pet_store.update_pet{ id = 1, name = "Rex" }

return sdk.pet_store.update_pet{ id = 1, name = "Rex", other = { 1 } }

return sdk.pet_store.update_pet({ id = 1, body = { name = "Rex" } })

return sdk.pet_store.update_pet({ id = 1 }, { name = "Rex" })

return sdk.pet_store.update_pet({ id = 1 }, pet)

return sdk.pet_store.update_pet({ id = 1, body = pet, name = "Rex" })

return sdk.pet_store.add_tags{ "a", "b" }

return sdk.pet_store.add_tags({ body = { "a" } })

return sdk.pet_store.add_tags({})

return sdk.pet_store.add_tags(tags)
"#;

/// Variables that the scripts use.
const FREE: &str =
    "x, tool, name, arguments, other, list, a, key, make, title_of, n, s, labels, who, pet, tags";

/// The code of a script by itself, in a block, in a function and in a condition.
fn wrapped(script: &str) -> Vec<String> {
    let script = &format!("local {FREE} = ...\n{script}");
    let without_return = script.replace("return ", "local _ = ");
    vec![
        script.to_owned(),
        format!("local before = sdk.pet_store.ping()\ndo\n{script}\nend"),
        format!("local function later(...)\n{script}\nend\nreturn later()"),
        format!("--!strict\nif true then\n{without_return}\nend"),
    ]
}

#[test]
fn names_that_are_bound_in_any_way_are_defined() {
    for script in [
        "a, b = 1, 2 return a + b",
        "a, b, c = 1, 2, 3 return { a, b, c }",
        "local Cart = {} function Cart:total() return self.n end Cart.n = 1 return Cart:total()",
        "local function f(first, ...) return first, select('#', ...) end return (f(1))",
        "for i = 1, 2 do for key, value in { 1 } do print(i, key, value) end end return 1",
        "local function g<T>(list: { T }): { T } return list end return g({ 1 })",
        "local n: number, s: string = 1, 'x' return n .. s",
        "local ok, why = pcall(error, 'x') return { ok = ok, why = why }",
        "counter = 0 local function add() counter += 1 end add() return counter",
        "return (function(x) return x end)(1)",
        "local t = { name = 1, ['other'] = 2, 3 } return t.name + t.other",
    ] {
        assert_eq!(problems(script), [""; 0], "{script}");
    }
    assert_eq!(problems("local a = 1 return a + total"), ["1:24: there is no variable or function `total`"]);
}

#[test]
fn a_call_in_a_condition_is_accepted_because_it_returns_its_value() {
    for script in [
        "if pet_store.ping() then return 1 end",
        "return pet_store.ping() == 'x'",
        "while not pet_store.ping{} do break end",
        "local x = pet_store.ping() or 1 return x",
        "local p = pet_store.ping() if p == 'x' then return p:await() end return 2",
    ] {
        for words in ["-- a promise", "local y = pet_store.ping():await()", "local y = parallel{}"] {
            assert_eq!(problems(&format!("{words}\n{script}")), [""; 0], "{words} {script}");
        }
    }
}

#[test]
fn idioms_of_other_languages_are_answered_with_the_luau_form() {
    for (script, hint) in [
        ("local o = {} return { id: o.id }", "1:23: a table is written { name = value }"),
        ("local o = {} return { a = 1, id: o.id, b: 2 }", "1:30: a table is written { name = value }"),
        ("return { id: tostring(1) }", "1:10: a table is written { name = value }"),
        ("return { \"id\": 1 }", "1:10: a table is written { name = value }"),
        ("return { { status: s } }", "1:12: a table is written { name = value }"),
        ("local x = 1 return `${x}`", "1:22: in backticks, a value is written `{value}`"),
        ("if (done()) {\n  return 1\n}", "1:1: blocks have no braces"),
        ("while (true) { x() }", "1:1: blocks have no braces"),
        ("for (const o of orders) { x() }", "1:1: blocks have no braces"),
        ("function f(x) { return x }", "1:1: blocks have no braces"),
        ("local own = { 1, 2 } return own.length", "1:29: #list is the length"),
        ("local own = {} table.insert(own, 1) return own[0]", "1:44: list indexes start at 1"),
        ("local own = {} own[#own + 1] = 2 return own.length + 1", "1:41: #list is the length"),
        ("if x:\n  print(1)\nend", "1:5: blocks begin with `then` or `do`"),
        ("for o in { 1 }: -- all\n  print(o)\nend", "1:15: blocks begin with `then` or `do`"),
        ("if x then\n  f()\nelse:\n  f()\nend", "3:5: blocks begin with"),
        ("return orders.filter(o => o.total > 10)", "1:24: write `function(x) return x end`"),
        ("pcall(function() return { status: 'open' } end)", "1:27: a table is written"),
    ] {
        let found = problems(script);
        assert!(found.iter().any(|problem| problem.starts_with(hint)), "{script}: {found:?}");
    }
    for script in [
        "local list = {} return { list:first(), list:last{} }",
        "local list = {} print(list, list:first())",
        "local list = {} function list:first() return 1 end return { a = list:first() }",
        "local price = 1 return `\\${price}, {price} and $`",
        "local own = { length = 1 } return own.length",
        "local own = {} own.length = 1 table.insert(own, 2) return own.length",
        "local own = {} own[0] = 1 table.insert(own, 2) return own[0]",
        "local counts, word = {}, 'length' counts[word] = 1 return counts.length",
        "local function f(own) return own.length, own[0] end return (f({}))",
        "local own = { 1 } setmetatable(own, { __index = { length = 1 } }) return own.length",
        "local own = { 1 } do local own = { length = 1 } print(own.length) end return 1",
        "local function f() return print end if (f()) { 1 } then return 1 end return 2",
        "local f = print if (f)(1) then return 1 end return 2",
        "local t = {} local x = t:\n  first() return x",
    ] {
        assert_eq!(problems(script), [""; 0], "{script}");
    }
}

#[test]
fn an_undefined_name_is_reported_whatever_else_the_script_declares() {
    for (script, expected) in [
        (
            "local total = 1\nreturn totl",
            "there is no variable or function `totl` (did you mean `total` of line 1?)",
        ),
        (
            "local orders = {}\nlocal ordens = {}\nreturn ordes",
            "there is no variable or function `ordes` (did you mean `ordens` of line 2 or `orders` of line 1?)",
        ),
        (
            "type T = { id: number }\nlocal x: T = { id = 1 }\nreturn y",
            "there is no variable or function `y`",
        ),
        ("_G.limit = 3\nreturn limit + count", "there is no variable or function `count`"),
        ("return { earned = earned }", "there is no variable or function `earned`"),
        (
            "return { run = function() return 1 end, earned = earned }",
            "there is no variable or function `earned`",
        ),
        ("print(amount, 1) return 1", "there is no variable or function `amount`"),
        ("return 1 < amount", "there is no variable or function `amount`"),
    ] {
        let found = problems(script);
        assert_eq!(found.len(), 1, "{script}: {found:?}");
        assert!(found[0].ends_with(expected), "{script}: {found:?}");
    }
    for script in [
        "_G.limit = 3 return limit",
        "_G['limit'] = 3 return limit",
        "for _, name in { 'a' } do _G[name] = 1 end return a",
        "rawset(_G, 'limit', 3) return limit",
        "type Order = { id: number, status: \"open\" | \"paid\", of: Customer? } type Customer = any return 1",
        "export type Pair<A, B = string> = { first: A, second: B } return 1",
        "type F = (number, string?) -> ...any type G = typeof(print) return 1",
        "local function f(list: { id: number }, ...: any): { total: number } return { total = #list } end return f({ id = 1 })",
        "local function g<T, U...>(x: T, f: (T) -> (U...)): T return x end return g(1, print)",
        "local x: { status: \"open\" }, y: Map<string, { number }> = {}, {} return { x, y } :: any",
        "for i: number, v: string in { 'a' } do print(i :: any, v) end return 1",
        "local t, i = {}, 1 i, t.x = 2, 3 return i",
        "const limit = 3 return limit",
        "local f = { run = function() a, b = 1, 2 end } f.run() return a + b",
    ] {
        assert_eq!(problems(script), [""; 0], "{script}");
    }
}

#[test]
fn sound_scripts_pass() {
    let scripts: Vec<&str> = SOUND.split("\n\n").map(str::trim).filter(|script| !script.is_empty()).collect();
    let all: Vec<String> = scripts.iter().flat_map(|script| wrapped(script)).collect();
    assert!(all.len() > 200, "{}", all.len());
    for script in all {
        assert_eq!(problems(&script), [""; 0], "{script}");
    }
}

#[test]
fn unparsable_scripts_are_left_to_the_engine() {
    for script in ["sdk.nope.x('", "sdk.nope.x([[", "sdk.nope.", "sdk", "sdk.nope.x"] {
        assert_eq!(problems(script), [""; 0], "{script}");
    }
    // Deep nesting is read in linear time, without recursion.
    let deep = format!("sdk.pet_store.ping{{ a = {}{} }}", "{".repeat(100_000), "}".repeat(100_000));
    assert_eq!(problems(&deep), [""; 0]);
}

/// Fails if the work does not end within a minute; a tighter limit would depend on the machine.
fn assert_ends(name: &str, work: impl FnOnce() + Send + 'static) {
    let (ended, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        ended.send(()).unwrap();
    });
    wait.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{name} does not end"));
}

#[test]
fn scripts_made_to_be_expensive_are_checked_in_linear_time() {
    let many = |piece: &str| piece.repeat((256 << 10) / piece.len());
    let nested = |open: &str, close: &str| {
        let depth = (256 << 10) / (open.len() + close.len());
        format!("{}{}", open.repeat(depth), close.repeat(depth))
    };
    for (name, script) in [
        ("calls that never close", many("a.b(")),
        ("calls in calls", nested("sdk.a.b(", ")")),
        ("calls in tables", nested("sdk.a.b{x=", "}")),
        ("tables in tables", nested("sdk.a.b{{", "}}")),
        ("functions in functions", many("function f(")),
        ("parameters that are functions", nested("function(", ")")),
        ("locals without values", many("local ")),
        ("blocks in blocks", many("if a then do repeat function() ")),
        ("ends of nothing", many("end until else then ")),
        ("functions without names", many("function ")),
        ("methods without an end", many("a:")),
        ("colons at ends of lines", many("if a:\n")),
        ("types of types", many("local a: b | c & ")),
        ("casts of casts", many("a::b<")),
        ("lists of variables", many("a, ")),
        ("tables that are lists", many("local a = { 1 } a[0] ")),
        ("loops without ends", many("for ")),
        ("pcalls in pcalls", nested("pcall(", ")")),
        ("paginate in paginate", nested("paginate(a.b,", ")")),
        ("strings in strings", nested("`{", "}`")),
        ("brackets of strings", many("[=")),
        ("looked at and called", many("sdk.github.nope sdk.github.nope() ")),
        ("the same call", many("sdk.github.create_issue{title='x',labels={'a'}} ")),
        (
            "unknown fields",
            format!(
                "sdk.github.create_issue{{{}}}",
                (0..20_000).map(|n| format!("f{n}=1,")).collect::<String>()
            ),
        ),
        ("a name as long as the script", format!("sdk.github.{}()", "create_issue".repeat(20_000))),
        ("text beyond what is checked", many("a.b(").repeat(16)),
    ] {
        let catalog = catalog();
        assert_ends(name, move || {
            if let Err(error) = check_script(&script, &catalog) {
                assert!(error.message().len() < 20_000, "{}", error.message().len());
            }
        });
    }
}

/// Random concatenations of script fragments.
fn random_fragments() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "sdk",
            ".",
            "github",
            "create_issue",
            "pet_store",
            "ping",
            "(",
            ")",
            "{",
            "}",
            "[",
            "]",
            "'x'",
            "\"",
            "`",
            "=",
            ",",
            ";",
            " ",
            "\n",
            "--",
            "--[[",
            "]]",
            "[==[",
            "local ",
            "function ",
            "for ",
            " in ",
            "pcall",
            "paginate",
            "title",
            "0x1F",
            "1e-",
            "..",
            "::",
            "->",
            "\\",
            "nil",
            "true",
            "-",
            ":",
            "é",
            "\u{feff}",
            "\0",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..80).prop_map(|pieces| pieces.concat())
}

/// A sound script with parts removed, duplicated or replaced.
fn mutated_script() -> impl Strategy<Value = String> {
    let change =
        (any::<prop::sample::Index>(), 0..12_usize, prop_oneof![Just(String::new()), random_fragments()]);
    (any::<prop::sample::Index>(), prop::collection::vec(change, 1..6)).prop_map(|(which, changes)| {
        let scripts: Vec<&str> = SOUND.split("\n\n").collect();
        let mut script = which.get(&scripts).to_string();
        for (at, length, put) in changes {
            let start = script.floor_char_boundary(at.index(script.len() + 1));
            let end = script.floor_char_boundary((start + length).min(script.len()));
            script.replace_range(start..end, &put);
        }
        script
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_checked_without_a_panic(script in prop_oneof![".{0,200}", random_fragments(), mutated_script()]) {
        if let Err(error) = check_script(&script, &catalog()) {
            // Every problem is reported at a line of the script.
            let lines = script.lines().count().max(1);
            for problem in error.message().lines().skip(1).filter(|line| !line.starts_with(' ')) {
                let line = problem.split(':').next().and_then(|line| line.parse::<usize>().ok());
                prop_assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "{problem}");
            }
        }
    }
}

struct StillConnecting;

impl Provider for StillConnecting {
    fn name(&self) -> Identifier {
        Identifier::sanitize("slow")
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    fn unknown_reason(&self) -> Option<String> {
        Some("is still connecting".to_owned())
    }
}

#[test]
fn a_provider_whose_functions_are_not_known_yet_is_not_checked() {
    let catalog = Catalog::builder().provider(Arc::new(StillConnecting)).build();
    assert!(check_script("return sdk.slow.anything{ at = 'all' }, slow.other():await()", &catalog).is_ok());
    assert!(check_script("return sdk.slaw.anything{}", &catalog).is_err());
}
