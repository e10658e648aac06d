//! Sessions of clients of older revisions.

use crate::common::{
    self, CallGate, SESSION_VERSION, ServerFixture, TestSession, elicitation, initialize, notifying_tool,
    post, question_tool, result_text, sampling, with_timeout,
};
use ctx_core::QuestionKind;
use ctx_testkit::{echo, tool};
use futures::future::join_all;
use serde_json::{Value, json};
use std::time::Duration;

/// The ID of no session.
const UNKNOWN_SESSION: &str = "00000000-0000-4000-8000-000000000000";

#[tokio::test]
async fn a_session_is_needed_and_must_be_known() {
    let fixture = ServerFixture::with([echo("echo")]);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(fixture.answer(post(None, &list)).await.refusal_code().await.0, 400);
    for unknown in [UNKNOWN_SESSION, "", "../../etc/passwd"] {
        assert_eq!(fixture.answer(post(Some(unknown), &list)).await.refusal_code().await.0, 404, "{unknown}");
    }
    let mut session = TestSession::begin(&fixture, json!({})).await;
    session.id = UNKNOWN_SESSION.to_owned();
    assert_eq!(session.listen().await.refusal_code().await.0, 404);
}

#[tokio::test]
async fn a_session_that_has_ended_is_not_found_and_others_go_on() {
    let fixture = ServerFixture::with([echo("echo")]);
    let (ended, other) =
        (TestSession::begin(&fixture, json!({})).await, TestSession::begin(&fixture, json!({})).await);
    let mut stream = ended.listen().await;
    assert!((200..300).contains(&ended.end().await));
    assert_eq!(stream.next().await, None);
    assert_eq!(ended.call(1, "echo", json!({})).await.refusal_code().await.0, 404);
    assert_eq!(ended.listen().await.refusal_code().await.0, 404);
    other.call(1, "echo", json!({})).await.result().await;
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_session_that_ends_are_cancelled() {
    let gate = CallGate::new();
    let fixture = ServerFixture::with([gate.tool("wait")]);
    let session = TestSession::begin(&fixture, json!({})).await;
    let _stream = session.call(1, "wait", json!({})).await;
    gate.wait_for_call().await;
    session.end().await;
    fixture.assert_next_run_cancelled("wait").await;
}

#[tokio::test]
async fn a_cancelled_notification_cancels_its_call() {
    let gate = CallGate::new();
    let fixture = ServerFixture::with([gate.tool("wait"), echo("echo")]);
    let session = TestSession::begin(&fixture, json!({})).await;
    let stream = session.call(7, "wait", json!({})).await;
    gate.wait_for_call().await;
    let another = session.notify("notifications/cancelled", json!({"requestId": "7"})).await;
    assert_eq!(another, 202);
    session.call(8, "echo", json!({})).await.result().await;
    assert_eq!(fixture.next_run().await.0, "tools.echo");
    session.notify("notifications/cancelled", json!({"requestId": 7, "reason": "enough"})).await;
    fixture.assert_next_run_cancelled("wait").await;
    assert_eq!(stream.all().await, [] as [Value; 0]);
    session.call(9, "echo", json!({})).await.result().await;
}

#[tokio::test]
async fn a_second_request_with_the_id_of_an_open_one_is_refused_and_the_first_is_answered() {
    let gate = CallGate::new();
    let fixture = ServerFixture::with([gate.tool("wait"), echo("echo")]);
    let session = TestSession::begin(&fixture, json!({})).await;
    let other = TestSession::begin(&fixture, json!({})).await;
    let first = session.call(7, "wait", json!({})).await;
    gate.wait_for_call().await;
    for _ in 0..2 {
        let refused = session.call(7, "echo", json!({})).await.last().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(7), &json!(-32600)), "{refused}");
    }
    other.call(7, "echo", json!({})).await.result().await;
    assert_eq!(fixture.next_run().await.0, "tools.echo");
    gate.open();
    assert_eq!(result_text(&first.result().await), (true, "through".to_owned()));
    assert_eq!(fixture.next_run().await.0, "tools.wait");
    // An id that was answered may be used again.
    session.call(7, "echo", json!({})).await.result().await;
    assert_eq!(fixture.next_run().await.0, "tools.echo");
    fixture.assert_no_run().await;
}

