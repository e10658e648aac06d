//! Documents as MCP resources: listed, read and subscribed to by URI, `ctx://document/{id}`.

use crate::change_notifier::{URI_PREFIX, document_uri};
use crate::knowledge::Knowledge;
use crate::provider::store_tool_error;
use crate::work_queue;
use async_trait::async_trait;
use ctx_core::{
    Call, Catalog, ErrorKind, Resource, ResourceChange, ResourceContent, ResourcePage, ResourceTemplate,
    Resources, ToolError, json_size,
};
use ctx_store::ListedDocument;
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use uuid::Uuid;

/// Maximum page size, whatever the request asks for.
const PAGE_MAX: usize = 1000;
/// Maximum length of a displayed name or description.
const DISPLAY_BYTES_MAX: usize = 300;

/// The documents of a knowledge base as resources.
///
/// Listed in the order of insertion: a document added during pagination appears at the end, and a changed document
/// keeps its position. When very many documents change at once, subscribers only learn that the list changed.
pub(crate) struct DocumentResources {
    knowledge: Arc<Knowledge>,
}

impl DocumentResources {
    pub(crate) fn new(knowledge: Arc<Knowledge>) -> Self {
        Self { knowledge }
    }
}

#[async_trait]
impl Resources for DocumentResources {
    fn prefix(&self) -> &str {
        URI_PREFIX
    }

    async fn list(&self, cursor: Option<&str>, limit: usize, _: &Catalog) -> Result<ResourcePage, ToolError> {
        let after = cursor.map_or(Ok(0), parse_cursor)?;
        let limit = limit.clamp(1, PAGE_MAX);
        let knowledge = self.knowledge.clone();
        // One document more than fits shows whether there is another page.
        let documents = work_queue::READS.run(move || knowledge.list_documents(after, limit + 1)).await?;
        let mut documents = documents.map_err(store_tool_error)?;
        let more = documents.len() > limit;
        documents.truncate(limit);
        let next = documents.last().filter(|_| more).map(|last| last.key.to_string());
        Ok(ResourcePage { resources: documents.into_iter().map(to_resource).collect(), next })
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        vec![ResourceTemplate {
            uri_template: format!("{URI_PREFIX}{{id}}"),
            name: "document".to_owned(),
            title: Some("Document".to_owned()),
            description: Some("The text of a document by its id, from a search result.".to_owned()),
            ..ResourceTemplate::default()
        }]
    }

    async fn read(&self, uri: &str, call: &Call) -> Result<Vec<ResourceContent>, ToolError> {
        let not_found = || {
            let shown = truncate(uri.to_owned(), DISPLAY_BYTES_MAX);
            ToolError::not_found(format!("no document has the URI {shown}; `search` finds those there are"))
        };
        let id = document_id(uri).ok_or_else(not_found)?;
        let bytes_max = call.catalog().limits().result_bytes;
        let knowledge = self.knowledge.clone();
        let document = work_queue::READS.run(move || knowledge.document_text(id, bytes_max)).await?;
        let document = document.map_err(store_tool_error)?.ok_or_else(not_found)?;
        let Some(text) = document.text else { return Err(too_large(document.bytes, bytes_max)) };
        let mime_type = Some(ctx_extract::stored_content_type(&document.content_type).to_owned());
        let contents = vec![ResourceContent {
            uri: uri.to_owned(),
            mime_type,
            text: Some(text),
            ..ResourceContent::default()
        }];
        // Checked here as well as in the catalog, whose error could not suggest an alternative.
        match json_size(&contents) {
            bytes if bytes > bytes_max => Err(too_large(bytes as u64, bytes_max)),
            _ => Ok(contents),
        }
    }

    fn changes(&self) -> Option<Receiver<ResourceChange>> {
        Some(self.knowledge.subscribe_to_changes())
    }
}

fn to_resource(document: ListedDocument) -> Resource {
    let ListedDocument { id, source, source_id, title, content_type, bytes, .. } = document;
    let last_part = source_id.rsplit(['/', '\\']).next().filter(|part| !part.is_empty());
    let name = last_part.map(str::to_owned).or_else(|| title.clone()).unwrap_or_else(|| id.to_string());
    Resource {
        uri: document_uri(id),
        name: truncate(name, DISPLAY_BYTES_MAX),
        title,
        description: Some(truncate(format!("{source}: {source_id}"), DISPLAY_BYTES_MAX)),
        mime_type: Some(ctx_extract::stored_content_type(&content_type).to_owned()),
        size: Some(bytes),
        ..Resource::default()
    }
}

/// Parses a list cursor. Untrusted, because it comes from the client, although the server issued it.
fn parse_cursor(cursor: &str) -> Result<u64, ToolError> {
    let key = cursor.parse::<i64>().ok().and_then(|key| u64::try_from(key).ok());
    key.filter(|key| key.to_string() == cursor)
        .ok_or_else(|| ToolError::bad_request("invalid cursor; start again without one"))
}

/// The id in a URI. Accepts only the canonical spelling, so that a document has exactly one URI.
fn document_id(uri: &str) -> Option<Uuid> {
    let text = uri.strip_prefix(URI_PREFIX)?;
    Uuid::try_parse(text).ok().filter(|id| id.to_string() == text)
}

fn too_large(bytes: u64, bytes_max: usize) -> ToolError {
    let message = format!(
        "the document has {bytes} bytes; the limit is {bytes_max} (limits.result_bytes): `search` finds \
         parts of it, `ctx export` writes it whole"
    );
    ToolError::new(ErrorKind::TooLarge, message)
}

fn truncate(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
    text
}
