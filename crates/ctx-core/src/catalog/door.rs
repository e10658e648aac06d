//! [`Catalog::call`], the single entry point to all tools: name lookup, policy, schema validation, limits and the run
//! log are implemented here and nowhere else.

use super::awaited_provider::AwaitedProvider;
use super::{Catalog, CatalogEntry, RegisteredTool, compile};
use crate::argument_schema::InlineCheck;
use crate::error::{error_chain, whole_seconds};
use crate::run::{cut_text, shorten_value};
use crate::{
    Call, Caller, ContentBlock, Decision, ErrorKind, Identifier, Identity, NoRunLog, Output, Run, RunLog,
    RunOutcome, ToolError, ToolName, ToolSpec, nearest,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Replaces a timeout that overflows `Instant`: thirty years.
const FOREVER: Duration = Duration::from_secs(86_400 * 365 * 30);

/// Tolerance for tools that report a timeout slightly before the deadline: some clocks count in milliseconds.
const TIMEOUT_TOLERANCE: Duration = Duration::from_millis(10);

/// Largest arguments that are masked and validated on the runtime thread; larger ones go to the blocking pool.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Adapts arguments to a tool, given its spec and the schema of its arguments.
type ArgumentAdapter<'a> = Box<dyn FnOnce(&ToolSpec, &Value, Value) -> Result<Value, ToolError> + Send + 'a>;

/// A tool found by name, or the provider that must be awaited to find it.
enum ToolLookup {
    Known(Arc<RegisteredTool>),
    Awaited(AwaitedTool),
}

/// The name of a tool whose provider's tools are not known yet.
struct AwaitedTool {
    name: ToolName,
    /// The tool's name as the caller wrote it.
    written: String,
    provider: Arc<AwaitedProvider>,
}

impl ToolLookup {
    fn name(&self) -> &ToolName {
        match self {
            Self::Known(registered) => &registered.entry.name,
            Self::Awaited(awaited) => &awaited.name,
        }
    }

    fn is_hidden(&self) -> bool {
        matches!(self, Self::Known(registered) if registered.is_hidden())
    }
}

impl Catalog {
    /// Calls a tool by full or outward name: asks the policy, validates the arguments, enforces limits, runs the tool
    /// and records the run.
    ///
    /// If the tools of the provider are not known yet, the call first waits for them, within its timeout.
    pub async fn call(name: &str, arguments: Value, call: Call) -> Result<Output, ToolError> {
        Self::call_boxed(name, arguments, None, call).await
    }

    /// [`Catalog::call`] with arguments that `fit` adapts to the tool once it is found: a tool whose provider is still
    /// connecting is not known before. The policy, the schema and the run log see the adapted arguments.
    pub async fn call_with_adapter<'a>(
        name: &str,
        arguments: Value,
        fit: impl FnOnce(&ToolSpec, &Value, Value) -> Result<Value, ToolError> + Send + 'a,
        call: Call,
    ) -> Result<Output, ToolError> {
        Self::call_boxed(name, arguments, Some(Box::new(fit)), call).await
    }

    /// Boxed: the future of an `async fn` is compiled again in every crate that awaits it (decision 0012).
    fn call_boxed<'a>(
        name: &'a str,
        arguments: Value,
        fit: Option<ArgumentAdapter<'a>>,
        call: Call,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        Box::pin(Self::call_unboxed(name, arguments, fit, call))
    }

    async fn call_unboxed(
        name: &str,
        arguments: Value,
        fit: Option<ArgumentAdapter<'_>>,
        mut call: Call,
    ) -> Result<Output, ToolError> {
        let (catalog, nested) = (call.root.catalog.clone(), call.root.nested.clone());
        let is_outermost = call.depth == 0;
        let lookup = match catalog.hidden_tool(name, &call) {
            Some(hidden) => ToolLookup::Known(hidden),
            None => catalog.find(name).map_err(|error| catalog.mask_error(error))?,
        };
        let is_hidden = lookup.is_hidden();
        let started = Instant::now();
        if !is_outermost {
            nested.count_call();
        }
        let mut recorder = RunRecorder {
            // Administrative calls are not recorded: otherwise listing the runs would add one.
            runs: if is_hidden { &NoRunLog } else { &*catalog.runs },
            started,
            run: Some(Run {
                id: call.run,
                parent: call.parent,
                tool: lookup.name().to_string(),
                caller: call.root.caller.to_string(),
                started_at: Timestamp::now(),
                duration: Duration::ZERO,
                arguments: Value::Null,
                argument_bytes: 0,
                result_bytes: 0,
                outcome: abandoned_outcome(),
            }),
        };

        let result = catalog.admit_and_run(lookup, arguments, fit, &mut call, &mut recorder).await;
        let result = result.map_err(|error| catalog.mask_error(error)).map(|(mut output, bytes)| {
            for line in &mut output.logs {
                line.message = catalog.mask_text(std::mem::take(&mut line.message));
            }
            (output, bytes)
        });
        match &result {
            Ok((_, result_bytes)) => {
                if !is_outermost {
                    nested.add_result(*result_bytes);
                }
                recorder.close(RunOutcome::Ok, *result_bytes);
            }
            Err(error) => {
                // An administrative caller gets the whole error, and reports it itself.
                if error.kind() == ErrorKind::Internal && !is_hidden {
                    let error = catalog.mask_text(error_chain(error));
                    let tool = recorder.run.as_ref().map(|run| run.tool.as_str()).unwrap_or_default();
                    tracing::error!(%tool, %error, "call failed");
                }
                let message = cut_text(error.message(), catalog.limits.run_bytes);
                recorder.close(RunOutcome::Failed { code: run_code(error.kind()).to_owned(), message }, 0);
            }
        }
        match result {
            Ok((output, bytes)) if is_outermost => Ok(Output { nested_calls: nested.stats(bytes), ..output }),
            Err(error) if is_outermost => Err(error.with_nested_calls(nested.stats(0))),
            other => other.map(|(output, _)| output),
        }
    }

    /// Takes a call from the found name to the output and its size.
    async fn admit_and_run(
        &self,
        lookup: ToolLookup,
        arguments: Value,
        fit: Option<ArgumentAdapter<'_>>,
        call: &mut Call,
        recorder: &mut RunRecorder<'_>,
    ) -> Result<(Output, usize), ToolError> {
        let (registered, arguments) = match lookup {
            ToolLookup::Known(registered) => (registered, arguments),
            ToolLookup::Awaited(awaited) => {
                // Recorded before the wait, because the caller may disconnect meanwhile.
                let arguments = self.record_arguments(arguments, recorder).await?;
                self.wait_for(&awaited, call, recorder.started).await?;
                let registered = self.awaited_tool(&awaited).await?;
                if let Some(run) = &mut recorder.run {
                    run.tool = registered.entry.name.to_string();
                }
                (registered, arguments)
            }
        };
        let arguments = match fit {
            Some(fit) => {
                compile(&registered).await;
                let CatalogEntry { spec, .. } = &registered.entry;
                fit(spec, registered.argument_schema.get(&registered.entry).json(), arguments)?
            }
            None => arguments,
        };
        let arguments = self.record_arguments(arguments, recorder).await?;
        let argument_bytes = recorder.run.as_ref().map_or(0, |run| run.argument_bytes);
        let arguments = self.admit(&registered, arguments, argument_bytes, call).await?;
        if call.depth == 0 {
            call.peer().admitted();
        }
        self.run(&registered, arguments, call, recorder.started).await
    }

    /// Waits until the tools of a provider are known, at most for the timeout of one of its calls.
    async fn wait_for(&self, awaited: &AwaitedTool, call: &Call, started: Instant) -> Result<(), ToolError> {
        if awaited.provider.is_known() {
            return Ok(());
        }
        let provider = awaited.provider.get();
        let timeout = provider.wait_timeout().unwrap_or(self.limits.call_timeout);
        let own_deadline = started.checked_add(timeout).unwrap_or(started + FOREVER);
        let deadline = call.earlier_deadline(own_deadline);
        tokio::select! {
            biased;
            () = call.cancelled() => {
                Err(ToolError::new(ErrorKind::Cancelled, "the call was cancelled"))
            }
            reached = catch_panic(provider.connect()) => reached,
            () = deadline.wait_until_passed(Duration::ZERO) => {
                Err(timed_out(&awaited.name, deadline.instant() - started))
            }
        }
    }

    /// The tool of a provider that was awaited.
    async fn awaited_tool(&self, awaited: &AwaitedTool) -> Result<Arc<RegisteredTool>, ToolError> {
        let provider = &awaited.provider;
        let tools = provider.known_tools(self).await.ok_or_else(|| provider.unavailable())?;
        let found = tools.iter().find(|tool| tool.entry.name == awaited.name);
        // Scripts may use the tool's original name.
        let found = found.or_else(|| tools.iter().find(|tool| tool.entry.spec.name == awaited.written));
        let found = found.filter(|tool| !self.is_taken(&tool.entry));
        found.cloned().ok_or_else(|| {
            let tool = cut_text(awaited.name.tool().as_str(), 100);
            let near = nearest(&tool, tools.iter().map(|known| known.entry.name.tool().as_str()));
            let hint = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            ToolError::not_found(format!("{} has no function `{tool}`{hint}", awaited.name.provider()))
        })
    }

    /// Checks whether the policy allows this caller to call a tool, given by full or outward name. [`Catalog::call`]
    /// makes the same check; this is for code that must know in advance. Waits for a provider whose tools are not known
    /// yet, as [`Provider::wait_until_known`](crate::Provider::wait_until_known) does.
    pub async fn permit(
        &self,
        name: &str,
        caller: &Caller,
        identity: Option<&Identity>,
    ) -> Result<(), ToolError> {
        let registered = match self.find(name).map_err(|error| self.mask_error(error))? {
            ToolLookup::Known(registered) => registered,
            ToolLookup::Awaited(awaited) => {
                let provider = awaited.provider.get();
                let patience = provider.wait_timeout().unwrap_or(self.limits.call_timeout);
                // After the timeout, the lookup below fails.
                let _ = tokio::time::timeout(patience, provider.wait_until_known()).await;
                self.awaited_tool(&awaited).await.map_err(|error| self.mask_error(error))?
            }
        };
        self.decide(&registered.entry, caller, identity)
    }

    fn decide(
        &self,
        entry: &CatalogEntry,
        caller: &Caller,
        identity: Option<&Identity>,
    ) -> Result<(), ToolError> {
        let name = &entry.name;
        let refusal =
            |reason: &str| ToolError::new(ErrorKind::Forbidden, format!("{name} is not allowed: {reason}"));
        match self.policy.decide(name, &entry.spec, caller, identity) {
            Decision::Allow => Ok(()),
            Decision::Deny(reason) => Err(refusal(&reason)),
            Decision::NeedsScopes(required_scopes) => {
                let granted = |scope: &&String| identity.is_some_and(|known| known.scopes.contains(*scope));
                let missing_scopes: Vec<String> = required_scopes
                    .iter()
                    .filter(|scope| !granted(scope))
                    .map(|scope| format!("`{scope}`"))
                    .collect();
                let scope = if missing_scopes.len() == 1 { "scope" } else { "scopes" };
                let reason = format!("the caller lacks the {scope} {}", missing_scopes.join(", "));
                Err(refusal(&reason).with_scopes(required_scopes))
            }
        }
    }

    /// Records the arguments in the run, masked and shortened, and returns them. Large ones are masked on the blocking
    /// pool.
    async fn record_arguments(
        &self,
        arguments: Value,
        recorder: &mut RunRecorder<'_>,
    ) -> Result<Value, ToolError> {
        let argument_bytes = json_size(&arguments);
        if let Some(run) = &mut recorder.run {
            run.argument_bytes = argument_bytes;
        }
        let (redactor, run_bytes) = (self.redactor.clone(), self.limits.run_bytes);
        let mask = move |arguments: Value| {
            let masked = shorten_value(redactor.json(&arguments), argument_bytes, run_bytes);
            (arguments, masked)
        };
        let (arguments, masked) = match argument_bytes <= INLINE_BYTES_MAX {
            true => mask(arguments),
            false => tokio::task::spawn_blocking(move || mask(arguments))
                .await
                .map_err(|error| ToolError::internal("cannot mask secrets in the arguments", error))?,
        };
        if let Some(run) = &mut recorder.run {
            run.arguments = masked;
        }
        Ok(arguments)
    }

    pub(super) fn mask_error(&self, error: ToolError) -> ToolError {
        error.map_text(|text| self.mask_text(text))
    }

    /// The text with secrets masked.
    pub(crate) fn mask_text(&self, text: String) -> String {
        self.redactor.text(text)
    }

    /// A hidden tool by full name; only for administrative calls.
    fn hidden_tool(&self, name: &str, call: &Call) -> Option<Arc<RegisteredTool>> {
        self.hidden.get(name).filter(|_| call.is_administrative()).cloned()
    }

    /// Finds a tool by full or outward name. Hidden tools are not found, and hence neither called nor suggested.
    fn find(&self, name: &str) -> Result<ToolLookup, ToolError> {
        if let Some(registered) = self.find_registered(name) {
            return Ok(ToolLookup::Known(registered.clone()));
        }
        if let Some(awaited) = self.parse_awaited(name) {
            return Ok(ToolLookup::Awaited(awaited));
        }
        let name = cut_text(name, 100);
        if let Some(reason) = self.unusable_reason_of(&name) {
            return Err(ToolError::not_found(format!("no tool registered with name: {name} ({reason})")));
        }
        let names = self.outward.keys().chain(self.tools.keys()).map(String::as_str);
        Err(ToolError::not_found(match nearest(&name, names) {
            Some(near) => format!("no tool registered with name: {name} (did you mean `{near}`?)"),
            None => format!("no tool registered with name: {name}"),
        }))
    }

    /// Parses a full name whose provider's tools were unknown when this catalog was built.
    fn parse_awaited(&self, name: &str) -> Option<AwaitedTool> {
        let (provider, written) = name.split_once('.')?;
        let provider = Identifier::sanitize(provider);
        let awaited = self.unknown.get(&provider)?.clone();
        let name = ToolName::new(provider, Identifier::sanitize(written));
        Some(AwaitedTool { name, written: written.to_owned(), provider: awaited })
    }

    /// Checks everything that must hold before a tool runs: policy, size and schema of the arguments, rate limit.
    async fn admit(
        &self,
        registered: &Arc<RegisteredTool>,
        arguments: Value,
        argument_bytes: usize,
        call: &Call,
    ) -> Result<Map<String, Value>, ToolError> {
        let name = &registered.entry.name;
        self.decide(&registered.entry, call.caller(), call.identity())?;
        if argument_bytes > self.limits.argument_bytes {
            return Err(ToolError::new(
                ErrorKind::TooLarge,
                format!("arguments are {argument_bytes} bytes; the limit is {}", self.limits.argument_bytes),
            ));
        }
        let arguments = prepare_arguments(registered, arguments, argument_bytes).await?;
        if let Some(meter) = &registered.meter {
            meter.try_acquire().map_err(|wait| {
                let message = format!(
                    "the rate limit of {} is exceeded; try again in {} s",
                    name.outward(),
                    whole_seconds(wait)
                );
                ToolError::new(ErrorKind::RateLimited, message).with_retry_after(wait)
            })?;
        }
        Ok(arguments)
    }

    async fn run(
        &self,
        registered: &RegisteredTool,
        arguments: Map<String, Value>,
        call: &mut Call,
        started: Instant,
    ) -> Result<(Output, usize), ToolError> {
        let timeout = registered.tool.timeout().unwrap_or(self.limits.call_timeout);
        let own_deadline = started.checked_add(timeout).unwrap_or(started + FOREVER);
        let deadline = call.earlier_deadline(own_deadline);
        let (effective_timeout, grace) = (deadline.instant() - started, registered.tool.grace());
        call.deadline = Some(deadline.clone());
        if call.time_left().is_zero() {
            return Err(timed_out(&registered.entry.name, effective_timeout));
        }

        // Cancels, on every exit, the work that the tool started for this call.
        let guard = call.cancellation.clone().drop_guard();
        let call = &*call;
        let stop_grace = registered.tool.stop_grace();
        let stopped = async {
            call.cancelled().await;
            if !stop_grace.is_zero() {
                call.cancellation.cancel();
                tokio::time::sleep(stop_grace).await;
            }
        };
        let output = tokio::select! {
            biased;
            () = stopped => {
                Err(ToolError::new(ErrorKind::Cancelled, "the call was cancelled"))
            }
            output = catch_panic(registered.tool.run(arguments, call)) => output,
            () = deadline.wait_until_passed(grace) => {
                Err(timed_out(&registered.entry.name, effective_timeout))
            }
        };
        let output = output.map_err(|error| match error.kind() {
            // A tool that enforces the deadline itself may report it in other words; callers get the same error.
            ErrorKind::Timeout if !grace.is_zero() && call.time_left() <= TIMEOUT_TOLERANCE => {
                timed_out(&registered.entry.name, effective_timeout).with_logs(error.into_logs())
            }
            _ => error,
        })?;
        drop(guard);

        let content_bytes: usize = output.content.iter().map(block_size).sum();
        let result_bytes = json_size(&output.value) + content_bytes;
        // Results of administrative calls have no size limit.
        if result_bytes > self.limits.result_bytes && !registered.is_hidden() {
            return Err(ToolError::new(
                ErrorKind::TooLarge,
                format!("the result is {result_bytes} bytes; the limit is {}", self.limits.result_bytes),
            ));
        }
        registered.observations.record(&output);
        Ok((output, result_bytes))
    }
}

