//! All tools at one moment, and the one door to them.
//!
//! A catalog is immutable; a reload builds another and swaps the pointer, and calls in flight keep
//! the one they began with. It hands out specs, never tools: whoever wants a tool to run comes
//! through [`Catalog::call`], where names, policy, schema, limits and the run log live.

mod left_out;
mod settled;

use crate::agent::{self, Agents};
use crate::error::{chain, whole_seconds};
use crate::fitting::Fitting;
use crate::observed::Observed;
use crate::rate::Meter;
use crate::resource::{self, Origins};
use crate::run::{bounded, cut_text};
use crate::schema::InlineCheck;
use crate::{
    Agent, AgentSpec, AllowAll, Call, Caller, Completable, Completing, Completions, ContentBlock, Decision,
    Discard, ErrorKind, Identifier, Identity, Keeper, Limits, Outcome, Output, Policy, Prompt, Provider,
    Redactor, ResourceContent, Resources, Run, RunLog, Tool, ToolError, ToolName, ToolSpec, nearest,
};
use futures::FutureExt;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Stands for a bound beyond what an `Instant` can name: thirty years.
const FOREVER: Duration = Duration::from_secs(86_400 * 365 * 30);

/// How much before its deadline a tool may find it to be over: some clocks count in milliseconds.
const EARLY: Duration = Duration::from_millis(10);

/// Largest arguments that are masked and validated on the runtime thread; larger ones go to the blocking pool.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// How long completing what is typed may take; what takes longer completes nothing.
const COMPLETING_MAX: Duration = Duration::from_secs(5);

/// Everything callable at one moment.
#[derive(Clone)]
pub struct Catalog {
    /// By full name.
    tools: BTreeMap<String, Arc<Registered>>,
    /// Outward name to full name.
    outward: BTreeMap<String, String>,
    /// Those that have a tool here, and those that may have one.
    providers: BTreeSet<Identifier>,
    /// Those whose tools were not known when this was built.
    unknown: BTreeMap<Identifier, Arc<dyn Provider>>,
    /// Those that are configured but may not be used, or not in full, each with the reason.
    left_out: BTreeMap<Identifier, String>,
    agents: BTreeMap<String, Persona>,
    /// In the order of their providers.
    resources: Vec<Arc<dyn Resources>>,
    keeper: Option<Arc<dyn Keeper>>,
    limits: Limits,
    policy: Arc<dyn Policy>,
    runs: Arc<dyn RunLog>,
    redactor: Redactor,
    warnings: Vec<String>,
}

struct Registered {
    entry: Entry,
    tool: Arc<dyn Tool>,
    fitting: Arc<Fitting>,
    observed: Arc<Observed>,
    meter: Option<Arc<Meter>>,
}

/// An agent and what it said of itself when the catalog was built.
#[derive(Clone)]
struct Persona {
    spec: Arc<AgentSpec>,
    agent: Arc<dyn Agent>,
}

/// What a catalog tells of one tool.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its full name.
    pub name: ToolName,
    /// What it says of itself.
    pub spec: Arc<ToolSpec>,
    /// Whether the product ships it.
    pub builtin: bool,
    /// Whether clients see it in listings.
    pub exposed: bool,
}

impl Catalog {
    /// Begins a catalog.
    pub fn builder() -> CatalogBuilder {
        CatalogBuilder {
            providers: Vec::new(),
            limits: Limits::default(),
            policy: Arc::new(AllowAll),
            runs: Arc::new(Discard),
            redactor: Redactor::default(),
            left_out: BTreeMap::new(),
            old: None,
        }
    }

