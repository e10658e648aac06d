//! `http`: requests, responses, redirects and refusals.

use crate::Test;
use crate::bench::Bench;
use ctx_luau::ScriptLimits;
use ctx_testkit::{MockWebServer, RecordedRequest, http_response, http_response_with};
use serde_json::json;

pub(crate) const TESTS: &[Test] = tests!(http:
    a_request_is_sent_with_its_method_headers_and_body,
    a_response_has_status_headers_and_body,
    redirects_are_bounded,
    secrets_do_not_follow_to_another_origin,
    forbidden_addresses_are_not_reached,
    only_allowed_hosts_are_reached_by_redirects_too,
    a_response_that_is_too_large_is_refused,
    a_request_has_its_own_timeout,
    errors_contain_no_secrets_of_the_url,
    invalid_requests_are_refused,
    headers_of_the_client_cannot_be_set,
    requests_of_one_run_are_counted,
);

async fn a_request_is_sent_with_its_method_headers_and_body() {
    let web = MockWebServer::serve(|_| http_response(200, "{}"));
    let bench = Bench::new();
    let body = "local u = context.config.url
        http.get(u .. '/a?x=1', { params = { q = 'a b&c', n = 2 }, headers = { ['X-Test'] = 'yes' } })
        http.post(u .. '/b', { list = {} , name = 'n' })
        http.put(u .. '/c', 'plain\\0bytes\\255')
        http.delete(u .. '/d')
        http.post(u .. '/e')
        return http.patch(u .. '/f', 'x', { headers = { ['Content-Length'] = '99' } }).status";
    let url = web.url("");
    let answer = bench.answer_with(body, json!({}), |settings| settings.config = json!({"url": url})).await;
    assert_eq!(answer.unwrap(), json!(200));
    let requests = web.requests();
    let line = |number: usize| requests[number].line.trim_end_matches(" HTTP/1.1");
    assert!(line(0).starts_with("GET /a?x=1&") && line(0).contains("q=a+b%26c") && line(0).contains("n=2"));
    assert_eq!(requests[0].header("x-test"), Some("yes"));
    assert!(requests[0].header("user-agent").unwrap().starts_with("ctx/"));
    assert_eq!(requests[1].header("content-type"), Some("application/json"));
    assert_eq!(requests[1].json(), json!({"list": {}, "name": "n"}));
    assert_eq!(requests[2].body, b"plain\0bytes\xff");
    assert_eq!((line(3), line(4)), ("DELETE /d", "POST /e"));
    assert_eq!(requests[4].header("content-length"), Some("0"));
    assert_eq!(requests[5].header("content-length"), Some("1"));
}