#[tokio::test(start_paused = true)]
async fn the_id_of_a_cancelled_request_may_be_used_again_once_it_has_surely_stopped() {
    let gate = CallGate::new();
    let fixture = ServerFixture::with([gate.tool("wait"), echo("echo")]);
    let session = TestSession::begin(&fixture, json!({})).await;
    let _first = session.call(7, "wait", json!({})).await;
    gate.wait_for_call().await;
    session.notify("notifications/cancelled", json!({"requestId": 7})).await;
    fixture.assert_next_run_cancelled("wait").await;
    let refused = session.call(7, "echo", json!({})).await.last().await;
    assert_eq!(refused["error"]["code"], json!(-32600), "{refused}");
    tokio::time::advance(Duration::from_secs(10)).await;
    session.call(7, "echo", json!({})).await.result().await;
}

#[tokio::test]
async fn a_call_continues_after_its_client_has_disconnected() {
    let gate = CallGate::new();
    let fixture = ServerFixture::with([gate.tool("wait")]);
    let session = TestSession::begin(&fixture, json!({})).await;
    drop(session.call(1, "wait", json!({})).await);
    gate.wait_for_call().await;
    gate.open();
    assert_eq!(fixture.next_run().await, ("tools.wait".to_owned(), "ok".to_owned()));
}

#[tokio::test]
async fn abandoned_calls_do_not_block_the_shutdown() {
    let gate = CallGate::new();
    let fixture = ServerFixture::with([gate.tool("wait")]);
    let session = TestSession::begin(&fixture, json!({})).await;
    drop(session.call(1, "wait", json!({})).await);
    gate.wait_for_call().await;
    fixture.stopping.cancel();
    with_timeout("the end of the calls", fixture.server.drain(Duration::from_millis(10))).await;
    fixture.assert_next_run_cancelled("wait").await;
}

#[tokio::test]
async fn open_streams_end_when_the_server_stops() {
    let fixture = ServerFixture::with([echo("echo")]);
    let session = TestSession::begin(&fixture, json!({})).await;
    let stream = session.listen().await;
    let listening =
        common::request("subscriptions/listen").param("notifications", json!({"toolsListChanged": true}));
    let mut listening = fixture.send(listening).await;
    listening.expect("notifications/subscriptions/acknowledged").await;
    fixture.stopping.cancel();
    assert_eq!(stream.all().await, [] as [Value; 0]);
    listening.all().await;
}

