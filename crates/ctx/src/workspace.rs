//! An opened directory: settings, store, catalog, wired together.

use crate::config::{
    Config, ConnectorSection, Every, InlineAgentSection, Section, Settings, SourceSettings, TrustRequest,
};
use crate::definitions;
use crate::error::{CommandError, CommandResult};
use crate::harness::{AddedSource, Additions};
use crate::masks::MaskedConnector;
use crate::scripts::{self, Configured, Runner, ScriptProvider, ScriptSet, ScriptSource, Untrusted};
use crate::upstreams::{Surroundings, Upstreams};
use ctx_core::chain;
use ctx_core::{
    Agent, AgentArgument, AllowAll, Call, Caller, Catalog, Connector, Discard, Limits, LiveCatalog, Policy,
    Provider, Redactor, RunLog, SourceName, ToolError,
};
use ctx_knowledge::{
    Context, KINDS, Knowledge, KnowledgeOptions, OpenOptions, Source, cache_path, store_files,
};
use ctx_luau::{InlineAgent, ScriptSettings};
use ctx_state::Runs;
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Everything a command works with.
pub(crate) struct Workspace {
    pub(crate) config: Config,
    pub(crate) knowledge: Arc<Knowledge>,
    pub(crate) catalog: Arc<LiveCatalog>,
    /// How each source is kept fresh.
    pub(crate) freshness: Vec<Freshness>,
    /// What does not stop anything but should be known.
    pub(crate) warnings: Vec<String>,
    parts: Arc<Parts>,
    runner: Arc<Runner>,
    runs: Option<Arc<Runs>>,
    /// Once they were started.
    upstreams: OnceLock<Upstreams>,
}

/// What every catalog of a workspace is made of, besides scripts.
pub(crate) struct Parts {
    /// Where there is anything to search.
    context: Option<Arc<Context>>,
    agents: Vec<Arc<dyn Agent>>,
    /// What the program adds.
    added: Vec<Arc<dyn Provider>>,
    limits: Limits,
    policy: Arc<dyn Policy>,
    redactor: Redactor,
    log: Arc<dyn RunLog>,
    /// What changes while the workspace is open.
    changing: Mutex<Changing>,
}

/// Providers that change; whoever holds this makes a catalog of them, so that the last one has them all.
#[derive(Default)]
struct Changing {
    scripts: Vec<Arc<dyn Provider>>,
    upstreams: Vec<Arc<dyn Provider>>,
}

impl Parts {
    /// A catalog with these providers between knowledge and what the program adds.
    pub(crate) fn catalog(
        &self,
        providers: &[Arc<dyn Provider>],
        log: Arc<dyn RunLog>,
        old: Option<&Catalog>,
    ) -> Arc<Catalog> {
        let builder = Catalog::builder()
            .limits(self.limits)
            .policy(self.policy.clone())
            .redactor(self.redactor.clone())
            .runs(log);
        let context = self.context.iter().map(|context| context.clone() as Arc<dyn Provider>);
        let builder = context.fold(builder, |builder, context| builder.provider(context));
        let providers = providers.iter().chain(&self.added);
        let builder = providers.fold(builder, |builder, provider| builder.provider(provider.clone()));
        old.into_iter().fold(builder, |builder, old| builder.replacing(old)).build()
    }

    /// Makes calls that begin from now on see the scripts as they are.
    pub(crate) fn take_up(&self, scripts: &ScriptSet, live: &LiveCatalog) -> Arc<Catalog> {
        self.renew(live, |changing| changing.scripts = scripts.providers(&self.agents))
    }

    /// Makes calls that begin from now on see what has changed.
    fn renew(&self, live: &LiveCatalog, change: impl FnOnce(&mut Changing)) -> Arc<Catalog> {
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut changing);
        let providers = [&*changing.scripts, &*changing.upstreams].concat();
        let catalog = self.catalog(&providers, self.log.clone(), Some(&*live.current()));
        live.swap(catalog.clone());
        catalog
    }
}

/// How a source is kept fresh while it is served.
pub(crate) struct Freshness {
    pub(crate) name: SourceName,
    /// Synced this often.
    pub(crate) every: Option<Every>,
    /// Synced when it changes.
    pub(crate) watch: bool,
}

