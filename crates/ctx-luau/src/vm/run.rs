//! [`RunState`]: the deadline, host requests, log and result of one run.

use crate::engine::log_cost;
use crate::engine::protocol::{ASK_METHOD, Bounds, HostRequest, HostResponse};
use crate::vm::{ChannelClosed, GlobalNames, HostChannel, LogLevel};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::c_void;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum size of one log line.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Error of a host function while a script is only loaded to read its definition.
const NOT_WHILE_LOADING: &str =
    "not available while the script is loaded: call it inside the script's function";
/// Error of a host function when the parent has exited.
const PARENT_GONE: &str = "the parent process has exited";

/// Number of interrupts for each check of the clock, because a check takes as long as an iteration of a loop.
/// Interrupts are milliseconds apart at most, so checking fewer of them does not matter.
const INTERRUPTS_PER_CHECK: u32 = 8;

/// Holds the current run. The native functions of a VM are created once, and find the run here.
#[derive(Default)]
pub(crate) struct CurrentRun {
    run: RefCell<Option<Rc<RunState>>>,
    interrupts: Cell<u32>,
}

impl CurrentRun {
    pub(crate) fn set(&self, run: Rc<RunState>) {
        *self.run.borrow_mut() = Some(run);
    }

    pub(crate) fn clear(&self) {
        *self.run.borrow_mut() = None;
    }

    pub(crate) fn get(&self) -> Option<Rc<RunState>> {
        self.run.borrow().clone()
    }

    /// Whether the current run must end now. Called at every interrupt; every few times it looks at the
    /// clock, and calls `on_check` for the VM's own checks.
    pub(crate) fn must_end(&self, on_check: impl FnOnce()) -> bool {
        let interrupts = self.interrupts.get().wrapping_add(1);
        self.interrupts.set(interrupts);
        let run = self.run.borrow();
        let Some(run) = run.as_ref() else { return false };
        if !interrupts.is_multiple_of(INTERRUPTS_PER_CHECK) {
            return run.is_timed_out();
        }
        on_check();
        run.check_deadline()
    }
}

/// Values that one run numbers for `tostring`; all further ones share the next number.
const IDENTITIES_MAX: usize = 100_000;

/// The state of one run.
pub(crate) struct RunState {
    pub(crate) bounds: Bounds,
    pub(crate) started: Instant,
    channel: Rc<dyn HostChannel>,
    deadline: Cell<Instant>,
    timed_out: Cell<bool>,
    /// Whether the script is only loaded to read its definition.
    loading: Cell<bool>,
    responses: RefCell<HashMap<u32, HostResponse>>,
    /// For each host request whose promise was not awaited: the function that was called.
    unawaited: RefCell<BTreeMap<u32, String>>,
    /// Host requests whose promises were awaited.
    awaited: RefCell<HashSet<u32>>,
    /// Whether a value may stand where the script expects a promise.
    has_returned_values: Cell<bool>,
    /// Detects undefined globals; `None` where reading one gives nil.
    global_names: Option<GlobalNames>,
    /// Whether the script's code runs. Before that, Luau looks up its imports (`sdk.a.b`) in the globals that
    /// all scripts share; those that are missing there must read as nil.
    executing: Cell<bool>,
    /// Open host requests that wait for a person.
    person_requests: RefCell<HashSet<u32>>,
    /// Numbers that `tostring` shows instead of addresses, by address.
    identities: RefCell<HashMap<*const c_void, usize>>,
    log_left: Cell<usize>,
    log_full: Cell<bool>,
    /// The value given to `result(v)`, as JSON.
    pub(crate) result: RefCell<Option<Vec<u8>>>,
}

/// A failed call that the script started and never awaited.
#[derive(Debug)]
pub(crate) struct UnawaitedError {
    pub(crate) message: String,
    /// The code of the failed host request; `None` if the parent has exited.
    pub(crate) code: Option<String>,
}

impl RunState {
    pub(crate) fn new(
        bounds: Bounds,
        channel: Rc<dyn HostChannel>,
        loading: bool,
        global_names: Option<GlobalNames>,
    ) -> Self {
        let started = Instant::now();
        Self {
            bounds,
            started,
            channel,
            deadline: Cell::new(started + Duration::from_millis(bounds.time_ms)),
            timed_out: Cell::new(false),
            loading: Cell::new(loading),
            responses: RefCell::default(),
            unawaited: RefCell::default(),
            awaited: RefCell::default(),
            has_returned_values: Cell::new(false),
            global_names,
            executing: Cell::new(false),
            person_requests: RefCell::default(),
            identities: RefCell::default(),
            log_left: Cell::new(bounds.log_bytes),
            log_full: Cell::new(false),
            result: RefCell::default(),
        }
    }

    /// Whether the deadline has passed. Once true it stays true, even if the deadline is moved.
    pub(crate) fn check_deadline(&self) -> bool {
        if !self.timed_out.get() && Instant::now() >= self.deadline.get() {
            self.timed_out.set(true);
        }
        self.timed_out.get()
    }

