//! Parked calls: multi-round-trip calls of stateless clients, and the handle (`requestState`) to one.

use crate::common::{
    self, CallGate, ServerFixture, TestRequest, call, elicitation, question_tool, result_text, sampling,
    tool_with_body, with_timeout,
};
use ctx_core::{Progress, Question, QuestionKind};
use ctx_testkit::echo;
use serde_json::{Value, json};
use std::time::Duration;

const INVALID_PARAMS: i64 = -32602;

fn fixture() -> ServerFixture {
    ServerFixture::with([
        question_tool("greet", elicitation()),
        question_tool("welcome", elicitation()),
        echo("echo"),
    ])
}

fn greet() -> TestRequest {
    call("greet", json!({})).with_capabilities(json!({"elicitation": {}}))
}

fn with_answer(request: TestRequest, state: &Value, answer: Value) -> TestRequest {
    request.param("requestState", state.clone()).param("inputResponses", json!({"who": answer}))
}

fn accept_with_name() -> Value {
    json!({"action": "accept", "content": {"name": "Ada"}})
}

/// Sends a request that is answered with an elicitation; returns the handle.
async fn park(fixture: &ServerFixture, request: TestRequest) -> Value {
    let mut result = fixture.send(request).await.result().await;
    assert_eq!(result["resultType"], "input_required");
    assert_eq!(result["inputRequests"]["who"]["method"], "elicitation/create", "{result}");
    result["requestState"].take()
}

async fn refusal_of(fixture: &ServerFixture, request: TestRequest) -> String {
    let (_, code, message) = fixture.send(request).await.refusal().await;
    assert_eq!(code, INVALID_PARAMS);
    message
}

#[tokio::test]
async fn an_answer_goes_to_the_call_that_asked() {
    let fixture = fixture();
    let state = park(&fixture, greet()).await;
    fixture.assert_no_run().await;
    let result = fixture.send(with_answer(greet(), &state, accept_with_name())).await.result().await;
    assert_eq!(result["structuredContent"], json!({"name": "Ada"}));
    assert_eq!(fixture.next_run().await, ("tools.greet".to_owned(), "ok".to_owned()));
}

