//! Access tokens: which are accepted, which are refused, and the response to a refused one.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::{self, ApiServer, HttpResponse, ServerBuilder, TestRequest, get, post, within_deadline};
use ctx_core::ScopePolicy;
use ctx_http::{OAuthLimits, OAuthOptions};
use ctx_testkit::{
    AuthorizationServer, SigningKey, TestTool, http_response, http_response_with, tool, valid_claims,
};
use serde_json::{Value, json};
use std::time::Duration;

const RESOURCE: &str = "https://ctx.example.com/mcp";
const METADATA: &str = "/.well-known/oauth-protected-resource";
const CHALLENGE: &str =
    "Bearer resource_metadata=\"https://ctx.example.com/.well-known/oauth-protected-resource/mcp\"";
/// An interval that never elapses in a test.
const NEVER: Duration = Duration::from_secs(3600);
/// An interval that elapses soon in a test.
const SOON: Duration = Duration::from_millis(5);

/// A tool that returns the identity of its caller.
fn whoami() -> TestTool {
    tool("whoami", |_, call| {
        let identity = call.identity().cloned();
        Box::pin(async move {
            let identity = identity.map(|known| json!({"subject": known.subject, "scopes": known.scopes}));
            Ok(json!(identity).into())
        })
    })
}

fn options(issuer: &AuthorizationServer) -> OAuthOptions {
    OAuthOptions {
        issuer: issuer.issuer(),
        jwks_url: None,
        resource: RESOURCE.to_owned(),
        audience: None,
        scopes: Vec::new(),
        tool_scopes: Vec::new(),
        limits: OAuthLimits {
            refresh_interval: NEVER,
            retry_delay: NEVER,
            forced_refresh_interval: NEVER,
            ..OAuthLimits::default()
        },
    }
}

fn with_limits(issuer: &AuthorizationServer, limits: impl FnOnce(&mut OAuthLimits)) -> OAuthOptions {
    let mut options = options(issuer);
    limits(&mut options.limits);
    options
}

async fn start(options: OAuthOptions) -> ApiServer {
    ServerBuilder::with([whoami()]).oauth(options).start().await
}

/// A signing key, the issuer that publishes it, and a server that accepts the issuer.
async fn start_with_issuer() -> (SigningKey, AuthorizationServer, ApiServer) {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    let server = start(options(&issuer)).await;
    (key, issuer, server)
}

fn claims(issuer: &AuthorizationServer, changes: Value) -> Value {
    let mut claims = valid_claims(&issuer.issuer(), RESOURCE);
    for (name, value) in changes.as_object().into_iter().flatten() {
        claims[name] = value.clone();
    }
    claims
}

fn call(token: &str) -> TestRequest {
    post("/tools/whoami").token(token)
}

/// Why a token was refused; the same in the body and in the header.
fn refusal_message(response: &HttpResponse) -> String {
    let (status, code, message) = response.error();
    assert_eq!((status, code.as_str()), (401, "unauthorized"), "{message}");
    let challenge = format!("{CHALLENGE}, error=\"invalid_token\", error_description=\"{message}\"");
    assert_eq!(response.header("www-authenticate"), Some(challenge.as_str()));
    message
}

