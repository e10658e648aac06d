//! MCP requests as calls of the catalog.

use ctx_core::{Call, Catalog, Output, Prompt, ResourceContent, ToolError};
use rmcp::model::JsonObject;
use serde_json::Value;

/// A tool to call, an agent to resolve or a resource to read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CatalogRequest {
    Tool { name: String, arguments: JsonObject },
    Prompt { name: String, arguments: JsonObject },
    Read { uri: String },
}

/// The result of a [`CatalogRequest`].
#[derive(Debug)]
pub(super) enum CatalogResponse {
    Tool(Output),
    Prompt(Prompt),
    Read(Vec<ResourceContent>),
}

impl CatalogRequest {
    pub(super) async fn run(self, call: Call) -> Result<CatalogResponse, ToolError> {
        match self {
            Self::Tool { name, arguments } => {
                Catalog::call(&name, Value::Object(arguments), call).await.map(CatalogResponse::Tool)
            }
            Self::Prompt { name, arguments } => {
                Catalog::prompt(&name, Value::Object(arguments), call).await.map(CatalogResponse::Prompt)
            }
            Self::Read { uri } => Catalog::read(&uri, call).await.map(CatalogResponse::Read),
        }
    }

    /// Identifies this request: a handle to its parked call is valid for no other.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        let (kind, name, arguments) = match self {
            Self::Tool { name, arguments } => ("tool", name, Some(arguments)),
            Self::Prompt { name, arguments } => ("prompt", name, Some(arguments)),
            Self::Read { uri } => ("read", uri, None),
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update(serde_json::json!([kind, name, arguments]).to_string().as_bytes());
        *hasher.finalize().as_bytes()
    }
}
