//! The library's entry point: the whole command line, with tools, connectors and agents of your own.

use crate::cli::{self, EXTRACTOR, REAPER, WORKER};
use crate::error::CommandError;
use crate::output::CommandOutput;
use crate::scripts::{RESERVED_NAMES, ScriptProvider};
use ctx_core::{Agent, BuiltinProvider, Connector, Identifier, Provider, SourceName, Tool};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The kind of sources with a connector in Rust: `rust:tickets`.
const KIND: &str = "rust";

/// A program like `ctx`, extended with tools, connectors, agents and providers.
///
/// ```no_run
/// # use async_trait::async_trait;
/// # use ctx::{Call, Harness, Output, Tool, ToolError, ToolSpec};
/// # use serde_json::{Map, Value, json};
/// # use std::sync::Arc;
/// struct Dice;
///
/// #[async_trait]
/// impl Tool for Dice {
///     fn spec(&self) -> Arc<ToolSpec> {
///         Arc::new(ToolSpec::new("dice", "Rolls a die.", json!({"type": "object"})))
///     }
///
///     async fn run(&self, _: Map<String, Value>, _: &Call) -> Result<Output, ToolError> {
///         Ok(json!({"rolled": 4}).into())
///     }
/// }
///
/// fn main() -> std::process::ExitCode {
///     Harness::builder().tool(Dice).main()
/// }
/// ```
#[derive(Default)]
#[must_use = "it does nothing until `main` or `run`"]
pub struct Harness {
    additions: Additions,
}

/// Settings of a source besides its connector.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// Tags for all of its documents.
    pub tags: Vec<String>,
    /// The interval at which a server syncs it, from ten seconds to a year; no schedule when absent.
    pub every: Option<Duration>,
}

impl Harness {
    /// Starts with the features of `ctx` itself.
    pub fn builder() -> Self {
        Self::default()
    }

    /// Adds a tool. It is called like a script tool: `sdk.tools.<name>` in scripts, `POST /tools/<name>` over
    /// HTTP. A script of the same name takes precedence.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.additions.tools.push(Arc::new(tool));
        self
    }

    /// Adds an agent; its source should be [`AgentSource::Rust`](crate::AgentSource::Rust).
    pub fn agent(mut self, agent: impl Agent) -> Self {
        self.additions.agents.push(Arc::new(agent));
        self
    }

    /// Adds a provider: tools in a namespace of its own (`sdk.<provider>.<tool>` in scripts), agents, and MCP
    /// resources.
    pub fn provider(mut self, provider: impl Provider) -> Self {
        self.additions.providers.push(Arc::new(provider));
        self
    }

    /// Adds a source, `rust:<name>`, without a schedule: it is synced on request.
    pub fn connector(self, name: impl Into<String>, connector: impl Connector) -> Self {
        self.connector_with(name, connector, SourceOptions::default())
    }

    /// Adds a source, `rust:<name>`, with tags or a schedule.
    pub fn connector_with(
        mut self,
        name: impl Into<String>,
        connector: impl Connector,
        options: SourceOptions,
    ) -> Self {
        let name = SourceName::new(KIND, name);
        self.additions.sources.push(AddedSource { name, connector: Arc::new(connector), options });
        self
    }

    /// Runs the whole program; `fn main` returns the result. Call it before any thread starts.
    pub fn main(self) -> ExitCode {
        if let Some(exit_code) = worker_if_asked() {
            return exit_code;
        }
        cli::main(self.additions)
    }

    /// [`Harness::main`] inside an existing async runtime. The program must call [`worker_if_asked`] first in
    /// `main`, before it builds that runtime.
    pub async fn run(self) -> ExitCode {
        if is_worker() {
            CommandOutput::default().fail(&CommandError::new(
                "this process was started as a worker, but already has other threads: call \
                 `ctx::worker_if_asked()` first in `main`, before the runtime is built",
            ));
            return ExitCode::FAILURE;
        }
        cli::run(self.additions).await
    }
}

