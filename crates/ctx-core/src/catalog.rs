//! All tools at one moment, as an immutable snapshot.
//!
//! A reload builds another catalog and swaps the pointer; calls in flight keep theirs. A catalog hands out specs, never
//! tools: a tool runs only through [`Catalog::call`] (`door.rs`). `build.rs` builds catalogs.

mod awaited_provider;
mod build;
mod door;
mod unusable;

pub use build::CatalogBuilder;
pub use door::json_size;

use crate::agent;
use crate::lazy_argument_schema::LazyArgumentSchema;
use crate::rate::{Meters, RateLimiter};
use crate::resource;
use crate::result_observations::ResultObservations;
use crate::run::cut_text;
use crate::{
    Agent, AgentSpec, BuiltinProvider, Call, CompletionRequest, CompletionTarget, Completions, FileStore,
    Identifier, Limits, Policy, Prompt, Redactor, ResourceContent, Resources, RunLog, Tool, ToolError,
    ToolName, ToolSpec, nearest,
};
use awaited_provider::AwaitedProvider;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Timeout of a completion; after it, the result is empty.
const COMPLETING_MAX: Duration = Duration::from_secs(5);

/// An immutable snapshot of all tools, agents and resources.
#[derive(Clone)]
pub struct Catalog {
    /// Tools by full name.
    tools: BTreeMap<String, Arc<RegisteredTool>>,
    /// Tools of hidden providers, by full name. Only administrative calls can reach them.
    hidden: BTreeMap<String, Arc<RegisteredTool>>,
    /// Outward name to full name.
    outward: BTreeMap<String, String>,
    /// Names of the providers that have a tool here, or may get one (see `unknown`).
    providers: BTreeSet<Identifier>,
    /// Providers whose tools were unknown when this catalog was built, such as servers that were still connecting.
    unknown: BTreeMap<Identifier, Arc<AwaitedProvider>>,
    /// Providers that are configured but unusable, wholly or in part, each with the reason.
    left_out: BTreeMap<Identifier, String>,
    agents: BTreeMap<String, RegisteredAgent>,
    /// In the order of their providers.
    resources: Vec<Arc<dyn Resources>>,
    keeper: Option<Arc<dyn FileStore>>,
    limits: Limits,
    policy: Arc<dyn Policy>,
    runs: Arc<dyn RunLog>,
    redactor: Redactor,
    /// Shared with the catalogs that this one replaces and that replace it.
    meters: Arc<Meters>,
    warnings: Vec<String>,
    /// The warnings, with those about schemas that are compiled on the first call; found when asked for.
    schema_faults: OnceLock<Vec<String>>,
}

struct RegisteredTool {
    entry: CatalogEntry,
    tool: Arc<dyn Tool>,
    argument_schema: Arc<LazyArgumentSchema>,
    observations: Arc<ResultObservations>,
    meter: Option<Arc<RateLimiter>>,
}

impl RegisteredTool {
    /// Whether only administrative calls may run it.
    fn is_hidden(&self) -> bool {
        has_hidden_tools(self.entry.name.provider())
    }
}

/// Whether only administrative calls may run the tools of a provider.
fn has_hidden_tools(provider: &Identifier) -> bool {
    BuiltinProvider::from_name(provider.as_str()).is_some_and(BuiltinProvider::is_hidden)
}

/// An agent with its spec when the catalog was built.
#[derive(Clone)]
struct RegisteredAgent {
    spec: Arc<AgentSpec>,
    agent: Arc<dyn Agent>,
}

/// Metadata of one tool in a catalog.
#[derive(Clone, Debug)]
pub struct CatalogEntry {
    /// Its full name.
    pub name: ToolName,
    /// The tool's own metadata.
    pub spec: Arc<ToolSpec>,
    /// Whether it is built in.
    pub builtin: bool,
    /// Whether clients see it in listings.
    pub exposed: bool,
}