async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    within_deadline(what, async {
        while !holds().await {
            tokio::time::sleep(SOON).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_token_of_the_issuer_lets_its_bearer_in_whatever_it_is_signed_with() {
    let algorithms = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
    let keys: Vec<SigningKey> = algorithms.iter().map(|name| SigningKey::new(name, name)).collect();
    let issuer = AuthorizationServer::start(&keys.iter().collect::<Vec<_>>());
    let server = start(options(&issuer)).await;
    for (key, algorithm) in keys.iter().zip(algorithms) {
        let token = key.sign(&claims(&issuer, json!({"scope": "b a"})));
        let response = server.send(call(&token)).await.success();
        assert_eq!(response, json!({"result": {"subject": "ada", "scopes": ["a", "b"]}}), "{algorithm}");
    }
    assert_eq!(issuer.jwks_request_count(), 1, "the keys are got once for all of them");
}

#[tokio::test]
async fn a_token_may_be_meant_for_others_too_and_need_not_name_its_key() {
    let (key, issuer, server) = start_with_issuer().await;
    let good = claims(&issuer, json!({"aud": ["https://other.example", RESOURCE]}));
    assert_eq!(server.send(call(&key.sign(&good))).await.status, 200);
    let nameless = key.sign_with_header(&json!({"alg": "ES256"}), &good);
    assert_eq!(server.send(call(&nameless)).await.status, 200);
    let strangers = SigningKey::new("ES256", "one").sign_with_header(&json!({"alg": "ES256"}), &good);
    assert_eq!(
        refusal_message(&server.send(call(&strangers)).await),
        "the token is not signed with a key of the issuer"
    );
}

#[tokio::test]
async fn a_token_that_is_not_valid_now_or_not_for_this_server_is_refused() {
    let (key, issuer, server) = start_with_issuer().await;
    let now = claims(&issuer, json!({}))["iat"].as_u64().unwrap();
    for (changes, why) in [
        (json!({"exp": now - 3600}), "the token has expired"),
        (json!({"exp": null}), "the token has no expiry (`exp`)"),
        (json!({"exp": "tomorrow"}), "the token has no expiry (`exp`)"),
        (json!({"nbf": now + 1800}), "the token is not valid yet"),
        (json!({"nbf": "now"}), "the token is malformed"),
        (json!({"aud": "https://other.example"}), "the token has another audience (`aud`)"),
        (
            json!({"aud": ["https://other.example", "https://ctx.example.com"]}),
            "the token has another audience (`aud`)",
        ),
        (json!({"aud": []}), "the token has another audience (`aud`)"),
        (json!({"aud": null}), "the token has no audience (`aud`)"),
        (json!({"aud": {"a": RESOURCE}}), "the token has no audience (`aud`)"),
        (json!({"iss": "https://other.example"}), "the token has another issuer (`iss`)"),
        (json!({"iss": format!("{}/", issuer.issuer())}), "the token has another issuer (`iss`)"),
        (json!({"iss": [issuer.issuer()]}), "the token is malformed"),
        (json!({"iss": null}), "the token is malformed"),
        (json!({"sub": null, "client_id": null}), "the token has no subject (`sub`)"),
    ] {
        let response = server.send(call(&key.sign(&claims(&issuer, changes.clone())))).await;
        assert_eq!(refusal_message(&response), why, "{changes}");
    }
    let skewed = claims(&issuer, json!({"exp": now + 3600, "nbf": now + 5}));
    assert_eq!(server.send(call(&key.sign(&skewed))).await.status, 200, "clocks differ a little");
}

#[tokio::test]
async fn a_token_that_the_issuer_has_not_signed_is_refused() {
    let (key, issuer, server) = start_with_issuer().await;
    let rsa = SigningKey::new("RS256", "rsa");
    issuer.publish(&[&key, &rsa]);
    let good = claims(&issuer, json!({}));
    let token = key.sign(&good);
    let parts: Vec<&str> = token.split('.').collect();
    let [header, _, signature] = parts[..] else { panic!("three parts") };
    let encoded = |value: &Value| {
        let signed = key.sign_with_header(value, &json!({}));
        signed.split('.').next().unwrap().to_owned()
    };
    let admin = encoded(&claims(&issuer, json!({"sub": "root"})));
    let nothing = encoded(&json!({"alg": "none", "kid": "one"}));
    let unsigned = "the token is not a JWT with a supported signature algorithm";
    let unaccepted = "the token's signature algorithm is not supported";
    for (token, why) in [
        (format!("{header}.{admin}.{signature}"), "the token's signature is invalid"),
        (format!("{header}.{admin}."), "the token's signature is invalid"),
        (format!("{nothing}.{admin}."), unsigned),
        (format!("{nothing}.{admin}.{signature}"), unsigned),
        (key.sign_hs256_with_public_key(&good), unaccepted),
        (rsa.sign_hs256_with_public_key(&good), unaccepted),
        (SigningKey::new("ES256", "one").sign(&good), "the token's signature is invalid"),
        (
            key.sign_with_header(&json!({"alg": "ES256", "kid": "one", "typ": "logout+jwt"}), &good),
            "the token is not an access token",
        ),
        (
            key.sign_with_header(&json!({"alg": "ES256", "kid": "one", "crit": ["exp"]}), &good),
            "the token has unsupported critical headers (`crit`)",
        ),
        (
            // The key is published for another algorithm.
            key.sign_with_header(&json!({"alg": "RS256", "kid": "one"}), &good),
            "the token is not signed with a key of the issuer",
        ),
        ("hunter2".to_owned(), unsigned),
        ("..".to_owned(), unsigned),
        (format!("{token}.{signature}"), unsigned),
    ] {
        assert_eq!(refusal_message(&server.send(call(&token)).await), why, "{token}");
    }
    assert_eq!(server.send(call(&token)).await.status, 200);
}

#[tokio::test]
async fn rotated_keys_are_found_and_withdrawn_ones_no_longer_accepted() {
    let (old, issuer, server) = start_with_issuer().await;
    let new = SigningKey::new("EdDSA", "two");
    let good = claims(&issuer, json!({}));
    assert_eq!(server.send(call(&old.sign(&good))).await.status, 200);
    issuer.publish(&[&new]);
    assert_eq!(server.send(call(&old.sign(&good))).await.status, 200, "nobody has asked yet");
    assert_eq!(server.send(call(&new.sign(&good))).await.status, 200);
    let response = server.send(call(&old.sign(&good))).await;
    assert_eq!(refusal_message(&response), "the token is not signed with a key of the issuer");
}

#[tokio::test]
async fn tokens_with_unknown_keys_do_not_make_the_server_hammer_the_issuer() {
    let (key, issuer, server) = start_with_issuer().await;
    let good = claims(&issuer, json!({}));
    assert_eq!(server.send(call(&key.sign(&good))).await.status, 200);
    for round in 0..20 {
        let stranger = SigningKey::new("EdDSA", &format!("stranger {round}"));
        let response = server.send(call(&stranger.sign(&good))).await;
        assert_eq!(refusal_message(&response), "the token is not signed with a key of the issuer");
    }
    assert_eq!(issuer.jwks_request_count(), 2, "at the start, and for the first of them");
}

#[tokio::test]
async fn while_the_issuer_is_down_its_last_keys_are_kept() {
    let key = SigningKey::new("ES384", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    let server =
        start(with_limits(&issuer, |limits| (limits.refresh_interval, limits.retry_delay) = (SOON, SOON)))
            .await;
    let token = key.sign(&claims(&issuer, json!({})));
    assert_eq!(server.send(call(&token)).await.status, 200);
    for broken in [
        http_response(500, ""),
        http_response(200, "<html>"),
        http_response_with(302, &[("location", "/elsewhere")], ""),
    ] {
        issuer.set_jwks_response(broken);
        let before = issuer.jwks_request_count();
        wait_until("more attempts", async || issuer.jwks_request_count() > before + 2).await;
        assert_eq!(server.send(call(&token)).await.status, 200);
    }
    issuer.publish(&[]);
    wait_until("the key to be given up", async || server.send(call(&token)).await.status == 401).await;
}

#[tokio::test]
async fn a_server_starts_without_its_issuer_and_recovers() {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    issuer.set_jwks_response(http_response(503, ""));
    let server = start(with_limits(&issuer, |limits| limits.retry_delay = SOON)).await;
    let token = key.sign(&claims(&issuer, json!({})));
    let response = server.send(call(&token)).await;
    let message = "the token cannot be checked: the issuer's signing keys are currently unavailable";
    assert_eq!(response.error(), (503, "overloaded".to_owned(), message.to_owned()));
    assert!(response.header("retry-after").is_some());
    assert_eq!(server.send(post("/tools/whoami")).await.status, 401);
    assert_eq!(server.send(get("/health")).await.status, 200);
    issuer.publish(&[&key]);
    wait_until("the keys", async || server.send(call(&token)).await.status == 200).await;
}

#[tokio::test]
async fn endless_or_redirected_keys_are_not_accepted() {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    let other = AuthorizationServer::start(&[&key]);
    let published = json!({ "keys": [key.public_jwk()], "padding": "x".repeat(300 << 10) }).to_string();
    let token = key.sign(&claims(&issuer, json!({})));
    for response in [
        http_response(200, &published),
        http_response_with(302, &[("location", &other.keys_url())], ""),
        http_response(200, &json!({"keys": vec![key.public_jwk(); 65]}).to_string()),
        http_response(404, ""),
    ] {
        issuer.set_jwks_response(response);
        let server = start(options(&issuer)).await;
        assert_eq!(server.send(call(&token)).await.status, 503);
    }
    assert_eq!(other.jwks_request_count(), 0);
}

#[tokio::test]
async fn an_issuer_is_who_its_metadata_says() {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    let mut options = options(&issuer);
    options.issuer = format!("{}/realms/team", issuer.issuer());
    let token = key.sign(&claims(&issuer, json!({"iss": options.issuer})));
    let server = start(options.clone()).await;
    assert_eq!(server.send(call(&token)).await.status, 503, "there is no metadata of this issuer");
    options.issuer = format!("{}/", issuer.issuer());
    let token = key.sign(&claims(&issuer, json!({"iss": options.issuer})));
    let server = start(options.clone()).await;
    assert_eq!(server.send(call(&token)).await.status, 503, "the metadata is another issuer's");
    assert_eq!(issuer.jwks_request_count(), 0);
    options.jwks_url = Some(issuer.keys_url());
    let server = start(options).await;
    assert_eq!(server.send(call(&token)).await.status, 200, "who names the keys needs no metadata");
}

#[tokio::test]
async fn a_slow_issuer_delays_only_requests_with_unknown_keys() {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    issuer.hold_responses(true);
    let limits = with_limits(&issuer, |limits| limits.fetch_timeout = NEVER);
    let server = ServerBuilder::with([whoami()]).oauth(limits).token("the server's own").start().await;
    let mut waiting = server.connect().await;
    waiting.send(call(&key.sign(&claims(&issuer, json!({}))))).await;
    for request in [get("/health"), get(METADATA), call("the server's own")] {
        assert_eq!(server.send(request).await.status, 200);
    }
    assert_eq!(server.send(post("/tools/whoami")).await.status, 401);
    issuer.hold_responses(false);
    assert_eq!(waiting.read_response().await.status, 200);
}

#[tokio::test]
async fn an_issuer_that_is_too_slow_is_not_waited_for() {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    issuer.hold_responses(true);
    let server = start(with_limits(&issuer, |limits| limits.fetch_timeout = common::SHORT)).await;
    let token = key.sign(&claims(&issuer, json!({})));
    assert_eq!(server.send(call(&token)).await.status, 503);
}

#[tokio::test]
async fn a_request_without_a_token_is_told_where_to_get_one() {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    let token = key.sign(&claims(&issuer, json!({"scope": "ctx:read"})));
    let scopes = vec!["ctx:read".to_owned()];
    let server = start(OAuthOptions { scopes, ..options(&issuer) }).await;
    for request in [
        get("/tools/list"),
        post("/tools/whoami"),
        get(&format!("/tools/list?access_token={token}&token={token}")),
        post("/tools/whoami").header("Authorization", &format!("Basic {token}")),
        post("/tools/whoami").body("application/x-www-form-urlencoded", format!("access_token={token}")),
    ] {
        let response = server.send(request).await;
        assert_eq!(response.error().0, 401);
        let challenge = format!("{CHALLENGE}, scope=\"ctx:read\"");
        assert_eq!(response.header("www-authenticate"), Some(challenge.as_str()));
    }
    assert_eq!(server.send(get("/tools/list").token(&token)).await.status, 200);
}

#[tokio::test]
async fn metadata_is_open_to_everybody_who_may_see_the_server() {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    let options = OAuthOptions {
        scopes: vec!["ctx:read".to_owned()],
        tool_scopes: vec!["ctx:write".to_owned(), "ctx:read".to_owned()],
        ..options(&issuer)
    };
    let page = "https://app.example.com";
    let server = ServerBuilder::with([whoami()]).oauth(options).allowed_origin(page).start().await;
    for path in [METADATA.to_owned(), format!("{METADATA}/mcp")] {
        let response = server.send(get(&path).header("Origin", page)).await;
        assert_eq!(response.header("access-control-allow-origin"), Some(page));
        assert_eq!(
            response.success(),
            json!({
                "resource": RESOURCE,
                "resource_name": "Context Harness",
                "authorization_servers": [issuer.issuer()],
                "scopes_supported": ["ctx:read", "ctx:write"],
                "bearer_methods_supported": ["header"],
            })
        );
        assert_eq!(server.send(get(&path).host("evil.example")).await.status, 403);
        assert_eq!(server.send(get(&path).header("Origin", "https://evil.example")).await.status, 403);
    }
    assert_eq!(server.send(get(&format!("{METADATA}/other"))).await.status, 401);
    let token = key.sign(&claims(&issuer, json!({"scope": "ctx:read"})));
    assert_eq!(server.send(get(&format!("{METADATA}/other")).token(&token)).await.status, 404);
    let response = server.send(get("/tools/list").header("Origin", page)).await;
    assert_eq!(response.header("access-control-expose-headers"), Some("mcp-session-id, www-authenticate"));
}

#[tokio::test]
async fn without_an_issuer_there_is_no_metadata() {
    let server = ServerBuilder::with([whoami()]).start().await;
    assert_eq!(server.send(get(METADATA)).await.status, 404);
    assert_eq!(server.send(get(&format!("{METADATA}/mcp"))).await.status, 404);
    assert_eq!(server.call("whoami", json!({})).await, json!({"result": null}));
    let server = ServerBuilder::with([whoami()]).token("hunter2").start().await;
    let response = server.send(post("/tools/whoami")).await;
    assert_eq!((response.status, response.header("www-authenticate")), (401, Some("Bearer")));
}

/// A server where every request needs `base`, and `whoami` needs more scopes.
async fn server_with_scopes(issuer: &AuthorizationServer) -> ApiServer {
    let required = ["read".to_owned(), "write".to_owned()];
    let policy = ScopePolicy::new([("tools.who*", required.as_slice())]).unwrap();
    let scopes = vec!["base".to_owned()];
    let options = OAuthOptions { scopes, tool_scopes: required.to_vec(), ..options(issuer) };
    ServerBuilder::with([whoami(), common::echo("echo")])
        .oauth(options)
        .policy(policy)
        .token("the server's own")
        .start()
        .await
}

#[tokio::test]
async fn a_token_without_the_base_scopes_is_refused_everywhere() {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    let server = server_with_scopes(&issuer).await;
    let token = key.sign(&claims(&issuer, json!({"scope": "read write"})));
    for request in [get("/tools/list"), post("/tools/echo"), get("/openapi.json"), get("/nowhere")] {
        let response = server.send(request.token(&token)).await;
        let (status, code, message) = response.error();
        assert_eq!((status, code.as_str()), (403, "forbidden"));
        assert_eq!(message, "a token with these scopes is required: `base`");
        let challenge = format!(
            "{CHALLENGE}, scope=\"base\", error=\"insufficient_scope\", \
             error_description=\"more scopes are needed\""
        );
        assert_eq!(response.header("www-authenticate"), Some(challenge.as_str()));
    }
}

#[tokio::test]
async fn a_tool_needs_scopes_of_its_own() {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    let mut server = server_with_scopes(&issuer).await;
    let token = |scope: &str| key.sign(&claims(&issuer, json!({ "scope": scope })));
    let little = token("base read");
    assert_eq!(server.send(post("/tools/echo").token(&little)).await.status, 200);
    assert_eq!(server.next_run().await.tool, "tools.echo");
    for request in [call(&little), call(&little).header("Accept", "text/event-stream")] {
        let response = server.send(request).await;
        let (status, code, message) = response.error();
        assert_eq!((status, code.as_str()), (403, "forbidden"));
        assert_eq!(message, "tools.whoami is not allowed: the caller lacks the scope `write`");
        let challenge = format!(
            "{CHALLENGE}, scope=\"read write\", error=\"insufficient_scope\", \
             error_description=\"more scopes are needed\""
        );
        assert_eq!(response.header("www-authenticate"), Some(challenge.as_str()));
        assert_eq!(server.next_run().await.tool, "tools.whoami", "what is refused is recorded");
    }
    let response = server.send(call(&token("base read write more"))).await.success();
    assert_eq!(response["result"]["scopes"], json!(["base", "more", "read", "write"]));
}

#[tokio::test]
async fn the_servers_own_token_has_every_scope() {
    let key = SigningKey::new("ES256", "one");
    let issuer = AuthorizationServer::start(&[&key]);
    let server = server_with_scopes(&issuer).await;
    let response = server.send(call("the server's own")).await.success();
    assert_eq!(response["result"], json!({"subject": "server.token", "scopes": ["base", "read", "write"]}));
    assert_eq!(server.send(call("the server's own ")).await.status, 200, "as the header is read");
    assert_eq!(server.send(call("the server's")).await.status, 401);
}

#[tokio::test]
async fn no_answer_repeats_a_token() {
    let (key, issuer, server) = start_with_issuer().await;
    let token = key.sign(&claims(&issuer, json!({"exp": 1})));
    let signature = token.rsplit('.').next().unwrap();
    let response = server.send(call(&token)).await;
    assert!(!format!("{response:?}").contains(signature), "{response:?}");
}