impl Workspace {
    /// Opens store and state, creating what is missing, with what the program adds to them.
    pub(crate) fn open(config: Config, additions: &Additions) -> CommandResult<Self> {
        let mut warnings = config.warnings.clone();
        warnings.extend(config.upstreams(&|_| false).1);
        warnings.extend(config.apis(&|_| false).1);
        let runner = Runner::new(&config).map_err(|problem| CommandError::new(problem.message))?;
        let runner = Arc::new(runner);
        let (mut sources, mut freshness): (Vec<_>, Vec<Freshness>) =
            sources(&config, &mut warnings).into_iter().unzip();
        for (source, fresh) in script_sources(&config, &runner) {
            sources.push(source);
            freshness.push(fresh);
        }
        sources.extend(untrusted_sources(&config));
        for (source, fresh) in added_sources(&additions.sources, &mut warnings) {
            sources.push(source);
            freshness.push(fresh);
        }
        for source in &mut sources {
            let (connector, redactor) = (source.connector.clone(), config.redactor.clone());
            source.connector = Arc::new(MaskedConnector { connector, redactor });
        }
        let settings = &config.settings;
        let embedding = settings
            .embedding(&config.root)
            .map_err(|problem| CommandError::usage(format!("in [embedding]: {problem}")))?;
        let knowledge = Arc::new(Knowledge::open(KnowledgeOptions {
            store: config.store_path().to_owned(),
            chunking: settings.chunking(),
            mode: settings.retrieval.mode,
            final_limit: settings.retrieval.final_limit.get() as usize,
            tuning: settings.tuning(),
            embedding,
            sources,
        })?);
        for source in &mut freshness {
            source.watch &= knowledge.can_watch(&source.name);
        }
        keep_out_of_git(&config);
        let runs = match Runs::open(&state_path(&config)) {
            Ok(runs) => Some(Arc::new(runs)),
            Err(error) => {
                warnings.push(format!("runs are not recorded: {}", chain(&error)));
                None
            }
        };
        let log: Arc<dyn RunLog> = match &runs {
            Some(runs) => runs.clone(),
            None => Arc::new(Discard),
        };
        let parts = Parts {
            context: (!config.without_knowledge).then(|| Arc::new(Context::new(knowledge.clone()))),
            agents: inline_agents(&config),
            added: additions.callable(&mut warnings),
            limits: settings.limits(),
            policy: policy(settings)?,
            redactor: runner.redactor().clone(),
            log,
            changing: Mutex::default(),
        };
        let catalog = parts.catalog(&[parts.inline()], parts.log.clone(), None);
        warnings.extend(catalog.warnings().iter().cloned());
        let catalog = Arc::new(LiveCatalog::new(catalog));
        let parts = Arc::new(parts);
        parts.changing.lock().unwrap_or_else(PoisonError::into_inner).scripts = vec![parts.inline()];
        let upstreams = OnceLock::new();
        Ok(Self { config, knowledge, catalog, freshness, warnings, parts, runner, runs, upstreams })
    }

    /// Begins to reach the upstreams that may be used. Their functions are there at once where they are remembered,
    /// else when they have answered or their descriptions were read.
    pub(crate) fn start_upstreams(&self) -> &Upstreams {
        self.start_some_upstreams(&|_| true)
    }

    fn start_some_upstreams(&self, wanted: &dyn Fn(&str) -> bool) -> &Upstreams {
        self.upstreams.get_or_init(|| {
            let around = Surroundings {
                reaper: self.runner.reaper(),
                redactor: self.parts.redactor.clone(),
                on_change: on_change(&self.parts, &self.catalog),
            };
            let upstreams = Upstreams::start(&self.config, wanted, around);
            self.parts.renew(&self.catalog, |changing| changing.upstreams = upstreams.providers());
            upstreams
        })
    }

    /// The same, and waits until the tools of each are known, or it has failed.
    pub(crate) async fn know_upstreams(&self) {
        self.start_upstreams().known().await;
        self.parts.renew(&self.catalog, |_| {});
    }

    /// The same, and waits until each has answered or failed.
    pub(crate) async fn connect_upstreams(&self) -> &Upstreams {
        self.connect_some_upstreams(&|_| true).await
    }

    /// The same for those whose sections are wanted, where none was started before.
    pub(crate) async fn connect_some_upstreams(&self, wanted: &dyn Fn(&str) -> bool) -> &Upstreams {
        let upstreams = self.start_some_upstreams(wanted);
        upstreams.settled().await;
        self.parts.renew(&self.catalog, |_| {});
        upstreams
    }

    /// Loads everything that can be called: scripts, and the tools of upstream servers. Those of which nothing
    /// is remembered have answered or failed by then.
    pub(crate) async fn load_callable(&self) -> ScriptSet {
        self.start_upstreams();
        let scripts = self.load_scripts().await;
        self.know_upstreams().await;
        scripts
    }

