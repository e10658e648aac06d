//! The run log: runs are masked and bounded, and internal errors are logged.

use crate::common::{
    Log, Runs, answer, echo, error_of, failing, from_cli, refusal, relay, sleeper, tool, with,
};
use ctx_core::{
    Call, Caller, Catalog, CatalogBuilder, Decision, ErrorKind, Identity, Limits, Redactor, Run, RunOutcome,
    Secret, ToolError, ToolName, ToolSpec,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn build_recorded(builder: CatalogBuilder) -> (Arc<Catalog>, Arc<Runs>) {
    let runs = Arc::new(Runs::default());
    (builder.runs(runs.clone()).build(), runs)
}

fn failed(code: &str, message: &str) -> RunOutcome {
    RunOutcome::Failed { code: code.to_owned(), message: message.to_owned() }
}

/// The run of one call of `echo` with these arguments.
async fn run_of(arguments: Value, redactor: Redactor) -> Run {
    let (catalog, runs) = build_recorded(with([echo("echo")]).redactor(redactor));
    answer(&catalog, "echo", arguments).await;
    let mut runs = runs.take();
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

/// Tool and outcome of each run, in the order they ended.
fn endings(runs: &Runs) -> Vec<(String, RunOutcome)> {
    runs.take().into_iter().map(|run| (run.tool, run.outcome)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_tells_who_called_what_and_how_it_ended() {
    let (catalog, runs) = build_recorded(with([echo("create-ticket")]));
    let call = Call::new(catalog, Caller::Library("bot".to_owned()));
    let id = call.run_id();
    let before = Timestamp::now();
    Catalog::call("create_ticket", json!({"title": "größe"}), call).await.unwrap();

    let runs = runs.take();
    assert!(before <= runs[0].started_at && runs[0].started_at <= Timestamp::now());
    let expected = Run {
        id,
        parent: None,
        tool: "tools.create_ticket".to_owned(),
        caller: "library:bot".to_owned(),
        started_at: runs[0].started_at,
        duration: Duration::ZERO,
        arguments: json!({"title": "größe"}),
        argument_bytes: r#"{"title":"größe"}"#.len(),
        result_bytes: r#"{"title":"größe"}"#.len(),
        outcome: RunOutcome::Ok,
    };
    assert_eq!(runs, [expected]);
}

#[tokio::test(start_paused = true)]
async fn a_run_tells_how_long_it_took() {
    let (catalog, runs) = build_recorded(with([sleeper("nap", 3), sleeper("slow", 100)]));
    answer(&catalog, "nap", json!({})).await;
    refusal(&catalog, "slow", json!({})).await;
    let durations: Vec<_> = runs.take().iter().map(|run| run.duration.as_secs()).collect();
    assert_eq!(durations, [3, 30]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_keeps_code_and_message() {
    let policy = |tool: &ToolName, _: &ToolSpec, _: &Caller, _: Option<&Identity>| match tool.tool().as_str()
    {
        "delete" => Decision::Deny("it deletes".to_owned()),
        _ => Decision::Allow,
    };
    let titled = json!({"type": "object", "required": ["title"]});
    let limits = Limits { argument_bytes: 20, result_bytes: 10, ..Limits::default() };
    let builder = with([failing("fail", "no luck"), echo("delete"), echo("create").schema(titled)])
        .policy(Arc::new(policy))
        .limits(limits);
    let (catalog, runs) = build_recorded(builder);
    refusal(&catalog, "fail", json!({})).await;
    refusal(&catalog, "delete", json!({})).await;
    refusal(&catalog, "create", json!({})).await;
    refusal(&catalog, "create", json!({"title": "12345678901"})).await;
    refusal(&catalog, "create", json!({"title": "1"})).await;

    let recorded = runs.take();
    assert!(recorded.iter().all(|run| run.result_bytes == 0));
    let outcomes: Vec<_> = recorded.into_iter().map(|run| run.outcome).collect();
    let expected = [
        failed("tool_error", "no luck"),
        failed("forbidden", "tools.delete is not allowed: it deletes"),
        failed("bad_request", "missing required parameter: title"),
        failed("too_large", "arguments are 23 bytes; the limit is 20"),
        failed("too_large", "the result is 13 bytes; the limit is 10"),
    ];
    assert_eq!(outcomes, expected);
}

#[tokio::test]
async fn calls_inside_are_recorded_with_their_parent() {
    let (catalog, runs) = build_recorded(with([relay("run"), echo("a"), failing("b", "no luck")]));
    let call = Call::new(catalog, Caller::Http);
    let outermost = call.run_id();
    let calls = json!({"calls": [["a", {}], ["run", {"calls": [["b", {}]]}]]});
    assert_eq!(error_of(Catalog::call("run", calls, call).await).1, "no luck");

    let runs = runs.take();
    let tools: Vec<_> = runs.iter().map(|run| run.tool.as_str()).collect();
    assert_eq!(tools, ["tools.a", "tools.b", "tools.run", "tools.run"]);
    let [a, b, inner, outer] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!((outer.id, outer.parent), (outermost, None));
    assert_eq!((a.parent, inner.parent, b.parent), (Some(outermost), Some(outermost), Some(inner.id)));
    assert!(runs.iter().all(|run| run.caller == "http"));
}

#[tokio::test(start_paused = true)]
async fn a_call_inside_is_recorded_when_time_runs_out() {
    let (catalog, runs) = build_recorded(with([relay("run"), sleeper("slow", 100)]));
    refusal(&catalog, "run", json!({"calls": [["slow", {}]]})).await;
    let outcome = failed("timeout", "tool 'slow' timed out after 30 seconds");
    let expected = [("tools.slow".to_owned(), outcome.clone()), ("tools.run".to_owned(), outcome)];
    assert_eq!(endings(&runs), expected);
}

#[tokio::test(start_paused = true)]
async fn a_call_inside_is_recorded_when_the_caller_cancels() {
    let (catalog, runs) = build_recorded(with([relay("run"), sleeper("slow", 100)]));
    let token = CancellationToken::new();
    let call = from_cli(&catalog).with_cancellation(&token);
    let task = tokio::spawn(Catalog::call("run", json!({"calls": [["slow", {}]]}), call));
    tokio::time::sleep(Duration::from_secs(1)).await;
    token.cancel();
    assert_eq!(error_of(task.await.unwrap()).0, ErrorKind::Cancelled);

    let ended = |message| failed("cancelled", message);
    let expected = [
        ("tools.slow".to_owned(), ended("the caller disconnected")),
        ("tools.run".to_owned(), ended("the call was cancelled")),
    ];
    assert_eq!(endings(&runs), expected);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nobody_waits_for_any_more_is_recorded() {
    let (catalog, runs) = build_recorded(with([sleeper("slow", 100)]));
    let call = Catalog::call("slow", json!({}), from_cli(&catalog));
    assert!(tokio::time::timeout(Duration::from_secs(1), call).await.is_err());
    let outcome = failed("cancelled", "the caller disconnected");
    assert_eq!(endings(&runs), [("tools.slow".to_owned(), outcome)]);
}

#[tokio::test]
async fn a_run_keeps_arguments_as_they_came_without_defaults() {
    let schema = json!({"type": "object", "properties": {"project": {"default": "ENG"}}});
    let (catalog, runs) = build_recorded(with([echo("create").schema(schema)]));
    assert_eq!(answer(&catalog, "create", json!({})).await, json!({"project": "ENG"}));
    assert_eq!(runs.take()[0].arguments, json!({}));
}

#[tokio::test]
async fn secrets_are_masked_in_the_arguments_of_a_run() {
    let arguments = json!({
        "password": "a", "Authorization": "Bearer b", "x-api-key": "c", "apiKey": "d",
        "nested": [{"client_secret": {"whole": "object"}, "token": 7}],
        "note": "it is hunter2hunter2, you know", "max_tokens": 100, "title": "plain",
    });
    let run = run_of(arguments.clone(), Redactor::new([Secret::new("hunter2hunter2")])).await;
    let expected = json!({
        "password": "***", "Authorization": "***", "x-api-key": "***", "apiKey": "***",
        "nested": [{"client_secret": "***", "token": "***"}],
        "note": "it is ***, you know", "max_tokens": 100, "title": "plain",
    });
    assert_eq!((run.arguments, run.argument_bytes), (expected, arguments.to_string().len()));
}

#[tokio::test]
async fn secret_looking_keys_are_known_in_camel_case_too() {
    let arguments = json!({"privateKey": "a", "private_key": "b", "accessToken": "c", "clientSecret": "d"});
    let run = run_of(arguments, Redactor::default()).await;
    let expected =
        json!({"privateKey": "***", "private_key": "***", "accessToken": "***", "clientSecret": "***"});
    assert_eq!(run.arguments, expected);
}

#[tokio::test]
async fn a_tool_gets_the_secrets_that_its_run_masks() {
    let catalog = with([echo("echo")]).redactor(Redactor::new([Secret::new("hunter2hunter2")])).build();
    let arguments = json!({"password": "hunter2hunter2"});
    assert_eq!(answer(&catalog, "echo", arguments.clone()).await, arguments);
}

#[tokio::test]
async fn a_long_argument_is_cut_in_the_run_and_the_rest_stays() {
    let text = "ü".repeat(500_000);
    let run = run_of(json!({"title": "x", "body": text, "token": "s"}), Redactor::default()).await;
    assert!(run.argument_bytes > 1_000_000);
    let body = format!("{}… (1000000 bytes)", "ü".repeat(128));
    assert_eq!(run.arguments, json!({"title": "x", "body": body, "token": "***"}));
}

#[tokio::test]
async fn many_arguments_are_cut_in_the_run() {
    for many in [
        json!({"numbers": (0..100_000).collect::<Vec<_>>()}),
        json!({"texts": vec!["\"quoted\"\n".repeat(100); 1_000]}),
        (0..10_000).map(|n| (format!("key_{n}"), json!(null))).collect(),
        json!({"x".repeat(1_000_000): true}),
    ] {
        let run = run_of(many, Redactor::default()).await;
        let bytes = run.arguments.to_string().len();
        assert!(bytes <= 2 * Limits::default().run_bytes, "{bytes}");
    }
}

#[tokio::test]
async fn a_secret_is_masked_before_a_long_argument_is_cut() {
    let secret = "hunter2".repeat(40);
    let text = format!("{}{secret}{}", "a".repeat(200), "b".repeat(10_000));
    let run = run_of(json!({"text": text}), Redactor::new([Secret::new(secret)])).await;
    let shown = run.arguments.to_string();
    assert!(shown.contains("a***b") && !shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn the_message_of_a_failed_run_is_masked_and_cut() {
    let leaking = tool("leak", |_, _| {
        let message = format!("key hunter2hunter2: {}", "x".repeat(1_000_000));
        Box::pin(async { Err(ToolError::new(ErrorKind::Tool, message)) })
    });
    let redactor = Redactor::new([Secret::new("hunter2hunter2")]);
    let (catalog, runs) = build_recorded(with([leaking]).redactor(redactor));
    refusal(&catalog, "leak", json!({})).await;
    let [(_, RunOutcome::Failed { message, .. })] = &endings(&runs)[..] else { panic!("one failed run") };
    assert!(message.starts_with("key ***: xxx") && message.len() < 5_000, "{message}");
}

#[tokio::test]
async fn a_fault_of_ours_is_logged_with_its_cause_and_without_secrets() {
    let faulty = tool("faulty", |_, _| {
        Box::pin(async { Err(ToolError::internal("the store failed", "disk full at /x?key=hunter2hunter2")) })
    });
    let redactor = Redactor::new([Secret::new("hunter2hunter2")]);
    let catalog = with([faulty]).redactor(redactor).build();
    let log = Log::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let error = refusal(&catalog, "faulty", json!({})).await;
    drop(guard);
    assert_eq!(error, (ErrorKind::Internal, "the store failed".to_owned()));
    let logged = log.text();
    assert!(logged.contains("tool=tools.faulty"), "{logged}");
    assert!(logged.contains("error=the store failed: disk full at /x?key=***"), "{logged}");
}

#[tokio::test]
async fn a_tool_that_panics_fails_alone_and_is_recorded() {
    let broken = tool("broken", |_, _| Box::pin(async { panic!("out of cheese") }));
    let (catalog, runs) = build_recorded(with([broken, echo("echo")]));
    let (kind, message) = refusal(&catalog, "broken", json!({})).await;
    assert_eq!((kind, message.as_str()), (ErrorKind::Internal, "the tool panicked"));
    assert_eq!(endings(&runs), [("tools.broken".to_owned(), failed("internal", "the tool panicked"))]);
    assert!(Catalog::call("echo", json!({}), from_cli(&catalog)).await.is_ok());
}