/// Fills in defaults and validates arguments against the tool's schema. Both are untrusted, so anything that may take
/// long runs on the blocking pool.
async fn prepare_arguments(
    registered: &Arc<RegisteredTool>,
    arguments: Value,
    argument_bytes: usize,
) -> Result<Map<String, Value>, ToolError> {
    let (arguments, body_form) =
        match argument_bytes <= INLINE_BYTES_MAX && registered.argument_schema.is_compiled() {
            false => (arguments, None),
            true => match registered.argument_schema.get(&registered.entry).prepare_inline(arguments) {
                InlineCheck::Done(done) => return done,
                InlineCheck::Deferred(arguments, body_form) => (arguments, Some(body_form)),
            },
        };
    let registered = registered.clone();
    let prepare = move || {
        let schema = registered.argument_schema.get(&registered.entry);
        match body_form {
            Some(body_form) => schema.check(arguments, body_form),
            None => schema.prepare(arguments),
        }
    };
    let prepared = tokio::task::spawn_blocking(prepare).await;
    prepared.unwrap_or_else(|error| Err(ToolError::internal("cannot validate the arguments", error)))
}

/// A run being recorded. If the caller disconnects, the call is dropped, and the run is recorded even then.
struct RunRecorder<'a> {
    runs: &'a dyn RunLog,
    started: Instant,
    run: Option<Run>,
}

