//! Server-sent events of an upstream: one reader for every HTTP transport, with a bound on each event.
//!
//! It reads all that the HTML standard allows; the types are those of `sse-stream`, which rmcp expects. An event that is
//! too long is refused before it is complete.

use bytes::Bytes;
use ctx_net::NetError;
use futures::{Stream, StreamExt, stream};
use sse_stream::{Error, Sse};
use std::mem;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An event has more bytes than its limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is too long")]
pub(super) struct EventTooLong;

/// The events of a response body; ends after an error. [`EventTooLong`] comes as [`Error::Body`].
pub(super) fn read_events(
    body: impl Stream<Item = Result<Bytes, NetError>> + Send + 'static,
    bytes_max: usize,
) -> impl Stream<Item = Result<Sse, Error>> + Send + 'static {
    let reader = Some((Box::pin(body), EventReader::new(bytes_max)));
    stream::unfold(reader, |reader| async move {
        let (mut body, mut events) = reader?;
        loop {
            match events.next() {
                Some(Ok(event)) => return Some((Ok(event), Some((body, events)))),
                Some(Err(error)) => return Some((Err(Error::Body(error.into())), None)),
                None => {}
            }
            match body.next().await? {
                Ok(bytes) => events.feed(&bytes),
                Err(error) => return Some((Err(Error::Body(error.into())), None)),
            }
        }
    })
}

/// Parses events from bytes, in chunks of any size.
struct EventReader {
    bytes: Vec<u8>,
    /// Leading bytes of `bytes` that are known to contain no line end.
    scanned_bytes: usize,
    event: Sse,
    /// Bytes of the event's complete lines, comments among them.
    line_bytes: usize,
    is_first_line: bool,
    /// The last line ended with `\r`: a `\n` that follows belongs to that end.
    skips_newline: bool,
    bytes_max: usize,
}

