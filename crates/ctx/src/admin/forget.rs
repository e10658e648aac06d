//! Removes the documents of a source that is no longer configured.

use super::operation_error::{to_tool_error, with_hints};
use super::{Operation, store_error};
use async_trait::async_trait;
use ctx_core::{Annotations, Call, SourceName, ToolError};
use ctx_knowledge::{Knowledge, cache_path};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// `admin.forget_source`
pub(crate) struct ForgetSource {
    pub(super) knowledge: Arc<Knowledge>,
    /// The path that cache paths are derived from, see [`cache_path`].
    pub(super) cache_base: PathBuf,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForgetSourceRequest {
    /// The source's name, such as `filesystem:notes`.
    pub(crate) source: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ForgottenSource {
    /// The source's name.
    pub(crate) source: String,
    /// Number of removed documents.
    pub(crate) removed: u64,
}

#[async_trait]
impl Operation for ForgetSource {
    const NAME: &'static str = "forget_source";
    const DESCRIPTION: &'static str = "Remove the documents of a source that is no longer configured.";
    const ANNOTATIONS: Annotations = Annotations {
        read_only: Some(false),
        destructive: Some(true),
        idempotent: Some(false),
        open_world: Some(false),
    };
    type Request = ForgetSourceRequest;
    type Response = ForgottenSource;

    async fn run(&self, request: ForgetSourceRequest, _: &Call) -> Result<ForgottenSource, ToolError> {
        let source = request.source;
        let statuses = self.knowledge.sources().await.map_err(store_error)?;
        let Some(status) = statuses.iter().find(|status| status.name == source) else {
            let error = ToolError::bad_request(format!("no source named `{source}`"));
            return Err(with_hints(error, ["`ctx sources` lists them".to_owned()]));
        };
        if status.configured {
            let error = ToolError::bad_request(format!(
                "`{source}` is configured, so the next sync would bring it back"
            ));
            return Err(with_hints(error, ["remove its section from ctx.toml first".to_owned()]));
        }
        let (kind, own_name) = source.split_once(':').unwrap_or((&source, ""));
        let name = SourceName::new(kind, own_name);
        let (knowledge, cache) = (self.knowledge.clone(), cache_path(&self.cache_base, &name));
        let forgetting = move || {
            let removed = knowledge.forget(&name)?;
            // `forget` removes the cache beside the store; with `db.path` the cache is in the data folder instead. A
            // failure only costs disk space.
            std::fs::remove_dir_all(cache).ok();
            Ok(removed)
        };
        let removed = tokio::task::spawn_blocking(forgetting)
            .await
            .map_err(|error| ToolError::internal("the operation failed", error))?
            .map_err(|error: ctx_knowledge::SyncError| to_tool_error(error.into()))?;
        Ok(ForgottenSource { source, removed })
    }
}
