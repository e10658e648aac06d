//! Calls of a well-behaved server.

use crate::fixture::{RecordingPeer, UpstreamFixture, options, settings, until};
use crate::harness::Test;
use ctx_core::{Call, Caller, Catalog, Decision, ErrorKind, Identity, Run, RunLog, ToolName, ToolSpec};
use ctx_mcp::{StartMode, ToolFilter, Transport, UpstreamState, Upstreams};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![calls:
    a_tool_answers_with_data_text_or_blocks,
    a_failure_is_the_tools_and_names_the_server,
    calls_run_concurrently,
    credentials_of_a_call_are_not_passed_on,
    progress_and_logs_reach_the_caller,
    questions_reach_whoever_called_and_nobody_else,
    unanswered_questions_do_not_block_a_server,
    a_call_that_times_out_is_cancelled_at_the_server,
    a_changed_tool_list_is_listed_again,
    only_tools_that_the_filter_allows_are_provided,
    a_process_gets_the_environment_it_is_given_and_no_more,
    a_lazy_server_sleeps_until_it_is_called,
    calls_beyond_the_bound_wait_and_then_are_refused,
    a_call_before_the_handshake_waits_for_it,
    an_early_call_is_validated_judged_and_recorded_as_the_real_tool,
];

fn text(value: &str) -> Value {
    json!(value)
}

async fn a_tool_answers_with_data_text_or_blocks() {
    let fixture = UpstreamFixture::of("good").await;
    assert_eq!(fixture.state(), UpstreamState::Ready);
    assert_eq!(fixture.changes.load(Ordering::SeqCst), 1);
    let data = async |tool, arguments| fixture.call(tool, arguments).await.unwrap().into_data();
    assert_eq!(data("echo", json!({"text": "[1]"})).await, text("[1]"));
    assert_eq!(data("structured", json!({})).await, json!({"sum": 3}));
    let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
    assert_eq!(data("several", json!({})).await, json!(["one", image]));
    let status = fixture.upstreams.statuses().remove(0);
    assert_eq!(
        (status.server.as_deref(), status.protocol.as_deref()),
        (Some("obedient 1.0"), Some("2025-11-25"))
    );
}

async fn a_failure_is_the_tools_and_names_the_server() {
    let fixture = UpstreamFixture::of("good").await;
    for (tool, kind, message) in [
        ("fails", ErrorKind::Tool, "up: the disk is full"),
        ("refuses", ErrorKind::BadRequest, "up: bad x"),
        ("huge", ErrorKind::Tool, "up: its answer is longer than 8388608 bytes"),
    ] {
        let error = fixture.call(tool, json!({})).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, message));
    }
    let error = fixture.call("unreadable", json!({})).await.unwrap_err();
    assert!(error.message().starts_with("up: its answer cannot be read"), "{error}");
    assert_eq!(
        fixture.call("echo", json!({"text": "still there"})).await.unwrap().into_data(),
        text("still there")
    );
}

