//! An opened directory: settings, store, catalog, wired together.

use crate::config::{Config, Every, SourceSettings};
use crate::error::{CommandError, CommandResult};
use ctx_core::chain;
use ctx_core::{Call, Caller, Catalog, Discard, LiveCatalog, Redactor, RunLog, SourceName, ToolError};
use ctx_knowledge::{
    Context, KINDS, Knowledge, KnowledgeOptions, OpenOptions, Source, cache_path, store_files,
};
use ctx_state::Runs;
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// Everything a command works with.
pub(crate) struct Workspace {
    pub(crate) config: Config,
    pub(crate) knowledge: Arc<Knowledge>,
    pub(crate) catalog: Arc<LiveCatalog>,
    /// How each source is kept fresh.
    pub(crate) freshness: Vec<Freshness>,
    /// What does not stop anything but should be known.
    pub(crate) warnings: Vec<String>,
    runs: Option<Arc<Runs>>,
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
    /// Opens store and state, creating what is missing.
    pub(crate) fn open(config: Config) -> CommandResult<Self> {
        let mut warnings = config.warnings.clone();
        let (sources, mut freshness): (Vec<_>, Vec<Freshness>) =
            sources(&config, &mut warnings).into_iter().unzip();
        let settings = &config.settings;
        let embedding = settings
            .embedding(&config.root)
            .map_err(|problem| CommandError::usage(format!("in [embedding]: {problem}")))?;
        let knowledge = Arc::new(Knowledge::open(KnowledgeOptions {
            store: config.store_path(),
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
        let catalog = catalog(&config, &knowledge, log);
        warnings.extend(catalog.warnings().iter().cloned());
        let catalog = Arc::new(LiveCatalog::new(catalog));
        Ok(Self { config, knowledge, catalog, freshness, warnings, runs })
    }

    /// Records no calls that begin from now on: those of a measurement are nobody's, and so many that
    /// they would push out the others.
    pub(crate) fn stop_recording(&self) {
        self.catalog.swap(catalog(&self.config, &self.knowledge, Arc::new(Discard)));
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

/// Everything that can be called.
fn catalog(config: &Config, knowledge: &Arc<Knowledge>, log: Arc<dyn RunLog>) -> Arc<Catalog> {
    Catalog::builder()
        .provider(Arc::new(Context::new(knowledge.clone())))
        .limits(config.settings.limits())
        .redactor(Redactor::new(config.secrets()))
        .runs(log)
        .build()
}

/// Where the record of runs lies: beside the store.
fn state_path(config: &Config) -> PathBuf {
    config.store_path().with_file_name("state.sqlite")
}

/// The configured sources; one whose settings are wrong is left out with a warning.
fn sources(config: &Config, warnings: &mut Vec<String>) -> Vec<(Source, Freshness)> {
    let store = config.store_path();
    let mut own_files = store_files(&store);
    own_files.push(state_path(config));
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
                cache: &cache_path(&store, &name),
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

/// A store is not something to commit; best effort, since nothing depends on it.
fn keep_out_of_git(config: &Config) {
    let folder = config.root.join(".ctx");
    let ignore = folder.join(".gitignore");
    if folder.is_dir() && !ignore.exists() && std::fs::write(&ignore, "/data/\n/.gitignore\n").is_err() {
        tracing::debug!("cannot write {}", ignore.display());
    }
}
