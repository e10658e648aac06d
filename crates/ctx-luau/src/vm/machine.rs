//! [`Vm`]: executes runs one after the other, isolated from each other.

use crate::engine::protocol::{Ending, Entry, Failure, FailureKind, Job};
use crate::host::{HOST_APIS, SERVER_PREFIX, copied, freeze};
use crate::value::{PromiseError, Reading, ValueError, read};
use crate::vm::globals::{GC_GOAL, GC_GOAL_TIGHT, Globals, collect_at};
use crate::vm::run::LostCall;
use crate::vm::source::Compiled;
use crate::vm::{GlobalNames, LogLevel, Outside, Run, Slot, entry, explain};
use memchr::memmem;
use mlua::chunk::ChunkMode;
use mlua::{Function, Table, Value, VmState};
use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

/// Maximum number of runs of a VM, which bounds what may accumulate unnoticed.
pub(super) const RUNS_MAX: usize = 1_000;
/// Garbage of earlier runs that may stay uncollected. Scripts cannot see it, and it does not count against
/// their memory limits.
const GARBAGE_BYTES_MAX: usize = 512 * 1024;
/// The error that the VM raises when memory is exhausted. It is a string, recognised by its text alone.
pub(crate) const NO_MEMORY: &str = "not enough memory";

/// The VM could not be created.
#[derive(Debug, thiserror::Error)]
#[error("no Luau VM: {0}")]
pub(crate) struct VmError(String);

/// The error at the deadline, raised at every later interrupt, so that a script that catches it ends
/// nevertheless.
#[derive(Debug, thiserror::Error)]
#[error("the script's time is over")]
struct TimeOver;

/// A Luau VM, which executes one run at a time.
pub(crate) struct Vm {
    globals: Globals,
    slot: Rc<Slot>,
    compiled: Compiled,
    runs: usize,
    failed: bool,
    /// Whether the last run was cleaned up.
    tidy: bool,
    /// Memory in use before the first run.
    used_at_first: usize,
    /// Memory use above which garbage is collected more eagerly; `usize::MAX` once it is.
    tight_from: Rc<Cell<usize>>,
}

impl Vm {
    /// Creates a VM.
    pub(crate) fn new() -> Result<Self, VmError> {
        let slot = Rc::new(Slot::default());
        let globals = Globals::new(&slot).map_err(|error| VmError(error.to_string()))?;
        let runs = slot.clone();
        let tight_from = Rc::new(Cell::new(usize::MAX));
        let from = tight_from.clone();
        globals.lua.set_interrupt(move |lua| {
            let over = runs.is_over(|| {
                if lua.used_memory() > from.get() {
                    from.set(usize::MAX);
                    collect_at(lua, GC_GOAL_TIGHT);
                }
            });
            if over { Err(mlua::Error::external(TimeOver)) } else { Ok(VmState::Continue) }
        });
        globals.lua.gc_collect().map_err(|error| VmError(error.to_string()))?;
        let used_at_first = globals.lua.used_memory();
        let compiled = Compiled::default();
        Ok(Self { globals, slot, compiled, runs: 0, failed: false, tidy: true, used_at_first, tight_from })
    }

    /// Whether the VM must be replaced: a run failed, or there were too many.
    pub(crate) fn is_worn(&self) -> bool {
        self.failed || self.runs >= RUNS_MAX
    }

    /// Runs a script to its end.
    pub(crate) fn run(&mut self, job: &Job, source: &[u8], outside: Rc<dyn Outside>) -> Ending {
        self.tidy();
        self.tidy = false;
        self.runs += 1;
        let names = (job.entry == Entry::Chunk).then(|| GlobalNames::new(source, &job.apis));
        let run = Rc::new(Run::new(job.bounds, outside, job.entry == Entry::Describe, names));
        self.slot.fill(run.clone());
        let servers: Vec<&str> = job.apis.iter().filter_map(|api| api.strip_prefix(SERVER_PREFIX)).collect();
        let ended = match self.compiled.get(&job.chunk_name, source, &servers) {
            Ok(code) => self.within_bounds(job, source, &code, &run),
            Err(message) => Err(Failure { kind: FailureKind::Source, message, code: None }),
        };
        self.slot.clear();
        match ended {
            Ok(value) => Ending::Value(value),
            Err(failure) => {
                // A source that was refused leaves nothing behind.
                self.failed = self.failed || failure.kind != FailureKind::Source;
                Ending::Failed(failure)
            }
        }
    }

