//! The host APIs, as scripts use them.

use super::{FakeChannel, chunk, chunk_with, failed, job, message, run_in, value};
use crate::engine::protocol::{HostResponse, ScriptEntry};
use crate::host::HOST_APIS;
use crate::vm::Vm;
use serde_json::{Value, json};
use std::rc::Rc;

fn tool(body: &str, channel: Rc<FakeChannel>) -> Value {
    let source = format!("tool = {{}} function tool.execute(params, context) {body} end");
    let mut vm = Vm::new().unwrap();
    run_in(&mut vm, &job(ScriptEntry::Tool, &[json!({})]), &source, channel).unwrap()
}

fn web() -> Rc<FakeChannel> {
    FakeChannel::new(|_, arguments, _| {
        let json = json!({ "status": 201, "headers": { "Content-Type": "application/json" } });
        let bytes = format!("{{\"url\":{},\"items\":[]}}", arguments["url"]).into_bytes();
        HostResponse::Value { json: json.to_string().into_bytes(), bytes }
    })
}

#[test]
fn http_sends_the_given_request() {
    let channel = web();
    let answer = tool(
        "local r = http.post('https://x/y', { a = { 1, 2 } }, { headers = { Accept = 'text/plain' }, params = { q = 1 }, timeout = 5 })
        return { r.status, r.ok, r.headers['content-type'], r.json.url, r.body, r.json.items }",
        channel.clone(),
    );
    assert_eq!(
        answer,
        json!([201, true, "application/json", "https://x/y", "{\"url\":\"https://x/y\",\"items\":[]}", []])
    );
    let (method, arguments, body) = channel.requests().remove(0);
    assert_eq!(method, "http.request");
    assert_eq!(
        arguments,
        json!({
            "method": "POST", "url": "https://x/y", "params": { "q": 1 }, "timeout": 5,
            "headers": { "Accept": "text/plain", "Content-Type": "application/json" },
        })
    );
    assert_eq!(body, b"{\"a\":[1,2]}");
}

#[test]
fn http_has_every_method_and_keeps_a_given_content_type() {
    let channel = web();
    tool(
        "http.get('u') http.delete('u') http.head('u') http.put('u', 'raw') http.patch('u', 'x')
        http.request({ method = 'options', url = 'u' })
        http.post('u', {}, { headers = { ['content-type'] = 'application/x' } })",
        channel.clone(),
    );
    let requests = channel.requests();
    let methods: Vec<_> =
        requests.iter().map(|(_, arguments, _)| arguments["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["GET", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS", "POST"]);
    assert_eq!(requests[3].2, b"raw");
    assert_eq!(requests[6].1["headers"], json!({ "content-type": "application/x" }));
}

#[test]
fn a_body_that_is_not_json_has_no_json_field() {
    let channel = FakeChannel::new(|_, _, _| HostResponse::Value {
        json: br#"{"status":404,"headers":{}}"#.to_vec(),
        bytes: b"\xff not found".to_vec(),
    });
    let answer = tool("local r = http.get('u') return { r.ok, r.json == nil, #r.body }", channel);
    assert_eq!(answer, json!([false, true, 11]));
}

#[test]
fn a_failed_request_raises_and_can_be_caught() {
    let channel = FakeChannel::new(|_, _, _| failed("tool_error", "connection refused"));
    let answer = tool("local ok, e = pcall(http.get, 'u') return { ok, e }", channel);
    assert_eq!(answer, json!([false, "connection refused"]));
}

