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

use crate::engine::protocol::{Answer, Bounds, Ending, Entry, Failure, Job, Question};
use crate::host::HOST_APIS;
use crate::vm::{Gone, LogLevel, Outside, Vm};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

type Reply = Box<dyn Fn(&str, &Value, &[u8]) -> Answer>;

/// A fake channel that responds by a function, optionally to the last request first.
pub(super) struct Played {
    reply: Reply,
    last_first: bool,
    next: Cell<u32>,
    open: RefCell<VecDeque<(u32, Answer)>>,
    most_open: Cell<usize>,
    asked: RefCell<Vec<(String, Value, Vec<u8>)>>,
    logged: RefCell<Vec<(LogLevel, String)>>,
}

impl Played {
    pub(super) fn new(reply: impl Fn(&str, &Value, &[u8]) -> Answer + 'static) -> Rc<Self> {
        Self::with_order(reply, false)
    }

    pub(super) fn with_order(
        reply: impl Fn(&str, &Value, &[u8]) -> Answer + 'static,
        last_first: bool,
    ) -> Rc<Self> {
        Rc::new(Self {
            reply: Box::new(reply),
            last_first,
            next: Cell::new(0),
            open: RefCell::default(),
            most_open: Cell::new(0),
            asked: RefCell::default(),
            logged: RefCell::default(),
        })
    }

    pub(super) fn silent() -> Rc<Self> {
        Self::new(|about, _, _| failed("internal", &format!("nobody expected `{about}`")))
    }

    pub(super) fn asked(&self) -> Vec<(String, Value, Vec<u8>)> {
        self.asked.borrow().clone()
    }

    pub(super) fn logged(&self) -> Vec<(LogLevel, String)> {
        self.logged.borrow().clone()
    }

    pub(super) fn most_open(&self) -> usize {
        self.most_open.get()
    }
}

impl Outside for Played {
    fn ask(&self, question: Question) -> Result<u32, Gone> {
        let id = self.next.get() + 1;
        self.next.set(id);
        let arguments = serde_json::from_slice(&question.arguments).expect("arguments are JSON");
        let answer = (self.reply)(&question.about, &arguments, &question.bytes);
        self.asked.borrow_mut().push((question.about, arguments, question.bytes));
        let mut open = self.open.borrow_mut();
        open.push_back((id, answer));
        self.most_open.set(self.most_open.get().max(open.len()));
        Ok(id)
    }

    fn next_answer(&self) -> Result<(u32, Answer), Gone> {
        let mut open = self.open.borrow_mut();
        if self.last_first { open.pop_back() } else { open.pop_front() }.ok_or(Gone)
    }

    fn log(&self, level: LogLevel, message: &str) -> Result<(), Gone> {
        self.logged.borrow_mut().push((level, message.to_owned()));
        Ok(())
    }
}

pub(super) fn value(json: Value) -> Answer {
    Answer::Value { json: json.to_string().into_bytes(), bytes: Vec::new() }
}

pub(super) fn failed(code: &str, message: &str) -> Answer {
    Answer::Failed { code: code.to_owned(), message: message.to_owned(), data: Vec::new() }
}

pub(super) fn job(entry: Entry, arguments: &[Value]) -> Job {
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
pub(super) fn chunk(source: &str) -> Result<Value, Failure> {
    chunk_with(source, Played::silent())
}

pub(super) fn chunk_with(source: &str, outside: Rc<Played>) -> Result<Value, Failure> {
    run_in(&mut Vm::new().expect("a VM"), &job(Entry::Chunk, &[]), source, outside)
}

pub(super) fn run_in(vm: &mut Vm, job: &Job, source: &str, outside: Rc<Played>) -> Result<Value, Failure> {
    match vm.run(job, source.as_bytes(), outside) {
        Ending::Value(json) => Ok(serde_json::from_slice(&json).expect("a result is JSON")),
        Ending::Failed(failure) => Err(failure),
    }
}

pub(super) fn message(source: &str) -> String {
    chunk(source).expect_err("the script fails").message
}
