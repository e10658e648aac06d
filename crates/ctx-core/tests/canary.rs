//! Redaction canaries for the catalog: 20 secrets in 14 encodings, checked on every output of a call.
#![allow(clippy::print_stdout, reason = "the suite reports its coverage")]

use crate::common::{Log, Runs, relay, tool, with};
use ctx_core::{Call, Caller, Catalog, ErrorKind, LogLine, Output, Redactor, Secret, ToolError};
use ctx_testkit::{CANARIES, CANARY_FORMS, TestTool, canary_leaks, canary_text};
use serde_json::{Value, json};
use std::sync::Arc;

fn log_line() -> LogLine {
    LogLine { level: tracing::Level::WARN, message: canary_text() }
}

fn failing_tool(name: &str, kind: ErrorKind) -> TestTool {
    tool(name, move |_, _| {
        Box::pin(async move {
            let data = json!({ "value": canary_text(), canary_text(): [canary_text()] });
            Err(ToolError::new(kind, canary_text()).with_data(data).with_logs(vec![log_line()]))
        })
    })
}

#[tokio::test]
async fn no_canary_leaves_by_the_door() {
    let redactor = Redactor::new(CANARIES.map(Secret::new));
    let logging = tool("logging", |_, _| {
        Box::pin(async move { Ok(Output { logs: vec![log_line()], ..Output::from(Value::Null) }) })
    });
    let faulty = failing_tool("faulty", ErrorKind::Internal);
    let tools = [failing_tool("failing", ErrorKind::Tool), faulty, logging, relay("relay")];
    let runs = Arc::new(Runs::default());
    let catalog = with(tools).redactor(redactor.clone()).runs(runs.clone()).build();
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let call = async |name: &str, arguments: Value| {
        Catalog::call(name, arguments, Call::new(catalog.clone(), Caller::Library("test".to_owned()))).await
    };

    let failed = call("failing", json!({})).await.unwrap_err();
    let inner =
        call("relay", json!({ "calls": [["failing", { "note": canary_text() }]] })).await.unwrap_err();
    let internal = call("faulty", json!({})).await.unwrap_err();
    let answered =
        call("logging", json!({ "note": canary_text(), canary_text(): [canary_text()] })).await.unwrap();
    let unknown = call(CANARIES[0], json!({})).await.unwrap_err();
    let texts = |lines: &[LogLine]| lines.iter().map(|line| line.message.clone()).collect::<String>();
    let data = |error: &ToolError| error.data().map(Value::to_string).unwrap_or_default();
    let runs = format!("{:?}", runs.take());
    let surfaces = [
        ("a text", redactor.text(canary_text())),
        ("a value of JSON", redactor.json(&json!([canary_text()])).to_string()),
        ("a name in JSON", redactor.json(&json!({ canary_text(): 1 })).to_string()),
        ("JSON as a text", redactor.text(json!({ "a": canary_text() }).to_string())),
        ("an error's message", failed.message().to_owned()),
        ("an error's data", data(&failed)),
        ("an error's log", texts(failed.logs())),
        ("an inner error's message", inner.message().to_owned()),
        ("an inner error's data", data(&inner)),
        ("a fault's message", internal.message().to_owned()),
        ("our log of a fault", log.text()),
        ("an answer's log", texts(&answered.logs)),
        ("runs: arguments, names and outcomes", runs),
        ("the name of an unknown tool", unknown.message().to_owned()),
    ];
    for (name, text) in &surfaces {
        assert_eq!(canary_leaks(text), Vec::<String>::new(), "{name}: {text}");
        assert!(text.contains("***"), "{name}: {text}");
    }
    // The last surface has one canary in one encoding.
    let paths = (surfaces.len() - 1) * CANARY_FORMS.len() + 1;
    println!("canaries at the door: {} secrets x {paths} paths, none got out", CANARIES.len());
}
