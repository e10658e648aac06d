//! The scripts of a workspace: loads and runs them, and reports the invalid ones.

mod set;
mod source;

pub(crate) use set::{ScriptProvider, ScriptSet};
pub(crate) use source::{ScriptSource, UntrustedSource};

use crate::cli::{EXTRACTOR, REAPER, WORKER};
use crate::config::Config;
use crate::directory_files;
use crate::file_version::{FileVersion, file_version};
use crate::trust::FileGuard;
use ctx_core::Redactor;
use ctx_gateway::Gateway;
use ctx_knowledge::{Extraction, ExtractionSettings};
use ctx_luau::{Engine, EngineSettings, ScriptLimits, ScriptProblem, ScriptSettings, Scripts};
use ctx_mcp::ReaperProgram;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Names that script tools cannot have: those of built-in tools, and of an HTTP route.
pub(crate) const RESERVED_NAMES: [&str; 8] =
    ["search", "get", "sources", "list", "execute", "list_functions", "search_docs", "get_function_docs"];

/// Owns the workers for scripts and for text extraction. Workers start on first use.
pub(crate) struct ScriptRunner {
    program: PathBuf,
    engine: EngineSettings,
    limits: ScriptLimits,
    extraction: Extraction,
    redactor: Redactor,
    /// Whether the workspace has documents to search.
    has_knowledge: bool,
    started: OnceLock<(Engine, Scripts)>,
    gateway: OnceLock<Arc<Gateway>>,
}

impl ScriptRunner {
    pub(crate) fn new(config: &Config) -> Result<Self, ScriptProblem> {
        // Read at start: later, the executable may have been replaced.
        let program = std::env::current_exe().map_err(|error| {
            script_problem(format!("cannot determine the path of this program, to run scripts: {error}"))
        })?;
        let (engine, limits) =
            config.settings.script_limits(EngineSettings::new(program.clone(), vec![WORKER.into()]));
        let extraction = ExtractionSettings::new(program.clone(), vec![EXTRACTOR.into()]);
        Ok(Self {
            program,
            engine,
            limits,
            extraction: Extraction::confined(config.settings.extraction(extraction)),
            redactor: config.redactor.clone(),
            has_knowledge: !config.without_knowledge,
            started: OnceLock::new(),
            gateway: OnceLock::new(),
        })
    }

    /// The program that ends the processes of upstream servers when this process cannot: this executable.
    pub(crate) fn reaper(&self) -> ReaperProgram {
        ReaperProgram { path: self.program.clone(), arguments: vec![REAPER.into()] }
    }

    /// The text extraction of documents.
    pub(crate) fn extraction(&self) -> &Extraction {
        &self.extraction
    }

    /// Masks secrets; it learns the values that scripts read from the environment.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Loads and runs scripts; starts the engine on the first call.
    pub(crate) fn scripts(&self) -> Result<&Scripts, ScriptProblem> {
        if let Some((_, scripts)) = self.started.get() {
            return Ok(scripts);
        }
        let engine = Engine::new(self.engine.clone())
            .map_err(|error| script_problem(format!("cannot start the script engine: {error}")))?;
        let environment = Arc::new(|name: &str| std::env::var(name).ok());
        let scripts =
            Scripts::new(engine.clone(), self.limits, environment).with_redactor(self.redactor.clone());
        Ok(&self.started.get_or_init(|| (engine, scripts)).1)
    }

    /// The provider of `execute`. There is one while the workspace is open, so that results and files it
    /// keeps survive a new catalog.
    pub(crate) fn gateway(&self) -> Result<&Arc<Gateway>, ScriptProblem> {
        let scripts = self.scripts()?;
        let gateway = || {
            let gateway = Gateway::new(scripts.clone(), self.has_knowledge);
            Arc::new(match directory_files::store() {
                Some(store) => gateway.with_directory_store(store),
                None => gateway,
            })
        };
        Ok(self.gateway.get_or_init(gateway))
    }

    /// Starts a worker in advance, if scripts are in use.
    pub(crate) fn warm_up(&self) {
        if let Some((engine, _)) = self.started.get() {
            engine.warm_up();
        }
    }

    /// Ends all workers.
    pub(crate) async fn shutdown(&self) {
        let scripts = async {
            if let Some((engine, _)) = self.started.get() {
                engine.shutdown().await;
            }
        };
        tokio::join!(scripts, self.extraction.shutdown());
    }
}

fn script_problem(message: String) -> ScriptProblem {
    ScriptProblem { message }
}

/// A script tool or script agent of the configuration.
#[derive(Clone)]
pub(crate) struct ConfiguredScript {
    pub(crate) kind: CallableKind,
    pub(crate) settings: ScriptSettings,
    /// The position of its section as the prefix of a message, such as `ctx.toml:3: `.
    message_prefix: String,
    /// The guard that decides whether a changed file may be loaded; none if the section needs no trust.
    guard: Option<FileGuard>,
}

/// The kind of a callable script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallableKind {
    Tool,
    Agent,
}

impl ConfiguredScript {
    /// Whether both are the same script with the same settings, regardless of their positions in the file.
    fn is_same_script(&self, other: &Self) -> bool {
        self.kind == other.kind && self.settings == other.settings && self.guard == other.guard
    }

    /// The name of its section: `tools.script.post_slack`.
    pub(crate) fn section(&self) -> String {
        let group = match self.kind {
            CallableKind::Tool => "tools",
            CallableKind::Agent => "agents",
        };
        format!("{group}.script.{}", self.settings.name)
    }
}

/// The script tools and agents of a configuration.
pub(crate) fn configured_scripts(config: &Config) -> Vec<ConfiguredScript> {
    let tools = config.settings.script_tools().into_iter().map(|section| {
        let options = section.settings;
        let (timeout, rate_limit) = (options.timeout(), options.rate_limit());
        let settings = ScriptSettings {
            timeout,
            rate_limit,
            allow_hosts: options.allow_hosts,
            ..script_settings(config, section.name, &options.path, section.config)
        };
        (CallableKind::Tool, settings)
    });
    let agents = config.settings.script_agents().into_iter().map(|section| {
        let options = section.settings;
        let settings = ScriptSettings {
            timeout: options.timeout(),
            allow_hosts: options.allow_hosts.clone(),
            ..script_settings(config, section.name, &options.path, section.config)
        };
        (CallableKind::Agent, settings)
    });
    let all = tools.chain(agents).map(|(kind, settings)| {
        let group = if kind == CallableKind::Tool { "tools" } else { "agents" };
        let message_prefix = config.message_prefix(&[group, "script", &settings.name]);
        let guard = config.guard(&format!("{group}.script.{}", settings.name));
        ConfiguredScript { kind, settings, message_prefix, guard }
    });
    all.collect()
}

/// The settings of a script from its section, without limits of its own.
pub(crate) fn script_settings(
    config: &Config,
    name: String,
    path: &Path,
    values: Map<String, Value>,
) -> ScriptSettings {
    ScriptSettings {
        name,
        path: config.root.join(path),
        display_path: path.display().to_string(),
        config: Value::Object(values),
        timeout: None,
        rate_limit: None,
        allow_hosts: Vec::new(),
    }
}
