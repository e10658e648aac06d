//! One run on a worker: sends the script, handles its host requests, and receives the result.
//!
//! Reading, writing, handling requests and the deadline run concurrently in one future, so that neither
//! process can block the other for ever. When the future is dropped, so are all open requests.

use super::deadline::PausableDeadline;
use super::protocol::{ASK_METHOD, Bounds, Job, JobFailure, JobFailureKind};
use super::{HostError, HostHandler, LogLine, OPEN_REQUESTS_MAX, REQUESTS_MAX, ScriptRun};
use crate::vm::LogLevel;
use ctx_worker::{Frame, FrameKind, OutgoingFrames, ProtocolViolation, READ_BYTES, WorkerProcess};
use ctx_worker::{log_budget, log_cost};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use serde_json::value::to_raw_value;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep_until, timeout_at};

/// Backpressure: while this many bytes wait to be written, no further responses are queued.
const OUTGOING_BYTES_MAX: usize = 64 << 20;

/// Tolerance above the limit of a result. The worker enforces the exact limit; beyond the tolerance it is
/// faulty.
const RESULT_SLACK_BYTES: usize = 1 << 10;

/// Error code of a host request that was not answered in time.
const TIMEOUT: &str = "timeout";

/// Error code of a response that does not fit into a frame.
const TOO_LARGE: &str = "too_large";

/// Why a run has no outcome. The worker can be used again only after [`Self::JobTooLarge`].
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The worker exited before it received the script.
    WorkerGone,
    /// The script and its arguments do not fit into a frame.
    JobTooLarge,
    /// The worker closed the pipe.
    PipeClosed,
    /// The worker violated the protocol.
    Violation(ProtocolViolation),
    /// The worker did not end the run within the grace period after the deadline.
    DeadlineIgnored,
}

impl From<ProtocolViolation> for ExchangeError {
    fn from(violation: ProtocolViolation) -> Self {
        Self::Violation(violation)
    }
}

/// The outcome of a run, as the worker reports it.
pub(super) type RunOutcome = Result<Value, JobFailure>;

/// A host request that was handled, with its response.
struct HandledRequest {
    number: u32,
    pauses: bool,
    response: Result<(Value, Vec<u8>), HostError>,
}

/// Runs a script on a worker. `logs` receives the script's log, whatever the outcome.
pub(super) async fn run_job(
    worker: &mut WorkerProcess,
    run: &ScriptRun,
    world: &dyn HostHandler,
    pause_max: Duration,
    logs: &mut Vec<LogLine>,
) -> Result<RunOutcome, ExchangeError> {
    send_job(worker, run)?;
    let WorkerProcess { stdin, stdout, incoming, outgoing, .. } = worker;
    let mut exchange = Exchange {
        run,
        world,
        logs,
        log_left: log_budget(run.log_bytes),
        deadline: PausableDeadline::new(run.deadline.into(), pause_max),
        requests_total: 0,
        open_requests: Vec::new(),
        handlers: OpenHandlers::default(),
    };
    let sleep = sleep_until(exchange.deadline.fires_at());
    tokio::pin!(sleep);
    loop {
        while let Some((frame, length)) = incoming.next_frame()? {
            let outcome = exchange.handle_frame(&frame, outgoing)?;
            incoming.consume(length);
            match outcome {
                None => {}
                Some(outcome) if incoming.is_empty() => return Ok(outcome),
                Some(_) => return Err(ProtocolViolation::Order.into()),
            }
        }
        if sleep.deadline() != exchange.deadline.fires_at() {
            sleep.as_mut().reset(exchange.deadline.fires_at());
        }
        let pending = outgoing.pending();
        tokio::select! {
            // The deadline comes first, so that a worker that sends without pause cannot starve it.
            biased;
            () = &mut sleep => exchange.handle_deadline(outgoing)?,
            handled = exchange.handlers.next(),
                if !exchange.handlers.is_empty() && pending.len() < OUTGOING_BYTES_MAX =>
            {
                exchange.finish_request(handled, outgoing)?;
            },
            written = stdin.write(pending), if !pending.is_empty() => match written {
                Ok(length) => outgoing.mark_written(length),
                // The worker has exited; its output may still contain frames.
                Err(_) => outgoing.clear(),
            },
            read = stdout.read_buf(incoming.spare_buffer(READ_BYTES)) => match read {
                Ok(0) | Err(_) => return Err(ExchangeError::PipeClosed),
                Ok(_) => {}
            },
        }
    }
}

