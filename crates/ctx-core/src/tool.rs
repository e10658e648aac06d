//! What can be called, and where it comes from.

use crate::{
    Agent, BodyArgument, Call, ContentBlock, Identifier, Inside, Keeper, RateLimit, Resources, Schema,
    ToolError,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize, Serializer};
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

    /// How much longer the catalog waits for a tool that keeps its deadline by itself, so that it can
    /// tell what it logged until then.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    /// How much longer the catalog waits for a tool that ends by itself when [`Call::cancellation`] is cancelled, so
    /// that it can answer with what it has done until then.
    fn stop_grace(&self) -> Duration {
        Duration::ZERO
    }
}

/// A named origin of tools; its name is the namespace.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The first half of its tools' names.
    fn name(&self) -> Identifier;

    /// Its tools at this moment, in a stable order.
    fn tools(&self) -> Vec<Arc<dyn Tool>>;

    /// Its agents at this moment.
    fn agents(&self) -> Vec<Arc<dyn Agent>> {
        Vec::new()
    }

    /// What of its can be read by URI.
    fn resources(&self) -> Option<Arc<dyn Resources>> {
        None
    }

    /// What keeps files for all tools of the catalog, where that is what it does.
    fn keeper(&self) -> Option<Arc<dyn Keeper>> {
        None
    }

    /// Whether the product ships it (`"builtin": true` in listings).
    fn builtin(&self) -> bool {
        false
    }

    /// Whether its tools are listed to clients one by one.
    fn exposed(&self) -> bool {
        true
    }

    /// Why its tools are not known, where they are not: it is still being reached, or cannot be.
    fn unknown(&self) -> Option<String> {
        None
    }

    /// Waits while its tools are not known and may soon be: until it has answered, or the first attempt has failed.
    async fn settle(&self) {}

    /// Waits for its tools on behalf of a call: like [`Provider::settle`], but one that could not be reached may be tried
    /// again. The error says why its tools are not known.
    async fn reach(&self) -> Result<(), ToolError> {
        self.settle().await;
        self.unknown().map_or(Ok(()), |reason| Err(ToolError::not_found(format!("{} {reason}", self.name()))))
    }

    /// How long one of its calls may take, with the time to reach it, where it is not the catalog's own bound.
    fn call_timeout(&self) -> Option<Duration> {
        None
    }
}

/// What a tool says of itself. Its JSON is how it is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name as its origin gives it; the catalog makes an identifier of it.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it does, first sentence first.
    pub description: String,
    /// JSON Schema (2020-12) of its arguments, an object.
    pub input_schema: Schema,
    /// JSON Schema of its result, where there is one.
    pub output_schema: Option<Schema>,
    /// What it does to the world.
    pub annotations: Annotations,
    /// What it belongs to, to be listed by; at most [`ToolSpec::TAGS_MAX`].
    #[serde(default)]
    pub tags: Vec<String>,
    /// Which of its arguments is what it sends, where one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyArgument>,
}

impl ToolSpec {
    /// Tags of one tool.
    pub const TAGS_MAX: usize = 32;
    /// Bytes of one tag.
    pub const TAG_BYTES_MAX: usize = 64;

    /// Whether a text can be a tag.
    pub fn is_tag(text: &str) -> bool {
        let is_bounded = !text.is_empty() && text.len() <= Self::TAG_BYTES_MAX;
        is_bounded && text.trim() == text && !text.contains(char::is_control)
    }

    /// A tool of which no more is known.
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

/// What a tool does to the world, as far as it is known. Unknown is `None`, never a guess.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// What was called inside. The catalog counts it, for an outermost call.
    pub inside: Inside,
    /// Where the answer is one page of a list, how the list goes on. For scripts that walk it; no client is told.
    pub page: Option<Box<Page>>,
}

/// An answer as one page of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Page {
    /// Where in the value the items are, as names of fields; none where this page has no items. The value itself is
    /// the list where there are no names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<String>>,
    /// All arguments of the call that gives the next page; none after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Map<String, Value>>,
    /// Why the next page cannot be had, although there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beyond: Option<String>,
}

/// A line that a tool logged; its JSON is an entry of `logs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// How serious it is.
    #[serde(serialize_with = "in_lower_case")]
    pub level: tracing::Level,
    /// What it says.
    pub message: String,
}

impl Output {
    /// The answer as data: its value; where there is none, its blocks, of which several are a list of
    /// texts and tables.
    pub fn into_data(self) -> Value {
        if !self.value.is_null() {
            return self.value;
        }
        let block = |block| match block {
            ContentBlock::Text(text) => Value::String(text),
            ContentBlock::Other(fields) => Value::Object(fields),
        };
        let mut blocks: Vec<Value> = self.content.into_iter().map(block).collect();
        match blocks.len() {
            0 => Value::Null,
            1 => blocks.remove(0),
            _ => Value::Array(blocks),
        }
    }

    /// The answer to show: its blocks; where there are none, its value as text, a string as it is and
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

    /// The value where it is an object: clients take no other for structured content.
    pub fn structured(&self) -> Option<&Map<String, Value>> {
        self.value.as_object()
    }
}

fn in_lower_case<S: Serializer>(level: &tracing::Level, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&level.as_str().to_ascii_lowercase())
}

impl From<Value> for Output {
    fn from(value: Value) -> Self {
        Self { value, ..Self::default() }
    }
}

/// The first line of a description that is not empty, for listings with a line for each.
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
    fn content_stands_in_where_there_is_no_value() {
        assert_eq!(output(json!({"a": 1}), &["shown"]).into_data(), json!({"a": 1}));
        assert_eq!(output(Value::Null, &[]).into_data(), Value::Null);
        assert_eq!(output(Value::Null, &["one"]).into_data(), json!("one"));
        assert_eq!(output(Value::Null, &["one", "two"]).into_data(), json!(["one", "two"]));
    }

    #[test]
    fn a_value_is_shown_as_text_where_there_is_no_content_and_is_structured_if_it_is_an_object() {
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
    fn a_description_that_begins_with_line_breaks_has_a_summary() {
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
