//! Numbers of stored documents, chunks and vectors, by source.

use super::{Operation, read_store};
use async_trait::async_trait;
use ctx_core::{Annotations, Call, ToolError};
use ctx_knowledge::{Knowledge, Stats};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `admin.stats`
pub(crate) struct ShowStats {
    pub(super) knowledge: Arc<Knowledge>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowStatsRequest {}

#[async_trait]
impl Operation for ShowStats {
    const NAME: &'static str = "stats";
    const DESCRIPTION: &'static str = "Show how much is stored, by source.";
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Request = ShowStatsRequest;
    type Response = Stats;

    async fn run(&self, _: ShowStatsRequest, _: &Call) -> Result<Stats, ToolError> {
        let knowledge = self.knowledge.clone();
        read_store(move || knowledge.stats()).await
    }
}