#[tokio::test]
async fn the_tool_learns_that_an_elicitation_was_declined_or_dismissed() {
    let fixture = fixture();
    for (action, text) in [("decline", "the user declined"), ("cancel", "the user dismissed the question")] {
        let state = park(&fixture, greet()).await;
        let result =
            fixture.send(with_answer(greet(), &state, json!({"action": action}))).await.result().await;
        assert_eq!(result_text(&result), (false, text.to_owned()));
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_again() {
    let fixture = fixture();
    let mut state = park(&fixture, greet()).await;
    for unfit in [
        json!({"action": "accept", "content": {"name": "A"}}),
        json!({"action": "accept", "content": {}}),
        json!({"action": "accept"}),
        json!({"action": "perhaps"}),
        json!({}),
    ] {
        let again = park(&fixture, with_answer(greet(), &state, unfit)).await;
        assert_ne!(again, state);
        state = again;
    }
    let result = fixture.send(with_answer(greet(), &state, accept_with_name())).await.result().await;
    assert_eq!(result["structuredContent"], json!({"name": "Ada"}));
}

#[tokio::test]
async fn answers_may_come_before_the_question() {
    let fixture = fixture();
    let early =
        greet().param("inputResponses", json!({"who": accept_with_name(), "other": {"action": "accept"}}));
    let result = fixture.send(early).await.result().await;
    assert_eq!(result["structuredContent"], json!({"name": "Ada"}));
    park(&fixture, greet().param("inputResponses", json!({"wrong": accept_with_name()}))).await;
}

#[tokio::test]
async fn a_forged_handle_is_refused() {
    let fixture = fixture();
    let state = park(&fixture, greet()).await;
    let text = state.as_str().unwrap();
    let mut flipped = text.as_bytes().to_vec();
    let middle = flipped.len() / 2;
    flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    for forged in [&format!("{text}-TAMPERED"), &flipped, &text[1..], "", "nonsense", &"x".repeat(100_000)] {
        let message = refusal_of(&fixture, with_answer(greet(), &json!(forged), accept_with_name())).await;
        assert!(message.contains("was not issued by this server"), "{message}");
    }
    // The call still waits for a request with the true handle.
    fixture.send(with_answer(greet(), &state, accept_with_name())).await.result().await;
}

#[tokio::test]
async fn a_handle_can_be_used_once() {
    let fixture = fixture();
    let state = park(&fixture, greet()).await;
    fixture.send(with_answer(greet(), &state, accept_with_name())).await.result().await;
    let message = refusal_of(&fixture, with_answer(greet(), &state, accept_with_name())).await;
    assert!(message.contains("no longer waiting"), "{message}");
}

#[tokio::test]
async fn a_handle_is_bound_to_its_call() {
    let fixture = fixture();
    let state = park(&fixture, greet()).await;
    let welcome = call("welcome", json!({})).with_capabilities(json!({"elicitation": {}}));
    let otherwise = call("greet", json!({"loudly": true})).with_capabilities(json!({"elicitation": {}}));
    let prompt = common::request("prompts/get").named("greet").with_capabilities(json!({"elicitation": {}}));
    for foreign in [welcome, otherwise, call("echo", json!({})), prompt] {
        let message = refusal_of(&fixture, with_answer(foreign, &state, accept_with_name())).await;
        assert!(message.contains("was not issued by this server"), "{message}");
    }
    let elsewhere = self::fixture();
    refusal_of(&elsewhere, with_answer(greet(), &state, accept_with_name())).await;
    fixture.send(with_answer(greet(), &state, accept_with_name())).await.result().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_too_long_ends_and_its_handle_with_it() {
    let fixture = fixture();
    let state = park(&fixture, greet()).await;
    tokio::time::sleep(ctx_core::ANSWER_TIME_MAX + Duration::from_secs(1)).await;
    assert_eq!(fixture.next_run().await.0, "tools.greet");
    // A late answer gets the call's failure, or an error that the call no longer waits.
    let late = fixture.send(with_answer(greet(), &state, accept_with_name())).await.last().await;
    assert_ne!(late["result"]["structuredContent"], json!({"name": "Ada"}));
}

#[tokio::test]
async fn parked_calls_are_bounded_and_others_are_not_affected() {
    let fixture = fixture();
    let mut states = Vec::new();
    let full = loop {
        let mut result = fixture.send(greet()).await.result().await;
        if result["resultType"] == "complete" {
            break result;
        }
        states.push(result["requestState"].take());
        assert!(states.len() <= 1_000, "nothing bounds the calls that wait");
    };
    assert_eq!(result_text(&full), (false, "too many calls wait for an answer; try again later".to_owned()));
    fixture.assert_next_run_cancelled("greet").await;
    fixture.send(call("echo", json!({}))).await.result().await;
    // Each call that is answered makes room for another.
    fixture.send(with_answer(greet(), &states[0], accept_with_name())).await.result().await;
    park(&fixture, greet()).await;
}

#[tokio::test]
async fn stopping_cancels_parked_calls() {
    let fixture = fixture();
    park(&fixture, greet()).await;
    with_timeout("the end of the calls", fixture.server.drain(Duration::MAX)).await;
    fixture.assert_next_run_cancelled("greet").await;
}

#[tokio::test]
async fn a_client_without_a_capability_gets_an_error_that_names_it() {
    let gate = CallGate::new();
    let fixture = ServerFixture::with([
        question_tool("greet", elicitation()),
        question_tool("think", sampling()),
        question_tool("look", QuestionKind::Roots),
        gate.tool("wait"),
    ]);
    for (tool, capability) in [("greet", "elicitation"), ("think", "sampling"), ("look", "roots")] {
        let refused = fixture.send(call(tool, json!({}))).await;
        assert_eq!(refused.status, 400);
        let error = refused.last().await["error"].take();
        assert_eq!(error["code"], -32021, "{error}");
        assert_eq!(error["data"]["requiredCapabilities"], json!({capability: {}}));
    }
}

#[tokio::test]
async fn sampling_and_roots_work_like_elicitation() {
    let fixture =
        ServerFixture::with([question_tool("think", sampling()), question_tool("look", QuestionKind::Roots)]);
    let message = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi"}});
    let roots = json!({"roots": [{"uri": "file:///home"}]});
    for (tool, capabilities, method, answer) in [
        ("think", json!({"sampling": {}}), "sampling/createMessage", message),
        ("look", json!({"roots": {}}), "roots/list", roots),
    ] {
        let request = call(tool, json!({})).with_capabilities(capabilities);
        let mut result = fixture.send(request.clone()).await.result().await;
        assert_eq!(result["inputRequests"]["who"]["method"], method);
        let state = result["requestState"].take();
        let result = fixture.send(with_answer(request, &state, answer)).await.result().await;
        assert!(result_text(&result).0, "{result}");
    }
}

#[tokio::test]
async fn a_call_that_reports_without_pause_still_sends_its_elicitation() {
    let talkative = tool_with_body("talk", |call| {
        Box::pin(async move {
            let question = Question { key: Some("who".to_owned()), kind: elicitation() };
            let mut answer = std::pin::pin!(call.ask(question));
            let mut done = 0.0;
            loop {
                tokio::select! {
                    answer = &mut answer => break Ok(answer.unwrap_or_default()),
                    () = tokio::time::sleep(Duration::from_millis(1)) => {
                        done += 1.0;
                        call.peer().progress(Progress { done, total: None, message: None });
                    }
                }
            }
        })
    });
    let fixture = ServerFixture::with([talkative]);
    let talk = call("talk", json!({}))
        .with_capabilities(json!({"elicitation": {}}))
        .meta("progressToken", json!("t"));
    let mut asks = fixture.send(talk.clone()).await.last().await;
    assert_eq!(asks["result"]["resultType"], "input_required", "{asks}");
    let state = asks["result"]["requestState"].take();
    let answered = fixture.send(with_answer(talk, &state, accept_with_name())).await.last().await;
    assert_eq!(answered["result"]["structuredContent"], json!({"name": "Ada"}), "{answered}");
}
