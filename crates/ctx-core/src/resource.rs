//! What clients can read by its URI, and where it comes from.
//!
//! A resource is read through the one door, like a tool is called: the catalog registers each origin of
//! them as a tool.

use crate::{
    Annotations, BuiltinProvider, Call, Catalog, Completing, Completions, Identifier, Output, Provider, Tool,
    ToolError, ToolSpec,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// An origin of resources: those whose URIs begin alike.
#[async_trait]
pub trait Resources: Send + Sync + 'static {
    /// What the URIs of all its resources begin with; no other origin's may begin so.
    fn prefix(&self) -> &str;

    /// At most `most` resources in a stable order, from where an earlier page says the next begins, as there
    /// are when this is the catalog.
    async fn list(
        &self,
        from: Option<&str>,
        most: usize,
        catalog: &Catalog,
    ) -> Result<ResourcePage, ToolError>;

    /// The forms of URIs that can be read without being listed.
    fn templates(&self) -> Vec<ResourceTemplate> {
        Vec::new()
    }

    /// Reads one; `not_found` where there is none.
    async fn read(&self, uri: &str, call: &Call) -> Result<Vec<ResourceContent>, ToolError>;

    /// What changes from now on, where that can be known.
    fn changes(&self) -> Option<broadcast::Receiver<ResourceChange>> {
        None
    }

    /// Has changes of one told for as long as what this gives is kept, where that takes more than
    /// [`Resources::changes`].
    async fn follow(&self, uri: &str) -> Option<Following> {
        let _ = uri;
        None
    }

    /// What an argument of one of the forms can be.
    async fn complete(&self, asked: &Completing) -> Result<Completions, ToolError> {
        let _ = asked;
        Ok(Completions::default())
    }

    /// How long reading may take, where it is not the catalog's own bound.
    fn timeout(&self) -> Option<Duration> {
        None
    }
}

/// Somebody wants to be told of changes of a resource, until this is dropped.
pub type Following = Box<dyn Send + Sync>;

/// What is told of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// Where it is read.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// What kind of content it has.
    pub mime_type: Option<String>,
    /// How large its content is, in bytes.
    pub size: Option<u64>,
    /// What else clients are told of it, as MCP has it: `annotations`, `icons`, `_meta`.
    pub more: Map<String, Value>,
}

/// Some resources, and where the next begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePage {
    /// The resources.
    pub resources: Vec<Resource>,
    /// What to ask for next; `None` when these are the last.
    pub next: Option<String>,
}

/// A form that URIs of resources have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceTemplate {
    /// A URI with `{names}` in it (RFC 6570).
    pub uri_template: String,
    /// Its name.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What these resources are.
    pub description: Option<String>,
    /// What kind of content they have.
    pub mime_type: Option<String>,
    /// As for [`Resource::more`].
    pub more: Map<String, Value>,
}

/// What reading a resource gives: a text, or bytes in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContent {
    /// Where it was read.
    pub uri: String,
    /// What kind of content it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes, where it is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// What else clients are told of it, as MCP has it: `_meta`.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceChange {
    /// The content of one.
    Content {
        /// Which.
        uri: String,
    },
    /// Which there are.
    List,
}

/// The full name of the tool that reads what begins with `prefix`.
pub(crate) fn tool_name(prefix: &str) -> String {
    format!("{}.{}", BuiltinProvider::Resources.name(), Identifier::sanitize(prefix))
}

/// All origins of resources of a catalog, as its tools.
pub(crate) struct Origins(pub(crate) Vec<Arc<dyn Resources>>);

impl Provider for Origins {
    fn name(&self) -> Identifier {
        BuiltinProvider::Resources.identifier()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.iter().map(|origin| Arc::new(Reading(origin.clone())) as Arc<dyn Tool>).collect()
    }

    fn exposed(&self) -> bool {
        false
    }
}

/// An origin whose answer is what one of its resources holds.
struct Reading(Arc<dyn Resources>);

#[async_trait]
impl Tool for Reading {
    fn spec(&self) -> Arc<ToolSpec> {
        let prefix = self.0.prefix();
        Arc::new(ToolSpec {
            annotations: Annotations { read_only: Some(true), ..Annotations::default() },
            ..ToolSpec::new(
                prefix,
                format!("Read what a URI beginning with {prefix} names."),
                json!({
                    "type": "object",
                    "properties": { "uri": { "type": "string" } },
                    "required": ["uri"],
                }),
            )
        })
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let uri = arguments.get("uri").and_then(Value::as_str).unwrap_or_default();
        let contents = self.0.read(uri, call).await?;
        let value = serde_json::to_value(contents)
            .map_err(|error| ToolError::internal("the resource cannot be told", error))?;
        Ok(value.into())
    }

    fn timeout(&self) -> Option<Duration> {
        self.0.timeout()
    }
}
