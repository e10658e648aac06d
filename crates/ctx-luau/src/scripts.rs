//! [`Scripts`]: turns Luau scripts into tools, agents and connectors, and runs the scripts sent to `execute`.

use crate::engine::{Engine, RunError, RunOutput, ScriptEntry};
use crate::kinds::{self, Script, ScriptKind};
use crate::world::{ScriptHttp, ScriptWorld};
use ctx_core::{Agent, Call, Connector, RateLimit, Redactor, Tool};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The name of a script sent to `execute` in error messages.
const EXECUTE_NAME: &str = "script";

/// The settings of a configured script. Has no `Debug`, because `config` may hold secrets.
#[derive(Clone, PartialEq)]
pub struct ScriptSettings {
    /// The name: the script's key in the configuration.
    pub name: String,
    /// Absolute path of the script's file.
    pub path: PathBuf,
    /// The path as configured, for error messages: `tools/x.lua`.
    pub display_path: String,
    /// All other keys of the script's section of the configuration: a JSON object.
    pub config: Value,
    /// Time limit, if it differs from the default of the script's kind.
    pub timeout: Option<Duration>,
    /// Rate limit of calls.
    pub rate_limit: Option<RateLimit>,
    /// Globs of the hosts that `http` may contact; empty allows all hosts.
    pub allow_hosts: Vec<String>,
}

/// Resource limits of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Time limit of a run, unless its settings have one.
    pub timeout: Duration,
    /// Time limit of a connector's scan, unless its settings have one.
    pub connector_timeout: Duration,
    /// Memory limit of a tool, an agent or an `execute` script.
    pub memory_bytes: usize,
    /// Memory limit of a connector; at most the engine's
    /// [`memory_bytes_max`](crate::EngineSettings::memory_bytes_max).
    pub connector_memory_bytes: usize,
    /// Maximum size of a result as JSON.
    pub result_bytes: usize,
    /// Maximum size of the log of a run.
    pub log_bytes: usize,
    /// Maximum size of a script's source.
    pub source_bytes: usize,
    /// Maximum size of an HTTP response, and of a file that `fs.read` reads.
    pub http_response_bytes: usize,
    /// Maximum number of redirects that one HTTP request follows.
    pub http_redirects: usize,
    /// Maximum number of HTTP requests in one run of a tool or an agent.
    pub http_requests: u32,
    /// Maximum number of HTTP requests in one scan of a connector.
    pub connector_requests: u32,
    /// Maximum size of the body of a document from a connector.
    pub document_bytes: usize,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            connector_timeout: Duration::from_secs(300),
            memory_bytes: 64 << 20,
            connector_memory_bytes: 256 << 20,
            result_bytes: 1 << 20,
            log_bytes: 256 << 10,
            source_bytes: 256 << 10,
            http_response_bytes: 8 << 20,
            http_redirects: 5,
            http_requests: 500,
            connector_requests: 10_000,
            document_bytes: 50_000_000,
        }
    }
}

/// A problem of a script, as a message for its author: `tools/x.lua:3: …`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScriptProblem {
    /// The message, with file and line if they are known.
    pub message: String,
}

/// The definition that a script declares: the fields of `tool`, `connector` or `agent`.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptSummary {
    /// `tool`, `connector` or `agent`.
    pub kind: String,
    /// The declared name.
    pub name: Option<String>,
    /// The declared description.
    pub description: Option<String>,
    /// The declared version.
    pub version: Option<String>,
    /// Number of declared parameters of a tool, or of arguments of an agent.
    pub parameters: usize,
    /// Names of the functions in the table, such as `execute`.
    pub functions: Vec<String>,
}

/// Looks up an environment variable.
pub type EnvironmentLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Creates tools, agents and connectors from scripts, and runs the scripts sent to `execute`. Clones share
/// the engine.
#[derive(Clone)]
pub struct Scripts {
    pub(crate) runtime: Arc<ScriptRuntime>,
}

