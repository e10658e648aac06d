//! Parked calls: multi-round-trip calls of stateless clients, and the handle (`requestState`) to one.

use crate::common::{self, Gate, Request, Site, asking, call, model, patiently, person, told, wanting};
use ctx_core::{Progress, Question, Want};
use ctx_testkit::echo;
use serde_json::{Value, json};
use std::time::Duration;

const INVALID_PARAMS: i64 = -32602;

fn site() -> Site {
    Site::with([asking("greet", person()), asking("welcome", person()), echo("echo")])
}

fn greet() -> Request {
    call("greet", json!({})).able(json!({"elicitation": {}}))
}

fn with_answer(request: Request, state: &Value, answer: Value) -> Request {
    request.param("requestState", state.clone()).param("inputResponses", json!({"who": answer}))
}

fn ada() -> Value {
    json!({"action": "accept", "content": {"name": "Ada"}})
}

/// Sends a request that is answered with an elicitation; returns the handle.
async fn asked(site: &Site, request: Request) -> Value {
    let mut result = site.send(request).await.result().await;
    assert_eq!(result["resultType"], "input_required");
    assert_eq!(result["inputRequests"]["who"]["method"], "elicitation/create", "{result}");
    result["requestState"].take()
}

async fn refused(site: &Site, request: Request) -> String {
    let (_, code, message) = site.send(request).await.refusal().await;
    assert_eq!(code, INVALID_PARAMS);
    message
}

#[tokio::test]
async fn an_answer_goes_to_the_call_that_asked() {
    let site = site();
    let state = asked(&site, greet()).await;
    site.sees_no_run().await;
    let result = site.send(with_answer(greet(), &state, ada())).await.result().await;
    assert_eq!(result["structuredContent"], json!({"name": "Ada"}));
    assert_eq!(site.next_run().await, ("tools.greet".to_owned(), "ok".to_owned()));
}

