//! Results of scripts, and their logs.

use crate::Test;
use crate::bench::{Bench, log_texts};
use ctx_core::{ContentBlock, ErrorKind};
use serde_json::{Value, json};

pub(crate) const TESTS: &[Test] = tests![results:
    every_value_comes_back_whether_it_is_returned_or_given_to_result,
    only_an_object_is_structured_and_every_value_is_shown,
    a_tool_result_passes_as_it_is,
    a_tool_result_that_is_an_error_fails_the_call_with_its_logs,
    a_script_without_a_result_gets_a_hint,
    a_script_with_two_results_fails,
    a_variable_that_hides_result_is_explained,
    logs_come_with_a_result,
    logs_come_with_a_failure,
    execute_is_built_in_and_listed_by_its_bare_name,
];

pub(crate) async fn every_value_comes_back_whether_it_is_returned_or_given_to_result() {
    let bench = Bench::with([]);
    let values = [
        ("{ sum = 10, list = { 1, 2 } }", json!({"sum": 10, "list": [1, 2]})),
        ("{ 'a', 'b' }", json!(["a", "b"])),
        ("json.array({})", json!([])),
        ("'text'", json!("text")),
        ("42", json!(42)),
        ("0.5", json!(0.5)),
        ("false", json!(false)),
        ("json.null", Value::Null),
    ];
    for (script, value) in values {
        assert_eq!(bench.value(&format!("return {script}")).await, value, "{script}");
        assert_eq!(bench.value(&format!("result({script})")).await, value, "{script}");
    }
}

pub(crate) async fn only_an_object_is_structured_and_every_value_is_shown() {
    let bench = Bench::with([]);
    let shown = [
        ("return { sum = 10 }", r#"{"sum":10}"#, true),
        ("return { 1, 2 }", "[1,2]", false),
        ("return 'text'", "text", false),
        ("return 42", "42", false),
    ];
    for (script, text, structured) in shown {
        let output = bench.run(script).await;
        assert_eq!(output.to_blocks(), [ContentBlock::Text(text.to_owned())]);
        assert_eq!(output.structured().is_some(), structured, "{script}");
    }
}

pub(crate) async fn a_tool_result_passes_as_it_is() {
    let bench = Bench::with([]);
    let script = "return { content = { { type = 'text', text = 'hi' }, \
                  { type = 'image', data = 'aGk=', mimeType = 'image/png' } }, \
                  structuredContent = { sum = 10 } }";
    let output = bench.run(script).await;
    assert_eq!(output.value, json!({"sum": 10}));
    let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
    let [ContentBlock::Text(text), ContentBlock::Other(other)] = &output.content[..] else {
        panic!("{:?}", output.content);
    };
    assert_eq!((text.as_str(), Value::Object(other.clone())), ("hi", image));

    let alone = bench.run("return { content = { { type = 'text', text = 'hi' } } }").await;
    assert_eq!(alone.structured(), None);
    assert_eq!(alone.into_data(), json!("hi"));
}

pub(crate) async fn a_tool_result_that_is_an_error_fails_the_call_with_its_logs() {
    let script =
        "print('before') return { content = { { type = 'text', text = 'no luck' } }, isError = true }";
    let error = Bench::with([]).try_run(script).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Tool, "no luck"));
    assert_eq!(log_texts(error.logs()), ["INFO before"]);
}

pub(crate) async fn a_script_without_a_result_gets_a_hint() {
    let message = "script: the script ended without a result: call result(value) once or return a value";
    for script in ["local a = 1", "", "return"] {
        let failure = Bench::with([]).failure(script).await;
        assert_eq!(failure, (ErrorKind::Tool, message.to_owned()), "{script}");
    }
}

pub(crate) async fn a_script_with_two_results_fails() {
    let bench = Bench::with([]);
    let (kind, message) = bench.failure("result(1)\nreturn 2").await;
    assert_eq!(kind, ErrorKind::Tool);
    assert_eq!(
        message,
        "script: the script called result(value) and also returned a value: use only one of them"
    );
    let (kind, message) = bench.failure("result(1)\nresult(2)").await;
    assert_eq!(
        (kind, message.as_str()),
        (ErrorKind::Tool, "script:2: result(value) was already called: call it only once")
    );
}

pub(crate) async fn a_variable_that_hides_result_is_explained() {
    let (kind, message) = Bench::with([]).failure("local result = { 1 }\nresult(result)").await;
    assert_eq!(kind, ErrorKind::Tool);
    assert!(message.starts_with("script:2: attempt to call a table value"), "{message}");
    assert!(message.contains("line 1 declares a variable `result`"), "{message}");
}

pub(crate) async fn logs_come_with_a_result() {
    let output = Bench::with([]).run("print('a', 1)\nlog.warn('b')\nlog.error('c')\nreturn 1").await;
    assert_eq!(log_texts(&output.logs), ["INFO a\t1", "WARN b", "ERROR c"]);
    assert_eq!(log_texts(&Bench::with([]).run("return 1").await.logs), [""; 0]);
}

pub(crate) async fn logs_come_with_a_failure() {
    let error = Bench::with([]).try_run("print('a')\nerror('no')").await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Tool, "script:2: no"));
    assert_eq!(log_texts(error.logs()), ["INFO a"]);
}

pub(crate) async fn execute_is_built_in_and_listed_by_its_bare_name() {
    let bench = Bench::with([]);
    let entry = bench.catalog.entry("execute").unwrap();
    assert_eq!((entry.name.to_string().as_str(), entry.builtin, entry.exposed), ("ctx.execute", true, true));
    assert_eq!(entry.spec.input_schema.get()["required"], json!(["script"]));
}
