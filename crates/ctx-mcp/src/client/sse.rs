//! Servers of the first kind that had an address: one stream of events from the server, whose first event
//! names where to post what is meant for it.

use super::guard::Guard;
use super::oauth::Authority;
use super::post::no_event_stream;
use super::reach::CheckedNames;
use super::settings::Headers;
use super::web::client;
use ctx_core::Secret;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::io;
use std::sync::Arc;

/// The stream, and where to post.
pub(super) struct Sse {
    client: reqwest::Client,
    headers: Headers,
    authority: Option<Arc<Authority>>,
    endpoint: reqwest::Url,
    stream: reqwest::Response,
    events: Events,
    guard: Arc<Guard>,
}

impl Sse {
    /// Opens the stream and waits for the address; the error tells why there is none.
    pub(super) async fn open(
        url: &str,
        headers: &Headers,
        authority: Option<&Arc<Authority>>,
        event_bytes_max: usize,
        guard: &Arc<Guard>,
    ) -> Result<Self, String> {
        let client = client(CheckedNames::of_server(url)).map_err(|error| ctx_core::chain(&error))?;
        let open = || {
            let request = client.get(url).headers(headers.0.clone().into_iter().collect());
            request.header(http::header::ACCEPT, "text/event-stream")
        };
        let answer = authorized(authority, open).await;
        let mut stream = answer.map_err(|error| ctx_core::chain(&error))?;
        if let Some(reason) = no_event_stream(&stream) {
            return Err(reason);
        }
        let mut events = Events::new(event_bytes_max);
        let address = loop {
            match events.next() {
                Some(Ok(event)) if event.name == "endpoint" => break event.data,
                Some(Ok(_)) => continue,
                Some(Err(TooLong)) => return Err("its first event is too long".to_owned()),
                None => {}
            }
            match stream.chunk().await {
                Ok(Some(bytes)) => events.feed(&bytes),
                Ok(None) => return Err("it closed the connection".to_owned()),
                Err(error) => return Err(ctx_core::chain(&error)),
            }
        };
        let endpoint = stream.url().join(address.trim()).map_err(|_| "it names no address".to_owned())?;
        // What we post carries headers that are meant for this server.
        if endpoint.origin() != stream.url().origin() {
            return Err("it wants to be spoken to at another server's address".to_owned());
        }
        let (headers, authority) = (headers.clone(), authority.cloned());
        Ok(Self { client, headers, authority, endpoint, stream, events, guard: guard.clone() })
    }
}