    /// Every tool, by full name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.tools.values().map(|registered| &registered.entry)
    }

    /// Every tool that is a function to scripts: all but those behind which agents and resources stand.
    pub fn functions(&self) -> impl Iterator<Item = &Entry> {
        let hidden = [agent::PROVIDER, resource::PROVIDER];
        self.entries().filter(move |entry| !hidden.contains(&entry.name.provider().as_str()))
    }

    /// The tools that clients see, in a stable order: what is built in first.
    pub fn listed(&self) -> impl Iterator<Item = &Entry> {
        let exposed =
            |builtin: bool| self.entries().filter(move |entry| entry.exposed && entry.builtin == builtin);
        exposed(true).chain(exposed(false))
    }

    /// What is told of one tool, by full or outward name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.registered(name).map(|registered| &registered.entry)
    }

    /// The schema of a tool's arguments, by full or outward name. Once it was asked for it is there.
    pub fn input_schema(&self, name: &str) -> Option<&Value> {
        let registered = self.registered(name)?;
        Some(registered.fitting.schema(&registered.entry).json())
    }

    /// Compiles the schema of a tool's arguments on the blocking pool, by full or outward name. A later
    /// [`Catalog::input_schema`] does not have to.
    pub async fn compile_schema(&self, name: &str) {
        let Some(registered) = self.registered(name).filter(|found| !found.fitting.is_compiled()) else {
            return;
        };
        let registered = registered.clone();
        let compiling = move || registered.fitting.schema(&registered.entry).json().is_object();
        if let Err(error) = tokio::task::spawn_blocking(compiling).await {
            tracing::error!(%error, "a schema was not compiled");
        }
    }

    /// The first halves of the tools' names, however many tools there are, and of those that are not known.
    pub fn providers(&self) -> impl Iterator<Item = &Identifier> {
        self.providers.iter()
    }

    /// Providers whose tools were not known when this was built, and how that is now. What is called by their
    /// names waits until it is known.
    pub fn unknown(&self) -> impl Iterator<Item = (&Identifier, Option<String>)> {
        self.unknown.iter().map(|(name, provider)| (name, provider.unknown()))
    }

    /// Whether a provider's tools were not known when this was built.
    pub fn is_unknown(&self, provider: &Identifier) -> bool {
        self.unknown.contains_key(provider)
    }

    /// Every agent, by name.
    pub fn agents(&self) -> impl Iterator<Item = &AgentSpec> {
        self.agents.values().map(|persona| &*persona.spec)
    }

    /// Resolves an agent to its prompt, through the same door as every call.
    pub async fn prompt(name: &str, arguments: Value, call: Call) -> Result<Prompt, ToolError> {
        let catalog = call.root.catalog.clone();
        catalog.persona(name)?;
        let output = Self::call(&agent::tool_name(name), arguments, call).await?;
        serde_json::from_value(output.value)
            .map_err(|error| ToolError::internal("the agent's prompt cannot be read", error))
    }

    fn persona(&self, name: &str) -> Result<&Persona, ToolError> {
        self.agents.get(name).ok_or_else(|| {
            let name = cut_text(name, 100);
            let near = nearest(&name, self.agents.keys().map(String::as_str));
            let hint = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            ToolError::not_found(format!("no agent registered with name: {name}{hint}"))
        })
    }

    /// What an argument can be. Whoever may not resolve the agent, or read the resource, may not ask.
    pub async fn complete(asked: &Completing, call: Call) -> Result<Completions, ToolError> {
        let catalog = call.root.catalog.clone();
        let permit = |tool: &str| catalog.permit(tool, call.caller(), call.identity());
        let completing = async {
            match &asked.of {
                Completable::Agent(name) => {
                    let persona = catalog.persona(name)?;
                    permit(&agent::tool_name(name))?;
                    persona.agent.complete(asked).await
                }
                Completable::Template(uri) => match catalog.origin(uri) {
                    // What is not ours has nothing to complete.
                    None => Ok(Completions::default()),
                    Some(origin) => {
                        permit(&resource::tool_name(origin.prefix()))?;
                        origin.complete(asked).await
                    }
                },
            }
        };
        // Whoever types does not wait.
        let completed = tokio::time::timeout(COMPLETING_MAX, completing).await;
        completed.unwrap_or_else(|_| Ok(Completions::default())).map_err(|error| catalog.mask(error))
    }

    /// Where resources whose URIs begin like this one come from.
    pub fn origin(&self, uri: &str) -> Option<&Arc<dyn Resources>> {
        self.resources.iter().find(|origin| uri.starts_with(origin.prefix()))
    }

    /// Every origin of resources.
    pub fn resources(&self) -> &[Arc<dyn Resources>] {
        &self.resources
    }

    /// Reads a resource, through the same door as every call.
    pub async fn read(uri: &str, call: Call) -> Result<Vec<ResourceContent>, ToolError> {
        let catalog = call.root.catalog.clone();
        let Some(origin) = catalog.origin(uri) else {
            let error = ToolError::not_found(format!("no resource has the URI {}", cut_text(uri, 200)));
            return Err(catalog.mask(error));
        };
        let output = Self::call(&resource::tool_name(origin.prefix()), json!({ "uri": uri }), call).await?;
        serde_json::from_value(output.value)
            .map_err(|error| ToolError::internal("the resource cannot be read", error))
    }

    /// What keeps files, which only [`Call::keep`] and [`Call::kept`] ask.
    pub(crate) fn keeper(&self) -> Option<&dyn Keeper> {
        self.keeper.as_deref()
    }

    /// The bounds every call has.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What masks secrets in runs and errors.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// What was wrong with the tools it was built from; none of it stopped it.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The one door: finds the tool by full or outward name, asks the policy, fits the arguments,
    /// keeps limits, runs it, records the run.
    pub async fn call(name: &str, arguments: Value, mut call: Call) -> Result<Output, ToolError> {
        let (catalog, nested) = (call.root.catalog.clone(), call.root.nested.clone());
        let is_outermost = call.depth == 0;
        let registered = &catalog.find(name).map_err(|error| catalog.mask(error))?;
        let started = Instant::now();
        let argument_bytes = json_size(&arguments);
        if !is_outermost {
            nested.begin();
        }
        let mut record = Record {
            runs: &*catalog.runs,
            started,
            run: Some(Run {
                id: call.run,
                parent: call.parent,
                tool: registered.entry.name.to_string(),
                caller: call.root.caller.to_string(),
                started_at: Timestamp::now(),
                duration: Duration::ZERO,
                arguments: Value::Null,
                argument_bytes,
                result_bytes: 0,
                outcome: abandoned(),
            }),
        };

        let result = match catalog.mask_arguments(arguments, argument_bytes).await {
            Ok((arguments, masked)) => {
                if let Some(run) = &mut record.run {
                    run.arguments = masked;
                }
                match catalog.admit(registered, arguments, argument_bytes, &call).await {
                    Ok(arguments) => {
                        if is_outermost {
                            call.peer().admitted();
                        }
                        catalog.run(registered, arguments, &mut call, started).await
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            Err(error) => Err(error),
        };
        let result = result.map_err(|error| catalog.mask(error)).map(|(mut output, bytes)| {
            for line in &mut output.logs {
                line.message = catalog.masked(std::mem::take(&mut line.message));
            }
            (output, bytes)
        });
        match &result {
            Ok((_, result_bytes)) => {
                if !is_outermost {
                    nested.answered(*result_bytes);
                }
                record.close(Outcome::Ok, *result_bytes);
            }
            Err(error) => {
                if error.kind() == ErrorKind::Internal {
                    let error = catalog.masked(chain(error));
                    tracing::error!(tool = %registered.entry.name, %error, "call failed");
                }
                let message = cut_text(error.message(), catalog.limits.run_bytes);
                record.close(Outcome::Failed { code: run_code(error.kind()).to_owned(), message }, 0);
            }
        }
        match result {
            Ok((output, bytes)) if is_outermost => Ok(Output { inside: nested.inside(bytes), ..output }),
            Err(error) if is_outermost => Err(error.with_inside(nested.inside(0))),
            other => other.map(|(output, _)| output),
        }
    }

    /// Whether a tool was seen to answer with JSON text instead of a value, since its definition is what it is.
    pub fn answers_json_text(&self, name: &ToolName) -> bool {
        self.tools.get(&name.to_string()).is_some_and(|registered| registered.observed.answers_json_text())
    }

    /// Whether this caller may call a tool that goes by this full or outward name, as the policy has it.
    /// Calling asks the same; this is for those who must know before.
    pub fn permit(&self, name: &str, caller: &Caller, identity: Option<&Identity>) -> Result<(), ToolError> {
        let registered = self.find(name).map_err(|error| self.mask(error))?;
        self.decide(&registered.entry, caller, identity)
    }

    fn decide(&self, entry: &Entry, caller: &Caller, identity: Option<&Identity>) -> Result<(), ToolError> {
        let name = &entry.name;
        let refusal =
            |reason: &str| ToolError::new(ErrorKind::Forbidden, format!("{name} is not allowed: {reason}"));
        match self.policy.decide(name, &entry.spec, caller, identity) {
            Decision::Allow => Ok(()),
            Decision::Deny(reason) => Err(refusal(&reason)),
            Decision::NeedsScopes(needed) => {
                let granted = |scope: &&String| identity.is_some_and(|known| known.scopes.contains(*scope));
                let lacking: Vec<String> =
                    needed.iter().filter(|scope| !granted(scope)).map(|scope| format!("`{scope}`")).collect();
                let scope = if lacking.len() == 1 { "scope" } else { "scopes" };
                let reason = format!("the caller lacks the {scope} {}", lacking.join(", "));
                Err(refusal(&reason).with_scopes(needed))
            }
        }
    }

    /// The arguments, and their copy for the run log: masked and cut. Large arguments are masked on the blocking pool.
    async fn mask_arguments(
        &self,
        arguments: Value,
        argument_bytes: usize,
    ) -> Result<(Value, Value), ToolError> {
        let (redactor, run_bytes) = (self.redactor.clone(), self.limits.run_bytes);
        let mask = move |arguments: Value| {
            let masked = bounded(redactor.json(&arguments), argument_bytes, run_bytes);
            (arguments, masked)
        };
        if argument_bytes <= INLINE_BYTES_MAX {
            return Ok(mask(arguments));
        }
        let masked = tokio::task::spawn_blocking(move || mask(arguments)).await;
        masked.map_err(|error| ToolError::internal("the arguments cannot be masked", error))
    }

    fn mask(&self, error: ToolError) -> ToolError {
        error.map_text(|text| self.masked(text))
    }

    /// A text without secrets.
    pub(crate) fn masked(&self, text: String) -> String {
        self.redactor.text(text)
    }

    fn registered(&self, name: &str) -> Option<&Arc<Registered>> {
        let full = self.outward.get(name).map_or(name, String::as_str);
        self.tools.get(full)
    }

    fn find(&self, name: &str) -> Result<Arc<Registered>, ToolError> {
        let found = self.registered(name).cloned().or_else(|| self.presumed(name));
        found.ok_or_else(|| {
            let name = cut_text(name, 100);
            if let Some(reason) = self.left_out_reason_of(&name) {
                return ToolError::not_found(format!("no tool registered with name: {name} ({reason})"));
            }
            let names = self.outward.keys().chain(self.tools.keys()).map(String::as_str);
            ToolError::not_found(match nearest(&name, names) {
                Some(near) => format!("no tool registered with name: {name} (did you mean `{near}`?)"),
                None => format!("no tool registered with name: {name}"),
            })
        })
    }

    /// What may be a tool of a provider whose tools are not known.
    fn presumed(&self, name: &str) -> Option<Arc<Registered>> {
        let (provider, tool) = name.split_once('.')?;
        let (provider, tool) = (Identifier::sanitize(provider), Identifier::sanitize(tool));
        let origin = self.unknown.get(&provider)?;
        let tool = origin.presumed(&tool)?;
        let name = ToolName::new(provider, Identifier::sanitize(&tool.spec().name));
        Some(Arc::new(Registered {
            entry: Entry { name, spec: tool.spec(), builtin: origin.builtin(), exposed: false },
            fitting: Arc::new(Fitting::unchecked(&tool.spec())),
            observed: Arc::default(),
            tool,
            meter: None,
        }))
    }

    /// Everything that must hold before a tool runs.
    async fn admit(
        &self,
        registered: &Arc<Registered>,
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
        let arguments = fit(registered, arguments, argument_bytes).await?;
        if let Some(meter) = &registered.meter {
            meter.take().map_err(|wait| {
                let message =
                    format!("{} is called too often; try again in {} s", name.outward(), whole_seconds(wait));
                ToolError::new(ErrorKind::RateLimited, message).retry_after(wait)
            })?;
        }
        Ok(arguments)
    }

    async fn run(
        &self,
        registered: &Registered,
        arguments: Map<String, Value>,
        call: &mut Call,
        started: Instant,
    ) -> Result<(Output, usize), ToolError> {
        let timeout = registered.tool.timeout().unwrap_or(self.limits.call_timeout);
        let own_deadline = started.checked_add(timeout).unwrap_or(started + FOREVER);
        let deadline = call.no_later_than(own_deadline);
        let (bound, grace) = (deadline.at() - started, registered.tool.grace());
        call.deadline = Some(deadline.clone());
        if call.time_left().is_zero() {
            return Err(timed_out(&registered.entry.name, bound));
        }

        // However this ends, what the tool started in this call's name ends with it.
        let guard = call.cancellation.clone().drop_guard();
        let call = &*call;
        let output = tokio::select! {
            biased;
            () = call.cancelled() => {
                Err(ToolError::new(ErrorKind::Cancelled, "the call was cancelled"))
            }
            output = contained(registered.tool.run(arguments, call)) => output,
            () = deadline.passed(grace) => {
                Err(timed_out(&registered.entry.name, bound))
            }
        };
        let output = output.map_err(|error| match error.kind() {
            // However such a tool says that its time was over, it is told the same way.
            ErrorKind::Timeout if !grace.is_zero() && call.time_left() <= EARLY => {
                timed_out(&registered.entry.name, bound).with_logs(error.into_logs())
            }
            _ => error,
        })?;
        drop(guard);

        let content_bytes: usize = output.content.iter().map(block_size).sum();
        let result_bytes = json_size(&output.value) + content_bytes;
        if result_bytes > self.limits.result_bytes {
            return Err(ToolError::new(
                ErrorKind::TooLarge,
                format!("the result is {result_bytes} bytes; the limit is {}", self.limits.result_bytes),
            ));
        }
        registered.observed.note(&output.value);
        Ok((output, result_bytes))
    }
}

/// Fills in defaults and validates arguments by their tool's schema. Schemas and arguments are untrusted, so whatever
/// may take long runs on the blocking pool.
async fn fit(
    registered: &Arc<Registered>,
    arguments: Value,
    argument_bytes: usize,
) -> Result<Map<String, Value>, ToolError> {
    let (arguments, given) = match argument_bytes <= INLINE_BYTES_MAX && registered.fitting.is_compiled() {
        false => (arguments, None),
        true => match registered.fitting.schema(&registered.entry).prepare_inline(arguments) {
            InlineCheck::Done(done) => return done,
            InlineCheck::Deferred(arguments, given) => (arguments, Some(given)),
        },
    };
    let registered = registered.clone();
    let fitting = move || {
        let schema = registered.fitting.schema(&registered.entry);
        match given {
            Some(given) => schema.check(arguments, given),
            None => schema.prepare(arguments),
        }
    };
    let fitted = tokio::task::spawn_blocking(fitting).await;
    fitted.unwrap_or_else(|error| Err(ToolError::internal("the arguments cannot be checked", error)))
}

/// A run being recorded. A caller that goes away drops the call; the run is recorded even so.
struct Record<'a> {
    runs: &'a dyn RunLog,
    started: Instant,
    run: Option<Run>,
}

impl Record<'_> {
    fn close(&mut self, outcome: Outcome, result_bytes: usize) {
        if let Some(run) = self.run.take() {
            self.runs.record(Run { duration: self.started.elapsed(), outcome, result_bytes, ..run });
        }
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        self.close(abandoned(), 0);
    }
}