impl Catalog {
    /// All tools by full name, except hidden ones: they are in no listing and have no entry.
    pub fn entries(&self) -> impl Iterator<Item = &CatalogEntry> {
        self.tools.values().map(|registered| &registered.entry)
    }

    /// All tools that scripts can call as functions: without those that resolve agents or read resources.
    pub fn functions(&self) -> impl Iterator<Item = &CatalogEntry> {
        let is_hidden = |provider: &Identifier| {
            BuiltinProvider::from_name(provider.as_str()).is_some_and(|builtin| !builtin.has_functions())
        };
        self.entries().filter(move |entry| !is_hidden(entry.name.provider()))
    }

    /// The tools that clients see, in a stable order: built-in ones first.
    pub fn client_tools(&self) -> impl Iterator<Item = &CatalogEntry> {
        let exposed =
            |builtin: bool| self.entries().filter(move |entry| entry.exposed && entry.builtin == builtin);
        exposed(true).chain(exposed(false))
    }

    /// Metadata of a tool, by full or outward name.
    pub fn entry(&self, name: &str) -> Option<&CatalogEntry> {
        self.find_registered(name).map(|registered| &registered.entry)
    }

    /// Schema of a tool's arguments, by full or outward name. Compiled on first use.
    pub fn input_schema(&self, name: &str) -> Option<&Value> {
        let registered = self.find_registered(name).or_else(|| self.find_awaited(name))?;
        Some(registered.argument_schema.get(&registered.entry).json())
    }

    /// Names of all providers, each once: those that have tools, and those whose tools are unknown.
    pub fn providers(&self) -> impl Iterator<Item = &Identifier> {
        self.providers.iter()
    }

    /// Providers whose tools were unknown when this catalog was built, each with the reason if they still are. Calls of
    /// such a provider wait until its tools are known.
    pub fn pending_providers(&self) -> impl Iterator<Item = (&Identifier, Option<String>)> {
        self.unknown.iter().map(|(name, provider)| (name, provider.get().unknown_reason()))
    }

    /// Whether a provider's tools were unknown when this catalog was built.
    pub fn is_pending(&self, provider: &Identifier) -> bool {
        self.unknown.contains_key(provider)
    }

    /// All agents, by name.
    pub fn agents(&self) -> impl Iterator<Item = &AgentSpec> {
        self.agents.values().map(|registered| &*registered.spec)
    }

    /// Resolves an agent to its prompt, by a call of its tool ([`Catalog::call`]).
    pub async fn prompt(name: &str, arguments: Value, call: Call) -> Result<Prompt, ToolError> {
        let catalog = call.root.catalog.clone();
        catalog.find_agent(name)?;
        let output = Self::call(&agent::tool_name(name), arguments, call).await?;
        serde_json::from_value(output.value)
            .map_err(|error| ToolError::internal("cannot deserialize the agent's prompt", error))
    }

    fn find_agent(&self, name: &str) -> Result<&RegisteredAgent, ToolError> {
        self.agents.get(name).ok_or_else(|| {
            let name = cut_text(name, 100);
            let near = nearest(&name, self.agents.keys().map(String::as_str));
            let hint = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
            ToolError::not_found(format!("no agent registered with name: {name}{hint}"))
        })
    }

    /// Completion values for an argument of an agent or URI template. The policy must allow the caller to resolve the
    /// agent or to read the resource.
    pub async fn complete(request: &CompletionRequest, call: Call) -> Result<Completions, ToolError> {
        let catalog = call.root.catalog.clone();
        let permit = async |tool: String| catalog.permit(&tool, call.caller(), call.identity()).await;
        let completing = async {
            match &request.target {
                CompletionTarget::Agent(name) => {
                    let registered = catalog.find_agent(name)?;
                    permit(agent::tool_name(name)).await?;
                    registered.agent.complete(request).await
                }
                CompletionTarget::Template(uri) => match catalog.origin(uri) {
                    // A URI template of no known origin has no completions.
                    None => Ok(Completions::default()),
                    Some(origin) => {
                        permit(resource::tool_name(origin.prefix())).await?;
                        origin.complete(request).await
                    }
                },
            }
        };
        // A user is typing: a completion that takes too long is empty, not an error.
        let completed = tokio::time::timeout(COMPLETING_MAX, completing).await;
        completed.unwrap_or_else(|_| Ok(Completions::default())).map_err(|error| catalog.mask_error(error))
    }

