//! Kept results, which are too large for an answer.

use crate::Test;
use crate::bench::{Bench, limits, settings};
use ctx_core::{Call, Caller, Catalog, ContentBlock, ErrorKind, Identity, Limits, Output};
use ctx_testkit::{echo, provider};
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum size of an answer in these tests.
const ANSWER_BYTES: usize = 1_000;

/// A result of three hundred items.
const ISSUES: &str = "local issues = {}\n\
    for n = 1, 300 do issues[n] = { id = n, title = 'issue ' .. n } end\n\
    return { issues = issues, total = 300 }";

pub(crate) const TESTS: &[Test] = tests![kept:
    a_result_too_large_for_an_answer_is_kept_and_summarized,
    a_result_that_fits_comes_whole,
    a_later_script_reads_any_part,
    a_missing_part_is_reported_with_the_nearest_key,
    nested_calls_and_terminals_get_the_whole_result,
    texts_count_towards_the_size_and_images_do_not,
    only_its_owner_reads_a_kept_result,
    a_kept_result_is_a_resource,
    the_result_tool_is_for_scripts_and_shadows_no_other_tool,
];

fn bench() -> Bench {
    let call_limits = Limits { answer_bytes: ANSWER_BYTES, ..Limits::default() };
    Bench::with_limits(settings(), limits(), call_limits, vec![provider("tools", [echo("result")])])
}

fn text(output: &Output) -> &str {
    match &output.content[..] {
        [ContentBlock::Text(text)] => text,
        other => panic!("{other:?}"),
    }
}

