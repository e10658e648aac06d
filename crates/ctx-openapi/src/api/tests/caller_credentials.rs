//! Credentials that callers send with a call.

use super::*;

/// An operation that requires this security scheme.
fn secured(scheme: SecurityScheme) -> Description {
    let security = vec![BTreeMap::from([("it".to_owned(), Vec::new())])];
    Description {
        operations: vec![Operation { security, ..operation("GET", "/pets") }],
        schemes: BTreeMap::from([("it".to_owned(), scheme)]),
        ..Description::default()
    }
}

/// Configures a credential, and allows callers to send their own.
fn allow_caller_credentials(settings: &mut ApiSettings) {
    settings.accepts_caller_credentials = true;
    settings.credentials.other = Some(Credential::Plain(Secret::new("configured")));
}

async fn call_with_auth(api: LoadedApi, auth: Value) -> Result<Output, ToolError> {
    let call = Call::new(catalog(api), Caller::Library("test".to_owned()));
    let call = call.with_auth(auth.as_object().unwrap().clone());
    Catalog::call("pets.operation", json!({}), call).await
}

#[tokio::test]
async fn caller_credentials_replace_configured_ones() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let ours = |scheme| api_of(secured(scheme), &web.url(""), allow_caller_credentials);
    for (scheme, auth) in [
        (SecurityScheme::Bearer, json!({"pets": {"type": "bearer", "token": "of-the-caller"}})),
        (SecurityScheme::Bearer, json!({"pets": "of-the-caller"})),
        (SecurityScheme::Bearer, json!({"pets": {"it": "of-the-caller"}})),
        // The caller's credentials are for another API.
        (SecurityScheme::Bearer, json!({"shops": "of-the-caller"})),
        (SecurityScheme::Basic, json!({"pets": {"type": "basic", "username": "me", "password": "hunter2!"}})),
    ] {
        call_with_auth(ours(scheme), auth).await.unwrap();
    }
    let key = SecurityScheme::Key { location: ParameterLocation::Query, name: "key".to_owned() };
    call_with_auth(ours(key), json!({"pets": {"type": "api_key", "value": "k"}})).await.unwrap();
    let requests = web.requests();
    let sent: Vec<&str> =
        requests[..5].iter().map(|request| request.header("authorization").unwrap()).collect();
    let own = "Bearer of-the-caller";
    assert_eq!(sent, [own, own, own, "Bearer configured", "Basic bWU6aHVudGVyMiE="]);
    assert_eq!(requests[5].target(), "GET /pets?key=k");
}

#[tokio::test]
async fn secret_headers_are_not_sent_with_caller_credentials() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let with_headers = |settings: &mut ApiSettings| {
        allow_caller_credentials(settings);
        let header = |name: &str, value: &str| (name.to_owned(), Secret::new(value));
        settings.headers = vec![header("X-Api-Key", "of-the-admin"), header("X-Team", "kennel")];
    };
    let ours = || api_of(secured(SecurityScheme::Bearer), &web.url(""), with_headers);
    call_with_auth(ours(), json!({"pets": "of-the-caller"})).await.unwrap();
    call(ours(), json!({})).await.unwrap();
    let requests = web.requests();
    let sent: Vec<_> =
        requests.iter().map(|request| (request.header("x-api-key"), request.header("x-team"))).collect();
    assert_eq!(sent, [(None, Some("kennel")), (Some("of-the-admin"), Some("kennel"))]);
}

#[tokio::test]
async fn configured_credentials_are_no_fallback_for_unsuitable_caller_credentials() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let api = api_of(secured(SecurityScheme::Bearer), &web.url(""), allow_caller_credentials);
    let auth = json!({"pets": {"type": "basic", "username": "me", "password": "hunter2!"}});
    let error = call_with_auth(api, auth).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConfigured);
    assert!(!error.message().contains("hunter2"), "{error}");
    assert!(web.requests().is_empty());
}

#[tokio::test]
async fn echoed_caller_credentials_are_masked() {
    let auth = || json!({"pets": {"type": "bearer", "token": "hunter2hunter2"}});
    for (status, content_type) in [(200, "application/json"), (200, "text/plain"), (500, "application/json")]
    {
        let repeated =
            http_response_with(status, &[("Content-Type", content_type)], r#"{"you": "hunter2hunter2"}"#);
        let web = MockWebServer::serve(move |_| repeated.clone());
        let result = call_with_auth(
            api_of(secured(SecurityScheme::Bearer), &web.url(""), allow_caller_credentials),
            auth(),
        )
        .await;
        let shown_text = match result {
            Ok(output) => output.value.to_string(),
            Err(error) => format!("{error} {error:?} {:?}", error.data()),
        };
        assert!(shown_text.contains("***") && !shown_text.contains("hunter2"), "{shown_text}");
    }
}

#[tokio::test]
async fn errors_name_the_api_and_never_repeat_a_credential() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let elsewhere = json!({
        "type": "oauth2", "client_id": "hunter2", "client_secret": "hunter2", "token_url": "https://hunter2"
    });
    for (auth, why) in [
        (json!(7), "must be a string, or a table with a `type`"),
        (json!({"type": "hunter2"}), "needs a `type`: bearer, basic, api_key or oauth2"),
        (json!({"it": {"type": "bearer", "key": "hunter2"}}), "`it`: `key` is unknown; known here: token"),
        (elsewhere, "callers may not choose the token endpoint; leave out `token_url`"),
    ] {
        let api = api_of(secured(SecurityScheme::Bearer), &web.url(""), allow_caller_credentials);
        let error = call_with_auth(api, json!({"pets": auth})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadRequest);
        assert_eq!(error.message(), format!("`_meta.auth` for `pets`: {why}"));
    }
    assert!(web.requests().is_empty());
}

#[tokio::test]
async fn caller_credentials_are_refused_unless_allowed() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let closed = |settings: &mut ApiSettings| {
        allow_caller_credentials(settings);
        settings.accepts_caller_credentials = false;
    };
    let api = api_of(secured(SecurityScheme::Bearer), &web.url(""), closed);
    let error = call_with_auth(api, json!({"pets": "hunter2!"})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    assert!(error.message().contains("`request_auth = true`") && !error.message().contains("hunter2"));
    assert!(web.requests().is_empty());
}

#[tokio::test]
async fn tokens_are_requested_from_the_configured_endpoint() {
    let web = MockWebServer::serve(|request| match request.target() {
        "POST /own/token" => json_reply(r#"{"access_token": "fresh"}"#),
        _ => http_response(200, ""),
    });
    let url = web.url("/own/token");
    for scheme in [
        SecurityScheme::ClientCredentials { token_url: "/described/token".to_owned(), scopes: Vec::new() },
        SecurityScheme::Bearer,
        SecurityScheme::OtherToken,
    ] {
        let own = |settings: &mut ApiSettings| {
            settings.credentials.other = Some(Credential::ClientCredentials {
                id: "me".to_owned(),
                secret: Secret::new("hunter2!"),
                scopes: Vec::new(),
                token_url: Some(url.clone()),
            });
        };
        call(api_of(secured(scheme), &web.url(""), own), json!({})).await.unwrap();
    }
    let requests = web.requests();
    assert_eq!(
        requests.iter().filter(|request| request.header("authorization") == Some("Bearer fresh")).count(),
        3
    );
}