#[test]
fn files_environment_and_sleep_are_host_requests() {
    let channel = FakeChannel::new(|method, arguments, _| match method {
        "env.get" if arguments["name"] == "NONE" => value(json!(null)),
        "env.get" => value(json!("secret")),
        "fs.read" => HostResponse::Value { json: b"null".to_vec(), bytes: b"\xffcontent".to_vec() },
        "fs.list" => value(json!(["a.md", "b.md"])),
        _ => value(json!(null)),
    });
    let answer = tool(
        "sleep(0.5) return { env.get('A'), env.get('NONE') == nil, #fs.read('x'), fs.list('docs', '*.md') }",
        channel.clone(),
    );
    assert_eq!(answer, json!(["secret", true, 8, ["a.md", "b.md"]]));
    let requests = channel.requests();
    assert_eq!((requests[0].0.as_str(), &requests[0].1), ("sleep", &json!({ "seconds": 0.5 })));
    assert_eq!(
        (requests[4].0.as_str(), &requests[4].1),
        ("fs.list", &json!({ "dir": "docs", "glob": "*.md" }))
    );
}

#[test]
fn context_searches_with_flat_options_and_gives_a_list() {
    let channel = FakeChannel::new(|_, arguments, _| match arguments["name"].as_str() {
        Some("context.search") => value(json!({ "results": [{ "id": "1", "source_url": null }] })),
        Some("context.sources") => value(json!({ "sources": [] })),
        _ => value(json!({ "id": arguments["arguments"]["id"] })),
    });
    let answer = tool(
        "local a = context.search('words', { mode = 'keyword', limit = 5, source = 'git' })
        local b = context.search{ query = 'words', tags = { 'x' } }
        return { #a, a[1].id, b[1].source_url == nil, context.get('7').id, context.sources() }",
        channel.clone(),
    );
    assert_eq!(answer, json!([1, "1", true, "7", []]));
    let requests = channel.requests();
    assert_eq!(
        requests[0].1,
        json!({ "name": "context.search", "arguments":
            { "query": "words", "mode": "keyword", "limit": 5, "filters": { "source": "git" } } })
    );
    assert_eq!(requests[1].1["arguments"], json!({ "query": "words", "filters": { "tags": ["x"] } }));
    assert_eq!(requests[3].1, json!({ "name": "context.sources", "arguments": {} }));
}

#[test]
fn context_reports_progress_and_sends_elicitations() {
    let channel = FakeChannel::new(|method, _, _| {
        value(if method == "ask" { json!({ "ok": true }) } else { json!(null) })
    });
    let answer = tool(
        "context.progress(1, 2, 'half') return context.elicit('Sure?', { type = 'object' })",
        channel.clone(),
    );
    assert_eq!(answer, json!({ "ok": true }));
    assert_eq!(channel.requests()[0].1, json!({ "done": 1, "total": 2, "message": "half" }));
    let question = json!({ "want": "person", "message": "Sure?", "schema": { "type": "object" } });
    assert_eq!(channel.requests()[1].1, question);
}

#[test]
fn sdk_calls_any_function_by_name() {
    let channel = FakeChannel::new(|_, arguments, _| value(arguments.clone()));
    let answer = chunk_with(
        "return { sdk.petstore.get_pet({ id = 1 }), sdk.files['read-file'](), sdk.x.y({ a = 1 }, 'text') }",
        channel,
    );
    assert_eq!(
        answer.unwrap(),
        json!([
            { "name": "petstore.get_pet", "arguments": { "id": 1 } },
            { "name": "files.read-file" },
            { "name": "x.y", "arguments": { "a": 1 }, "body": "text" },
        ])
    );
    let channel = FakeChannel::new(|_, _, _| failed("not_found", "no function a.b"));
    let failure = chunk_with("\nsdk.a.b()", channel).unwrap_err();
    assert_eq!(
        (failure.message.as_str(), failure.code.as_deref()),
        ("tools/x.lua:2: no function a.b", Some("not_found"))
    );
}

fn not_found() -> Rc<FakeChannel> {
    FakeChannel::new(|_, _, _| HostResponse::Failed {
        code: "tool_error".to_owned(),
        message: "HTTP 404".to_owned(),
        data: json!({ "status": 404, "body": { "code": "gone" } }).to_string().into_bytes(),
    })
}

#[test]
fn an_error_has_the_data_of_its_response_and_converts_to_its_message() {
    let answer = chunk_with(
        "local ok, e = pcall(function()
            return sdk.a.b()
        end)
        return { ok, e.status, e.body.code, e.message, tostring(e), 'so ' .. e .. '!' }",
        not_found(),
    );
    let text = "tools/x.lua:2: HTTP 404";
    assert_eq!(answer.unwrap(), json!([false, 404, "gone", text, text, format!("so {text}!")]));
    let failure = chunk_with("\nsdk.a.b()", not_found()).unwrap_err();
    assert_eq!((failure.message.as_str(), failure.code.as_deref()), (text, Some("tool_error")));
}

