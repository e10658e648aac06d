//! Kept files: when a function answers with a file, its bytes stay here and the caller gets a URI.
//!
//! A script passes the URI on to a function that takes a file, or reads the bytes by `ctx.file`. Clients read
//! the resource.

use super::BoundedStore;
use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ctx_core::{
    Annotations, BuiltinProvider, Call, Catalog, FILE_PREFIX, FileStore, Identifier, Identity, Output,
    Provider, ResourceContent, ResourcePage, ResourceTemplate, Resources, StoredFile, Tool, ToolError,
    ToolSpec,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio::time::Instant;

/// The kept files, and the provider that reads them.
#[derive(Clone, Default)]
pub(crate) struct KeptFiles {
    store: Arc<BoundedStore<StoredFile>>,
}

impl FileStore for KeptFiles {
    fn store(&self, file: StoredFile, owner: Option<&Identity>) -> String {
        format!("{FILE_PREFIX}{}", self.store.put(file, owner, Instant::now()))
    }

    fn load(&self, uri: &str, reader: Option<&Identity>) -> Result<StoredFile, ToolError> {
        self.store.get(uri.strip_prefix(FILE_PREFIX).unwrap_or(uri), reader, Instant::now())
    }
}

impl Provider for KeptFiles {
    fn name(&self) -> Identifier {
        BuiltinProvider::Ctx.identifier()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        vec![Arc::new(FileTool::new())]
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(self.clone()))
    }

    fn file_store(&self) -> Option<Arc<dyn FileStore>> {
        Some(Arc::new(self.clone()))
    }

    fn builtin(&self) -> bool {
        true
    }

    fn exposed(&self) -> bool {
        false
    }
}

#[async_trait]
impl Resources for KeptFiles {
    fn prefix(&self) -> &str {
        FILE_PREFIX
    }

    /// Lists nothing: only the caller that made a file may know of it.
    async fn list(&self, _: Option<&str>, _: usize, _: &Catalog) -> Result<ResourcePage, ToolError> {
        Ok(ResourcePage::default())
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        vec![ResourceTemplate {
            uri_template: format!("{FILE_PREFIX}{{id}}"),
            name: "file".to_owned(),
            title: Some("Kept file".to_owned()),
            description: Some("A file that a function returned.".to_owned()),
            ..ResourceTemplate::default()
        }]
    }

    async fn read(&self, uri: &str, call: &Call) -> Result<Vec<ResourceContent>, ToolError> {
        let StoredFile { content_type, bytes, .. } = call.load_file(uri)?;
        let (uri, blob) = (uri.to_owned(), Some(BASE64_STANDARD.encode(bytes)));
        Ok(vec![ResourceContent { uri, mime_type: Some(content_type), blob, ..ResourceContent::default() }])
    }
}

/// The tool `ctx.file`, for scripts: the bytes of a file, or a range of them.
struct FileTool {
    spec: Arc<ToolSpec>,
}

impl FileTool {
    fn new() -> Self {
        let input_schema = json!({
            "type": "object",
            "properties": {
                "uri": {"type": "string", "description": "URI of the file: `ctx://file/…`."},
                "from": {"type": "integer", "minimum": 1, "description": "First byte, from 1."},
                "count": {"type": "integer", "minimum": 1, "description": "Number of bytes."},
            },
            "required": ["uri"],
        });
        let description = "Returns the bytes of a file that a function returned, in base64. A function with a \
            file parameter accepts that return value itself.";
        let spec = ToolSpec {
            title: Some("Read a kept file".to_owned()),
            annotations: Annotations::READ_ONLY,
            ..ToolSpec::new("file", description, input_schema)
        };
        Self { spec: Arc::new(spec) }
    }
}

#[async_trait]
impl Tool for FileTool {
    fn spec(&self) -> Arc<ToolSpec> {
        self.spec.clone()
    }

    async fn run(&self, arguments: Map<String, Value>, call: &Call) -> Result<Output, ToolError> {
        let number = |name: &str| arguments.get(name).and_then(Value::as_f64).map(|number| number as usize);
        let file = call.load_file(arguments.get("uri").and_then(Value::as_str).unwrap_or_default())?;
        let (skip, take) =
            (number("from").unwrap_or(1).saturating_sub(1), number("count").unwrap_or(usize::MAX));
        let total = file.bytes.len();
        let from = skip.min(total);
        let part = file.bytes.get(from..from.saturating_add(take).min(total)).unwrap_or_default();
        let mut answer = json!({
            "base64": BASE64_STANDARD.encode(part),
            "content_type": file.content_type,
            "bytes": total,
        });
        if let (Some(name), Value::Object(fields)) = (file.name, &mut answer) {
            fields.insert("name".to_owned(), name.into());
        }
        Ok(answer.into())
    }
}
