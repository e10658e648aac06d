//! Prompts and resources of the test server, valid and invalid.

use serde_json::{Value, json};

pub(crate) const DATA: &str = "file:///data.json";

pub(crate) const METHODS: [&str; 6] = [
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
];

/// The response to a request; `None` if there is none.
pub(crate) fn answer(
    kind: &str,
    method: &str,
    params: &Value,
    more_prompts: bool,
) -> Option<Result<Value, Value>> {
    if kind == "lists_nothing" && method.ends_with("/list") {
        return None;
    }
    Some(Ok(match method {
        "resources/list" => resources(kind, params),
        "resources/templates/list" => json!({"resourceTemplates": [
            {"uriTemplate": "file:///{path}", "name": "file", "title": "File"},
            {"uriTemplate": "file:///{path}", "name": "again"},
            {"name": "no form"},
        ]}),
        "resources/read" if params["uri"] == DATA => json!({"contents": [
            {"uri": DATA, "mimeType": "application/json", "text": "{}", "_meta": {"page": 1}},
            {"uri": "file:///picture", "mimeType": "image/png", "blob": "AA=="},
        ]}),
        "resources/read" => return Some(Err(json!({"code": -32002, "message": "Resource not found"}))),
        "prompts/list" => {
            let mut prompts = json!([
                {"name": "greet", "title": "Greeting", "description": "Greets",
                 "arguments": [{"name": "who", "description": "whom", "required": true}]},
                {"name": "a/b"},
                {"description": "nameless"},
                {"name": ""},
                {"name": "greet", "description": "again"},
                {"name": "line\nbreak"},
            ]);
            if let Some(prompts) = prompts.as_array_mut().filter(|_| more_prompts) {
                prompts.push(json!({"name": "late"}));
            }
            json!({ "prompts": prompts })
        }
        "prompts/get" => {
            let who = format!("{} {}", params["name"].as_str()?, params["arguments"]["who"].as_str()?);
            let text = json!({"type": "text", "text": who});
            let resource = json!({"type": "resource", "resource": {"uri": DATA, "text": "{}"}});
            let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
            json!({"messages": [
                {"role": "user", "content": text},
                {"role": "assistant", "content": resource},
                {"role": "user", "content": image},
            ]})
        }
        _ => {
            let reference = params["ref"]["uri"].as_str().or(params["ref"]["name"].as_str())?;
            let value = format!("{reference} {} {}", params["argument"]["name"], params["argument"]["value"]);
            json!({"completion": {"values": [value], "total": 7, "hasMore": true}})
        }
    }))
}

fn resources(kind: &str, params: &Value) -> Value {
    let resource = |uri: String| json!({"uri": uri, "name": "r"});
    let cursor = params["cursor"].as_str();
    match (kind, cursor) {
        ("crowded", _) => {
            let all: Vec<Value> = (0..10_000).map(|number| resource(format!("r:{number}"))).collect();
            json!({ "resources": all })
        }
        ("endless_resources", _) => {
            let number: usize = cursor.map_or(0, |cursor| cursor.parse().unwrap());
            json!({"resources": [resource(format!("r:{number}"))], "nextCursor": (number + 1).to_string()})
        }
        (_, None) => json!({"nextCursor": "", "resources": [
            {"uri": DATA, "name": "data", "title": "Data", "mimeType": "application/json", "size": 2,
             "annotations": {"priority": 0.5}, "_meta": {"kept": true}},
            {"uri": DATA, "name": "again"},
            {"uri": "file:///a b", "name": "spaced"},
            {"uri": "file:///a\nb", "name": "broken"},
            {"name": "nowhere"},
            7,
        ]}),
        (_, Some(_)) => json!({"resources": [resource("file:///second".to_owned())]}),
    }
}

/// A result that refers to resources in every way there is.
pub(crate) fn links() -> Value {
    json!({
        "content": [
            {"type": "resource_link", "uri": DATA, "name": "data"},
            {"type": "resource", "resource": {"uri": DATA, "text": DATA}},
            {"type": "resource", "resource": {"uri": "mcp://inner/file:///x", "blob": "AA=="}},
            {"type": "text", "text": DATA},
        ],
    })
}
