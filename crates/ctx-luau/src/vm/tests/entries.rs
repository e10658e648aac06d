//! Tools, connectors and agents: which function is called, its arguments, and errors about missing
//! definitions.

use super::{FakeChannel, failed, job, run_in, value};
use crate::engine::protocol::{HostResponse, JobFailure, JobFailureKind, ScriptEntry};
use crate::vm::Vm;
use serde_json::{Value, json};

fn run_entry(entry: ScriptEntry, arguments: &[Value], source: &str) -> Result<Value, JobFailure> {
    let mut vm = Vm::new().unwrap();
    run_in(&mut vm, &job(entry, arguments), source, FakeChannel::rejecting())
}

const TOOL: &str = r#"
tool = {
    name = "greet",
    description = "Greets",
    parameters = { { name = "who", type = "string", required = true, enum = { "a", "b" } } },
}
function tool.execute(params, context)
    return { text = "Hello " .. params.who, url = context.config.url, missing = params.missing }, "ignored"
end
"#;

#[test]
fn a_tool_is_called_with_its_parameters_and_the_context() {
    let answer = run_entry(ScriptEntry::Tool, &[json!({ "who": "you" })], TOOL).unwrap();
    assert_eq!(answer, json!({ "text": "Hello you", "url": "https://example.com" }));
}

#[test]
fn a_tool_that_returns_nothing_gives_null() {
    let source = "tool = {} function tool.execute() end";
    assert_eq!(run_entry(ScriptEntry::Tool, &[json!({})], source).unwrap(), json!(null));
}

#[test]
fn a_tool_without_its_table_or_function_says_so() {
    for (source, expected) in [
        ("return 1", "tools/x.lua: the script must define the global table `tool`"),
        (
            "local tool = {}",
            "tools/x.lua: the script must define the global table `tool`; it must not be `local`",
        ),
        ("tool = 1", "tools/x.lua: `tool` must be a table, it is a integer"),
        ("tool = {}", "tools/x.lua: the script must define the function tool.execute(params, context)"),
    ] {
        let failure = run_entry(ScriptEntry::Tool, &[], source).unwrap_err();
        assert_eq!((failure.kind, failure.message.as_str()), (JobFailureKind::Contract, expected));
    }
}

#[test]
fn a_description_is_the_table_without_its_functions() {
    let described = run_entry(ScriptEntry::Describe, &[], TOOL).unwrap();
    assert_eq!(described["kind"], "tool");
    assert_eq!(described["functions"], json!(["execute"]));
    assert_eq!(described["table"]["name"], "greet");
    assert_eq!(described["table"]["parameters"][0]["enum"], json!(["a", "b"]));
    let described = run_entry(ScriptEntry::Describe, &[], "agent = { name = 'x', tools = {} }").unwrap();
    assert_eq!(described, json!({ "kind": "agent", "table": { "name": "x", "tools": {} }, "functions": [] }));
    assert_eq!(run_entry(ScriptEntry::Describe, &[], "x = 1").unwrap_err().kind, JobFailureKind::Contract);
}

#[test]
fn host_requests_fail_while_a_script_is_described() {
    let failure =
        run_entry(ScriptEntry::Describe, &[], "\nlocal t = env.get('TOKEN')\ntool = {}").unwrap_err();
    assert_eq!(
        failure.message,
        "tools/x.lua:2: not available while the script is loaded: call it inside the script's function"
    );
    let source = "local ok = pcall(http.get, 'https://x') tool = { complete = ok }";
    assert_eq!(run_entry(ScriptEntry::Describe, &[], source).unwrap()["table"], json!({ "complete": false }));
}

#[test]
fn a_connector_returns_items_and_a_cursor() {
    let config = [json!({ "project": "ENG" }), json!({ "page": 2 })];
    for (body, items, cursor) in [
        ("return {}", json!([]), json!(null)),
        ("return nil", json!([]), json!(null)),
        ("", json!([]), json!(null)),
        (
            "return { { source_id = config.project } }, { page = cursor.page + 1 }",
            json!([{ "source_id": "ENG" }]),
            json!({ "page": 3 }),
        ),
        ("return nil, 'end'", json!([]), json!("end")),
        ("return { deleted = { 'a' } }", json!([{ "deleted": ["a"] }]), json!(null)),
        (
            "return { { source_id = 'a', body = '\\255' }, 5 }",
            json!([
                { "source_id": "a", "unfit": "items[1].body: not UTF-8 at byte 1; encode it with base64.encode" },
                5
            ]),
            json!(null),
        ),
    ] {
        let source = format!("connector = {{}} function connector.scan(config, cursor) {body} end");
        let channel = FakeChannel::new(|_, _, _| value(json!(null)));
        let mut vm = Vm::new().unwrap();
        let answer =
            run_in(&mut vm, &job(ScriptEntry::Connector, &config), &source, channel.clone()).unwrap();
        assert_eq!(answer, json!({ "cursor": cursor }), "{body}");
        let emitted: Vec<Value> = channel.requests().into_iter().map(|(_, item, _)| item).collect();
        assert_eq!(json!(emitted), items, "{body}");
    }
    let source = "connector = { scan = function() return 'text' end }";
    assert_eq!(
        run_entry(ScriptEntry::Connector, &config, source).unwrap_err().kind,
        JobFailureKind::Contract
    );
}

