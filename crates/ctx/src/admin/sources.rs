//! Sources: their status, their sync schedule, and which of their files are indexed.

use super::{Operation, read_store, store_error};
use crate::config::SyncInterval;
use crate::workspace::{SourceFreshness, time_until_due};
use async_trait::async_trait;
use ctx_core::{Annotations, Call, SourceName, ToolError};
use ctx_knowledge::{Knowledge, SourceStatus};
use ctx_store::{FilePosition, SourceFile};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Files per page, if the request does not say.
const FILES_DEFAULT: usize = 100;
/// Maximum number of files per page.
const FILES_MAX: usize = 1_000;

/// `admin.list_sources`
pub(crate) struct ListSources {
    pub(super) knowledge: Arc<Knowledge>,
    pub(super) freshness: Vec<SourceFreshness>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListSourcesRequest {}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SourceList {
    /// Every source: those that are configured, and those that only have stored documents.
    pub(crate) sources: Vec<ListedSource>,
}

/// A source with its status and its sync schedule.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ListedSource {
    #[serde(flatten)]
    pub(crate) status: SourceStatus,
    /// Whether a server watches it and syncs it after a change.
    pub(crate) watched: bool,
    /// The sync interval.
    pub(crate) every: Option<String>,
    /// The time of the next scheduled sync.
    #[schemars(with = "Option<String>")]
    pub(crate) next_sync: Option<Timestamp>,
}

impl ListedSource {
    fn new(status: SourceStatus, freshness: &[SourceFreshness]) -> Self {
        let freshness = freshness.iter().find(|source| source.name.to_string() == status.name);
        let every = freshness.and_then(|freshness| freshness.every);
        let now = Timestamp::now();
        let next = |(every, last): (SyncInterval, _)| {
            now.checked_add(time_until_due(every.duration(), Some(last), now))
        };
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
    const DESCRIPTION: &'static str = "List sources with their health, schedule and last sync.";
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Request = ListSourcesRequest;
    type Response = SourceList;

    async fn run(&self, _: ListSourcesRequest, _: &Call) -> Result<SourceList, ToolError> {
        let statuses = self.knowledge.sources().await.map_err(store_error)?;
        let sources = statuses.into_iter().map(|status| ListedSource::new(status, &self.freshness));
        Ok(SourceList { sources: sources.collect() })
    }
}

/// `admin.list_files`
pub(crate) struct ListFiles {
    pub(super) knowledge: Arc<Knowledge>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFilesRequest {
    /// The source, as `kind:name`.
    source: String,
    /// Cursor of the page: `next` of the previous page.
    #[serde(default)]
    after: Option<FilePosition>,
    /// Maximum number of files; 100 by default, and at most 1,000.
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FileList {
    /// Files by name. Files without text that an earlier version skipped have no name until the next sync;
    /// they come last.
    files: Vec<SourceFile>,
    /// Cursor of the next page, if there is one.
    next: Option<FilePosition>,
}

#[async_trait]
impl Operation for ListFiles {
    const NAME: &'static str = "list_files";
    const DESCRIPTION: &'static str = "List the files of a source: whether each is indexed, and why not.";
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Request = ListFilesRequest;
    type Response = FileList;

    async fn run(&self, request: ListFilesRequest, _: &Call) -> Result<FileList, ToolError> {
        let ListFilesRequest { source, after, limit } = request;
        let (kind, name) = source.split_once(':').unwrap_or((&source, ""));
        let name = SourceName::new(kind, name);
        let is_configured = self.knowledge.source_names().any(|configured| *configured == name);
        let limit = limit.unwrap_or(FILES_DEFAULT).clamp(1, FILES_MAX);
        let (knowledge, is_first) = (self.knowledge.clone(), after.is_none());
        // One file more than the limit shows whether there is a next page.
        let mut files = read_store(move || knowledge.files(&name, after.as_ref(), limit + 1)).await?;
        if files.is_empty() && is_first && !is_configured {
            return Err(ToolError::not_found(format!("no source named `{source}`")));
        }
        let has_more = files.len() > limit;
        files.truncate(limit);
        let next = files.last().filter(|_| has_more).map(SourceFile::position);
        Ok(FileList { files, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{Admin, call, tool};
    use ctx_core::Catalog;
    use ctx_knowledge::{
        Chunking, Extraction, ExtractionSettings, KnowledgeOptions, SearchMode, SearchTuning,
    };
    use ctx_store::{DocumentId, DocumentStore, FileState, MemoryStore, Mutation};
    use std::path::PathBuf;

    const FILES: u128 = 5;

    /// A catalog with the operation `list_files`, on a store with a few files without text.
    fn catalog(folder: &std::path::Path) -> Arc<Catalog> {
        let store = MemoryStore::default();
        let skip = |number: u128| {
            let (id, source) = (DocumentId::from_u128(number), SourceName::new("filesystem", "docs"));
            let (source_id, fingerprint) = (format!("{number}.pdf"), "f".to_owned());
            match number {
                2 => {
                    let reason = "it is damaged".to_owned();
                    Mutation::SkipUnreadable { id, source, source_id, fingerprint, reason }
                }
                _ => Mutation::SkipEmpty { id, source, source_id, fingerprint },
            }
        };
        store.apply(&(1..=FILES).map(skip).collect::<Vec<_>>()).unwrap();
        let options = KnowledgeOptions {
            store: folder.join("ctx.sqlite"),
            extraction: Extraction::confined(ExtractionSettings::new(PathBuf::new(), Vec::new())),
            chunking: Chunking { max_tokens: 256, overlap_tokens: 32 },
            mode: SearchMode::Keyword,
            final_limit: 12,
            tuning: SearchTuning {
                keyword_candidates: 100,
                vector_candidates: 100,
                hybrid_alpha: None,
                min_cosine: None,
            },
            embedding: None,
            sources: Vec::new(),
        };
        let knowledge = Arc::new(Knowledge::with_store(Arc::new(store), options).unwrap());
        let admin = Admin { tools: vec![tool(ListFiles { knowledge })] };
        Catalog::builder().provider(Arc::new(admin)).build()
    }

    fn request(after: Option<FilePosition>, limit: usize) -> ListFilesRequest {
        ListFilesRequest { source: "filesystem:docs".to_owned(), after, limit: Some(limit) }
    }

    #[tokio::test]
    async fn files_come_in_pages_with_their_states_and_reasons() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = catalog(folder.path());
        let (mut files, mut after) = (Vec::new(), None);
        loop {
            let page = call::<ListFiles>(catalog.clone(), request(after, 2)).await.unwrap();
            assert!((1..=2).contains(&page.files.len()));
            files.extend(page.files.into_iter().map(|file| (file.source_id.unwrap(), file.state)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let state = |number: u128| match number {
            2 => FileState::Unreadable { reason: "it is damaged".to_owned(), has_earlier_text: false },
            _ => FileState::Empty,
        };
        let expected = (1..=FILES).map(|number| (format!("{number}.pdf"), state(number)));
        assert_eq!(files, expected.collect::<Vec<_>>());
        let whole = call::<ListFiles>(catalog, request(None, FILES as usize)).await.unwrap();
        assert_eq!((whole.files.len(), whole.next), (FILES as usize, None));
    }

    #[tokio::test]
    async fn a_source_that_is_neither_configured_nor_stored_is_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = catalog(folder.path());
        for source in ["docs", "filesystem:other"] {
            let unknown = ListFilesRequest { source: source.to_owned(), ..request(None, 1) };
            let error = call::<ListFiles>(catalog.clone(), unknown).await.err().unwrap();
            assert!(error.is_not_found(), "{source}");
        }
    }
}