fn abandoned() -> Outcome {
    let message = "the caller went away".to_owned();
    Outcome::Failed { code: run_code(ErrorKind::Cancelled).to_owned(), message }
}

/// The code a run is recorded with. Clients of a call that was cancelled are gone or stopping, so
/// it has no code of its own for them; the record should still tell it from overload.
fn run_code(kind: ErrorKind) -> &'static str {
    if kind == ErrorKind::Cancelled { "cancelled" } else { kind.code() }
}

/// Collects what a [`Catalog`] is made of.
pub struct CatalogBuilder {
    providers: Vec<Arc<dyn Provider>>,
    limits: Limits,
    policy: Arc<dyn Policy>,
    runs: Arc<dyn RunLog>,
    redactor: Redactor,
    left_out: BTreeMap<Identifier, String>,
    old: Option<BTreeMap<String, Arc<Registered>>>,
}

impl CatalogBuilder {
    /// Adds a provider's tools.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Sets the bounds.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets who may call what.
    #[must_use]
    pub fn policy(self, policy: Arc<dyn Policy>) -> Self {
        Self { policy, ..self }
    }

    /// Sets where runs go.
    #[must_use]
    pub fn runs(self, runs: Arc<dyn RunLog>) -> Self {
        Self { runs, ..self }
    }

