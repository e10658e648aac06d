//! Parked calls, which wait for input from a later request. The client holds a sealed handle
//! (`requestState`).

use super::attend::Running;
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
pub(super) struct Parked {
    seal: RequestStateCodec,
    calls: Mutex<HashMap<Uuid, Waiting>>,
}

struct Waiting {
    running: Box<Running>,
    since: Instant,
}

/// Why a handle resumes no call.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotWaiting {
    #[error("`requestState` is not one that this server gave for this request")]
    Forged,
    #[error(
        "the call that `requestState` stands for no longer waits: it was answered, it took too long or the \
         server was restarted; call again without `requestState`"
    )]
    Gone,
}

/// Too many calls are parked.
#[derive(Debug, thiserror::Error)]
#[error("too many calls wait for an answer; try again later")]
pub(super) struct Full;

impl Parked {
    pub(super) fn new() -> Self {
        // Calls do not outlive the process, so the key need not either.
        let key = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes).concat();
        Self { seal: RequestStateCodec::new_unchecked(key), calls: Mutex::default() }
    }

    /// Parks a call. The handle is bound to `purpose` and can be used once.
    pub(super) fn park(&self, running: Box<Running>, purpose: &[u8]) -> Result<String, Full> {
        let id = Uuid::new_v4();
        let mut calls = self.calls();
        let since = Instant::now();
        calls.retain(|_, waiting| since.duration_since(waiting.since) < ANSWER_TIME_MAX);
        if calls.len() >= PARKED_MAX {
            return Err(Full);
        }
        calls.insert(id, Waiting { running, since });
        drop(calls);
        let options = SealOptions::new().associated_data(purpose).ttl(ANSWER_TIME_MAX);
        let handle = URL_SAFE_NO_PAD.encode(id.as_bytes());
        Ok(self.seal.seal_with(handle.as_bytes(), &options))
    }

    /// Removes the call that a handle stands for.
    pub(super) fn take(&self, handle: &str, purpose: &[u8]) -> Result<Box<Running>, NotWaiting> {
        use rmcp::model::RequestStateError as Error;
        let opened = self.seal.open_with(handle, purpose).map_err(|error| match error {
            Error::Expired => NotWaiting::Gone,
            _ => NotWaiting::Forged,
        })?;
        let id = URL_SAFE_NO_PAD.decode(opened).ok().and_then(|bytes| Uuid::from_slice(&bytes).ok());
        let id = id.ok_or(NotWaiting::Forged)?;
        self.calls().remove(&id).map(|waiting| waiting.running).ok_or(NotWaiting::Gone)
    }

    /// Cancels all parked calls.
    pub(super) fn clear(&self) {
        self.calls().clear();
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<Uuid, Waiting>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