impl Transport<RoleClient> for Sse {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (client, endpoint) = (self.client.clone(), self.endpoint.clone());
        let (headers, authority) = (self.headers.clone(), self.authority.clone());
        async move {
            let body = bytes::Bytes::from(serde_json::to_vec(&message)?);
            let post = || {
                let request = client.post(endpoint.clone()).headers(headers.0.clone().into_iter().collect());
                request.header(http::header::CONTENT_TYPE, "application/json").body(body.clone())
            };
            let answer = authorized(authority.as_ref(), post).await?;
            match answer.status() {
                status if status.is_success() => Ok(()),
                status => Err(io::Error::other(format!("it answered with HTTP {status}"))),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // Whatever is read is kept before anything else is waited for: this may be given up at any time.
        loop {
            match self.events.next() {
                Some(Ok(event)) if event.name == "message" => match serde_json::from_str(&event.data) {
                    Ok(message) => return Some(message),
                    Err(error) => {
                        tracing::debug!(%error, "a server's message cannot be read");
                        self.guard.admits_noise(event.data.len()).then_some(())?;
                    }
                },
                Some(Ok(event)) => self.guard.admits_noise(event.data.len()).then_some(())?,
                // Whose answer it was cannot be told: those who wait are told that the connection is lost.
                Some(Err(TooLong)) => return None,
                None => match self.stream.chunk().await {
                    Ok(Some(bytes)) => self.events.feed(&bytes),
                    Ok(None) | Err(_) => return None,
                },
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}

/// Sends a request with what lets us in; once more where something else may.
async fn authorized(
    authority: Option<&Arc<Authority>>,
    request: impl Fn() -> reqwest::RequestBuilder,
) -> io::Result<reqwest::Response> {
    let send = |token: &Option<Secret>| match token {
        Some(token) => request().bearer_auth(token.expose()).send(),
        None => request().send(),
    };
    let Some(authority) = authority else { return send(&None).await.map_err(io::Error::other) };
    let token = authority.token().await.map_err(io::Error::other)?;
    let answer = send(&token).await.map_err(io::Error::other)?;
    authority.note_peer(answer.remote_addr());
    let Some(header) = challenge(&answer) else { return Ok(answer) };
    let another = authority.after_refusal(token.as_ref(), &header).await.map_err(io::Error::other)?;
    if another.is_none() {
        return Ok(answer);
    }
    let answer = send(&another).await.map_err(io::Error::other)?;
    authority.note_peer(answer.remote_addr());
    if let Some(header) = challenge(&answer) {
        authority.let_nobody_in(another.as_ref(), &header);
    }
    Ok(answer)
}

/// What is said with an answer that lets nobody in.
fn challenge(answer: &reqwest::Response) -> Option<String> {
    let header = answer.headers().get(http::header::WWW_AUTHENTICATE);
    let header = header.and_then(|header| header.to_str().ok()).unwrap_or_default();
    (answer.status() == http::StatusCode::UNAUTHORIZED).then(|| header.to_owned())
}

/// An event: what it is called, and what it says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    name: String,
    data: String,
}

/// An event that is longer than it may be.
#[derive(Debug, PartialEq, Eq)]
struct TooLong;

/// Makes events of bytes, however they are cut.
struct Events {
    bytes: Vec<u8>,
    /// Bytes that are known to hold no end of a line.
    seen: usize,
    event: Event,
    bytes_max: usize,
}

impl Events {
    fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), seen: 0, event: Event::default(), bytes_max }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next event, if it is complete.
    fn next(&mut self) -> Option<Result<Event, TooLong>> {
        let mut begin = 0;
        let mut complete = None;
        while let Some(length) = self.bytes[begin + self.seen..].iter().position(|byte| *byte == b'\n') {
            let end = begin + self.seen + length;
            self.seen = 0;
            let line = String::from_utf8_lossy(&self.bytes[begin..end]);
            let line = line.strip_suffix('\r').unwrap_or(&line);
            begin = end + 1;
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                if !event.data.is_empty() {
                    complete = Some(event);
                    break;
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => self.event.name = value.to_owned(),
                "data" => {
                    if !self.event.data.is_empty() {
                        self.event.data.push('\n');
                    }
                    self.event.data.push_str(value);
                }
                _ => {}
            }
            if self.event.data.len() > self.bytes_max {
                break;
            }
        }
        self.bytes.drain(..begin);
        self.seen = if complete.is_some() { 0 } else { self.bytes.len() };
        if self.event.data.len() + self.bytes.len() > self.bytes_max && complete.is_none() {
            return Some(Err(TooLong));
        }
        complete.map(|mut event| {
            if event.name.is_empty() {
                "message".clone_into(&mut event.name);
            }
            Ok(event)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8], chunk: usize) -> Vec<(String, String)> {
        let mut events = Events::new(1_000);
        let mut found = Vec::new();
        for part in text.chunks(chunk) {
            events.feed(part);
            while let Some(Ok(event)) = events.next() {
                found.push((event.name, event.data));
            }
        }
        found
    }

    #[test]
    fn events_are_found_however_they_are_cut() {
        let text = b": hello\nevent: endpoint\ndata: /post?id=1\n\ndata: {\"a\":\ndata:1}\r\n\r\nevent: other\n\nid: 3\ndata:  x\n\ndata: unfinished";
        let expected = [("endpoint", "/post?id=1"), ("message", "{\"a\":\n1}"), ("message", " x")];
        for chunk in 1..text.len() {
            let found = read(text, chunk);
            let found: Vec<(&str, &str)> = found.iter().map(|(name, data)| (&**name, &**data)).collect();
            assert_eq!(found, expected, "in pieces of {chunk}");
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_refused_before_it_is_whole() {
        for line in ["data: ", "data: x\ndata: "] {
            let mut events = Events::new(100);
            events.feed(line.as_bytes());
            assert_eq!(events.next(), None);
            events.feed(&[b'x'; 101]);
            assert_eq!(events.next(), Some(Err(TooLong)));
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_of_an_event_is_bounded(
            parts in proptest::collection::vec(
                prop_oneof![Just("data: "), Just("event: "), Just("\n"), Just("\r\n"), Just(":"), Just("xxxxxxxxxx")],
                0..200,
            ),
            chunk in 1_usize..40,
            bytes_max in 1_usize..100,
        ) {
            let mut events = Events::new(bytes_max);
            'all: for part in parts.concat().as_bytes().chunks(chunk) {
                events.feed(part);
                loop {
                    match events.next() {
                        Some(Ok(event)) => prop_assert!(event.data.len() <= bytes_max + chunk),
                        Some(Err(TooLong)) => break 'all,
                        None => break,
                    }
                }
                prop_assert!(events.bytes.len() + events.event.data.len() <= bytes_max);
                prop_assert!(events.event.name.len() <= bytes_max + chunk);
            }
        }

        #[test]
        fn any_bytes_are_read_the_same_in_any_pieces(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'd'), Just(b':'), any::<u8>()], 0..300),
            chunk in 1_usize..40,
        ) {
            prop_assert_eq!(read(&bytes, chunk), read(&bytes, 300));
        }
    }
}
