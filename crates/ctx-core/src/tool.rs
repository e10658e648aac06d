//! Tools, and the providers that offer them.

use crate::{
    Agent, BodyArgument, Call, ContentBlock, FileStore, Identifier, NestedCallStats, RateLimit, Resources,
    Schema, ToolError,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// A callable tool. Only a [`Catalog`](crate::Catalog) runs it: the catalog first fills in defaults and validates the
/// arguments, and it enforces the deadline.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// The tool's metadata, which must not change while the tool is in a catalog.
    fn spec(&self) -> Arc<ToolSpec>;

    /// Runs the tool.
    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError>;

    /// Rate limit of its calls, if there is one.
    fn rate_limit(&self) -> Option<RateLimit> {
        None
    }

    /// Timeout of one call; `None` means the catalog's default.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Time after the deadline for which the catalog waits for a tool that enforces the deadline itself, so that the
    /// tool can return its log lines.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    /// Time after a cancellation for which the catalog waits for a tool that stops when [`Call::cancellation`] is
    /// cancelled, so that the tool can return a partial result.
    fn stop_grace(&self) -> Duration {
        Duration::ZERO
    }
}

/// A named origin of tools, and possibly of agents and resources.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The namespace of its tools: the part of their full names before the dot.
    fn name(&self) -> Identifier;

    /// Its current tools, in a stable order.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    /// Its current agents.
    fn agents(&self) -> Vec<Arc<dyn Agent>> {
        Vec::new()
    }

    /// Its resources, if it has any.
    fn resources(&self) -> Option<Arc<dyn Resources>> {
        None
    }

    /// Its store for binary content, if it has one. All tools of a catalog use the first store that a provider returns.
    fn file_store(&self) -> Option<Arc<dyn FileStore>> {
        None
    }

    /// Whether it is built in (`"builtin": true` in listings).
    fn builtin(&self) -> bool {
        false
    }

    /// Whether its tools are in the tool list that clients get.
    fn exposed(&self) -> bool {
        true
    }

    /// Why its tools are unknown, such as `cannot be reached: …`; error messages put its name before it. `None` if they
    /// are known.
    fn unknown_reason(&self) -> Option<String> {
        None
    }

    /// Waits until its tools are known, or the first attempt to get them has failed.
    async fn wait_until_known(&self) {}

    /// Waits for its tools on behalf of a call: like [`Provider::wait_until_known`], but may try again if an attempt
    /// has failed. The error says why its tools are unknown.
    async fn connect(&self) -> Result<(), ToolError> {
        self.wait_until_known().await;
        match self.unknown_reason() {
            Some(reason) => Err(ToolError::not_found(format!("{} {reason}", self.name()))),
            None => Ok(()),
        }
    }

    /// How long a call waits until these tools are known; `None` means the catalog's timeout of a call.
    fn wait_timeout(&self) -> Option<Duration> {
        None
    }
}

/// Metadata of a tool. Tool definitions are stored as its JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Original name, as the provider gives it; the catalog turns it into an identifier.
    pub name: String,
    /// Display name.
    pub title: Option<String>,
    /// Description, with the most important sentence first.
    pub description: String,
    /// JSON Schema (2020-12) of its arguments, which are an object.
    pub input_schema: Schema,
    /// JSON Schema of its result, if it has one.
    pub output_schema: Option<Schema>,
    /// Hints about its effects.
    pub annotations: Annotations,
    /// Labels by which listings can be filtered; at most [`ToolSpec::TAGS_MAX`].
    #[serde(default)]
    pub tags: Vec<String>,
    /// The argument that is sent as the request body, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyArgument>,
}

impl ToolSpec {
    /// Maximum number of tags of one tool.
    pub const TAGS_MAX: usize = 32;
    /// Maximum bytes of one tag.
    pub const TAG_BYTES_MAX: usize = 64;

    /// Whether a text is a valid tag.
    pub fn is_tag(text: &str) -> bool {
        let is_bounded = !text.is_empty() && text.len() <= Self::TAG_BYTES_MAX;
        is_bounded && text.trim() == text && !text.contains(char::is_control)
    }

    /// A spec with only a name, a description and an input schema.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: impl Into<Schema>,
    ) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: description.into(),
            input_schema: input_schema.into(),
            output_schema: None,
            annotations: Annotations::default(),
            tags: Vec::new(),
            body: None,
        }
    }
}

/// Hints about a tool's effects (MCP tool annotations). Unknown is `None`, never a guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// Repeating a call has no further effect.
    pub idempotent: Option<bool>,
    /// It interacts with systems beyond this machine.
    pub open_world: Option<bool>,
}

