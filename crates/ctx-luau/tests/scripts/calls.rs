//! Tool calls of scripts: through the catalog, within the budget of the script's own call.

use crate::Test;
use crate::bench::{Bench, call, catalog_of, tool_source};
use ctx_core::{ContentBlock, ErrorKind, Limits, Output, Page, Provider, ToolError};
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(crate) const TESTS: &[Test] = tests!(calls:
    a_tool_calls_another,
    an_empty_table_becomes_a_list_where_the_schema_wants_one,
    a_body_can_be_passed_in_several_ways,
    errors_of_nested_calls_can_be_caught,
    an_error_has_the_data_of_the_tool_error,
    a_script_gets_the_content_of_a_result_without_a_value,
    calls_are_counted,
    call_depth_is_bounded,
    a_list_is_paginated,
    every_page_is_a_call,
    a_list_without_pages_is_one_page,
);

async fn a_tool_calls_another() {
    let bench = Bench::new();
    let inner = bench.script("inner", &tool_source("inner", "return { doubled = params.n * 2 }"));
    let inner = bench.scripts.tool(&inner).await.unwrap();
    let outer = bench.tool("return sdk.tools.inner({ n = 4 }).doubled + 1").await;
    let catalog = catalog_of([inner, outer], [], [], Limits::default());
    assert_eq!(call(&catalog, "x", json!({})).await.unwrap().value, json!(9));
}

async fn an_empty_table_becomes_a_list_where_the_schema_wants_one() {
    let bench = Bench::new();
    let schema =
        json!({"type": "object", "properties": {"tags": {"type": "array"}, "map": {"type": "object"}}});
    let echo = ctx_testkit::echo("echo").schema(schema);
    let tool = bench.tool("return sdk.others.echo({ tags = {}, map = {}, rest = {} })").await;
    let catalog = catalog_of([tool], [], [ctx_testkit::provider("others", [echo])], Limits::default());
    let answer = call(&catalog, "x", json!({})).await.unwrap().value;
    assert_eq!(answer, json!({"tags": [], "map": {}, "rest": {}}));
}

async fn a_body_can_be_passed_in_several_ways() {
    let bench = Bench::new();
    let schema = |parameters: Value, name: &str, body: Value| {
        let mut properties = parameters.as_object().unwrap().clone();
        let required: Vec<String> = properties.keys().cloned().chain([name.to_owned()]).collect();
        properties.insert(name.to_owned(), body);
        json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        })
    };
    let pet = json!({
        "type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "tags": {"type": "array"}, "body": {}},
    });
    let tags = json!({"type": "array", "items": {"type": "string"}});
    let id = json!({"id": {"type": "integer"}});
    let pets = || {
        [
            ctx_testkit::echo("create").schema(schema(json!({}), "body", pet.clone())).body("body", true),
            ctx_testkit::echo("update")
                .schema(schema(id.clone(), "request_body", pet.clone()))
                .body("request_body", true),
            ctx_testkit::echo("add_tags").schema(schema(json!({}), "body", tags.clone())).body("body", false),
            ctx_testkit::echo("set_text")
                .schema(schema(json!({}), "body", json!({"type": "string"})))
                .body("body", false),
        ]
    };
    let rex = json!({"name": "Rex"});
    for (script, expected) in [
        ("sdk.pets.create({ name = 'Rex' })", json!({"body": rex})),
        ("sdk.pets.create({ name = 'Rex', tags = {} })", json!({"body": {"name": "Rex", "tags": []}})),
        (
            "sdk.pets.create({ body = { name = 'Rex', tags = {} } })",
            json!({"body": {"name": "Rex", "tags": []}}),
        ),
        ("sdk.pets.create(nil, { name = 'Rex' })", json!({"body": rex})),
        ("sdk.pets.update({ id = 1, name = 'Rex' })", json!({"id": 1, "request_body": rex})),
        (
            "sdk.pets.update({ id = 1, request_body = { name = 'Rex' } })",
            json!({"id": 1, "request_body": rex}),
        ),
        ("sdk.pets.update({ id = 1 }, { name = 'Rex' })", json!({"id": 1, "request_body": rex})),
        (
            "sdk.pets.update({ id = 1, name = 'Rex', body = 'text' })",
            json!({"id": 1, "request_body": {"name": "Rex", "body": "text"}}),
        ),
        ("sdk.pets.add_tags({ 'a', 'b' })", json!({"body": ["a", "b"]})),
        ("sdk.pets.add_tags({ body = { 'a' } })", json!({"body": ["a"]})),
        ("sdk.pets.add_tags({ body = {} })", json!({"body": []})),
        ("sdk.pets.add_tags({})", json!({"body": []})),
        ("sdk.pets.set_text('hello')", json!({"body": "hello"})),
        ("sdk.pets.set_text({ body = 'hello' })", json!({"body": "hello"})),
    ] {
        let tool = bench.tool(&format!("return {script}")).await;
        let catalog = catalog_of([tool], [], [ctx_testkit::provider("pets", pets())], Limits::default());
        assert_eq!(call(&catalog, "x", json!({})).await.unwrap().value, expected, "{script}");
    }
    for (script, message) in [
        ("sdk.pets.add_tags()", "missing required parameter: body"),
        ("sdk.pets.update({ id = 1 })", "missing required parameter: name"),
        ("sdk.pets.update({ id = 1, name = 7 })", "parameter `name`: its value is not of type"),
        ("sdk.pets.update({ id = 1, request_body = {} }, {})", "`request_body` is given twice"),
        ("sdk.pets.update('x', {})", "arguments before a body must be a table"),
    ] {
        let tool = bench.tool(&format!("return {script}")).await;
        let catalog = catalog_of([tool], [], [ctx_testkit::provider("pets", pets())], Limits::default());
        let error = call(&catalog, "x", json!({})).await.unwrap_err();
        assert!(error.message().contains(message), "{script}: {error}");
    }
}

