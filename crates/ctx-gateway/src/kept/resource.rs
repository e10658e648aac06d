//! Kept results as resources: `ctx://result/{id}`.

use super::{BoundedStore, URI_PREFIX};
use async_trait::async_trait;
use ctx_core::{Call, Catalog, ResourceContent, ResourcePage, ResourceTemplate, Resources, ToolError};
use std::sync::Arc;
use tokio::time::Instant;

/// MIME type of kept results.
const JSON: &str = "application/json";

/// The kept results as resources.
pub(super) struct ResultResources(pub(super) Arc<BoundedStore<Arc<str>>>);

#[async_trait]
impl Resources for ResultResources {
    fn prefix(&self) -> &str {
        URI_PREFIX
    }

    /// Lists nothing: only the caller that made a result may know of it.
    async fn list(&self, _: Option<&str>, _: usize, _: &Catalog) -> Result<ResourcePage, ToolError> {
        Ok(ResourcePage::default())
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        vec![ResourceTemplate {
            uri_template: format!("{URI_PREFIX}{{id}}"),
            name: "result".to_owned(),
            title: Some("Kept result".to_owned()),
            description: Some("A result of `execute` that was too large for a response.".to_owned()),
            mime_type: Some(JSON.to_owned()),
            ..ResourceTemplate::default()
        }]
    }

    async fn read(&self, uri: &str, call: &Call) -> Result<Vec<ResourceContent>, ToolError> {
        let id = uri.strip_prefix(URI_PREFIX).unwrap_or_default();
        let json = self.0.get(id, call.identity(), Instant::now())?;
        let mime_type = Some(JSON.to_owned());
        let (uri, text) = (uri.to_owned(), Some(json.to_string()));
        Ok(vec![ResourceContent { uri, mime_type, text, ..ResourceContent::default() }])
    }
}