#[test]
fn a_connector_streams_items() {
    let channel = FakeChannel::new(|_, _, _| value(json!(null)));
    let source = "connector = { scan = function() for i = 1, 3 do emit({ source_id = 'i' .. i }) end end }";
    let mut vm = Vm::new().unwrap();
    run_in(&mut vm, &job(ScriptEntry::Connector, &[]), source, channel.clone()).unwrap();
    let requests = channel.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!((requests[2].0.as_str(), &requests[2].1), ("emit", &json!({ "source_id": "i3" })));
}

#[test]
fn an_agent_gets_arguments_config_and_context() {
    let source = "agent = { resolve = function(args, config, context)
        return { system = args.topic .. config.tone, url = context.config.url } end }";
    let answer =
        run_entry(ScriptEntry::Agent, &[json!({ "topic": "a" }), json!({ "tone": "b" })], source).unwrap();
    assert_eq!(answer, json!({ "system": "ab", "url": "https://example.com" }));
}

#[test]
fn the_error_of_a_host_request_keeps_its_code() {
    let channel = FakeChannel::new(|_, _, _| failed("not_found", "no document with id: 7"));
    let source = "tool = { execute = function(_, context)\nreturn context.get('7') end }";
    let mut vm = Vm::new().unwrap();
    let failure = run_in(&mut vm, &job(ScriptEntry::Tool, &[]), source, channel.clone()).unwrap_err();
    assert_eq!(failure.message, "tools/x.lua:2: no document with id: 7");
    assert_eq!(failure.code.as_deref(), Some("not_found"));
    let source = "tool = { execute = function(_, context)\npcall(context.get, '7') error('other') end }";
    let failure = run_in(&mut Vm::new().unwrap(), &job(ScriptEntry::Tool, &[]), source, channel).unwrap_err();
    assert_eq!(failure.code, None);
}

#[test]
fn an_error_of_the_script_has_no_code_even_with_the_text_of_a_failed_request() {
    let run = |body: &str| {
        let channel = FakeChannel::new(|_, _, _| failed("not_found", "no document with id: 7"));
        let source = format!("tool = {{ execute = function(_, context)\n{body}\nend }}");
        let failure =
            run_in(&mut Vm::new().unwrap(), &job(ScriptEntry::Tool, &[]), &source, channel).unwrap_err();
        (failure.kind, failure.message, failure.code)
    };
    let text = "tools/x.lua:2: no document with id: 7".to_owned();
    for own in [
        "pcall(context.get, '7') error('no document with id: 7')",
        "local ok, why = pcall(context.get, '7') error(why)",
    ] {
        assert_eq!(run(own), (JobFailureKind::Raised, text.clone(), None), "{own}");
    }
    // Errors that the script did not catch.
    for passed_on in [
        "return context.get('7')",
        "return tostring(setmetatable({}, { __tostring = function() return context.get('7') end }))",
        "return string.gsub('a', 'a', function() return context.get('7') end)",
        "return coroutine.wrap(function() return context.get('7') end)()",
        "return parallel({ function() return context.get('7') end })",
        "local function f() return context.get('7') end pcall(error) return f()",
    ] {
        let (kind, message, code) = run(passed_on);
        assert_eq!((kind, code.as_deref()), (JobFailureKind::Raised, Some("not_found")), "{passed_on}");
        assert!(message.ends_with("no document with id: 7"), "{passed_on}: {message}");
    }
    let (kind, ..) = run("error('the archive: not enough memory')");
    assert_eq!(kind, JobFailureKind::Raised);
}

