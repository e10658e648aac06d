//! Calls of a well-behaved server.

use crate::harness::Test;
use crate::world::{Person, World, options, settings, until};
use ctx_core::{Call, Caller, Catalog, Decision, ErrorKind, Identity, Run, RunLog, ToolName, ToolSpec};
use ctx_mcp::{Start, ToolFilter, Transport, UpstreamState, Upstreams};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![calls:
    a_tool_answers_with_data_text_or_blocks,
    a_failure_is_the_tools_and_names_the_server,
    calls_run_side_by_side,
    credentials_of_a_call_are_not_passed_on,
    progress_and_logs_reach_whoever_called,
    questions_reach_whoever_called_and_nobody_else,
    questions_that_wait_for_a_person_do_not_stop_a_server,
    a_call_that_is_given_up_is_taken_back,
    a_changed_list_is_taken_up,
    only_the_tools_that_are_taken_are_there,
    a_process_gets_the_environment_it_is_given_and_no_more,
    a_lazy_server_sleeps_until_it_is_called,
    calls_beyond_the_bound_wait_and_then_are_refused,
    what_is_called_before_a_server_has_answered_waits_for_it,
    an_early_call_is_validated_judged_and_recorded_as_the_real_tool,
];

fn text(value: &str) -> Value {
    json!(value)
}

async fn a_tool_answers_with_data_text_or_blocks() {
    let world = World::of("good").await;
    assert_eq!(world.state(), UpstreamState::Ready);
    assert_eq!(world.changes.load(Ordering::SeqCst), 1);
    let data = async |tool, arguments| world.call(tool, arguments).await.unwrap().into_data();
    assert_eq!(data("echo", json!({"text": "[1]"})).await, text("[1]"));
    assert_eq!(data("structured", json!({})).await, json!({"sum": 3}));
    let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
    assert_eq!(data("several", json!({})).await, json!(["one", image]));
    let status = world.upstreams.states().remove(0);
    assert_eq!(
        (status.server.as_deref(), status.protocol.as_deref()),
        (Some("obedient 1.0"), Some("2025-11-25"))
    );
}

async fn a_failure_is_the_tools_and_names_the_server() {
    let world = World::of("good").await;
    for (tool, kind, message) in [
        ("fails", ErrorKind::Tool, "up: the disk is full"),
        ("refuses", ErrorKind::BadRequest, "up: bad x"),
        ("huge", ErrorKind::Tool, "up: its answer is longer than 8388608 bytes"),
    ] {
        let error = world.call(tool, json!({})).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, message));
    }
    let error = world.call("unreadable", json!({})).await.unwrap_err();
    assert!(error.message().starts_with("up: its answer cannot be read"), "{error}");
    assert_eq!(
        world.call("echo", json!({"text": "still there"})).await.unwrap().into_data(),
        text("still there")
    );
}

