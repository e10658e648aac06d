//! MCP resources: content that clients read by URI, and its origins.
//!
//! A resource is read by [`Catalog::call`], like a tool is called: the catalog registers each origin of resources as a
//! tool.

use crate::{
    Annotations, BuiltinProvider, Call, Catalog, CompletionRequest, Completions, Identifier, Output,
    Provider, Tool, ToolError, ToolSpec,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// An origin of resources, whose URIs share a prefix.
#[async_trait]
pub trait Resources: Send + Sync + 'static {
    /// URI prefix of all its resources. Neither it nor another origin's prefix may start with the other.
    fn prefix(&self) -> &str;

    /// At most `most` resources in a stable order, starting at the page token `from`, as they are in this catalog.
    async fn list(
        &self,
        from: Option<&str>,
        most: usize,
        catalog: &Catalog,
    ) -> Result<ResourcePage, ToolError>;

    /// URI templates of resources that can be read without being listed.
    fn templates(&self) -> Vec<ResourceTemplate> {
        Vec::new()
    }

    /// Reads a resource; `not_found` if it does not exist.
    async fn read(&self, uri: &str, call: &Call) -> Result<Vec<ResourceContent>, ToolError>;

    /// Subscribes to changes, if the origin can report them.
    fn changes(&self) -> Option<broadcast::Receiver<ResourceChange>> {
        None
    }

    /// Subscribes to changes of one resource until the returned handle is dropped, if [`Resources::changes`] alone
    /// would not report them.
    async fn subscribe(&self, uri: &str) -> Option<ResourceSubscription> {
        let _ = uri;
        None
    }

    /// Completion values for an argument of a URI template.
    async fn complete(&self, request: &CompletionRequest) -> Result<Completions, ToolError> {
        let _ = request;
        Ok(Completions::default())
    }

    /// Timeout of [`Resources::read`]; `None` means the catalog's default.
    fn timeout(&self) -> Option<Duration> {
        None
    }
}

/// A subscription to changes of a resource, which ends when this is dropped.
pub type ResourceSubscription = Box<dyn Send + Sync>;

/// Metadata of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// Its URI.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Display name.
    pub title: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// Media type.
    pub mime_type: Option<String>,
    /// Size of the content in bytes.
    pub size: Option<u64>,
    /// Other MCP fields for clients: `annotations`, `icons`, `_meta`.
    pub more: Map<String, Value>,
}

/// One page of a list of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePage {
    /// The resources.
    pub resources: Vec<Resource>,
    /// Token of the next page; `None` after the last.
    pub next: Option<String>,
}

/// A URI template of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceTemplate {
    /// The template, with `{names}` (RFC 6570).
    pub uri_template: String,
    /// Its name.
    pub name: String,
    /// Display name.
    pub title: Option<String>,
    /// Description of these resources.
    pub description: Option<String>,
    /// Media type of their content.
    pub mime_type: Option<String>,
    /// Other MCP fields for clients, as in [`Resource::more`].
    pub more: Map<String, Value>,
}

/// Content of a resource: text, or bytes in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContent {
    /// The URI that was read.
    pub uri: String,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes in base64, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// Other MCP fields for clients: `_meta`.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A change of an origin's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceChange {
    /// The content of a resource changed.
    Content {
        /// Its URI.
        uri: String,
    },
    /// The list of resources changed.
    List,
}

/// Full name of the tool that reads the resources with this URI prefix.
pub(crate) fn tool_name(prefix: &str) -> String {
    format!("{}.{}", BuiltinProvider::Resources.name(), Identifier::sanitize(prefix))
}

/// The provider of all origins of a catalog, each as a tool.
pub(crate) struct ResourceProvider(pub(crate) Vec<Arc<dyn Resources>>);

impl Provider for ResourceProvider {
    fn name(&self) -> Identifier {
        BuiltinProvider::Resources.identifier()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.iter().map(|origin| Arc::new(ResourceTool(origin.clone())) as Arc<dyn Tool>).collect()
    }

    fn exposed(&self) -> bool {
        false
    }
}

/// Adapter that makes an origin a tool; its result is the content of a resource.
struct ResourceTool(Arc<dyn Resources>);

#[async_trait]
impl Tool for ResourceTool {
    fn spec(&self) -> Arc<ToolSpec> {
        let prefix = self.0.prefix();
        Arc::new(ToolSpec {
            annotations: Annotations { read_only: Some(true), ..Annotations::default() },
            ..ToolSpec::new(
                prefix,
                format!("Read a resource whose URI begins with {prefix}."),
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
            .map_err(|error| ToolError::internal("cannot serialize the resource", error))?;
        Ok(value.into())
    }

    fn timeout(&self) -> Option<Duration> {
        self.0.timeout()
    }
}
