//! Sandboxed worker processes, which can only compute and ask their parent.
//!
//! A worker is this program, started again with an argument, an empty environment and a pipe. Before its first job it
//! gives up files, network, processes and memory beyond its limit ([`worker_main`]). The parent keeps a [`Pool`] of
//! workers and does not trust what they send: every frame is bounded. The callers define what a job is.

mod confine;
mod frame;
mod greeting;
mod pool;
mod process;
mod request;
mod serve;
mod starter;

pub use frame::{
    Frame, FrameKind, IncomingFrames, LOG_LINE_BYTES_MAX, OutgoingFrames, PAYLOAD_BYTES_MAX,
    ProtocolViolation, VALUES_MAX, log_budget, log_cost,
};
pub use pool::{LeaseError, Pool, PoolSettings, PoolStats, WorkerLease};
pub use process::{READ_BYTES, StartError, WorkerExit, WorkerProcess};
pub use request::{JobRequest, JobRequestError};
pub use serve::{ParentGone, ParentPipe, serve_requests, worker_main};
pub use starter::WorkerProgram;
