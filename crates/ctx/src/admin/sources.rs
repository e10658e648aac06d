//! Sources: how each is doing, and how a server keeps it fresh.

use super::{Operation, store_failed};
use crate::config::Every;
use crate::workspace::{Freshness, time_until_due};
use async_trait::async_trait;
use ctx_core::ToolError;
use ctx_knowledge::{Knowledge, SourceStatus};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `admin.list_sources`
pub(crate) struct ListSources {
    pub(super) knowledge: Arc<Knowledge>,
    pub(super) freshness: Vec<Freshness>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListSourcesRequest {}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SourceList {
    /// Every source, configured or only remembered.
    pub(crate) sources: Vec<ListedSource>,
}

/// A source, how it is doing, and how a server keeps it fresh.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListedSource {
    #[serde(flatten)]
    pub(crate) status: SourceStatus,
    /// Whether it is synced when it changes.
    pub(crate) watched: bool,
    /// How often it is synced.
    pub(crate) every: Option<String>,
    /// When that is next.
    #[schemars(with = "Option<String>")]
    pub(crate) next_sync: Option<Timestamp>,
}

impl ListedSource {
    fn new(status: SourceStatus, freshness: &[Freshness]) -> Self {
        let freshness = freshness.iter().find(|source| source.name.to_string() == status.name);
        let every = freshness.and_then(|freshness| freshness.every);
        let now = Timestamp::now();
        let next =
            |(every, last): (Every, _)| now.checked_add(time_until_due(every.duration(), Some(last), now));
        Self {
            watched: freshness.is_some_and(|freshness| freshness.watch),
            every: every.map(|every| every.to_string()),
            next_sync: every.zip(status.last_sync).and_then(|times| next(times).ok()),
            status,
        }
    }
}

#[async_trait]
impl Operation for ListSources {
    const NAME: &'static str = "list_sources";
    const DESCRIPTION: &'static str = "List sources and how they are doing.";
    type Request = ListSourcesRequest;
    type Answer = SourceList;

    async fn answer(&self, _: ListSourcesRequest) -> Result<SourceList, ToolError> {
        let statuses = self.knowledge.sources().await.map_err(store_failed)?;
        let sources = statuses.into_iter().map(|status| ListedSource::new(status, &self.freshness));
        Ok(SourceList { sources: sources.collect() })
    }
}
