//! Drives a call in a task of its own: forwards its progress and logs to the client, and its questions
//! (elicitation, sampling, roots) in the form of the client's protocol revision, until the call ends or waits
//! for input from a later request.

use super::session::Client;
use super::work::{Answer, Work};
use crate::convert;
use async_trait::async_trait;
use ctx_core::{Call, Peer, Progress, Question, ToolError, Unanswered, Want};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use rmcp::model::{InputRequests, InputResponses};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Events of one call that wait for its client; further progress and log events are dropped.
const EVENTS_MAX: usize = 256;
/// How long an elicitation waits for others, so that one response carries them together.
const TOGETHER: Duration = Duration::from_millis(10);

/// A running call. Dropping it cancels the call.
pub(super) struct Running {
    events: mpsc::Receiver<Event>,
    ended: oneshot::Receiver<Result<Answer, ToolError>>,
    _cancel_on_drop: DropGuard,
    /// Elicitations that the client has not answered.
    pending: Vec<Pending>,
    /// Answers that arrived before their elicitation.
    given: InputResponses,
    asked: usize,
}

enum Event {
    Progress(Progress),
    Log(tracing::Level, String),
    Ask(Question, Reply),
}

type Reply = oneshot::Sender<Result<Value, Unanswered>>;

struct Pending {
    key: String,
    want: Want,
    reply: Reply,
}

/// How one request of a client ended that drives a call.
pub(super) enum Step {
    /// The call has ended.
    Ended(Result<Answer, ToolError>),
    /// The call needs this input; it continues with the client's next request.
    Asks(Box<Running>, InputRequests),
    /// The client cancelled its request.
    Cancelled,
    /// The call failed because the client lacks the capability to answer an elicitation.
    Lacks(Want),
}

impl Running {
    /// Spawns `call` for `work`; the call is cancelled with `all`, if not before.
    pub(super) fn start(work: Work, call: Call, calls: &TaskTracker, all: &CancellationToken) -> Box<Self> {
        let (events_in, events) = mpsc::channel(EVENTS_MAX);
        let (ended_in, ended) = oneshot::channel();
        let cancel = all.child_token();
        let call = call.with_peer(Arc::new(Line(events_in))).with_cancellation(&cancel);
        calls.spawn(async move {
            // The receiver is dropped when the client has disconnected.
            let _ = ended_in.send(work.run(call).await);
        });
        Box::new(Self {
            events,
            ended,
            _cancel_on_drop: cancel.drop_guard(),
            pending: Vec::new(),
            given: InputResponses::new(),
            asked: 0,
        })
    }

    /// Applies a client's answers; those that match no pending elicitation are retained for a later one.
    pub(super) fn answer(&mut self, mut responses: InputResponses) {
        let (answered, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|pending: &Pending| responses.contains_key(&pending.key));
        self.pending = pending;
        for Pending { key, want, reply } in answered {
            let Some(response) = responses.remove(&key) else { continue };
            match convert::answer(&want, response) {
                // The elicitation is sent again.
                Err(Unanswered::Unfit) => self.pending.push(Pending { key, want, reply }),
                answer => tell(reply, answer),
            }
        }
        self.given = responses;
    }

