//! Parked calls, which wait for input from a later request. The client holds a sealed handle
//! (`requestState`).

use super::running_call::RunningCall;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ctx_core::ANSWER_TIME_MAX;
use rmcp::model::{RequestStateCodec, SealOptions};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use uuid::Uuid;

/// Parked calls at once; a script's call holds a worker while it is parked.
const PARKED_MAX: usize = 64;

/// The parked calls, by the ID in their handle.
pub(super) struct ParkedCalls {
    codec: RequestStateCodec,
    calls: Mutex<HashMap<Uuid, ParkedCall>>,
}

struct ParkedCall {
    running: Box<RunningCall>,
    parked_at: Instant,
}

/// Why a handle resumes no call.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResumeError {
    #[error("`requestState` was not issued by this server for this request")]
    InvalidHandle,
    #[error(
        "the call of this `requestState` is no longer waiting: it was answered, it timed out or the \
         server was restarted; call again without `requestState`"
    )]
    NotParked,
}

/// Too many calls are parked.
#[derive(Debug, thiserror::Error)]
#[error("too many calls wait for an answer; try again later")]
pub(super) struct TooManyParked;

impl ParkedCalls {
    pub(super) fn new() -> Self {
        // Calls do not outlive the process, so the key need not either.
        let key = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes).concat();
        Self { codec: RequestStateCodec::new_unchecked(key), calls: Mutex::default() }
    }

    /// Parks a call. The handle is bound to `associated_data` and can be used once.
    pub(super) fn park(
        &self,
        running: Box<RunningCall>,
        associated_data: &[u8],
    ) -> Result<String, TooManyParked> {
        let id = Uuid::new_v4();
        let mut calls = self.calls();
        let now = Instant::now();
        calls.retain(|_, parked| now.duration_since(parked.parked_at) < ANSWER_TIME_MAX);
        if calls.len() >= PARKED_MAX {
            return Err(TooManyParked);
        }
        calls.insert(id, ParkedCall { running, parked_at: now });
        drop(calls);
        let options = SealOptions::new().associated_data(associated_data).ttl(ANSWER_TIME_MAX);
        let handle = URL_SAFE_NO_PAD.encode(id.as_bytes());
        Ok(self.codec.seal_with(handle.as_bytes(), &options))
    }

    /// Removes the call that a handle stands for.
    pub(super) fn resume(
        &self,
        handle: &str,
        associated_data: &[u8],
    ) -> Result<Box<RunningCall>, ResumeError> {
        use rmcp::model::RequestStateError as Error;
        let opened = self.codec.open_with(handle, associated_data).map_err(|error| match error {
            Error::Expired => ResumeError::NotParked,
            _ => ResumeError::InvalidHandle,
        })?;
        let id = URL_SAFE_NO_PAD.decode(opened).ok().and_then(|bytes| Uuid::from_slice(&bytes).ok());
        let id = id.ok_or(ResumeError::InvalidHandle)?;
        self.calls().remove(&id).map(|parked| parked.running).ok_or(ResumeError::NotParked)
    }

    /// Cancels all parked calls.
    pub(super) fn clear(&self) {
        self.calls().clear();
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<Uuid, ParkedCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
