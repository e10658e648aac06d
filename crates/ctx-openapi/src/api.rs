//! An API as a provider: each of its operations is a tool.

use crate::auth::{self, Credentials};
use crate::client::Client;
use crate::operation::{Description, Operation, Scheme};
use crate::request::{Request, base_url};
use crate::settings::{ApiError, ApiSettings};
use async_trait::async_trait;
use ctx_core::{Annotations, BodyArgument, Call, Identifier, Output, Provider, Tool, ToolError, ToolSpec};
use reqwest::Url;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The operations of an API, for catalogs.
pub struct Api {
    inner: Arc<Inner>,
    tools: Vec<Arc<dyn Tool>>,
}

/// What all operations share.
struct Inner {
    settings: ApiSettings,
    document: Option<Url>,
    schemes: BTreeMap<String, Scheme>,
    /// Whether the document asks for credentials nowhere.
    is_silent: bool,
    client: Client,
}

impl Api {
    /// What the document describes, with these settings.
    pub(crate) fn new(description: Description, settings: ApiSettings) -> Result<Self, ApiError> {
        let document = settings.document_url.as_deref().and_then(|url| Url::parse(url).ok());
        let client = Client::new(&settings)?;
        let Description { operations, schemes, .. } = description;
        let is_silent = operations.iter().all(|operation| operation.security.is_empty());
        let inner = Arc::new(Inner { settings, document, schemes, is_silent, client });
        let tool = |operation| Arc::new(OperationTool::new(operation, inner.clone())) as Arc<dyn Tool>;
        let tools = operations.into_iter().map(tool).collect();
        Ok(Self { inner, tools })
    }
}

impl Provider for Api {
    fn name(&self) -> Identifier {
        self.inner.settings.name.clone()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }

    fn exposed(&self) -> bool {
        self.inner.settings.exposed
    }
}

struct OperationTool {
    api: Arc<Inner>,
    /// Without its schemas: they are in the spec.
    operation: Operation,
    spec: Arc<ToolSpec>,
}

impl OperationTool {
    fn new(mut operation: Operation, api: Arc<Inner>) -> Self {
        let mut tags: Vec<String> =
            operation.tags.iter().filter(|tag| ToolSpec::is_tag(tag)).cloned().collect();
        tags.truncate(ToolSpec::TAGS_MAX);
        let spec = ToolSpec {
            name: operation.name.clone(),
            title: operation.title.take(),
            description: std::mem::take(&mut operation.description),
            input_schema: operation.input_schema.take().into(),
            output_schema: operation.output_schema.take().map(Into::into),
            annotations: annotations(&operation.method),
            tags,
            body: operation
                .body
                .as_ref()
                .map(|body| BodyArgument { name: body.argument.clone(), has_fields: body.has_fields }),
        };
        Self { api, operation, spec: Arc::new(spec) }
    }
}

#[async_trait]
impl Tool for OperationTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        self.api.send(&self.operation, &arguments, None, call.time_left()).await
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.api.settings.limits.call)
    }
}

impl Inner {
    /// Calls an operation. Credentials that come with the call stand for all that are configured.
    async fn send(
        &self,
        operation: &Operation,
        arguments: &Map<String, Value>,
        own: Option<&Credentials>,
        time_left: Duration,
    ) -> Result<Output, ToolError> {
        let base = base_url(self.settings.base_url.as_deref(), operation, self.document.as_ref())?;
        let request = Request::new(operation, arguments, &base)?;
        let credentials = own.unwrap_or(&self.settings.credentials);
        let grants = auth::choose(operation, &self.schemes, self.is_silent, credentials)?;
        let shown = request.shown();
        let time_left = time_left.min(self.settings.limits.call);
        let answered = self.client.send(request, grants, &base, time_left).await?;
        let output = answered.received.into_output(&shown, &answered.redactor);
        output.map_err(|error| match answered.wait {
            Some(wait) => error.retry_after(wait),
            None => error,
        })
    }
}

/// What a method says of what is done.
fn annotations(method: &str) -> Annotations {
    let open_world = Some(true);
    match method {
        "GET" | "HEAD" | "OPTIONS" | "TRACE" => Annotations { open_world, ..Annotations::READ_ONLY },
        "DELETE" => Annotations {
            read_only: Some(false),
            destructive: Some(true),
            idempotent: Some(true),
            open_world,
        },
        "PUT" => {
            Annotations { read_only: Some(false), destructive: None, idempotent: Some(true), open_world }
        }
        _ => Annotations { read_only: Some(false), destructive: None, idempotent: None, open_world },
    }
}

#[cfg(test)]
mod tests;
