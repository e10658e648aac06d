//! Drives a call in a task of its own: forwards its progress and logs to the client, and its questions
//! (elicitation, sampling, roots) in the form of the client's protocol revision, until the call ends or waits
//! for input from a later request.

use super::catalog_request::{CatalogRequest, CatalogResponse};
use super::session::RequestClient;
use crate::convert;
use async_trait::async_trait;
use ctx_core::{Call, Peer, Progress, Question, QuestionError, QuestionKind, ToolError};
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
const QUESTION_BATCH_WAIT: Duration = Duration::from_millis(10);

/// A running call. Dropping it cancels the call.
pub(super) struct RunningCall {
    events: mpsc::Receiver<CallEvent>,
    result: oneshot::Receiver<Result<CatalogResponse, ToolError>>,
    _cancel_on_drop: DropGuard,
    /// Elicitations that the client has not answered.
    pending: Vec<PendingQuestion>,
    /// Answers that arrived before their elicitation.
    early_responses: InputResponses,
    question_count: usize,
}

enum CallEvent {
    Progress(Progress),
    Log(tracing::Level, String),
    Ask(Question, AnswerSender),
}

type AnswerSender = oneshot::Sender<Result<Value, QuestionError>>;

struct PendingQuestion {
    key: String,
    want: QuestionKind,
    reply: AnswerSender,
}

/// How the drive of a call by one request of a client ended.
pub(super) enum DriveOutcome {
    /// The call has ended.
    Finished(Result<CatalogResponse, ToolError>),
    /// The call needs this input; it continues with the client's next request.
    InputRequired(Box<RunningCall>, InputRequests),
    /// The client cancelled its request.
    Cancelled,
    /// The call failed because the client lacks the capability to answer an elicitation.
    MissingCapability(QuestionKind),
}

impl RunningCall {
    /// Spawns `call` for `request`; the call is cancelled with `cancel_all`, if not before.
    pub(super) fn start(
        request: CatalogRequest,
        call: Call,
        calls: &TaskTracker,
        cancel_all: &CancellationToken,
    ) -> Box<Self> {
        let (event_sender, events) = mpsc::channel(EVENTS_MAX);
        let (result_sender, result) = oneshot::channel();
        let cancel = cancel_all.child_token();
        let call = call.with_peer(Arc::new(EventQueuePeer(event_sender))).with_cancellation(&cancel);
        calls.spawn(async move {
            // The receiver is dropped when the client has disconnected.
            let _ = result_sender.send(request.run(call).await);
        });
        Box::new(Self {
            events,
            result,
            _cancel_on_drop: cancel.drop_guard(),
            pending: Vec::new(),
            early_responses: InputResponses::new(),
            question_count: 0,
        })
    }

    /// Applies a client's answers; those that match no pending elicitation are retained for a later one.
    pub(super) fn apply_responses(&mut self, mut responses: InputResponses) {
        let (answered, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|pending: &PendingQuestion| responses.contains_key(&pending.key));
        self.pending = pending;
        for PendingQuestion { key, want, reply } in answered {
            let Some(response) = responses.remove(&key) else { continue };
            match convert::parse_answer(&want, response) {
                // The elicitation is sent again.
                Err(QuestionError::InvalidAnswer) => self.pending.push(PendingQuestion { key, want, reply }),
                answer => send_answer(reply, answer),
            }
        }
        self.early_responses = responses;
    }