async fn credentials_of_a_call_are_not_passed_on() {
    let world = World::of("good").await;
    let auth = json!({"up": {"type": "bearer", "token": "hunter2!"}}).as_object().unwrap().clone();
    let call = Call::new(world.catalog(), Caller::Cli).with_auth(auth);
    let heard = Catalog::call("up.parameters", json!({"a": 1}), call).await.unwrap().into_data();
    let heard = heard.as_str().unwrap();
    assert!(heard.contains(r#""a":1"#) && !heard.contains("hunter2") && !heard.contains("auth"), "{heard}");
}

async fn calls_run_side_by_side() {
    let world = Arc::new(World::of("good").await);
    let never = tokio::spawn({
        let world = world.clone();
        async move { world.call("slow", json!({})).await }
    });
    until("the slow call is there", || world.noted("slow") == 1).await;
    let all = (0..100).map(|number| {
        let world = world.clone();
        async move { world.call("echo", json!({"text": number.to_string()})).await.unwrap().into_data() }
    });
    let answers = futures::future::join_all(all).await;
    assert_eq!(answers, (0..100).map(|number: usize| json!(number.to_string())).collect::<Vec<_>>());
    never.abort();
}

async fn progress_and_logs_reach_whoever_called() {
    let world = Arc::new(World::of("good").await);
    for (tool, told) in [("progress", "1/Some(2.0) Some(\"half\")"), ("logs", "WARN careful")] {
        let person = Arc::new(Person::default());
        let call = tokio::spawn({
            let (world, person) = (world.clone(), person.clone());
            async move { world.call_as(tool, json!({}), person).await }
        });
        until("it is told", || *person.told.lock().unwrap() == [told]).await;
        // Waits for its end: with two calls open, the next notification could belong to either.
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
}

async fn questions_reach_whoever_called_and_nobody_else() {
    let world = Arc::new(World::of("good").await);
    let heard = async |tool: &str| -> Value {
        let output = world.call(tool, json!({})).await.unwrap();
        serde_json::from_str(output.into_data().as_str().unwrap()).unwrap()
    };
    assert_eq!(heard("ask").await, json!({"action": "accept", "content": {"name": "Who? Ada"}}));
    assert_eq!(heard("model").await["content"]["text"], "Hello");
    assert_eq!(heard("roots").await["roots"][0]["uri"], "file:///home/ada");
    // With a call of another peer open, the question cannot be attributed.
    let other = tokio::spawn({
        let world = world.clone();
        async move { world.call("slow", json!({})).await }
    });
    until("the other call is there", || world.noted("slow") == 1).await;
    assert_eq!(heard("ask").await, json!({"action": "cancel"}));
    other.abort();
}

async fn questions_that_wait_for_a_person_do_not_stop_a_server() {
    let world = World::of("good").await;
    let person = Arc::new(Person { is_away: true, ..Person::default() });
    let output = world.call_as("ask_much", json!({}), person).await.unwrap();
    assert_eq!(output.into_data(), text(r#"{"action":"cancel"}"#));
    assert_eq!(world.call("echo", json!({"text": "on"})).await.unwrap().into_data(), text("on"));
    assert_eq!(world.noted("start"), 1);
}

async fn a_call_that_is_given_up_is_taken_back() {
    let world = World::with("good", |settings| settings.limits.call = Duration::from_millis(200)).await;
    let error = world.call("slow", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    until("the server heard it", || world.noted("cancelled") == 1).await;
    let error = world.call("wrong_id", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(world.call("echo", json!({"text": "on"})).await.unwrap().into_data(), text("on"));
}

async fn a_changed_list_is_taken_up() {
    let world = World::of("good").await;
    assert!(world.catalog().entry("up.one_more").is_none());
    world.call("grow", json!({})).await.unwrap();
    until("the change is told", || world.changes.load(Ordering::SeqCst) == 2).await;
    assert!(world.catalog().entry("up.one_more").is_some());
    assert_eq!(world.noted("start"), 1);
}

async fn only_the_tools_that_are_taken_are_there() {
    let world = World::with("good", |settings| {
        settings.tools = ToolFilter::new(&["s*".to_owned()], &["slow".to_owned()]).unwrap();
        settings.exposed = true;
    })
    .await;
    let catalog = world.catalog();
    let names: Vec<String> = catalog.listed().map(|entry| entry.name.outward()).collect();
    assert_eq!(names, ["up__several", "up__structured"]);
}

async fn a_process_gets_the_environment_it_is_given_and_no_more() {
    let world = World::of("good").await;
    let mut names = world.call("environment", json!({})).await.unwrap().value["names"].take();
    names.as_array_mut().unwrap().sort_by_key(Value::to_string);
    assert_eq!(names, json!(["PATH", "TOKEN"]));
}

async fn a_lazy_server_sleeps_until_it_is_called() {
    let world = World::with("good", |settings| {
        settings.start = Start::Lazy;
        settings.limits.idle = Duration::from_millis(50);
    })
    .await;
    until("it sleeps", || world.state() == UpstreamState::Idle).await;
    until("its process has ended", || world.noted("end") == 1).await;
    assert_eq!(world.call("echo", json!({"text": "awake"})).await.unwrap().into_data(), text("awake"));
    assert_eq!(world.noted("start"), 2);
    assert_eq!(world.changes.load(Ordering::SeqCst), 1);
}

async fn calls_beyond_the_bound_wait_and_then_are_refused() {
    let world = World::with("good", |settings| {
        settings.limits.in_flight = 1;
        settings.limits.waiting = 1;
    })
    .await;
    let catalog = world.catalog();
    let call = |tool: &'static str| {
        let call = Call::new(catalog.clone(), Caller::Cli);
        tokio::spawn(Catalog::call(tool, json!({"text": "later"}), call))
    };
    let slow = call("up.slow");
    until("the slow call is there", || world.noted("slow") == 1).await;
    // One of two calls waits, the other is refused; which is which is not defined.
    let (refused, _, mut waits) = futures::future::select_all([call("up.echo"), call("up.echo")]).await;
    let error = refused.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.wait_seconds()), (ErrorKind::Overloaded, Some(1)));
    slow.abort();
    let answer = waits.remove(0).await.unwrap().unwrap();
    assert_eq!(answer.into_data(), text("later"));
}

async fn what_is_called_before_a_server_has_answered_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let started = settings("up", "good", &folder.path().join("noted"));
    let upstreams = Upstreams::start(vec![started], options(Arc::new(|| {})));
    let catalog = Catalog::builder().provider(upstreams.providers().remove(0)).build();
    let unknown: Vec<_> = catalog.unknown().map(|(name, why)| (name.to_string(), why.unwrap())).collect();
    assert_eq!(unknown, [("up".to_owned(), "is still being reached".to_owned())]);
    let call = async |name: &str, arguments| {
        Catalog::call(name, arguments, Call::new(catalog.clone(), Caller::Cli)).await
    };
    assert_eq!(call("up.echo", json!({"text": "late"})).await.unwrap().into_data(), text("late"));
    let error = call("up.ecko", json!({})).await.unwrap_err();
    let told = "up has no function `ecko` (did you mean `echo`?)";
    assert_eq!((error.kind(), error.message()), (ErrorKind::NotFound, told));
    assert_eq!(catalog.unknown().map(|(_, why)| why).collect::<Vec<_>>(), [None]);
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
