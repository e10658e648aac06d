//! The tool `execute`: checks and runs the script that a client sends.

use crate::check::{SignatureCache, check_script};
use crate::kept::KeptResults;
use crate::output::to_output;
use async_trait::async_trait;
use ctx_core::{Call, Catalog, LogLine, Output, Tool, ToolError, ToolSpec};
use ctx_luau::{GRACE, RunErrorKind, Scripts};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Largest script that is checked on the runtime thread; larger ones go to the blocking pool.
const INLINE_BYTES_MAX: usize = 4 << 10;

/// The description that an agent reads before it writes its first script.
fn description(has_knowledge: bool) -> String {
    let search = if has_knowledge { "`context.search(query)` searches, " } else { "" };
    format!(
        "Runs a Luau script that calls many functions in one go; only its result comes back. \
         `sdk.<provider>.<name>{{...}}` calls a function and gives its value, {search}`parallel{{f, g}}` runs \
         functions side by side, `paginate(sdk.a.b, {{...}})` loops over the items of all pages, `print(...)` logs. \
         End with `return value`."
    )
}

/// The tool `execute`.
pub(crate) struct ExecuteTool {
    scripts: Scripts,
    results: KeptResults,
    signatures: Arc<SignatureCache>,
    spec: Arc<ToolSpec>,
}

impl ExecuteTool {
    pub(crate) fn new(scripts: Scripts, results: KeptResults, has_knowledge: bool) -> Self {
        let input_schema = json!({
            "type": "object",
            "properties": {"script": {"type": "string", "description": "The script's text."}},
            "required": ["script"],
            "additionalProperties": false,
        });
        // Without annotations: the effects are those of the script.
        let spec = ToolSpec {
            title: Some("Run a script".to_owned()),
            ..ToolSpec::new("execute", description(has_knowledge), input_schema)
        };
        Self { scripts, results, signatures: Arc::default(), spec: Arc::new(spec) }
    }
}

#[async_trait]
impl Tool for ExecuteTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let script = arguments.get("script").and_then(Value::as_str).unwrap_or_default();
        // Includes the functions of upstreams that answered after the call's catalog was made; waits for
        // none.
        let catalog = call.catalog().wait_for_providers(|_| false, Duration::ZERO).await;
        self.check_off_runtime(script, &catalog).await?;
        let completed = self.scripts.execute(script, call).await.map_err(|error| match error.kind {
            // The script never ran: the argument is invalid.
            RunErrorKind::Source => ToolError::bad_request(error.message),
            _ => error.into_tool_error(call),
        })?;
        let output = to_output(completed.value, completed.logs.into_iter().map(LogLine::from).collect())?;
        self.results.shorten(output, call)
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.scripts.limits().timeout)
    }

    fn grace(&self) -> Duration {
        GRACE
    }
}

impl ExecuteTool {
    /// Checks a script, on the blocking thread pool if it is long.
    async fn check_off_runtime(&self, script: &str, catalog: &Arc<Catalog>) -> Result<(), ToolError> {
        if script.len() <= INLINE_BYTES_MAX {
            return check_script(script, catalog, &self.signatures);
        }
        let (script, catalog, signatures) = (script.to_owned(), catalog.clone(), self.signatures.clone());
        let result = tokio::task::spawn_blocking(move || check_script(&script, &catalog, &signatures)).await;
        result.unwrap_or_else(|error| Err(ToolError::internal("the script cannot be checked", error)))
    }
}
