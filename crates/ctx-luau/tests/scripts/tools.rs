//! Tools: arguments, results and failures.

use crate::Test;
use crate::bench::{
    Bench, SHORT, VARIABLE, call, call_with_peer, catalog, catalog_of, new_call, tool_source,
};
use async_trait::async_trait;
use ctx_core::{Annotations, ErrorKind, Limits, Peer, Progress, Question, QuestionError, QuestionKind};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests!(tools:
    a_tool_is_called_concurrently,
    a_tool_says_what_it_is,
    empty_tables_are_what_the_schemas_say,
    a_misspelt_argument_is_refused_with_the_nearest_name,
    an_error_names_file_and_line,
    a_timeout_is_reported_with_the_logs,
    only_the_tools_own_deadline_is_a_timeout,
    memory_and_results_have_bounds,
    logs_and_errors_hide_secrets,
    logs_and_progress_are_sent_live,
    an_elicitation_is_sent,
    an_elicitation_of_a_scalar_is_wrapped_and_unwrapped,
    sampling_and_roots_are_requested,
    a_person_may_take_longer_than_the_tool_may,
    the_environment_and_sleep_answer,
    a_rate_limit_holds,
    a_changed_file_is_reloaded,
    an_executed_script_runs_inside_the_call,
);

const ECHO: &str = "tool = { name = 'echo', description = 'Gives back.', parameters = {
    { name = 'message', type = 'string', required = true },
    { name = 'list', type = 'array', items = 'string' } } }
function tool.execute(params, context) return { echo = params.message, list = params.list } end";

async fn a_tool_is_called_concurrently() {
    let bench = Bench::new();
    let catalog = catalog([bench.scripts.tool(&bench.script("echo", ECHO)).await.unwrap()]);
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..32 {
        let catalog = catalog.clone();
        calls.spawn(async move {
            let arguments = json!({"message": format!("m{number}"), "list": []});
            let answer = call(&catalog, "echo", arguments).await.unwrap().value;
            assert_eq!(answer, json!({"echo": format!("m{number}"), "list": []}));
        });
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
    }
}

async fn a_tool_says_what_it_is() {
    let bench = Bench::new();
    let source = "tool = { name = 'x', title = 'Ex', version = '2', description = 'Does x.',
        parameters = { { name = 'a', type = 'string' } },
        annotations = { readOnlyHint = true, open_world = false }, tags = { 'exes', 'two words' },
        output_schema = { type = 'object', properties = { n = { type = 'integer' } } } }
    function tool.execute() return { n = 1 } end";
    let mut settings = bench.script("x", source);
    settings.timeout = Some(Duration::from_secs(7));
    settings.rate_limit = Some("5/m".parse().unwrap());
    let tool = bench.scripts.tool(&settings).await.unwrap();
    let spec = tool.spec();
    assert_eq!((spec.title.as_deref(), spec.description.as_str()), (Some("Ex"), "Does x."));
    let annotations =
        Annotations { read_only: Some(true), open_world: Some(false), ..Annotations::default() };
    assert_eq!(spec.annotations, annotations);
    assert_eq!(spec.tags, ["exes", "two words"]);
    assert_eq!(spec.output_schema.as_ref().unwrap().get()["properties"]["n"], json!({"type": "integer"}));
    assert_eq!((tool.timeout(), tool.rate_limit()), (settings.timeout, settings.rate_limit));
    let described = bench.scripts.describe(&settings).await.unwrap();
    assert_eq!((described.kind.as_str(), described.parameters), ("tool", 1));
    assert_eq!((described.version.as_deref(), described.functions), (Some("2"), vec!["execute".to_owned()]));
}

