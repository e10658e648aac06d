//! An open workspace: wires the configuration, the store and the catalog.

mod composition;
mod functions;
mod reload;
mod sources;

pub(crate) use composition::{CatalogComposition, log_new_warnings};
pub(crate) use functions::{WeakWorkspaceFunctions, WorkspaceFunctions};
pub(crate) use sources::{SourceFreshness, connector_settings, time_until_due};

use crate::admin::{Admin, AdminParts};
use crate::config::{Config, InlineAgentSection, NamedSection, Settings};
use crate::definitions;
use crate::error::{CommandError, CommandResult};
use crate::harness::Additions;
use crate::scripts::{ConfiguredScript, ScriptRunner, ScriptSet};
use crate::trust;
use crate::upstreams::Upstreams;
use composition::CatalogParts;
use ctx_core::error_chain;
use ctx_core::{
    Agent, AgentArgument, AllowAll, BuiltinProvider, Call, Caller, Catalog, Identifier, LiveCatalog,
    NoRunLog, Policy, Provider, RunLog, ToolError,
};
use ctx_knowledge::{ContextProvider, EmbeddingOptions, Knowledge, KnowledgeOptions, Source};
use ctx_luau::InlineAgent;
use ctx_store::{RUNS_FILE, SqliteState, State, StateFiles};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Maximum number of untrusted upstreams that callers are told about.
const LEFT_OUT_MAX: usize = 200;

/// An open workspace, as commands use it.
pub(crate) struct Workspace {
    pub(crate) config: Arc<Config>,
    pub(crate) knowledge: Arc<Knowledge>,
    pub(crate) catalog: Arc<LiveCatalog>,
    /// The schedule and watch setting of each source.
    pub(crate) freshness: Vec<SourceFreshness>,
    /// Non-fatal problems.
    pub(crate) warnings: Vec<String>,
    functions: WorkspaceFunctions,
    /// `None` if runs cannot be recorded.
    state: Option<Arc<dyn State>>,
}

impl Workspace {
    /// Opens the store and the state, which are created if missing, and adds `additions`.
    pub(crate) fn open(config: Config, additions: &Additions) -> CommandResult<Self> {
        let config = Arc::new(config);
        let mut warnings = config_warnings(&config);
        let runner = Arc::new(new_runner(&config)?);
        let (sources, freshness) = sources::gather(&config, &runner, &additions.sources, &mut warnings);
        let embedding = embedding_options(&config)?;
        let options = knowledge_options(&config, &runner, sources, embedding);
        let knowledge = Arc::new(Knowledge::open(options)?);
        write_gitignore(&config);
        let state = workspace_state(&config);
        let state = match state.start_recording() {
            Ok(()) => Some(state),
            Err(error) => {
                warnings.push(format!("runs are not recorded: {}", error_chain(&error)));
                None
            }
        };
        let log: Arc<dyn RunLog> = match &state {
            Some(state) => state.clone(),
            None => Arc::new(NoRunLog),
        };
        let freshness = clear_unwatchable(freshness, &knowledge);
        let (agents, policy) = (inline_agents(&config), policy(&config.settings)?);
        let added = additions.all_providers(&mut warnings);
        let upstreams = Arc::<OnceLock<Upstreams>>::default();
        let composition = Arc::new_cyclic(|composition| {
            let parts = AdminParts {
                state: state.clone(),
                knowledge: knowledge.clone(),
                freshness: freshness.clone(),
                warnings: warnings.clone(),
                functions: WeakWorkspaceFunctions {
                    config: config.clone(),
                    composition: composition.clone(),
                    runner: runner.clone(),
                    upstreams: Arc::downgrade(&upstreams),
                },
            };
            CatalogComposition::new(CatalogParts {
                admin: Arc::new(Admin::new(&config, parts)),
                context: context_provider(&config, &knowledge),
                scripts: vec![CatalogParts::inline_agents_provider(&agents)],
                agents,
                left_out: untrusted_providers(&config),
                upstreams: Vec::new(),
                added,
                limits: config.settings.limits(),
                policy,
                redactor: runner.redactor().clone(),
                log,
            })
        });
        let catalog = composition.live().clone();
        warnings.extend(catalog.current().build_warnings().iter().cloned());
        let functions = WorkspaceFunctions { config: config.clone(), composition, runner, upstreams };
        Ok(Self { config, knowledge, catalog, freshness, warnings, functions, state })
    }