#[tokio::test]
async fn progress_comes_with_the_call_and_before_its_result() {
    let fixture = ServerFixture::with([notifying_tool("talk", 3)]);
    let session = TestSession::begin(&fixture, json!({})).await;
    let params = json!({"name": "talk", "arguments": {}, "_meta": {"progressToken": "p"}});
    let messages = session.request(1, "tools/call", params).await.all().await;
    let steps: Vec<&Value> = messages.iter().map(|message| &message["params"]["progress"]).collect();
    assert_eq!(steps, [&json!(1.0), &json!(2.0), &json!(3.0), &Value::Null]);
    assert_eq!(messages[0]["params"]["progressToken"], "p");
    assert_eq!(messages[3]["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn logs_are_sent_from_the_level_that_was_set() {
    let fixture = ServerFixture::with([notifying_tool("talk", 0)]);
    let session = TestSession::begin(&fixture, json!({})).await;
    let mut stream = session.listen().await;
    for (level, lines) in [
        (None, vec!["a fact", "a doubt"]),
        (Some("debug"), vec!["a detail", "a fact", "a doubt"]),
        (Some("warning"), vec!["a doubt"]),
        (Some("emergency"), vec![]),
    ] {
        if let Some(level) = level {
            let set = session.request(1, "logging/setLevel", json!({"level": level})).await.result().await;
            assert_eq!(set, json!({}));
        }
        session.call(2, "talk", json!({})).await.result().await;
        for line in lines {
            let message = stream.expect("notifications/message").await;
            assert_eq!(message["params"]["data"], line, "{level:?}");
        }
    }
    // No message is left over in the stream.
    fixture.swap(ctx_core::Catalog::builder());
    stream.expect("notifications/tools/list_changed").await;
    let refused = session.request(1, "logging/setLevel", json!({"level": "loud"})).await;
    assert_eq!(refused.refusal_code().await.1, -32602);
}

#[tokio::test]
async fn an_elicitation_is_answered_during_the_call() {
    let fixture = ServerFixture::with([question_tool("greet", elicitation())]);
    let session = TestSession::begin(&fixture, json!({"elicitation": {}})).await;
    for (answer, expected) in [
        (json!({"action": "accept", "content": {"name": "Ada"}}), (true, r#"{"name":"Ada"}"#)),
        (json!({"action": "decline"}), (false, "the user declined")),
        (json!({"action": "cancel"}), (false, "the user dismissed the question")),
        (
            json!({"action": "accept", "content": {"name": "A"}}),
            (false, "the answer does not match the question's schema"),
        ),
        (json!({"roots": []}), (false, "the answer does not match the question's schema")),
    ] {
        let mut stream = session.call(1, "greet", json!({})).await;
        let question = stream.expect("elicitation/create").await;
        assert_eq!(question["params"]["message"], "Who are you?");
        session.respond(&question, answer).await;
        let (ok, text) = result_text(&stream.result().await);
        let text = text.replace([' ', '\n'], "");
        assert_eq!((ok, text), (expected.0, expected.1.replace(' ', "")));
    }
}

#[tokio::test]
async fn the_tool_learns_that_a_client_refused_or_cannot_be_asked() {
    let fixture = ServerFixture::with([question_tool("greet", elicitation())]);
    let session = TestSession::begin(&fixture, json!({"elicitation": {}})).await;
    let mut stream = session.call(1, "greet", json!({})).await;
    let question = stream.expect("elicitation/create").await;
    let refusal = json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}});
    fixture.answer(post(Some(&session.id), &refusal)).await;
    assert_eq!(result_text(&stream.result().await), (false, "the user declined".to_owned()));

    let unable = TestSession::begin(&fixture, json!({})).await;
    let result = unable.call(1, "greet", json!({})).await.result().await;
    assert_eq!(result_text(&result), (false, "the client does not support this kind of question".to_owned()));
}

#[tokio::test]
async fn sampling_and_roots_work_like_elicitation() {
    let fixture =
        ServerFixture::with([question_tool("think", sampling()), question_tool("look", QuestionKind::Roots)]);
    let session = TestSession::begin(&fixture, json!({"sampling": {}, "roots": {}})).await;
    let message = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi"}});
    for (tool, method, answer) in [
        ("think", "sampling/createMessage", message),
        ("look", "roots/list", json!({"roots": [{"uri": "file:///home"}]})),
    ] {
        let mut stream = session.call(1, tool, json!({})).await;
        let question = stream.expect(method).await;
        session.respond(&question, answer).await;
        let (ok, text) = result_text(&stream.result().await);
        assert!(ok, "{text}");
    }
}

#[tokio::test]
async fn an_elicitation_is_cancelled_with_its_call() {
    let fixture = ServerFixture::with([
        question_tool("greet", elicitation()).with_timeout(Duration::from_millis(1)),
        echo("echo"),
    ]);
    let session = TestSession::begin(&fixture, json!({"elicitation": {}})).await;
    let mut standalone_stream = session.listen().await;
    let mut stream = session.call(41, "greet", json!({})).await;
    let question = stream.expect("elicitation/create").await;
    session.notify("notifications/cancelled", json!({"requestId": 41})).await;
    fixture.assert_next_run_cancelled("greet").await;
    let withdrawn = standalone_stream.expect("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    // A late answer to the cancelled question is ignored.
    session.respond(&question, json!({"action": "accept", "content": {"name": "Ada"}})).await;
    session.call(42, "echo", json!({})).await.result().await;
}

/// The number of sessions that the server keeps.
const SESSIONS_MAX: usize = 1024;

#[tokio::test]
async fn a_session_that_is_not_read_is_evicted() {
    let prolix = tool("prolix", |_, call| {
        Box::pin(async move {
            (0..200).for_each(|_| call.peer().log(tracing::Level::INFO, "again"));
            Ok(Value::Null.into())
        })
    });
    let fixture = ServerFixture::with([prolix]);
    let unread_session = TestSession::begin(&fixture, json!({})).await;
    let (_unread, _unanswered) =
        (unread_session.listen().await, unread_session.call(1, "prolix", json!({})).await);
    // Fills the buffer of the session that is not read.
    let notify = || unread_session.notify("notifications/initialized", json!({}));
    while tokio::time::timeout(Duration::from_millis(100), notify()).await.is_ok() {}
    for _ in 0..SESSIONS_MAX {
        assert_eq!(fixture.answer(post(None, &initialize(&json!({})))).await.status, 200);
    }
    assert_eq!(unread_session.request(2, "ping", json!({})).await.refusal_code().await.0, 404);
}

#[tokio::test]
async fn sessions_are_bounded_and_the_least_recently_used_is_evicted() {
    let fixture = ServerFixture::with([echo("echo")]);
    let idle = TestSession::begin(&fixture, json!({})).await;
    let active = TestSession::begin(&fixture, json!({})).await;
    let mut begun = vec![idle.id.clone()];
    for _ in 0..10 {
        // Concurrently, so that they all find the limit reached.
        let replies = join_all((0..128).map(|_| fixture.answer(post(None, &initialize(&json!({})))))).await;
        begun.extend(replies.iter().map(|reply| reply.header("mcp-session-id").unwrap().to_owned()));
        active.request(1, "ping", json!({})).await.result().await;
    }
    let ping = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let alive = async || {
        let pinged = join_all(begun.iter().map(|id| fixture.answer(post(Some(id), &ping)))).await;
        pinged.iter().filter(|reply| reply.status == 202).count()
    };
    with_timeout("the others to go", async { while alive().await >= SESSIONS_MAX {} }).await;
    assert_eq!(idle.request(1, "ping", json!({})).await.refusal_code().await.0, 404);
    active.call(2, "echo", json!({})).await.result().await;
    fixture.assert_responsive().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other_session() {
    let fixture = ServerFixture::with([notifying_tool("talk", 1_000), echo("echo")]);
    let (unread_session, other) =
        (TestSession::begin(&fixture, json!({})).await, TestSession::begin(&fixture, json!({})).await);
    let _unread = unread_session.listen().await;
    let params = json!({"name": "talk", "arguments": {}, "_meta": {"progressToken": "p"}});
    let mut unread = Vec::new();
    for id in 0..4 {
        unread.push(unread_session.request(id, "tools/call", params.clone()).await);
    }
    for id in 0..4 {
        other.call(id, "echo", json!({})).await.result().await;
    }
    fixture.assert_responsive().await;
}

#[tokio::test]
async fn a_session_begins_in_the_newest_revision_that_both_know() {
    let fixture = ServerFixture::with([echo("echo")]);
    for (requested, negotiated) in
        [("2024-11-05", "2024-11-05"), ("2026-07-28", SESSION_VERSION), ("1999-01-01", SESSION_VERSION)]
    {
        let mut body = initialize(&json!({}));
        body["params"]["protocolVersion"] = json!(requested);
        let begun = fixture.answer(post(None, &body)).await.result().await;
        assert_eq!(begun["protocolVersion"], negotiated);
        assert_eq!(begun["instructions"], "Be kind.");
    }
}