impl Annotations {
    /// Annotations of a tool that only reads local data.
    pub const READ_ONLY: Self = Self {
        read_only: Some(true),
        destructive: Some(false),
        idempotent: Some(true),
        open_world: Some(false),
    };
}

/// Result of a tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The result as JSON.
    pub value: Value,
    /// The result as content blocks, if it is more than JSON data (images, links).
    pub content: Vec<ContentBlock>,
    /// Log lines, if they are part of the result.
    pub logs: Vec<LogLine>,
    /// Statistics of nested calls; the catalog sets them only for a call that is not nested itself.
    pub nested_calls: NestedCallStats,
    /// Pagination, if the result is one page of a list. For scripts that iterate over pages; clients do not get it.
    pub page: Option<Box<Page>>,
}

/// Pagination of a result that is one page of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Page {
    /// Field names that lead from the value to its list of items: empty if the value itself is the list, `None` if
    /// the value has no list that can be recognised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<String>>,
    /// All arguments of the call for the next page; `None` after the last page, and if `beyond` says why it cannot be fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Map<String, Value>>,
    /// Why the next page cannot be fetched although it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beyond: Option<String>,
}

/// A log line of a tool; its JSON is an entry of `logs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// Severity.
    #[serde(serialize_with = "serialize_level")]
    pub level: tracing::Level,
    /// The message.
    pub message: String,
}

impl Output {
    /// The result as one JSON value: its value or, if that is null, its content blocks, with text blocks as strings.
    /// One block is returned without an array, several as an array.
    pub fn into_data(self) -> Value {
        if !self.value.is_null() {
            return self.value;
        }
        let to_json = |block| match block {
            ContentBlock::Text(text) => Value::String(text),
            ContentBlock::Other(fields) => Value::Object(fields),
        };
        let mut blocks: Vec<Value> = self.content.into_iter().map(to_json).collect();
        match blocks.len() {
            0 => Value::Null,
            1 => blocks.remove(0),
            _ => Value::Array(blocks),
        }
    }

    /// The result for display: its content blocks or, if there are none, its value as text. A string is shown as it is,
    /// anything else as JSON.
    pub fn to_blocks(&self) -> Vec<ContentBlock> {
        if !self.content.is_empty() {
            return self.content.clone();
        }
        vec![ContentBlock::Text(match &self.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })]
    }

    /// The value if it is an object: clients accept nothing else as structured content.
    pub fn structured(&self) -> Option<&Map<String, Value>> {
        self.value.as_object()
    }
}

fn serialize_level<S: Serializer>(level: &tracing::Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&level.as_str().to_ascii_lowercase())
}

impl From<Value> for Output {
    fn from(value: Value) -> Self {
        Self { value, ..Self::default() }
    }
}

/// The first non-empty line of a description, for listings with one line per item.
pub fn summary_line(description: &str) -> &str {
    description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn output(value: Value, texts: &[&str]) -> Output {
        let content = texts.iter().map(|text| ContentBlock::Text((*text).to_owned())).collect();
        Output { value, content, ..Output::default() }
    }

    #[test]
    fn a_result_without_a_value_is_its_content() {
        assert_eq!(output(json!({"a": 1}), &["shown"]).into_data(), json!({"a": 1}));
        assert_eq!(output(Value::Null, &[]).into_data(), Value::Null);
        assert_eq!(output(Value::Null, &["one"]).into_data(), json!("one"));
        assert_eq!(output(Value::Null, &["one", "two"]).into_data(), json!(["one", "two"]));
    }

    #[test]
    fn a_value_without_content_is_shown_as_text_and_only_an_object_is_structured() {
        for (value, text, structured) in [
            (json!({"sum": 10}), "{\"sum\":10}", true),
            (json!([1, "a"]), "[1,\"a\"]", false),
            (json!("plain"), "plain", false),
            (json!(4.5), "4.5", false),
            (Value::Null, "null", false),
        ] {
            let output = Output::from(value);
            assert_eq!(output.to_blocks(), [ContentBlock::Text(text.to_owned())]);
            assert_eq!(output.structured().is_some(), structured, "{text}");
        }
        let shown = output(json!({"a": 1}), &["shown"]);
        assert_eq!(shown.to_blocks(), [ContentBlock::Text("shown".to_owned())]);
    }

    #[test]
    fn the_summary_is_the_first_line_that_is_not_blank() {
        for (description, summary) in [
            ("Reads a file.", "Reads a file."),
            ("\n    Reads a file.\n\n    Args:\n        path: which\n", "Reads a file."),
            ("\r\n \t\r\nReads a file.\r\nMore.", "Reads a file."),
            (" \n ", ""),
            ("", ""),
        ] {
            assert_eq!(summary_line(description), summary);
        }
    }
}