    /// Starts to connect the trusted upstreams. Functions with stored definitions are callable at once,
    /// others when their server has answered or their description was read.
    pub(crate) fn start_upstreams(&self) -> &Upstreams {
        self.functions.start_upstreams(&|_| true)
    }

    /// Starts the upstreams, and waits until each has answered or failed.
    pub(crate) async fn connect_upstreams(&self) -> &Upstreams {
        self.functions.connect_upstreams(&|_| true).await
    }

    /// Connects the upstreams whose sections are `selected`, unless upstreams were started before; returns once
    /// each has answered or failed.
    pub(crate) async fn connect_some_upstreams(
        &self,
        selected: &(dyn Fn(&str) -> bool + Sync),
    ) -> &Upstreams {
        self.functions.connect_upstreams(selected).await
    }

    /// Starts the upstreams, and waits until the functions of each are known or it has failed.
    async fn wait_for_functions(&self) {
        self.start_upstreams().wait_until_known().await;
        self.composition().update(|_| {});
    }

    /// Loads all functions: scripts, and those of upstreams. Upstreams without stored definitions have
    /// answered or failed when this returns.
    pub(crate) async fn load_callable(&self) -> ScriptSet {
        self.start_upstreams();
        let scripts = self.load_scripts().await;
        self.wait_for_functions().await;
        scripts
    }

    /// Ends all processes that were started: workers and upstream servers.
    pub(crate) async fn end_processes(&self) {
        let upstreams = async {
            if let Some(upstreams) = self.functions.started_upstreams() {
                upstreams.shutdown().await;
            }
        };
        tokio::join!(self.runner().shutdown(), upstreams);
    }

    /// Loads the scripts, and adds them to the catalog for later calls.
    pub(crate) async fn load_scripts(&self) -> ScriptSet {
        self.functions.load_scripts().await
    }

    /// The configured scripts.
    pub(crate) fn configured_scripts(&self) -> Vec<ConfiguredScript> {
        self.functions.configured_scripts()
    }

    /// The text with secrets masked.
    pub(crate) fn masked(&self, text: String) -> String {
        self.functions.masked(text)
    }

    /// The runner of scripts.
    pub(crate) fn runner(&self) -> &Arc<ScriptRunner> {
        self.functions.runner()
    }

    /// The composition of the catalog.
    pub(crate) fn composition(&self) -> &Arc<CatalogComposition> {
        self.functions.composition()
    }

    /// A separate catalog with these providers instead of scripts and upstreams; its calls are not recorded.
    pub(crate) fn catalog_with(&self, providers: Vec<Arc<dyn Provider>>) -> Arc<Catalog> {
        self.composition().variant(|parts| {
            parts.log = Arc::new(NoRunLog);
            parts.scripts = providers;
            parts.upstreams.clear();
        })
    }

    /// Stops recording later calls, and drops scripts and upstreams from the catalog. For measurements, whose
    /// many calls would evict the recorded runs.
    pub(crate) fn stop_recording(&self) {
        self.composition().update(|parts| {
            parts.log = Arc::new(NoRunLog);
            parts.scripts = vec![CatalogParts::inline_agents_provider(&parts.agents)];
            parts.upstreams.clear();
        });
    }

    /// Calls a tool on behalf of a command.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Result<Value, ToolError> {
        let call = Call::new(self.catalog.current(), Caller::Cli);
        Ok(Catalog::call(name, arguments, call).await?.value)
    }

    /// Stops recording, after the pending runs are written.
    pub(crate) fn close(&self) {
        if let Some(state) = &self.state {
            state.stop_recording();
        }
    }
}

/// The warnings of the configuration itself.
fn config_warnings(config: &Config) -> Vec<String> {
    let mut warnings = config.warnings.clone();
    warnings.extend(config.upstreams(&|_| false).1);
    warnings.extend(config.apis(&|_| false).1);
    warnings
}

fn new_runner(config: &Config) -> CommandResult<ScriptRunner> {
    ScriptRunner::new(config).map_err(|problem| CommandError::new(problem.message))
}

fn embedding_options(config: &Config) -> CommandResult<Option<EmbeddingOptions>> {
    let embedding = config.settings.embedding(&config.root);
    embedding.map_err(|problem| CommandError::usage(format!("in [embedding]: {problem}")))
}

