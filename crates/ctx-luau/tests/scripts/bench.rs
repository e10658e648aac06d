//! A folder of scripts, an engine for them, and catalogs to call them through.

use ctx_core::{
    Agent, Call, Caller, Catalog, Identifier, Limits, Output, Peer, Provider, Redactor, Secret, Tool,
    ToolError,
};
use ctx_luau::{Engine, EngineSettings, ScriptLimits, ScriptProblem, ScriptSettings, Scripts};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const WORKER: &str = "__worker";

/// The only environment variable of these scripts.
pub(crate) const VARIABLE: (&str, &str) = ("SECRET_VARIABLE", "whispered");

/// Deadline of scripts that do not end by themselves.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// A folder of scripts, and the loader of them.
pub(crate) struct Bench {
    pub(crate) scripts: Scripts,
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(ScriptLimits::default())
    }

    pub(crate) fn with(limits: ScriptLimits) -> Self {
        let settings = EngineSettings::new(std::env::current_exe().unwrap(), vec![WORKER.into()]);
        let engine = Engine::new(settings).unwrap();
        let environment = Arc::new(|name: &str| (name == VARIABLE.0).then(|| VARIABLE.1.to_owned()));
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tools")).unwrap();
        Self { scripts: Scripts::new(engine, limits, environment), folder }
    }

    /// The folder of the scripts.
    pub(crate) fn tools(&self) -> PathBuf {
        self.folder.path().join("tools")
    }

    pub(crate) fn outside(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a script `tools/NAME.lua`, configured under this name.
    pub(crate) fn script(&self, name: &str, source: &str) -> ScriptSettings {
        let shown = format!("tools/{name}.lua");
        let path = self.folder.path().join(&shown);
        std::fs::write(&path, source).unwrap();
        ScriptSettings {
            name: name.to_owned(),
            path,
            display_path: shown,
            config: json!({}),
            timeout: None,
            rate_limit: None,
            allow_hosts: Vec::new(),
        }
    }

    /// A tool named `x` whose function has this body.
    pub(crate) async fn tool(&self, body: &str) -> Arc<dyn Tool> {
        self.scripts.tool(&self.tool_script(body)).await.unwrap()
    }

    pub(crate) fn tool_script(&self, body: &str) -> ScriptSettings {
        self.script("x", &tool_source("x", body))
    }

    /// The result of a tool whose function has this body.
    pub(crate) async fn answer(&self, body: &str, arguments: Value) -> Result<Value, ToolError> {
        self.answer_with(body, arguments, |_| {}).await
    }

    /// [`Self::answer`] with other settings of the script.
    pub(crate) async fn answer_with(
        &self,
        body: &str,
        arguments: Value,
        configure: impl FnOnce(&mut ScriptSettings),
    ) -> Result<Value, ToolError> {
        let mut settings = self.tool_script(body);
        configure(&mut settings);
        let tool = self.scripts.tool(&settings).await.unwrap();
        call(&catalog([tool]), "x", arguments).await.map(|output| output.value)
    }

    /// The error of a tool whose function has this body.
    pub(crate) async fn error(&self, body: &str) -> ToolError {
        self.answer(body, json!({})).await.unwrap_err()
    }
}

/// A tool that takes any arguments, whose function has this body, in line 2.
pub(crate) fn tool_source(name: &str, body: &str) -> String {
    format!(
        "tool = {{ name = '{name}', description = 'A test.' }}\nfunction tool.execute(params, context) {body} end"
    )
}

/// The message about an invalid script.
pub(crate) fn problem_message<T>(made: Result<T, ScriptProblem>) -> String {
    made.err().map(|problem| problem.message).unwrap()
}

struct Tools(Vec<Arc<dyn Tool>>, Vec<Arc<dyn Agent>>);

impl Provider for Tools {
    fn name(&self) -> Identifier {
        Identifier::sanitize("tools")
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.clone()
    }

    fn agents(&self) -> Vec<Arc<dyn Agent>> {
        self.1.clone()
    }
}

/// A catalog of these tools.
pub(crate) fn catalog(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Arc<Catalog> {
    catalog_of(tools, [], [], Limits::default())
}

/// A catalog of these tools, agents and further providers, with these limits.
pub(crate) fn catalog_of(
    tools: impl IntoIterator<Item = Arc<dyn Tool>>,
    agents: impl IntoIterator<Item = Arc<dyn Agent>>,
    providers: impl IntoIterator<Item = Arc<dyn Provider>>,
    limits: Limits,
) -> Arc<Catalog> {
    let own = Tools(tools.into_iter().collect(), agents.into_iter().collect());
    let builder = Catalog::builder().provider(Arc::new(own)).limits(limits);
    let builder = builder.redactor(Redactor::new([Secret::new("hunter2hunter2")]));
    providers.into_iter().fold(builder, ctx_core::CatalogBuilder::provider).build()
}

pub(crate) fn new_call(catalog: &Arc<Catalog>) -> Call {
    Call::new(catalog.clone(), Caller::Library("test".to_owned()))
}

pub(crate) async fn call(catalog: &Arc<Catalog>, name: &str, arguments: Value) -> Result<Output, ToolError> {
    Catalog::call(name, arguments, new_call(catalog)).await
}

pub(crate) async fn call_with_peer(
    catalog: &Arc<Catalog>,
    name: &str,
    peer: Arc<dyn Peer>,
) -> Result<Output, ToolError> {
    Catalog::call(name, json!({}), new_call(catalog).with_peer(peer)).await
}
