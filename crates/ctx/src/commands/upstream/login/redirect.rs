//! The OAuth redirect URI: a page on a loopback address, which receives the authorization response once.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const PATH: &str = "/callback";
/// Maximum size of a request's head.
const HEAD_MAX: usize = 16 << 10;
/// Time limit of one request or response. Browsers open connections that they never use.
const EXCHANGE_MAX: Duration = Duration::from_secs(10);
/// Maximum number of requests read concurrently.
const CONNECTIONS_MAX: usize = 16;
const DONE_PAGE: &str =
    "ctx has received the response and continues in the terminal. You can close this window.";
const UNEXPECTED_REQUEST_PAGE: &str = "This is not the OAuth redirect that ctx is waiting for.";

/// A listener for the authorization response.
pub(super) struct RedirectListener {
    listener: TcpListener,
    url: String,
}

impl RedirectListener {
    /// Listens on any free loopback port.
    pub(super) async fn listen() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}{PATH}", listener.local_addr()?);
        Ok(Self { listener, url })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the authorization response, and returns its query. Other requests get a 404.
    pub(super) async fn wait_for_response(self, is_response: impl Fn(&str) -> bool) -> String {
        let mut reading = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if reading.len() < CONNECTIONS_MAX => {
                    if let Ok((stream, _)) = accepted {
                        reading.push(timeout(EXCHANGE_MAX, read(stream)));
                    }
                }
                Some(read) = reading.next(), if !reading.is_empty() => {
                    let Ok(Ok((stream, head))) = read else { continue };
                    let query = query(&head).filter(|query| is_response(query));
                    let page = match query {
                        Some(_) => page("200 OK", DONE_PAGE),
                        None => page("404 Not Found", UNEXPECTED_REQUEST_PAGE),
                    };
                    // The browser may have closed the connection: the page is only a courtesy.
                    let _ = timeout(EXCHANGE_MAX, write(stream, &page)).await;
                    if let Some(query) = query {
                        return query.to_owned();
                    }
                }
            }
        }
    }
}

/// The query of a GET request for the redirect path.
fn query(head: &str) -> Option<&str> {
    let target = head.strip_prefix("GET ")?.split(' ').next()?;
    target.strip_prefix(PATH)?.strip_prefix('?')
}

async fn read(mut stream: TcpStream) -> io::Result<(TcpStream, String)> {
    let (mut head, mut part) = (Vec::new(), [0; 4 << 10]);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let length = stream.read(&mut part).await?;
        if length == 0 || head.len() + length > HEAD_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&part[..length]);
    }
    Ok((stream, String::from_utf8_lossy(&head).into_owned()))
}

async fn write(mut stream: TcpStream, page: &str) -> io::Result<()> {
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await
}

fn page(status: &str, text: &str) -> String {
    let body = format!("<!doctype html><meta charset=utf-8><title>ctx</title><p>{text}</p>\n");
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(url: &str, request: &str) -> String {
        let address = url.trim_start_matches("http://").trim_end_matches(PATH);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn only_the_authorization_response_ends_the_wait() {
        let redirect = RedirectListener::listen().await.unwrap();
        let url = redirect.url().to_owned();
        let waiting = tokio::spawn(redirect.wait_for_response(|query| query == "state=right"));
        let address = url.trim_start_matches("http://").trim_end_matches(PATH).to_owned();
        let _idle = TcpStream::connect(address).await.unwrap();
        for other in ["GET /favicon.ico", "GET /callback?state=wrong", "POST /callback?state=right", "x"] {
            let answer = ask(&url, &format!("{other} HTTP/1.1\r\n\r\n")).await;
            assert!(answer.starts_with("HTTP/1.1 404"), "{other}: {answer}");
        }
        let answer = ask(&url, "GET /callback?state=right HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(waiting.await.unwrap(), "state=right");
    }
}
