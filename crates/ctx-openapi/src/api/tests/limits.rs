//! Rate limit, concurrency limit and retries.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A service that fails the first requests with this status, then succeeds.
fn failing_service(times: usize, status: u16, retry_after: &'static str) -> MockWebServer {
    let count = AtomicUsize::new(0);
    MockWebServer::serve(move |_| match count.fetch_add(1, Ordering::SeqCst) < times {
        true => http_response_with(status, &[("Retry-After", retry_after)], ""),
        false => json_reply("1"),
    })
}

#[tokio::test]
async fn idempotent_methods_are_retried() {
    for (method, status) in [("GET", 429), ("PUT", 503), ("DELETE", 503), ("OPTIONS", 429)] {
        let web = failing_service(2, status, "0");
        let output = call(api(&web, vec![operation(method, "/pets")], |_| ()), json!({})).await;
        assert_eq!(output.unwrap().value, json!(1), "{method}");
        assert_eq!(web.requests().len(), 3, "{method}");
    }
}

#[tokio::test]
async fn nothing_else_is_retried() {
    for (method, status, retry_after) in [
        ("POST", 429, "0"),
        ("PATCH", 503, "0"),
        ("GET", 500, "0"),
        ("GET", 429, "86400"),
        ("GET", 503, "soon"),
    ] {
        let web = failing_service(1, status, retry_after);
        let error = call(api(&web, vec![operation(method, "/pets")], |_| ()), json!({})).await.unwrap_err();
        assert_eq!(error.data().unwrap()["status"], status);
        assert_eq!(web.requests().len(), 1, "{method} {status}");
        if retry_after == "86400" {
            assert_eq!(error.retry_after(), Some(Duration::from_secs(86_400)));
        }
    }
}

#[tokio::test]
async fn retries_are_bounded() {
    let web = failing_service(usize::MAX, 503, "0");
    let error = call(api(&web, vec![operation("GET", "/pets")], |_| ()), json!({})).await.unwrap_err();
    assert_eq!((error.data().unwrap()["status"].as_u64(), web.requests().len()), (Some(503), 3));
}

#[tokio::test]
async fn a_rate_limit_is_for_all_operations_together() {
    let web = MockWebServer::serve(|_| json_reply("1"));
    let named = |name: &str| Operation { name: name.to_owned(), ..operation("GET", "/pets") };
    let limited = |settings: &mut ApiSettings| settings.rate_limit = Some("2/h".parse().unwrap());
    let catalog = catalog(api(&web, vec![named("one"), named("two")], limited));
    call_named(&catalog, "one", json!({})).await.unwrap();
    call_named(&catalog, "two", json!({})).await.unwrap();
    let error = call_named(&catalog, "one", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert!(error.retry_after().is_some());
    assert_eq!(web.requests().len(), 2);
}

#[tokio::test]
async fn concurrent_requests_are_bounded() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (open, seen) = (now.clone(), most.clone());
    let web = MockWebServer::serve(move |_| {
        seen.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(10));
        open.fetch_sub(1, Ordering::SeqCst);
        json_reply("1")
    });
    let narrow = |settings: &mut ApiSettings| settings.limits.in_flight = 2;
    let catalog = catalog(api(&web, vec![operation("GET", "/pets")], narrow));
    let calls = (0..8).map(|_| {
        let catalog = catalog.clone();
        tokio::spawn(async move { call_named(&catalog, "operation", json!({})).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(web.requests().len(), 8);
    assert!(most.load(Ordering::SeqCst) <= 2);
}
