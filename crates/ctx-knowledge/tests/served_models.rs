//! Served models: requests, and the handling of responses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use crate::common::{API_KEY, ModelServer, ScriptedReply, options, status};
use ctx_core::Secret;
use ctx_knowledge::{Effort, EmbedError, Embedder, EmbedderSettings, PROVIDERS};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

fn embedder(provider: &str, settings: &EmbedderSettings) -> Arc<dyn Embedder> {
    options(provider, settings).embedder
}

fn problem(provider: &str, settings: &EmbedderSettings) -> String {
    let kind = PROVIDERS.iter().find(|kind| kind.name == provider).unwrap();
    (kind.open)(settings).err().unwrap()
}

fn embed(embedder: &Arc<dyn Embedder>, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
    embedder.embed(texts, Effort::Full)
}

/// The error if two texts are sent and this is the response.
fn refusal(provider: &str, reply: ScriptedReply) -> String {
    let server = ModelServer::start();
    server.reply_next([reply]);
    let result = embed(&embedder(provider, &server.settings(provider, "m")), &["a", "b"]);
    let Err(EmbedError::Refused(reason)) = result else { panic!("not refused: {result:?}") };
    reason.replace(&server.url(), "URL")
}

#[test]
fn openai_requests_have_the_documented_format() {
    let server = ModelServer::start();
    let settings = EmbedderSettings {
        dimensions: Some(32),
        api_key: Some(Secret::new(API_KEY)),
        ..server.settings("openai", "text-embedding-3-small")
    };
    let vectors = embed(&embedder("openai", &settings), &["one", "two"]).unwrap();
    assert_eq!(vectors.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32]);
    let plain = EmbedderSettings { dimensions: None, api_key: None, ..settings };
    embed(&embedder("openai", &plain), &["three"]).unwrap();
    let requests = server.take_requests();
    assert_eq!(requests[0].path, "/v1/embeddings");
    assert_eq!(requests[0].authorization, Some(format!("Bearer {API_KEY}")));
    assert_eq!(
        requests[0].body,
        json!({"model": "text-embedding-3-small", "input": ["one", "two"], "encoding_format": "float", "dimensions": 32})
    );
    assert_eq!(requests[1].authorization, None);
    assert_eq!(
        requests[1].body,
        json!({"model": "text-embedding-3-small", "input": ["three"], "encoding_format": "float"})
    );
}

#[test]
fn ollama_requests_have_the_documented_format() {
    let server = ModelServer::start();
    let vectors = embed(&embedder("ollama", &server.settings("ollama", "nomic")), &["one", "two"]).unwrap();
    assert_eq!(vectors.len(), 2);
    let requests = server.take_requests();
    assert_eq!(requests[0].path, "/api/embed");
    assert_eq!(requests[0].authorization, None);
    assert_eq!(requests[0].body, json!({"model": "nomic", "input": ["one", "two"]}));
}

#[test]
fn texts_are_requested_in_batches_and_return_in_order_as_unit_vectors() {
    for provider in ["openai", "ollama"] {
        let server = ModelServer::start();
        let settings = EmbedderSettings { batch_size: Some(2), ..server.settings(provider, "m") };
        let embedder = embedder(provider, &settings);
        let texts = ["red", "green", "blue", "black", "white"];
        let together = embed(&embedder, &texts).unwrap();
        assert_eq!(server.batches(), [2, 2, 1]);
        let alone: Vec<_> = texts.iter().map(|text| embedder.embed_query(text).unwrap()).collect();
        assert_eq!(together, alone);
        for vector in together {
            let length: f32 = vector.iter().map(|value| value * value).sum();
            assert!((length - 1.0).abs() < 1e-5, "{length}");
        }
    }
}

#[test]
fn vectors_in_another_order_are_sorted() {
    let server = ModelServer::start();
    let embedder = embedder("openai", &server.settings("openai", "m"));
    let expected = embed(&embedder, &["red", "green", "blue"]).unwrap();
    server.reply_next([ScriptedReply::ModifiedVectors(|answer| {
        answer["data"].as_array_mut().unwrap().reverse()
    })]);
    assert_eq!(embed(&embedder, &["red", "green", "blue"]).unwrap(), expected);
    // Some services send no index.
    server.reply_next([ScriptedReply::ModifiedVectors(|answer| {
        for entry in answer["data"].as_array_mut().unwrap() {
            entry.as_object_mut().unwrap().remove("index");
        }
    })]);
    assert_eq!(embed(&embedder, &["red", "green", "blue"]).unwrap(), expected);
}