fn knowledge_options(
    config: &Config,
    runner: &ScriptRunner,
    sources: Vec<Source>,
    embedding: Option<EmbeddingOptions>,
) -> KnowledgeOptions {
    let settings = &config.settings;
    KnowledgeOptions {
        store: config.store_path().to_owned(),
        extraction: runner.extraction().clone(),
        chunking: settings.chunking(),
        mode: settings.retrieval.mode,
        final_limit: settings.retrieval.final_limit.get() as usize,
        tuning: settings.tuning(),
        embedding,
        sources,
    }
}

fn context_provider(config: &Config, knowledge: &Arc<Knowledge>) -> Option<Arc<ContextProvider>> {
    (!config.without_knowledge).then(|| Arc::new(ContextProvider::new(knowledge.clone())))
}

/// The providers with untrusted functions, and the message for callers. Sections whose trusted version still
/// runs in a server are excluded.
fn untrusted_providers(config: &Config) -> BTreeMap<Identifier, String> {
    let names = |group: &'static str| {
        let runs = move |name: &&str| config.has_section(&[group, *name]);
        let sections = config.untrusted.iter().filter_map(move |request| request.section.strip_prefix(group));
        sections.filter_map(|section| section.strip_prefix('.')).filter(move |name| !runs(name))
    };
    let upstreams = names("mcp_servers").chain(names("apis")).take(LEFT_OUT_MAX);
    let mut providers: BTreeMap<Identifier, String> =
        upstreams.map(|name| (Identifier::sanitize(name), trust::agent_refusal("it is"))).collect();
    let is_left_out = |section: &&str| {
        section.split_once('.').is_none_or(|(kind, name)| !config.has_section(&["tools", kind, name]))
    };
    let tools = names("tools").filter(is_left_out).count() as u64;
    if tools > 0 {
        let subject = if tools == 1 { "1 tool is".to_owned() } else { format!("{tools} tools are") };
        providers.insert(BuiltinProvider::Tools.identifier(), trust::agent_refusal(&subject));
    }
    providers
}

/// Clears `watch` for sources whose connector cannot watch.
fn clear_unwatchable(mut freshness: Vec<SourceFreshness>, knowledge: &Knowledge) -> Vec<SourceFreshness> {
    for source in &mut freshness {
        source.watch &= knowledge.can_watch(&source.name);
    }
    freshness
}

/// The policy of the catalog: the scopes that tools require, if OAuth is configured.
fn policy(settings: &Settings) -> CommandResult<Arc<dyn Policy>> {
    let Some(oauth) = &settings.server.oauth else { return Ok(Arc::new(AllowAll)) };
    let policy = oauth.policy();
    Ok(Arc::new(policy.map_err(|error| CommandError::usage(format!("in [server.oauth]: {error}")))?))
}

/// The inline agents of the configuration.
fn inline_agents(config: &Config) -> Vec<Arc<dyn Agent>> {
    let agent = |section: NamedSection<InlineAgentSection>| {
        let agent = section.settings;
        let arguments = agent.arguments.into_iter().map(|argument| AgentArgument {
            name: argument.name,
            description: argument.description,
            required: argument.required,
            choices: argument.choices,
        });
        let inline = InlineAgent::new(section.name, agent.description, agent.tools, agent.system_prompt);
        Arc::new(inline.with_arguments(arguments.collect())) as Arc<dyn Agent>
    };
    config.settings.inline_agents().into_iter().map(agent).collect()
}

/// The state of a workspace besides documents: runs and tool definitions. Opens no file yet.
pub(crate) fn workspace_state(config: &Config) -> Arc<dyn State> {
    let files = StateFiles { runs: state_path(config), definitions: definitions::path(config) };
    Arc::new(SqliteState::new(files))
}

/// The path of the record of runs, beside the store.
pub(crate) fn state_path(config: &Config) -> PathBuf {
    config.store_path().with_file_name(RUNS_FILE)
}

/// Writes a `.gitignore` for a store that `db.path` puts into the workspace. Best effort: nothing depends on
/// it.
fn write_gitignore(config: &Config) {
    let folder = config.root.join(".ctx");
    let ignore = folder.join(".gitignore");
    if config.store_path().starts_with(&folder)
        && folder.is_dir()
        && !ignore.exists()
        && std::fs::write(&ignore, "/data/\n/.gitignore\n").is_err()
    {
        tracing::debug!("cannot write {}", ignore.display());
    }
}