    /// Forwards events until the call ends, needs input from a later request, or the request is cancelled.
    pub(super) async fn drive(mut self: Box<Self>, client: &RequestClient) -> DriveOutcome {
        let mut answering: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        let mut unanswerable = None;
        // When the pending elicitations are sent, batched with others or not.
        let mut batch_deadline = None;
        loop {
            let deadline = match self.pending.is_empty() {
                true => None,
                false => Some(*batch_deadline.get_or_insert_with(|| Instant::now() + QUESTION_BATCH_WAIT)),
            };
            let event = tokio::select! {
                biased;
                () = client.cancelled() => return DriveOutcome::Cancelled,
                Some(()) = answering.next(), if !answering.is_empty() => continue,
                // Polled before the events: a call that reports a lot must still send its elicitations.
                () = sleep_until_deadline(deadline), if deadline.is_some() => {
                    batch_deadline = None;
                    self.pending.retain(|pending| !pending.reply.is_closed());
                    let requests = self.input_requests();
                    if requests.is_empty() {
                        continue;
                    }
                    return DriveOutcome::InputRequired(self, requests);
                }
                Some(event) = self.events.recv() => event,
                result = &mut self.result => {
                    self.forward_remaining_events(client).await;
                    let dropped = |_| Err(ToolError::internal("the call ended without a result", "dropped"));
                    let result = result.unwrap_or_else(dropped);
                    return match (result, unanswerable) {
                        (Err(error), Some(want)) if client.is_stateless() && is_refusal(&error) => {
                            DriveOutcome::MissingCapability(want)
                        }
                        (result, _) => DriveOutcome::Finished(result),
                    };
                }
            };
            match event {
                CallEvent::Progress(progress) => client.progress(progress).await,
                CallEvent::Log(level, message) => client.log(level, message).await,
                CallEvent::Ask(question, reply) if !client.can_answer(&question) => {
                    unanswerable = Some(question.kind);
                    send_answer(reply, Err(QuestionError::Unsupported));
                }
                CallEvent::Ask(question, reply) => match convert::input_request(&question.kind) {
                    Err(unaskable) => send_answer(reply, Err(unaskable)),
                    Ok(_) if client.is_stateless() => self.queue_question(question, reply),
                    Ok(request) => answering.push(
                        async move {
                            let response = client.ask(request).await;
                            let answer =
                                response.and_then(|value| convert::parse_answer(&question.kind, value));
                            send_answer(reply, answer);
                        }
                        .boxed(),
                    ),
                },
            }
        }
    }

    /// Forwards events that the call sent between the last poll of the queue and its end.
    async fn forward_remaining_events(&mut self, client: &RequestClient) {
        while let Ok(event) = self.events.try_recv() {
            match event {
                CallEvent::Progress(progress) => client.progress(progress).await,
                CallEvent::Log(level, message) => client.log(level, message).await,
                // The call has ended; nothing waits for the answer.
                CallEvent::Ask(..) => {}
            }
        }
    }

    /// Answers from the retained answers, or leaves the elicitation to a later request.
    fn queue_question(&mut self, question: Question, reply: AnswerSender) {
        self.question_count += 1;
        let mut key = question.key.unwrap_or_else(|| format!("question_{}", self.question_count));
        if self.pending.iter().any(|pending| pending.key == key) {
            key = format!("{key}_{}", self.question_count);
        }
        let early_answer =
            self.early_responses.remove(&key).map(|response| convert::parse_answer(&question.kind, response));
        match early_answer {
            None | Some(Err(QuestionError::InvalidAnswer)) => {
                self.pending.push(PendingQuestion { key, want: question.kind, reply });
            }
            Some(answer) => send_answer(reply, answer),
        }
    }

    fn input_requests(&self) -> InputRequests {
        let request = |pending: &PendingQuestion| {
            let request = convert::input_request(&pending.want).ok()?;
            Some((pending.key.clone(), request))
        };
        self.pending.iter().filter_map(request).collect()
    }
}

/// Whether a call failed because it did not handle that the client cannot answer.
fn is_refusal(error: &ToolError) -> bool {
    error.question_error() == Some(QuestionError::Unsupported)
}

async fn sleep_until_deadline(moment: Option<Instant>) {
    if let Some(moment) = moment {
        tokio::time::sleep_until(moment).await;
    }
}

fn send_answer(reply: AnswerSender, answer: Result<Value, QuestionError>) {
    // The call may have stopped waiting.
    let _ = reply.send(answer);
}

/// The call's side of the event queue.
struct EventQueuePeer(mpsc::Sender<CallEvent>);

#[async_trait]
impl Peer for EventQueuePeer {
    fn progress(&self, progress: Progress) {
        self.try_send_event(CallEvent::Progress(progress));
    }

    fn log(&self, level: tracing::Level, message: &str) {
        self.try_send_event(CallEvent::Log(level, message.to_owned()));
    }

    async fn ask(&self, question: Question) -> Result<Value, QuestionError> {
        let (reply, answer) = oneshot::channel();
        self.0.send(CallEvent::Ask(question, reply)).await.map_err(|_| QuestionError::TimedOut)?;
        answer.await.unwrap_or(Err(QuestionError::TimedOut))
    }
}

impl EventQueuePeer {
    fn try_send_event(&self, event: CallEvent) {
        if self.0.try_send(event).is_err() {
            tracing::debug!("dropped an event of a call: the client reads too slowly");
        }
    }
}