pub(crate) struct ScriptRuntime {
    pub(crate) engine: Engine,
    pub(crate) limits: ScriptLimits,
    pub(crate) environment: EnvironmentLookup,
    pub(crate) redactor: Redactor,
    pub(crate) http: Arc<ScriptHttp>,
}

impl Scripts {
    /// Runs scripts on this engine. `environment` backs `env.get`.
    pub fn new(engine: Engine, limits: ScriptLimits, environment: EnvironmentLookup) -> Self {
        let (redactor, http) = (Redactor::default(), Arc::default());
        Self { runtime: Arc::new(ScriptRuntime { engine, limits, environment, redactor, http }) }
    }

    /// Sets the redactor for text that no catalog masks: problems of scripts, and the errors and logs of
    /// connectors.
    #[must_use]
    pub fn with_redactor(self, redactor: Redactor) -> Self {
        let ScriptRuntime { engine, limits, environment, http, .. } = &*self.runtime;
        let (engine, environment, http) = (engine.clone(), environment.clone(), http.clone());
        Self { runtime: Arc::new(ScriptRuntime { engine, limits: *limits, environment, redactor, http }) }
    }

    /// The resource limits of scripts.
    pub fn limits(&self) -> &ScriptLimits {
        &self.runtime.limits
    }

    /// Loads a script as a tool. Reads the file once: call it again after the file has changed.
    pub async fn tool(&self, settings: &ScriptSettings) -> Result<Arc<dyn Tool>, ScriptProblem> {
        let (script, definition) = self.load(settings, ScriptKind::Tool).await?;
        Ok(Arc::new(kinds::ScriptTool::new(script, &definition)?))
    }

    /// Loads a script as an agent. Reads the file once: call it again after the file has changed.
    pub async fn agent(&self, settings: &ScriptSettings) -> Result<Arc<dyn Agent>, ScriptProblem> {
        let (script, definition) = self.load(settings, ScriptKind::Agent).await?;
        Ok(Arc::new(kinds::ScriptAgent::new(script, &definition)?))
    }

    /// Loads a script as a connector. Reads the file once: call it again after the file has changed.
    pub async fn connector(&self, settings: &ScriptSettings) -> Result<Arc<dyn Connector>, ScriptProblem> {
        let (script, definition) = self.load(settings, ScriptKind::Connector).await?;
        Ok(Arc::new(kinds::ScriptConnector::new(script, &definition)?))
    }

    /// Reads the definition that a script declares, without checks of its kind and name.
    pub async fn describe(&self, settings: &ScriptSettings) -> Result<ScriptSummary, ScriptProblem> {
        let script = Script::read(&self.runtime, settings).await?;
        let definition = script.describe().await?;
        Ok(ScriptSummary {
            name: definition.text_field("name")?,
            description: definition.text_field("description")?,
            version: definition.text_field("version")?,
            parameters: kinds::declared_parameters(&definition),
            kind: definition.kind,
            functions: definition.functions,
        })
    }

    /// Runs the source of an `execute` call, within `call`.
    pub async fn execute(&self, source: &str, call: &Call) -> Result<RunOutput, RunError> {
        let script = Script::from_source(&self.runtime, EXECUTE_NAME, source);
        let mut run = script.run(ScriptEntry::Chunk, Vec::new());
        run.deadline = kinds::call_deadline(call, self.runtime.limits.timeout);
        run.depth = call.depth();
        run.apis.extend(kinds::provider_globals(source, call.catalog()));
        let world = ScriptWorld::for_call(&script, call);
        self.runtime.engine.run(&run, &world).await
    }

    async fn load(
        &self,
        settings: &ScriptSettings,
        kind: ScriptKind,
    ) -> Result<(Script, kinds::ScriptDefinition), ScriptProblem> {
        let script = Script::read(&self.runtime, settings).await?;
        let definition = script.describe().await?;
        definition.check_contract(kind, &settings.name)?;
        Ok((script, definition))
    }
}
