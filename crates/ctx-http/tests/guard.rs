//! Access control: host, origin and token.

use crate::common::{HttpResponse, ServerBuilder, TestRequest, get, post, standard_tools};
use serde_json::json;

const TOKEN: &str = "correct-horse-battery";
const ORIGIN: &str = "https://app.example.com";
/// Every route, with a request that succeeds or is not found.
const ROUTES: [(&str, &str); 6] = [
    ("GET", "/health"),
    ("GET", "/tools/list"),
    ("GET", "/openapi.json"),
    ("POST", "/tools/echo"),
    ("POST", "/tools/nope"),
    ("GET", "/nope"),
];

fn requests() -> impl Iterator<Item = TestRequest> {
    ROUTES.into_iter().map(|(method, target)| TestRequest::new(method, target))
}

/// The statuses of [`ROUTES`] for admitted callers.
const ADMITTED: [u16; 6] = [200, 200, 200, 200, 404, 404];

fn assert_host_forbidden(response: &HttpResponse) {
    let message = "this host name is not served here; add it to `server.allowed_hosts`".to_owned();
    assert_eq!(response.error(), (403, "forbidden".to_owned(), message));
}

fn assert_origin_forbidden(response: &HttpResponse) {
    let message = "requests from this origin are not allowed; add it to `server.allowed_origins`".to_owned();
    assert_eq!(response.error(), (403, "forbidden".to_owned(), message));
    assert_eq!(response.headers_like("access-control"), []);
}

fn preflight(origin: &str) -> TestRequest {
    TestRequest::new("OPTIONS", "/tools/echo")
        .header("Origin", origin)
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "authorization,content-type")
}

