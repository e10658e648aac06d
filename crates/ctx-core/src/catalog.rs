//! All tools at one moment.
//!
//! A catalog is immutable; a reload builds another and swaps the pointer, and calls in flight keep
//! the one they began with. It hands out specs, never tools: whoever wants a tool to run comes
//! through [`Catalog::call`] (`door.rs`). How one is built is in `build.rs`.

mod build;
mod door;
mod left_out;
mod settled;

pub use build::CatalogBuilder;
pub use door::json_size;

use crate::agent;
use crate::fitting::Fitting;
use crate::observed::Observed;
use crate::rate::{Meter, Meters};
use crate::resource;
use crate::run::cut_text;
use crate::{
    Agent, AgentSpec, BuiltinProvider, Call, Completable, Completing, Completions, Identifier, Keeper,
    Limits, Policy, Prompt, Redactor, ResourceContent, Resources, RunLog, Tool, ToolError, ToolName,
    ToolSpec, nearest,
};
use serde_json::{Value, json};
use settled::AwaitedProvider;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long completing what is typed may take; what takes longer completes nothing.
const COMPLETING_MAX: Duration = Duration::from_secs(5);

/// Everything callable at one moment.
#[derive(Clone)]
pub struct Catalog {
    /// By full name.
    tools: BTreeMap<String, Arc<Registered>>,
    /// Tools of hidden providers, by full name. Only the door looks here, for administrative calls.
    hidden: BTreeMap<String, Arc<Registered>>,
    /// Outward name to full name.
    outward: BTreeMap<String, String>,
    /// Those that have a tool here, and those that may have one.
    providers: BTreeSet<Identifier>,
    /// Those whose tools were not known when this was built.
    unknown: BTreeMap<Identifier, Arc<AwaitedProvider>>,
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
    /// Shared with the catalogs that this one replaces and is replaced by.
    meters: Arc<Meters>,
    warnings: Vec<String>,
}

struct Registered {
    entry: Entry,
    tool: Arc<dyn Tool>,
    fitting: Arc<Fitting>,
    observed: Arc<Observed>,
    meter: Option<Arc<Meter>>,
}

impl Registered {
    /// Whether only the program itself may call it.
    fn is_hidden(&self) -> bool {
        has_hidden_tools(self.entry.name.provider())
    }
}

/// Whether the tools of a provider are only for the program itself.
fn has_hidden_tools(provider: &Identifier) -> bool {
    BuiltinProvider::named(provider.as_str()).is_some_and(BuiltinProvider::is_hidden)
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
    /// Every tool, by full name. Hidden ones are in no listing and have no entry.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.tools.values().map(|registered| &registered.entry)
    }

    /// Every tool that is a function to scripts: all but those behind which agents and resources stand.
    pub fn functions(&self) -> impl Iterator<Item = &Entry> {
        let is_hidden = |provider: &Identifier| {
            BuiltinProvider::named(provider.as_str()).is_some_and(|builtin| !builtin.has_functions())
        };
        self.entries().filter(move |entry| !is_hidden(entry.name.provider()))
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
        let registered = self.registered(name).or_else(|| self.called_early(name))?;
        Some(registered.fitting.schema(&registered.entry).json())
    }

    /// The first halves of the tools' names, however many tools there are, and of those that are not known.
    pub fn providers(&self) -> impl Iterator<Item = &Identifier> {
        self.providers.iter()
    }

    /// Providers whose tools were not known when this was built, and how that is now. What is called by their
    /// names waits until it is known.
    pub fn unknown(&self) -> impl Iterator<Item = (&Identifier, Option<String>)> {
        self.unknown.iter().map(|(name, provider)| (name, provider.get().unknown()))
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
        let permit = async |tool: String| catalog.permit(&tool, call.caller(), call.identity()).await;
        let completing = async {
            match &asked.of {
                Completable::Agent(name) => {
                    let persona = catalog.persona(name)?;
                    permit(agent::tool_name(name)).await?;
                    persona.agent.complete(asked).await
                }
                Completable::Template(uri) => match catalog.origin(uri) {
                    // What is not ours has nothing to complete.
                    None => Ok(Completions::default()),
                    Some(origin) => {
                        permit(resource::tool_name(origin.prefix())).await?;
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

    /// Whether a tool was seen to answer with JSON text instead of a value, since its definition is what it is.
    pub fn answers_json_text(&self, name: &ToolName) -> bool {
        let full = name.to_string();
        let registered = self.tools.get(&full).or_else(|| self.called_early(&full));
        registered.is_some_and(|registered| registered.observed.answers_json_text())
    }

    fn registered(&self, name: &str) -> Option<&Arc<Registered>> {
        let full = self.outward.get(name).map_or(name, String::as_str);
        self.tools.get(full)
    }

    /// A tool by its full name, of a provider that is known since this was built and was called.
    fn called_early(&self, full: &str) -> Option<&Arc<Registered>> {
        let (provider, _) = full.split_once('.')?;
        let awaited = self.unknown.get(&Identifier::sanitize(provider))?;
        awaited.registered().iter().find(|registered| registered.entry.name.to_string() == full)
    }
}

/// Compiles the schema of a tool's arguments on the blocking pool, where it is not.
async fn compile(registered: &Arc<Registered>) {
    if registered.fitting.is_compiled() {
        return;
    }
    let registered = registered.clone();
    let compiling = move || registered.fitting.schema(&registered.entry).json().is_object();
    if let Err(error) = tokio::task::spawn_blocking(compiling).await {
        tracing::error!(%error, "a schema was not compiled");
    }
}
