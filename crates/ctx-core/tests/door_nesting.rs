//! How a call ends, and what it shares with nested calls: time, cancellation, budget.
//!
//! The clock is paused: it moves only when everything waits.

use crate::common::{self, answer, echo, error_of, from_cli, refusal, relay, sleeper, tool, with};
use ctx_core::{
    Catalog, ErrorKind, Limits, LiveCatalog, NestedCallStats, NoPeer, Output, Peer, Question, QuestionError,
    QuestionKind, ToolError,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const HOUR: u64 = 3_600;

fn timeout(message: &str) -> (ErrorKind, String) {
    (ErrorKind::Timeout, message.to_owned())
}

fn cancelled() -> (ErrorKind, String) {
    (ErrorKind::Cancelled, "the call was cancelled".to_owned())
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test]
async fn an_outermost_call_tells_how_many_were_inside_and_what_they_kept() {
    // Calls `middle` twice, which calls `large` once each, and then what is not there.
    let large = tool("large", |_, _| Box::pin(async { Ok(json!("x".repeat(998)).into()) }));
    let middle = tool("middle", |_, call| {
        Box::pin(async move { Catalog::call("large", json!({}), call.nested()?).await })
    });
    let outer = tool("outer", |arguments, call| {
        Box::pin(async move {
            for _ in 0..2 {
                let output = Catalog::call("middle", json!({}), call.nested()?).await?;
                assert_eq!(output.nested_calls, NestedCallStats::default());
            }
            match arguments.contains_key("wrong") {
                true => Catalog::call("search", json!({}), call.nested()?).await,
                false => Ok(json!("y".repeat(98)).into()),
            }
        })
    });
    let catalog = with([large, middle, outer, echo("echo")]).build();
    let output = Catalog::call("outer", json!({}), from_cli(&catalog)).await.unwrap();
    assert_eq!(output.nested_calls, NestedCallStats { calls: 4, bytes_kept: 3_900 });
    let error = Catalog::call("outer", json!({"wrong": 1}), from_cli(&catalog)).await.unwrap_err();
    assert_eq!(error.nested_calls(), NestedCallStats { calls: 4, bytes_kept: 4_000 });
    let output = Catalog::call("middle", json!({}), from_cli(&catalog)).await.unwrap();
    assert_eq!(output.nested_calls, NestedCallStats { calls: 1, bytes_kept: 0 });
    let output = Catalog::call("echo", json!({}), from_cli(&catalog)).await.unwrap();
    assert_eq!(output.nested_calls, NestedCallStats::default());
}

/// Answers with the whole seconds it has left.
fn clock(name: &str) -> common::TestTool {
    tool(name, |_, call| {
        let left = call.time_left().as_millis().div_ceil(1_000);
        Box::pin(async move { Ok(json!(u64::try_from(left).unwrap_or(u64::MAX)).into()) })
    })
}

/// Calls `slow` in a task of its own and answers at once; the task goes to the receiver.
fn deserter(
    own_token: Option<CancellationToken>,
) -> (common::TestTool, mpsc::UnboundedReceiver<JoinHandle<Result<Output, ToolError>>>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let deserter = tool("deserter", move |_, call| {
        let (sender, own_token) = (sender.clone(), own_token.clone());
        Box::pin(async move {
            let mut nested = call.nested()?;
            if let Some(token) = &own_token {
                nested = nested.with_cancellation(token);
            }
            let task = tokio::spawn(Catalog::call("slow", json!({}), nested));
            // The task is inside `slow` before this call ends.
            tokio::time::sleep(seconds(1)).await;
            sender.send(task).map_err(|_| ToolError::not_found("nobody waits"))?;
            Ok(Value::Null.into())
        })
    });
    (deserter, receiver)
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_too_long_times_out() {
    let catalog = with([sleeper("slow", HOUR)]).build();
    let began = Instant::now();
    let expected = timeout("tool 'slow' timed out after 30 seconds");
    assert_eq!(refusal(&catalog, "slow", json!({})).await, expected);
    assert_eq!(began.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_tools_own_bound_replaces_the_catalogs() {
    let patient = sleeper("patient", 60).with_timeout(seconds(90));
    let hasty = sleeper("hasty", 60).with_timeout(seconds(5));
    let catalog = with([patient, hasty]).build();
    answer(&catalog, "patient", json!({})).await;
    let expected = timeout("tool 'hasty' timed out after 5 seconds");
    assert_eq!(refusal(&catalog, "hasty", json!({})).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_bound_reads_well_whatever_its_length() {
    for (bound, shown) in [
        (Duration::from_millis(1_000), "1 second"),
        (Duration::from_millis(999), "1 second"),
        (Duration::from_millis(960), "1 second"),
        (Duration::from_millis(1_500), "1.5 seconds"),
        (Duration::from_millis(50), "0.1 seconds"),
        (Duration::from_millis(90_000), "90 seconds"),
    ] {
        let catalog = with([sleeper("slow", HOUR).with_timeout(bound)]).build();
        let expected = timeout(&format!("tool 'slow' timed out after {shown}"));
        assert_eq!(refusal(&catalog, "slow", json!({})).await, expected, "{bound:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bound_beyond_the_end_of_time_is_no_bound() {
    let catalog = with([sleeper("slow", HOUR).with_timeout(Duration::MAX)]).build();
    answer(&catalog, "slow", json!({})).await;
}

#[tokio::test(start_paused = true)]
async fn the_earlier_of_deadline_and_bound_counts() {
    let catalog = with([clock("clock").with_timeout(seconds(10))]).build();
    for (deadline, expected) in [(4, 4), (40, 10)] {
        let deadline = Instant::now().into_std() + seconds(deadline);
        let call = from_cli(&catalog).with_deadline(deadline);
        assert_eq!(Catalog::call("clock", json!({}), call).await.unwrap(), json!(expected).into());
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_does_not_begin_after_the_deadline() {
    let catalog = with([echo("echo")]).build();
    let call = from_cli(&catalog).with_deadline(Instant::now().into_std());
    tokio::time::advance(seconds(1)).await;
    assert_eq!(error_of(Catalog::call("echo", json!({}), call).await).0, ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn the_token_of_a_call_is_cancelled_however_the_call_ends() {
    let seen = Arc::new(Mutex::new(None));
    let keep = seen.clone();
    let keeper = tool("keeper", move |arguments, call| {
        *keep.lock().unwrap() = Some(call.cancellation().clone());
        Box::pin(async move {
            match arguments["end"].as_str() {
                Some("answer") => Ok(Value::Null.into()),
                Some("fail") => Err(ToolError::bad_request("no")),
                _ => std::future::pending().await,
            }
        })
    });
    let catalog = with([keeper]).build();
    for end in ["answer", "fail", "time out"] {
        let result = Catalog::call("keeper", json!({"end": end}), from_cli(&catalog)).await;
        assert_eq!(result.is_ok(), end == "answer");
        assert!(seen.lock().unwrap().take().unwrap().is_cancelled(), "{end}");
    }
    let abandoned = Catalog::call("keeper", json!({"end": "never"}), from_cli(&catalog));
    assert!(tokio::time::timeout(seconds(1), abandoned).await.is_err());
    assert!(seen.lock().unwrap().take().unwrap().is_cancelled(), "dropped");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_holds_for_the_calls_inside() {
    let outer = relay("outer").with_timeout(seconds(10));
    let slow = sleeper("slow", HOUR).with_timeout(seconds(60));
    let catalog = with([outer, slow, sleeper("nap", 4), clock("clock")]).build();

    let calls = json!({"calls": [["clock", {}], ["nap", {}], ["clock", {}]]});
    assert_eq!(answer(&catalog, "outer", calls).await, json!([10, null, 6]));

    let began = Instant::now();
    let calls = json!({"calls": [["nap", {}], ["slow", {}]]});
    let expected = timeout("tool 'slow' timed out after 6 seconds");
    assert_eq!(refusal(&catalog, "outer", calls).await, expected);
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_call_inside_has_its_own_bound_too() {
    let catalog =
        with([relay("outer"), sleeper("slow", HOUR).with_timeout(seconds(5)), echo("echo")]).build();
    let calls = json!({"calls": [["echo", {}], ["slow", {}]]});
    let expected = timeout("tool 'slow' timed out after 5 seconds");
    assert_eq!(refusal(&catalog, "outer", calls).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_tool_cannot_give_the_calls_inside_more_time_than_it_has() {
    let greedy = tool("greedy", |_, call| {
        Box::pin(async move {
            let nested = call.nested()?.with_deadline(Instant::now().into_std() + seconds(HOUR));
            Catalog::call("clock", json!({}), nested).await
        })
    });
    let catalog =
        with([greedy.with_timeout(seconds(10)), clock("clock").with_timeout(seconds(HOUR))]).build();
    assert_eq!(answer(&catalog, "greedy", json!({})).await, json!(10));
}

#[tokio::test(start_paused = true)]
async fn cancellation_from_outside_ends_a_call() {
    let catalog = with([relay("outer"), sleeper("slow", HOUR)]).build();
    let token = CancellationToken::new();
    let call = from_cli(&catalog).with_cancellation(&token);
    let began = Instant::now();
    let task = tokio::spawn(Catalog::call("outer", json!({"calls": [["slow", {}]]}), call));
    tokio::time::sleep(seconds(5)).await;
    token.cancel();
    assert_eq!(error_of(task.await.unwrap()), cancelled());
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_tool_that_ends_by_itself_still_answers_within_its_grace() {
    let orderly = tool("orderly", |_, call| {
        Box::pin(async move {
            call.cancellation().cancelled().await;
            tokio::time::sleep(seconds(3)).await;
            Ok(json!("half of it").into())
        })
    });
    let stubborn = sleeper("stubborn", HOUR).stops_within(seconds(10));
    let catalog = with([orderly.stops_within(seconds(10)), stubborn]).build();
    let token = CancellationToken::new();
    token.cancel();
    let stopped = |name| Catalog::call(name, json!({}), from_cli(&catalog).with_cancellation(&token));
    assert_eq!(stopped("orderly").await.unwrap().value, json!("half of it"));
    let began = Instant::now();
    assert_eq!(error_of(stopped("stubborn").await), cancelled());
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_already_cancelled_does_not_run() {
    let token = CancellationToken::new();
    token.cancel();
    let catalog = with([echo("echo")]).build();
    let call = from_cli(&catalog).with_cancellation(&token);
    assert_eq!(error_of(Catalog::call("echo", json!({}), call).await), cancelled());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_does_not_cancel_the_one_around_it() {
    let catalog = with([relay("outer"), echo("echo")]).build();
    let token = CancellationToken::new();
    let call = from_cli(&catalog).with_cancellation(&token);
    let calls = json!({"calls": [["echo", {}], ["echo", {}]]});
    assert_eq!(Catalog::call("outer", calls, call).await.unwrap().value, json!([{}, {}]));
    assert!(!token.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_call_left_behind_ends_with_the_one_it_was_made_in() {
    let (deserter, mut tasks) = deserter(None);
    let catalog = with([deserter, sleeper("slow", 20)]).build();
    answer(&catalog, "deserter", json!({})).await;
    assert_eq!(error_of(tasks.recv().await.unwrap().await.unwrap()), cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_tool_cannot_take_the_calls_inside_out_of_its_own_cancellation() {
    let (deserter, mut tasks) = deserter(Some(CancellationToken::new()));
    let catalog = with([deserter, sleeper("slow", 20)]).build();
    answer(&catalog, "deserter", json!({})).await;
    let left_behind = tasks.recv().await.unwrap().await.unwrap();
    assert_eq!(left_behind.map_err(|error| error.kind()), Err(ErrorKind::Cancelled));
}

#[tokio::test]
async fn calls_inside_share_one_budget_across_siblings_and_depth() {
    let limits = Limits { nested_calls: 4, ..Limits::default() };
    let catalog = with([relay("run"), echo("e")]).limits(limits).build();
    let refused = (ErrorKind::Tool, "a call may make at most 4 nested calls".to_owned());
    let pair = json!({"calls": [["e", {}], ["e", {}]]});
    let one = json!({"calls": [["e", {}]]});

    for (fits, calls) in [
        (true, json!([["e", {}], ["e", {}], ["e", {}], ["e", {}]])),
        (false, json!([["e", {}], ["e", {}], ["e", {}], ["e", {}], ["e", {}]])),
        (true, json!([["run", one], ["run", one]])),
        (true, json!([["run", pair], ["e", {}]])),
        (false, json!([["run", pair], ["run", one]])),
        (false, json!([["run", {"calls": [["run", pair]]}], ["e", {}]])),
    ] {
        let calls = json!({"calls": calls});
        match Catalog::call("run", calls.clone(), from_cli(&catalog)).await {
            Ok(_) => assert!(fits, "{calls}"),
            Err(error) => {
                assert!(!fits, "{calls}");
                assert_eq!((error.kind(), error.message().to_owned()), refused);
            }
        }
    }
}

#[tokio::test]
async fn calls_side_by_side_share_the_budget() {
    let fan = tool("fan", |_, call| {
        Box::pin(async move {
            let mut tasks = JoinSet::new();
            for _ in 0..10 {
                if let Ok(nested) = call.nested() {
                    tasks.spawn(Catalog::call("echo", json!({}), nested));
                }
            }
            Ok(json!(tasks.join_all().await.iter().filter(|result| result.is_ok()).count()).into())
        })
    });
    let limits = Limits { nested_calls: 4, ..Limits::default() };
    let catalog = with([fan, echo("echo")]).limits(limits).build();
    assert_eq!(answer(&catalog, "fan", json!({})).await, json!(4));
}

#[tokio::test]
async fn another_peer_is_not_another_budget() {
    let spender = tool("spender", |_, call| {
        Box::pin(async move {
            for _ in 0..3 {
                let nested = call.nested()?.with_peer(Arc::new(NoPeer));
                Catalog::call("run", json!({"calls": [["echo", {}]]}), nested).await?;
            }
            Ok(Value::Null.into())
        })
    });
    let limits = Limits { nested_calls: 4, ..Limits::default() };
    let catalog = with([spender, relay("run"), echo("echo")]).limits(limits).build();
    let expected = (ErrorKind::Tool, "a call may make at most 4 nested calls".to_owned());
    assert_eq!(refusal(&catalog, "spender", json!({})).await, expected);
}

#[tokio::test]
async fn calls_nest_only_so_deep() {
    let limits = Limits { depth: 3, ..Limits::default() };
    let catalog = with([relay("run"), echo("echo")]).limits(limits).build();
    let nest = |inner: Value| json!({"calls": [["run", inner]]});
    let deepest = nest(nest(json!({"calls": [["echo", {}]]})));
    assert_eq!(answer(&catalog, "run", deepest.clone()).await, json!([[[{}]]]));
    let expected = (ErrorKind::Tool, "calls may nest at most 3 deep".to_owned());
    assert_eq!(refusal(&catalog, "run", nest(deepest)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_call_keeps_the_catalog_it_began_with() {
    let outer = || {
        tool("outer", |_, call| {
            Box::pin(async move {
                tokio::time::sleep(seconds(10)).await;
                Catalog::call("gone_later", json!({}), call.nested()?).await
            })
        })
    };
    let live = LiveCatalog::new(with([outer(), echo("gone_later")]).build());
    let in_flight = tokio::spawn(Catalog::call("outer", json!({}), from_cli(&live.current())));
    tokio::time::sleep(seconds(1)).await;
    live.swap(with([outer()]).replacing(&live.current()).build());

    let expected = (ErrorKind::NotFound, "no tool registered with name: gone_later".to_owned());
    assert_eq!(refusal(&live.current(), "outer", json!({})).await, expected);
    assert_eq!(in_flight.await.unwrap().unwrap().value, json!({}));
}

/// Answers after a minute, or never.
struct Slow(bool);

#[async_trait::async_trait]
impl Peer for Slow {
    async fn ask(&self, _: Question) -> Result<Value, QuestionError> {
        tokio::time::sleep(seconds(if self.0 { 60 } else { 10 * HOUR })).await;
        Ok(json!("yes"))
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_a_person_takes_to_answer_does_not_count() {
    let asker = tool("asker", |arguments, call| {
        Box::pin(async move {
            let answer = call.ask(Question { key: None, kind: QuestionKind::Roots }).await.ok();
            let nested = call.nested()?;
            Catalog::call("nap", json!({}), nested).await?;
            if arguments.contains_key("linger") {
                tokio::time::sleep(seconds(HOUR)).await;
            }
            Ok(json!([answer, call.time_left().as_secs()]).into())
        })
    });
    let catalog = with([asker.with_timeout(seconds(10)), sleeper("nap", 4)]).build();
    let call_with_peer = |arguments: Value, answers: bool| {
        let call = from_cli(&catalog).with_peer(Arc::new(Slow(answers)));
        Catalog::call("asker", arguments, call)
    };
    let began = Instant::now();
    assert_eq!(call_with_peer(json!({}), true).await.unwrap().value, json!(["yes", 6]));
    assert_eq!(began.elapsed().as_secs(), 64);
    // Time after the answer counts as usual, and waiting for answers has a limit of its own.
    let began = Instant::now();
    let error = call_with_peer(json!({"linger": true}), true).await.unwrap_err();
    assert_eq!(error.message(), "tool 'asker' timed out after 10 seconds");
    assert_eq!(began.elapsed().as_secs(), 70);
    assert_eq!(call_with_peer(json!({}), false).await.unwrap().value, json!([null, 6]));
}
