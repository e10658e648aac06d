//! Test tools, ways to call them, and logs that record what happened.

#![allow(clippy::expect_used, reason = "a helper fails the test it helps")]

use ctx_core::{Call, Caller, Catalog, CatalogBuilder, ErrorKind, Output, Run, RunLog, ToolError};
pub(crate) use ctx_testkit::{TestTool, echo, provider, tool};
use serde_json::Value;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

/// Answers after this many seconds.
pub(crate) fn sleeper(name: &str, seconds: u64) -> TestTool {
    tool(name, move |_, _| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(Value::Null.into())
        })
    })
}

/// Fails with this message.
pub(crate) fn failing(name: &str, message: &'static str) -> TestTool {
    tool(name, move |_, _| Box::pin(async move { Err(ToolError::new(ErrorKind::Tool, message)) }))
}

/// Makes the nested `calls` (pairs of name and arguments) in order and returns their results; fails with the first
/// failure.
pub(crate) fn relay(name: &str) -> TestTool {
    tool(name, |arguments, call| {
        Box::pin(async move {
            let mut answers = Vec::new();
            for inner in arguments["calls"].as_array().into_iter().flatten() {
                let name = inner[0].as_str().unwrap_or_default();
                answers.push(Catalog::call(name, inner[1].clone(), call.nested()?).await?.value);
            }
            Ok(Value::Array(answers).into())
        })
    })
}

/// A catalog builder with these tools, which have bare names.
pub(crate) fn with<const N: usize>(tools: [TestTool; N]) -> CatalogBuilder {
    Catalog::builder().provider(provider("tools", tools))
}

pub(crate) fn from_cli(catalog: &Arc<Catalog>) -> Call {
    Call::new(catalog.clone(), Caller::Cli)
}

/// The value that the tool returns.
pub(crate) async fn answer(catalog: &Arc<Catalog>, name: &str, arguments: Value) -> Value {
    Catalog::call(name, arguments, from_cli(catalog)).await.expect("an answer").value
}

/// Kind and message of the error with which the call fails.
pub(crate) async fn refusal(catalog: &Arc<Catalog>, name: &str, arguments: Value) -> (ErrorKind, String) {
    error_of(Catalog::call(name, arguments, from_cli(catalog)).await)
}

/// Kind and message of a failure.
pub(crate) fn error_of(result: Result<Output, ToolError>) -> (ErrorKind, String) {
    let error = result.expect_err("a failure");
    (error.kind(), error.message().to_owned())
}

/// Keeps every run, in the order they ended.
#[derive(Default)]
pub(crate) struct Runs(Mutex<Vec<Run>>);

impl RunLog for Runs {
    fn record(&self, run: Run) {
        self.0.lock().expect("a lock").push(run);
    }
}

impl Runs {
    pub(crate) fn take(&self) -> Vec<Run> {
        std::mem::take(&mut self.0.lock().expect("a lock"))
    }
}

/// Collects what is logged while it is the default subscriber.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<String>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().expect("a lock").push_str(&format!("{field}={value:?} "));
    }
}

impl Log {
    pub(crate) fn text(&self) -> String {
        self.0.lock().expect("a lock").clone()
    }
}
