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

fn named<const N: usize>(schemes: [(&str, Credential); N]) -> impl FnOnce(&mut ApiSettings) {
    let by_scheme = schemes.map(|(name, credential)| (name.to_owned(), credential)).into();
    move |settings| settings.credentials.by_scheme = by_scheme
}

/// The credentials in a request, as received.
fn shown(asked: &Asked) -> String {
    let query = asked.target().split_once('?').map(|(_, query)| format!("?{query}"));
    let headers = ["authorization", "x-key", "x-root", "cookie"];
    let headers = headers.iter().filter_map(|name| Some(format!("{name}: {}", asked.header(name)?)));
    query.into_iter().chain(headers).collect::<Vec<_>>().join(" | ")
}

#[tokio::test]
async fn credentials_arrive_as_the_operation_asks_for_them() {
    let web = silent();
    for version in ALL {
        let catalog = functions(
            version,
            &web,
            named([
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
            (&SINCE_THIRD, "auth_bearer", json!({}), "authorization: Bearer t0ken"),
            (&SINCE_THIRD, "auth_cookie", json!({ "theme": "a" }), "cookie: theme=a; session=c=key"),
        ] {
            if versions.contains(&version) {
                let asked = arrived(&catalog, &web, operation, arguments).await.unwrap();
                assert_eq!(shown(&asked), expected, "{version:?} {operation}");
            }
        }
    }
}

#[tokio::test]
async fn another_way_is_taken_where_the_first_is_closed() {
    let web = silent();
    for version in ALL {
        let catalog = functions(version, &web, named([("header_key", key("h-key"))]));
        let asked = arrived(&catalog, &web, "auth_either", json!({})).await.unwrap();
        assert_eq!(shown(&asked), "x-key: h-key", "{version:?}");
        // With one of two required credentials missing, nothing is sent.
        let error = arrived(&catalog, &web, "auth_both", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConfigured, "{version:?}");
        assert!(error.message().contains("`query_key`"), "{error}");
        let catalog = functions(version, &web, |_| ());
        for operation in ["auth_optional", "auth_none", "auth_root"] {
            let asked = arrived(&catalog, &web, operation, json!({})).await.unwrap();
            assert_eq!(shown(&asked), "", "{version:?} {operation}");
        }
        let error = arrived(&catalog, &web, "auth_basic", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotConfigured, "{version:?}");
    }
}

#[tokio::test]
async fn one_secret_for_all_is_what_each_scheme_takes_it_for() {
    let web = silent();
    for version in ALL {
        let plain = Credential::Plain(Secret::new("a:b"));
        let catalog = functions(version, &web, |settings| settings.credentials.other = Some(plain));
        for (operation, expected) in [
            ("auth_basic", "authorization: Basic YTpi"),
            ("auth_header", "x-key: a:b"),
            ("auth_query", "?key=a%3Ab"),
            ("auth_login", "authorization: Bearer a:b"),
            ("auth_token", "authorization: Bearer a:b"),
        ] {
            let asked = arrived(&catalog, &web, operation, json!({})).await.unwrap();
            assert_eq!(shown(&asked), expected, "{version:?} {operation}");
        }
    }
}

#[tokio::test]
async fn a_client_gets_a_token_once_and_another_when_it_is_refused() {
    for version in ALL {
        let (given, valid) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(1)));
        let accepted = valid.clone();
        let web = Web::serve(move |asked| {
            if asked.target() == "POST /token" {
                let number = given.fetch_add(1, Ordering::SeqCst) + 1;
                return json_reply(&format!(r#"{{"access_token": "token-{number}", "expires_in": 3600}}"#));
            }
            let expected = format!("Bearer token-{}", accepted.load(Ordering::SeqCst));
            let is_let_in = asked.header("authorization") == Some(&expected);
            if is_let_in { json_reply("1") } else { reply(401, "") }
        });
        let catalog = functions(version, &web, named([("client", client())]));
        let together = async || {
            let calls = (0..4).map(|_| {
                let catalog = catalog.clone();
                tokio::spawn(async move { call_named(&catalog, "auth_token", json!({})).await })
            });
            for call in calls.collect::<Vec<_>>() {
                assert_eq!(call.await.unwrap().unwrap().value, json!(1), "{version:?}");
            }
        };
        let tokens =
            || web.asked().into_iter().filter(|asked| asked.target() == "POST /token").collect::<Vec<_>>();
        together().await;
        assert_eq!(tokens().len(), 1, "{version:?}");
        // Once the token is revoked, all calls are refused, and one requests a new token.
        valid.store(2, Ordering::SeqCst);
        together().await;
        assert_eq!(tokens().len(), 2, "{version:?}");
        let asked = &tokens()[0];
        assert_eq!(asked.header("authorization"), Some("Basic bWU6aHVudGVyMiUyMQ=="));
        assert_eq!(asked.header("content-type"), Some("application/x-www-form-urlencoded"));
        assert_eq!(asked.header("accept"), Some("application/json"));
        assert_eq!(asked.body, b"grant_type=client_credentials&scope=read%20pets%3Awrite");
    }
}