    /// Cleans up after the last run. `run` does it too, but between runs nobody waits for it.
    pub(crate) fn tidy(&mut self) {
        if self.tidy {
            return;
        }
        let lua = &self.globals.lua;
        if self.runs > 0 && self.tight_from.get() == usize::MAX {
            collect_at(lua, GC_GOAL);
        }
        let mut forgotten = lua.set_memory_limit(0).map(|_| ());
        if lua.used_memory() > self.used_at_first + GARBAGE_BYTES_MAX {
            forgotten = forgotten.and_then(|()| lua.gc_collect());
        }
        self.failed = self.failed || forgotten.is_err();
        self.tidy = true;
    }

    fn within_bounds(
        &mut self,
        job: &Job,
        source: &[u8],
        code: &[u8],
        run: &Rc<Run>,
    ) -> Result<Vec<u8>, Failure> {
        let lua = &self.globals.lua;
        let most = lua.used_memory().saturating_add(job.bounds.memory_bytes);
        self.tight_from.set(most / 2);
        let scene = Scene { globals: &self.globals, job, run, source, places: RefCell::default() };
        let ended = lua.set_memory_limit(most).map_err(|error| scene.failed(&error)).and_then(|_| {
            let environment = scene.environment().map_err(|error| scene.failed(&error))?;
            let chunk = lua
                .load(code)
                .set_mode(ChunkMode::Binary)
                .set_name(format!("={}", job.chunk_name))
                .set_environment(environment.clone())
                .into_function()
                .map_err(|error| scene.failed(&error))?;
            run.begin_executing();
            entry::play(&scene, &environment, &chunk)
        });
        // After the deadline the outcome is a timeout, whatever the script made of that error.
        if run.was_over() { Err(scene.over()) } else { ended }
    }
}

/// One run in one VM.
pub(super) struct Scene<'a> {
    pub(super) globals: &'a Globals,
    pub(super) job: &'a Job,
    pub(super) run: &'a Run,
    source: &'a [u8],
    places: RefCell<Option<Table>>,
}

