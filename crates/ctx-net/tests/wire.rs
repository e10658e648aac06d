//! The SSRF policy, redirects, body limits and proxies, tested with real servers.

use ctx_core::{AddressPolicy, NetworkScope, Secret, error_chain};
use ctx_net::{
    BodyError, Client, ClientOptions, CrossOriginHeaders, ForbiddenTarget, NetErrorKind, Proxy,
    RedirectChain, Request, Response,
};
use ctx_testkit::{MockWebServer, http_response, http_response_with};
use futures::StreamExt;
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::{HeaderValue, Method};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;
use url::Url;

fn client() -> Client {
    Client::new(ClientOptions::default())
}

#[allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]
fn get(url: &str) -> Request {
    Request::parse(Method::GET, url).unwrap()
}

/// The refused address of a request, and whether a host name resolved to it.
#[allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]
async fn refused(client: &Client, url: &str, reach: AddressPolicy) -> (String, bool) {
    let error = client.send(&get(url), reach).await.unwrap_err();
    assert!(error_chain(&error).contains("not allowed to connect to"), "{error}");
    let ForbiddenTarget { address, is_resolved } = error.forbidden_target().unwrap();
    (address.to_string(), is_resolved)
}

#[tokio::test]
async fn a_literal_address_is_checked_before_anything_is_sent() {
    let web = MockWebServer::serve(|_| http_response(200, "x"));
    let own = "a loopback address";
    assert_eq!(refused(&client(), &web.url("/"), AddressPolicy::INTERNET).await, (own.to_owned(), false));
    let mapped = web.url("/").replace("127.0.0.1", "[::ffff:127.0.0.1]");
    assert_eq!(refused(&client(), &mapped, AddressPolicy::INTERNET).await, (own.to_owned(), false));
    let metadata = refused(&client(), "http://169.254.169.254/", AddressPolicy::TRUSTED).await;
    assert_eq!(metadata, ("a link-local address".to_owned(), false));
    assert!(web.requests().is_empty());
    assert_eq!(
        client().send(&get(&web.url("/")), AddressPolicy::TRUSTED).await.unwrap().scope(),
        NetworkScope::Loopback
    );
}

#[tokio::test]
async fn a_connection_of_a_wider_policy_is_not_used_by_a_stricter_one() {
    // The name resolves here without `localhost` in the URL, which would be refused before the lookup.
    let Ok(host) = std::fs::read_to_string("/etc/hostname") else { return };
    let host = host.trim();
    let is_here = tokio::net::lookup_host((host, 0)).await.is_ok_and(|mut addresses| {
        addresses.all(|address| NetworkScope::of(address.ip()) != NetworkScope::Internet)
    });
    if !is_here {
        return;
    }
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            // A response that precedes its request is a protocol error to the client.
            if stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").ok();
            }
            // Kept open, so that the client pools it.
            std::mem::forget(stream);
        }
    });
    let (client, url) = (client(), format!("http://{host}:{port}/"));
    let mut response = client.send(&get(&url), AddressPolicy::TRUSTED).await.unwrap();
    assert_eq!(response.read(1).await.unwrap(), b"x");
    assert!(refused(&client, &url, AddressPolicy::INTERNET).await.1);
}

/// Follows every redirect; the last response, or the error.
async fn follow(client: &Client, request: Request) -> Result<Response, ctx_net::NetError> {
    client.send_following(request, AddressPolicy::TRUSTED, 5, |_, _| true).await
}

#[tokio::test]
async fn a_redirect_leads_to_no_nearer_network_and_takes_no_credentials() {
    for host in ["127.0.0.1", "localhost"] {
        let inner = MockWebServer::serve(|_| http_response(200, "inside"));
        let to = inner.url("/").replace("127.0.0.1", host);
        let outer = MockWebServer::serve(move |_| http_response_with(307, &[("Location", &to)], ""));
        let request = || {
            let key = http::HeaderName::from_static("x-api-key");
            let request = get(&outer.url("/")).bearer("hunter2").unwrap();
            request.header(key, HeaderValue::from_static("hunter2"))
        };
        let error = follow(&client().with_public_peers(), request()).await.unwrap_err();
        assert_eq!(error.forbidden_target().unwrap().address.to_string(), "a loopback address", "{host}");
        assert!(inner.requests().is_empty());
        let mut response = follow(&client(), request()).await.unwrap();
        assert_eq!(response.read(6).await.unwrap(), b"inside");
        let asked = inner.requests();
        assert_eq!(asked.len(), 1);
        assert!(!asked[0].head.contains("hunter2"), "{}", asked[0].head);
        assert!(outer.requests().iter().all(|asked| asked.header("authorization") == Some("Bearer hunter2")));
    }
}

