//! Sync: brings the documents of one source into the store.
//!
//! Content with an unchanged hash is not written again. Missing documents are deleted only after a complete listing.
//! The cursor is saved last. A failure of one document never stops the others.

mod batch;
mod gate;
mod journal;
mod stored_documents;
mod writer;

use crate::chunk::Chunking;
use crate::embed::EmbeddingModels;
use crate::extraction::Extraction;
use crate::knowledge::Source;
use crate::search::{View, ViewError};
use batch::MutationBatch;
use ctx_core::{Listing, PullResult, Sink, SinkClosed, SourceError, SourceName};
use ctx_store::{FilePosition, Lease, LeaseGuard, Store, StoreError, SyncOutcome, source_file_stem};
use jiff::Timestamp;
use journal::CrashJournal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stored_documents::StoredDocuments;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use writer::{DocumentWriter, StreamEnd};

/// Capacity of the queue between connector and writer, in documents. Small: each may be as large as the limit.
const QUEUE_CAPACITY: usize = 8;

/// Files of a source that are read from the store per page.
const FILES_PAGE: usize = 1_024;

/// Deletions remembered for keyword indexes that lag behind; an index that is older is rebuilt.
pub(crate) const DELETIONS_KEPT: usize = 10_000;

/// Options of a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncOptions {
    /// Reads everything again; content hashes still decide what is written.
    pub full: bool,
    /// Counts changes, but writes nothing.
    pub dry_run: bool,
    /// Only documents changed at this time or later.
    pub since: Option<Timestamp>,
    /// Only documents changed at this time or earlier.
    pub until: Option<Timestamp>,
    /// Stops after this many added or updated documents.
    pub limit: Option<u64>,
}

/// The result of a sync, or of its dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyncReport {
    /// The source.
    pub source: String,
    /// New documents.
    pub added: u64,
    /// Documents whose content changed.
    pub updated: u64,
    /// Unchanged documents.
    pub unchanged: u64,
    /// Deleted documents.
    pub deleted: u64,
    /// Files without text.
    pub skipped: u64,
    /// Files that were left out because they usually hold secrets, or contain a private key.
    pub secret_files: u64,
    /// Number of documents that could not be read.
    pub warning_count: u64,
    /// The first of these warnings.
    pub warnings: Vec<Warning>,
}

/// A document that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// Its name within the source.
    pub source_id: String,
    /// The reason.
    pub reason: String,
}

/// Progress of a sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The source.
    pub source: String,
    /// Documents examined so far.
    pub seen: u64,
    /// Documents written so far.
    pub written: u64,
    /// Documents in the source, once their number is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// A failed sync. Documents that it stored before remain.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// Another process is syncing this source.
    #[error("{source_name} is being synced by another process")]
    Busy {
        /// The source.
        source_name: String,
    },
    /// The source cannot be read.
    #[error("{source_name}: {reason}")]
    Source {
        /// The source.
        source_name: String,
        /// The reason.
        reason: String,
    },
    /// The sync was cancelled.
    #[error("{source_name}: interrupted; what was read so far is kept")]
    Interrupted {
        /// The source.
        source_name: String,
    },
    /// The lease of the source could not be requested.
    #[error("cannot lock {source_name}")]
    Lock {
        /// The source.
        source_name: String,
        /// The reason.
        source: StoreError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The documents are stored, but the keyword index could not be updated.
    #[error("cannot update the keyword index; the next sync tries again")]
    View(#[from] ViewError),
}

/// The sync of one source, with everything it needs.
pub(crate) struct SyncJob<'a> {
    pub(crate) store: &'a Arc<dyn Store>,
    /// Path of the store; caches are next to it.
    pub(crate) store_path: &'a Path,
    pub(crate) view: &'a Arc<View>,
    pub(crate) source: &'a Source,
    pub(crate) extraction: &'a Extraction,
    pub(crate) chunking: Chunking,
    pub(crate) models: Option<Arc<EmbeddingModels>>,
    pub(crate) options: SyncOptions,
    pub(crate) progress: Arc<dyn Fn(Progress) + Send + Sync>,
    pub(crate) cancellation: CancellationToken,
}

