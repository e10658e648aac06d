//! The inside of a worker process: a VM, a pipe, one script at a time.

use super::confine::{confine, end_with_parent};
use super::frame::{Breach, Frame, Incoming, Kind, LOG_LINE_BYTES_MAX, Outgoing, PAYLOAD_BYTES_MAX};
use super::frame::{log_budget, log_cost};
use super::protocol::{Answer, Ending, Failure, FailureKind, Hello, Job, Question, VERSION};
use super::{QUESTIONS_MAX, QUESTIONS_OPEN_MAX};
use crate::vm::{Gone, LogLevel, Outside, Vm};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::process::ExitCode;
use std::rc::Rc;

/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

/// Runs the scripts that come in on the standard input until it ends. This is what the program does when
/// it is started as a worker; it must not have started any threads before.
pub fn worker_main() -> ExitCode {
    let pipe = Rc::new(Pipe::default());
    let served = begin(&pipe).and_then(|vm| vm.map_or(Ok(()), |vm| serve(&pipe, vm)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        // The parent reads this when it wants to know why a worker ended.
        Err(message) => {
            let _ = rustix::io::write(rustix::stdio::stderr(), message.as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Makes a VM ready and confines this process as the parent says. None when there is no parent.
fn begin(pipe: &Pipe) -> Result<Option<Vm>, String> {
    end_with_parent().map_err(|error| error.to_string())?;
    let Ok(hello) = pipe.receive(|frame| match frame.kind {
        Kind::Hello => frame.parse::<Hello>(),
        _ => Err(Breach::Order),
    }) else {
        return Ok(None);
    };
    let hello = hello.map_err(|breach| format!("the worker was greeted with {breach}"))?;
    if hello.version != VERSION {
        return Err(String::from("the program was replaced while it runs; start it again"));
    }
    read_time_zone();
    let vm = Vm::new().map_err(|error| error.to_string())?;
    confine(hello.address_space_bytes).map_err(|error| error.to_string())?;
    Ok(pipe.send(&Frame::new(Kind::Ready, VERSION)).is_ok().then_some(vm))
}

/// The C library reads the time zone's file once, at the first question for a local time. A confined
/// process cannot, and `os.date` would be in UTC.
fn read_time_zone() {
    if let Err(error) = mlua::Lua::new().load("return os.date('*t')").exec() {
        tracing::debug!("no time zone: {error}");
    }
}

/// Until there is no parent any more.
fn serve(pipe: &Rc<Pipe>, mut vm: Vm) -> Result<(), String> {
    loop {
        let received = pipe.receive(|frame| match frame.kind {
            Kind::Run => {
                let job: Job = serde_json::from_slice(frame.json).map_err(|_| Breach::Json)?;
                Ok(Some((job, frame.bytes.to_vec())))
            }
            // To questions of a run that ended without waiting for them.
            Kind::Answer | Kind::Refusal => Ok(None),
            _ => Err(Breach::Order),
        });
        let (job, source) = match received {
            Ok(Ok(Some(run))) => run,
            Ok(Ok(None)) => continue,
            Ok(Err(breach)) => return Err(breach.to_string()),
            Err(Gone) => return Ok(()),
        };
        pipe.begin_run(job.bounds.log_bytes);
        let outside: Rc<dyn Outside> = Rc::clone(pipe) as Rc<dyn Outside>;
        let ending = vm.run(&job, &source, outside);
        if pipe.send_ending(&ending).is_err() {
            return Ok(());
        }
        // The next one is made ready while nobody waits for it.
        if vm.is_worn() {
            vm = Vm::new().map_err(|error| error.to_string())?;
        } else {
            vm.tidy();
        }
    }
}

/// The pipe to the parent. A worker has one thread, which reads and writes when it must wait anyway.
#[derive(Default)]
struct Pipe {
    incoming: RefCell<Incoming>,
    outgoing: RefCell<Outgoing>,
    /// The number of this run's last question. An answer to a former run's comes before this run does.
    asked: Cell<u32>,
    /// How many of this run's questions the parent has, those that wait for room there, and answers
    /// that need no parent.
    open: Cell<usize>,
    held_back: RefCell<VecDeque<(u32, Question)>>,
    refused: RefCell<VecDeque<(u32, Answer)>>,
    /// What this run may still log.
    log_left: Cell<usize>,
}

impl Pipe {
    fn begin_run(&self, log_bytes: usize) {
        self.asked.set(0);
        self.open.set(0);
        self.held_back.take();
        self.refused.take();
        self.log_left.set(log_budget(log_bytes));
    }

    fn send(&self, frame: &Frame<'_>) -> Result<(), Gone> {
        let mut outgoing = self.outgoing.try_borrow_mut().map_err(|_| Gone)?;
        outgoing.push(frame).map_err(|_| Gone)?;
        while !outgoing.pending().is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), outgoing.pending()) {
                Ok(length) => outgoing.wrote(length),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    /// Waits for a frame and takes of it what is wanted.
    fn receive<T>(&self, take: impl FnOnce(Frame<'_>) -> T) -> Result<T, Gone> {
        let mut incoming = self.incoming.try_borrow_mut().map_err(|_| Gone)?;
        loop {
            if let Some((frame, length)) = incoming.frame().map_err(|_| Gone)? {
                let taken = take(frame);
                incoming.take(length);
                return Ok(taken);
            }
            let buffer = incoming.room(READ_BYTES);
            match rustix::io::read(rustix::stdio::stdin(), rustix::buffer::spare_capacity(buffer)) {
                Ok(0) => return Err(Gone),
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    fn send_ending(&self, ending: &Ending) -> Result<(), Gone> {
        let failure = match ending {
            Ending::Value(json) if json.len() <= PAYLOAD_BYTES_MAX => {
                return self.send(&Frame { json, ..Frame::new(Kind::Done, 0) });
            }
            Ending::Value(_) => &Failure {
                kind: FailureKind::Result,
                message: String::from("the result is too large"),
                code: None,
            },
            Ending::Failed(failure) => failure,
        };
        let json = serde_json::to_vec(failure).map_err(|_| Gone)?;
        self.send(&Frame { json: &json, ..Frame::new(Kind::Failed, 0) })
    }
}

impl Pipe {
    fn send_question(&self, number: u32, question: &Question) -> Result<(), Gone> {
        self.open.set(self.open.get() + 1);
        self.send(&Frame {
            name: &question.about,
            json: &question.arguments,
            bytes: &question.bytes,
            ..Frame::new(Kind::Question, number)
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
        let answered = self.receive(|frame| {
            let answer = match frame.kind {
                Kind::Answer => Answer::Value { json: frame.json.to_vec(), bytes: frame.bytes.to_vec() },
                Kind::Refusal => Answer::Failed {
                    code: frame.name.to_owned(),
                    message: String::from_utf8_lossy(frame.bytes).into_owned(),
                    data: frame.json.to_vec(),
                },
                _ => return Err(Gone),
            };
            Ok((frame.number, answer))
        })??;
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
        self.send(&Frame { bytes: message.as_bytes(), ..Frame::new(Kind::Log, level as u32) })
    }
}