impl EventReader {
    fn new(bytes_max: usize) -> Self {
        let (bytes, event) = (Vec::new(), Sse::default());
        Self {
            bytes,
            scanned_bytes: 0,
            event,
            line_bytes: 0,
            is_first_line: true,
            skips_newline: false,
            bytes_max,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next event, if it is complete. One with any field is an event, even without data: its ID counts.
    fn next(&mut self) -> Option<Result<Sse, EventTooLong>> {
        let mut start = 0;
        let mut complete = None;
        while complete.is_none() && self.line_bytes <= self.bytes_max {
            if self.skips_newline
                && let Some(byte) = self.bytes.get(start)
            {
                self.skips_newline = false;
                start += usize::from(*byte == b'\n');
            }
            let rest = &self.bytes[start + self.scanned_bytes..];
            let Some(length) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else { break };
            let end = start + mem::take(&mut self.scanned_bytes) + length;
            self.skips_newline = self.bytes[end] == b'\r';
            let mut line = &self.bytes[start..end];
            start = end + 1;
            if mem::take(&mut self.is_first_line) {
                line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
            }
            if line.is_empty() {
                self.line_bytes = 0;
                complete = Some(mem::take(&mut self.event)).filter(|event| !is_blank(event));
            } else {
                self.line_bytes += line.len();
                apply_line(&mut self.event, &String::from_utf8_lossy(line));
            }
        }
        self.bytes.drain(..start);
        self.scanned_bytes = if complete.is_some() { 0 } else { self.bytes.len() };
        if complete.is_none() && self.line_bytes + self.bytes.len() > self.bytes_max {
            return Some(Err(EventTooLong));
        }
        complete.map(Ok)
    }
}

fn is_blank(event: &Sse) -> bool {
    event.data.is_none() && event.event.is_none() && event.id.is_none() && event.retry.is_none()
}

/// Sets the field that a line has; comments and unknown fields change nothing.
fn apply_line(event: &mut Sse, line: &str) {
    let (field, value) = line.split_once(':').unwrap_or((line, ""));
    let value = value.strip_prefix(' ').unwrap_or(value);
    match field {
        "data" => match &mut event.data {
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            None => event.data = Some(value.to_owned()),
        },
        "event" => event.event = Some(value.to_owned()),
        "id" if !value.contains('\0') => event.id = Some(value.to_owned()),
        "retry" => event.retry = value.trim().parse().ok().or(event.retry),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event_bytes(event: &Sse) -> usize {
        [&event.data, &event.event, &event.id].into_iter().flatten().map(String::len).sum()
    }

    fn read(text: &[u8], chunk: usize) -> Vec<Sse> {
        let mut events = EventReader::new(1_000);
        let mut found = Vec::new();
        for part in text.chunks(chunk) {
            events.feed(part);
            while let Some(Ok(event)) = events.next() {
                found.push(event);
            }
        }
        found
    }

    fn event(name: Option<&str>, data: Option<&str>, id: Option<&str>) -> Sse {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Sse { event: own(name), data: own(data), id: own(id), retry: None }
    }

    #[test]
    fn events_are_found_however_they_are_cut() {
        let text = b"\xEF\xBB\xBF: hello\nevent: endpoint\ndata: /post?id=1\n\ndata: {\"a\":\ndata:1}\r\n\r\nevent: other\n\nid: 3\ndata:  x\n\ndata: c\rid: 4\r\rdata: unfinished";
        let expected = [
            event(Some("endpoint"), Some("/post?id=1"), None),
            event(None, Some("{\"a\":\n1}"), None),
            event(Some("other"), None, None),
            event(None, Some(" x"), Some("3")),
            event(None, Some("c"), Some("4")),
        ];
        for chunk in 1..text.len() {
            assert_eq!(read(text, chunk), expected, "in pieces of {chunk}");
        }
    }

    #[test]
    fn unknown_and_invalid_fields_are_ignored() {
        let text = b"unknown: x\nnonsense\nretry: soon\nretry: 20\nid: a\nid: b\0\nevent: e\nevent: f\ndata: \xFF\n\n";
        let mut expected = event(Some("f"), Some("\u{fffd}"), Some("a"));
        expected.retry = Some(20);
        assert_eq!(read(text, 7), [expected]);
    }

    #[test]
    fn an_event_that_is_too_long_is_refused_before_it_is_whole() {
        for line in ["data: ", "data: x\ndata: ", ": a comment\n: "] {
            let mut events = EventReader::new(100);
            events.feed(line.as_bytes());
            assert_eq!(events.next(), None);
            events.feed(&[b'x'; 101]);
            assert_eq!(events.next(), Some(Err(EventTooLong)));
        }
    }

    #[tokio::test]
    async fn nothing_follows_an_event_that_is_too_long() {
        let body = stream::iter(["data: a\n\n", "data: aaaaaaaaaa", "\n\ndata: b\n\n"]);
        let body = body.map(|text| Ok(Bytes::from_static(text.as_bytes())));
        let events: Vec<_> = read_events(body, 10).collect().await;
        let [Ok(first), Err(Error::Body(error))] = &events[..] else { panic!("{events:?}") };
        assert_eq!((first.data.as_deref(), error.is::<EventTooLong>()), (Some("a"), true));
    }

    proptest! {
        #[test]
        fn buffered_bytes_of_an_event_are_bounded(
            parts in proptest::collection::vec(
                prop_oneof![Just("data: "), Just("event: "), Just("\n"), Just("\r\n"), Just(":"), Just("xxxxxxxxxx")],
                0..200,
            ),
            chunk in 1_usize..40,
            bytes_max in 1_usize..100,
        ) {
            let mut events = EventReader::new(bytes_max);
            'all: for part in parts.concat().as_bytes().chunks(chunk) {
                events.feed(part);
                loop {
                    match events.next() {
                        Some(Ok(event)) => prop_assert!(event_bytes(&event) <= bytes_max + chunk),
                        Some(Err(EventTooLong)) => break 'all,
                        None => break,
                    }
                }
                prop_assert!(events.bytes.len() + event_bytes(&events.event) <= bytes_max);
                prop_assert!(events.event.event.as_ref().map_or(0, String::len) <= bytes_max + chunk);
            }
        }

        #[test]
        fn any_bytes_are_read_the_same_in_any_pieces(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'd'), Just(b':'), any::<u8>()],
                0..300,
            ),
            chunk in 1_usize..40,
        ) {
            prop_assert_eq!(read(&bytes, chunk), read(&bytes, 300));
        }
    }
}
