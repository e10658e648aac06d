//! Streams a call as server-sent events (SSE): progress and log lines of the tool, then its result or error.
//!
//! The call runs in a task of its own, so that a slow client does not hold up the tool. A bounded queue is
//! between them: when it is full, progress is dropped first, then log lines; the result never is.

use crate::error::ApiError;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use ctx_core::{AnswerForm, Call, Catalog, ErrorKind, LogLine, Output, Peer, Progress, ToolError};
use futures::{Stream, stream};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinError;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// Silence after which a comment is sent to keep the connection alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum number of events in the queue.
const EVENTS_MAX: usize = 256;
/// Maximum number of bytes of text in the queue.
const EVENT_BYTES_MAX: usize = 256 << 10;
/// Turns off response buffering in nginx and similar proxies.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// Whether the `Accept` header of a request names event streams.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("text/event-stream"));
        let is_refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.and_then(|weight| weight.parse::<f32>().ok()) == Some(0.0)
        });
        is_named && !is_refused
    })
}

/// Calls a tool and streams its events. A call that the catalog does not admit is answered with an HTTP error
/// status; once it is admitted, every failure is an `error` event, however soon it comes.
pub(crate) async fn stream(
    name: String,
    arguments: Value,
    call: Call,
    form: AnswerForm,
    calls: &TaskTracker,
) -> Result<Response, ApiError> {
    let outbox = Arc::new(Outbox::default());
    let call = call.with_peer(outbox.clone());
    let running = async move { Catalog::call(&name, arguments, call).await };
    let mut running = AbortOnDropHandle::new(calls.spawn(running));
    let state = tokio::select! {
        biased;
        () = outbox.admitted.notified() => State::Running(running),
        ended = &mut running => State::Ended(Ok(unless_broken(ended)?)),
    };
    let events = Sse::new(events(Feed { outbox, state, form }));
    Ok(([UNBUFFERED], events).into_response())
}

/// The outcome of a call whose task may have panicked.
fn unless_broken(ended: Result<Result<Output, ToolError>, JoinError>) -> Result<Output, ToolError> {
    ended.unwrap_or_else(|error| Err(ToolError::internal("the request failed", error)))
}

fn events(feed: Feed) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(Some(feed), async |feed| {
        let mut feed = feed?;
        let event = feed.next().await;
        let rest = (!matches!(feed.state, State::Told)).then_some(feed);
        Some((Ok(event), rest))
    })
}

/// The events for one client. Dropping it, because the client has disconnected, cancels the call.
struct Feed {
    outbox: Arc<Outbox>,
    state: State,
    form: AnswerForm,
}

enum State {
    Running(AbortOnDropHandle<Result<Output, ToolError>>),
    Ended(Result<Output, ToolError>),
    Told,
}

impl Feed {
    async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.outbox.take() {
                return event;
            }
            match &mut self.state {
                State::Running(task) => tokio::select! {
                    () = self.outbox.filled.notified() => {}
                    ended = task => {
                        self.state = State::Ended(unless_broken(ended));
                    }
                    () = tokio::time::sleep(KEEP_ALIVE) => return Event::default().comment(""),
                },
                State::Ended(_) | State::Told => return self.ending(),
            }
        }
    }

    fn ending(&mut self) -> Event {
        match std::mem::replace(&mut self.state, State::Told) {
            State::Ended(Ok(output)) => event("result", &self.form.body(output)),
            State::Ended(Err(error)) => event("error", &ApiError::from(error).body()),
            State::Running(_) | State::Told => {
                event("error", &ApiError::new(ErrorKind::Internal, "the request failed").body())
            }
        }
    }
}

fn event(name: &str, data: &Value) -> Event {
    // Compact JSON has no line breaks, so that it is one `data` line.
    Event::default().event(name).data(data.to_string())
}

/// Events of the tool that the client has not read.
#[derive(Default)]
struct Outbox {
    queue: Mutex<Queue>,
    filled: Notify,
    admitted: Notify,
}

#[derive(Default)]
struct Queue {
    told: VecDeque<Told>,
    bytes: usize,
    /// Log lines dropped since the last that was queued.
    lines_lost: usize,
}

enum Told {
    Progress(Progress),
    Line(LogLine),
}

impl Told {
    fn bytes(&self) -> usize {
        match self {
            Self::Progress(progress) => progress.message.as_ref().map_or(0, String::len),
            Self::Line(line) => line.message.len(),
        }
    }
}

impl Queue {
    fn has_room(&self, bytes: usize) -> bool {
        self.told.len() < EVENTS_MAX && self.bytes + bytes <= EVENT_BYTES_MAX
    }