    /// Ends all processes that were started: those that run scripts, and upstream servers.
    pub(crate) async fn end_processes(&self) {
        let upstreams = async {
            if let Some(upstreams) = self.upstreams.get() {
                upstreams.shutdown().await;
            }
        };
        tokio::join!(self.runner.shutdown(), upstreams);
    }

    /// Loads the scripts that can be called, and has later calls see them.
    pub(crate) async fn load_scripts(&self) -> ScriptSet {
        let before = self.catalog.current();
        let mut scripts = ScriptSet::load(self.runner.clone(), self.configured()).await;
        let catalog = self.parts.take_up(&scripts, &self.catalog);
        let is_new = |warning: &&String| !before.warnings().contains(warning);
        scripts.warnings = catalog.warnings().iter().filter(is_new).cloned().collect();
        scripts
    }

    /// The scripts that can be called.
    pub(crate) fn configured(&self) -> Vec<Configured> {
        scripts::configured(&self.config)
    }

    /// A text without secrets.
    pub(crate) fn masked(&self, text: String) -> String {
        self.parts.redactor.text(text)
    }

    /// What runs scripts.
    pub(crate) fn runner(&self) -> &Arc<Runner> {
        &self.runner
    }

    /// What catalogs are made of.
    pub(crate) fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    /// Records no calls that begin from now on: those of a measurement are nobody's, and so many that
    /// they would push out the others.
    pub(crate) fn stop_recording(&self) {
        self.catalog.swap(self.parts.catalog(&[self.parts.inline()], Arc::new(Discard), None));
    }

    /// Calls a tool on behalf of a command.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Result<Value, ToolError> {
        let call = Call::new(self.catalog.current(), Caller::Cli);
        Ok(Catalog::call(name, arguments, call).await?.value)
    }

    /// The record of runs.
    pub(crate) fn runs(&self) -> CommandResult<&Runs> {
        self.runs.as_deref().ok_or_else(|| CommandError::new("runs are not recorded here"))
    }

    /// Writes what is still waiting to be written.
    pub(crate) fn close(&self) {
        if let Some(runs) = &self.runs {
            runs.close();
        }
    }
}

impl Parts {
    /// What the user has of their own without any script.
    fn inline(&self) -> Arc<dyn Provider> {
        Arc::new(ScriptProvider { tools: Vec::new(), agents: self.agents.clone() })
    }
}

/// Takes up the tools of upstream servers when they are others than before.
fn on_change(parts: &Arc<Parts>, live: &Arc<LiveCatalog>) -> Arc<dyn Fn() + Send + Sync> {
    let (parts, live) = (parts.clone(), live.clone());
    Arc::new(move || {
        let (parts, live) = (parts.clone(), live.clone());
        // Thousands of schemas take a while to compile.
        tokio::task::spawn_blocking(move || {
            let before = live.current();
            let catalog = parts.renew(&live, |_| {});
            tell_new_warnings(&before, &catalog);
        });
    })
}

/// Logs what was wrong with the tools of a catalog, and was not with those of the one before.
pub(crate) fn tell_new_warnings(before: &Catalog, after: &Catalog) {
    let is_new = |warning: &&String| !before.warnings().contains(warning);
    after.warnings().iter().filter(is_new).for_each(|warning| tracing::warn!("{warning}"));
}

/// Who may call what.
fn policy(settings: &Settings) -> CommandResult<Arc<dyn Policy>> {
    let Some(oauth) = &settings.server.oauth else { return Ok(Arc::new(AllowAll)) };
    let policy = oauth.policy();
    Ok(Arc::new(policy.map_err(|error| CommandError::usage(format!("in [server.oauth]: {error}")))?))
}

/// Agents that are written down in the configuration.
fn inline_agents(config: &Config) -> Vec<Arc<dyn Agent>> {
    let agent = |section: Section<InlineAgentSection>| {
        let own = section.own;
        let arguments = own.arguments.into_iter().map(|argument| AgentArgument {
            name: argument.name,
            description: argument.description,
            required: argument.required,
            choices: argument.choices,
        });
        let agent = InlineAgent::new(section.name, own.description, own.tools, own.system_prompt);
        Arc::new(agent.with_arguments(arguments.collect())) as Arc<dyn Agent>
    };
    config.settings.inline_agents().into_iter().map(agent).collect()
}

