//! Response bodies against their published schemas, key for key.

use crate::common::documents::serving_documents;
use crate::common::{
    ServerBuilder, TestRequest, TestTool, echo, get, post, provider, returning, standard_tools, tool,
};
use ctx_core::{ContentBlock, LogLine, Output};
use serde_json::{Map, Value, json};

/// A value with its leaves replaced by the type names of the published schemas.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("boolean"),
        Value::Number(_) => json!("number"),
        Value::String(text) if is_uuid(text) => json!("uuid"),
        Value::String(text) if is_utc_time(text) => json!("ISO8601"),
        Value::String(_) => json!("string"),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), shape(value))).collect())
        }
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let is_lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
    lengths == [8, 4, 4, 4, 12] && text.bytes().all(is_lower_hex)
}

fn is_utc_time(text: &str) -> bool {
    let pattern = "dddd-dd-ddTdd:dd:dd";
    let (Some(seconds), Some(rest)) = (text.get(..pattern.len()), text.get(pattern.len()..)) else {
        return false;
    };
    let fits = seconds.bytes().zip(pattern.bytes()).all(|(byte, expected)| match expected {
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    });
    let fraction = rest.strip_suffix('Z').map(|rest| rest.strip_prefix('.').unwrap_or(rest));
    fits && fraction.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[tokio::test]
async fn search_answers_hits_and_nothing_else() {
    let (server, _folder) = serving_documents().await;
    let response = server.call("search", json!({"query": "push the green button"})).await;
    let hit = json!({
        "id": "uuid", "score": "number", "title": "string", "source": "string", "source_id": "string",
        "updated_at": "ISO8601", "snippet": "string", "source_url": "string",
    });
    assert_eq!(shape(&response), json!({"results": [hit, hit]}));

    let best = &response["results"][0];
    assert_eq!(
        (&best["title"], &best["source"], &best["source_id"]),
        (&json!("Deploy"), &json!("filesystem:notes"), &json!("deploy.md"))
    );
    let score = best["score"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&score), "{score}");
}

#[tokio::test]
async fn search_that_finds_nothing_is_an_empty_list() {
    let (server, _folder) = serving_documents().await;
    assert_eq!(server.call("search", json!({"query": "zebra"})).await, json!({"results": []}));
}