#[tokio::test]
async fn loopback_names_are_served_on_any_port() {
    let server = ServerBuilder::with(standard_tools()).start().await;
    let own = server.address.to_string();
    for host in [
        own.as_str(),
        "localhost",
        "localhost:7331",
        "LocalHost:1",
        "127.0.0.1",
        "127.0.0.1:65535",
        "[::1]",
        "[::1]:7331",
        "localhost:",
    ] {
        assert_eq!(server.send(get("/health").host(host)).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn other_names_are_forbidden_on_every_route() {
    let server = ServerBuilder::with(standard_tools()).start().await;
    for request in requests() {
        assert_host_forbidden(&server.send(request.host("evil.example")).await);
    }
    for host in [
        "evil.example:7331",
        "localhost.evil.example",
        "evil.example:localhost",
        "localhost@evil.example",
        "127.0.0.1.nip.io",
        "127.0.0.2",
        "0.0.0.0",
        "[::2]",
        "[::]",
        "::1",
        "[::1",
        "",
        "localhost, evil.example",
    ] {
        assert_host_forbidden(&server.send(get("/health").host(host)).await);
    }
}

#[tokio::test]
async fn exactly_one_host_is_required() {
    let server = ServerBuilder::with(standard_tools()).start().await;
    let expected = (400, "bad_request".to_owned(), "exactly one `Host` header is required".to_owned());
    for request in requests() {
        assert_eq!(server.send(request.clone().without_host()).await.error(), expected);
        assert_eq!(server.send(request.clone().header("Host", "localhost")).await.error(), expected);
        assert_eq!(server.send(request.header("Host", "evil.example")).await.error(), expected);
    }
    assert_eq!(server.send(*b"GET /health HTTP/1.0\r\n\r\n").await.error(), expected);
}

#[tokio::test]
async fn a_host_that_is_not_text_is_refused() {
    let server = ServerBuilder::new().start().await;
    let (status, code, _) =
        server.send(*b"GET /health HTTP/1.1\r\nHost: loc\xffalhost\r\n\r\n").await.error();
    assert_eq!((status, code.as_str()), (400, "bad_request"));
}

#[tokio::test]
async fn the_host_of_an_absolute_target_is_checked() {
    let server = ServerBuilder::new().start().await;
    let whole = |host: &str| get(&format!("http://{host}/health"));
    assert_eq!(server.send(whole("localhost")).await.status, 200);
    assert_eq!(server.send(whole("localhost:1").without_host()).await.status, 200);
    assert_host_forbidden(&server.send(whole("evil.example").without_host()).await);
    assert_host_forbidden(&server.send(whole("evil.example")).await);
    assert_host_forbidden(&server.send(whole("localhost").host("evil.example")).await);
}

#[tokio::test]
async fn allowed_hosts_are_served_in_any_case_on_any_port_and_no_others() {
    let server =
        ServerBuilder::new().allowed_host("ctx.Example.com").allowed_host("other.example:8080").start().await;
    for host in ["ctx.example.com", "CTX.EXAMPLE.COM:443", "other.example", "other.example:1", "localhost"] {
        assert_eq!(server.send(get("/health").host(host)).await.status, 200, "{host}");
    }
    for host in ["example.com", "a.ctx.example.com", "ctx.example.com.evil.example", "ctx.example.co"] {
        assert_host_forbidden(&server.send(get("/health").host(host)).await);
    }
}

#[tokio::test]
async fn requests_without_an_origin_or_with_our_own_get_no_cors_headers() {
    let server = ServerBuilder::with(standard_tools()).allowed_origin(ORIGIN).start().await;
    for (request, status) in requests().zip(ADMITTED) {
        let response = server.send(request.clone()).await;
        assert_eq!((response.status, response.headers_like("access-control")), (status, vec![]));
        for host in ["localhost:7331", "127.0.0.1:7331", "[::1]:7331"] {
            for scheme in ["http", "https"] {
                let own = request.clone().host(host).header("Origin", &format!("{scheme}://{host}"));
                let response = server.send(own).await;
                assert_eq!(
                    (response.status, response.headers_like("access-control")),
                    (status, vec![]),
                    "{host}"
                );
            }
        }
    }
}

#[tokio::test]
async fn foreign_origins_are_forbidden_on_every_route() {
    let server = ServerBuilder::with(standard_tools()).allowed_origin(ORIGIN).start().await;
    for request in requests() {
        assert_origin_forbidden(&server.send(request.header("Origin", "https://evil.example")).await);
    }
    for origin in [
        "null",
        "",
        "http://localhost:3000",
        "http://127.0.0.1:7331",
        "http://localhost:7331/",
        "http://localhost:7331.evil.example",
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://app.example.com.evil.example",
        "https://a.app.example.com",
        "https://app.example.com/",
        "*",
    ] {
        let request = get("/health").host("localhost:7331").header("Origin", origin);
        assert_origin_forbidden(&server.send(request).await);
    }
}

#[tokio::test]
async fn a_host_that_is_not_served_has_no_origin_of_its_own() {
    let server = ServerBuilder::new().start().await;
    let rebound = get("/health").host("evil.example:7331").header("Origin", "http://evil.example:7331");
    assert_host_forbidden(&server.send(rebound).await);
}

#[tokio::test]
async fn a_second_origin_does_not_hide_behind_the_first() {
    let server = ServerBuilder::new().allowed_origin(ORIGIN).start().await;
    let request = get("/health").header("Origin", ORIGIN).header("Origin", "https://evil.example");
    let response = server.send(request).await;
    assert!((400..500).contains(&response.error().0), "{response:?}");
}

#[tokio::test]
async fn an_allowed_origin_gets_exactly_its_own_headers_on_answers_and_refusals() {
    let server = ServerBuilder::with(standard_tools())
        .allowed_origin(ORIGIN)
        .allowed_origin("http://b.example")
        .start();
    let server = server.await;
    for (request, status) in requests().zip(ADMITTED) {
        for origin in [ORIGIN, "http://b.example"] {
            let response = server.send(request.clone().header("Origin", origin)).await;
            assert_eq!(response.status, status);
            assert_eq!(
                response.headers_like("access-control"),
                [
                    ("access-control-allow-origin", origin),
                    ("access-control-expose-headers", "mcp-session-id, www-authenticate"),
                ]
            );
            assert_eq!(response.header("vary"), Some("Origin"));
        }
    }
    let malformed = post("/tools/echo").header("Origin", ORIGIN).body("application/json", "{");
    let response = server.send(malformed).await;
    assert_eq!(response.error().0, 400);
    assert_eq!(response.header("access-control-allow-origin"), Some(ORIGIN));
}

#[tokio::test]
async fn an_allowed_origin_is_known_however_the_settings_spell_it() {
    let server = ServerBuilder::new().allowed_origin("HTTPS://App.Example.com").start().await;
    assert_eq!(server.send(get("/health").header("Origin", ORIGIN)).await.status, 200);
}

#[tokio::test]
async fn a_preflight_of_an_allowed_origin_needs_no_token() {
    let server = ServerBuilder::with(standard_tools()).allowed_origin(ORIGIN).token(TOKEN).start().await;
    let response = server.send(preflight(ORIGIN)).await;
    assert_eq!((response.status, response.body.as_slice()), (204, &b""[..]));
    assert_eq!(
        response.headers_like("access-control"),
        [
            (
                "access-control-allow-headers",
                "authorization, content-type, accept, last-event-id, mcp-session-id, mcp-protocol-version, \
                 mcp-method, mcp-name",
            ),
            ("access-control-allow-methods", "GET, POST, DELETE"),
            ("access-control-allow-origin", ORIGIN),
            ("access-control-max-age", "600"),
        ]
    );
    assert_eq!(response.header("vary"), Some("Origin"));

    let denied = server.send(post("/tools/echo").header("Origin", ORIGIN)).await;
    assert_eq!(denied.error().0, 401);
    assert_eq!(denied.header("access-control-allow-origin"), Some(ORIGIN), "a page may read why");
    let request = post("/tools/echo").header("Origin", ORIGIN).token(TOKEN).json(&json!({"a": 1}));
    assert_eq!(server.send(request).await.success(), json!({"result": {"a": 1}}));
}

#[tokio::test]
async fn preflights_of_other_origins_are_refused() {
    let server = ServerBuilder::with(standard_tools()).allowed_origin(ORIGIN).token(TOKEN).start().await;
    for origin in ["https://evil.example", "null", "http://localhost:3000"] {
        assert_origin_forbidden(&server.send(preflight(origin)).await);
    }
    assert_host_forbidden(&server.send(preflight(ORIGIN).host("evil.example")).await);
    // Without its headers a preflight is an ordinary request, which needs a token.
    let unmarked = TestRequest::new("OPTIONS", "/tools/echo").header("Origin", ORIGIN);
    assert_eq!(server.send(unmarked).await.error().0, 401);
    let nameless = TestRequest::new("OPTIONS", "/tools/echo").header("Access-Control-Request-Method", "POST");
    assert_eq!(server.send(nameless).await.error().0, 401);
}

#[tokio::test]
async fn a_token_is_required_on_every_route_but_health() {
    let server = ServerBuilder::with(standard_tools()).token(TOKEN).start().await;
    let message = "a token is required; send `Authorization: Bearer <token>`".to_owned();
    let expected = (401, "unauthorized".to_owned(), message);
    for (method, target) in ROUTES.into_iter().skip(1).chain([
        ("GET", "/tools/sources"),
        ("POST", "/tools/sources"),
        ("GET", "/tools/echo"),
        ("GET", "/health/"),
        ("GET", "/%68ealth"),
        ("GET", "//health"),
        ("HEAD", "/tools/list"),
    ]) {
        let response = server.send(TestRequest::new(method, target)).await;
        assert_eq!(response.header("www-authenticate"), Some("Bearer"), "{method} {target}");
        assert_eq!(response.status, 401);
        if method != "HEAD" {
            assert_eq!(response.error(), expected, "{method} {target}");
        }
    }
    assert_eq!(server.send(get("/health")).await.status, 200);
    assert_eq!(server.send(get("/health").token("wrong")).await.status, 200);
}

#[tokio::test]
async fn the_right_token_opens_every_route_and_no_other_does() {
    let server = ServerBuilder::with(standard_tools()).token(TOKEN).start().await;
    for (request, status) in requests().zip(ADMITTED) {
        assert_eq!(server.send(request.clone().token(TOKEN)).await.status, status);
    }
    for scheme in ["Bearer", "bearer", "BEARER", "bEaReR"] {
        let request = get("/tools/list").header("Authorization", &format!("{scheme} {TOKEN}"));
        assert_eq!(server.send(request).await.status, 200, "{scheme}");
    }
    for wrong in [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        TOKEN.to_owned(),
        format!("Basic {TOKEN}"),
        format!("Bearer{TOKEN}"),
        format!("Bearer {TOKEN}x"),
        format!("Bearer {}", &TOKEN[1..]),
        format!("Bearer {}", TOKEN.to_uppercase()),
        format!("Bearer \"{TOKEN}\""),
    ] {
        let response = server.send(get("/tools/list").header("Authorization", &wrong)).await;
        assert_eq!(response.error().0, 401, "{wrong}");
    }
}

#[tokio::test]
async fn a_token_is_not_taken_from_the_target() {
    let server = ServerBuilder::with(standard_tools()).token(TOKEN).start().await;
    let response = server.send(get(&format!("/tools/list?token={TOKEN}&access_token={TOKEN}"))).await;
    assert_eq!(response.error().0, 401);
}

#[tokio::test]
async fn the_token_is_in_no_answer() {
    let server = ServerBuilder::with(standard_tools()).token(TOKEN).start().await;
    for request in requests() {
        for request in [request.clone(), request.token(TOKEN)] {
            let response = server.send(request).await;
            assert!(!String::from_utf8_lossy(&response.body).contains(TOKEN), "{response:?}");
        }
    }
}