    /// Sets what is masked in runs and errors.
    #[must_use]
    pub fn redactor(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    /// Takes over from the catalog this one replaces: counts of rate limits, and compiled schemas of tools that
    /// are still the same.
    #[must_use]
    pub fn replacing(self, old: &Catalog) -> Self {
        Self { old: Some(old.tools.clone()), ..self }
    }

    /// Builds it. A tool that cannot be taken is left out with a warning; it never stops the rest.
    pub fn build(self) -> Arc<Catalog> {
        let mut catalog = Catalog {
            tools: BTreeMap::new(),
            outward: BTreeMap::new(),
            providers: BTreeSet::new(),
            unknown: BTreeMap::new(),
            left_out: self.left_out,
            agents: BTreeMap::new(),
            resources: Vec::new(),
            keeper: self.providers.iter().find_map(|provider| provider.keeper()),
            limits: self.limits,
            policy: self.policy,
            runs: self.runs,
            redactor: self.redactor,
            warnings: Vec::new(),
        };
        let mut agents: Vec<Arc<dyn Agent>> = Vec::new();
        let mut agent_names = BTreeSet::new();
        for provider in &self.providers {
            if let Some(origin) = provider.resources() {
                let taken = catalog.resources.iter().any(|other| {
                    let (one, another) = (origin.prefix(), other.prefix());
                    let alike = resource::tool_name(one) == resource::tool_name(another);
                    alike || one.starts_with(another) || another.starts_with(one)
                });
                match taken {
                    true => catalog.warnings.push(format!(
                        "resources of {} are left out: {} is taken",
                        provider.name(),
                        origin.prefix()
                    )),
                    false => catalog.resources.push(origin),
                }
            }
            for agent in provider.agents() {
                let name = agent.spec().name.clone();
                match agent_names.insert(agent::tool_name(&name)) {
                    true => agents.push(agent),
                    false => {
                        catalog.warnings.push(format!("an agent is left out: the name `{name}` is taken"))
                    }
                }
            }
        }
        let persona = |agent: &Arc<dyn Agent>| Persona { spec: agent.spec(), agent: agent.clone() };
        catalog.agents =
            agents.iter().map(persona).map(|persona| (persona.spec.name.clone(), persona)).collect();
        // Before all others: nobody else's tool may answer for them.
        let old = self.old.unwrap_or_default();
        catalog.register(&Agents(agents), &old);
        catalog.register(&Origins(catalog.resources.clone()), &old);
        for provider in &self.providers {
            catalog.register(&**provider, &old);
            if provider.unknown().is_some() {
                catalog.providers.insert(provider.name());
                catalog.unknown.insert(provider.name(), provider.clone());
            }
        }
        Arc::new(catalog)
    }
}

impl Catalog {
    fn register(&mut self, provider: &dyn Provider, old: &BTreeMap<String, Arc<Registered>>) {
        let tools: Vec<_> = provider.tools().into_iter().map(|tool| (tool.spec(), tool)).collect();
        let names = Identifier::sanitize_all(tools.iter().map(|(spec, _)| spec.name.as_str()));
        for ((spec, tool), identifier) in tools.into_iter().zip(names) {
            let name = ToolName::new(provider.name(), identifier);
            if name.tool() != &Identifier::sanitize(&spec.name) {
                self.warnings.push(format!(
                    "two tools of {} collide; `{}` is now {name}",
                    provider.name(),
                    spec.name
                ));
            }
            let full = name.to_string();
            let outward = name.outward();
            // What clients do not see takes no name from what they see.
            let other = self.outward.get(&outward).and_then(|other| self.tools.get(other));
            let is_seen = |other: &Arc<Registered>| other.entry.exposed;
            let (is_free, is_taken) = (other.is_none(), other.is_some_and(is_seen) && provider.exposed());
            if self.tools.contains_key(&full) || is_taken {
                self.warnings.push(format!("{name} is left out: the name `{outward}` is taken"));
                continue;
            }
            let old = old.get(&full);
            let meter = tool.rate_limit().map(|limit| match old.and_then(|old| old.meter.as_ref()) {
                Some(meter) if meter.limit == limit => meter.clone(),
                _ => Arc::new(Meter::new(limit)),
            });
            let is_same = |old: &&Arc<Registered>| Arc::ptr_eq(&old.entry.spec, &spec);
            let old = old.filter(is_same).map(|old| (old.fitting.clone(), old.observed.clone()));
            let (fitting, observed) = old.unwrap_or_default();
            let entry = Entry { name, spec, builtin: provider.builtin(), exposed: provider.exposed() };
            // What has to be made first is compiled when it is first called.
            if !entry.spec.input_schema.is_made() {
                self.warnings.extend(fitting.fault(&entry).map(str::to_owned));
            }
            self.providers.insert(entry.name.provider().clone());
            if is_free || entry.exposed {
                self.outward.insert(outward, full.clone());
            }
            self.tools.insert(full, Arc::new(Registered { entry, tool, fitting, observed, meter }));
        }
    }
}

/// A tool that panics fails alone.
async fn contained(run: impl Future<Output = Result<Output, ToolError>>) -> Result<Output, ToolError> {
    AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(ToolError::internal("the tool panicked", text))
    })
}

fn timed_out(name: &ToolName, after: Duration) -> ToolError {
    let seconds = after.as_secs_f64();
    // Whole seconds read better; a deadline set from outside is rarely whole.
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

/// Size of a value as JSON, without keeping the text.
pub fn json_size(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail; a value that cannot be written has no size.
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => 0,
    }
}