#[tokio::test]
async fn search_takes_every_published_field_and_their_nulls() {
    let (server, _folder) = serving_documents().await;
    let whole = json!({
        "query": "button", "mode": "keyword", "limit": 1,
        "filters": {"source": "filesystem:notes", "tags": [], "since": "2020-01-01T00:00:00Z", "until": null},
    });
    assert_eq!(server.call("search", whole).await["results"].as_array().unwrap().len(), 1);
    let nulls = json!({
        "query": "button", "filters": {"source": null, "tags": [], "since": null, "until": null},
    });
    assert_eq!(server.call("search", nulls).await["results"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn explain_appears_only_when_asked_for() {
    let (server, _folder) = serving_documents().await;
    let response = server.call("search", json!({"query": "green", "explain": true})).await;
    assert!(response["results"][0]["explain"].is_object());
    let response = server.call("search", json!({"query": "green", "explain": false})).await;
    assert_eq!(response["results"][0].get("explain"), None);
}

#[tokio::test]
async fn a_limit_above_the_maximum_is_clamped() {
    let (server, _folder) = serving_documents().await;
    for limit in [json!(1_000_000_000), json!(1e9), json!(u64::MAX), json!(101)] {
        let response = server.call("search", json!({"query": "button", "limit": limit})).await;
        assert_eq!(response["results"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn get_answers_the_document_whole() {
    let (server, _folder) = serving_documents().await;
    let found = server.call("search", json!({"query": "green", "limit": 1})).await;
    let hit = &found["results"][0];
    let response = server.call("get", json!({"id": hit["id"]})).await;
    assert_eq!(
        shape(&response),
        json!({
            "id": "uuid", "source": "string", "source_id": "string", "source_url": "string",
            "title": "string", "author": "null", "created_at": "ISO8601", "updated_at": "ISO8601",
            "content_type": "string", "body": "string", "metadata": shape(&response["metadata"]),
            "chunks": [{"index": "number", "text": "string"}],
        })
    );
    assert!(response["metadata"].is_object());
    assert_eq!(response["body"], "# Deploy\n\nPush the green button.\n");
    assert_eq!(response["chunks"][0]["index"], 0);
    for shared in ["id", "source", "source_id", "source_url", "title", "updated_at"] {
        assert_eq!(response[shared], hit[shared], "{shared}");
    }
}

#[tokio::test]
async fn unknown_fields_are_null_and_not_absent() {
    let (server, _folder) = serving_documents().await;
    let found = server.call("search", json!({"query": "kettle"})).await;
    let hit = json!({
        "id": "uuid", "score": "number", "title": "string", "source": "string", "source_id": "string",
        "updated_at": "ISO8601", "snippet": "string", "source_url": "null",
    });
    assert_eq!(shape(&found), json!({"results": [hit]}));

    let response = server.call("get", json!({"id": found["results"][0]["id"]})).await;
    let document = json!({
        "id": "uuid", "source": "string", "source_id": "string", "source_url": "null", "title": "string",
        "author": "null", "created_at": "ISO8601", "updated_at": "ISO8601", "content_type": "string",
        "body": "string", "metadata": {}, "chunks": [{"index": "number", "text": "string"}],
    });
    assert_eq!(shape(&response), document);
}

#[tokio::test]
async fn sources_answers_alike_to_get_and_post() {
    let (server, _folder) = serving_documents().await;
    let expected = server.send(get("/tools/sources")).await.success();
    let source = json!({"name": "string", "configured": "boolean", "healthy": "boolean", "notes": "string"});
    assert_eq!(shape(&expected), json!({"sources": [source, source]}));
    let names: Vec<_> =
        expected["sources"].as_array().unwrap().iter().map(|source| &source["name"]).collect();
    assert_eq!(names, ["filesystem:notes", "script:bare"]);

    let requests: [TestRequest; 3] = [
        post("/tools/sources"),
        post("/tools/sources").json(&json!({})),
        get("/tools/sources").json(&json!({})),
    ];
    for request in requests {
        assert_eq!(server.send(request).await.success(), expected);
    }
}

#[tokio::test]
async fn the_list_has_four_keys_for_each_tool_and_what_is_built_in_first() {
    let (documents, _folder) = serving_documents().await;
    let listed = documents.send(get("/tools/list")).await.success();
    let tools = listed["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["get", "search", "sources"]);

    let server =
        ServerBuilder::with(standard_tools()).provider(provider("context", [echo("search")])).start().await;
    let response = server.send(get("/tools/list")).await.success();
    let names: Vec<_> = response["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["search", "create_ticket", "echo", "failing", "limited", "panicking", "slow"]);

    for tool in tools.iter().chain(response["tools"].as_array().unwrap()) {
        let keys: Vec<_> = tool.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["name", "description", "builtin", "parameters"], "{tool}");
        assert!(tool["description"].is_string(), "{tool}");
        assert_eq!(tool["parameters"]["type"], "object", "{tool}");
        assert!(tool["parameters"]["properties"].is_object(), "{tool}");
    }
}

#[tokio::test]
async fn the_list_gives_a_tool_as_its_author_wrote_it() {
    let server = ServerBuilder::with(standard_tools()).start().await;
    let response = server.send(get("/tools/list")).await.success();
    let expected = json!({
        "name": "create_ticket",
        "description": "The test's create_ticket.",
        "builtin": false,
        "parameters": {
            "type": "object",
            "properties": {
                "title": {"type": "string"}, "priority": {"enum": ["low", "high"], "default": "low"},
            },
            "required": ["title"],
        },
    });
    assert_eq!(response["tools"][0], expected);
}

#[tokio::test]
async fn parameters_of_search_say_what_must_be_given() {
    let (server, _folder) = serving_documents().await;
    let response = server.send(get("/tools/list")).await.success();
    let search = &response["tools"][1]["parameters"];
    assert_eq!(search["required"], json!(["query"]));
    let properties: Vec<_> = search["properties"].as_object().unwrap().keys().collect();
    assert_eq!(properties, ["query", "mode", "limit", "filters", "explain", "prefix"]);
    assert_eq!(search["properties"]["query"]["type"], "string");
    assert!(search["properties"]["query"]["description"].is_string());
}

#[tokio::test]
async fn results_of_tools_are_wrapped_whatever_they_are() {
    let values = [json!(null), json!([]), json!([1, null]), json!({}), json!("text"), json!(0), json!(false)];
    for value in values {
        let server = ServerBuilder::with([returning("any", value.clone())]).start().await;
        assert_eq!(server.call("any", json!({})).await, json!({"result": value}));
    }
}

#[tokio::test]
async fn a_tool_that_answers_in_blocks_alone_has_them_for_its_result() {
    let texts = |texts: &'static [&str]| {
        tool("any", move |_, _| async move {
            let content = texts.iter().map(|text| ContentBlock::Text(text.to_string())).collect();
            Ok(Output { content, ..Output::default() })
        })
    };
    for (blocks, expected) in [(&["one"][..], json!("one")), (&["one", "two"][..], json!(["one", "two"]))] {
        let server = ServerBuilder::with([texts(blocks)]).start().await;
        assert_eq!(server.call("any", json!({})).await, json!({"result": expected}));
    }
}

#[tokio::test]
async fn a_result_that_looks_like_a_failure_or_a_wrapper_is_still_a_result() {
    for value in [json!({"error": "no such ticket"}), json!({"result": 1}), json!({"error": {"code": "x"}})] {
        let server = ServerBuilder::with([returning("any", value.clone())]).start().await;
        assert_eq!(server.call("any", json!({})).await, json!({"result": value}));
    }
}

#[tokio::test]
async fn results_of_context_are_not_wrapped_whatever_they_are() {
    for value in [json!({"results": []}), json!([1]), json!(null)] {
        let server =
            ServerBuilder::new().provider(provider("context", [returning("search", value.clone())])).start();
        assert_eq!(server.await.call("search", json!({})).await, value);
    }
}

fn logging(name: &str, lines: &'static [&str]) -> TestTool {
    tool(name, move |_, _| async move {
        let line = |text: &&str| LogLine { level: tracing::Level::INFO, message: text.to_string() };
        Ok(Output { value: json!(1), logs: lines.iter().map(line).collect(), ..Output::default() })
    })
}

#[tokio::test]
async fn logs_stand_beside_a_result_where_there_are_some_and_always_for_execute() {
    let context = provider("context", [logging("search", &["a"])]);
    let server = ServerBuilder::with([logging("quiet", &[]), logging("loud", &["a", "b"])])
        .provider(provider("ctx", [logging("execute", &[])]))
        .provider(context)
        .start()
        .await;
    let lines = json!([{"level": "info", "message": "a"}, {"level": "info", "message": "b"}]);
    assert_eq!(server.call("quiet", json!({})).await, json!({"result": 1}));
    assert_eq!(server.call("loud", json!({})).await, json!({"result": 1, "logs": lines}));
    assert_eq!(
        server.call("execute", json!({})).await,
        json!({"result": 1, "logs": [], "meta": {"calls": 0, "bytes_kept": 0}})
    );
    assert_eq!(server.call("search", json!({})).await, json!(1));
}

#[tokio::test]
async fn numbers_and_texts_survive_the_way_there_and_back() {
    let server = ServerBuilder::with([echo("echo")]).start().await;
    let arguments = json!({
        "large": u64::MAX, "small": i64::MIN, "half": 0.5, "text": "\u{0}\u{1f600}\"\\\u{2028}", "": [[], {}],
    });
    assert_eq!(server.call("echo", arguments.clone()).await, json!({"result": arguments}));
}

#[tokio::test]
async fn arguments_get_their_defaults() {
    let server = ServerBuilder::with(standard_tools()).start().await;
    let response = server.call("create_ticket", json!({"title": "Broken"})).await;
    assert_eq!(response, json!({"result": {"title": "Broken", "priority": "low"}}));
}

#[tokio::test]
async fn exposed_upstream_tools_go_by_both_names_joined() {
    let server = ServerBuilder::new().provider(provider("github", [echo("create_issue")])).start().await;
    let response = server.call("github__create_issue", json!({"title": "x"})).await;
    assert_eq!(response, json!({"result": {"title": "x"}}));
}

#[tokio::test]
async fn a_tool_named_like_a_route_is_called_like_any_other() {
    let server = ServerBuilder::with([echo("list"), echo("health"), echo("prompt")]).start().await;
    for name in ["list", "health", "prompt"] {
        assert_eq!(server.call(name, json!({"a": 1})).await, json!({"result": {"a": 1}}), "{name}");
    }
    let listed = server.send(get("/tools/list")).await.success();
    assert_eq!(listed["tools"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn health_tells_status_and_version() {
    let server = ServerBuilder::new().start().await;
    let expected = json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")});
    assert_eq!(server.send(get("/health")).await.success(), expected);
}

#[tokio::test]
async fn openapi_describes_every_tool_that_is_listed() {
    let (server, _folder) = serving_documents().await;
    let described = server.send(get("/openapi.json")).await.success();
    let methods = |path: &str| {
        let item = described["paths"][path].as_object().unwrap();
        item.keys().map(String::as_str).collect::<Vec<_>>().join(" ")
    };
    let paths: Map<String, Value> = described["paths"].as_object().unwrap().clone();
    let paths: Vec<_> = paths.keys().map(|path| (path.as_str(), methods(path))).collect();
    let expected = [
        ("/health", "get"),
        ("/tools/list", "get"),
        ("/agents/list", "get"),
        ("/agents/{name}/prompt", "post"),
        ("/tools/get", "post"),
        ("/tools/search", "post"),
        ("/tools/sources", "get post"),
    ];
    assert_eq!(paths, expected.map(|(path, methods)| (path, methods.to_owned())));
}

#[tokio::test]
async fn openapi_refers_to_no_schema_that_is_not_there() {
    let server =
        ServerBuilder::with(standard_tools()).provider(provider("ctx", [echo("execute")])).start().await;
    let described = server.send(get("/openapi.json")).await.success();
    let text = described.to_string();
    let references: Vec<&str> = text
        .split("\"$ref\":\"#/components/schemas/")
        .skip(1)
        .map(|rest| &rest[..rest.find('"').unwrap()])
        .collect();
    assert!(references.contains(&"Events") && references.contains(&"Prompt"));
    for reference in references {
        assert!(described["components"]["schemas"][reference].is_object(), "{reference}");
    }
    let required = |name: &str| described["components"]["schemas"][name]["required"].clone();
    assert_eq!(required("echo_response"), json!(["result"]));
    assert_eq!(required("execute_response"), json!(["result", "logs", "meta"]));
}
