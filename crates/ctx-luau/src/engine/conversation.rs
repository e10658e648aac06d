//! One run on a worker: sends the script, answers its host requests, and receives the result.
//!
//! Reading, writing, handling requests and the deadline run concurrently in one future, so that neither
//! process can block the other for ever. When the future is dropped, so are all open requests.

use super::clock::Clock;
use super::protocol::{ABOUT_PERSON, Bounds, Failure, FailureKind, Job};
use super::{LogLine, QUESTIONS_MAX, QUESTIONS_OPEN_MAX, Refusal, ScriptRun, World};
use crate::vm::LogLevel;
use ctx_worker::{Frame, FrameKind, OutgoingFrames, ProtocolViolation, READ_BYTES, WorkerProcess};
use ctx_worker::{log_budget, log_cost};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use serde_json::value::to_raw_value;
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

/// Why a run has no outcome. The worker can be used again only after [`Self::TooLarge`].
#[derive(Debug)]
pub(super) enum Broken {
    /// The worker exited before it received the script.
    NotTaken,
    /// The script and its arguments do not fit into a frame.
    TooLarge,
    /// The worker closed the pipe.
    Ended,
    /// The worker violated the protocol.
    Breach(ProtocolViolation),
    /// The worker did not end the run within the grace period after the deadline.
    Late,
}

impl From<ProtocolViolation> for Broken {
    fn from(breach: ProtocolViolation) -> Self {
        Self::Breach(breach)
    }
}

/// The outcome of a run, as the worker reports it.
pub(super) type Ended = Result<Value, Failure>;

/// A host request that was handled, with its response.
struct Answered {
    number: u32,
    pauses: bool,
    answer: Result<(Value, Vec<u8>), Refusal>,
}

/// Runs a script on a worker. `logs` receives the script's log, whatever the outcome.
pub(super) async fn converse(
    worker: &mut WorkerProcess,
    run: &ScriptRun,
    world: &dyn World,
    pause_max: Duration,
    logs: &mut Vec<LogLine>,
) -> Result<Ended, Broken> {
    hand_over(worker, run)?;
    let WorkerProcess { stdin, stdout, incoming, outgoing, .. } = worker;
    let mut talk = Talk {
        run,
        world,
        logs,
        log_left: log_budget(run.log_bytes),
        clock: Clock::new(run.deadline.into(), pause_max),
        asked: 0,
        open: Vec::new(),
        answers: FuturesUnordered::new(),
    };
    let sleep = sleep_until(talk.clock.rings_at());
    tokio::pin!(sleep);
    loop {
        while let Some((frame, length)) = incoming.next_frame()? {
            let ended = talk.hear(&frame, outgoing)?;
            incoming.take(length);
            match ended {
                None => {}
                Some(ended) if incoming.is_empty() => return Ok(ended),
                Some(_) => return Err(ProtocolViolation::Order.into()),
            }
        }
        if sleep.deadline() != talk.clock.rings_at() {
            sleep.as_mut().reset(talk.clock.rings_at());
        }
        let pending = outgoing.pending();
        tokio::select! {
            // The deadline comes first, so that a worker that sends without pause cannot starve it.
            biased;
            () = &mut sleep => talk.time_is_over(outgoing)?,
            Some(answered) = talk.answers.next(),
                if !talk.answers.is_empty() && pending.len() < OUTGOING_BYTES_MAX =>
            {
                talk.reply(answered, outgoing)?;
            },
            written = stdin.write(pending), if !pending.is_empty() => match written {
                Ok(length) => outgoing.wrote(length),
                // The worker has exited; its output may still contain frames.
                Err(_) => outgoing.clear(),
            },
            read = stdout.read_buf(incoming.room(READ_BYTES)) => match read {
                Ok(0) | Err(_) => return Err(Broken::Ended),
                Ok(_) => {}
            },
        }
    }
}

/// Queues the script and its arguments, and writes as much as the pipe accepts without waiting.
fn hand_over(worker: &mut WorkerProcess, run: &ScriptRun) -> Result<(), Broken> {
    let too_large = |_| Broken::TooLarge;
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
    worker.outgoing.push(&frame).map_err(|_| Broken::TooLarge)?;
    // The loop in `converse` writes the rest.
    match worker.stdin.write(worker.outgoing.pending()).now_or_never() {
        Some(Ok(written)) => worker.outgoing.wrote(written),
        Some(Err(_)) => return Err(Broken::NotTaken),
        None => {}
    }
    Ok(())
}

/// The state of a run in progress.
struct Talk<'a> {
    run: &'a ScriptRun,
    world: &'a dyn World,
    logs: &'a mut Vec<LogLine>,
    log_left: usize,
    clock: Clock,
    asked: u32,
    open: Vec<u32>,
    answers: FuturesUnordered<BoxFuture<'a, Answered>>,
}

