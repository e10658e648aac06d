//! Credentials that callers send with a call.

use super::*;

/// An operation that requires this security scheme.
fn guarded(scheme: Scheme) -> Description {
    let security = vec![BTreeMap::from([("it".to_owned(), Vec::new())])];
    Description {
        operations: vec![Operation { security, ..operation("GET", "/pets") }],
        schemes: BTreeMap::from([("it".to_owned(), scheme)]),
        ..Description::default()
    }
}

/// Configures a credential, and allows callers to send their own.
fn open(settings: &mut ApiSettings) {
    settings.takes_credentials = true;
    settings.credentials.other = Some(Credential::Plain(Secret::new("configured")));
}

async fn bring(api: Api, auth: Value) -> Result<Output, ToolError> {
    let call = Call::new(catalog(api), Caller::Library("test".to_owned()));
    let call = call.with_auth(auth.as_object().unwrap().clone());
    Catalog::call("pets.operation", json!({}), call).await
}

#[tokio::test]
async fn what_a_call_brings_stands_for_what_is_configured() {
    let web = Web::serve(|_| reply(200, ""));
    let ours = |scheme| described(guarded(scheme), &web.url(""), open);
    for (scheme, auth) in [
        (Scheme::Bearer, json!({"pets": {"type": "bearer", "token": "of-the-caller"}})),
        (Scheme::Bearer, json!({"pets": "of-the-caller"})),
        (Scheme::Bearer, json!({"pets": {"it": "of-the-caller"}})),
        // The caller's credentials are for another API.
        (Scheme::Bearer, json!({"shops": "of-the-caller"})),
        (Scheme::Basic, json!({"pets": {"type": "basic", "username": "me", "password": "hunter2!"}})),
    ] {
        bring(ours(scheme), auth).await.unwrap();
    }
    let key = Scheme::Key { place: Place::Query, name: "key".to_owned() };
    bring(ours(key), json!({"pets": {"type": "api_key", "value": "k"}})).await.unwrap();
    let asked = web.asked();
    let sent: Vec<&str> = asked[..5].iter().map(|asked| asked.header("authorization").unwrap()).collect();
    let own = "Bearer of-the-caller";
    assert_eq!(sent, [own, own, own, "Bearer configured", "Basic bWU6aHVudGVyMiE="]);
    assert_eq!(asked[5].target(), "GET /pets?key=k");
}

#[tokio::test]
async fn headers_that_let_us_in_do_not_go_with_what_a_call_brings() {
    let web = Web::serve(|_| reply(200, ""));
    let with_headers = |settings: &mut ApiSettings| {
        open(settings);
        let header = |name: &str, value: &str| (name.to_owned(), Secret::new(value));
        settings.headers = vec![header("X-Api-Key", "of-the-admin"), header("X-Team", "kennel")];
    };
    let ours = || described(guarded(Scheme::Bearer), &web.url(""), with_headers);
    bring(ours(), json!({"pets": "of-the-caller"})).await.unwrap();
    call(ours(), json!({})).await.unwrap();
    let asked = web.asked();
    let sent: Vec<_> =
        asked.iter().map(|asked| (asked.header("x-api-key"), asked.header("x-team"))).collect();
    assert_eq!(sent, [(None, Some("kennel")), (Some("of-the-admin"), Some("kennel"))]);
}

#[tokio::test]
async fn what_is_configured_does_not_help_out_where_what_is_brought_does_not_fit() {
    let web = Web::serve(|_| reply(200, ""));
    let api = described(guarded(Scheme::Bearer), &web.url(""), open);
    let auth = json!({"pets": {"type": "basic", "username": "me", "password": "hunter2!"}});
    let error = bring(api, auth).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConfigured);
    assert!(!error.message().contains("hunter2"), "{error}");
    assert!(web.asked().is_empty());
}

#[tokio::test]
async fn what_a_service_repeats_of_it_is_masked() {
    let auth = || json!({"pets": {"type": "bearer", "token": "hunter2hunter2"}});
    for (status, content_type) in [(200, "application/json"), (200, "text/plain"), (500, "application/json")]
    {
        let repeated = reply_with(status, &[("Content-Type", content_type)], r#"{"you": "hunter2hunter2"}"#);
        let web = Web::serve(move |_| repeated.clone());
        let result = bring(described(guarded(Scheme::Bearer), &web.url(""), open), auth()).await;
        let told = match result {
            Ok(output) => output.value.to_string(),
            Err(error) => format!("{error} {error:?} {:?}", error.data()),
        };
        assert!(told.contains("***") && !told.contains("hunter2"), "{told}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_told_by_the_name_of_the_api_and_not_repeated() {
    let web = Web::serve(|_| reply(200, ""));
    let elsewhere = json!({
        "type": "oauth2", "client_id": "hunter2", "client_secret": "hunter2", "token_url": "https://hunter2"
    });
    for (brought, why) in [
        (json!(7), "must be a text, or a table with a `type`"),
        (json!({"type": "hunter2"}), "needs a `type`: bearer, basic, api_key or oauth2"),
        (json!({"it": {"type": "bearer", "key": "hunter2"}}), "`it`: `key` is unknown; known here: token"),
        (elsewhere, "where tokens are got is not the caller's to say; leave out `token_url`"),
    ] {
        let api = described(guarded(Scheme::Bearer), &web.url(""), open);
        let error = bring(api, json!({"pets": brought})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadRequest);
        assert_eq!(error.message(), format!("`_meta.auth` for `pets`: {why}"));
    }
    assert!(web.asked().is_empty());
}

#[tokio::test]
async fn nobody_brings_any_where_that_is_not_allowed() {
    let web = Web::serve(|_| reply(200, ""));
    let closed = |settings: &mut ApiSettings| {
        open(settings);
        settings.takes_credentials = false;
    };
    let api = described(guarded(Scheme::Bearer), &web.url(""), closed);
    let error = bring(api, json!({"pets": "hunter2!"})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    assert!(error.message().contains("`request_auth = true`") && !error.message().contains("hunter2"));
    assert!(web.asked().is_empty());
}

#[tokio::test]
async fn tokens_are_got_where_the_configuration_says() {
    let web = Web::serve(|asked| match asked.target() {
        "POST /own/token" => json_reply(r#"{"access_token": "fresh"}"#),
        _ => reply(200, ""),
    });
    let url = web.url("/own/token");
    for scheme in [
        Scheme::ClientCredentials { token_url: "/described/token".to_owned(), scopes: Vec::new() },
        Scheme::Bearer,
        Scheme::OtherToken,
    ] {
        let own = |settings: &mut ApiSettings| {
            settings.credentials.other = Some(Credential::ClientCredentials {
                id: "me".to_owned(),
                secret: Secret::new("hunter2!"),
                scopes: Vec::new(),
                token_url: Some(url.clone()),
            });
        };
        call(described(guarded(scheme), &web.url(""), own), json!({})).await.unwrap();
    }
    let asked = web.asked();
    assert_eq!(asked.iter().filter(|asked| asked.header("authorization") == Some("Bearer fresh")).count(), 3);
}