#[test]
fn scripts_catch_texts_whatever_they_catch_them_with() {
    let channel = || FakeChannel::new(|_, _, _| failed("not_found", "gone"));
    let source = "tool = { execute = function(_, context)
        local function get() return context.get('7') end
        local seen = {}
        for _, why in {
            select(2, pcall(get)),
            select(2, xpcall(get, function(why) return why end)),
            select(2, coroutine.resume(coroutine.create(get))),
            select(2, pcall(coroutine.wrap(get))),
            select(2, pcall(parallel, { get })),
            select(2, xpcall(error, get)),
        } do
            table.insert(seen, type(why) .. ' ' .. string.gsub(why, '^.*: ', ''))
        end
        local co = coroutine.create(get)
        coroutine.resume(co)
        local closed, why = coroutine.close(co)
        return { seen, closed, why }
    end }";
    let answer = run_in(&mut Vm::new().unwrap(), &job(ScriptEntry::Tool, &[]), source, channel()).unwrap();
    assert_eq!(answer[0].as_array().unwrap()[..5], vec![json!("string gone"); 5]);
    assert!(answer[0][5].as_str().unwrap().starts_with("string "), "{answer}");
    assert_eq!((&answer[1], answer[2].is_string()), (&json!(false), true), "{answer}");
    for (misuse, expected) in [
        ("xpcall(print)", "#2 to 'xpcall' (function expected"),
        ("coroutine.resume(1)", "#1 to 'resume' (thread expected, got number)"),
        ("coroutine.wrap(1)", "#1 to 'wrap' (function expected, got number)"),
        ("coroutine.close(1)", "#1 to 'close' (thread expected, got number)"),
    ] {
        let source = format!("tool = {{ execute = function()\n{misuse} end }}");
        let failure =
            run_in(&mut Vm::new().unwrap(), &job(ScriptEntry::Tool, &[]), &source, channel()).unwrap_err();
        assert!(failure.message.starts_with("tools/x.lua:2: "), "{}", failure.message);
        assert!(failure.message.contains(expected), "{}", failure.message);
    }
}

/// A tool as authors write them: plain Lua, every common API, nothing special to this engine.
const TICKET: &str = r#"
local function link(hit)
    return string.format("- [%s](%s) %.2f\n", hit.title, hit.source_url or "", hit.score)
end

tool = { name = "ticket", description = "Creates a ticket", parameters = {} }

function tool.execute(params, context)
    local text = params.body
    local hits = context.search(params.title, { mode = "hybrid", limit = 3, source = "git" })
    if #hits > 0 then
        text = text .. "\n"
        for _, hit in ipairs(hits) do text = text .. link(hit) end
    end
    local response = http.post(context.config.url .. "/issue", json.encode({ fields = { summary = params.title, text = text } }), {
        headers = { ["Authorization"] = "Basic " .. base64.encode("me:" .. env.get("TOKEN")), ["Content-Type"] = "application/json" },
    })
    if not response.ok then
        log.error("HTTP " .. response.status .. " " .. response.body)
        return { success = false, error = "the tracker answered " .. response.status }
    end
    local issue = json.decode(response.body)
    return { key = issue.key, same = response.json.key == issue.key, related = #hits, note = issue.note or "none" }
end
"#;

#[test]
fn a_tool_as_authors_write_them_runs() {
    let channel_with = |status: u16| {
        FakeChannel::new(move |about, arguments, _| match (about, arguments["name"].as_str()) {
            ("call", Some("context.search")) => {
                value(json!({ "results": [{ "title": "Runbook", "score": 0.915, "source_url": null }] }))
            }
            ("env.get", _) => value(json!("secret")),
            _ => HostResponse::Value {
                json: json!({ "status": status, "headers": {} }).to_string().into_bytes(),
                bytes: br#"{"key":"ENG-1","note":null}"#.to_vec(),
            },
        })
    };
    let arguments = [json!({ "title": "Login fails", "body": "It does." })];
    let channel = channel_with(201);
    let answer =
        run_in(&mut Vm::new().unwrap(), &job(ScriptEntry::Tool, &arguments), TICKET, channel.clone())
            .unwrap();
    assert_eq!(answer, json!({ "key": "ENG-1", "same": true, "related": 1, "note": "none" }));
    let (_, request, body) = channel.requests().remove(2);
    assert_eq!(request["headers"]["Authorization"], "Basic bWU6c2VjcmV0");
    assert_eq!(request["url"], "https://example.com/issue");
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["fields"]["text"], "It does.\n- [Runbook]() 0.92\n");
    let answer =
        run_in(&mut Vm::new().unwrap(), &job(ScriptEntry::Tool, &arguments), TICKET, channel_with(403))
            .unwrap();
    assert_eq!(answer, json!({ "success": false, "error": "the tracker answered 403" }));
}
