//! Credentials: which requests carry them, and to whom they are never shown.

use super::*;
use crate::document::Selection;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An operation that requires this security scheme.
fn secured(scheme: &SecurityScheme, method: &str) -> Description {
    let security = vec![BTreeMap::from([("it".to_owned(), vec!["read".to_owned(), "a b".to_owned()])])];
    Description {
        operations: vec![Operation { security, ..operation(method, "/pets") }],
        schemes: BTreeMap::from([("it".to_owned(), scheme.clone())]),
        ..Description::default()
    }
}

fn with_credential(credential: Credential) -> impl FnOnce(&mut ApiSettings) {
    move |settings| settings.credentials.other = Some(credential)
}

fn secret(text: &str) -> Secret {
    Secret::new(text)
}

fn key(location: ParameterLocation) -> SecurityScheme {
    SecurityScheme::Key { location, name: "x-api.key".to_owned() }
}

fn client() -> Credential {
    Credential::ClientCredentials {
        id: "me:too".to_owned(),
        secret: secret("hunter2!"),
        scopes: Vec::new(),
        token_url: None,
    }
}

fn tokens_at(url: &str) -> SecurityScheme {
    SecurityScheme::ClientCredentials { token_url: url.to_owned(), scopes: Vec::new() }
}

#[tokio::test]
async fn credentials_are_sent_as_their_scheme_requires() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let basic = Credential::Basic { user: "me".to_owned(), password: secret("hunter2!") };
    for (scheme, credential) in [
        (SecurityScheme::Bearer, Credential::Bearer(secret("t0ken!"))),
        (SecurityScheme::Basic, basic),
        (key(ParameterLocation::Header), Credential::Key(secret("k&y=1"))),
        (key(ParameterLocation::Query), Credential::Key(secret("k&y=1"))),
        (key(ParameterLocation::Cookie), Credential::Key(secret("k&y=1"))),
    ] {
        let api = api_of(secured(&scheme, "GET"), &web.url("/v1"), with_credential(credential));
        call(api, json!({})).await.unwrap();
    }
    let requests = web.requests();
    assert_eq!(requests[0].header("authorization"), Some("Bearer t0ken!"));
    assert_eq!(requests[1].header("authorization"), Some("Basic bWU6aHVudGVyMiE="));
    assert_eq!(requests[2].header("x-api.key"), Some("k&y=1"));
    assert_eq!(requests[3].target(), "GET /v1/pets?x-api.key=k%26y%3D1");
    assert_eq!(requests[4].header("cookie"), Some("x-api.key=k&y=1"));
    assert!(requests[2..].iter().all(|request| request.header("authorization").is_none()));
}

#[tokio::test]
async fn an_argument_cannot_override_a_credential() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    for location in [ParameterLocation::Header, ParameterLocation::Query, ParameterLocation::Cookie] {
        let mut description = secured(&key(location), "GET");
        description.operations[0].parameters = vec![parameter(location, "x-api.key")];
        let api = api_of(
            description,
            &web.url("/v1?x%2Dapi.key=theirs"),
            with_credential(Credential::Key(secret("ours"))),
        );
        call(api, json!({ "x-api.key": "theirs" })).await.unwrap();
        let request = web.requests().pop().unwrap();
        let all = format!(
            "{}{}",
            if location == ParameterLocation::Query { request.target() } else { "" },
            request.head
        );
        assert!(all.contains("ours") && !all.contains("theirs"), "{all}");
    }
}

#[tokio::test]
async fn credentials_of_the_call_replace_all_configured_ones() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let description = secured(&SecurityScheme::Bearer, "GET");
    let operation = description.operations[0].clone();
    let api = api_of(description, &web.url("/v1"), with_credential(Credential::Bearer(secret("configured"))));
    let send = |own: Credentials| {
        let (api, operation) = (&api, &operation);
        async move { api.inner.send(operation, &Value::Null, &Map::new(), Some(&own), None).await }
    };
    let own = Credentials { other: Some(Credential::Bearer(secret("own"))), ..Credentials::default() };
    send(own).await.unwrap();
    assert_eq!(web.requests()[0].header("authorization"), Some("Bearer own"));
    // Credentials of the caller that do not fit are not replaced by configured ones.
    let wrong = Credentials { other: Some(Credential::Key(secret("own"))), ..Credentials::default() };
    assert_eq!(send(wrong).await.unwrap_err().kind(), ErrorKind::NotConfigured);
    assert_eq!(web.requests().len(), 1);
}