#[test]
fn an_error_with_data_passes_through_parallel() {
    let source = "local ok, e = pcall(parallel, { function() return sdk.a.b() end })
        return { ok, e.status, e.message }";
    let answer = chunk_with(source, not_found()).unwrap();
    assert_eq!(answer, json!([false, 404, "tools/x.lua:1: HTTP 404"]));
}

#[test]
fn host_requests_work_in_metamethods_and_callbacks() {
    let channel = FakeChannel::new(|_, arguments, _| value(arguments["arguments"]["n"].clone()));
    let answer = chunk_with(
        "local t = setmetatable({}, { __index = function(_, k) return sdk.a.b({ n = k }) end })
        local text = string.gsub('a b', '%a', function(c) return sdk.a.b({ n = c .. c }) end)
        local list = { 2, 1, 3 }
        table.sort(list, function(a, b) return sdk.a.b({ n = a }) < sdk.a.b({ n = b }) end)
        local co = coroutine.wrap(function() coroutine.yield(sdk.a.b({ n = 5 })) end)
        return { t.key, text, list, co() }",
        channel,
    );
    assert_eq!(answer.unwrap(), json!(["key", "aa bb", [1, 2, 3], 5]));
}

#[test]
fn bytes_are_encoded_and_hashed() {
    let answer = chunk(
        r"return { base64.encode('\255\0a'), base64.decode('/wBh') == '\255\0a', base64.decode('_wBh') == '\255\0a',
        base64.decode('YQ'), crypto.sha256(''), crypto.hmac_sha256('key', 'The quick brown fox jumps over the lazy dog') }",
    );
    assert_eq!(
        answer.unwrap(),
        json!([
            "/wBh",
            true,
            true,
            "a",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8",
        ])
    );
    assert!(message("\nbase64.decode('*')").starts_with("tools/x.lua:2: base64.decode: "));
    assert_eq!(message("\ncrypto.sha256({})"), "tools/x.lua:2: crypto.sha256: expected a string, got table");
}

#[test]
fn scripts_see_only_their_apis() {
    let mut chunk_job = job(ScriptEntry::Chunk, &[]);
    let source = "local seen = {} for _, name in { 'http', 'env', 'fs', 'emit', 'sdk', 'json', 'result' } do
        seen[name] = _G[name] ~= nil end return seen";
    let seen = run_in(&mut Vm::new().unwrap(), &chunk_job, source, FakeChannel::rejecting()).unwrap();
    assert_eq!(
        seen,
        json!({ "http": false, "env": false, "fs": false, "emit": false, "sdk": true, "json": true, "result": true })
    );
    chunk_job.apis = Vec::new();
    let seen = run_in(&mut Vm::new().unwrap(), &chunk_job, "return _G.json == nil", FakeChannel::rejecting())
        .unwrap();
    assert_eq!(seen, json!(true));
}

#[test]
fn every_api_declares_its_type() {
    for api in HOST_APIS {
        assert!(
            api.types.contains(&format!("declare {}", api.name))
                || api.types.contains(&format!("declare function {}", api.name)),
            "{}",
            api.name
        );
    }
}

#[test]
fn arguments_without_a_json_form_name_the_field() {
    assert_eq!(message("\nsdk.a.b({ f = print })"), "tools/x.lua:2: arguments.f: JSON has no functions");
    assert_eq!(
        message("\nsdk.a.b({ 1, x = 2 })").split("; ").next(),
        Some("tools/x.lua:2: arguments: has both list items and the key \"x\"")
    );
}