/// Runs as a worker process, if the program was started as one: for scripts, for text extraction, or to end
/// the processes of upstream servers. `main` must return the exit code.
///
/// Scripts and the extraction of PDF, Office and other files run in sandboxed worker processes of the same
/// executable. A worker confines itself before its first job, which requires a process without threads. So a
/// program that builds its own runtime calls this first in `main`; [`Harness::main`] does so itself.
///
/// ```no_run
/// # use ctx::Harness;
/// fn main() -> std::process::ExitCode {
///     if let Some(ended) = ctx::worker_if_asked() {
///         return ended;
///     }
///     let runtime = tokio::runtime::Runtime::new().expect("a runtime");
///     runtime.block_on(Harness::builder().run())
/// }
/// ```
#[must_use = "a worker that has ended must not go on as a program"]
pub fn worker_if_asked() -> Option<ExitCode> {
    match std::env::args_os().nth(1)? {
        first if first == WORKER => Some(ctx_luau::worker_main()),
        first if first == EXTRACTOR => Some(ctx_knowledge::extraction_worker_main()),
        first if first == REAPER => Some(ctx_mcp::reaper_main()),
        _ => None,
    }
}

fn is_worker() -> bool {
    std::env::args_os()
        .nth(1)
        .is_some_and(|first| [WORKER, EXTRACTOR, REAPER].iter().any(|name| first == *name))
}

/// The tools, agents, providers and sources that a program adds to every workspace.
#[derive(Clone, Default)]
pub(crate) struct Additions {
    tools: Vec<Arc<dyn Tool>>,
    agents: Vec<Arc<dyn Agent>>,
    pub(crate) providers: Vec<Arc<dyn Provider>>,
    pub(crate) sources: Vec<AddedSource>,
}

/// A source that a program adds.
#[derive(Clone)]
pub(crate) struct AddedSource {
    pub(crate) name: SourceName,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) options: SourceOptions,
}

impl Additions {
    /// The added providers, and one for added tools and agents. The latter has the same name as the provider
    /// of scripts but is separate from it, so that a tool that collides with a script is dropped, not
    /// renamed. Reserved names are dropped as well. Adds a warning for each dropped tool and provider.
    pub(crate) fn all_providers(&self, warnings: &mut Vec<String>) -> Vec<Arc<dyn Provider>> {
        let mut tools = self.tools.clone();
        tools.retain(|tool| {
            let name = Identifier::sanitize(&tool.spec().name);
            let reserved = RESERVED_NAMES.contains(&name.as_str());
            if reserved {
                warnings.push(format!("tools.{name} is left out: the name `{name}` is taken"));
            }
            !reserved
        });
        let own_provider: Arc<dyn Provider> = Arc::new(ScriptProvider { tools, agents: self.agents.clone() });
        let mut providers = self.providers.clone();
        providers.retain(|provider| {
            let name = provider.name();
            let reserved = BuiltinProvider::from_name(name.as_str()).is_some_and(BuiltinProvider::is_hidden);
            if reserved {
                warnings.push(format!("provider {name} is left out: the name `{name}` is taken"));
            }
            !reserved
        });
        std::iter::once(own_provider).chain(providers).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use ctx_core::{Call, Catalog, Output, ToolError, ToolSpec};
    use serde_json::{Map, Value, json};

    struct NamedTool(&'static str);

    #[async_trait]
    impl Tool for NamedTool {
        fn spec(&self) -> Arc<ToolSpec> {
            Arc::new(ToolSpec::new(self.0, "A tool.", json!({"type": "object"})))
        }

        async fn run(&self, _: Map<String, Value>, _: &Call) -> Result<Output, ToolError> {
            Ok(Output::default())
        }
    }

    #[test]
    fn an_added_tool_cannot_have_the_name_of_what_is_built_in() {
        let harness =
            Harness::builder().tool(NamedTool("dice")).tool(NamedTool("list")).tool(NamedTool("search-docs"));
        let mut warnings = Vec::new();
        let all_providers = harness.additions.all_providers(&mut warnings);
        assert_eq!(
            warnings,
            [
                "tools.list is left out: the name `list` is taken",
                "tools.search_docs is left out: the name `search_docs` is taken",
            ]
        );
        let catalog = Catalog::builder().provider(all_providers[0].clone()).build();
        let names: Vec<String> = catalog.entries().map(|entry| entry.name.to_string()).collect();
        assert_eq!(names, ["tools.dice"]);
    }
}