#[test]
fn an_invalid_response_is_an_error_that_says_why() {
    let changed = |change: fn(&mut Value)| refusal("openai", ScriptedReply::ModifiedVectors(change));
    assert_eq!(
        changed(|answer| answer["data"].as_array_mut().unwrap().truncate(1)),
        "openai at URL/v1/embeddings was sent 2 texts and returned 1 vectors"
    );
    assert_eq!(
        changed(|answer| answer["data"][1]["index"] = json!(0)),
        "openai at URL/v1/embeddings returned embeddings with wrong indexes"
    );
    assert_eq!(
        changed(|answer| answer["data"][1]["embedding"] = json!([])),
        "openai at URL/v1/embeddings returned an empty vector"
    );
    let reason = changed(|answer| answer["data"][0]["embedding"][3] = json!("many"));
    assert!(reason.contains("returned an invalid response (invalid type: string"), "{reason}");
    let reason = refusal("openai", status(200, "<html>Welcome to the office network</html>"));
    assert!(reason.ends_with(": <html>Welcome to the office network</html>"), "{reason}");
    let reason = refusal("ollama", status(200, r#"{"embedding": [1, 2]}"#));
    assert!(reason.contains("missing field `embeddings`"), "{reason}");
}

#[test]
fn vectors_of_other_dimensions_than_requested_are_an_error() {
    for provider in ["openai", "ollama"] {
        let server = ModelServer::start();
        let settings = EmbedderSettings { dimensions: Some(16), ..server.settings(provider, "m") };
        server.reply_next([ScriptedReply::ModifiedVectors(|answer| {
            let wrong = json!([1.0, 2.0, 3.0]);
            if answer["data"].is_array() {
                answer["data"][0]["embedding"] = wrong;
            } else {
                answer["embeddings"][0] = wrong;
            }
        })]);
        let error = embed(&embedder(provider, &settings), &["a"]).unwrap_err().to_string();
        assert!(error.contains("was asked for 16 dimensions and returned 3"), "{error}");
        assert!(error.contains("embedding.dims"), "{error}");
    }
}

#[test]
fn a_model_that_ollama_lacks_is_an_error_with_a_hint() {
    assert_eq!(
        refusal("ollama", status(404, r#"{"error": "model \"m\" not found, try pulling it first"}"#)),
        "ollama at URL/api/embed does not have `m`; run `ollama pull m` (model \"m\" not found, try pulling it first)"
    );
}

#[test]
fn temporary_and_permanent_failures_are_distinguished() {
    let server = ModelServer::start();
    let embedder = embedder("openai", &server.settings("openai", "m"));
    let ask = |reply: ScriptedReply| {
        server.reply_next([reply]);
        embed(&embedder, &["a"]).unwrap_err()
    };
    for code in [401, 402, 403, 404, 501] {
        assert!(matches!(ask(status(code, "no")), EmbedError::Refused(_)), "{code}");
    }
    for code in [400, 413, 422] {
        assert!(matches!(ask(status(code, "no")), EmbedError::Unreadable(_)), "{code}");
    }
    for code in [408, 429, 500, 502, 503, 529] {
        assert!(matches!(ask(status(code, "no")), EmbedError::Unavailable(_)), "{code}");
    }
    assert!(matches!(ask(ScriptedReply::CloseConnection), EmbedError::Unavailable(_)));
    let wait = vec![("retry-after", "7".to_owned())];
    let later = ask(ScriptedReply::Status(429, wait.clone(), "slow down".to_owned()));
    assert!(
        matches!(&later, EmbedError::Later { after, .. } if *after == Duration::from_secs(7)),
        "{later:?}"
    );
    assert!(matches!(ask(ScriptedReply::Status(400, wait, String::new())), EmbedError::Unreadable(_)));
}

#[test]
fn an_unreachable_or_silent_service_is_an_error() {
    let free_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = EmbedderSettings {
        model: Some("m".to_owned()),
        url: Some(format!("http://127.0.0.1:{free_port}")),
        timeout: Duration::from_secs(5),
        ..EmbedderSettings::default()
    };
    let error = embed(&embedder("ollama", &settings), &["a"]).unwrap_err();
    assert!(matches!(error, EmbedError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().starts_with(&format!("cannot reach ollama at http://127.0.0.1:{free_port}/")));
    let server = ModelServer::start();
    server.hold_requests(true);
    let settings = EmbedderSettings { timeout: Duration::from_millis(50), ..server.settings("ollama", "m") };
    let error = embed(&embedder("ollama", &settings), &["a"]).unwrap_err();
    assert!(matches!(error, EmbedError::Unavailable(_)), "{error:?}");
    assert!(error.to_string().ends_with(" timed out"), "{error}");
}

#[test]
fn redirects_of_a_service_are_not_followed() {
    let (server, elsewhere) = (ModelServer::start(), ModelServer::start());
    let to = vec![("location", format!("{}/v1/embeddings", elsewhere.url()))];
    server.reply_next([ScriptedReply::Status(307, to, String::new())]);
    let error = embed(&embedder("openai", &server.settings("openai", "m")), &["a"]).unwrap_err();
    assert!(error.to_string().contains("it redirects to"), "{error}");
    assert!(elsewhere.take_requests().is_empty());
}

#[test]
fn the_size_of_a_response_is_bounded() {
    let server = ModelServer::start();
    server.reply_next([status(200, &" ".repeat((64 << 20) + 1))]);
    let error = embed(&embedder("openai", &server.settings("openai", "m")), &["a"]).unwrap_err();
    assert!(error.to_string().contains(" is larger than "), "{error}");
}

#[test]
fn a_key_is_in_no_message_even_where_the_service_repeats_it() {
    let server = ModelServer::start();
    let settings = EmbedderSettings { api_key: Some(Secret::new(API_KEY)), ..server.settings("openai", "m") };
    let embedder = embedder("openai", &settings);
    let echo = format!("{} wrong key: {API_KEY}", "x".repeat(280));
    for reply in [
        status(401, &json!({"error": {"message": echo}}).to_string()),
        status(500, &echo),
        status(200, &echo),
        ScriptedReply::Status(
            302,
            vec![("location", format!("http://a.example/?key={API_KEY}"))],
            String::new(),
        ),
    ] {
        server.reply_next([reply]);
        let error = embed(&embedder, &["a"]).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[test]
fn invalid_settings_are_named() {
    let none = EmbedderSettings::default();
    assert_eq!(problem("openai", &none), "model: `openai` needs one, like \"text-embedding-3-small\"");
    assert_eq!(problem("ollama", &none), "model: `ollama` needs one, like \"nomic-embed-text\"");
    let named = EmbedderSettings { model: Some("m".to_owned()), ..none };
    let wrong_url = EmbedderSettings { url: Some("localhost:11434".to_owned()), ..named.clone() };
    assert_eq!(
        problem("ollama", &wrong_url),
        "url: it must begin with http:// or https://; write it like http://127.0.0.1:8080/v1"
    );
    let many = EmbedderSettings { batch_size: Some(5_000), ..named };
    assert_eq!(problem("openai", &many), "batch_size: must be at most 2048");
}

#[test]
fn the_model_id_has_provider_model_and_size_but_no_url() {
    let id = |provider: &str, model: &str, dimensions, url: Option<&str>| {
        let settings = EmbedderSettings {
            model: Some(model.to_owned()),
            dimensions,
            url: url.map(str::to_owned),
            ..EmbedderSettings::default()
        };
        embedder(provider, &settings).model().to_owned()
    };
    assert_eq!(id("openai", "small", None, None), "openai:small");
    assert_eq!(id("openai", "small", None, Some("http://proxy.example/v1")), "openai:small");
    assert_eq!(id("openai", "small", Some(256), None), "openai:small@256");
    assert_eq!(id("ollama", "nomic:latest", None, None), "ollama:nomic:latest");
}
