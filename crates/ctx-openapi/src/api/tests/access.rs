//! Credentials: which requests carry them, and to whom they are never shown.

use super::*;
use crate::document::Selection;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An operation that requires this security scheme.
fn guarded(scheme: &Scheme, method: &str) -> Description {
    let security = vec![BTreeMap::from([("it".to_owned(), vec!["read".to_owned(), "a b".to_owned()])])];
    Description {
        operations: vec![Operation { security, ..operation(method, "/pets") }],
        schemes: BTreeMap::from([("it".to_owned(), scheme.clone())]),
        ..Description::default()
    }
}

fn with(credential: Credential) -> impl FnOnce(&mut ApiSettings) {
    move |settings| settings.credentials.other = Some(credential)
}

fn secret(text: &str) -> Secret {
    Secret::new(text)
}

fn key(place: Place) -> Scheme {
    Scheme::Key { place, name: "x-api.key".to_owned() }
}

fn client() -> Credential {
    Credential::ClientCredentials {
        id: "me:too".to_owned(),
        secret: secret("hunter2!"),
        scopes: Vec::new(),
        token_url: None,
    }
}

fn tokens_at(url: &str) -> Scheme {
    Scheme::ClientCredentials { token_url: url.to_owned(), scopes: Vec::new() }
}

#[tokio::test]
async fn credentials_arrive_as_their_scheme_has_it() {
    let web = Web::serve(|_| reply(200, ""));
    let basic = Credential::Basic { user: "me".to_owned(), password: secret("hunter2!") };
    for (scheme, credential) in [
        (Scheme::Bearer, Credential::Bearer(secret("t0ken!"))),
        (Scheme::Basic, basic),
        (key(Place::Header), Credential::Key(secret("k&y=1"))),
        (key(Place::Query), Credential::Key(secret("k&y=1"))),
        (key(Place::Cookie), Credential::Key(secret("k&y=1"))),
    ] {
        let api = described(guarded(&scheme, "GET"), &web.url("/v1"), with(credential));
        call(api, json!({})).await.unwrap();
    }
    let asked = web.asked();
    assert_eq!(asked[0].header("authorization"), Some("Bearer t0ken!"));
    assert_eq!(asked[1].header("authorization"), Some("Basic bWU6aHVudGVyMiE="));
    assert_eq!(asked[2].header("x-api.key"), Some("k&y=1"));
    assert_eq!(asked[3].target(), "GET /v1/pets?x-api.key=k%26y%3D1");
    assert_eq!(asked[4].header("cookie"), Some("x-api.key=k&y=1"));
    assert!(asked[2..].iter().all(|asked| asked.header("authorization").is_none()));
}

#[tokio::test]
async fn an_argument_cannot_stand_in_for_a_credential() {
    let web = Web::serve(|_| reply(200, ""));
    for place in [Place::Header, Place::Query, Place::Cookie] {
        let mut description = guarded(&key(place), "GET");
        description.operations[0].parameters = vec![parameter(place, "x-api.key")];
        let api =
            described(description, &web.url("/v1?x%2Dapi.key=theirs"), with(Credential::Key(secret("ours"))));
        call(api, json!({ "x-api.key": "theirs" })).await.unwrap();
        let asked = web.asked().pop().unwrap();
        let all = format!("{}{}", if place == Place::Query { asked.target() } else { "" }, asked.head);
        assert!(all.contains("ours") && !all.contains("theirs"), "{all}");
    }
}