    /// Forwards events until the call ends, needs input from a later request, or the request is cancelled.
    pub(super) async fn attend(mut self: Box<Self>, client: &Client) -> Step {
        let mut asking: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        let mut lacks = None;
        // When the pending elicitations are sent, batched with others or not.
        let mut ask_at = None;
        loop {
            let together = match self.pending.is_empty() {
                true => None,
                false => Some(*ask_at.get_or_insert_with(|| Instant::now() + TOGETHER)),
            };
            let event = tokio::select! {
                biased;
                () = client.cancelled() => return Step::Cancelled,
                Some(()) = asking.next(), if !asking.is_empty() => continue,
                // Polled before the events: a call that reports a lot must still send its elicitations.
                () = until(together), if together.is_some() => {
                    ask_at = None;
                    self.pending.retain(|pending| !pending.reply.is_closed());
                    let requests = self.requests();
                    if requests.is_empty() {
                        continue;
                    }
                    return Step::Asks(self, requests);
                }
                Some(event) = self.events.recv() => event,
                ended = &mut self.ended => {
                    self.tell_rest(client).await;
                    let gone = |_| Err(ToolError::internal("the call ended without an answer", "dropped"));
                    let ended = ended.unwrap_or_else(gone);
                    return match (ended, lacks) {
                        (Err(error), Some(want)) if client.is_stateless() && is_refusal(&error) => {
                            Step::Lacks(want)
                        }
                        (ended, _) => Step::Ended(ended),
                    };
                }
            };
            match event {
                Event::Progress(progress) => client.progress(progress).await,
                Event::Log(level, message) => client.log(level, message).await,
                Event::Ask(question, reply) if !client.can_answer(&question) => {
                    lacks = Some(question.want);
                    tell(reply, Err(Unanswered::Unable));
                }
                Event::Ask(question, reply) => match convert::input_request(&question.want) {
                    Err(unaskable) => tell(reply, Err(unaskable)),
                    Ok(_) if client.is_stateless() => self.wait_for(question, reply),
                    Ok(request) => asking.push(
                        async move {
                            let response = client.ask(request).await;
                            let answer = response.and_then(|value| convert::answer(&question.want, value));
                            tell(reply, answer);
                        }
                        .boxed(),
                    ),
                },
            }
        }
    }

    /// Forwards events that the call sent between the last poll of the queue and its end.
    async fn tell_rest(&mut self, client: &Client) {
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Progress(progress) => client.progress(progress).await,
                Event::Log(level, message) => client.log(level, message).await,
                // The call has ended; nothing waits for the answer.
                Event::Ask(..) => {}
            }
        }
    }

    /// Answers from the retained answers, or leaves the elicitation to a later request.
    fn wait_for(&mut self, question: Question, reply: Reply) {
        self.asked += 1;
        let mut key = question.key.unwrap_or_else(|| format!("question_{}", self.asked));
        if self.pending.iter().any(|pending| pending.key == key) {
            key = format!("{key}_{}", self.asked);
        }
        let given = self.given.remove(&key).map(|response| convert::answer(&question.want, response));
        match given {
            None | Some(Err(Unanswered::Unfit)) => {
                self.pending.push(Pending { key, want: question.want, reply });
            }
            Some(answer) => tell(reply, answer),
        }
    }

    fn requests(&self) -> InputRequests {
        let request = |pending: &Pending| {
            let request = convert::input_request(&pending.want).ok()?;
            Some((pending.key.clone(), request))
        };
        self.pending.iter().filter_map(request).collect()
    }
}

/// Whether a call failed because it did not handle that the client cannot answer.
fn is_refusal(error: &ToolError) -> bool {
    error.unanswered() == Some(Unanswered::Unable)
}

async fn until(moment: Option<Instant>) {
    if let Some(moment) = moment {
        tokio::time::sleep_until(moment).await;
    }
}

fn tell(reply: Reply, answer: Result<Value, Unanswered>) {
    // The call may have stopped waiting.
    let _ = reply.send(answer);
}

/// The call's side of the event queue.
struct Line(mpsc::Sender<Event>);

#[async_trait]
impl Peer for Line {
    fn progress(&self, progress: Progress) {
        self.offer(Event::Progress(progress));
    }

    fn log(&self, level: tracing::Level, message: &str) {
        self.offer(Event::Log(level, message.to_owned()));
    }

    async fn ask(&self, question: Question) -> Result<Value, Unanswered> {
        let (reply, answer) = oneshot::channel();
        self.0.send(Event::Ask(question, reply)).await.map_err(|_| Unanswered::TooLate)?;
        answer.await.unwrap_or(Err(Unanswered::TooLate))
    }
}

impl Line {
    fn offer(&self, event: Event) {
        if self.0.try_send(event).is_err() {
            tracing::debug!("a client does not read; what a call told is lost");
        }
    }
}
