//! Requests to a worker: a job that asks its parent nothing. JSON and bytes in, JSON and bytes out.
//!
//! The worker is killed when the time limit passes, and replaced after every failure.

use crate::frame::{Frame, FrameKind, ProtocolViolation};
use crate::pool::{LeaseError, Pool};
use crate::process::{READ_BYTES, WorkerExit, WorkerProcess};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

/// Bytes of input per frame, so that a large input is never copied as a whole and buffers stay small.
const INPUT_BYTES: usize = 128 << 10;

/// Maximum number of workers tried for one job, when workers turn out to have exited while idle.
const ATTEMPTS_MAX: usize = 3;

/// A job and its limits.
#[derive(Clone, Copy, Debug)]
pub struct JobRequest<'a> {
    /// The JSON text that describes the job.
    pub json: &'a [u8],
    /// The input, of any size.
    pub bytes: &'a [u8],
    /// Time limit for waiting for a worker.
    pub wait_max: Duration,
    /// Time limit once a worker has the job.
    pub time_max: Duration,
    /// Maximum bytes of the reply, including its JSON text; [`PAYLOAD_BYTES_MAX`](crate::PAYLOAD_BYTES_MAX) applies as
    /// well.
    pub reply_bytes_max: usize,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum JobRequestError {
    /// No worker was available.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The time limit passed, and the worker was killed.
    #[error("it took longer than {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The worker violated the protocol and was killed.
    #[error("its worker sent {0}")]
    Violation(ProtocolViolation),
    /// The worker process exited.
    #[error("its worker process exited ({})", .0.status)]
    Crashed(WorkerExit),
}

/// Why an exchange with one worker failed.
enum ExchangeError {
    /// The worker had exited before it read any of the job.
    NotStarted,
    /// The pipe was closed.
    Ended,
    Violation(ProtocolViolation),
}

impl From<ProtocolViolation> for ExchangeError {
    fn from(violation: ProtocolViolation) -> Self {
        Self::Violation(violation)
    }
}

impl Pool {
    /// Sends a job to a worker; returns the JSON value and the bytes of its reply. Dropping the future kills the
    /// worker.
    pub async fn request<T: DeserializeOwned>(
        &self,
        request: &JobRequest<'_>,
    ) -> Result<(T, Vec<u8>), JobRequestError> {
        tokio::select! {
            reply = self.request_from_some_worker(request) => reply,
            () = self.closed() => Err(LeaseError::Stopped.into()),
        }
    }

    async fn request_from_some_worker<T: DeserializeOwned>(
        &self,
        request: &JobRequest<'_>,
    ) -> Result<(T, Vec<u8>), JobRequestError> {
        let deadline = Instant::now() + request.wait_max;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut lease = self.lease(0, deadline).await?;
            let started = Instant::now();
            let exchange_result = timeout(request.time_max, exchange(&mut lease.worker, request)).await;
            match exchange_result {
                Ok(Ok(reply)) => {
                    lease.give_back(started.elapsed());
                    return Ok(reply);
                }
                // The worker exited while idle. The job has not begun, so another worker can take it.
                Ok(Err(ExchangeError::NotStarted)) if attempts < ATTEMPTS_MAX => {}
                Ok(Err(ExchangeError::NotStarted | ExchangeError::Ended)) => {
                    return Err(JobRequestError::Crashed(lease.worker.end().await));
                }
                Ok(Err(ExchangeError::Violation(violation))) => {
                    return Err(JobRequestError::Violation(violation));
                }
                Err(_) => return Err(JobRequestError::TimedOut(request.time_max)),
            }
        }
    }
}

async fn exchange<T: DeserializeOwned>(
    worker: &mut WorkerProcess,
    request: &JobRequest<'_>,
) -> Result<(T, Vec<u8>), ExchangeError> {
    let WorkerProcess { stdin, stdout, incoming, outgoing, .. } = worker;
    let mut unsent = Some(request.bytes);
    let mut is_started = false;
    loop {
        if let Some((frame, length)) = incoming.next_frame()? {
            let is_expected = frame.kind == FrameKind::Done && unsent.is_none();
            let size = frame.json.len() + frame.bytes.len();
            let reply = match is_expected {
                true if size > request.reply_bytes_max => return Err(ProtocolViolation::Size.into()),
                true => (frame.parse()?, frame.bytes.to_vec()),
                false => return Err(ProtocolViolation::Order.into()),
            };
            incoming.consume(length);
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
                    outgoing.mark_written(length);
                    is_started = true;
                }
                Err(_) if !is_started => return Err(ExchangeError::NotStarted),
                Err(_) => return Err(ExchangeError::Ended),
            },
            read = stdout.read_buf(incoming.spare_buffer(READ_BYTES)) => match read {
                Ok(0) | Err(_) if !is_started => return Err(ExchangeError::NotStarted),
                Ok(0) | Err(_) => return Err(ExchangeError::Ended),
                Ok(_) => {}
            },
        }
    }
}
