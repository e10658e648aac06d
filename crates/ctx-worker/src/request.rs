//! A job that asks nothing of its parent: JSON and bytes to a worker, JSON and bytes back.
//!
//! The worker is killed when its time is over, and replaced after every failure.

use crate::frame::{Frame, FrameKind, ProtocolViolation};
use crate::pool::{LeaseError, Pool};
use crate::process::{READ_BYTES, WorkerExit, WorkerProcess};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

/// Bytes of a job sent in one frame, so that a large job is never copied as a whole and buffers are kept.
const INPUT_BYTES: usize = 128 << 10;

/// Workers tried for one job while each turns out to have ended before.
const ATTEMPTS_MAX: usize = 3;

/// A job and its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// A JSON text that describes the job.
    pub json: &'a [u8],
    /// Its input, of any size.
    pub bytes: &'a [u8],
    /// How long it may wait for a worker.
    pub wait_max: Duration,
    /// How long it may take once a worker has it.
    pub time_max: Duration,
    /// Bytes of the reply, JSON text included; a frame's bound holds in any case.
    pub reply_bytes_max: usize,
}

/// Why a job has no reply.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There was no worker for it.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The worker was killed at the deadline.
    #[error("it took longer than {} s", .0.as_secs())]
    Late(Duration),
    /// The worker broke the protocol and was killed.
    #[error("its worker sent {0}")]
    Violation(ProtocolViolation),
    /// The worker process ended.
    #[error("its worker ended ({})", .0.status)]
    Crashed(WorkerExit),
}

/// Why an exchange with one worker failed.
enum ExchangeError {
    /// The worker had ended before it took any of the job.
    NotTaken,
    /// The pipe ended.
    Ended,
    Violation(ProtocolViolation),
}

impl From<ProtocolViolation> for ExchangeError {
    fn from(violation: ProtocolViolation) -> Self {
        Self::Violation(violation)
    }
}

impl Pool {
    /// Has a worker do a job; returns the JSON value and the bytes of its reply. Dropping the future kills the worker.
    pub async fn request<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
    ) -> Result<(T, Vec<u8>), RequestError> {
        tokio::select! {
            reply = self.request_from_some_worker(request) => reply,
            () = self.closed() => Err(LeaseError::Stopped.into()),
        }
    }

    async fn request_from_some_worker<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
    ) -> Result<(T, Vec<u8>), RequestError> {
        let deadline = Instant::now() + request.wait_max;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut lease = self.lease(0, deadline).await?;
            let started = Instant::now();
            let exchanged = timeout(request.time_max, exchange(&mut lease.worker, request)).await;
            match exchanged {
                Ok(Ok(reply)) => {
                    lease.give_back(started.elapsed());
                    return Ok(reply);
                }
                // It ended while it was idle. The job did not begin, so another worker may have it.
                Ok(Err(ExchangeError::NotTaken)) if attempts < ATTEMPTS_MAX => {}
                Ok(Err(ExchangeError::NotTaken | ExchangeError::Ended)) => {
                    return Err(RequestError::Crashed(lease.worker.end().await));
                }
                Ok(Err(ExchangeError::Violation(violation))) => {
                    return Err(RequestError::Violation(violation));
                }
                Err(_) => return Err(RequestError::Late(request.time_max)),
            }
        }
    }
}

async fn exchange<T: DeserializeOwned>(
    worker: &mut WorkerProcess,
    request: &Request<'_>,
) -> Result<(T, Vec<u8>), ExchangeError> {
    let WorkerProcess { stdin, stdout, incoming, outgoing, .. } = worker;
    let mut unsent = Some(request.bytes);
    let mut is_taken = false;
    loop {
        if let Some((frame, length)) = incoming.next_frame()? {
            let is_expected = frame.kind == FrameKind::Done && unsent.is_none();
            let size = frame.json.len() + frame.bytes.len();
            let reply = match is_expected {
                true if size > request.reply_bytes_max => return Err(ProtocolViolation::Size.into()),
                true => (frame.parse()?, frame.bytes.to_vec()),
                false => return Err(ProtocolViolation::Order.into()),
            };
            incoming.take(length);
            return if incoming.is_empty() { Ok(reply) } else { Err(ProtocolViolation::Order.into()) };
        }
        if outgoing.pending().is_empty()
            && let Some(bytes) = unsent
        {
            let frame = match bytes.split_at_checked(INPUT_BYTES) {
                Some((bytes, rest)) => {
                    unsent = Some(rest);
                    Frame { bytes, ..Frame::new(FrameKind::Input, 0) }
                }
                None => {
                    unsent = None;
                    Frame { json: request.json, bytes, ..Frame::new(FrameKind::Job, 0) }
                }
            };
            outgoing.push(&frame)?;
        }
        let pending = outgoing.pending();
        tokio::select! {
            written = stdin.write(pending), if !pending.is_empty() => match written {
                Ok(length) => {
                    outgoing.wrote(length);
                    is_taken = true;
                }
                Err(_) if !is_taken => return Err(ExchangeError::NotTaken),
                Err(_) => return Err(ExchangeError::Ended),
            },
            read = stdout.read_buf(incoming.room(READ_BYTES)) => match read {
                Ok(0) | Err(_) if !is_taken => return Err(ExchangeError::NotTaken),
                Ok(0) | Err(_) => return Err(ExchangeError::Ended),
                Ok(_) => {}
            },
        }
    }
}
