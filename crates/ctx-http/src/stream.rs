//! Streams a call as server-sent events (SSE): progress and log lines of the tool, then its result or error.
//!
//! The call runs in a task of its own, so that a slow client does not hold up the tool. A bounded queue is
//! between them: when it is full, progress is dropped first, then log lines; the result never is.

use crate::error::ApiError;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use ctx_core::{Call, Catalog, ErrorKind, LogLine, Output, Peer, Progress, ResultFormat, ToolError};
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
pub(crate) fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let names_event_stream =
            parts.next().is_some_and(|name| name.eq_ignore_ascii_case("text/event-stream"));
        let is_rejected = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.and_then(|weight| weight.parse::<f32>().ok()) == Some(0.0)
        });
        names_event_stream && !is_rejected
    })
}

/// Calls a tool and streams its events. A call that the catalog does not admit is answered with an HTTP error
/// status; once it is admitted, every failure is an `error` event, however soon it comes.
pub(crate) async fn stream_call(
    name: String,
    arguments: Value,
    call: Call,
    form: ResultFormat,
    calls: &TaskTracker,
) -> Result<Response, ApiError> {
    let queue = Arc::new(EventQueue::default());
    let call = call.with_peer(queue.clone());
    let running = async move { Catalog::call(&name, arguments, call).await };
    let mut running = AbortOnDropHandle::new(calls.spawn(running));
    let state = tokio::select! {
        biased;
        () = queue.admitted.notified() => CallState::Running(running),
        ended = &mut running => CallState::Ended(Ok(call_outcome(ended)?)),
    };
    let events = Sse::new(events(CallStream { queue, state, form }));
    Ok(([UNBUFFERED], events).into_response())
}

/// The outcome of a call whose task may have panicked.
fn call_outcome(ended: Result<Result<Output, ToolError>, JoinError>) -> Result<Output, ToolError> {
    ended.unwrap_or_else(|error| Err(ToolError::internal("the request failed", error)))
}

fn events(call_stream: CallStream) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(Some(call_stream), async |call_stream| {
        let mut call_stream = call_stream?;
        let event = call_stream.next().await;
        let remaining = (!matches!(call_stream.state, CallState::Finished)).then_some(call_stream);
        Some((Ok(event), remaining))
    })
}

/// The events for one client. Dropping it, because the client has disconnected, cancels the call.
struct CallStream {
    queue: Arc<EventQueue>,
    state: CallState,
    form: ResultFormat,
}

enum CallState {
    Running(AbortOnDropHandle<Result<Output, ToolError>>),
    Ended(Result<Output, ToolError>),
    Finished,
}

