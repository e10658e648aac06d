//! Tests of the VM, with a fake channel in place of the parent.

mod apis;
mod basics;
mod entries;
mod hostile;
mod isolation;
mod language;
mod paginate;
mod parallel;
mod promises;

use crate::engine::protocol::{Bounds, HostRequest, HostResponse, Job, JobFailure, JobOutcome, ScriptEntry};
use crate::host::HOST_APIS;
use crate::vm::{ChannelClosed, HostChannel, LogLevel, Vm};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

type Responder = Box<dyn Fn(&str, &Value, &[u8]) -> HostResponse>;

/// A fake channel that responds by a function, optionally to the last request first.
pub(super) struct FakeChannel {
    reply: Responder,
    last_first: bool,
    next: Cell<u32>,
    open: RefCell<VecDeque<(u32, HostResponse)>>,
    open_max: Cell<usize>,
    requests: RefCell<Vec<(String, Value, Vec<u8>)>>,
    log: RefCell<Vec<(LogLevel, String)>>,
}

impl FakeChannel {
    pub(super) fn new(reply: impl Fn(&str, &Value, &[u8]) -> HostResponse + 'static) -> Rc<Self> {
        Self::with_order(reply, false)
    }

    pub(super) fn with_order(
        reply: impl Fn(&str, &Value, &[u8]) -> HostResponse + 'static,
        last_first: bool,
    ) -> Rc<Self> {
        Rc::new(Self {
            reply: Box::new(reply),
            last_first,
            next: Cell::new(0),
            open: RefCell::default(),
            open_max: Cell::new(0),
            requests: RefCell::default(),
            log: RefCell::default(),
        })
    }

    pub(super) fn rejecting() -> Rc<Self> {
        Self::new(|method, _, _| failed("internal", &format!("nobody expected `{method}`")))
    }

    pub(super) fn requests(&self) -> Vec<(String, Value, Vec<u8>)> {
        self.requests.borrow().clone()
    }

    pub(super) fn log_lines(&self) -> Vec<(LogLevel, String)> {
        self.log.borrow().clone()
    }

    pub(super) fn open_max(&self) -> usize {
        self.open_max.get()
    }
}

impl HostChannel for FakeChannel {
    fn send_request(&self, request: HostRequest) -> Result<u32, ChannelClosed> {
        let id = self.next.get() + 1;
        self.next.set(id);
        let arguments = serde_json::from_slice(&request.arguments).expect("arguments are JSON");
        let response = (self.reply)(&request.method, &arguments, &request.bytes);
        self.requests.borrow_mut().push((request.method, arguments, request.bytes));
        let mut open = self.open.borrow_mut();
        open.push_back((id, response));
        self.open_max.set(self.open_max.get().max(open.len()));
        Ok(id)
    }

    fn next_response(&self) -> Result<(u32, HostResponse), ChannelClosed> {
        let mut open = self.open.borrow_mut();
        if self.last_first { open.pop_back() } else { open.pop_front() }.ok_or(ChannelClosed)
    }

    fn log(&self, level: LogLevel, message: &str) -> Result<(), ChannelClosed> {
        self.log.borrow_mut().push((level, message.to_owned()));
        Ok(())
    }
}

pub(super) fn value(json: Value) -> HostResponse {
    HostResponse::Value { json: json.to_string().into_bytes(), bytes: Vec::new() }
}

pub(super) fn failed(code: &str, message: &str) -> HostResponse {
    HostResponse::Failed { code: code.to_owned(), message: message.to_owned(), data: Vec::new() }
}

pub(super) fn job(entry: ScriptEntry, arguments: &[Value]) -> Job {
    let raw = |value: &Value| RawValue::from_string(value.to_string()).expect("JSON");
    Job {
        chunk_name: "tools/x.lua".to_owned(),
        entry,
        arguments: arguments.iter().map(raw).collect(),
        config: Some(raw(&json!({ "url": "https://example.com" }))),
        apis: HOST_APIS
            .iter()
            .filter(|api| api.entries.contains(&entry))
            .map(|api| api.name.to_owned())
            .collect(),
        bounds: Bounds {
            time_ms: 60_000,
            memory_bytes: 16 * 1024 * 1024,
            result_bytes: 1024 * 1024,
            log_bytes: 4096,
        },
    }
}

/// Runs a chunk in a new VM.
pub(super) fn chunk(source: &str) -> Result<Value, JobFailure> {
    chunk_with(source, FakeChannel::rejecting())
}

pub(super) fn chunk_with(source: &str, channel: Rc<FakeChannel>) -> Result<Value, JobFailure> {
    run_in(&mut Vm::new().expect("a VM"), &job(ScriptEntry::Chunk, &[]), source, channel)
}

pub(super) fn run_in(
    vm: &mut Vm,
    job: &Job,
    source: &str,
    channel: Rc<FakeChannel>,
) -> Result<Value, JobFailure> {
    match vm.run(job, source.as_bytes(), channel) {
        JobOutcome::Value(json) => Ok(serde_json::from_slice(&json).expect("a result is JSON")),
        JobOutcome::Failed(failure) => Err(failure),
    }
}

pub(super) fn message(source: &str) -> String {
    chunk(source).expect_err("the script fails").message
}
