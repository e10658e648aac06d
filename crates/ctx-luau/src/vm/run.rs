//! What belongs to one run: its time, its questions, its log, its result.

use crate::engine::log_cost;
use crate::engine::protocol::{ABOUT_PERSON, Answer, Bounds, Question};
use crate::vm::{GlobalNames, Gone, LogLevel, Outside};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::c_void;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Bytes of one line of the log.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// What a host function answers while a script is only looked at.
const LOADING: &str = "not available while the script is loaded: call it inside the script's function";
/// What a host function answers when nobody is there to ask.
const NOBODY: &str = "nobody answers any more";

/// Looks at the clock are this many interrupts apart: a look takes as long as a loop's round. The
/// longest thing without an interrupt takes milliseconds, so a few of them do not matter.
const INTERRUPTS_A_LOOK: u32 = 8;

/// Holds the current run; the functions of a VM are made once and look here.
#[derive(Default)]
pub(crate) struct Slot {
    run: RefCell<Option<Rc<Run>>>,
    interrupts: Cell<u32>,
}

impl Slot {
    pub(crate) fn fill(&self, run: Rc<Run>) {
        *self.run.borrow_mut() = Some(run);
    }

    pub(crate) fn clear(&self) {
        *self.run.borrow_mut() = None;
    }

    pub(crate) fn run(&self) -> Option<Rc<Run>> {
        self.run.borrow().clone()
    }

    /// Whether the current run must end now; asked at every interrupt. Now and then it looks, and
    /// calls the function so that the VM can look, too.
    pub(crate) fn is_over(&self, look: impl FnOnce()) -> bool {
        let interrupts = self.interrupts.get().wrapping_add(1);
        self.interrupts.set(interrupts);
        let run = self.run.borrow();
        let Some(run) = run.as_ref() else { return false };
        if !interrupts.is_multiple_of(INTERRUPTS_A_LOOK) {
            return run.was_over();
        }
        look();
        run.is_over()
    }
}

/// Values that one run numbers for `tostring`; all further ones share the next number.
const IDENTITIES_MAX: usize = 100_000;

/// One run.
pub(crate) struct Run {
    pub(crate) bounds: Bounds,
    pub(crate) started: Instant,
    outside: Rc<dyn Outside>,
    deadline: Cell<Instant>,
    time_over: Cell<bool>,
    /// Whether the script is only looked at.
    loading: Cell<bool>,
    arrived: RefCell<HashMap<u32, Answer>>,
    /// Calls whose promises have not been awaited, by question: the function of each.
    promised: RefCell<BTreeMap<u32, String>>,
    /// Questions whose promises have been awaited.
    awaited: RefCell<HashSet<u32>>,
    /// Whether a value may stand where the script expects a promise.
    has_given_values: Cell<bool>,
    /// Judges undefined globals; none where reading one gives nil.
    names: Option<GlobalNames>,
    /// Whether the script's code runs. Before that Luau looks up its imports (`sdk.a.b`) among the globals that all
    /// scripts share, and takes nil for an answer.
    executing: Cell<bool>,
    /// Questions that a person answers.
    people: RefCell<HashSet<u32>>,
    /// Numbers that `tostring` shows instead of addresses, by address.
    identities: RefCell<HashMap<*const c_void, usize>>,
    log_left: Cell<usize>,
    log_full: Cell<bool>,
    /// What `result(v)` was given, as JSON.
    pub(crate) result: RefCell<Option<Vec<u8>>>,
}

/// A call that a script started, never awaited, and that failed.
#[derive(Debug)]
pub(crate) struct LostCall {
    pub(crate) message: String,
    /// The code of the failed question; none where nobody answered it.
    pub(crate) code: Option<String>,
}

impl Run {
    pub(crate) fn new(
        bounds: Bounds,
        outside: Rc<dyn Outside>,
        loading: bool,
        names: Option<GlobalNames>,
    ) -> Self {
        let started = Instant::now();
        Self {
            bounds,
            started,
            outside,
            deadline: Cell::new(started + Duration::from_millis(bounds.time_ms)),
            time_over: Cell::new(false),
            loading: Cell::new(loading),
            arrived: RefCell::default(),
            promised: RefCell::default(),
            awaited: RefCell::default(),
            has_given_values: Cell::new(false),
            names,
            executing: Cell::new(false),
            people: RefCell::default(),
            identities: RefCell::default(),
            log_left: Cell::new(bounds.log_bytes),
            log_full: Cell::new(false),
            result: RefCell::default(),
        }
    }

    /// Whether the run must end now. Once true it stays true, so that nothing can wait it out.
    pub(crate) fn is_over(&self) -> bool {
        if !self.time_over.get() && Instant::now() >= self.deadline.get() {
            self.time_over.set(true);
        }
        self.time_over.get()
    }