/// The sources that scripts read.
fn script_sources(config: &Config, runner: &Arc<Runner>) -> Vec<(Source, Freshness)> {
    let source = |(section, common): (Section<ConnectorSection>, SourceSettings)| {
        let name = SourceName::new("script", &section.name);
        let freshness = Freshness { name: name.clone(), every: common.every, watch: false };
        let guard = config.guard(&format!("connectors.script.{}", section.name));
        let settings = connector_settings(config, section);
        let connector: Arc<dyn Connector> = Arc::new(ScriptSource::new(runner.clone(), settings, guard));
        (Source { name, connector, tags: common.tags }, freshness)
    };
    config.settings.script_connectors().into_iter().map(source).collect()
}

/// Placeholders for the untrusted sources. They are listed, with the reason, so that their documents are not taken for
/// those of a removed source; they are never synced.
fn untrusted_sources(config: &Config) -> Vec<Source> {
    let source = |request: &TrustRequest| {
        let (kind, name) = request.section.strip_prefix("connectors.")?.split_once('.')?;
        let known = kind == "script" || KINDS.iter().any(|known| known.name == kind);
        let connector: Arc<dyn Connector> = Arc::new(Untrusted);
        known.then(|| Source { name: SourceName::new(kind, name), connector, tags: Vec::new() })
    };
    config.untrusted.iter().filter_map(source).collect()
}

/// The sources that the program adds. A second one of a name is left out with a warning.
fn added_sources(added: &[AddedSource], warnings: &mut Vec<String>) -> Vec<(Source, Freshness)> {
    let mut sources: Vec<(Source, Freshness)> = Vec::new();
    for AddedSource { name, connector, options } in added {
        if sources.iter().any(|(source, _)| source.name == *name) {
            warnings.push(format!("a source is left out: the name `{name}` is taken"));
            continue;
        }
        let every = options.every.map(Every::try_from).transpose().unwrap_or_else(|problem| {
            warnings.push(format!("{name} is not synced on schedule: {problem}"));
            None
        });
        let source = Source { name: name.clone(), connector: connector.clone(), tags: options.tags.clone() };
        sources.push((source, Freshness { name: name.clone(), every, watch: true }));
    }
    sources
}

/// A connector's script as its section has it.
pub(crate) fn connector_settings(config: &Config, section: Section<ConnectorSection>) -> ScriptSettings {
    let own = section.own;
    ScriptSettings {
        timeout: own.timeout(),
        allow_hosts: own.allow_hosts.clone(),
        ..scripts::script(config, section.name, &own.path, section.config)
    }
}

/// Where the record of runs lies: beside the store.
fn state_path(config: &Config) -> PathBuf {
    config.store_path().with_file_name("state.sqlite")
}

/// The configured sources; one whose settings are wrong is left out with a warning.
fn sources(config: &Config, warnings: &mut Vec<String>) -> Vec<(Source, Freshness)> {
    let mut own_files = store_files(config.store_path());
    // Without a home folder it is the store's folder, which may be the workspace itself.
    own_files.extend(Some(config.data_folder().to_owned()).filter(|folder| !config.root.starts_with(folder)));
    own_files.extend([state_path(config), definitions::path(config)]);
    // Settings may hold secrets, and scripts are no documents.
    own_files.extend(config.path.clone());
    let is_script =
        |section: &str| ["tools.", "agents.", "connectors."].iter().any(|group| section.starts_with(group));
    let scripts = config.trust_requests.iter().filter(|request| is_script(&request.section));
    own_files.extend(scripts.flat_map(|request| request.files.iter().cloned()));
    let mut sources = Vec::new();
    for (kind_name, named) in &config.settings.connectors {
        let Some(kind) = KINDS.iter().find(|kind| kind.name == kind_name) else { continue };
        for (name, settings) in named {
            let settings = Value::Object(settings.clone());
            // Understood once already, when the configuration was read.
            let Ok(common) = SourceSettings::deserialize(&settings) else { continue };
            let section = format!("connectors.{kind_name}.{name}");
            let place = config.place(&["connectors", kind_name, name]);
            let name = SourceName::new(kind_name, name);
            let options = OpenOptions {
                workspace_root: &config.root,
                cache: &cache_path(&config.cache_base(), &name),
                environment: &|variable| std::env::var(variable).ok(),
                document_bytes_max: config.settings.limits.document_bytes.get(),
                own_files: &own_files,
            };
            match (kind.open)(&settings, options) {
                Ok(connector) => {
                    let freshness =
                        Freshness { name: name.clone(), every: common.every, watch: common.watch };
                    sources.push((Source { name, connector, tags: common.tags }, freshness));
                }
                Err(problem) => warnings.push(format!("{place}[{section}] is left out: {problem}")),
            }
        }
    }
    sources
}

/// Writes a `.gitignore` for a store that `db.path` puts into the workspace. Best effort: nothing depends on it.
fn keep_out_of_git(config: &Config) {
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