    /// The origin of a resource, by URI prefix.
    pub fn origin(&self, uri: &str) -> Option<&Arc<dyn Resources>> {
        self.resources.iter().find(|origin| uri.starts_with(origin.prefix()))
    }

    /// All origins of resources.
    pub fn resources(&self) -> &[Arc<dyn Resources>] {
        &self.resources
    }

    /// Reads a resource, by a call of its origin's tool ([`Catalog::call`]).
    pub async fn read(uri: &str, call: Call) -> Result<Vec<ResourceContent>, ToolError> {
        let catalog = call.root.catalog.clone();
        let Some(origin) = catalog.origin(uri) else {
            let error = ToolError::not_found(format!("no resource has the URI {}", cut_text(uri, 200)));
            return Err(catalog.mask_error(error));
        };
        let output = Self::call(&resource::tool_name(origin.prefix()), json!({ "uri": uri }), call).await?;
        serde_json::from_value(output.value)
            .map_err(|error| ToolError::internal("cannot deserialize the resource", error))
    }

    /// The store of kept files; used only by [`Call::keep`] and [`Call::kept`].
    pub(crate) fn file_store(&self) -> Option<&dyn FileStore> {
        self.keeper.as_deref()
    }

    /// Limits of every call.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Masks secrets in runs and errors.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Problems of tools; none of them prevented building. The first time, this compiles the schemas that came as text
    /// and were not needed yet, which takes a second for some thousands of tools.
    pub fn warnings(&self) -> &[String] {
        self.schema_faults.get_or_init(|| {
            let registered = self.tools.values().filter(|one| one.entry.spec.input_schema.is_text());
            let faults = registered.filter_map(|one| one.argument_schema.find_fault(&one.entry));
            self.warnings.iter().cloned().chain(faults).collect()
        })
    }

    /// [`Catalog::warnings`] without those about schemas that are only compiled on the first call, which then logs them.
    pub fn build_warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether a tool has returned JSON as text instead of a value since its definition last changed.
    pub fn returns_json_text(&self, name: &ToolName) -> bool {
        let full = name.to_string();
        let registered = self.tools.get(&full).or_else(|| self.find_awaited(&full));
        registered.is_some_and(|registered| registered.observations.answers_json_text())
    }

    fn find_registered(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        let full = self.outward.get(name).map_or(name, String::as_str);
        self.tools.get(full)
    }

    /// A tool, by full name, whose provider was unknown when this catalog was built and has been called since.
    fn find_awaited(&self, full: &str) -> Option<&Arc<RegisteredTool>> {
        let (provider, _) = full.split_once('.')?;
        let awaited = self.unknown.get(&Identifier::sanitize(provider))?;
        awaited.registered_tools().iter().find(|registered| registered.entry.name.to_string() == full)
    }
}

/// Compiles the schema of a tool's arguments on the blocking pool, unless it is compiled already.
async fn compile(registered: &Arc<RegisteredTool>) {
    if registered.argument_schema.is_compiled() {
        return;
    }
    let registered = registered.clone();
    let compiling = move || {
        let RegisteredTool { entry, argument_schema, .. } = &*registered;
        argument_schema.get(entry);
        // The fault of any other schema was a warning of the catalog.
        if let Some(fault) = argument_schema.fault(entry).filter(|_| entry.spec.input_schema.is_text()) {
            tracing::warn!("{fault}");
        }
    };
    if let Err(error) = tokio::task::spawn_blocking(compiling).await {
        tracing::error!(%error, "cannot compile an input schema");
    }
}
