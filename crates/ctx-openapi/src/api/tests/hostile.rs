//! Malicious services.

use super::*;
use crate::settings::ApiLimits;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Answers each request with whatever `answer` writes to the connection.
fn raw_service(answer: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            if stream.read(&mut [0; 4096]).is_ok() {
                // A client that has read enough disconnects.
                answer(&mut stream).ok();
            }
        }
    });
    format!("http://{address}")
}

fn api_at(base: &str, change: impl FnOnce(&mut ApiSettings)) -> LoadedApi {
    let description = Description { operations: vec![operation("GET", "/pets")], ..Description::default() };
    api_of(description, base, change)
}

fn limit_response_size(settings: &mut ApiSettings) {
    settings.limits = ApiLimits { response_bytes: 64 << 10, ..ApiLimits::default() };
}

/// Upper bound of the socket buffers between service and client.
const BUFFERS_MAX: usize = 32 << 20;

#[tokio::test]
async fn an_endless_response_is_cut_off() {
    for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
        let (ended, has_ended) = std::sync::mpsc::channel();
        let base = raw_service(move |stream| {
            stream.write_all(head.as_bytes())?;
            let mut chunk = b"400\r\n".to_vec();
            chunk.extend([b'x'; 0x400]);
            chunk.extend(b"\r\n");
            let mut written = 0_usize;
            while stream.write_all(&chunk).is_ok() {
                written += chunk.len();
            }
            ended.send(written).unwrap();
            Ok(())
        });
        let error = call(api_at(&base, limit_response_size), json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        let written = tokio::task::spawn_blocking(move || has_ended.recv_timeout(ctx_testkit::DEADLINE));
        let written = written.await.unwrap().unwrap();
        assert!(written < BUFFERS_MAX, "{written}");
    }
}

#[tokio::test]
async fn endless_headers_are_cut_off() {
    let base = raw_service(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            stream.write_all(b"X-More: and more\r\n")?;
        }
    });
    let error = call(api_at(&base, limit_response_size), json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tool, "{error}");
}

#[tokio::test]
async fn endless_informational_responses_time_out() {
    let base = raw_service(|stream| {
        let hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(1_000);
        loop {
            stream.write_all(&hints)?;
        }
    });
    let brief = |settings: &mut ApiSettings| settings.limits.call = Duration::from_millis(200);
    let error = call(api_at(&base, brief), json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

#[tokio::test]
async fn an_invalid_response_is_an_error() {
    for answer in
        ["", "\r\n\r\n", "220 mail.example ESMTP\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
    {
        let base = raw_service(move |stream| stream.write_all(answer.as_bytes()));
        let error = call(api_at(&base, limit_response_size), json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tool, "{answer:?}: {error}");
        assert!(error.message().contains("/pets: "), "{error}");
    }
}

#[tokio::test]
async fn a_connection_reset_is_an_error_and_is_not_retried() {
    for method in ["GET", "POST", "DELETE"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}/v1?secret=hunter2!", listener.local_addr().unwrap());
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let seen = count.clone();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                // Closing with unread data sends a reset.
                stream.read_exact(&mut [0; 1]).ok();
            }
        });
        let description =
            Description { operations: vec![operation(method, "/pets")], ..Description::default() };
        let error = call(api_of(description, &base, |_| ()), json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tool, "{error}");
        assert!(error.message().contains("/v1/pets: ") && !error.message().contains("hunter2"), "{error}");
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 1, "{method}");
    }
}