async fn errors_of_nested_calls_can_be_caught() {
    let bench = Bench::new();
    let tool = bench.tool("local ok, why = pcall(sdk.others.nothing) return why").await;
    let loud = bench.script("loud", &tool_source("loud", "return sdk.others.ech({ a = 1 })"));
    let loud = bench.scripts.tool(&loud).await.unwrap();
    let others = ctx_testkit::provider("others", [ctx_testkit::echo("echo")]);
    let catalog = catalog_of([tool, loud], [], [others], Limits::default());
    let answer = call(&catalog, "x", json!({})).await.unwrap().value;
    assert!(answer.as_str().unwrap().contains("no tool registered with name: others.nothing"), "{answer}");
    let error = call(&catalog, "loud", json!({})).await.unwrap_err();
    assert_eq!(error.kind().code(), "tool_error");
    let message = error.message();
    assert!(
        message.starts_with("tools/loud.lua:2: no tool registered") && message.contains("others.echo"),
        "{error}"
    );
}

async fn an_error_has_the_data_of_the_tool_error() {
    let bench = Bench::new();
    let failing = ctx_testkit::tool("get", |arguments, _| {
        // Error data that is too large is left out.
        let body = "x".repeat(arguments.get("bytes").and_then(Value::as_u64).unwrap_or(1) as usize);
        let error = ToolError::new(ErrorKind::Tool, "HTTP 404 Not Found");
        Box::pin(async move { Err(error.with_data(json!({ "status": 404, "body": body }))) })
    });
    let body = "local _, why = pcall(sdk.others.get, { bytes = params.bytes })
        return if type(why) == 'table' then { why.status, why.body, tostring(why) } else why";
    let others = ctx_testkit::provider("others", [failing]);
    let catalog = catalog_of([bench.tool(body).await], [], [others], Limits::default());
    let small = call(&catalog, "x", json!({})).await.unwrap().value;
    assert_eq!(small, json!([404, "x", "HTTP 404 Not Found"]));
    let large = call(&catalog, "x", json!({ "bytes": 1 << 20 })).await.unwrap().value;
    assert_eq!(large, json!("HTTP 404 Not Found"));
}

async fn a_script_gets_the_content_of_a_result_without_a_value() {
    let bench = Bench::new();
    let texts = |texts: &'static [&str]| {
        move || Output {
            content: texts.iter().map(|text| ContentBlock::Text((*text).to_owned())).collect(),
            ..Output::default()
        }
    };
    let (one, two, none) = (texts(&["a"]), texts(&["a", "b"]), texts(&[]));
    let others = ctx_testkit::provider(
        "others",
        [
            ctx_testkit::tool("one", move |_, _| {
                let output = one();
                Box::pin(async { Ok(output) })
            }),
            ctx_testkit::tool("two", move |_, _| {
                let output = two();
                Box::pin(async { Ok(output) })
            }),
            ctx_testkit::tool("none", move |_, _| {
                let output = none();
                Box::pin(async { Ok(output) })
            }),
        ],
    );
    let tool = bench.tool("local o = sdk.others return { o.one(), o.two(), o.none() == nil }").await;
    let catalog = catalog_of([tool], [], [others], Limits::default());
    assert_eq!(call(&catalog, "x", json!({})).await.unwrap().value, json!(["a", ["a", "b"], true]));
}