    /// Drops the oldest progress event: newer progress replaces it.
    fn lose_progress(&mut self) -> bool {
        let oldest = self.told.iter().position(|told| matches!(told, Told::Progress(_)));
        let lost = oldest.and_then(|place| self.told.remove(place));
        self.bytes -= lost.as_ref().map_or(0, Told::bytes);
        lost.is_some()
    }

    fn push(&mut self, told: Told) {
        let bytes = told.bytes();
        while !self.has_room(bytes) && self.lose_progress() {}
        if self.has_room(bytes) {
            let gap = self.gap();
            for told in gap.into_iter().chain([told]) {
                self.bytes += told.bytes();
                self.told.push_back(told);
            }
        } else if matches!(told, Told::Line(_)) {
            self.lines_lost += 1;
        }
    }

    fn pop(&mut self) -> Option<Told> {
        let Some(told) = self.told.pop_front() else { return self.gap() };
        self.bytes -= told.bytes();
        Some(told)
    }

    /// The log line that stands for dropped lines.
    fn gap(&mut self) -> Option<Told> {
        let lines = std::mem::take(&mut self.lines_lost);
        let message =
            format!("{lines} lines of the log are left out here: they came faster than they were read");
        (lines > 0).then_some(Told::Line(LogLine { level: tracing::Level::WARN, message }))
    }
}

impl Outbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, told: Told) {
        self.queue().push(told);
        self.filled.notify_one();
    }

    fn take(&self) -> Option<Event> {
        let told = self.queue().pop()?;
        Some(match told {
            Told::Progress(Progress { done, total, message }) => {
                event("progress", &json!({"progress": done, "total": total, "message": message}))
            }
            Told::Line(line) => event("log", &json!(line)),
        })
    }
}

impl Peer for Outbox {
    fn admitted(&self) {
        self.admitted.notify_one();
    }

    fn progress(&self, progress: Progress) {
        self.put(Told::Progress(progress));
    }

    fn log(&self, level: tracing::Level, message: &str) {
        self.put(Told::Line(LogLine { level, message: message.to_owned() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use http_body_util::BodyExt;

    fn feed(state: State) -> (Arc<Outbox>, Feed) {
        let outbox = Arc::new(Outbox::default());
        (outbox.clone(), Feed { outbox, state, form: AnswerForm::Wrapped })
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_shows_that_it_lives() {
        let running = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
        let (outbox, feed) = feed(State::Running(running));
        let mut body = Sse::new(events(feed)).into_response().into_body();
        let started = tokio::time::Instant::now();
        for times in 1..3 {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((&frame[..], started.elapsed()), (&b": \n\n"[..], KEEP_ALIVE * times));
        }
        outbox.log(tracing::Level::INFO, "awake");
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&frame[..], b"event: log\ndata: {\"level\":\"info\",\"message\":\"awake\"}\n\n");
    }

    #[tokio::test]
    async fn progress_gives_way_to_newer_progress_and_to_the_log() {
        let (outbox, feed) = feed(State::Ended(Ok(Output::default())));
        let progress = |done: usize| Progress { done: done as f64, total: None, message: None };
        for done in 0..=EVENTS_MAX {
            outbox.progress(progress(done));
        }
        {
            let queue = outbox.queue();
            assert_eq!(queue.told.len(), EVENTS_MAX);
            assert!(matches!(queue.told.front(), Some(Told::Progress(oldest)) if oldest.done == 1.0));
        }
        for _ in 0..EVENTS_MAX + 3 {
            outbox.log(tracing::Level::INFO, "");
        }
        outbox.progress(progress(0));
        {
            let queue = outbox.queue();
            assert!(queue.told.iter().all(|told| matches!(told, Told::Line(_))));
            assert_eq!((queue.told.len(), queue.lines_lost), (EVENTS_MAX, 3));
        }
        // The dropped-lines message and the result come on top.
        assert_eq!(events(feed).count().await, EVENTS_MAX + 2);
    }

    #[tokio::test]
    async fn lines_are_bounded_by_their_bytes_too() {
        let outbox = Outbox::default();
        for _ in 0..3 {
            outbox.log(tracing::Level::INFO, &"x".repeat(EVENT_BYTES_MAX / 2));
        }
        let queue = outbox.queue();
        assert_eq!((queue.told.len(), queue.lines_lost, queue.bytes), (2, 1, EVENT_BYTES_MAX));
    }

    #[tokio::test]
    async fn a_call_that_breaks_ends_its_stream_with_an_error() {
        let broken = tokio::spawn(std::future::pending());
        broken.abort();
        let (_, feed) = feed(State::Running(AbortOnDropHandle::new(broken)));
        let body = Sse::new(events(feed)).into_response().into_body().collect().await.unwrap().to_bytes();
        let error = r#"{"error":{"code":"internal","message":"the request failed"}}"#;
        assert_eq!(body, format!("event: error\ndata: {error}\n\n"));
    }
}