    /// Whether the run was told that its time is over.
    pub(crate) fn was_over(&self) -> bool {
        self.time_over.get()
    }

    /// Asks; the answer is waited for with `wait_any`, and taken with `take`.
    pub(crate) fn ask(&self, question: Question) -> Result<u32, String> {
        if self.loading.get() {
            return Err(LOADING.to_owned());
        }
        let about_person = question.about == ABOUT_PERSON;
        let id = self.outside.ask(question).map_err(|gone| self.end(gone))?;
        if about_person {
            self.people.borrow_mut().insert(id);
        }
        Ok(id)
    }

    /// Waits until one of these has its answer.
    pub(crate) fn wait_any(&self, ids: &[u32]) -> Result<(), String> {
        while !ids.iter().any(|id| self.has_arrived(*id)) {
            let asked = Instant::now();
            let person = !self.people.borrow().is_empty();
            let (id, answer) = self.outside.next_answer().map_err(|gone| self.end(gone))?;
            if person {
                self.deadline.set(self.deadline.get() + asked.elapsed());
            }
            self.people.borrow_mut().remove(&id);
            self.arrived.borrow_mut().insert(id, answer);
        }
        Ok(())
    }

    /// Whether the answer is there, or was taken by another branch of the script that awaits the same promise.
    pub(crate) fn has_arrived(&self, id: u32) -> bool {
        self.arrived.borrow().contains_key(&id) || self.awaited.borrow().contains(&id)
    }

    /// Notes that a question was asked for a promise.
    pub(crate) fn promise(&self, id: u32, function: String) {
        self.promised.borrow_mut().insert(id, function);
    }

    /// Waits for every call that was started and never awaited; gives those that failed.
    pub(crate) fn await_promises(&self) -> Result<Vec<LostCall>, LostCall> {
        let promised = self.promised.borrow().clone();
        let mut errors = Vec::new();
        for (id, function) in promised {
            self.wait_any(&[id]).map_err(|message| LostCall { message, code: None })?;
            // Values stay: the result may hold the promise.
            let has_failed = matches!(self.arrived.borrow().get(&id), Some(Answer::Failed { .. }));
            if has_failed && let Some(Answer::Failed { code, message, .. }) = self.take(id) {
                let message = format!("{function} was called and not awaited, and failed: {message}");
                errors.push(LostCall { message, code: Some(code) });
            }
        }
        Ok(errors)
    }

    /// Notes that a call without `sdk.` has given its value at once.
    pub(crate) fn note_value(&self) {
        self.has_given_values.set(true);
    }

    /// Whether a call without `sdk.` has given its value at once.
    pub(crate) fn has_given_values(&self) -> bool {
        self.has_given_values.get()
    }

    /// Notes that the script is loaded: from now on its code reads globals.
    pub(crate) fn begin_executing(&self) {
        self.executing.set(true);
    }

    /// The error of reading an undefined global, where that is one.
    pub(crate) fn undefined(&self, name: &str) -> Option<String> {
        self.names.as_ref().filter(|_| self.executing.get())?.error_of(name)
    }

    /// Takes an answer that has arrived.
    pub(crate) fn take(&self, id: u32) -> Option<Answer> {
        let answer = self.arrived.borrow_mut().remove(&id)?;
        if self.promised.borrow_mut().remove(&id).is_some() {
            self.awaited.borrow_mut().insert(id);
        }
        Some(answer)
    }

    /// The number that `tostring` shows for the value at this address: no address leaves the VM.
    pub(crate) fn identity(&self, at: *const c_void) -> usize {
        let mut identities = self.identities.borrow_mut();
        let next = identities.len() + 1;
        if next > IDENTITIES_MAX {
            return identities.get(&at).copied().unwrap_or(next);
        }
        *identities.entry(at).or_insert(next)
    }

    /// Logs a line, within the run's bound.
    pub(crate) fn log(&self, level: LogLevel, line: &[u8]) {
        if self.log_full.get() {
            return;
        }
        let left = self.log_left.get();
        let cost = log_cost(line);
        if cost > left {
            self.log_full.set(true);
            let rest = format!("the log is full ({} bytes): the rest is dropped", self.bounds.log_bytes);
            self.tell(LogLevel::Warn, &rest);
            return;
        }
        self.log_left.set(left - cost);
        let shown = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]);
        if line.len() > LINE_BYTES_MAX {
            self.tell(level, &format!("{shown}… (a line of {} bytes)", line.len()));
        } else {
            self.tell(level, &shown);
        }
    }

    fn tell(&self, level: LogLevel, line: &str) {
        if let Err(gone) = self.outside.log(level, line) {
            self.end(gone);
        }
    }

    /// Without an outside a script has nobody to work for.
    fn end(&self, _: Gone) -> String {
        self.time_over.set(true);
        NOBODY.to_owned()
    }
}