#[tokio::test]
async fn what_a_person_does_not_say_is_told_to_the_tool() {
    let site = site();
    for (action, text) in
        [("decline", "the person declined"), ("cancel", "the person dismissed the question")]
    {
        let state = asked(&site, greet()).await;
        let result = site.send(with_answer(greet(), &state, json!({"action": action}))).await.result().await;
        assert_eq!(told(&result), (false, text.to_owned()));
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_again() {
    let site = site();
    let mut state = asked(&site, greet()).await;
    for unfit in [
        json!({"action": "accept", "content": {"name": "A"}}),
        json!({"action": "accept", "content": {}}),
        json!({"action": "accept"}),
        json!({"action": "perhaps"}),
        json!({}),
    ] {
        let again = asked(&site, with_answer(greet(), &state, unfit)).await;
        assert_ne!(again, state);
        state = again;
    }
    let result = site.send(with_answer(greet(), &state, ada())).await.result().await;
    assert_eq!(result["structuredContent"], json!({"name": "Ada"}));
}

#[tokio::test]
async fn answers_may_come_before_the_question() {
    let site = site();
    let early = greet().param("inputResponses", json!({"who": ada(), "other": {"action": "accept"}}));
    let result = site.send(early).await.result().await;
    assert_eq!(result["structuredContent"], json!({"name": "Ada"}));
    asked(&site, greet().param("inputResponses", json!({"wrong": ada()}))).await;
}

#[tokio::test]
async fn a_handle_that_was_changed_opens_nothing() {
    let site = site();
    let state = asked(&site, greet()).await;
    let text = state.as_str().unwrap();
    let mut flipped = text.as_bytes().to_vec();
    let middle = flipped.len() / 2;
    flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    for forged in [&format!("{text}-TAMPERED"), &flipped, &text[1..], "", "nonsense", &"x".repeat(100_000)] {
        let message = refused(&site, with_answer(greet(), &json!(forged), ada())).await;
        assert!(message.contains("not one that this server gave"), "{message}");
    }
    // The call still waits for a request with the true handle.
    site.send(with_answer(greet(), &state, ada())).await.result().await;
}

#[tokio::test]
async fn a_handle_is_good_once() {
    let site = site();
    let state = asked(&site, greet()).await;
    site.send(with_answer(greet(), &state, ada())).await.result().await;
    let message = refused(&site, with_answer(greet(), &state, ada())).await;
    assert!(message.contains("no longer waits"), "{message}");
}

#[tokio::test]
async fn a_handle_is_good_for_nothing_but_its_own_call() {
    let site = site();
    let state = asked(&site, greet()).await;
    let welcome = call("welcome", json!({})).able(json!({"elicitation": {}}));
    let otherwise = call("greet", json!({"loudly": true})).able(json!({"elicitation": {}}));
    let prompt = common::request("prompts/get").named("greet").able(json!({"elicitation": {}}));
    for foreign in [welcome, otherwise, call("echo", json!({})), prompt] {
        let message = refused(&site, with_answer(foreign, &state, ada())).await;
        assert!(message.contains("not one that this server gave"), "{message}");
    }
    let elsewhere = self::site();
    refused(&elsewhere, with_answer(greet(), &state, ada())).await;
    site.send(with_answer(greet(), &state, ada())).await.result().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_too_long_ends_and_its_handle_with_it() {
    let site = site();
    let state = asked(&site, greet()).await;
    tokio::time::sleep(ctx_core::ANSWER_TIME_MAX + Duration::from_secs(1)).await;
    assert_eq!(site.next_run().await.0, "tools.greet");
    // A late answer gets the call's failure, or an error that the call no longer waits.
    let late = site.send(with_answer(greet(), &state, ada())).await.last().await;
    assert_ne!(late["result"]["structuredContent"], json!({"name": "Ada"}));
}

#[tokio::test]
async fn calls_that_wait_are_bounded_and_others_are_not_concerned() {
    let site = site();
    let mut states = Vec::new();
    let full = loop {
        let mut result = site.send(greet()).await.result().await;
        if result["resultType"] == "complete" {
            break result;
        }
        states.push(result["requestState"].take());
        assert!(states.len() <= 1_000, "nothing bounds the calls that wait");
    };
    assert_eq!(told(&full), (false, "too many calls wait for an answer; try again later".to_owned()));
    site.sees_cancelled("greet").await;
    site.send(call("echo", json!({}))).await.result().await;
    // Each call that is answered makes room for another.
    site.send(with_answer(greet(), &states[0], ada())).await.result().await;
    asked(&site, greet()).await;
}

#[tokio::test]
async fn stopping_gives_up_the_calls_that_wait() {
    let site = site();
    asked(&site, greet()).await;
    patiently("the end of the calls", site.server.drained(Duration::MAX)).await;
    site.sees_cancelled("greet").await;
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_told_what_it_lacks() {
    let gate = Gate::new();
    let site = Site::with([
        asking("greet", person()),
        asking("think", model()),
        asking("look", Want::Roots),
        gate.tool("wait"),
    ]);
    for (tool, lacking) in [("greet", "elicitation"), ("think", "sampling"), ("look", "roots")] {
        let refused = site.send(call(tool, json!({}))).await;
        assert_eq!(refused.status, 400);
        let error = refused.last().await["error"].take();
        assert_eq!(error["code"], -32021, "{error}");
        assert_eq!(error["data"]["requiredCapabilities"], json!({lacking: {}}));
    }
}

#[tokio::test]
async fn a_model_and_the_folders_are_asked_for_in_the_same_way() {
    let site = Site::with([asking("think", model()), asking("look", Want::Roots)]);
    let message = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi"}});
    let roots = json!({"roots": [{"uri": "file:///home"}]});
    for (tool, able, method, answer) in [
        ("think", json!({"sampling": {}}), "sampling/createMessage", message),
        ("look", json!({"roots": {}}), "roots/list", roots),
    ] {
        let request = call(tool, json!({})).able(able);
        let mut result = site.send(request.clone()).await.result().await;
        assert_eq!(result["inputRequests"]["who"]["method"], method);
        let state = result["requestState"].take();
        let result = site.send(with_answer(request, &state, answer)).await.result().await;
        assert!(told(&result).0, "{result}");
    }
}

#[tokio::test]
async fn a_call_that_never_stops_talking_asks_nevertheless() {
    let talkative = wanting("talk", |call| {
        Box::pin(async move {
            let question = Question { key: Some("who".to_owned()), want: person() };
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
    let site = Site::with([talkative]);
    let talk = call("talk", json!({})).able(json!({"elicitation": {}})).meta("progressToken", json!("t"));
    let mut asks = site.send(talk.clone()).await.last().await;
    assert_eq!(asks["result"]["resultType"], "input_required", "{asks}");
    let state = asks["result"]["requestState"].take();
    let answered = site.send(with_answer(talk, &state, ada())).await.last().await;
    assert_eq!(answered["result"]["structuredContent"], json!({"name": "Ada"}), "{answered}");
}