async fn a_misspelt_argument_is_refused_with_the_nearest_name() {
    let bench = Bench::new();
    let tool = async |name: &str, declares: &str| {
        let source = format!(
            "tool = {{ name = '{name}', description = 'Takes.', {declares} }} function tool.execute() return 1 end"
        );
        bench.scripts.tool(&bench.script(name, &source)).await.unwrap()
    };
    let nested = "parameters = { { name = 'limit', type = 'integer' },
        { name = 'filter', type = 'object', properties = { { name = 'since', type = 'string' } } } }";
    let whole = "schema = { type = 'object', properties = { limit = { type = 'integer' } } }";
    let catalog = catalog([
        tool("nested", nested).await,
        tool("whole", whole).await,
        tool("nothing", "parameters = {}").await,
        tool("anything", "title = 'Any'").await,
    ]);
    for (name, arguments, expected) in [
        ("nested", json!({"limti": 1}), "unknown parameter: limti (did you mean `limit`?)"),
        (
            "nested",
            json!({"filter": {"sinc": "2026"}}),
            "unknown parameter: filter.sinc (did you mean `since`?)",
        ),
        ("whole", json!({"limti": 1}), "unknown parameter: limti (did you mean `limit`?)"),
        ("nothing", json!({"limit": 1}), "unknown parameter: limit"),
    ] {
        let error = call(&catalog, name, arguments).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::BadRequest, expected), "{name}");
    }
    for (name, arguments) in [
        ("nested", json!({"limit": 1, "filter": {"since": "2026"}})),
        ("nothing", json!({})),
        ("anything", json!({"limit": 1})),
    ] {
        assert_eq!(call(&catalog, name, arguments).await.unwrap().value, json!(1), "{name}");
    }
}

async fn empty_tables_are_what_the_schemas_say() {
    let bench = Bench::new();
    assert_eq!(bench.answer("return {}", json!({})).await.unwrap(), json!({}));
    assert_eq!(bench.answer("return json.array({})", json!({})).await.unwrap(), json!([]));
    assert_eq!(
        bench.answer("return params", json!({"a": [], "b": {}})).await.unwrap(),
        json!({"a": [], "b": {}})
    );
    let source = "tool = { name = 'x', output_schema = { type = 'object', properties = {
        found = { type = 'array' }, rest = { type = 'object' } } } }
    function tool.execute() return { found = {}, rest = {} } end";
    let tool = bench.scripts.tool(&bench.script("x", source)).await.unwrap();
    let answer = call(&catalog([tool]), "x", json!({})).await.unwrap().value;
    assert_eq!(answer, json!({"found": [], "rest": {}}));
}

async fn an_error_names_file_and_line() {
    let bench = Bench::new();
    let error = bench.error("\nlocal x = nil\nreturn x.y").await;
    assert_eq!(error.kind(), ErrorKind::Tool);
    assert!(error.message().starts_with("tools/x.lua:4: attempt to index nil"), "{error}");
    let error = bench.error("error('Jira API returned 403: Forbidden', 0)").await;
    assert_eq!(error.message(), "Jira API returned 403: Forbidden");
    // A script that handles an error succeeds.
    let answer = bench.answer("return { error = 'no' }", json!({})).await.unwrap();
    assert_eq!(answer, json!({"error": "no"}));
}

