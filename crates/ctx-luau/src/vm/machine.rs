//! [`Vm`]: executes runs one after the other, isolated from each other.

use crate::engine::protocol::{Job, JobFailure, JobFailureKind, JobOutcome, ScriptEntry};
use crate::host::{HOST_APIS, PROVIDER_PREFIX, freeze, shallow_copy};
use crate::value::{PromiseError, ReadOptions, ValueError, read};
use crate::vm::globals::{GC_GOAL, GC_GOAL_EAGER, Globals, restart_gc};
use crate::vm::run::UnawaitedError;
use crate::vm::source::BytecodeCache;
use crate::vm::{CurrentRun, GlobalNames, HostChannel, LogLevel, RunState, entry, explain};
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
#[error("cannot create a Luau VM: {0}")]
pub(crate) struct VmError(String);

/// The error at the deadline, raised at every later interrupt, so that a script that catches it ends
/// nevertheless.
#[derive(Debug, thiserror::Error)]
#[error("the script exceeded its time limit")]
struct DeadlineExceeded;

/// A Luau VM, which executes one run at a time.
pub(crate) struct Vm {
    globals: Globals,
    current_run: Rc<CurrentRun>,
    bytecode: BytecodeCache,
    runs: usize,
    has_failed: bool,
    /// Whether the last run was cleaned up.
    is_clean: bool,
    /// Memory in use before the first run.
    initial_bytes: usize,
    /// Memory use above which garbage is collected more eagerly; `usize::MAX` once it is.
    eager_gc_above: Rc<Cell<usize>>,
}

impl Vm {
    /// Creates a VM.
    pub(crate) fn new() -> Result<Self, VmError> {
        let current_run = Rc::new(CurrentRun::default());
        let globals = Globals::new(&current_run).map_err(|error| VmError(error.to_string()))?;
        let current = current_run.clone();
        let eager_gc_above = Rc::new(Cell::new(usize::MAX));
        let threshold = eager_gc_above.clone();
        globals.lua.set_interrupt(move |lua| {
            let over = current.must_end(|| {
                if lua.used_memory() > threshold.get() {
                    threshold.set(usize::MAX);
                    restart_gc(lua, GC_GOAL_EAGER);
                }
            });
            if over { Err(mlua::Error::external(DeadlineExceeded)) } else { Ok(VmState::Continue) }
        });
        globals.lua.gc_collect().map_err(|error| VmError(error.to_string()))?;
        let initial_bytes = globals.lua.used_memory();
        let bytecode = BytecodeCache::default();
        Ok(Self {
            globals,
            current_run,
            bytecode,
            runs: 0,
            has_failed: false,
            is_clean: true,
            initial_bytes,
            eager_gc_above,
        })
    }

    /// Whether the VM must be replaced: a run failed, or there were too many.
    pub(crate) fn needs_replacement(&self) -> bool {
        self.has_failed || self.runs >= RUNS_MAX
    }

    /// Runs a script to its end.
    pub(crate) fn run(&mut self, job: &Job, source: &[u8], channel: Rc<dyn HostChannel>) -> JobOutcome {
        self.clean_up();
        self.is_clean = false;
        self.runs += 1;
        let names = (job.entry == ScriptEntry::Chunk).then(|| GlobalNames::new(source, &job.apis));
        let run = Rc::new(RunState::new(job.bounds, channel, job.entry == ScriptEntry::Describe, names));
        self.current_run.set(run.clone());
        let providers: Vec<&str> =
            job.apis.iter().filter_map(|api| api.strip_prefix(PROVIDER_PREFIX)).collect();
        let outcome = match self.bytecode.get(&job.chunk_name, source, &providers) {
            Ok(code) => self.run_limited(job, source, &code, &run),
            Err(message) => Err(JobFailure { kind: JobFailureKind::Source, message, code: None }),
        };
        self.current_run.clear();
        match outcome {
            Ok(value) => JobOutcome::Value(value),
            Err(failure) => {
                // A source that was refused leaves nothing behind.
                self.has_failed = self.has_failed || failure.kind != JobFailureKind::Source;
                JobOutcome::Failed(failure)
            }
        }
    }