#[tokio::test]
async fn redirects_are_counted_and_left_alone_where_they_may_not_be_followed() {
    let web = MockWebServer::serve(|_| http_response_with(302, &[("Location", "/again")], ""));
    let response = follow(&client(), get(&web.url("/"))).await.unwrap();
    assert_eq!((response.status().as_u16(), web.requests().len()), (302, 6));
    let response =
        client().send_following(get(&web.url("/")), AddressPolicy::TRUSTED, 5, |_, _| false).await.unwrap();
    assert_eq!((response.status().as_u16(), web.requests().len()), (302, 7));
    let unreadable = MockWebServer::serve(|_| http_response_with(302, &[("Location", "http://[x")], ""));
    let response = follow(&client(), get(&unreadable.url("/"))).await.unwrap();
    assert!(response.redirect_target().is_err());
}

#[tokio::test]
async fn a_chain_knows_whether_it_is_home() {
    let web = MockWebServer::serve(|_| http_response_with(302, &[("Location", "http://8.8.8.8/b")], ""));
    let mut chain = RedirectChain::new(get(&web.url("/a")), AddressPolicy::TRUSTED);
    let response = client().send(chain.request(), chain.reach()).await.unwrap();
    chain.follow(&response, Url::parse(&web.url("/b")).unwrap(), CrossOriginHeaders::DropSecrets);
    assert!(chain.is_same_origin());
    let to = response.redirect_target().unwrap().unwrap();
    chain.follow(&response, to, CrossOriginHeaders::DropSecrets);
    // A chain that left the first origin and came back does not count as home: another server chose the way.
    chain.follow(&response, Url::parse(&web.url("/c")).unwrap(), CrossOriginHeaders::DropSecrets);
    assert_eq!((chain.is_same_origin(), chain.redirect_count()), (false, 3));
    assert_eq!(chain.into_request().url.path(), "/c");
}

#[tokio::test]
async fn a_body_is_read_up_to_its_bound() {
    let sized = MockWebServer::serve(|_| http_response(200, "0123456789"));
    let endless = MockWebServer::stream(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").ok();
        while stream.write_all(&[b'x'; 1024]).is_ok() {}
    });
    let send =
        async |web: &MockWebServer| client().send(&get(&web.url("/")), AddressPolicy::TRUSTED).await.unwrap();
    assert_eq!(send(&sized).await.read(10).await.unwrap(), b"0123456789");
    assert_eq!(send(&sized).await.read_prefix(20).await.unwrap(), b"0123456789");
    assert_eq!(send(&sized).await.read_prefix(4).await.unwrap(), b"0123");
    for web in [&sized, &endless] {
        assert!(matches!(send(web).await.read(9).await, Err(BodyError::TooLarge(9))));
    }
    assert_eq!(send(&endless).await.read_prefix(1 << 20).await.unwrap().len(), 1 << 20);
    // The response to a HEAD request has the length of the body that a GET would return.
    let head = MockWebServer::serve(|_| {
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n".to_vec()
    });
    let request = Request::parse(Method::HEAD, &head.url("/")).unwrap();
    assert!(client().send(&request, AddressPolicy::TRUSTED).await.unwrap().read(9).await.unwrap().is_empty());
}

#[tokio::test]
async fn failures_have_kinds() {
    let kind = async |client: &Client, request: &Request| {
        client.send(request, AddressPolicy::TRUSTED).await.unwrap_err().kind()
    };
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(kind(&client(), &get(&format!("http://{closed}/"))).await, NetErrorKind::Connect);
    let hung_up = MockWebServer::stream(|_, _| {});
    assert_eq!(kind(&client(), &get(&hung_up.url("/"))).await, NetErrorKind::Closed);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let timeout = Some(Duration::from_millis(50));
    assert_eq!(kind(&client(), &Request { timeout, ..get(&url) }).await, NetErrorKind::Timeout);
    let hasty = Client::new(ClientOptions { timeout, ..ClientOptions::default() });
    assert_eq!(kind(&hasty, &get(&url)).await, NetErrorKind::Timeout);
    let read_timeout = Duration::from_millis(50);
    let impatient = Client::new(ClientOptions { read_timeout, ..ClientOptions::default() });
    assert_eq!(kind(&impatient, &get(&url)).await, NetErrorKind::Timeout);
    let https_only = Client::new(ClientOptions { is_https_only: true, ..ClientOptions::default() });
    let error = https_only.send(&get(&url), AddressPolicy::TRUSTED).await.unwrap_err();
    assert!(error_chain(&error).contains("URL scheme is not allowed"), "{error}");
    assert!(
        error_chain(&error).contains("127.0.0.1") && !error_chain(&error.without_url()).contains("127.0.0.1")
    );
}

