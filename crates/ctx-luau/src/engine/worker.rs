//! The worker process: a VM and a pipe, one script at a time.

use super::protocol::{Answer, Ending, Failure, FailureKind, Job, Question};
use super::{QUESTIONS_MAX, QUESTIONS_OPEN_MAX};
use crate::vm::{Gone, LogLevel, Outside, Vm};
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
    ctx_worker::worker_main(prepare, |parent, vm| serve(&Rc::new(Pipe::new(parent)), vm))
}

/// Loads the time zone's file, which the C library does once, at the first use of a local time. A sandboxed
/// process could not read it, and `os.date` would be in UTC.
fn read_time_zone() {
    if let Err(error) = mlua::Lua::new().load("return os.date('*t')").exec() {
        tracing::debug!("no time zone: {error}");
    }
}

/// Runs scripts until the parent closes the pipe.
fn serve(pipe: &Rc<Pipe>, mut vm: Vm) -> Result<(), String> {
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
        let outside: Rc<dyn Outside> = Rc::clone(pipe) as Rc<dyn Outside>;
        let ending = vm.run(&job, &source, outside);
        if pipe.send_ending(&ending).is_err() {
            return Ok(());
        }
        // Prepares the next run while nobody waits for it.
        if vm.is_worn() {
            vm = Vm::new().map_err(|error| error.to_string())?;
        } else {
            vm.tidy();
        }
    }
}

/// The pipe to the parent, and the host requests of the current run.
struct Pipe {
    parent: ParentPipe,
    /// The number of this run's last host request. Responses for an earlier run arrive before the job of this
    /// run.
    asked: Cell<u32>,
    /// Number of requests that the parent is handling. `held_back` has those that wait because it is at its
    /// maximum, and `refused` the errors of those that are never sent.
    open: Cell<usize>,
    held_back: RefCell<VecDeque<(u32, Question)>>,
    refused: RefCell<VecDeque<(u32, Answer)>>,
    /// The rest of this run's log budget.
    log_left: Cell<usize>,
}

impl Pipe {
    fn new(parent: ParentPipe) -> Self {
        let (asked, open, held_back, refused, log_left) = Default::default();
        Self { parent, asked, open, held_back, refused, log_left }
    }

    fn begin_run(&self, log_bytes: usize) {
        self.asked.set(0);
        self.open.set(0);
        self.held_back.take();
        self.refused.take();
        self.log_left.set(log_budget(log_bytes));
    }

    fn send(&self, frame: &Frame<'_>) -> Result<(), Gone> {
        self.parent.send(frame).map_err(|ParentGone| Gone)
    }

    fn send_ending(&self, ending: &Ending) -> Result<(), Gone> {
        let failure = match ending {
            Ending::Value(json) if json.len() <= PAYLOAD_BYTES_MAX => {
                return self.send(&Frame { json, ..Frame::new(FrameKind::Done, 0) });
            }
            Ending::Value(_) => &Failure {
                kind: FailureKind::Result,
                message: String::from("the result is too large"),
                code: None,
            },
            Ending::Failed(failure) => failure,
        };
        let json = serde_json::to_vec(failure).map_err(|_| Gone)?;
        self.send(&Frame { json: &json, ..Frame::new(FrameKind::Failed, 0) })
    }
}

impl Pipe {
    fn send_question(&self, number: u32, question: &Question) -> Result<(), Gone> {
        self.open.set(self.open.get() + 1);
        self.send(&Frame {
            name: &question.about,
            json: &question.arguments,
            bytes: &question.bytes,
            ..Frame::new(FrameKind::Question, number)
        })
    }
}

impl Outside for Pipe {
    fn ask(&self, question: Question) -> Result<u32, Gone> {
        let number = self.asked.get().saturating_add(1);
        self.asked.set(number);
        let size = question.about.len() + question.arguments.len() + question.bytes.len();
        let refused = if size > PAYLOAD_BYTES_MAX {
            Some(("too_large", "a script cannot hand out so much at once"))
        } else if number > QUESTIONS_MAX {
            Some(("limit", "the script asked for too many things"))
        } else {
            None
        };
        if let Some((code, message)) = refused {
            let (code, message) = (code.to_owned(), message.to_owned());
            let answer = Answer::Failed { code, message, data: Vec::new() };
            self.refused.borrow_mut().push_back((number, answer));
        } else if self.open.get() >= QUESTIONS_OPEN_MAX {
            self.held_back.borrow_mut().push_back((number, question));
        } else {
            self.send_question(number, &question)?;
        }
        Ok(number)
    }

    fn next_answer(&self) -> Result<(u32, Answer), Gone> {
        if let Some(refused) = self.refused.borrow_mut().pop_front() {
            return Ok(refused);
        }
        let received = self.parent.receive(|frame| {
            let answer = match frame.kind {
                FrameKind::Answer => Answer::Value { json: frame.json.to_vec(), bytes: frame.bytes.to_vec() },
                FrameKind::Refusal => Answer::Failed {
                    code: frame.name.to_owned(),
                    message: String::from_utf8_lossy(frame.bytes).into_owned(),
                    data: frame.json.to_vec(),
                },
                _ => return Err(Gone),
            };
            Ok((frame.number, answer))
        });
        let answered = received.map_err(|ParentGone| Gone)??;
        self.open.set(self.open.get().saturating_sub(1));
        let next = self.held_back.borrow_mut().pop_front();
        if let Some((number, question)) = next {
            self.send_question(number, &question)?;
        }
        Ok(answered)
    }

    fn log(&self, level: LogLevel, message: &str) -> Result<(), Gone> {
        let message = message.get(..message.floor_char_boundary(LOG_LINE_BYTES_MAX)).unwrap_or_default();
        let Some(left) = self.log_left.get().checked_sub(log_cost(message.as_bytes())) else {
            self.log_left.set(0);
            return Ok(());
        };
        self.log_left.set(left);
        self.send(&Frame { bytes: message.as_bytes(), ..Frame::new(FrameKind::Log, level as u32) })
    }
}
