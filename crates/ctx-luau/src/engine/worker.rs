//! The worker process: a VM and a pipe, one script at a time.

use super::protocol::{HostRequest, HostResponse, Job, JobFailure, JobFailureKind, JobOutcome};
use super::{OPEN_REQUESTS_MAX, REQUESTS_MAX};
use crate::vm::{ChannelClosed, HostChannel, LogLevel, Vm};
use ctx_worker::{Frame, FrameKind, LOG_LINE_BYTES_MAX, PAYLOAD_BYTES_MAX, ParentGone, ParentPipe};
use ctx_worker::{ProtocolViolation, log_budget, log_cost};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::process::ExitCode;
use std::rc::Rc;

/// The main function of a worker process: runs the scripts that arrive on standard input until it ends. The
/// process must not have started any threads before.
pub fn worker_main() -> ExitCode {
    let prepare = || {
        read_time_zone();
        Vm::new().map_err(|error| error.to_string())
    };
    ctx_worker::worker_main(prepare, |parent, vm| serve(&Rc::new(WorkerPipe::new(parent)), vm))
}

/// Loads the time zone's file, which the C library does once, at the first use of a local time. A sandboxed
/// process could not read it, and `os.date` would be in UTC.
fn read_time_zone() {
    if let Err(error) = mlua::Lua::new().load("return os.date('*t')").exec() {
        tracing::debug!("cannot load the time zone: {error}");
    }
}

/// Runs scripts until the parent closes the pipe.
fn serve(pipe: &Rc<WorkerPipe>, mut vm: Vm) -> Result<(), String> {
    loop {
        let received = pipe.parent.receive(|frame| match frame.kind {
            FrameKind::Job => {
                let job: Job = serde_json::from_slice(frame.json).map_err(|_| ProtocolViolation::Json)?;
                Ok(Some((job, frame.bytes.to_vec())))
            }
            // Responses for an earlier run, which ended without waiting for them.
            FrameKind::Answer | FrameKind::Refusal => Ok(None),
            _ => Err(ProtocolViolation::Order),
        });
        let (job, source) = match received {
            Ok(Ok(Some(run))) => run,
            Ok(Ok(None)) => continue,
            Ok(Err(violation)) => return Err(violation.to_string()),
            Err(ParentGone) => return Ok(()),
        };
        pipe.begin_run(job.bounds.log_bytes);
        let channel: Rc<dyn HostChannel> = Rc::clone(pipe) as Rc<dyn HostChannel>;
        let outcome = vm.run(&job, &source, channel);
        if pipe.send_outcome(&outcome).is_err() {
            return Ok(());
        }
        // Prepares the next run while nobody waits for it.
        if vm.needs_replacement() {
            vm = Vm::new().map_err(|error| error.to_string())?;
        } else {
            vm.clean_up();
        }
    }
}

/// The pipe to the parent, and the host requests of the current run.
struct WorkerPipe {
    parent: ParentPipe,
    /// The number of this run's last host request. Responses for an earlier run arrive before the job of this
    /// run.
    last_request: Cell<u32>,
    /// Number of requests that the parent is handling. `queued` has those that wait because it is at its
    /// maximum, and `rejected` the errors of those that are never sent.
    open_requests: Cell<usize>,
    queued: RefCell<VecDeque<(u32, HostRequest)>>,
    rejected: RefCell<VecDeque<(u32, HostResponse)>>,
    /// The rest of this run's log budget.
    log_left: Cell<usize>,
}

impl WorkerPipe {
    fn new(parent: ParentPipe) -> Self {
        let (last_request, open_requests, queued, rejected, log_left) = Default::default();
        Self { parent, last_request, open_requests, queued, rejected, log_left }
    }

    fn begin_run(&self, log_bytes: usize) {
        self.last_request.set(0);
        self.open_requests.set(0);
        self.queued.take();
        self.rejected.take();
        self.log_left.set(log_budget(log_bytes));
    }

