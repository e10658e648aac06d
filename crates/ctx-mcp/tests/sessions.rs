//! Sessions of clients of older revisions.

use crate::common::{
    self, Gate, OLDER, Session, Site, asking, chatty, initialize, model, patiently, person, post, told,
};
use ctx_core::Want;
use ctx_testkit::{echo, tool};
use futures::future::join_all;
use serde_json::{Value, json};
use std::time::Duration;

/// The ID of no session.
const NOBODYS: &str = "00000000-0000-4000-8000-000000000000";

#[tokio::test]
async fn a_session_is_needed_and_must_be_known() {
    let site = Site::with([echo("echo")]);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(site.answer(post(None, &list)).await.refused().await.0, 400);
    for unknown in [NOBODYS, "", "../../etc/passwd"] {
        assert_eq!(site.answer(post(Some(unknown), &list)).await.refused().await.0, 404, "{unknown}");
    }
    let mut session = Session::begin(&site, json!({})).await;
    session.id = NOBODYS.to_owned();
    assert_eq!(session.listen().await.refused().await.0, 404);
}

#[tokio::test]
async fn a_session_that_has_ended_is_not_found_and_others_go_on() {
    let site = Site::with([echo("echo")]);
    let (ended, other) = (Session::begin(&site, json!({})).await, Session::begin(&site, json!({})).await);
    let mut stream = ended.listen().await;
    assert!((200..300).contains(&ended.end().await));
    assert_eq!(stream.next().await, None);
    assert_eq!(ended.call(1, "echo", json!({})).await.refused().await.0, 404);
    assert_eq!(ended.listen().await.refused().await.0, 404);
    other.call(1, "echo", json!({})).await.result().await;
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_session_that_ends_are_cancelled() {
    let gate = Gate::new();
    let site = Site::with([gate.tool("wait")]);
    let session = Session::begin(&site, json!({})).await;
    let _stream = session.call(1, "wait", json!({})).await;
    gate.entered().await;
    session.end().await;
    site.sees_cancelled("wait").await;
}

#[tokio::test]
async fn a_call_that_is_taken_back_is_cancelled() {
    let gate = Gate::new();
    let site = Site::with([gate.tool("wait"), echo("echo")]);
    let session = Session::begin(&site, json!({})).await;
    let stream = session.call(7, "wait", json!({})).await;
    gate.entered().await;
    let another = session.notify("notifications/cancelled", json!({"requestId": "7"})).await;
    assert_eq!(another, 202);
    session.call(8, "echo", json!({})).await.result().await;
    assert_eq!(site.next_run().await.0, "tools.echo");
    session.notify("notifications/cancelled", json!({"requestId": 7, "reason": "enough"})).await;
    site.sees_cancelled("wait").await;
    assert_eq!(stream.all().await, [] as [Value; 0]);
    session.call(9, "echo", json!({})).await.result().await;
}

#[tokio::test]
async fn a_call_goes_on_when_its_client_is_cut_off() {
    let gate = Gate::new();
    let site = Site::with([gate.tool("wait")]);
    let session = Session::begin(&site, json!({})).await;
    drop(session.call(1, "wait", json!({})).await);
    gate.entered().await;
    gate.open();
    assert_eq!(site.next_run().await, ("tools.wait".to_owned(), "ok".to_owned()));
}

#[tokio::test]
async fn calls_that_nobody_waits_for_do_not_keep_the_server() {
    let gate = Gate::new();
    let site = Site::with([gate.tool("wait")]);
    let session = Session::begin(&site, json!({})).await;
    drop(session.call(1, "wait", json!({})).await);
    gate.entered().await;
    site.stopping.cancel();
    patiently("the end of the calls", site.server.drained(Duration::from_millis(10))).await;
    site.sees_cancelled("wait").await;
}

#[tokio::test]
async fn open_streams_end_when_the_server_stops() {
    let site = Site::with([echo("echo")]);
    let session = Session::begin(&site, json!({})).await;
    let stream = session.listen().await;
    let listening =
        common::request("subscriptions/listen").param("notifications", json!({"toolsListChanged": true}));
    let mut listening = site.send(listening).await;
    listening.expect("notifications/subscriptions/acknowledged").await;
    site.stopping.cancel();
    assert_eq!(stream.all().await, [] as [Value; 0]);
    listening.all().await;
}

#[tokio::test]
async fn progress_comes_with_the_call_and_before_its_result() {
    let site = Site::with([chatty("talk", 3)]);
    let session = Session::begin(&site, json!({})).await;
    let params = json!({"name": "talk", "arguments": {}, "_meta": {"progressToken": "p"}});
    let messages = session.request(1, "tools/call", params).await.all().await;
    let steps: Vec<&Value> = messages.iter().map(|message| &message["params"]["progress"]).collect();
    assert_eq!(steps, [&json!(1.0), &json!(2.0), &json!(3.0), &Value::Null]);
    assert_eq!(messages[0]["params"]["progressToken"], "p");
    assert_eq!(messages[3]["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn logs_are_told_from_the_level_that_was_set() {
    let site = Site::with([chatty("talk", 0)]);
    let session = Session::begin(&site, json!({})).await;
    let mut stream = session.listen().await;
    for (level, heard) in [
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
        for line in heard {
            let message = stream.expect("notifications/message").await;
            assert_eq!(message["params"]["data"], line, "{level:?}");
        }
    }
    // No message is left over in the stream.
    site.swap(ctx_core::Catalog::builder());
    stream.expect("notifications/tools/list_changed").await;
    let refused = session.request(1, "logging/setLevel", json!({"level": "loud"})).await;
    assert_eq!(refused.refused().await.1, -32602);
}

#[tokio::test]
async fn a_person_is_asked_while_the_call_waits() {
    let site = Site::with([asking("greet", person())]);
    let session = Session::begin(&site, json!({"elicitation": {}})).await;
    for (answer, expected) in [
        (json!({"action": "accept", "content": {"name": "Ada"}}), (true, r#"{"name":"Ada"}"#)),
        (json!({"action": "decline"}), (false, "the person declined")),
        (json!({"action": "cancel"}), (false, "the person dismissed the question")),
        (
            json!({"action": "accept", "content": {"name": "A"}}),
            (false, "the answer does not fit the question"),
        ),
        (json!({"roots": []}), (false, "the answer does not fit the question")),
    ] {
        let mut stream = session.call(1, "greet", json!({})).await;
        let question = stream.expect("elicitation/create").await;
        assert_eq!(question["params"]["message"], "Who are you?");
        session.respond(&question, answer).await;
        let (ok, text) = told(&stream.result().await);
        let text = text.replace([' ', '\n'], "");
        assert_eq!((ok, text), (expected.0, expected.1.replace(' ', "")));
    }
}

#[tokio::test]
async fn a_client_that_refuses_a_question_or_cannot_be_asked_is_told_of_to_the_tool() {
    let site = Site::with([asking("greet", person())]);
    let session = Session::begin(&site, json!({"elicitation": {}})).await;
    let mut stream = session.call(1, "greet", json!({})).await;
    let question = stream.expect("elicitation/create").await;
    let refusal = json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}});
    site.answer(post(Some(&session.id), &refusal)).await;
    assert_eq!(told(&stream.result().await), (false, "the person declined".to_owned()));

    let unable = Session::begin(&site, json!({})).await;
    let result = unable.call(1, "greet", json!({})).await.result().await;
    assert_eq!(told(&result), (false, "this client cannot be asked".to_owned()));
}

#[tokio::test]
async fn a_model_and_the_folders_are_asked_for_in_the_same_way() {
    let site = Site::with([asking("think", model()), asking("look", Want::Roots)]);
    let session = Session::begin(&site, json!({"sampling": {}, "roots": {}})).await;
    let message = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi"}});
    for (tool, method, answer) in [
        ("think", "sampling/createMessage", message),
        ("look", "roots/list", json!({"roots": [{"uri": "file:///home"}]})),
    ] {
        let mut stream = session.call(1, tool, json!({})).await;
        let question = stream.expect(method).await;
        session.respond(&question, answer).await;
        let (ok, text) = told(&stream.result().await);
        assert!(ok, "{text}");
    }
}

#[tokio::test]
async fn a_question_is_withdrawn_when_its_call_has_ended() {
    let site = Site::with([asking("greet", person()).bound(Duration::from_millis(1)), echo("echo")]);
    let session = Session::begin(&site, json!({"elicitation": {}})).await;
    let mut news = session.listen().await;
    let mut stream = session.call(41, "greet", json!({})).await;
    let question = stream.expect("elicitation/create").await;
    session.notify("notifications/cancelled", json!({"requestId": 41})).await;
    site.sees_cancelled("greet").await;
    let withdrawn = news.expect("notifications/cancelled").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    // A late answer to the cancelled question is ignored.
    session.respond(&question, json!({"action": "accept", "content": {"name": "Ada"}})).await;
    session.call(42, "echo", json!({})).await.result().await;
}

/// The number of sessions that the server keeps.
const MOST: usize = 1024;

#[tokio::test]
async fn a_session_that_cannot_even_hear_that_it_ends_makes_room() {
    let prolix = tool("prolix", |_, call| {
        Box::pin(async move {
            (0..200).for_each(|_| call.peer().log(tracing::Level::INFO, "again"));
            Ok(Value::Null.into())
        })
    });
    let site = Site::with([prolix]);
    let deaf = Session::begin(&site, json!({})).await;
    let (_unread, _unanswered) = (deaf.listen().await, deaf.call(1, "prolix", json!({})).await);
    // Fills the buffer of the session that is not read.
    let told = || deaf.notify("notifications/initialized", json!({}));
    while tokio::time::timeout(Duration::from_millis(100), told()).await.is_ok() {}
    for _ in 0..MOST {
        assert_eq!(site.answer(post(None, &initialize(&json!({})))).await.status, 200);
    }
    assert_eq!(deaf.request(2, "ping", json!({})).await.refused().await.0, 404);
}

#[tokio::test]
async fn sessions_are_bounded_and_the_one_that_was_silent_longest_goes() {
    let site = Site::with([echo("echo")]);
    let silent = Session::begin(&site, json!({})).await;
    let lively = Session::begin(&site, json!({})).await;
    let mut begun = vec![silent.id.clone()];
    for _ in 0..10 {
        // Concurrently, so that they all find the limit reached.
        let replies = join_all((0..128).map(|_| site.answer(post(None, &initialize(&json!({})))))).await;
        begun.extend(replies.iter().map(|reply| reply.header("mcp-session-id").unwrap().to_owned()));
        lively.request(1, "ping", json!({})).await.result().await;
    }
    let ping = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let alive = async || {
        let pinged = join_all(begun.iter().map(|id| site.answer(post(Some(id), &ping)))).await;
        pinged.iter().filter(|reply| reply.status == 202).count()
    };
    patiently("the others to go", async { while alive().await >= MOST {} }).await;
    assert_eq!(silent.request(1, "ping", json!({})).await.refused().await.0, 404);
    lively.call(2, "echo", json!({})).await.result().await;
    site.is_well().await;
}

#[tokio::test]
async fn a_session_whose_client_does_not_read_keeps_no_other_waiting() {
    let site = Site::with([chatty("talk", 1_000), echo("echo")]);
    let (deaf, other) = (Session::begin(&site, json!({})).await, Session::begin(&site, json!({})).await);
    let _unread = deaf.listen().await;
    let params = json!({"name": "talk", "arguments": {}, "_meta": {"progressToken": "p"}});
    let mut unread = Vec::new();
    for id in 0..4 {
        unread.push(deaf.request(id, "tools/call", params.clone()).await);
    }
    for id in 0..4 {
        other.call(id, "echo", json!({})).await.result().await;
    }
    site.is_well().await;
}

#[tokio::test]
async fn a_session_begins_in_the_newest_revision_that_both_know() {
    let site = Site::with([echo("echo")]);
    for (asked, given) in [("2024-11-05", "2024-11-05"), ("2026-07-28", OLDER), ("1999-01-01", OLDER)] {
        let mut body = initialize(&json!({}));
        body["params"]["protocolVersion"] = json!(asked);
        let begun = site.answer(post(None, &body)).await.result().await;
        assert_eq!(begun["protocolVersion"], given);
        assert_eq!(begun["instructions"], "Be kind.");
    }
}