impl Scene<'_> {
    /// The environment of this run: its host APIs, in front of the globals that all runs share.
    fn environment(&self) -> mlua::Result<Table> {
        let lua = &self.globals.lua;
        let environment = lua.create_table()?;
        for name in &self.job.apis {
            if let Some(server) = name.strip_prefix(SERVER_PREFIX) {
                let global: Value = self.globals.host.server.call(server)?;
                environment.raw_set(server, global)?;
                continue;
            }
            let Some(place) = HOST_APIS.iter().position(|api| api.name == name) else { continue };
            match (&self.globals.host.apis[place], name.as_str()) {
                (Value::Table(functions), "context") => {
                    let context = copied(lua, functions)?;
                    context.raw_set("config", self.config()?)?;
                    // Read-only: host functions and settings cannot be replaced by the script.
                    freeze(&Value::Table(context.clone()))?;
                    environment.raw_set("context", &context)?;
                    *self.places.borrow_mut() = Some(context);
                }
                (api, name) => environment.raw_set(name, api)?,
            }
        }
        environment.raw_set("_G", &environment)?;
        environment.set_metatable(Some(self.globals.environment.clone()))?;
        // Lets Luau look up globals once, at load. A script that names `_G` could change globals without Luau
        // noticing.
        environment.set_safeenv(memmem::find(self.source, b"_G").is_none());
        let seed = RandomState::new().hash_one(self.job.chunk_name.as_str()) as i32;
        self.globals.seed_random.call::<()>(seed)?;
        Ok(environment)
    }

    fn config(&self) -> mlua::Result<Value> {
        match &self.job.config {
            Some(config) => self.read(config.get().as_bytes()),
            None => Ok(Value::Table(self.globals.lua.create_table()?)),
        }
    }

    /// Reads a JSON value from the parent.
    pub(super) fn read(&self, json: &[u8]) -> mlua::Result<Value> {
        read(&self.globals.lua, &self.globals.marks, json, Reading::default()).map_err(|error| match error {
            ValueError::Lua(error) => error,
            other => mlua::Error::runtime(other),
        })
    }

    /// The argument `context` of the script's function.
    pub(super) fn context(&self) -> Value {
        self.places.borrow().clone().map_or(Value::Nil, Value::Table)
    }

    /// Calls a function of the script.
    pub(super) fn call(&self, function: &Function, arguments: Vec<Value>) -> Result<Vec<Value>, Failure> {
        let mut all = vec![Value::Function(function.clone())];
        all.extend(arguments);
        let arguments = mlua::MultiValue::from_vec(all);
        let returned: mlua::MultiValue =
            self.globals.pcall.call(arguments).map_err(|error| self.failed(&error))?;
        let mut returned = returned.into_vec();
        if returned.first() == Some(&Value::Boolean(true)) {
            returned.remove(0);
            return Ok(returned);
        }
        Err(self.raised(returned.get(1).unwrap_or(&Value::Nil)))
    }

    /// Waits for the calls that the script has started and not awaited. The first error fails the run, the
    /// others are logged.
    pub(super) fn await_promises(&self) -> Result<(), Failure> {
        let failed = |lost: LostCall| match self.run.was_over() {
            true => self.over(),
            false => self.error(format!("{}: {}", self.job.chunk_name, lost.message), lost.code),
        };
        let mut errors = self.run.await_promises().map_err(failed)?.into_iter();
        let first = errors.next();
        self.log_errors(errors);
        first.map_or(Ok(()), |lost| Err(failed(lost)))
    }

    /// Waits for the calls that a failed script had started, so that none is interrupted. Their errors are
    /// logged; the run fails with the error of the script itself.
    pub(super) fn await_promises_after(&self, failure: Failure) -> Failure {
        if self.run.was_over() {
            return failure;
        }
        match self.run.await_promises() {
            Ok(errors) => self.log_errors(errors.into_iter()),
            // The deadline passed meanwhile: the run becomes a timeout, and the script's own error is logged.
            Err(_) => self.run.log(LogLevel::Error, failure.message.as_bytes()),
        }
        failure
    }

    fn log_errors(&self, errors: impl Iterator<Item = LostCall>) {
        errors.for_each(|lost| self.run.log(LogLevel::Error, lost.message.as_bytes()));
    }

    /// Converts an error value of the script to a failure.
    fn raised(&self, value: &Value) -> Failure {
        if self.run.was_over() {
            return self.over();
        }
        let text = || explain::raised(value).unwrap_or_else(|| self.shown(value));
        match value {
            Value::Error(error) => self.failed(error),
            Value::String(text) if text.as_bytes() == NO_MEMORY.as_bytes() => self.no_memory(),
            Value::Table(failure) => match self.globals.host.codes.raw_get(failure) {
                Ok(Value::String(code)) => self.error(text(), Some(code.to_string_lossy())),
                Ok(Value::Boolean(true)) => {
                    Failure { kind: FailureKind::Result, message: text(), code: None }
                }
                _ => self.error(text(), None),
            },
            _ => self.error(text(), None),
        }
    }

    fn error(&self, text: String, code: Option<String>) -> Failure {
        let message = explain::with_hint(&self.job.chunk_name, &self.source_text(), self.job.entry, text);
        Failure { kind: FailureKind::Raised, message, code }
    }

    /// The text of a raised object, from its `tostring`.
    fn shown(&self, value: &Value) -> String {
        let shown = self.globals.pcall.call::<(bool, Value)>((&self.globals.tostring, value));
        match shown {
            Ok((true, Value::String(text))) => explain::shortened(&text.to_string_lossy()),
            _ => format!("the script raised an error that is a {}", value.type_name()),
        }
    }

    /// Converts an error of the VM to a failure.
    pub(super) fn failed(&self, error: &mlua::Error) -> Failure {
        match explain::root(error) {
            _ if self.run.was_over() => self.over(),
            mlua::Error::MemoryError(_) => self.no_memory(),
            other => {
                let code = other.downcast_ref::<PromiseError>().and_then(|error| error.code.clone());
                self.error(explain::shortened(&other.to_string()), code)
            }
        }
    }

    /// The failure of a run whose result cannot be converted to JSON.
    pub(super) fn unfit(&self, error: ValueError) -> Failure {
        match error {
            ValueError::Lua(error) => self.failed(&error),
            other => {
                let message = format!("{}: {other}", self.job.chunk_name);
                Failure { kind: FailureKind::Result, message, code: None }
            }
        }
    }

    /// The failure of a run whose script does not fulfil the contract of its kind.
    pub(super) fn contract(&self, what: &str) -> Failure {
        let message = format!("{}: {what}", self.job.chunk_name);
        Failure { kind: FailureKind::Contract, message, code: None }
    }

    pub(super) fn source_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.source)
    }

    fn no_memory(&self) -> Failure {
        let most = self.job.bounds.memory_bytes / (1024 * 1024);
        let message = format!("{}: the script used more than its {most} MB of memory", self.job.chunk_name);
        Failure { kind: FailureKind::Memory, message, code: None }
    }

    fn over(&self) -> Failure {
        let seconds = self.job.bounds.time_ms as f64 / 1000.0;
        let message = format!("{}: timed out after {seconds} seconds", self.job.chunk_name);
        Failure { kind: FailureKind::Time, message, code: None }
    }
}