    fn send(&self, frame: &Frame<'_>) -> Result<(), ChannelClosed> {
        self.parent.send(frame).map_err(|ParentGone| ChannelClosed)
    }

    fn send_outcome(&self, outcome: &JobOutcome) -> Result<(), ChannelClosed> {
        let failure = match outcome {
            JobOutcome::Value(json) if json.len() <= PAYLOAD_BYTES_MAX => {
                return self.send(&Frame { json, ..Frame::new(FrameKind::Done, 0) });
            }
            JobOutcome::Value(_) => &JobFailure {
                kind: JobFailureKind::Result,
                message: String::from("the result is too large"),
                code: None,
            },
            JobOutcome::Failed(failure) => failure,
        };
        let json = serde_json::to_vec(failure).map_err(|_| ChannelClosed)?;
        self.send(&Frame { json: &json, ..Frame::new(FrameKind::Failed, 0) })
    }
}

impl WorkerPipe {
    fn write_request(&self, number: u32, request: &HostRequest) -> Result<(), ChannelClosed> {
        self.open_requests.set(self.open_requests.get() + 1);
        self.send(&Frame {
            name: &request.method,
            json: &request.arguments,
            bytes: &request.bytes,
            ..Frame::new(FrameKind::Question, number)
        })
    }
}

impl HostChannel for WorkerPipe {
    fn send_request(&self, request: HostRequest) -> Result<u32, ChannelClosed> {
        let number = self.last_request.get().saturating_add(1);
        self.last_request.set(number);
        let size = request.method.len() + request.arguments.len() + request.bytes.len();
        let rejected = if size > PAYLOAD_BYTES_MAX {
            Some(("too_large", "the arguments of the call are too large"))
        } else if number > REQUESTS_MAX {
            Some(("limit", "the script made too many calls to host functions"))
        } else {
            None
        };
        if let Some((code, message)) = rejected {
            let (code, message) = (code.to_owned(), message.to_owned());
            let response = HostResponse::Failed { code, message, data: Vec::new() };
            self.rejected.borrow_mut().push_back((number, response));
        } else if self.open_requests.get() >= OPEN_REQUESTS_MAX {
            self.queued.borrow_mut().push_back((number, request));
        } else {
            self.write_request(number, &request)?;
        }
        Ok(number)
    }

    fn next_response(&self) -> Result<(u32, HostResponse), ChannelClosed> {
        if let Some(rejected) = self.rejected.borrow_mut().pop_front() {
            return Ok(rejected);
        }
        let received = self.parent.receive(|frame| {
            let response = match frame.kind {
                FrameKind::Answer => {
                    HostResponse::Value { json: frame.json.to_vec(), bytes: frame.bytes.to_vec() }
                }
                FrameKind::Refusal => HostResponse::Failed {
                    code: frame.name.to_owned(),
                    message: String::from_utf8_lossy(frame.bytes).into_owned(),
                    data: frame.json.to_vec(),
                },
                _ => return Err(ChannelClosed),
            };
            Ok((frame.number, response))
        });
        let arrived = received.map_err(|ParentGone| ChannelClosed)??;
        self.open_requests.set(self.open_requests.get().saturating_sub(1));
        let next = self.queued.borrow_mut().pop_front();
        if let Some((number, request)) = next {
            self.write_request(number, &request)?;
        }
        Ok(arrived)
    }

    fn log(&self, level: LogLevel, message: &str) -> Result<(), ChannelClosed> {
        let message = message.get(..message.floor_char_boundary(LOG_LINE_BYTES_MAX)).unwrap_or_default();
        let Some(budget) = self.log_left.get().checked_sub(log_cost(message.as_bytes())) else {
            self.log_left.set(0);
            return Ok(());
        };
        self.log_left.set(budget);
        self.send(&Frame { bytes: message.as_bytes(), ..Frame::new(FrameKind::Log, level as u32) })
    }
}