#[tokio::test]
async fn public_operations_get_no_credentials_when_the_others_are_excluded() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let mut description = secured(&SecurityScheme::Bearer, "GET");
    description.operations.push(Operation { name: "open".to_owned(), ..operation("GET", "/public/pets") });
    let api = api_of(description, &web.url(""), |settings| {
        settings.credentials.other = Some(Credential::Bearer(secret("t0ken!")));
        settings.operations = Selection::new(["/public/**"], []).unwrap();
    });
    let catalog = catalog(api);
    call_named(&catalog, "open", json!({})).await.unwrap();
    assert_eq!(web.requests()[0].header("authorization"), None);
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    let elsewhere = MockWebServer::serve(|_| json_reply("1"));
    let target = elsewhere.url("/stolen");
    let api_server = MockWebServer::serve(move |request| match request.target().contains("/again") {
        true => redirect(307, &target),
        false => redirect(307, "/again"),
    });
    let mut description = secured(&SecurityScheme::Bearer, "POST");
    let key = SecurityScheme::Key { location: ParameterLocation::Query, name: "key".to_owned() };
    description.schemes.insert("key".to_owned(), key);
    description.operations[0].security[0].insert("key".to_owned(), Vec::new());
    description.operations[0].parameters = vec![
        parameter(ParameterLocation::Header, "X-Auth-Token"),
        parameter(ParameterLocation::Header, "X-Plain"),
        parameter(ParameterLocation::Cookie, "session"),
    ];
    description.operations[0].frozen = BTreeMap::from([("X-Plain".to_owned(), json!("f1xed"))]);
    let api = api_of(description, &api_server.url("/v1"), |settings| {
        let named =
            [("it", Credential::Bearer(secret("t0ken!"))), ("key", Credential::Key(secret("k3y!!!")))];
        settings.credentials.by_scheme = named.map(|(name, one)| (name.to_owned(), one)).into();
        settings.headers = vec![("X-Tenant".to_owned(), secret("ours!!"))];
    });
    let output = call(api, json!({ "X-Auth-Token": "a", "session": "b" })).await.unwrap();
    assert_eq!(output.value, json!(1));
    for request in api_server.requests() {
        assert_eq!(request.header("authorization"), Some("Bearer t0ken!"));
        assert_eq!(
            (request.header("x-tenant"), request.parameter("key")),
            (Some("ours!!"), Some("k3y%21%21%21"))
        );
    }
    let stolen = &elsewhere.requests()[0];
    assert_eq!(stolen.target(), "POST /stolen");
    for name in ["authorization", "cookie", "x-auth-token", "x-plain", "x-tenant"] {
        assert_eq!(stolen.header(name), None, "{name}");
    }
    assert_eq!(stolen.header("accept"), api_server.requests()[0].header("accept"));
}