impl RunRecorder<'_> {
    fn close(&mut self, outcome: RunOutcome, result_bytes: usize) {
        if let Some(run) = self.run.take() {
            self.runs.record(Run { duration: self.started.elapsed(), outcome, result_bytes, ..run });
        }
    }
}

impl Drop for RunRecorder<'_> {
    fn drop(&mut self) {
        self.close(abandoned_outcome(), 0);
    }
}

fn abandoned_outcome() -> RunOutcome {
    let message = "the caller disconnected".to_owned();
    RunOutcome::Failed { code: run_code(ErrorKind::Cancelled).to_owned(), message }
}

/// The code with which a run is recorded. [`ErrorKind::Cancelled`] has no code of its own for clients, because the
/// client of a cancelled call is gone or stopping; the run log distinguishes it from overload.
fn run_code(kind: ErrorKind) -> &'static str {
    if kind == ErrorKind::Cancelled { "cancelled" } else { kind.code() }
}

/// Converts a panic of a tool into an error of its call.
async fn catch_panic<T>(run: impl Future<Output = Result<T, ToolError>>) -> Result<T, ToolError> {
    AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(ToolError::internal("the tool panicked", text))
    })
}

fn timed_out(name: &ToolName, after: Duration) -> ToolError {
    let seconds = after.as_secs_f64();
    // Whole seconds read better; a deadline set by the caller is rarely whole.
    let shown = if (seconds - seconds.round()).abs() < 0.005 {
        seconds.round()
    } else {
        (seconds * 10.0).ceil() / 10.0
    };
    let unit = if shown == 1.0 { "second" } else { "seconds" };
    ToolError::new(ErrorKind::Timeout, format!("tool '{}' timed out after {shown} {unit}", name.outward()))
}

fn block_size(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text(text) => text.len(),
        ContentBlock::Other(fields) => json_size(fields),
    }
}

/// Size of a value as JSON, counted without storing the text.
pub fn json_size(value: &impl Serialize) -> usize {
    struct ByteCounter(usize);
    impl io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = ByteCounter(0);
    // Counting cannot fail; a value that cannot be serialised counts as 0.
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => 0,
    }
}