async fn calls_are_counted() {
    let bench = Bench::new();
    let body = "local count = 0
        while pcall(sdk.others.echo, { n = count }) do count = count + 1 end
        local _, why = pcall(sdk.others.echo)
        return { count, why }";
    let others = ctx_testkit::provider("others", [ctx_testkit::echo("echo")]);
    let limits = Limits { nested_calls: 7, ..Limits::default() };
    let catalog = catalog_of([bench.tool(body).await], [], [others], limits);
    let answer = call(&catalog, "x", json!({})).await.unwrap().value;
    assert_eq!(answer[0], json!(7));
    assert!(answer[1].as_str().unwrap().contains("at most 7 nested calls"), "{answer}");
}

async fn call_depth_is_bounded() {
    let bench = Bench::new();
    let body = "local ok, deeper = pcall(sdk.tools.x)
        if ok then return { depth = deeper.depth + 1, why = deeper.why } end
        return { depth = 0, why = deeper }";
    let catalog = catalog_of([bench.tool(body).await], [], [], Limits::default());
    let answer: Value = call(&catalog, "x", json!({})).await.unwrap().value;
    assert_eq!(answer["depth"], json!(8));
    assert!(answer["why"].as_str().unwrap().contains("calls may nest at most 8 deep"), "{answer}");
}

/// Lists of numbers, three on a page, up to `most`; one of them ignores the page number and repeats its first
/// page.
fn lists(most: u64) -> Arc<dyn Provider> {
    let answer = move |arguments: &Map<String, Value>, counts: bool| {
        let page = arguments.get("page").and_then(Value::as_u64).unwrap_or(0);
        let first = if counts { page * 3 } else { 0 };
        let numbers: Vec<u64> = (first..(first + 3).min(most)).collect();
        let mut next = arguments.clone();
        next.insert("page".to_owned(), json!(page + 1));
        let next = (!counts || first + 3 < most).then_some(next);
        let page = Page { items: Some(vec!["numbers".to_owned()]), next, beyond: None };
        Output { value: json!({ "numbers": numbers }), page: Some(Box::new(page)), ..Output::default() }
    };
    let list = |name: &str, counts: bool| {
        ctx_testkit::tool(name, move |arguments, _| {
            let output = answer(&arguments, counts);
            Box::pin(async { Ok(output) })
        })
    };
    ctx_testkit::provider("others", [list("numbers", true), list("circle", false), ctx_testkit::echo("echo")])
}

async fn a_list_is_paginated() {
    let bench = Bench::new();
    let body = "local sum = 0
        for number in paginate(sdk.others.numbers, { order = 'up' }) do sum += number end
        return { sum, paginate(sdk.others.numbers):all(5), paginate(sdk.others.circle):all() }";
    let catalog = catalog_of([bench.tool(body).await], [], [lists(10)], Limits::default());
    let answer = call(&catalog, "x", json!({})).await.unwrap().value;
    assert_eq!(answer, json!([45, [0, 1, 2, 3, 4], [0, 1, 2]]));
}

async fn every_page_is_a_call() {
    let bench = Bench::new();
    let tool = bench.tool("return #paginate(sdk.others.numbers):all(params.most)").await;
    let limits = Limits { nested_calls: 4, ..Limits::default() };
    let catalog = catalog_of([tool], [], [lists(1_000_000)], limits);
    let output = call(&catalog, "x", json!({ "most": 12 })).await.unwrap();
    assert_eq!((output.value, output.nested_calls.calls), (json!(12), 4));
    let error = call(&catalog, "x", json!({})).await.unwrap_err();
    assert!(error.message().contains("at most 4 nested calls"), "{error}");
}

async fn a_list_without_pages_is_one_page() {
    let bench = Bench::new();
    let array = ctx_testkit::tool("array", |_, _| Box::pin(async { Ok(json!([1, 2]).into()) }));
    let others = ctx_testkit::provider("others", [array, ctx_testkit::echo("echo")]);
    let body = "local ok, why = pcall(function() return paginate(sdk.others.echo, { a = 1 }):all() end)
        return { paginate(sdk.others.array):all(), ok, why }";
    let catalog = catalog_of([bench.tool(body).await], [], [others], Limits::default());
    let answer = call(&catalog, "x", json!({})).await.unwrap().value;
    let why = "tools/x.lua:2: paginate: others.echo does not answer with a list; call it by itself";
    assert_eq!(answer, json!([[1, 2], false, why]));
}