#[tokio::test]
async fn credentials_of_the_call_stand_for_all_that_are_configured() {
    let web = Web::serve(|_| reply(200, ""));
    let description = guarded(&Scheme::Bearer, "GET");
    let operation = description.operations[0].clone();
    let api = described(description, &web.url("/v1"), with(Credential::Bearer(secret("configured"))));
    let send = |own: Credentials| {
        let (api, operation) = (&api, &operation);
        async move { api.inner.send(operation, &Value::Null, &Map::new(), Some(&own), None).await }
    };
    let own = Credentials { other: Some(Credential::Bearer(secret("own"))), ..Credentials::default() };
    send(own).await.unwrap();
    assert_eq!(web.asked()[0].header("authorization"), Some("Bearer own"));
    // Credentials of the caller that do not fit are not replaced by configured ones.
    let wrong = Credentials { other: Some(Credential::Key(secret("own"))), ..Credentials::default() };
    assert_eq!(send(wrong).await.unwrap_err().kind(), ErrorKind::NotConfigured);
    assert_eq!(web.asked().len(), 1);
}

#[tokio::test]
async fn open_operations_get_nothing_where_the_others_are_left_out() {
    let web = Web::serve(|_| reply(200, ""));
    let mut description = guarded(&Scheme::Bearer, "GET");
    description.operations.push(Operation { name: "open".to_owned(), ..operation("GET", "/public/pets") });
    let api = described(description, &web.url(""), |settings| {
        settings.credentials.other = Some(Credential::Bearer(secret("t0ken!")));
        settings.operations = Selection::new(["/public/**"], []).unwrap();
    });
    let catalog = catalog(api);
    call_named(&catalog, "open", json!({})).await.unwrap();
    assert_eq!(web.asked()[0].header("authorization"), None);
}

#[tokio::test]
async fn credentials_stay_with_their_origin() {
    let elsewhere = Web::serve(|_| json_reply("1"));
    let target = elsewhere.url("/stolen");
    let home = Web::serve(move |asked| match asked.target().contains("/again") {
        true => redirect(307, &target),
        false => redirect(307, "/again"),
    });
    let mut description = guarded(&Scheme::Bearer, "POST");
    let key = Scheme::Key { place: Place::Query, name: "key".to_owned() };
    description.schemes.insert("key".to_owned(), key);
    description.operations[0].security[0].insert("key".to_owned(), Vec::new());
    description.operations[0].parameters = vec![
        parameter(Place::Header, "X-Auth-Token"),
        parameter(Place::Header, "X-Plain"),
        parameter(Place::Cookie, "session"),
    ];
    description.operations[0].frozen = BTreeMap::from([("X-Plain".to_owned(), json!("f1xed"))]);
    let api = described(description, &home.url("/v1"), |settings| {
        let named =
            [("it", Credential::Bearer(secret("t0ken!"))), ("key", Credential::Key(secret("k3y!!!")))];
        settings.credentials.by_scheme = named.map(|(name, one)| (name.to_owned(), one)).into();
        settings.headers = vec![("X-Tenant".to_owned(), secret("ours!!"))];
    });
    let output = call(api, json!({ "X-Auth-Token": "a", "session": "b" })).await.unwrap();
    assert_eq!(output.value, json!(1));
    for asked in home.asked() {
        assert_eq!(asked.header("authorization"), Some("Bearer t0ken!"));
        assert_eq!(
            (asked.header("x-tenant"), asked.parameter("key")),
            (Some("ours!!"), Some("k3y%21%21%21"))
        );
    }
    let stolen = &elsewhere.asked()[0];
    assert_eq!(stolen.target(), "POST /stolen");
    for name in ["authorization", "cookie", "x-auth-token", "x-plain", "x-tenant"] {
        assert_eq!(stolen.header(name), None, "{name}");
    }
    assert_eq!(stolen.header("accept"), home.asked()[0].header("accept"));
}