async fn a_timeout_is_reported_with_the_logs() {
    let bench = Bench::new();
    for body in ["print('before') while true do end", "print('before') sleep(100)"] {
        let mut settings = bench.tool_script(body);
        settings.timeout = Some(Duration::from_secs(1));
        let tool = bench.scripts.tool(&settings).await.unwrap();
        let error = call(&catalog([tool]), "x", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(error.message(), "tool 'x' timed out after 1 second");
        let logs: Vec<_> = error.logs().iter().map(|line| line.message.as_str()).collect();
        assert_eq!(logs, ["before"]);
    }
}

async fn only_the_tools_own_deadline_is_a_timeout() {
    let bench = Bench::new();
    let slow = ctx_testkit::tool("slow", |_, _| Box::pin(std::future::pending())).with_timeout(SHORT);
    let tool = bench.tool("return sdk.others.slow()").await;
    let catalog = catalog_of([tool], [], [ctx_testkit::provider("others", [slow])], Limits::default());
    let error = call(&catalog, "x", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tool);
    assert!(error.message().contains("tool 'others__slow' timed out after 0.3 seconds"), "{error}");
}

async fn memory_and_results_have_bounds() {
    let bench = Bench::new();
    let error =
        bench.error("local t = {} while true do t[#t + 1] = string.rep('x', 1000000) .. #t end").await;
    assert_eq!(error.kind(), ErrorKind::Tool);
    assert!(error.message().contains("64 MB of memory"), "{error}");
    let error = bench.error("return string.rep('x', 2000000)").await;
    assert!(error.kind() == ErrorKind::Tool && error.message().starts_with("tools/x.lua: "), "{error}");
    let error = bench.error("return { f = function() end }").await;
    assert!(error.message().contains("result.f"), "{error}");
}

async fn logs_and_errors_hide_secrets() {
    let bench = Bench::new();
    let body = "print('hunter2hunter2 ' .. env.get('SECRET_VARIABLE')) error('hunter2hunter2 whispered')";
    let error = bench.error(body).await;
    assert_eq!(error.message(), "tools/x.lua:2: *** ***");
    assert_eq!(error.logs()[0].message, "*** ***");
}

#[derive(Default)]
struct Listener {
    received: Mutex<Vec<String>>,
    answers: Option<Value>,
    delay: Duration,
}

#[async_trait]
impl Peer for Listener {
    fn progress(&self, progress: Progress) {
        self.received.lock().unwrap().push(format!("{} of {:?}", progress.done, progress.total));
    }

    fn log(&self, level: tracing::Level, message: &str) {
        self.received.lock().unwrap().push(format!("{level} {message}"));
    }

    async fn ask(&self, question: Question) -> Result<Value, QuestionError> {
        let received = match question.kind {
            QuestionKind::Elicitation { message, schema } => format!("{message} {schema}"),
            QuestionKind::Sampling(request) => json!(request).to_string(),
            QuestionKind::Roots => "roots".to_owned(),
        };
        let key = question.key.map_or_else(String::new, |key| format!("{key}: "));
        self.received.lock().unwrap().push(format!("{key}{received}"));
        tokio::time::sleep(self.delay).await;
        self.answers.clone().ok_or(QuestionError::Unsupported)
    }
}

async fn logs_and_progress_are_sent_live() {
    let bench = Bench::new();
    let body = "log.warn('a hunter2hunter2') context.progress(1, 2, 'half') print('b') return 1";
    let peer = Arc::new(Listener::default());
    let output = call_with_peer(&catalog([bench.tool(body).await]), "x", peer.clone()).await.unwrap();
    assert_eq!(*peer.received.lock().unwrap(), ["WARN a ***", "1 of Some(2.0)", "INFO b"]);
    assert!(output.logs.is_empty(), "only `execute` answers with its logs");
}

async fn an_elicitation_is_sent() {
    let bench = Bench::new();
    let body =
        "return context.elicit('Sure?', { properties = { sure = { type = 'boolean' } }, required = {} })";
    let catalog = catalog([bench.tool(body).await]);
    let peer = Arc::new(Listener { answers: Some(json!({"sure": true})), ..Listener::default() });
    let output = call_with_peer(&catalog, "x", peer.clone()).await.unwrap();
    assert_eq!(output.value, json!({"sure": true}));
    let received = peer.received.lock().unwrap().join("");
    let schema: Value = serde_json::from_str(received.strip_prefix("Sure? ").unwrap()).unwrap();
    let fields = json!({"sure": {"type": "boolean"}});
    assert_eq!(schema, json!({"type": "object", "properties": fields, "required": []}));
    let error = call_with_peer(&catalog, "x", Arc::new(Listener::default())).await.unwrap_err();
    assert!(
        error
            .message()
            .contains("tools/x.lua:2: context.elicit: the client does not support this kind of question"),
        "{error}"
    );
    assert_eq!(error.question_error(), Some(QuestionError::Unsupported));
}

async fn an_elicitation_of_a_scalar_is_wrapped_and_unwrapped() {
    let bench = Bench::new();
    let body = "return context.elicit('Sure?', { type = 'boolean' }, { key = 'sure' })";
    let catalog = catalog([bench.tool(body).await]);
    let peer = Arc::new(Listener { answers: Some(json!({"value": true})), ..Listener::default() });
    let output = call_with_peer(&catalog, "x", peer.clone()).await.unwrap();
    assert_eq!(output.value, json!(true));
    let received = peer.received.lock().unwrap().join("");
    assert!(received.starts_with("sure: Sure? {\"type\":\"object\""), "{received}");
}

async fn sampling_and_roots_are_requested() {
    let bench = Bench::new();
    let body = "local said = context.sample('Why?', { key = 'why' }) return { said, context.roots() }";
    let catalog = catalog([bench.tool(body).await]);
    let peer = Arc::new(Listener { answers: Some(json!(["x"])), ..Listener::default() });
    let output = call_with_peer(&catalog, "x", peer.clone()).await.unwrap();
    assert_eq!(output.value, json!([["x"], ["x"]]));
    let received = peer.received.lock().unwrap().clone();
    let request: Value = serde_json::from_str(received[0].strip_prefix("why: ").unwrap()).unwrap();
    let message = json!({"role": "user", "content": {"type": "text", "text": "Why?"}});
    assert_eq!(request, json!({"messages": [message], "maxTokens": 1000}));
    assert_eq!(received[1], "roots");
}

async fn a_person_may_take_longer_than_the_tool_may() {
    let bench = Bench::new();
    let body = "local answer = context.elicit('Sure?') return { answer, sdk.others.echo({ n = 1 }) }";
    let mut settings = bench.tool_script(body);
    settings.timeout = Some(Duration::from_secs(2));
    let tool = bench.scripts.tool(&settings).await.unwrap();
    let others = ctx_testkit::provider("others", [ctx_testkit::echo("echo")]);
    let catalog = catalog_of([tool], [], [others], Limits::default());
    let delay = Duration::from_secs(3);
    let peer = Arc::new(Listener { answers: Some(json!("yes")), delay, ..Listener::default() });
    let output = call_with_peer(&catalog, "x", peer).await.unwrap();
    assert_eq!(output.value, json!(["yes", {"n": 1}]));
}

async fn the_environment_and_sleep_answer() {
    let bench = Bench::new();
    let body =
        "sleep(0.01) return { env.get('SECRET_VARIABLE'), env.get('HOME') == nil, env.get('a=b') == nil }";
    let answer = bench.answer(body, json!({})).await.unwrap();
    assert_eq!(answer, json!([VARIABLE.1, true, true]));
}

async fn a_rate_limit_holds() {
    let bench = Bench::new();
    let mut settings = bench.tool_script("return 1");
    settings.rate_limit = Some("1/h".parse().unwrap());
    let catalog = catalog([bench.scripts.tool(&settings).await.unwrap()]);
    call(&catalog, "x", json!({})).await.unwrap();
    assert_eq!(call(&catalog, "x", json!({})).await.unwrap_err().kind(), ErrorKind::RateLimited);
}

async fn a_changed_file_is_reloaded() {
    let bench = Bench::new();
    let settings = bench.tool_script("return 1");
    let old = bench.scripts.tool(&settings).await.unwrap();
    bench.tool_script("return 2");
    let new = bench.scripts.tool(&settings).await.unwrap();
    assert_eq!(call(&catalog([old]), "x", json!({})).await.unwrap().value, json!(1));
    assert_eq!(call(&catalog([new]), "x", json!({})).await.unwrap().value, json!(2));
}

async fn an_executed_script_runs_inside_the_call() {
    let bench = Bench::new();
    let double = bench.script("double", &tool_source("double", "return params.n * 2"));
    let double = bench.scripts.tool(&double).await.unwrap();
    let others = ctx_testkit::provider("others", [ctx_testkit::echo("same"), ctx_testkit::echo("raw-name")]);
    let catalog = catalog_of([double], [], [others], Limits::default());
    let call = new_call(&catalog);
    let completed = bench
        .scripts
        .execute(
            "local promise = others.same({ tags = {} })
            print('hello')
            result({ sdk.tools.double({ n = 21 }), promise:await(), sdk.others['raw-name']({ a = 1 }) })",
            &call,
        )
        .await
        .unwrap();
    assert_eq!(completed.value, json!([42, {"tags": {}}, {"a": 1}]));
    assert_eq!(completed.logs[0].message, "hello");
    let error = bench.scripts.execute("local x = nil\nreturn x.y", &call).await.unwrap_err();
    assert!(error.message.starts_with("script:2: "), "{error}");
    for api in ["http.get('http://127.0.0.1')", "fs.read('x')", "env.get('HOME')"] {
        let error = bench.scripts.execute(&format!("return {api}"), &call).await.unwrap_err();
        assert!(error.message.contains("there is no `"), "{error}");
    }
}