#[tokio::test]
async fn a_response_with_a_too_large_content_length_is_not_read() {
    let base =
        raw_service(|stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\nx"));
    let error = call(api_at(&base, limit_response_size), json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
}

#[tokio::test]
async fn an_endless_error_response_is_quoted_by_its_beginning() {
    let base = raw_service(|stream| {
        stream.write_all(b"HTTP/1.1 500 x\r\nContent-Type: text/plain\r\n\r\n")?;
        loop {
            stream.write_all(&[b'x'; 4096])?;
        }
    });
    let error = call(api_at(&base, limit_response_size), json!({})).await.unwrap_err();
    assert!(error.message().contains("HTTP 500") && error.message().len() < 2_000, "{error}");
    let body = error.data().unwrap()["body"].as_str().unwrap().len();
    assert_eq!(body, crate::response::ERROR_BODY_BYTES_MAX);
}

#[tokio::test]
async fn a_slow_response_times_out() {
    for beginning in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        "HTTP/1.1 500 No\r\nContent-Length: 100000\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 100000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-Long: ",
    ] {
        let base = raw_service(move |stream| {
            stream.write_all(beginning.as_bytes())?;
            loop {
                stream.write_all(b"x")?;
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let brief = |settings: &mut ApiSettings| settings.limits.call = Duration::from_millis(200);
        let error = call(api_at(&base, brief), json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
}

#[tokio::test]
async fn a_cancelled_call_cancels_its_request() {
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (ended, has_ended) = std::sync::mpsc::channel();
    let base = raw_service(move |stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")?;
        begun.send(()).unwrap();
        // Returns when the client disconnects.
        let rest = stream.read(&mut [0; 1]);
        ended.send(rest.unwrap_or_default()).unwrap();
        Ok(())
    });
    let task = tokio::spawn(call(api_at(&base, |_| ()), json!({})));
    tokio::task::spawn_blocking(move || has_begun.recv_timeout(ctx_testkit::DEADLINE).unwrap())
        .await
        .unwrap();
    task.abort();
    let ended = tokio::task::spawn_blocking(move || has_ended.recv_timeout(ctx_testkit::DEADLINE));
    assert_eq!(ended.await.unwrap(), Ok(0));
}

#[tokio::test]
async fn a_truncated_response_is_an_error() {
    let base = raw_service(|stream| stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[1"));
    let error = call(api_at(&base, |_| ()), json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tool, "{error}");
}

#[tokio::test]
async fn metadata_addresses_are_refused_unless_configuration_names_them() {
    for base in ["http://169.254.169.254/latest", "http://[::ffff:169.254.169.254]/", "http://0xa9fea9fe/"] {
        let mut described = operation("GET", "/pets");
        described.servers = vec![base.to_owned()];
        let description = Description { operations: vec![described], ..Description::default() };
        let settings = ApiSettings::new(Identifier::sanitize("pets"), Spec::File("pets.yaml".into()));
        let error = call(api_with_settings(description, settings), json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
        let web = MockWebServer::serve(move |_| redirect(302, base));
        let error = call(api_at(&web.url(""), |_| ()), json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
    }
}

#[tokio::test]
async fn redirects_lead_only_to_http_and_are_bounded() {
    for to in ["file:///etc/passwd", "ftp://example.com/", "data:,x"] {
        let web = MockWebServer::serve(move |_| redirect(302, to));
        let error = call(api_at(&web.url(""), |_| ()), json!({})).await.unwrap_err();
        assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
        assert_eq!(web.requests().len(), 1, "{to}");
    }
    let web = MockWebServer::serve(|_| redirect(302, "/pets"));
    let error = call(api_at(&web.url(""), |_| ()), json!({})).await.unwrap_err();
    assert!(error.message().ends_with("more than 5 redirects"), "{error}");
    assert_eq!(web.requests().len(), 6);
}

#[tokio::test]
async fn a_redirect_keeps_method_and_body_only_for_307_and_308() {
    for (status, expected, has_body) in [
        (301, "GET /new", false),
        (302, "GET /new", false),
        (303, "GET /new", false),
        (307, "POST /new", true),
        (308, "POST /new", true),
    ] {
        let web = MockWebServer::serve(move |request| match request.target() {
            "POST /pets" => redirect(status, "/new"),
            _ => json_reply("1"),
        });
        let mut post_operation = operation("POST", "/pets");
        post_operation.body = Some(body(&["name"], vec![("application/json", BodyEncoding::Json)]));
        let description = Description { operations: vec![post_operation], ..Description::default() };
        call(api_of(description, &web.url(""), |_| ()), json!({ "name": "Rex" })).await.unwrap();
        let second = &web.requests()[1];
        assert_eq!(second.target(), expected);
        assert_eq!((!second.body.is_empty(), second.header("content-type").is_some()), (has_body, has_body));
    }
}

#[tokio::test]
async fn a_wrong_content_type_is_no_error() {
    let page = |_: &ctx_testkit::RecordedRequest| {
        http_response_with(200, &[("Content-Type", "application/json")], "<html>")
    };
    let web = MockWebServer::serve(page);
    assert_eq!(call(api_at(&web.url(""), |_| ()), json!({})).await.unwrap().value, json!("<html>"));
}