#[tokio::test]
async fn a_request_without_a_body_says_so_where_servers_want_to_know() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let request = Request::parse(method, &web.url("/")).unwrap();
        client().send(&request, AddressPolicy::TRUSTED).await.unwrap();
    }
    let lengths: Vec<_> =
        web.requests().iter().map(|asked| asked.header(CONTENT_LENGTH.as_str()).map(str::to_owned)).collect();
    let zero = Some("0".to_owned());
    assert_eq!(lengths, [None, zero.clone(), zero.clone(), zero, None]);
}

#[tokio::test]
async fn a_body_that_is_larger_than_it_may_be_ends_with_an_error() {
    // Without `Content-Length`, so that the size shows only while reading.
    let web = MockWebServer::stream(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").ok();
        stream.write_all(&[b'x'; 100_000]).ok();
    });
    let read = async |bytes_max| {
        let response = client().send(&get(&web.url("/")), AddressPolicy::TRUSTED).await.unwrap();
        let parts: Vec<_> = response.into_stream(bytes_max).collect().await;
        let bytes: usize = parts.iter().flatten().map(|part| part.len()).sum();
        (bytes, parts.into_iter().find_map(Result::err))
    };
    let (bytes, error) = read(100_000).await;
    assert!(bytes == 100_000 && error.is_none(), "{bytes} {error:?}");
    let (bytes, error) = read(99_999).await;
    assert!(bytes < 100_000 && matches!(error, Some(BodyError::TooLarge(99_999))), "{bytes} {error:?}");
}

#[tokio::test]
async fn a_name_is_refused_for_the_address_that_it_leads_to() {
    let web = MockWebServer::serve(|_| http_response(200, "x"));
    let url = web.url("/").replace("127.0.0.1", "known.test");
    let here = client().with_known_host("known.test", [127, 0, 0, 1].into());
    assert_eq!(here.send(&get(&url), AddressPolicy::TRUSTED).await.unwrap().scope(), NetworkScope::Loopback);
    let metadata = client().with_known_host("known.test", [169, 254, 169, 254].into());
    assert_eq!(
        refused(&metadata, &url, AddressPolicy::TRUSTED).await,
        ("a link-local address".to_owned(), true)
    );
    assert_eq!(web.requests().len(), 1);
}

#[tokio::test]
async fn a_proxy_resolves_names_and_its_peers_count_as_public() {
    let proxy =
        MockWebServer::serve(|_| http_response_with(302, &[("Location", "http://10.0.0.1/b")], "proxied"));
    // The name of the proxy itself is resolved here, whatever the request may reach.
    let url = proxy.url("").replace("127.0.0.1", "localhost");
    let options =
        ClientOptions { proxy: Proxy::fixed(&Secret::new(url)).unwrap(), ..ClientOptions::default() };
    let client = Client::new(options);
    let mut chain = RedirectChain::new(get("http://nobody.invalid/a"), AddressPolicy::TRUSTED);
    let response = client.send(chain.request(), AddressPolicy::INTERNET).await.unwrap();
    assert_eq!(response.scope(), NetworkScope::Internet);
    assert_eq!(proxy.requests()[0].target(), "GET http://nobody.invalid/a");
    chain.follow(&response, Url::parse("http://nobody.invalid/b").unwrap(), CrossOriginHeaders::DropSecrets);
    assert_eq!(chain.reach(), AddressPolicy::TRUSTED, "the same host was permitted already");
    let to = response.redirect_target().unwrap().unwrap();
    chain.follow(&response, to, CrossOriginHeaders::DropSecrets);
    assert!(client.send(chain.request(), chain.reach()).await.unwrap_err().forbidden_target().is_some());
    let invalid = Proxy::fixed(&Secret::new("http://me:hunter2@[")).unwrap_err();
    assert!(!invalid.to_string().contains("hunter2"));
}

#[tokio::test]
async fn user_and_password_of_a_url_are_sent_as_basic_authentication() {
    let web = MockWebServer::serve(|_| http_response(200, ""));
    let url = web.url("/").replace("http://", "http://me:secret@");
    client().send(&get(&url), AddressPolicy::TRUSTED).await.unwrap();
    assert_eq!(web.requests()[0].header(AUTHORIZATION.as_str()), Some("Basic bWU6c2VjcmV0"));
}