    /// Whether the run was found to be over, without another check of the clock.
    pub(crate) fn is_timed_out(&self) -> bool {
        self.timed_out.get()
    }

    /// Sends a host request. Wait for its response with `wait_any`, then get it with `take`.
    pub(crate) fn send_request(&self, request: HostRequest) -> Result<u32, String> {
        if self.loading.get() {
            return Err(NOT_WHILE_LOADING.to_owned());
        }
        let waits_for_person = request.method == ASK_METHOD;
        let id = self.channel.send_request(request).map_err(|closed| self.end_without_parent(closed))?;
        if waits_for_person {
            self.person_requests.borrow_mut().insert(id);
        }
        Ok(id)
    }

    /// Waits until one of these requests has its response.
    pub(crate) fn wait_any(&self, ids: &[u32]) -> Result<(), String> {
        while !ids.iter().any(|id| self.has_arrived(*id)) {
            let wait_began = Instant::now();
            let waits_for_person = !self.person_requests.borrow().is_empty();
            let (id, response) =
                self.channel.next_response().map_err(|closed| self.end_without_parent(closed))?;
            if waits_for_person {
                self.deadline.set(self.deadline.get() + wait_began.elapsed());
            }
            self.person_requests.borrow_mut().remove(&id);
            self.responses.borrow_mut().insert(id, response);
        }
        Ok(())
    }

    /// Whether the response has arrived, or was taken by another task of `parallel` that awaits the same
    /// promise.
    pub(crate) fn has_arrived(&self, id: u32) -> bool {
        self.responses.borrow().contains_key(&id) || self.awaited.borrow().contains(&id)
    }

    /// Records that a host request belongs to a promise.
    pub(crate) fn note_promise(&self, id: u32, function: String) {
        self.unawaited.borrow_mut().insert(id, function);
    }

    /// Waits for every call that was started and never awaited; returns those that failed.
    pub(crate) fn await_promises(&self) -> Result<Vec<UnawaitedError>, UnawaitedError> {
        let unawaited = self.unawaited.borrow().clone();
        let mut errors = Vec::new();
        for (id, function) in unawaited {
            self.wait_any(&[id]).map_err(|message| UnawaitedError { message, code: None })?;
            // Values are not taken: the result may contain the promise.
            let has_failed = matches!(self.responses.borrow().get(&id), Some(HostResponse::Failed { .. }));
            if has_failed && let Some(HostResponse::Failed { code, message, .. }) = self.take_response(id) {
                let message = format!("{function} was called and not awaited, and failed: {message}");
                errors.push(UnawaitedError { message, code: Some(code) });
            }
        }
        Ok(errors)
    }

    /// Records that a call without `sdk.` returned a value instead of a promise.
    pub(crate) fn note_returned_value(&self) {
        self.has_returned_values.set(true);
    }

    /// Whether a call without `sdk.` returned a value instead of a promise.
    pub(crate) fn has_returned_values(&self) -> bool {
        self.has_returned_values.get()
    }

    /// Records that the script is loaded: from now on its code reads globals.
    pub(crate) fn begin_executing(&self) {
        self.executing.set(true);
    }

    /// The error for reading an undefined global, if it is one.
    pub(crate) fn undefined_global_error(&self, name: &str) -> Option<String> {
        self.global_names.as_ref().filter(|_| self.executing.get())?.error_of(name)
    }

    /// Takes a response that has arrived.
    pub(crate) fn take_response(&self, id: u32) -> Option<HostResponse> {
        let response = self.responses.borrow_mut().remove(&id)?;
        if self.unawaited.borrow_mut().remove(&id).is_some() {
            self.awaited.borrow_mut().insert(id);
        }
        Some(response)
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

    /// Logs a line, within the run's limit.
    pub(crate) fn log(&self, level: LogLevel, line: &[u8]) {
        if self.log_full.get() {
            return;
        }
        let budget = self.log_left.get();
        let cost = log_cost(line);
        if cost > budget {
            self.log_full.set(true);
            let rest = format!("the log is full ({} bytes): the rest is dropped", self.bounds.log_bytes);
            self.send_log_line(LogLevel::Warn, &rest);
            return;
        }
        self.log_left.set(budget - cost);
        let text = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]);
        if line.len() > LINE_BYTES_MAX {
            self.send_log_line(level, &format!("{text}… (a line of {} bytes)", line.len()));
        } else {
            self.send_log_line(level, &text);
        }
    }

    fn send_log_line(&self, level: LogLevel, line: &str) {
        if let Err(closed) = self.channel.log(level, line) {
            self.end_without_parent(closed);
        }
    }

    /// Ends the run: without a parent nobody can use its result.
    fn end_without_parent(&self, _: ChannelClosed) -> String {
        self.timed_out.set(true);
        PARENT_GONE.to_owned()
    }
}
