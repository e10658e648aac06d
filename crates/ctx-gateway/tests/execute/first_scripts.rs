//! Scripts as language models write them at the first try, from the list of tools alone, with their usual slips. Each
//! gives the value that its author wants, or one message that leads there: no slip is answered with a wrong value.
//!
//! The first line of a script in `tests/first_scripts` says what its author wants, the second what must come of it:
//! `--! value: JSON`, or `--! error: a part of the message`.

use crate::bench::{Bench, limits, settings};
use ctx_core::{ErrorKind, Output, ToolError};
use ctx_testkit::{TestTool, provider, tool};
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) const TESTS: &[crate::Test] =
    tests![first_scripts: every_first_script_gives_its_value_or_says_why_not];

const ORDERS: &str = r#"[{"id": 1, "customer": "ada@example.com", "total": 30.5, "status": "open"},
    {"id": 2, "customer": "bob@example.com", "total": 12, "status": "paid"},
    {"id": 3, "customer": "ada@example.com", "total": 7.25, "status": "open"}]"#;
const CUSTOMERS: &str = r#"[{"email": "ada@example.com", "name": "Ada", "city": "London"},
    {"email": "bob@example.com", "name": "Bob", "city": "Paris"}]"#;

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn function(name: &str, schema: Value, answer: fn(&Value) -> Result<Value, String>) -> TestTool {
    let to_result = move |arguments: &Value| match answer(arguments) {
        Ok(value) => Ok(Output::from(value)),
        Err(message) => Err(ToolError::new(ErrorKind::Tool, message)),
    };
    tool(name, move |arguments, _| {
        let answer = to_result(&Value::Object(arguments));
        Box::pin(async move { answer })
    })
    .schema(schema)
}

fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn orders(arguments: &Value) -> Vec<Value> {
    let is_wanted = |order: &Value| arguments["status"].is_null() || arguments["status"] == order["status"];
    let limit = arguments["limit"].as_u64().unwrap_or(100) as usize;
    rows(ORDERS).into_iter().filter(is_wanted).take(limit).collect()
}

fn bench() -> Bench {
    let status = json!({"type": "string", "enum": ["open", "paid", "cancelled"]});
    let id = json!({"type": "integer"});
    let text = json!({"type": "string"});
    let shop = [
        function(
            "list_orders",
            object(json!({"status": status, "limit": {"type": "integer"}}), &[]),
            |arguments| Ok(Value::Array(orders(arguments))),
        ),
        function("get_order", object(json!({"id": id}), &["id"]), |arguments| {
            let order = rows(ORDERS).into_iter().find(|order| order["id"] == arguments["id"]);
            let mut order = order.ok_or_else(|| format!("there is no order {}", arguments["id"]))?;
            order["items"] = json!(["tea", "cup"]);
            Ok(order)
        }),
        function(
            "create_order",
            object(
                json!({"customer": text, "items": {"type": "array", "items": text}, "note": text}),
                &["customer", "items"],
            ),
            |_| Ok(json!({"id": 4, "status": "open"})),
        ),
        function("cancel_order", object(json!({"id": id, "reason": text}), &["id"]), |arguments| {
            match arguments["id"].as_u64() {
                Some(99) => Err("order 99 was shipped".to_owned()),
                _ => Ok(json!({"id": arguments["id"], "status": "cancelled"})),
            }
        }),
        function("count_orders", object(json!({"status": status}), &[]), |arguments| {
            Ok(json!(orders(arguments).len()))
        }),
        function("report", object(json!({"month": text}), &["month"]), |arguments| {
            Ok(json!(json!({"month": arguments["month"], "revenue": 49.75}).to_string()))
        }),
    ];
    let crm = [
        function("find_customer", object(json!({"email": text}), &["email"]), |arguments| {
            let found = rows(CUSTOMERS).into_iter().find(|customer| customer["email"] == arguments["email"]);
            found.ok_or_else(|| format!("there is no customer {}", arguments["email"]))
        }),
        function("list_customers", object(json!({}), &[]), |_| Ok(Value::Array(rows(CUSTOMERS)))),
    ];
    let channel = json!({"type": "string", "enum": ["general", "sales"]});
    let tools =
        [function("notify", object(json!({"message": text, "channel": channel}), &["message"]), |_| {
            Ok(json!({"sent": true}))
        })];
    let context = [function(
        "search",
        object(
            json!({"query": text, "limit": {"type": "integer"}, "filters": {"type": "object"}}),
            &["query"],
        ),
        |arguments| Ok(json!({"results": [{"title": "Refunds", "snippet": arguments["query"]}]})),
    )];
    let providers = vec![
        provider("shop", shop),
        provider("crm", crm),
        provider("tools", tools),
        provider("context", context),
    ];
    Bench::of(settings(), limits(), providers)
}

pub(crate) async fn every_first_script_gives_its_value_or_says_why_not() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/first_scripts");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let bench = bench();
    let mut wrong = Vec::new();
    for path in &paths {
        let script = std::fs::read_to_string(path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy();
        let expected = script.lines().nth(1).unwrap_or_default();
        let outcome = bench.try_run(&script).await;
        let holds = match (&outcome, expected.split_once(": ")) {
            (Ok(output), Some(("--! value", json))) => {
                serde_json::from_str(json).ok().as_ref() == Some(&output.value)
            }
            (Err(error), Some(("--! error", part))) => error.message().contains(part),
            _ => false,
        };
        if !holds {
            let outcome = match outcome {
                Ok(output) => format!("value: {}", output.value),
                Err(error) => format!("error: {}", error.message()),
            };
            wrong.push(format!("{name}\n    {expected}\n    {outcome}"));
        }
    }
    eprintln!("{} first scripts", paths.len());
    assert!(paths.len() >= 80 && wrong.is_empty(), "{}", wrong.join("\n"));
}