impl SyncJob<'_> {
    /// Syncs the source, then lets the keyword index catch up.
    pub(crate) async fn run(self) -> Result<SyncReport, SyncError> {
        let name = &self.source.name;
        let lease = Arc::new(acquire_lease(&**self.store, name)?);
        // Dropping this future stops the writer too.
        let cancellation = self.cancellation.child_token();
        let _stop = cancellation.clone().drop_guard();
        let cursor = match self.options.full {
            true => None,
            false => self.store.sources()?.remove(&name.to_string()).and_then(|row| row.cursor),
        };

        let known =
            Arc::new(StoredDocuments::new(self.store.clone(), self.source, self.chunking, self.options.full));
        let (sink, changes) = Sink::channel(QUEUE_CAPACITY, known.clone());
        let writer = DocumentWriter {
            store: self.store.clone(),
            view: self.view.clone(),
            source: name.clone(),
            tags: self.source.tags.clone(),
            extraction: self.extraction.clone(),
            chunking: self.chunking,
            models: self.models.clone(),
            options: self.options,
            known: known.clone(),
            journal: self.journal(),
            progress: self.progress.clone(),
            cancellation: cancellation.clone(),
            _lease: lease.clone(),
            batch: MutationBatch::default(),
            received: 0,
            report: SyncReport { source: name.to_string(), ..SyncReport::default() },
        };
        let runtime = tokio::runtime::Handle::current();
        let writer_task = tokio::task::spawn_blocking(move || writer.run(changes, &runtime));
        let pull_result = tokio::select! {
            result = self.source.connector.pull(cursor.as_ref(), &sink) => result,
            () = cancellation.cancelled() => Err(SinkClosed.into()),
        };
        let secret_files = sink.secret_file_count();
        // The writer ends when the last sink is dropped.
        drop(sink);
        let (write_result, mut report) = writer_task.await.map_err(|error| SyncError::Source {
            source_name: name.to_string(),
            reason: format!("writing documents failed: {error}"),
        })?;
        report.unchanged += known.unchanged_count();
        report.secret_files += secret_files + known.private_key_count();

        let outcome = self.finish(pull_result, write_result, &known, &mut report);
        if !self.options.dry_run {
            let (store, view) = (self.store.clone(), self.view.clone());
            let catch_up =
                move || view.catch_up(&*store).and_then(|()| Ok(store.forget_old_deletions(DELETIONS_KEPT)?));
            let result = tokio::task::spawn_blocking(catch_up).await;
            // First: the error of a failed sync matters more than an index that lags behind.
            outcome?;
            match result {
                Ok(Err(error)) if error.is_busy() => {
                    tracing::warn!(%error, "cannot update the keyword index; the process that is writing it will");
                }
                Ok(result) => result?,
                Err(_) => {}
            }
            return Ok(report);
        }
        outcome.map(|()| report)
    }

    fn journal(&self) -> CrashJournal {
        CrashJournal::open(&cache_path(self.store_path, &self.source.name), self.options.dry_run)
    }

    fn finish(
        &self,
        pull_result: Result<PullResult, SourceError>,
        write_result: Result<StreamEnd, StoreError>,
        known: &StoredDocuments,
        report: &mut SyncReport,
    ) -> Result<(), SyncError> {
        let name = &self.source.name;
        let stream_end = write_result?;
        if stream_end == StreamEnd::Cancelled {
            return Err(SyncError::Interrupted { source_name: name.to_string() });
        }
        let pulled = match pull_result {
            Ok(pulled) => pulled,
            Err(SourceError::Closed(_)) if stream_end == StreamEnd::LimitReached => return Ok(()),
            Err(error) => {
                let reason = error.to_string();
                if !self.options.dry_run {
                    let outcome = SyncOutcome {
                        cursor: None,
                        error: Some(reason.clone()),
                        warnings: usize::try_from(report.warning_count).unwrap_or(usize::MAX),
                    };
                    self.store.finish_sync(name, &outcome)?;
                }
                return Err(SyncError::Source { source_name: name.to_string(), reason });
            }
        };
        // A sync restricted by time or number deletes nothing and keeps the old cursor, so that the next one sees the
        // rest.
        let SyncOptions { since, until, limit, .. } = self.options;
        let is_unrestricted = since.is_none() && until.is_none() && limit.is_none();
        if is_unrestricted && pulled.listing == Listing::Complete && stream_end == StreamEnd::Exhausted {
            self.delete_unseen(known, report)?;
            let mut journal = self.journal();
            journal.retain_suspects(|source_id| known.has_seen_source_id(source_id));
            journal.close();
        }
        if !self.options.dry_run && stream_end == StreamEnd::Exhausted {
            // Saved last: a crash before this line costs a repeated sync, never a lost document.
            let outcome = SyncOutcome {
                cursor: is_unrestricted.then_some(pulled.cursor),
                error: None,
                warnings: usize::try_from(report.warning_count).unwrap_or(usize::MAX),
            };
            self.store.finish_sync(name, &outcome)?;
        }
        Ok(())
    }

    fn delete_unseen(&self, known: &StoredDocuments, report: &mut SyncReport) -> Result<(), StoreError> {
        for_each_file_page(&**self.store, &self.source.name, |ids| {
            let unseen: Vec<Uuid> = ids.iter().copied().filter(|id| !known.has_seen(*id)).collect();
            report.deleted += writer::delete_documents(&**self.store, &unseen, self.options.dry_run)?;
            Ok(())
        })
    }
}

/// Calls `visit` with the ids of all known files of a source, page by page; `visit` may delete those files.
pub(crate) fn for_each_file_page(
    store: &dyn Store,
    source: &SourceName,
    mut visit: impl FnMut(&[Uuid]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after: Option<FilePosition> = None;
    loop {
        let page = store.files(source, after.as_ref(), FILES_PAGE)?;
        visit(&page.iter().map(|file| file.id).collect::<Vec<_>>())?;
        match page.last() {
            Some(last) if page.len() == FILES_PAGE => after = Some(last.position()),
            _ => return Ok(()),
        }
    }
}

/// Acquires the lease of a source.
pub(crate) fn acquire_lease(store: &dyn Store, source: &SourceName) -> Result<LeaseGuard, SyncError> {
    let failed = |error| SyncError::Lock { source_name: source.to_string(), source: error };
    let lease = store.lease(&Lease::Sync(source.clone())).map_err(failed)?;
    lease.ok_or_else(|| SyncError::Busy { source_name: source.to_string() })
}

/// The cache folder of a source's connector: next to the store, deleted when the source is forgotten.
pub fn cache_path(store_path: &Path, source: &SourceName) -> PathBuf {
    store_path.with_extension("cache").join(source_file_stem(source))
}
