//! Every kind of security scheme and requirement.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

fn key(text: &str) -> Credential {
    Credential::Key(Secret::new(text))
}

fn basic() -> Credential {
    Credential::Basic { user: "me".to_owned(), password: Secret::new("pass:word") }
}

fn client() -> Credential {
    Credential::ClientCredentials {
        id: "me".to_owned(),
        secret: Secret::new("hunter2!"),
        scopes: Vec::new(),
        token_url: None,
    }
}

fn with_schemes<const N: usize>(schemes: [(&str, Credential); N]) -> impl FnOnce(&mut ApiSettings) {
    let by_scheme = schemes.map(|(name, credential)| (name.to_owned(), credential)).into();
    move |settings| settings.credentials.by_scheme = by_scheme
}

/// The credentials in a request, as received.
fn credentials_in(request: &RecordedRequest) -> String {
    let query = request.target().split_once('?').map(|(_, query)| format!("?{query}"));
    let headers = ["authorization", "x-key", "x-root", "cookie"];
    let headers = headers.iter().filter_map(|name| Some(format!("{name}: {}", request.header(name)?)));
    query.into_iter().chain(headers).collect::<Vec<_>>().join(" | ")
}

#[tokio::test]
async fn credentials_are_sent_as_the_operation_requires() {
    let web = recording_service();
    for version in ALL {
        let catalog = catalog_for(
            version,
            &web,
            with_schemes([
                ("basic", basic()),
                ("header_key", key("h-key")),
                ("query_key", key("q&key")),
                ("root_key", key("r-key")),
                ("login", Credential::Bearer(Secret::new("login-token"))),
                ("bearer", Credential::Bearer(Secret::new("t0ken"))),
                ("cookie_key", key("c=key")),
            ]),
        );
        let user = "authorization: Basic bWU6cGFzczp3b3Jk";
        for (versions, operation, arguments, expected) in [
            (&ALL[..], "auth_basic", json!({}), user),
            (&ALL, "auth_header", json!({}), "x-key: h-key"),
            (&ALL, "auth_query", json!({ "q": "a" }), "?q=a&key=q%26key"),
            (&ALL, "auth_login", json!({}), "authorization: Bearer login-token"),
            // All of several schemes, the first of several alternatives, and optional credentials.
            (&ALL, "auth_both", json!({}), "?key=q%26key | x-key: h-key"),
            (&ALL, "auth_either", json!({}), user),
            (&ALL, "auth_optional", json!({}), "x-key: h-key"),
            (&ALL, "auth_none", json!({}), ""),
            (&ALL, "auth_root", json!({}), "x-root: r-key"),
            (&SINCE_OPENAPI3, "auth_bearer", json!({}), "authorization: Bearer t0ken"),
            (&SINCE_OPENAPI3, "auth_cookie", json!({ "theme": "a" }), "cookie: theme=a; session=c=key"),
        ] {
            if versions.contains(&version) {
                let request = sent_request(&catalog, &web, operation, arguments).await.unwrap();
                assert_eq!(credentials_in(&request), expected, "{version:?} {operation}");
            }
        }
    }
}

#[tokio::test]
async fn the_next_alternative_is_chosen_when_credentials_are_missing() {
    let web = recording_service();
    for version in ALL {
        let catalog = catalog_for(version, &web, with_schemes([("header_key", key("h-key"))]));
        let request = sent_request(&catalog, &web, "auth_either", json!({})).await.unwrap();
        assert_eq!(credentials_in(&request), "x-key: h-key", "{version:?}");
        // With one of two required credentials missing, nothing is sent.
        let error = sent_request(&catalog, &web, "auth_both", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConfigured, "{version:?}");
        assert!(error.message().contains("`query_key`"), "{error}");
        let catalog = catalog_for(version, &web, |_| ());
        for operation in ["auth_optional", "auth_none", "auth_root"] {
            let request = sent_request(&catalog, &web, operation, json!({})).await.unwrap();
            assert_eq!(credentials_in(&request), "", "{version:?} {operation}");
        }
        let error = sent_request(&catalog, &web, "auth_basic", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConfigured, "{version:?}");
    }
}

#[tokio::test]
async fn one_plain_secret_is_interpreted_by_each_scheme() {
    let web = recording_service();
    for version in ALL {
        let plain = Credential::Plain(Secret::new("a:b"));
        let catalog = catalog_for(version, &web, |settings| settings.credentials.other = Some(plain));
        for (operation, expected) in [
            ("auth_basic", "authorization: Basic YTpi"),
            ("auth_header", "x-key: a:b"),
            ("auth_query", "?key=a%3Ab"),
            ("auth_login", "authorization: Bearer a:b"),
            ("auth_token", "authorization: Bearer a:b"),
        ] {
            let request = sent_request(&catalog, &web, operation, json!({})).await.unwrap();
            assert_eq!(credentials_in(&request), expected, "{version:?} {operation}");
        }
    }
}

#[tokio::test]
async fn a_token_is_shared_and_renewed_once_refused() {
    for version in ALL {
        let (issued, valid) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(1)));
        let accepted = valid.clone();
        let web = MockWebServer::serve(move |request| {
            if request.target() == "POST /token" {
                let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
                return json_reply(&format!(r#"{{"access_token": "token-{number}", "expires_in": 3600}}"#));
            }
            let expected = format!("Bearer token-{}", accepted.load(Ordering::SeqCst));
            let is_accepted = request.header("authorization") == Some(&expected);
            if is_accepted { json_reply("1") } else { http_response(401, "") }
        });
        let catalog = catalog_for(version, &web, with_schemes([("client", client())]));
        let call_at_once = async || {
            let calls = (0..4).map(|_| {
                let catalog = catalog.clone();
                tokio::spawn(async move { call_named(&catalog, "auth_token", json!({})).await })
            });
            for call in calls.collect::<Vec<_>>() {
                assert_eq!(call.await.unwrap().unwrap().value, json!(1), "{version:?}");
            }
        };
        let tokens = || {
            web.requests().into_iter().filter(|request| request.target() == "POST /token").collect::<Vec<_>>()
        };
        call_at_once().await;
        assert_eq!(tokens().len(), 1, "{version:?}");
        // Once the token is revoked, all calls are refused, and one requests a new token.
        valid.store(2, Ordering::SeqCst);
        call_at_once().await;
        assert_eq!(tokens().len(), 2, "{version:?}");
        let request = &tokens()[0];
        assert_eq!(request.header("authorization"), Some("Basic bWU6aHVudGVyMiUyMQ=="));
        assert_eq!(request.header("content-type"), Some("application/x-www-form-urlencoded"));
        assert_eq!(request.header("accept"), Some("application/json"));
        assert_eq!(request.body, b"grant_type=client_credentials&scope=read%20pets%3Awrite");
    }
}
