//! What can be called, and where it comes from.

use crate::{Agent, Call, Identifier, RateLimit, ToolError};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Anything callable. It runs only when a [`Catalog`](crate::Catalog) runs it: arguments then fit
/// the schema, defaults are in, and the deadline is kept.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// What the tool says of itself; it must not change while the tool is in a catalog.
    fn spec(&self) -> Arc<ToolSpec>;

    /// Does the work.
    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError>;

    /// How often it may be called, if that is bounded.
    fn rate_limit(&self) -> Option<RateLimit> {
        None
    }

    /// How long one call may take, where it is not the catalog's own bound.
    fn timeout(&self) -> Option<Duration> {
        None
    }
}

/// A named origin of tools; its name is the namespace.
pub trait Provider: Send + Sync + 'static {
    /// The first half of its tools' names.
    fn name(&self) -> Identifier;

    /// Its tools at this moment, in a stable order.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    /// Its agents at this moment.
    fn agents(&self) -> Vec<Arc<dyn Agent>> {
        Vec::new()
    }

    /// Whether the product ships it (`"builtin": true` in listings).
    fn builtin(&self) -> bool {
        false
    }

    /// Whether its tools are listed to clients one by one.
    fn exposed(&self) -> bool {
        true
    }
}

/// What a tool says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its name as its origin gives it; the catalog makes an identifier of it.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it does, first sentence first.
    pub description: String,
    /// JSON Schema (2020-12) of its arguments, an object.
    pub input_schema: Value,
    /// JSON Schema of its result, where there is one.
    pub output_schema: Option<Value>,
    /// What it does to the world.
    pub annotations: Annotations,
}

/// What a tool does to the world, as far as it is known. Unknown is `None`, never a guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// Calling it twice is the same as once.
    pub idempotent: Option<bool>,
    /// It reaches beyond this machine.
    pub open_world: Option<bool>,
}

impl Annotations {
    /// A tool that only reads what is here.
    pub const READ_ONLY: Self = Self {
        read_only: Some(true),
        destructive: Some(false),
        idempotent: Some(true),
        open_world: Some(false),
    };
}

/// What a tool answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The answer as data.
    pub value: Value,
    /// The answer as blocks to show, where it is more than its data (images, links).
    pub content: Vec<ContentBlock>,
    /// What was logged on the way, where that is part of the answer.
    pub logs: Vec<LogLine>,
}

/// A line that a tool logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How serious it is.
    pub level: tracing::Level,
    /// What it says.
    pub message: String,
}

/// A block of content in a tool's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentBlock {
    /// Plain text.
    Text(String),
    /// Any other block, kept whole: image, audio, resource, link.
    Other(Map<String, Value>),
}

impl From<Value> for Output {
    fn from(value: Value) -> Self {
        Self { value, ..Self::default() }
    }
}