#[tokio::test]
async fn a_service_that_repeats_what_it_gets_shows_no_secret() {
    let basic = Credential::Basic { user: "me".to_owned(), password: secret("hunter2!") };
    for (scheme, credential) in [
        (Scheme::Bearer, Credential::Plain(secret("hunter2!"))),
        (Scheme::Basic, basic),
        (key(Place::Header), Credential::Key(secret("hunter2!"))),
        (key(Place::Query), Credential::Key(secret("hunter2!"))),
        (key(Place::Cookie), Credential::Key(secret("hunter2!"))),
        (tokens_at("/token"), client()),
    ] {
        for status in [200, 401, 500] {
            let web = Web::serve(move |asked| match asked.target() {
                "POST /token" => json_reply(r#"{"access_token": "hunter2!"}"#),
                _ => reply(status, &format!("{}\n{}", asked.line, asked.head)),
            });
            let api = described(guarded(&scheme, "GET"), &web.url(""), |settings| {
                settings.credentials.other = Some(credential.clone());
                settings.headers = ["X-Api-Key", "Cookie", "X-Version"]
                    .map(|name| {
                        (name.to_owned(), secret(if name == "X-Version" { "2026-01" } else { "hunter3!" }))
                    })
                    .into();
            });
            let told = match call(api, json!({})).await {
                Ok(output) => output.value.to_string(),
                Err(error) => format!("{error} {error:?} {:?}", error.data()),
            };
            assert!(told.contains("***") && told.contains("2026-01"), "{told}");
            // Plain, percent-encoded, and as a Basic `Authorization` header.
            for shown in ["hunter2", "hunter3", "bWU6aHVudGVyMiE"] {
                assert!(!told.contains(shown), "{scheme:?} {status}: {told}");
            }
        }
    }
}

#[tokio::test]
async fn a_secret_that_is_always_sent_is_shown_nowhere() {
    let frozen = |settings: &mut ApiSettings| {
        settings.frozen = [("api_key", "hunter2!/x"), ("bot_token", "hunter3!"), ("version", "2026-01")]
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .into();
    };
    let mut reading = operation("GET", "/{bot_token}/pets");
    reading.parameters = vec![
        parameter(Place::Path, "bot_token"),
        parameter(Place::Query, "api_key"),
        parameter(Place::Query, "version"),
    ];
    let told = |answer: Result<Output, ToolError>| match answer {
        Ok(output) => output.value.to_string(),
        Err(error) => format!("{error} {error:?} {:?}", error.data()),
    };
    for status in [200, 404] {
        let web = Web::serve(move |asked| reply(status, &format!("{} hunter2!/x", asked.line)));
        let told = told(call(api(&web, vec![reading.clone()], frozen), json!({})).await);
        assert_eq!(web.asked()[0].target(), "GET /v1/hunter3%21/pets?api_key=hunter2%21%2Fx&version=2026-01");
        assert!(told.contains("api_key=***&version=2026-01") && !told.contains("hunter"), "{told}");
    }
    let gone = Web::serve(|_| reply(200, ""));
    let api = api(&gone, vec![reading], frozen);
    drop(gone);
    let told = told(call(api, json!({})).await);
    assert!(told.contains("/v1/***/pets: ") && !told.contains("hunter"), "{told}");
}

#[tokio::test]
async fn a_token_is_got_once_for_all_who_want_it() {
    let web = Web::serve(|asked| match asked.target() {
        "POST /token" => {
            std::thread::sleep(Duration::from_millis(30));
            json_reply(r#"{"access_token": "t0ken!", "token_type": "bearer", "expires_in": 3600}"#)
        }
        _ => json_reply("1"),
    });
    let description = guarded(&tokens_at("/token"), "GET");
    let catalog = catalog(described(description, &web.url("/v1"), with(client())));
    let calls = (0..8).map(|_| {
        let catalog = catalog.clone();
        tokio::spawn(async move { call_named(&catalog, "operation", json!({})).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap().value, json!(1));
    }
    let asked = web.asked();
    let (tokens, calls): (Vec<_>, Vec<_>) = asked.iter().partition(|asked| asked.target() == "POST /token");
    assert_eq!((tokens.len(), calls.len()), (1, 8));
    assert!(calls.iter().all(|asked| asked.header("authorization") == Some("Bearer t0ken!")));
    // Client id and secret are percent-encoded before they are joined.
    assert_eq!(tokens[0].header("authorization"), Some("Basic bWUlM0F0b286aHVudGVyMiUyMQ=="));
    assert_eq!(tokens[0].body, b"grant_type=client_credentials&scope=read%20a%20b");
}

#[tokio::test]
async fn servers_of_one_document_have_tokens_of_their_own() {
    let service = |token: &'static str| {
        Web::serve(move |asked| match asked.target() {
            "POST /token" => json_reply(&format!(r#"{{"access_token": "{token}"}}"#)),
            _ => json_reply("1"),
        })
    };
    let (first, second) = (service("first!"), service("second"));
    let mut description = guarded(&tokens_at("/token"), "GET");
    description.operations.push(Operation { name: "other".to_owned(), ..description.operations[0].clone() });
    description.operations[0].servers = vec![first.url("")];
    description.operations[1].servers = vec![second.url("")];
    let catalog = catalog(described(description, "", |settings| {
        settings.base_url = None;
        settings.credentials.other = Some(client());
    }));
    call_named(&catalog, "operation", json!({})).await.unwrap();
    call_named(&catalog, "other", json!({})).await.unwrap();
    assert_eq!(first.asked()[1].header("authorization"), Some("Bearer first!"));
    assert_eq!(second.asked()[1].header("authorization"), Some("Bearer second"));
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed_once() {
    let given = Arc::new(AtomicUsize::new(0));
    let count = given.clone();
    let web = Web::serve(move |asked| match (asked.target(), asked.header("authorization")) {
        ("POST /token", _) => {
            let number = count.fetch_add(1, Ordering::SeqCst);
            json_reply(&format!(r#"{{"access_token": "token-{number}"}}"#))
        }
        (_, Some("Bearer token-1")) => json_reply("1"),
        _ => reply(401, ""),
    });
    let description = guarded(&tokens_at(&web.url("/token")), "POST");
    let catalog = catalog(described(description, &web.url("/v1"), with(client())));
    for _ in 0..2 {
        assert_eq!(call_named(&catalog, "operation", json!({})).await.unwrap().value, json!(1));
    }
    assert_eq!((given.load(Ordering::SeqCst), web.asked().len()), (2, 5));
}

#[tokio::test]
async fn a_service_that_refuses_every_token_is_asked_twice() {
    let web = Web::serve(|asked| match asked.target() {
        "POST /token" => json_reply(r#"{"access_token": "t0ken!"}"#),
        _ => reply(401, ""),
    });
    let api = described(guarded(&tokens_at("/token"), "GET"), &web.url(""), with(client()));
    let error = call(api, json!({})).await.unwrap_err();
    assert_eq!(error.data().unwrap()["status"], 401);
    assert_eq!(web.asked().iter().filter(|asked| asked.target() == "GET /pets").count(), 2);
}

#[tokio::test]
async fn a_token_is_asked_for_in_the_body_where_the_header_is_refused() {
    let web = Web::serve(|asked| match (asked.target(), asked.header("authorization")) {
        ("POST /token", Some(_)) => reply(401, r#"{"error": "invalid_client"}"#),
        ("POST /token", None) => json_reply(r#"{"access_token": "t0ken!", "expires_in": "60"}"#),
        _ => json_reply("1"),
    });
    let api = described(guarded(&tokens_at("/token"), "GET"), &web.url(""), with(client()));
    call(api, json!({})).await.unwrap();
    let body = String::from_utf8(web.asked()[1].body.clone()).unwrap();
    assert!(body.ends_with("&client_id=me%3Atoo&client_secret=hunter2%21"), "{body}");
}

#[tokio::test]
async fn without_a_token_it_is_said_why_and_nothing_is_called() {
    let web = Web::serve(|_| reply(400, "hunter2! is no secret"));
    let api = described(guarded(&tokens_at("/token"), "GET"), &web.url(""), with(client()));
    let error = call(api, json!({})).await.unwrap_err();
    assert!(error.message().starts_with("no token from 127.0.0.1: HTTP 400 Bad Request: ***"), "{error}");
    assert!(web.asked().iter().all(|asked| asked.target() == "POST /token"));
}
