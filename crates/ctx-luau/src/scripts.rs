//! Scripts as the rest of the product sees them: tools, agents, connectors, and the body of `execute`.

use crate::engine::{Completed, Engine, Entry, RunError};
use crate::kinds::{self, Kind, Script};
use crate::world::{Http, ScriptWorld};
use ctx_core::{Agent, Call, Connector, RateLimit, Redactor, Tool};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How errors call a script that was sent, not configured.
const SENT: &str = "script";

/// One configured script. It may hold secrets, so it cannot be printed.
#[derive(Clone, PartialEq)]
pub struct ScriptSettings {
    /// Its key in the configuration, which is its name.
    pub name: String,
    /// Where it is; absolute.
    pub path: PathBuf,
    /// Its path as configured, as errors call it: `tools/x.lua`.
    pub shown: String,
    /// Every other key of its section: an object.
    pub config: Value,
    /// How long it may run, where that is not the usual bound of its kind.
    pub timeout: Option<Duration>,
    /// How often it may be called.
    pub rate_limit: Option<RateLimit>,
    /// Globs of the hosts it may reach by `http`; empty for all.
    pub allow_hosts: Vec<String>,
}

/// What scripts may use at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// How long a script may run.
    pub timeout: Duration,
    /// How long a connector's scan may take.
    pub connector_timeout: Duration,
    /// Memory of a script.
    pub memory_bytes: usize,
    /// Memory of a connector; at most the engine's own bound.
    pub connector_memory_bytes: usize,
    /// Size of a result as JSON.
    pub result_bytes: usize,
    /// How much a script may log.
    pub log_bytes: usize,
    /// Size of a script's text.
    pub source_bytes: usize,
    /// Size of what `http` brings back, and of what `fs.read` reads.
    pub http_response_bytes: usize,
    /// Redirects that one request follows.
    pub http_redirects: usize,
    /// HTTP requests per run of a tool or an agent.
    pub http_requests: u32,
    /// HTTP requests per scan of a connector.
    pub connector_requests: u32,
    /// Size of a document that a connector hands over.
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

/// What is wrong with a script, for people: `tools/x.lua:3: …`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScriptProblem {
    /// The sentence, with file and line where they are known.
    pub message: String,
}

/// What a script says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// `tool`, `connector` or `agent`.
    pub kind: String,
    /// Its name.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// How many parameters a tool, or arguments an agent, declares.
    pub parameters: usize,
    /// The functions of its table: `execute`.
    pub functions: Vec<String>,
}

/// Looks up a variable of the environment.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Makes tools, agents and connectors of scripts, and runs scripts that are sent. Clones share the engine.
#[derive(Clone)]
pub struct Scripts {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) limits: ScriptLimits,
    pub(crate) environment: Environment,
    pub(crate) redactor: Redactor,
    pub(crate) http: Arc<Http>,
}

impl Scripts {
    /// Scripts that run on this engine. `environment` answers `env.get`.
    pub fn new(engine: Engine, limits: ScriptLimits, environment: Environment) -> Self {
        let (redactor, http) = (Redactor::default(), Arc::default());
        Self { inner: Arc::new(Inner { engine, limits, environment, redactor, http }) }
    }

    /// The same, which masks what this redactor does where no catalog can: in what is wrong with scripts
    /// and in what connectors say.
    #[must_use]
    pub fn masking(self, redactor: Redactor) -> Self {
        let Inner { engine, limits, environment, http, .. } = &*self.inner;
        let (engine, environment, http) = (engine.clone(), environment.clone(), http.clone());
        Self { inner: Arc::new(Inner { engine, limits: *limits, environment, redactor, http }) }
    }

    /// What scripts may use at most.
    pub fn limits(&self) -> &ScriptLimits {
        &self.inner.limits
    }

    /// The tool that a script is. Call it again to take up a changed file.
    pub async fn tool(&self, settings: &ScriptSettings) -> Result<Arc<dyn Tool>, ScriptProblem> {
        let (script, told) = self.load(settings, Kind::Tool).await?;
        Ok(Arc::new(kinds::ScriptTool::new(script, &told)?))
    }

    /// The agent that a script is. Call it again to take up a changed file.
    pub async fn agent(&self, settings: &ScriptSettings) -> Result<Arc<dyn Agent>, ScriptProblem> {
        let (script, told) = self.load(settings, Kind::Agent).await?;
        Ok(Arc::new(kinds::ScriptAgent::new(script, &told)?))
    }

    /// The connector that a script is. Call it again to take up a changed file.
    pub async fn connector(&self, settings: &ScriptSettings) -> Result<Arc<dyn Connector>, ScriptProblem> {
        let (script, told) = self.load(settings, Kind::Connector).await?;
        Ok(Arc::new(kinds::ScriptConnector::new(script, &told)?))
    }

    /// What a script says of itself, whatever its kind and name.
    pub async fn describe(&self, settings: &ScriptSettings) -> Result<Described, ScriptProblem> {
        let script = Script::read(&self.inner, settings).await?;
        let told = script.describe().await?;
        Ok(Described {
            name: told.text("name")?,
            description: told.text("description")?,
            version: told.text("version")?,
            parameters: kinds::declared(&told),
            kind: told.kind,
            functions: told.functions,
        })
    }

    /// Runs a script that was sent, inside of `call`: the body of `execute`.
    pub async fn execute(&self, source: &str, call: &Call) -> Result<Completed, RunError> {
        let script = Script::sent(&self.inner, SENT, source);
        let mut run = script.run(Entry::Chunk, Vec::new());
        run.deadline = kinds::deadline(call, self.inner.limits.timeout);
        run.depth = call.depth();
        run.apis.extend(kinds::servers(source, call.catalog()));
        let world = ScriptWorld::of_call(&script, call);
        self.inner.engine.run(&run, &world).await
    }

    async fn load(
        &self,
        settings: &ScriptSettings,
        kind: Kind,
    ) -> Result<(Script, kinds::Told), ScriptProblem> {
        let script = Script::read(&self.inner, settings).await?;
        let told = script.describe().await?;
        told.must_be(kind, &settings.name)?;
        Ok((script, told))
    }
}