/// Queues the script and its arguments, and writes as much as the pipe accepts without waiting.
fn send_job(worker: &mut WorkerProcess, run: &ScriptRun) -> Result<(), ExchangeError> {
    let too_large = |_| ExchangeError::JobTooLarge;
    let raw = |value: &Value| to_raw_value(value).map_err(too_large);
    let time = run.deadline.saturating_duration_since(std::time::Instant::now());
    let job = Job {
        chunk_name: run.chunk_name.clone(),
        entry: run.entry,
        arguments: run.arguments.iter().map(raw).collect::<Result<_, _>>()?,
        config: run.config.as_ref().map(raw).transpose()?,
        apis: run.apis.clone(),
        bounds: Bounds {
            time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            memory_bytes: run.memory_bytes,
            result_bytes: run.result_bytes,
            log_bytes: run.log_bytes,
        },
    };
    let json = serde_json::to_vec(&job).map_err(too_large)?;
    let frame = Frame { json: &json, bytes: &run.source, ..Frame::new(FrameKind::Job, 0) };
    worker.outgoing.push(&frame).map_err(|_| ExchangeError::JobTooLarge)?;
    // The loop in `run_job` writes the rest.
    match worker.stdin.write(worker.outgoing.pending()).now_or_never() {
        Some(Ok(written)) => worker.outgoing.mark_written(written),
        Some(Err(_)) => return Err(ExchangeError::WorkerGone),
        None => {}
    }
    Ok(())
}

/// The state of a run in progress.
struct Exchange<'a> {
    run: &'a ScriptRun,
    world: &'a dyn HostHandler,
    logs: &'a mut Vec<LogLine>,
    log_left: usize,
    deadline: PausableDeadline,
    requests_total: u32,
    open_requests: Vec<u32>,
    handlers: OpenHandlers<'a>,
}

/// The host requests that are being handled. Most scripts have one at a time, which is polled directly:
/// `FuturesUnordered` wakes the task after each round of pending futures, so that every request would be handed
/// over to another thread of the runtime.
#[derive(Default)]
struct OpenHandlers<'a> {
    only: Option<BoxFuture<'a, HandledRequest>>,
    others: FuturesUnordered<BoxFuture<'a, HandledRequest>>,
}

impl<'a> OpenHandlers<'a> {
    fn push(&mut self, handler: BoxFuture<'a, HandledRequest>) {
        match self.is_empty() {
            true => self.only = Some(handler),
            false => self.others.push(handler),
        }
    }

    fn clear(&mut self) {
        self.only = None;
        self.others.clear();
    }

    fn is_empty(&self) -> bool {
        self.only.is_none() && self.others.is_empty()
    }