#[tokio::test]
async fn echoed_secrets_are_masked() {
    let basic = Credential::Basic { user: "me".to_owned(), password: secret("hunter2!") };
    for (scheme, credential) in [
        (SecurityScheme::Bearer, Credential::Plain(secret("hunter2!"))),
        (SecurityScheme::Basic, basic),
        (key(ParameterLocation::Header), Credential::Key(secret("hunter2!"))),
        (key(ParameterLocation::Query), Credential::Key(secret("hunter2!"))),
        (key(ParameterLocation::Cookie), Credential::Key(secret("hunter2!"))),
        (tokens_at("/token"), client()),
    ] {
        for status in [200, 401, 500] {
            let web = MockWebServer::serve(move |request| match request.target() {
                "POST /token" => json_reply(r#"{"access_token": "hunter2!"}"#),
                _ => http_response(status, &format!("{}\n{}", request.line, request.head)),
            });
            let api = api_of(secured(&scheme, "GET"), &web.url(""), |settings| {
                settings.credentials.other = Some(credential.clone());
                settings.headers = ["X-Api-Key", "Cookie", "X-Version"]
                    .map(|name| {
                        (name.to_owned(), secret(if name == "X-Version" { "2026-01" } else { "hunter3!" }))
                    })
                    .into();
            });
            let shown_text = match call(api, json!({})).await {
                Ok(output) => output.value.to_string(),
                Err(error) => format!("{error} {error:?} {:?}", error.data()),
            };
            assert!(shown_text.contains("***") && shown_text.contains("2026-01"), "{shown_text}");
            // Plain, percent-encoded, and as a Basic `Authorization` header.
            for shown in ["hunter2", "hunter3", "bWU6aHVudGVyMiE"] {
                assert!(!shown_text.contains(shown), "{scheme:?} {status}: {shown_text}");
            }
        }
    }
}

#[tokio::test]
async fn frozen_secrets_are_masked() {
    let frozen = |settings: &mut ApiSettings| {
        settings.frozen = [("api_key", "hunter2!/x"), ("bot_token", "hunter3!"), ("version", "2026-01")]
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .into();
    };
    let mut get_operation = operation("GET", "/{bot_token}/pets");
    get_operation.parameters = vec![
        parameter(ParameterLocation::Path, "bot_token"),
        parameter(ParameterLocation::Query, "api_key"),
        parameter(ParameterLocation::Query, "version"),
    ];
    let shown_text = |result: Result<Output, ToolError>| match result {
        Ok(output) => output.value.to_string(),
        Err(error) => format!("{error} {error:?} {:?}", error.data()),
    };
    for status in [200, 404] {
        let web = MockWebServer::serve(move |request| {
            http_response(status, &format!("{} hunter2!/x", request.line))
        });
        let shown_text = shown_text(call(api(&web, vec![get_operation.clone()], frozen), json!({})).await);
        assert_eq!(
            web.requests()[0].target(),
            "GET /v1/hunter3%21/pets?api_key=hunter2%21%2Fx&version=2026-01"
        );
        assert!(
            shown_text.contains("api_key=***&version=2026-01") && !shown_text.contains("hunter"),
            "{shown_text}"
        );
    }
    let stopped_service = MockWebServer::serve(|_| http_response(200, ""));
    let api = api(&stopped_service, vec![get_operation], frozen);
    drop(stopped_service);
    let shown_text = shown_text(call(api, json!({})).await);
    assert!(shown_text.contains("/v1/***/pets: ") && !shown_text.contains("hunter"), "{shown_text}");
}

#[tokio::test]
async fn concurrent_calls_share_one_token_request() {
    let web = MockWebServer::serve(|request| match request.target() {
        "POST /token" => {
            std::thread::sleep(Duration::from_millis(30));
            json_reply(r#"{"access_token": "t0ken!", "token_type": "bearer", "expires_in": 3600}"#)
        }
        _ => json_reply("1"),
    });
    let description = secured(&tokens_at("/token"), "GET");
    let catalog = catalog(api_of(description, &web.url("/v1"), with_credential(client())));
    let calls = (0..8).map(|_| {
        let catalog = catalog.clone();
        tokio::spawn(async move { call_named(&catalog, "operation", json!({})).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap().value, json!(1));
    }
    let requests = web.requests();
    let (tokens, calls): (Vec<_>, Vec<_>) =
        requests.iter().partition(|request| request.target() == "POST /token");
    assert_eq!((tokens.len(), calls.len()), (1, 8));
    assert!(calls.iter().all(|request| request.header("authorization") == Some("Bearer t0ken!")));
    // Client id and secret are percent-encoded before they are joined.
    assert_eq!(tokens[0].header("authorization"), Some("Basic bWUlM0F0b286aHVudGVyMiUyMQ=="));
    assert_eq!(tokens[0].body, b"grant_type=client_credentials&scope=read%20a%20b");
}

#[tokio::test]
async fn servers_of_one_document_have_tokens_of_their_own() {
    let service = |token: &'static str| {
        MockWebServer::serve(move |request| match request.target() {
            "POST /token" => json_reply(&format!(r#"{{"access_token": "{token}"}}"#)),
            _ => json_reply("1"),
        })
    };
    let (first, second) = (service("first!"), service("second"));
    let mut description = secured(&tokens_at("/token"), "GET");
    description.operations.push(Operation { name: "other".to_owned(), ..description.operations[0].clone() });
    description.operations[0].servers = vec![first.url("")];
    description.operations[1].servers = vec![second.url("")];
    let catalog = catalog(api_of(description, "", |settings| {
        settings.base_url = None;
        settings.credentials.other = Some(client());
    }));
    call_named(&catalog, "operation", json!({})).await.unwrap();
    call_named(&catalog, "other", json!({})).await.unwrap();
    assert_eq!(first.requests()[1].header("authorization"), Some("Bearer first!"));
    assert_eq!(second.requests()[1].header("authorization"), Some("Bearer second"));
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed_once() {
    let issued = Arc::new(AtomicUsize::new(0));
    let count = issued.clone();
    let web =
        MockWebServer::serve(move |request| match (request.target(), request.header("authorization")) {
            ("POST /token", _) => {
                let number = count.fetch_add(1, Ordering::SeqCst);
                json_reply(&format!(r#"{{"access_token": "token-{number}"}}"#))
            }
            (_, Some("Bearer token-1")) => json_reply("1"),
            _ => http_response(401, ""),
        });
    let description = secured(&tokens_at(&web.url("/token")), "POST");
    let catalog = catalog(api_of(description, &web.url("/v1"), with_credential(client())));
    for _ in 0..2 {
        assert_eq!(call_named(&catalog, "operation", json!({})).await.unwrap().value, json!(1));
    }
    assert_eq!((issued.load(Ordering::SeqCst), web.requests().len()), (2, 5));
}

#[tokio::test]
async fn a_refused_token_is_renewed_only_once_per_call() {
    let web = MockWebServer::serve(|request| match request.target() {
        "POST /token" => json_reply(r#"{"access_token": "t0ken!"}"#),
        _ => http_response(401, ""),
    });
    let api = api_of(secured(&tokens_at("/token"), "GET"), &web.url(""), with_credential(client()));
    let error = call(api, json!({})).await.unwrap_err();
    assert_eq!(error.data().unwrap()["status"], 401);
    assert_eq!(web.requests().iter().filter(|request| request.target() == "GET /pets").count(), 2);
}

#[tokio::test]
async fn client_credentials_move_to_the_body_when_the_header_is_refused() {
    let web = MockWebServer::serve(|request| match (request.target(), request.header("authorization")) {
        ("POST /token", Some(_)) => http_response(401, r#"{"error": "invalid_client"}"#),
        ("POST /token", None) => json_reply(r#"{"access_token": "t0ken!", "expires_in": "60"}"#),
        _ => json_reply("1"),
    });
    let api = api_of(secured(&tokens_at("/token"), "GET"), &web.url(""), with_credential(client()));
    call(api, json!({})).await.unwrap();
    let body = String::from_utf8(web.requests()[1].body.clone()).unwrap();
    assert!(body.ends_with("&client_id=me%3Atoo&client_secret=hunter2%21"), "{body}");
}

#[tokio::test]
async fn without_a_token_nothing_is_called() {
    let web = MockWebServer::serve(|_| http_response(400, "hunter2! is no secret"));
    let api = api_of(secured(&tokens_at("/token"), "GET"), &web.url(""), with_credential(client()));
    let error = call(api, json!({})).await.unwrap_err();
    assert!(error.message().starts_with("no token from 127.0.0.1: HTTP 400 Bad Request: ***"), "{error}");
    assert!(web.requests().iter().all(|request| request.target() == "POST /token"));
}