impl Talk<'_> {
    /// Handles a frame from the worker; returns the outcome once the run has ended.
    fn hear(
        &mut self,
        frame: &Frame<'_>,
        outgoing: &mut OutgoingFrames,
    ) -> Result<Option<Ended>, ProtocolViolation> {
        match frame.kind {
            FrameKind::Question => self.take_question(frame, outgoing)?,
            FrameKind::Log => {
                self.log_left =
                    self.log_left.checked_sub(log_cost(frame.bytes)).ok_or(ProtocolViolation::Logs)?;
                let level = level(frame.number).ok_or(ProtocolViolation::Order)?;
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
                let mut failure: Failure = frame.parse()?;
                // After the deadline every failure is a timeout: the run's host requests were cut short.
                if self.clock.is_over {
                    failure.kind = FailureKind::Time;
                }
                return Ok(Some(Err(failure)));
            }
            _ => return Err(ProtocolViolation::Order),
        }
        Ok(None)
    }

    fn take_question(
        &mut self,
        frame: &Frame<'_>,
        outgoing: &mut OutgoingFrames,
    ) -> Result<(), ProtocolViolation> {
        let number = frame.number;
        if self.open.contains(&number) {
            return Err(ProtocolViolation::Order);
        }
        if self.open.len() >= QUESTIONS_OPEN_MAX {
            return Err(ProtocolViolation::QuestionsOpen);
        }
        self.asked += 1;
        if self.asked > QUESTIONS_MAX {
            return Err(ProtocolViolation::Questions);
        }
        if self.clock.is_over {
            return refuse(outgoing, number, &Refusal::timeout());
        }
        self.open.push(number);
        let (about, arguments, bytes) = (frame.name.to_owned(), frame.parse()?, frame.bytes.to_vec());
        let pauses = about == ABOUT_PERSON;
        let until = if pauses { Some(self.clock.pause()) } else { None };
        let world = self.world;
        self.answers.push(Box::pin(async move {
            let answer = world.answer(&about, arguments, bytes);
            let answer = match until {
                None => answer.await,
                Some(until) => timeout_at(until, answer).await.unwrap_or(Err(Refusal::timeout())),
            };
            Answered { number, pauses, answer }
        }));
        Ok(())
    }

    fn reply(&mut self, answered: Answered, outgoing: &mut OutgoingFrames) -> Result<(), ProtocolViolation> {
        let Answered { number, pauses, answer } = answered;
        self.open.retain(|other| *other != number);
        if pauses {
            self.clock.resume();
        }
        reply(outgoing, number, answer)
    }

    /// At the deadline, refuses the open host requests, so that the worker can end the run. At the end of the
    /// grace period, gives the worker up.
    fn time_is_over(&mut self, outgoing: &mut OutgoingFrames) -> Result<(), Broken> {
        if self.clock.is_over {
            return Err(Broken::Late);
        }
        self.clock.is_over = true;
        self.answers.clear();
        for number in self.open.drain(..) {
            refuse(outgoing, number, &Refusal::timeout())?;
        }
        Ok(())
    }
}

fn reply(
    outgoing: &mut OutgoingFrames,
    number: u32,
    answer: Result<(Value, Vec<u8>), Refusal>,
) -> Result<(), ProtocolViolation> {
    let refusal = match answer {
        Ok((value, bytes)) => {
            let json = serde_json::to_vec(&value).map_err(|_| ProtocolViolation::Json)?;
            let frame = Frame { json: &json, bytes: &bytes, ..Frame::new(FrameKind::Answer, number) };
            match outgoing.push(&frame) {
                Ok(()) => return Ok(()),
                Err(_) => Refusal::new(TOO_LARGE, "the answer is too large to be handed to a script"),
            }
        }
        Err(refusal) => refusal,
    };
    refuse(outgoing, number, &refusal)
}

fn refuse(outgoing: &mut OutgoingFrames, number: u32, refusal: &Refusal) -> Result<(), ProtocolViolation> {
    let code = refusal.code.get(..refusal.code.floor_char_boundary(Refusal::CODE_BYTES_MAX));
    let message = refusal.message.get(..refusal.message.floor_char_boundary(Refusal::MESSAGE_BYTES_MAX));
    let data = match refusal.data.is_empty() {
        true => Vec::new(),
        false => serde_json::to_vec(&refusal.data).map_err(|_| ProtocolViolation::Json)?,
    };
    outgoing.push(&Frame {
        name: code.unwrap_or_default(),
        // Data that is too large is left out; the message has the essential part.
        json: if data.len() > Refusal::DATA_BYTES_MAX { &[] } else { &data },
        bytes: message.unwrap_or_default().as_bytes(),
        ..Frame::new(FrameKind::Refusal, number)
    })
}

fn level(number: u32) -> Option<LogLevel> {
    [LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error]
        .into_iter()
        .find(|level| *level as u32 == number)
}

impl Refusal {
    const CODE_BYTES_MAX: usize = 64;
    const MESSAGE_BYTES_MAX: usize = 64 << 10;
    const DATA_BYTES_MAX: usize = 128 << 10;

    fn timeout() -> Self {
        Self::new(TIMEOUT, "the script's time is over")
    }
}