    /// Waits for the next handled request; for ever if there is none.
    async fn next(&mut self) -> HandledRequest {
        poll_fn(|context| {
            if let Some(only) = &mut self.only
                && let Poll::Ready(handled) = only.as_mut().poll(context)
            {
                self.only = None;
                return Poll::Ready(handled);
            }
            match self.others.poll_next_unpin(context) {
                Poll::Ready(Some(handled)) => Poll::Ready(handled),
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

impl Exchange<'_> {
    /// Handles a frame from the worker; returns the outcome once the run has ended.
    fn handle_frame(
        &mut self,
        frame: &Frame<'_>,
        outgoing: &mut OutgoingFrames,
    ) -> Result<Option<RunOutcome>, ProtocolViolation> {
        match frame.kind {
            FrameKind::Question => self.accept_request(frame, outgoing)?,
            FrameKind::Log => {
                self.log_left =
                    self.log_left.checked_sub(log_cost(frame.bytes)).ok_or(ProtocolViolation::Logs)?;
                let level = parse_level(frame.number).ok_or(ProtocolViolation::Order)?;
                let message = String::from_utf8_lossy(frame.bytes).into_owned();
                self.world.log(level, &message);
                self.logs.push(LogLine { level, message });
            }
            FrameKind::Done => {
                if frame.json.len() > self.run.result_bytes.saturating_add(RESULT_SLACK_BYTES) {
                    return Err(ProtocolViolation::Size);
                }
                return Ok(Some(Ok(frame.parse()?)));
            }
            FrameKind::Failed => {
                let mut failure: JobFailure = frame.parse()?;
                // After the deadline every failure is a timeout: the run's host requests were cut short.
                if self.deadline.has_passed {
                    failure.kind = JobFailureKind::Time;
                }
                return Ok(Some(Err(failure)));
            }
            _ => return Err(ProtocolViolation::Order),
        }
        Ok(None)
    }

    fn accept_request(
        &mut self,
        frame: &Frame<'_>,
        outgoing: &mut OutgoingFrames,
    ) -> Result<(), ProtocolViolation> {
        let number = frame.number;
        if self.open_requests.contains(&number) {
            return Err(ProtocolViolation::Order);
        }
        if self.open_requests.len() >= OPEN_REQUESTS_MAX {
            return Err(ProtocolViolation::QuestionsOpen);
        }
        self.requests_total += 1;
        if self.requests_total > REQUESTS_MAX {
            return Err(ProtocolViolation::Questions);
        }
        if self.deadline.has_passed {
            return refuse(outgoing, number, &HostError::timeout());
        }
        self.open_requests.push(number);
        let (method, arguments, bytes) = (frame.name.to_owned(), frame.parse()?, frame.bytes.to_vec());
        let pauses = method == ASK_METHOD;
        let pause_end = if pauses { Some(self.deadline.pause()) } else { None };
        let world = self.world;
        self.handlers.push(Box::pin(async move {
            let response = world.handle(&method, arguments, bytes);
            let response = match pause_end {
                None => response.await,
                Some(pause_end) => timeout_at(pause_end, response).await.unwrap_or(Err(HostError::timeout())),
            };
            HandledRequest { number, pauses, response }
        }));
        Ok(())
    }

    fn finish_request(
        &mut self,
        handled: HandledRequest,
        outgoing: &mut OutgoingFrames,
    ) -> Result<(), ProtocolViolation> {
        let HandledRequest { number, pauses, response } = handled;
        self.open_requests.retain(|other| *other != number);
        if pauses {
            self.deadline.resume();
        }
        send_response(outgoing, number, response)
    }

    /// At the deadline, refuses the open host requests, so that the worker can end the run. At the end of the
    /// grace period, gives the worker up.
    fn handle_deadline(&mut self, outgoing: &mut OutgoingFrames) -> Result<(), ExchangeError> {
        if self.deadline.has_passed {
            return Err(ExchangeError::DeadlineIgnored);
        }
        self.deadline.has_passed = true;
        self.handlers.clear();
        for number in self.open_requests.drain(..) {
            refuse(outgoing, number, &HostError::timeout())?;
        }
        Ok(())
    }
}

fn send_response(
    outgoing: &mut OutgoingFrames,
    number: u32,
    response: Result<(Value, Vec<u8>), HostError>,
) -> Result<(), ProtocolViolation> {
    let refusal = match response {
        Ok((value, bytes)) => {
            let json = serde_json::to_vec(&value).map_err(|_| ProtocolViolation::Json)?;
            let frame = Frame { json: &json, bytes: &bytes, ..Frame::new(FrameKind::Answer, number) };
            match outgoing.push(&frame) {
                Ok(()) => return Ok(()),
                Err(_) => HostError::new(TOO_LARGE, "the response is too large for a script"),
            }
        }
        Err(refusal) => refusal,
    };
    refuse(outgoing, number, &refusal)
}

fn refuse(outgoing: &mut OutgoingFrames, number: u32, refusal: &HostError) -> Result<(), ProtocolViolation> {
    let code = refusal.code.get(..refusal.code.floor_char_boundary(HostError::CODE_BYTES_MAX));
    let message = refusal.message.get(..refusal.message.floor_char_boundary(HostError::MESSAGE_BYTES_MAX));
    let data = match refusal.data.is_empty() {
        true => Vec::new(),
        false => serde_json::to_vec(&refusal.data).map_err(|_| ProtocolViolation::Json)?,
    };
    outgoing.push(&Frame {
        name: code.unwrap_or_default(),
        // Data that is too large is left out; the message has the essential part.
        json: if data.len() > HostError::DATA_BYTES_MAX { &[] } else { &data },
        bytes: message.unwrap_or_default().as_bytes(),
        ..Frame::new(FrameKind::Refusal, number)
    })
}

fn parse_level(number: u32) -> Option<LogLevel> {
    [LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error]
        .into_iter()
        .find(|level| *level as u32 == number)
}

impl HostError {
    const CODE_BYTES_MAX: usize = 64;
    const MESSAGE_BYTES_MAX: usize = 64 << 10;
    const DATA_BYTES_MAX: usize = 128 << 10;

    fn timeout() -> Self {
        Self::new(TIMEOUT, "the script exceeded its time limit")
    }
}