async fn a_response_has_status_headers_and_body() {
    let web = MockWebServer::serve(|_| {
        let mut bytes =
            b"HTTP/1.1 404 x\r\nX-One: A\r\nx-two: b\r\nX-Two: c\r\nContent-Length: 3\r\n\r\n".to_vec();
        bytes.extend(b"\xff\0a");
        bytes
    });
    let bench = Bench::new();
    let body = "local r = http.get(context.config.url)
        return { r.status, r.ok, r.headers['x-one'], r.headers['x-two'], #r.body, r.body:byte(1), r.json == nil }";
    let url = web.url("/");
    let answer = bench.answer_with(body, json!({}), |settings| settings.config = json!({"url": url})).await;
    assert_eq!(answer.unwrap(), json!([404, false, "A", "b, c", 3, 255, true]));
}

/// A server whose `/n` redirects to `/n-1`, and whose `/0` responds.
fn redirect_chain(request: &RecordedRequest) -> Vec<u8> {
    let number: u32 = request.line.split([' ', '/']).nth(2).unwrap().parse().unwrap();
    if number == 0 { http_response(200, "bottom") } else { redirect(302, &format!("/{}", number - 1)) }
}

async fn redirects_are_bounded() {
    let web = MockWebServer::serve(redirect_chain);
    let bench = Bench::new();
    let body = format!("return http.get('{}').body", web.url("/5"));
    assert_eq!(bench.answer(&body, json!({})).await.unwrap(), json!("bottom"));
    let error = bench.error(&format!("return http.get('{}').body", web.url("/6"))).await;
    assert!(error.message().ends_with("more than 5 redirects"), "{error}");
    // After 302 and 303 a POST becomes a GET without a body; after 307 it stays a POST.
    for (status, line, body) in
        [(303, "GET /end HTTP/1.1", ""), (302, "GET /end HTTP/1.1", ""), (307, "POST /end HTTP/1.1", "data")]
    {
        let web = MockWebServer::serve(move |asked| {
            if asked.line.contains("/end") { http_response(200, "") } else { redirect(status, "/end") }
        });
        bench
            .answer(&format!("return http.post('{}', 'data').status", web.url("/")), json!({}))
            .await
            .unwrap();
        let last = web.requests().pop().unwrap();
        assert_eq!((last.line.as_str(), last.body.as_slice()), (line, body.as_bytes()));
    }
}

async fn secrets_do_not_follow_to_another_origin() {
    let other = MockWebServer::serve(|_| http_response(200, ""));
    let to = other.url("/there");
    let web = MockWebServer::serve(move |asked| match asked.line.as_str() {
        "GET /same HTTP/1.1" => redirect(302, "/here"),
        "GET /here HTTP/1.1" => http_response(200, ""),
        _ => redirect(302, &to),
    });
    let bench = Bench::new();
    let get = |url: String| {
        format!(
            "return http.get('{url}', {{ headers = {{ Authorization = 'a', Cookie = 'c', ['X-Api-Key'] = 'k', ['X-Other'] = 'o' }} }}).status"
        )
    };
    bench.answer(&get(web.url("/same")), json!({})).await.unwrap();
    assert_eq!(web.requests()[1].header("authorization"), Some("a"));
    bench.answer(&get(web.url("/away")), json!({})).await.unwrap();
    let there = &other.requests()[0];
    for name in ["authorization", "cookie", "x-api-key"] {
        assert_eq!(there.header(name), None, "{name}");
    }
    assert_eq!(there.header("x-other"), Some("o"));
}

async fn forbidden_addresses_are_not_reached() {
    let bench = Bench::new();
    for url in [
        "http://169.254.169.254/latest/meta-data",
        "http://[fe80::1]/",
        "http://0.0.0.0/",
        "http://0/",
        "http://2852039166/",
        "http://[::ffff:169.254.169.254]/",
        "https://224.0.0.1/",
    ] {
        let error = bench.error(&format!("return http.get('{url}')")).await;
        assert!(error.message().contains("scripts may not connect to"), "{url}: {error}");
    }
    for url in ["file:///etc/passwd", "ftp://127.0.0.1/"] {
        let error = bench.error(&format!("return http.get('{url}')")).await;
        assert!(error.message().contains("only http and https"), "{url}: {error}");
    }
    let web = MockWebServer::serve(|_| redirect(302, "http://169.254.169.254/latest"));
    let error = bench.error(&format!("return http.get('{}')", web.url("/"))).await;
    assert!(error.message().contains("a link-local address"), "{error}");
}

async fn only_allowed_hosts_are_reached_by_redirects_too() {
    let web = MockWebServer::serve(|asked| {
        let port: String = asked.header("host").unwrap().rsplit(':').next().unwrap().to_owned();
        if asked.line.contains("away") {
            redirect(302, &format!("http://localhost:{port}/"))
        } else {
            http_response(200, "")
        }
    });
    let bench = Bench::new();
    let get = |path: &str| format!("return http.get('{}').status", web.url(path));
    let only = |globs: &[&str]| {
        let globs: Vec<String> = globs.iter().map(ToString::to_string).collect();
        move |settings: &mut ctx_luau::ScriptSettings| settings.allow_hosts = globs
    };
    assert_eq!(bench.answer_with(&get("/"), json!({}), only(&["127.*"])).await.unwrap(), json!(200));
    let error = bench.answer_with(&get("/"), json!({}), only(&["*.example.com"])).await.unwrap_err();
    assert!(error.message().contains("not in the script's allow_hosts"), "{error}");
    let error = bench.answer_with(&get("/away"), json!({}), only(&["127.0.0.1"])).await.unwrap_err();
    assert!(
        error.message().contains("http://localhost") && error.message().contains("allow_hosts"),
        "{error}"
    );
    let both = only(&["127.0.0.1", "localhost"]);
    assert_eq!(bench.answer_with(&get("/away"), json!({}), both).await.unwrap(), json!(200));
}

async fn a_response_that_is_too_large_is_refused() {
    let bench = Bench::with(ScriptLimits { http_response_bytes: 1 << 20, ..ScriptLimits::default() });
    let declared = MockWebServer::serve(|_| http_response(200, &"x".repeat((1 << 20) + 1)));
    let undeclared = MockWebServer::serve(|_| {
        let mut bytes = b"HTTP/1.1 200 x\r\nConnection: close\r\n\r\n".to_vec();
        bytes.resize(bytes.len() + (1 << 20) + 1, b'x');
        bytes
    });
    for web in [declared, undeclared] {
        let error = bench.error(&format!("return http.get('{}')", web.url("/"))).await;
        assert!(error.message().ends_with("the response is larger than 1 MiB"), "{error}");
    }
    let fits = MockWebServer::serve(|_| http_response(200, &"x".repeat(1 << 20)));
    let answer = bench.answer(&format!("return #http.get('{}').body", fits.url("/")), json!({})).await;
    assert_eq!(answer.unwrap(), json!(1 << 20));
}

async fn a_request_has_its_own_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let bench = Bench::new();
    let body = format!("local ok, why = pcall(http.get, '{url}', {{ timeout = 0.2 }}) return {{ ok, why }}");
    let answer = bench.answer(&body, json!({})).await.unwrap();
    assert_eq!(answer[0], json!(false));
    assert!(answer[1].as_str().unwrap().ends_with("no response within 0.2 seconds"), "{answer}");
}