async fn credentials_of_a_call_are_not_passed_on() {
    let fixture = UpstreamFixture::of("good").await;
    let auth = json!({"up": {"type": "bearer", "token": "hunter2!"}}).as_object().unwrap().clone();
    let call = Call::new(fixture.catalog(), Caller::Cli).with_auth(auth);
    let reported = Catalog::call("up.parameters", json!({"a": 1}), call).await.unwrap().into_data();
    let reported = reported.as_str().unwrap();
    assert!(
        reported.contains(r#""a":1"#) && !reported.contains("hunter2") && !reported.contains("auth"),
        "{reported}"
    );
}

async fn calls_run_concurrently() {
    let fixture = Arc::new(UpstreamFixture::of("good").await);
    let never = tokio::spawn({
        let fixture = fixture.clone();
        async move { fixture.call("slow", json!({})).await }
    });
    until("the slow call is there", || fixture.count_noted("slow") == 1).await;
    let all = (0..100).map(|number| {
        let fixture = fixture.clone();
        async move { fixture.call("echo", json!({"text": number.to_string()})).await.unwrap().into_data() }
    });
    let answers = futures::future::join_all(all).await;
    assert_eq!(answers, (0..100).map(|number: usize| json!(number.to_string())).collect::<Vec<_>>());
    never.abort();
}

async fn progress_and_logs_reach_the_caller() {
    let fixture = Arc::new(UpstreamFixture::of("good").await);
    for (tool, event) in [("progress", "1/Some(2.0) Some(\"half\")"), ("logs", "WARN careful")] {
        let peer = Arc::new(RecordingPeer::default());
        let call = tokio::spawn({
            let (fixture, peer) = (fixture.clone(), peer.clone());
            async move { fixture.call_as(tool, json!({}), peer).await }
        });
        until("it is told", || *peer.events.lock().unwrap() == [event]).await;
        // Waits for its end: with two calls open, the next notification could belong to either.
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
}

async fn questions_reach_whoever_called_and_nobody_else() {
    let fixture = Arc::new(UpstreamFixture::of("good").await);
    let reported = async |tool: &str| -> Value {
        let output = fixture.call(tool, json!({})).await.unwrap();
        serde_json::from_str(output.into_data().as_str().unwrap()).unwrap()
    };
    assert_eq!(reported("ask").await, json!({"action": "accept", "content": {"name": "Who? Ada"}}));
    assert_eq!(reported("model").await["content"]["text"], "Hello");
    assert_eq!(reported("roots").await["roots"][0]["uri"], "file:///home/ada");
    // With a call of another peer open, the question cannot be attributed.
    let other = tokio::spawn({
        let fixture = fixture.clone();
        async move { fixture.call("slow", json!({})).await }
    });
    until("the other call is there", || fixture.count_noted("slow") == 1).await;
    assert_eq!(reported("ask").await, json!({"action": "cancel"}));
    other.abort();
}

async fn unanswered_questions_do_not_block_a_server() {
    let fixture = UpstreamFixture::of("good").await;
    let peer = Arc::new(RecordingPeer { never_answers: true, ..RecordingPeer::default() });
    let output = fixture.call_as("ask_much", json!({}), peer).await.unwrap();
    assert_eq!(output.into_data(), text(r#"{"action":"cancel"}"#));
    assert_eq!(fixture.call("echo", json!({"text": "on"})).await.unwrap().into_data(), text("on"));
    assert_eq!(fixture.count_noted("start"), 1);
}

async fn a_call_that_times_out_is_cancelled_at_the_server() {
    let fixture =
        UpstreamFixture::with("good", |settings| settings.limits.call = Duration::from_millis(200)).await;
    let error = fixture.call("slow", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    until("the server heard it", || fixture.count_noted("cancelled") == 1).await;
    let error = fixture.call("wrong_id", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(fixture.call("echo", json!({"text": "on"})).await.unwrap().into_data(), text("on"));
}

async fn a_changed_tool_list_is_listed_again() {
    let fixture = UpstreamFixture::of("good").await;
    assert!(fixture.catalog().entry("up.one_more").is_none());
    fixture.call("grow", json!({})).await.unwrap();
    until("the change is told", || fixture.changes.load(Ordering::SeqCst) == 2).await;
    assert!(fixture.catalog().entry("up.one_more").is_some());
    assert_eq!(fixture.count_noted("start"), 1);
}

async fn only_tools_that_the_filter_allows_are_provided() {
    let fixture = UpstreamFixture::with("good", |settings| {
        settings.tools = ToolFilter::new(&["s*".to_owned()], &["slow".to_owned()]).unwrap();
        settings.exposed = true;
    })
    .await;
    let catalog = fixture.catalog();
    let names: Vec<String> = catalog.client_tools().map(|entry| entry.name.outward()).collect();
    assert_eq!(names, ["up__several", "up__structured"]);
}

async fn a_process_gets_the_environment_it_is_given_and_no_more() {
    let fixture = UpstreamFixture::of("good").await;
    let mut names = fixture.call("environment", json!({})).await.unwrap().value["names"].take();
    names.as_array_mut().unwrap().sort_by_key(Value::to_string);
    assert_eq!(names, json!(["PATH", "TOKEN"]));
}

async fn a_lazy_server_sleeps_until_it_is_called() {
    let fixture = UpstreamFixture::with("good", |settings| {
        settings.start = StartMode::Lazy;
        settings.limits.idle = Duration::from_millis(50);
    })
    .await;
    until("it sleeps", || fixture.state() == UpstreamState::Idle).await;
    until("its process has ended", || fixture.count_noted("end") == 1).await;
    assert_eq!(fixture.call("echo", json!({"text": "awake"})).await.unwrap().into_data(), text("awake"));
    assert_eq!(fixture.count_noted("start"), 2);
    assert_eq!(fixture.changes.load(Ordering::SeqCst), 1);
}

async fn calls_beyond_the_bound_wait_and_then_are_refused() {
    let fixture = UpstreamFixture::with("good", |settings| {
        settings.limits.in_flight = 1;
        settings.limits.waiting = 1;
    })
    .await;
    let catalog = fixture.catalog();
    let call = |tool: &'static str| {
        let call = Call::new(catalog.clone(), Caller::Cli);
        tokio::spawn(Catalog::call(tool, json!({"text": "later"}), call))
    };
    let slow = call("up.slow");
    until("the slow call is there", || fixture.count_noted("slow") == 1).await;
    // One of two calls waits, the other is refused; which is which is not defined.
    let (refused, _, mut waits) = futures::future::select_all([call("up.echo"), call("up.echo")]).await;
    let error = refused.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.retry_after_seconds()), (ErrorKind::Overloaded, Some(1)));
    slow.abort();
    let answer = waits.remove(0).await.unwrap().unwrap();
    assert_eq!(answer.into_data(), text("later"));
}

async fn a_call_before_the_handshake_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let started = settings("up", "good", &folder.path().join("noted"));
    let upstreams = Upstreams::start(vec![started], options(Arc::new(|| {})));
    let catalog = Catalog::builder().provider(upstreams.providers().remove(0)).build();
    let unknown: Vec<_> =
        catalog.pending_providers().map(|(name, why)| (name.to_string(), why.unwrap())).collect();
    assert_eq!(unknown, [("up".to_owned(), "is still connecting".to_owned())]);
    let call = async |name: &str, arguments| {
        Catalog::call(name, arguments, Call::new(catalog.clone(), Caller::Cli)).await
    };
    assert_eq!(call("up.echo", json!({"text": "late"})).await.unwrap().into_data(), text("late"));
    let error = call("up.ecko", json!({})).await.unwrap_err();
    let message = "up has no function `ecko` (did you mean `echo`?)";
    assert_eq!((error.kind(), error.message()), (ErrorKind::NotFound, message));
    assert_eq!(catalog.pending_providers().map(|(_, why)| why).collect::<Vec<_>>(), [None]);
    upstreams.shutdown().await;
}

/// The tool and the arguments of each recorded run.
#[derive(Default)]
struct RecordedRuns(Mutex<Vec<(String, Value)>>);

impl RunLog for RecordedRuns {
    fn record(&self, run: Run) {
        self.0.lock().unwrap().push((run.tool, run.arguments));
    }
}

async fn an_early_call_is_validated_judged_and_recorded_as_the_real_tool() {
    let folder = tempfile::tempdir().unwrap();
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let start = || {
        let mut settings = settings("up", "good", &folder.path().join("noted"));
        let patch = json!({"echo": {"description": "Says it again.", "inputSchema": schema}});
        if let Transport::Stdio(command) = &mut settings.transport {
            command.environment.push(("PATCH".into(), patch.to_string().into()));
        }
        let upstreams = Upstreams::start(vec![settings], options(Arc::new(|| {})));
        let builder = Catalog::builder().provider(upstreams.providers().remove(0));
        (upstreams, builder)
    };
    let runs = Arc::new(RecordedRuns::default());
    let (upstreams, builder) = start();
    let catalog = builder.runs(runs.clone()).build();
    let wrong = Catalog::call("up.echo", json!({"text": 7}), Call::new(catalog, Caller::Cli)).await;
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::BadRequest);
    assert_eq!(*runs.0.lock().unwrap(), [("up.echo".to_owned(), json!({"text": 7}))]);
    upstreams.shutdown().await;

    let policy = |_: &ToolName, spec: &ToolSpec, _: &Caller, _: Option<&Identity>| {
        Decision::Deny(spec.description.clone())
    };
    let (upstreams, builder) = start();
    let catalog = builder.policy(Arc::new(policy)).build();
    let error = Catalog::call("up.echo", json!({"text": "x"}), Call::new(catalog, Caller::Cli)).await;
    assert_eq!(error.unwrap_err().message(), "up.echo is not allowed: Says it again.");
    upstreams.shutdown().await;
}
