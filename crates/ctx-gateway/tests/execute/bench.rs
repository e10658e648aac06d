//! A catalog with `execute` and the test's own tools in it.

use ctx_core::{Call, Caller, Catalog, ErrorKind, Limits, LogLine, Output, Provider, ToolError};
use ctx_gateway::Gateway;
use ctx_luau::{Engine, EngineSettings, ScriptLimits, Scripts};
use ctx_testkit::{TestTool, provider};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const WORKER: &str = "__worker";
/// Time limit of scripts that end by themselves, however busy the machine.
const LONG: Duration = Duration::from_secs(60);
/// Time limit of scripts that do not end by themselves.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

pub(crate) fn settings() -> EngineSettings {
    EngineSettings::new(std::env::current_exe().unwrap(), vec![WORKER.into()])
}

pub(crate) fn limits() -> ScriptLimits {
    ScriptLimits { timeout: LONG, ..ScriptLimits::default() }
}

/// A catalog with `execute` and the test's own tools.
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) catalog: Arc<Catalog>,
}

impl Bench {
    /// A catalog with these tools.
    pub(crate) fn with<const N: usize>(tools: [TestTool; N]) -> Self {
        Self::of(settings(), limits(), vec![provider("tools", tools)])
    }

    pub(crate) fn of(
        settings: EngineSettings,
        limits: ScriptLimits,
        providers: Vec<Arc<dyn Provider>>,
    ) -> Self {
        Self::with_limits(settings, limits, Limits::default(), providers)
    }

    /// A catalog with these limits.
    pub(crate) fn with_limits(
        settings: EngineSettings,
        script_limits: ScriptLimits,
        limits: Limits,
        providers: Vec<Arc<dyn Provider>>,
    ) -> Self {
        let engine = Engine::new(settings).unwrap();
        let scripts = Scripts::new(engine.clone(), script_limits, Arc::new(|_| None));
        let gateway = Arc::new(Gateway::new(scripts, true));
        let builder = Catalog::builder().limits(limits).provider(gateway.clone());
        let catalog = gateway
            .kept_providers()
            .into_iter()
            .chain(providers)
            .fold(builder, |builder, provider| builder.provider(provider))
            .build();
        assert_eq!(catalog.warnings(), [""; 0]);
        Self { engine, catalog }
    }

    pub(crate) fn call(&self) -> Call {
        Call::new(self.catalog.clone(), Caller::Library("test".to_owned()))
    }

    /// Runs a script.
    pub(crate) async fn try_run(&self, script: &str) -> Result<Output, ToolError> {
        Catalog::call("execute", json!({ "script": script }), self.call()).await
    }

    /// Runs a script that must not fail.
    pub(crate) async fn run(&self, script: &str) -> Output {
        self.try_run(script).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// The value of a script that must not fail.
    pub(crate) async fn value(&self, script: &str) -> Value {
        self.run(script).await.value
    }

    /// The error of a script that must fail.
    pub(crate) async fn failure(&self, script: &str) -> (ErrorKind, String) {
        match self.try_run(script).await {
            Ok(output) => panic!("{script}: {output:?}"),
            Err(error) => (error.kind(), error.message().to_owned()),
        }
    }
}

/// Log lines as one text each.
pub(crate) fn log_texts(lines: &[LogLine]) -> Vec<String> {
    lines.iter().map(|line| format!("{} {}", line.level, line.message)).collect()
}