    /// Cleans up after the last run. `run` does it too, but between runs nobody waits for it.
    pub(crate) fn clean_up(&mut self) {
        if self.is_clean {
            return;
        }
        let lua = &self.globals.lua;
        if self.runs > 0 && self.eager_gc_above.get() == usize::MAX {
            restart_gc(lua, GC_GOAL);
        }
        let mut cleaned = lua.set_memory_limit(0).map(|_| ());
        if lua.used_memory() > self.initial_bytes + GARBAGE_BYTES_MAX {
            cleaned = cleaned.and_then(|()| lua.gc_collect());
        }
        self.has_failed = self.has_failed || cleaned.is_err();
        self.is_clean = true;
    }

    fn run_limited(
        &mut self,
        job: &Job,
        source: &[u8],
        code: &[u8],
        run: &Rc<RunState>,
    ) -> Result<Vec<u8>, JobFailure> {
        let lua = &self.globals.lua;
        let limit = lua.used_memory().saturating_add(job.bounds.memory_bytes);
        self.eager_gc_above.set(limit / 2);
        let execution =
            Execution { globals: &self.globals, job, run, source, context_table: RefCell::default() };
        let outcome =
            lua.set_memory_limit(limit).map_err(|error| execution.vm_failure(&error)).and_then(|_| {
                let environment = execution.environment().map_err(|error| execution.vm_failure(&error))?;
                let chunk = lua
                    .load(code)
                    .set_mode(ChunkMode::Binary)
                    .set_name(format!("={}", job.chunk_name))
                    .set_environment(environment.clone())
                    .into_function()
                    .map_err(|error| execution.vm_failure(&error))?;
                run.begin_executing();
                entry::execute(&execution, &environment, &chunk)
            });
        // After the deadline the outcome is a timeout, whatever the script made of that error.
        if run.is_timed_out() { Err(execution.timeout_failure()) } else { outcome }
    }
}

/// One run in one VM.
pub(super) struct Execution<'a> {
    pub(super) globals: &'a Globals,
    pub(super) job: &'a Job,
    pub(super) run: &'a RunState,
    source: &'a [u8],
    context_table: RefCell<Option<Table>>,
}