impl CallStream {
    async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.queue.dequeue() {
                return event;
            }
            match &mut self.state {
                CallState::Running(task) => tokio::select! {
                    () = self.queue.event_queued.notified() => {}
                    ended = task => {
                        self.state = CallState::Ended(call_outcome(ended));
                    }
                    () = tokio::time::sleep(KEEP_ALIVE) => return Event::default().comment(""),
                },
                CallState::Ended(_) | CallState::Finished => return self.final_event(),
            }
        }
    }

    fn final_event(&mut self) -> Event {
        match std::mem::replace(&mut self.state, CallState::Finished) {
            CallState::Ended(Ok(output)) => event("result", &self.form.body(output)),
            CallState::Ended(Err(error)) => event("error", &ApiError::from(error).body()),
            CallState::Running(_) | CallState::Finished => {
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
struct EventQueue {
    pending: Mutex<QueuedEvents>,
    event_queued: Notify,
    admitted: Notify,
}

#[derive(Default)]
struct QueuedEvents {
    events: VecDeque<CallEvent>,
    bytes: usize,
    /// Log lines dropped since the last that was queued.
    dropped_lines: usize,
}

enum CallEvent {
    Progress(Progress),
    Line(LogLine),
}

impl CallEvent {
    fn bytes(&self) -> usize {
        match self {
            Self::Progress(progress) => progress.message.as_ref().map_or(0, String::len),
            Self::Line(line) => line.message.len(),
        }
    }
}

impl QueuedEvents {
    fn has_room(&self, bytes: usize) -> bool {
        self.events.len() < EVENTS_MAX && self.bytes + bytes <= EVENT_BYTES_MAX
    }

    /// Drops the oldest progress event: newer progress replaces it.
    fn drop_oldest_progress(&mut self) -> bool {
        let oldest = self.events.iter().position(|event| matches!(event, CallEvent::Progress(_)));
        let dropped = oldest.and_then(|index| self.events.remove(index));
        self.bytes -= dropped.as_ref().map_or(0, CallEvent::bytes);
        dropped.is_some()
    }

    fn push(&mut self, event: CallEvent) {
        let bytes = event.bytes();
        while !self.has_room(bytes) && self.drop_oldest_progress() {}
        if self.has_room(bytes) {
            let dropped_lines_event = self.dropped_lines_event();
            for event in dropped_lines_event.into_iter().chain([event]) {
                self.bytes += event.bytes();
                self.events.push_back(event);
            }
        } else if matches!(event, CallEvent::Line(_)) {
            self.dropped_lines += 1;
        }
    }

    fn pop(&mut self) -> Option<CallEvent> {
        let Some(event) = self.events.pop_front() else { return self.dropped_lines_event() };
        self.bytes -= event.bytes();
        Some(event)
    }

    /// The log line that stands for dropped lines.
    fn dropped_lines_event(&mut self) -> Option<CallEvent> {
        let lines = std::mem::take(&mut self.dropped_lines);
        let message = format!("{lines} log lines are left out here: the client reads too slowly");
        (lines > 0).then_some(CallEvent::Line(LogLine { level: tracing::Level::WARN, message }))
    }
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedEvents> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue(&self, event: CallEvent) {
        self.lock().push(event);
        self.event_queued.notify_one();
    }

    fn dequeue(&self) -> Option<Event> {
        let next = self.lock().pop()?;
        Some(match next {
            CallEvent::Progress(Progress { done, total, message }) => {
                event("progress", &json!({"progress": done, "total": total, "message": message}))
            }
            CallEvent::Line(line) => event("log", &json!(line)),
        })
    }
}

impl Peer for EventQueue {
    fn admitted(&self) {
        self.admitted.notify_one();
    }

    fn progress(&self, progress: Progress) {
        self.enqueue(CallEvent::Progress(progress));
    }

    fn log(&self, level: tracing::Level, message: &str) {
        self.enqueue(CallEvent::Line(LogLine { level, message: message.to_owned() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use http_body_util::BodyExt;

    fn call_stream(state: CallState) -> (Arc<EventQueue>, CallStream) {
        let queue = Arc::new(EventQueue::default());
        (queue.clone(), CallStream { queue, state, form: ResultFormat::Wrapped })
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_sends_keep_alive_comments() {
        let running = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
        let (queue, call_stream) = call_stream(CallState::Running(running));
        let mut body = Sse::new(events(call_stream)).into_response().into_body();
        let started = tokio::time::Instant::now();
        for times in 1..3 {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((&frame[..], started.elapsed()), (&b": \n\n"[..], KEEP_ALIVE * times));
        }
        queue.log(tracing::Level::INFO, "awake");
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&frame[..], b"event: log\ndata: {\"level\":\"info\",\"message\":\"awake\"}\n\n");
    }

    #[tokio::test]
    async fn old_progress_is_dropped_for_newer_progress_and_log_lines() {
        let (queue, call_stream) = call_stream(CallState::Ended(Ok(Output::default())));
        let progress = |done: usize| Progress { done: done as f64, total: None, message: None };
        for done in 0..=EVENTS_MAX {
            queue.progress(progress(done));
        }
        {
            let pending = queue.lock();
            assert_eq!(pending.events.len(), EVENTS_MAX);
            assert!(
                matches!(pending.events.front(), Some(CallEvent::Progress(oldest)) if oldest.done == 1.0)
            );
        }
        for _ in 0..EVENTS_MAX + 3 {
            queue.log(tracing::Level::INFO, "");
        }
        queue.progress(progress(0));
        {
            let pending = queue.lock();
            assert!(pending.events.iter().all(|event| matches!(event, CallEvent::Line(_))));
            assert_eq!((pending.events.len(), pending.dropped_lines), (EVENTS_MAX, 3));
        }
        // The dropped-lines message and the result come on top.
        assert_eq!(events(call_stream).count().await, EVENTS_MAX + 2);
    }

    #[tokio::test]
    async fn lines_are_bounded_by_their_bytes_too() {
        let queue = EventQueue::default();
        for _ in 0..3 {
            queue.log(tracing::Level::INFO, &"x".repeat(EVENT_BYTES_MAX / 2));
        }
        let pending = queue.lock();
        assert_eq!((pending.events.len(), pending.dropped_lines, pending.bytes), (2, 1, EVENT_BYTES_MAX));
    }

    #[tokio::test]
    async fn a_call_that_is_aborted_ends_its_stream_with_an_error() {
        let broken = tokio::spawn(std::future::pending());
        broken.abort();
        let (_, call_stream) = call_stream(CallState::Running(AbortOnDropHandle::new(broken)));
        let body =
            Sse::new(events(call_stream)).into_response().into_body().collect().await.unwrap().to_bytes();
        let error = r#"{"error":{"code":"internal","message":"the request failed"}}"#;
        assert_eq!(body, format!("event: error\ndata: {error}\n\n"));
    }
}