/// The id under which a script's result is kept.
async fn keep_result(bench: &Bench, script: &str) -> String {
    let output = bench.run(script).await;
    output.value["kept"]["id"].as_str().unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

async fn part(bench: &Bench, arguments: &str) -> Value {
    bench.value(&format!("return sdk.ctx.result{{ {arguments} }}")).await
}

pub(crate) async fn a_result_too_large_for_an_answer_is_kept_and_summarized() {
    let output = bench().run(&format!("print('made') {ISSUES}")).await;
    let summary = &output.value["kept"];
    let id = summary["id"].as_str().unwrap();
    assert_eq!(summary["uri"], format!("ctx://result/{id}"));
    assert_eq!(summary["shape"], "{ issues: [ 300 × { id: number, title: string } ], total: number }");
    assert!(summary["bytes"].as_u64().unwrap() > ANSWER_BYTES as u64);
    let text = text(&output);
    for part in [
        "the limit is 1000 (limits.answer_bytes)",
        "shape: { issues: [ 300 × { id: number, title: string } ], total: number }\n",
        "preview: {\"issues\":[{\"id\":1,\"title\":\"issue 1\"},",
        &format!("`sdk.ctx.result{{ id = \"{id}\", path = \"issues[1]\" }}`"),
        &format!("`sdk.ctx.result{{ id = \"{id}\", path = \"issues\", from = 1, count = 20 }}`"),
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(output.logs.len(), 1);
}

pub(crate) async fn a_result_that_fits_comes_whole() {
    let bench = bench();
    let fitting = "x".repeat(ANSWER_BYTES - 2);
    assert_eq!(bench.value(&format!("return '{fitting}'")).await, json!(fitting));
    keep_result(&bench, &format!("return '{fitting}x'")).await;
}

pub(crate) async fn a_later_script_reads_any_part() {
    let bench = bench();
    let id = keep_result(&bench, ISSUES).await;
    assert_eq!(part(&bench, &format!("id = '{id}', path = 'issues[300].title'")).await, json!("issue 300"));
    let some = part(&bench, &format!("id = '{id}', path = 'issues', from = 299, count = 20")).await;
    assert_eq!(some, json!([{"id": 299, "title": "issue 299"}, {"id": 300, "title": "issue 300"}]));
    let sum = format!(
        "local sum = 0\nfor _, issue in ipairs(sdk.ctx.result{{ id = '{id}' }}.issues) do sum += issue.id end\n\
         return sum"
    );
    assert_eq!(bench.value(&sum).await, json!(45_150));

    let id = keep_result(&bench, "return { ['a \"b\\\\'] = string.rep('ö', 1000), small = 1 }").await;
    assert_eq!(
        part(&bench, &format!(r#"id = '{id}', path = '["a \\"b\\\\"]', from = 999"#)).await,
        json!("öö")
    );
}

pub(crate) async fn a_missing_part_is_reported_with_the_nearest_key() {
    let bench = bench();
    let id = keep_result(&bench, ISSUES).await;
    let failure =
        async |arguments: &str| bench.failure(&format!("return sdk.ctx.result{{ {arguments} }}")).await.1;
    let message = failure(&format!("id = '{id}', path = 'issues[1].titel'")).await;
    assert!(message.contains("`issues[1]` has no `titel` (did you mean `title`?)"), "{message}");
    let message = failure("id = 'gone'").await;
    assert!(message.contains("no result is kept under the id gone"), "{message}");
}

pub(crate) async fn nested_calls_and_terminals_get_the_whole_result() {
    let bench = bench();
    let inner = format!("return #sdk.ctx.execute{{ script = [==[{ISSUES}]==] }}.issues");
    assert_eq!(bench.value(&inner).await, json!(300));
    let call = Call::new(bench.catalog.clone(), Caller::Cli);
    let output = Catalog::call("execute", json!({ "script": ISSUES }), call).await.unwrap();
    assert_eq!(output.value["total"], 300);
}

pub(crate) async fn texts_count_towards_the_size_and_images_do_not() {
    let bench = bench();
    let block = |block: &str| format!("return {{ content = {{ {block} }} }}");
    let image = block("{ type = 'image', data = string.rep('a', 4000), mimeType = 'image/png' }");
    assert!(matches!(&bench.run(&image).await.content[..], [ContentBlock::Other(_)]));
    let id = keep_result(&bench, &block("{ type = 'text', text = string.rep('a', 4000) }")).await;
    let read = part(&bench, &format!("id = '{id}', path = 'content[1].text', count = 3")).await;
    assert_eq!(read, json!("aaa"));
}

pub(crate) async fn only_its_owner_reads_a_kept_result() {
    let bench = bench();
    let call_of = |subject: &str| {
        let identity = Identity { subject: subject.to_owned(), ..Identity::default() };
        bench.call().with_identity(Arc::new(identity))
    };
    let output = Catalog::call("execute", json!({ "script": ISSUES }), call_of("me")).await.unwrap();
    let uri = output.value["kept"]["uri"].as_str().unwrap();
    let script =
        format!("return sdk.ctx.result{{ id = '{}', path = 'total' }}", &uri["ctx://result/".len()..]);
    let read = async |call| Catalog::call("execute", json!({ "script": script }), call).await;
    assert_eq!(read(call_of("me")).await.unwrap().value, json!(300));
    for other in [call_of("them"), bench.call()] {
        assert!(read(other).await.unwrap_err().message().contains("no result is kept"));
    }
    assert!(Catalog::read(uri, call_of("me")).await.is_ok());
    assert_eq!(Catalog::read(uri, call_of("them")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

pub(crate) async fn a_kept_result_is_a_resource() {
    let bench = bench();
    let id = keep_result(&bench, ISSUES).await;
    let contents = Catalog::read(&format!("ctx://result/{id}"), bench.call()).await.unwrap();
    let [content] = &contents[..] else { panic!("{contents:?}") };
    assert_eq!(content.mime_type.as_deref(), Some("application/json"));
    let value: Value = serde_json::from_str(content.text.as_ref().unwrap()).unwrap();
    assert_eq!(value["issues"][299]["id"], 300);
    let missing = Catalog::read("ctx://result/gone", bench.call()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let templates: Vec<String> = bench
        .catalog
        .resources()
        .iter()
        .flat_map(|origin| origin.templates())
        .map(|template| template.uri_template)
        .collect();
    assert!(templates.contains(&"ctx://result/{id}".to_owned()), "{templates:?}");
}

pub(crate) async fn the_result_tool_is_for_scripts_and_shadows_no_other_tool() {
    let bench = bench();
    let listed_names: Vec<String> =
        bench.catalog.client_tools().map(|entry| entry.name.to_string()).collect();
    assert!(!listed_names.contains(&"ctx.result".to_owned()), "{listed_names:?}");
    // The test's own provider has a tool of that name, too.
    assert_eq!(bench.catalog.entry("result").unwrap().name.to_string(), "tools.result");
    assert_eq!(bench.value("return sdk.tools.result{ a = 1 }").await, json!({"a": 1}));
    let docs = Catalog::call("get_function_docs", json!({"name": "ctx.result"}), bench.call()).await.unwrap();
    assert!(docs.value.as_str().unwrap().contains("function sdk.ctx.result(params: { "), "{docs:?}");
}