impl Execution<'_> {
    /// The environment of this run: its host APIs, in front of the globals that all runs share.
    fn environment(&self) -> mlua::Result<Table> {
        let lua = &self.globals.lua;
        let environment = lua.create_table()?;
        for name in &self.job.apis {
            if let Some(provider) = name.strip_prefix(PROVIDER_PREFIX) {
                let global: Value = self.globals.host.provider_global.call(provider)?;
                environment.raw_set(provider, global)?;
                continue;
            }
            let Some(index) = HOST_APIS.iter().position(|api| api.name == name) else { continue };
            match (&self.globals.host.apis[index], name.as_str()) {
                (Value::Table(functions), "context") => {
                    let context = shallow_copy(lua, functions)?;
                    context.raw_set("config", self.config()?)?;
                    // Read-only: host functions and settings cannot be replaced by the script.
                    freeze(&Value::Table(context.clone()))?;
                    environment.raw_set("context", &context)?;
                    *self.context_table.borrow_mut() = Some(context);
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
        read(&self.globals.lua, &self.globals.bridge, json, ReadOptions::default()).map_err(|error| {
            match error {
                ValueError::Lua(error) => error,
                other => mlua::Error::runtime(other),
            }
        })
    }

    /// The argument `context` of the script's function.
    pub(super) fn context(&self) -> Value {
        self.context_table.borrow().clone().map_or(Value::Nil, Value::Table)
    }

    /// Calls a function of the script.
    pub(super) fn call(&self, function: &Function, arguments: Vec<Value>) -> Result<Vec<Value>, JobFailure> {
        let mut all = vec![Value::Function(function.clone())];
        all.extend(arguments);
        let arguments = mlua::MultiValue::from_vec(all);
        let returned: mlua::MultiValue =
            self.globals.pcall.call(arguments).map_err(|error| self.vm_failure(&error))?;
        let mut returned = returned.into_vec();
        if returned.first() == Some(&Value::Boolean(true)) {
            returned.remove(0);
            return Ok(returned);
        }
        Err(self.raised_failure(returned.get(1).unwrap_or(&Value::Nil)))
    }

    /// Waits for the calls that the script has started and not awaited. The first error fails the run, the
    /// others are logged.
    pub(super) fn await_promises(&self) -> Result<(), JobFailure> {
        let failed = |error: UnawaitedError| match self.run.is_timed_out() {
            true => self.timeout_failure(),
            false => self.script_failure(format!("{}: {}", self.job.chunk_name, error.message), error.code),
        };
        let mut errors = self.run.await_promises().map_err(failed)?.into_iter();
        let first = errors.next();
        self.log_errors(errors);
        first.map_or(Ok(()), |error| Err(failed(error)))
    }

    /// Waits for the calls that a failed script had started, so that none is interrupted. Their errors are
    /// logged; the run fails with the error of the script itself.
    pub(super) fn await_promises_after(&self, failure: JobFailure) -> JobFailure {
        if self.run.is_timed_out() {
            return failure;
        }
        match self.run.await_promises() {
            Ok(errors) => self.log_errors(errors.into_iter()),
            // The deadline passed meanwhile: the run becomes a timeout, and the script's own error is logged.
            Err(_) => self.run.log(LogLevel::Error, failure.message.as_bytes()),
        }
        failure
    }

    fn log_errors(&self, errors: impl Iterator<Item = UnawaitedError>) {
        errors.for_each(|error| self.run.log(LogLevel::Error, error.message.as_bytes()));
    }

    /// Converts an error value of the script to a failure.
    fn raised_failure(&self, value: &Value) -> JobFailure {
        if self.run.is_timed_out() {
            return self.timeout_failure();
        }
        let text = || explain::raised_message(value).unwrap_or_else(|| self.display_text(value));
        match value {
            Value::Error(error) => self.vm_failure(error),
            Value::String(text) if text.as_bytes() == NO_MEMORY.as_bytes() => self.memory_failure(),
            Value::Table(failure) => match self.globals.host.codes.raw_get(failure) {
                Ok(Value::String(code)) => self.script_failure(text(), Some(code.to_string_lossy())),
                Ok(Value::Boolean(true)) => {
                    JobFailure { kind: JobFailureKind::Result, message: text(), code: None }
                }
                _ => self.script_failure(text(), None),
            },
            _ => self.script_failure(text(), None),
        }
    }

    fn script_failure(&self, text: String, code: Option<String>) -> JobFailure {
        let message = explain::add_hint(&self.job.chunk_name, &self.source_text(), self.job.entry, text);
        JobFailure { kind: JobFailureKind::Raised, message, code }
    }

    /// The text of a raised object, from its `tostring`.
    fn display_text(&self, value: &Value) -> String {
        let text = self.globals.pcall.call::<(bool, Value)>((&self.globals.tostring, value));
        match text {
            Ok((true, Value::String(text))) => explain::truncate(&text.to_string_lossy()),
            _ => format!("the script raised an error that is a {}", value.type_name()),
        }
    }

    /// Converts an error of the VM to a failure.
    pub(super) fn vm_failure(&self, error: &mlua::Error) -> JobFailure {
        match explain::root_cause(error) {
            _ if self.run.is_timed_out() => self.timeout_failure(),
            mlua::Error::MemoryError(_) => self.memory_failure(),
            other => {
                let code = other.downcast_ref::<PromiseError>().and_then(|error| error.code.clone());
                self.script_failure(explain::truncate(&other.to_string()), code)
            }
        }
    }

    /// The failure of a run whose result cannot be converted to JSON.
    pub(super) fn result_failure(&self, error: ValueError) -> JobFailure {
        match error {
            ValueError::Lua(error) => self.vm_failure(&error),
            other => {
                let message = format!("{}: {other}", self.job.chunk_name);
                JobFailure { kind: JobFailureKind::Result, message, code: None }
            }
        }
    }

    /// The failure of a run whose script does not fulfil the contract of its kind.
    pub(super) fn contract_failure(&self, problem: &str) -> JobFailure {
        let message = format!("{}: {problem}", self.job.chunk_name);
        JobFailure { kind: JobFailureKind::Contract, message, code: None }
    }

    pub(super) fn source_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.source)
    }

    fn memory_failure(&self) -> JobFailure {
        let limit = self.job.bounds.memory_bytes / (1024 * 1024);
        let message = format!("{}: the script used more than its {limit} MB of memory", self.job.chunk_name);
        JobFailure { kind: JobFailureKind::Memory, message, code: None }
    }

    fn timeout_failure(&self) -> JobFailure {
        let seconds = self.job.bounds.time_ms as f64 / 1000.0;
        let message = format!("{}: timed out after {seconds} seconds", self.job.chunk_name);
        JobFailure { kind: JobFailureKind::Time, message, code: None }
    }
}