async fn errors_contain_no_secrets_of_the_url() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let bench = Bench::new();
    let error = bench.error(&format!("http.get('http://user:pa55@{closed}/path?key=s3cret')")).await;
    assert!(
        error.message().starts_with(&format!("tools/x.lua:2: http: GET http://{closed}/path: ")),
        "{error}"
    );
    assert!(!error.message().contains("pa55") && !error.message().contains("s3cret"), "{error}");
    let error = bench.error("http.get('https://user:pa55@[bad')").await;
    assert!(!error.message().contains("pa55"), "{error}");
}

async fn invalid_requests_are_refused() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let bench = Bench::new();
    let url = web.url("/");
    for (call, part) in [
        (
            format!("http.get('{url}', {{ headers = {{ a = 'x\\r\\nHost: y' }} }})"),
            "the header `a` has an invalid name or value",
        ),
        (
            format!("http.get('{url}', {{ headers = {{ ['a b'] = 'x' }} }})"),
            "the header `a b` has an invalid name or value",
        ),
        (format!("http.get('{url}', {{ params = {{ a = {{ b = 1 }} }} }})"), "the parameter `a`"),
        (format!("http.get('{url}', {{ timeout = -1 }})"), "the timeout must be"),
        ("http.get('nonsense')".to_owned(), "invalid URL"),
    ] {
        let error = bench.error(&call).await;
        assert!(error.message().contains(part), "{call}: {error}");
    }
    assert!(web.requests().is_empty());
}

/// A redirect.
fn redirect(status: u16, location: &str) -> Vec<u8> {
    http_response_with(status, &[("Location", location)], "")
}

async fn headers_of_the_client_cannot_be_set() {
    let web = MockWebServer::serve(|_| http_response(200, "x"));
    let bench = Bench::new();
    for name in [
        "Host",
        "HOST",
        "host",
        " Host",
        "Transfer-Encoding",
        "Connection",
        "TE",
        "Upgrade",
        "Keep-Alive",
        "Proxy-Connection",
        "Trailer",
        "Expect",
        ":authority",
    ] {
        let error = bench
            .error(&format!("http.get('{}', {{ headers = {{ ['{name}'] = 'x' }} }})", web.url("/")))
            .await;
        assert!(error.message().contains(&format!("the header `{name}` cannot be set")), "{name}: {error}");
    }
    assert!(web.requests().is_empty(), "nothing was sent");
}

async fn requests_of_one_run_are_counted() {
    let web = MockWebServer::serve(|_| http_response(200, "x"));
    let bench = Bench::with(ScriptLimits { http_requests: 3, ..ScriptLimits::default() });
    let body = format!(
        "local made = 0
        for _ = 1, 5 do
            local ok, why = pcall(http.get, '{}')
            if ok then made += 1 else return {{ made, why }} end
        end",
        web.url("/")
    );
    for _ in 0..2 {
        // The limit applies to each run separately.
        let answer = bench.answer(&body, json!({})).await.unwrap();
        assert_eq!(answer[0], json!(3));
        assert!(
            answer[1].as_str().unwrap().ends_with("one run of a script may make at most 3 requests"),
            "{answer}"
        );
    }
}
