//! One source into the store: pull, extract, chunk, put.
//!
//! Unchanged content stops at its hash and writes nothing. What vanished is deleted only after a
//! complete listing. The cursor is saved last. One failure of one document never stops the rest.

use crate::chunk::{self, Chunking};
use crate::extract::{self, Extracted, NoText, Raw};
use crate::knowledge::Source;
use crate::search::{View, ViewError};
use crate::store::{NewDocument, Store, StoreError, SyncOutcome};
use ctx_core::{
    Change, Content, Document, Identifier, Known, Listing, Sink, SinkClosed, SourceError, SourceName,
};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Documents between the connector and the store. Small: each may be as large as the limit.
const QUEUE: usize = 8;
/// Written documents after which the keyword index is fed.
const FOLLOW_EVERY: u64 = 256;
/// Warnings kept in a report; the rest are counted.
const WARNINGS_MAX: usize = 100;
/// Document ids are made of source and name in this namespace: the same document has the same id
/// in every store.
const ID_NAMESPACE: Uuid = Uuid::from_u128(0x6374_7800_6463_4d5e_9f3a_0b1c_2d3e_4f50);

/// How to sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncOptions {
    /// Read everything again, whatever is known; content hashes still decide what is written.
    pub full: bool,
    /// Write nothing, only count.
    pub dry_run: bool,
    /// Only documents changed at this time or later.
    pub since: Option<Timestamp>,
    /// Only documents changed at this time or earlier.
    pub until: Option<Timestamp>,
    /// Stop after this many documents.
    pub limit: Option<u64>,
}

/// What a sync did, or would have done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SyncReport {
    /// The source.
    pub source: String,
    /// Documents that are new.
    pub added: u64,
    /// Documents whose content changed.
    pub updated: u64,
    /// Documents that are as they were.
    pub unchanged: u64,
    /// Documents that are gone.
    pub deleted: u64,
    /// Files that hold no text.
    pub skipped: u64,
    /// How many documents could not be read.
    pub warning_count: u64,
    /// The first of those.
    pub warnings: Vec<Warning>,
}

/// A document that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Its name within the source.
    pub source_id: String,
    /// Why.
    pub reason: String,
}

/// How far a sync has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The source.
    pub source: String,
    /// Documents looked at.
    pub seen: u64,
    /// Documents written.
    pub written: u64,
}

/// A sync that did not finish. What it stored before stays.
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
        /// Why.
        reason: String,
    },
    /// The user stopped it.
    #[error("{source_name}: interrupted; what was read so far is kept")]
    Interrupted {
        /// The source.
        source_name: String,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {source_name}")]
    Lock {
        /// The source.
        source_name: String,
        /// Why.
        source: io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The documents are stored, but the keyword index could not follow.
    #[error("the keyword index could not be brought up to date; the next sync tries again")]
    View(#[from] ViewError),
}

/// Everything one sync works with.
pub(crate) struct SyncJob<'a> {
    pub(crate) store: &'a Arc<Store>,
    pub(crate) view: &'a Arc<View>,
    pub(crate) source: &'a Source,
    pub(crate) chunking: Chunking,
    pub(crate) options: SyncOptions,
    pub(crate) progress: Arc<dyn Fn(Progress) + Send + Sync>,
    pub(crate) cancellation: CancellationToken,
}

impl SyncJob<'_> {
    /// Syncs the source, then lets the keyword index catch up.
    pub(crate) async fn run(self) -> Result<SyncReport, SyncError> {
        let name = &self.source.name;
        let lock = Arc::new(lock(self.store.path(), name)?);
        // Whoever drops this sync stops its writer too.
        let cancellation = self.cancellation.child_token();
        let _stop = cancellation.clone().drop_guard();
        let cursor = match self.options.full {
            true => None,
            false => self.store.source_rows()?.remove(&name.to_string()).and_then(|row| row.cursor),
        };

        let memory = Arc::new(Memory {
            store: self.store.clone(),
            source: name.clone(),
            full: self.options.full,
            settings: settings_stamp(self.chunking, &self.source.tags),
            seen: Mutex::default(),
            current: AtomicU64::new(0),
        });
        let (sink, changes) = Sink::channel(QUEUE, memory.clone());
        let writer = Writer {
            store: self.store.clone(),
            view: self.view.clone(),
            source: name.clone(),
            tags: self.source.tags.clone(),
            chunking: self.chunking,
            options: self.options,
            memory: memory.clone(),
            progress: self.progress.clone(),
            cancellation: cancellation.clone(),
            _lock: lock,
            report: SyncReport { source: name.to_string(), ..SyncReport::default() },
        };
        let runtime = tokio::runtime::Handle::current();
        let writing = tokio::task::spawn_blocking(move || writer.consume(changes, &runtime));
        let pulled = tokio::select! {
            pulled = self.source.connector.pull(cursor.as_ref(), &sink) => pulled,
            () = cancellation.cancelled() => Err(SinkClosed.into()),
        };
        // The writer ends when the last sink is gone.
        drop(sink);
        let (written, mut report) = writing.await.map_err(|error| SyncError::Source {
            source_name: name.to_string(),
            reason: format!("writing documents failed: {error}"),
        })?;
        report.unchanged += memory.current.load(Ordering::Relaxed);

        let outcome = self.finish(pulled, written, &memory, &mut report);
        if !self.options.dry_run {
            let (store, view) = (self.store.clone(), self.view.clone());
            let caught_up = tokio::task::spawn_blocking(move || view.catch_up(&store)).await;
            // A failed sync is worth more words than an index that lags.
            outcome?;
            if let Ok(caught_up) = caught_up {
                caught_up?;
            }
            return Ok(report);
        }
        outcome.map(|()| report)
    }

    fn finish(
        &self,
        pulled: Result<ctx_core::Pulled, SourceError>,
        written: Result<Ended, StoreError>,
        memory: &Memory,
        report: &mut SyncReport,
    ) -> Result<(), SyncError> {
        let name = &self.source.name;
        let ended = written?;
        if ended == Ended::Cancelled {
            return Err(SyncError::Interrupted { source_name: name.to_string() });
        }
        let pulled = match pulled {
            Ok(pulled) => pulled,
            Err(SourceError::Closed(_)) if ended == Ended::LimitReached => return Ok(()),
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
        if pulled.listing == Listing::Complete && ended == Ended::Exhausted {
            self.delete_unseen(memory, report)?;
        }
        if !self.options.dry_run && ended == Ended::Exhausted {
            // What was left out by its time must come again.
            let whole = self.options.since.is_none() && self.options.until.is_none();
            // Saved last: a crash before this line costs a repeated sync, never a lost document.
            let outcome = SyncOutcome {
                cursor: whole.then_some(pulled.cursor),
                error: None,
                warnings: usize::try_from(report.warning_count).unwrap_or(usize::MAX),
            };
            self.store.finish_sync(name, &outcome)?;
        }
        Ok(())
    }

    fn delete_unseen(&self, memory: &Memory, report: &mut SyncReport) -> Result<(), StoreError> {
        let seen = memory.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for id in self.store.known_ids(&self.source.name)?.into_iter().filter(|id| !seen.contains(id)) {
            let stored = match self.options.dry_run {
                true => self.store.stamp(id)?.is_some(),
                false => self.store.delete(id)?,
            };
            report.deleted += u64::from(stored);
        }
        Ok(())
    }
}

/// How the stream of changes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Exhausted,
    LimitReached,
    Cancelled,
}

/// What the source had at its last sync, and what it has been seen to have now.
struct Memory {
    store: Arc<Store>,
    source: SourceName,
    full: bool,
    /// Part of every stored fingerprint, so that other settings make documents new.
    settings: String,
    seen: Mutex<HashSet<Uuid>>,
    current: AtomicU64,
}

impl Memory {
    fn note(&self, source_id: &str) -> Uuid {
        let id = document_id(&self.source, source_id);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        id
    }

    fn stamped(&self, fingerprint: &str) -> String {
        format!("{fingerprint} {}", self.settings)
    }

    fn is_stored(&self, id: Uuid, fingerprint: &str) -> Result<bool, StoreError> {
        let fingerprint = &self.stamped(fingerprint);
        if let Some(stamp) = self.store.stamp(id)? {
            return Ok(stamp.fingerprint.as_ref() == Some(fingerprint));
        }
        Ok(self.store.passed_over(id)?.as_ref() == Some(fingerprint))
    }
}

impl Known for Memory {
    fn is_current(&self, source_id: &str, fingerprint: &str) -> bool {
        let id = self.note(source_id);
        // A store that cannot be asked will say so when it is written.
        let current = !self.full && self.is_stored(id, fingerprint).unwrap_or(false);
        self.current.fetch_add(u64::from(current), Ordering::Relaxed);
        current
    }
}

/// Takes changes off the sink and stores them, on a thread of its own.
struct Writer {
    store: Arc<Store>,
    view: Arc<View>,
    source: SourceName,
    tags: Vec<String>,
    chunking: Chunking,
    options: SyncOptions,
    memory: Arc<Memory>,
    progress: Arc<dyn Fn(Progress) + Send + Sync>,
    cancellation: CancellationToken,
    /// Held for its effect, even when the sync itself was dropped.
    _lock: Arc<File>,
    report: SyncReport,
}

impl Writer {
    fn consume(
        mut self,
        mut changes: mpsc::Receiver<Change>,
        runtime: &Handle,
    ) -> (Result<Ended, StoreError>, SyncReport) {
        if !self.options.dry_run {
            self.log_lag(self.view.discard_if_ahead(&self.store));
        }
        let ended = self.consume_all(&mut changes, runtime);
        if !self.options.dry_run && !matches!(ended, Ok(Ended::Exhausted)) {
            // Nobody else may be left to let go of the index.
            self.log_lag(self.view.catch_up(&self.store));
        }
        (ended, self.report)
    }

    fn log_lag(&self, outcome: Result<(), ViewError>) {
        if let Err(error) = outcome {
            tracing::warn!(%error, "the keyword index lags behind");
        }
    }

    fn consume_all(
        &mut self,
        changes: &mut mpsc::Receiver<Change>,
        runtime: &Handle,
    ) -> Result<Ended, StoreError> {
        let mut followed = 0;
        if self.options.limit == Some(0) {
            return Ok(Ended::LimitReached);
        }
        let cancellation = self.cancellation.clone();
        while let Some(change) = runtime.block_on(cancellation.run_until_cancelled(changes.recv())).flatten()
        {
            if cancellation.is_cancelled() {
                return Ok(Ended::Cancelled);
            }
            self.apply(change)?;
            let written = self.written();
            (self.progress)(Progress {
                source: self.report.source.clone(),
                seen: written + self.report.unchanged + self.memory.current.load(Ordering::Relaxed),
                written,
            });
            if self.options.limit.is_some_and(|limit| written >= limit) {
                return Ok(Ended::LimitReached);
            }
            if !self.options.dry_run && written >= followed + FOLLOW_EVERY {
                followed = written;
                self.log_lag(self.view.follow(&self.store));
            }
        }
        // A connector that was cut short looks like one that is done.
        Ok(if self.cancellation.is_cancelled() { Ended::Cancelled } else { Ended::Exhausted })
    }

    fn written(&self) -> u64 {
        self.report.added + self.report.updated
    }

    fn apply(&mut self, change: Change) -> Result<(), StoreError> {
        match change {
            Change::Upsert(document) => self.upsert(*document),
            Change::Delete { source_id } => {
                let id = document_id(&self.source, &source_id);
                let stored = match self.options.dry_run {
                    true => self.store.stamp(id)?.is_some(),
                    false => self.store.delete(id)?,
                };
                self.report.deleted += u64::from(stored);
                Ok(())
            }
            Change::Unreadable { source_id, reason } => {
                self.memory.note(&source_id);
                self.warn(source_id, reason);
                Ok(())
            }
        }
    }

    fn warn(&mut self, source_id: String, reason: String) {
        tracing::debug!(source = %self.source, source_id, reason, "cannot be read");
        self.report.warning_count += 1;
        if self.report.warnings.len() < WARNINGS_MAX {
            self.report.warnings.push(Warning { source_id, reason });
        }
    }

    fn upsert(&mut self, mut document: Document) -> Result<(), StoreError> {
        document.fingerprint = document.fingerprint.map(|fingerprint| self.memory.stamped(&fingerprint));
        let id = self.memory.note(&document.source_id);
        let SyncOptions { since, until, dry_run, .. } = self.options;
        let too_old = since.is_some_and(|since| document.updated_at.is_some_and(|at| at < since));
        let too_new = until.is_some_and(|until| document.updated_at.is_some_and(|at| at > until));
        if too_old || too_new {
            return Ok(());
        }
        let extracted = match text_of(&document) {
            Ok(extracted) => extracted,
            Err(no_text) => return self.pass_over(id, document, no_text),
        };
        let document = self.prepare(id, document, extracted);
        match self.store.stamp(id)? {
            Some(stamp) if stamp.hash == document.hash => {
                self.report.unchanged += 1;
                if !dry_run && stamp.fingerprint != document.fingerprint {
                    self.store.refresh(id, document.fingerprint.as_deref())?;
                }
                return Ok(());
            }
            Some(_) => self.report.updated += 1,
            None => self.report.added += 1,
        }
        if dry_run { Ok(()) } else { self.store.put(&document) }
    }

    fn pass_over(&mut self, id: Uuid, document: Document, no_text: NoText) -> Result<(), StoreError> {
        if let NoText::Failed(reason) = no_text {
            // Kept as it was and tried again next time.
            self.warn(document.source_id, reason);
            return Ok(());
        }
        self.report.skipped += 1;
        match document.fingerprint {
            _ if self.options.dry_run => Ok(()),
            Some(fingerprint) => self.store.pass_over(id, &self.source, &fingerprint),
            None => self.store.delete(id).map(drop),
        }
    }

    fn prepare(&self, id: Uuid, document: Document, extracted: Extracted) -> NewDocument {
        let title = document
            .title
            .or(extracted.title)
            .or_else(|| document.source_id.rsplit('/').next().map(str::to_owned))
            .filter(|title| !title.is_empty());
        let mut tags = self.tags.clone();
        tags.extend(document.tags.into_iter().filter(|tag| !self.tags.contains(tag)));
        let updated_at = document.updated_at.unwrap_or_else(Timestamp::now);
        let chunks = chunk::split(&extracted.body, extracted.content_type == "text/markdown", self.chunking);
        let mut prepared = NewDocument {
            id,
            source: self.source.to_string(),
            source_id: document.source_id,
            source_url: document.source_url,
            title,
            author: document.author,
            created_at: document.created_at.unwrap_or(updated_at),
            updated_at,
            content_type: extracted.content_type,
            metadata: serde_json::Value::Object(document.metadata).to_string(),
            tags: serde_json::Value::from(tags).to_string(),
            body: extracted.body,
            chunks,
            hash: [0; 32],
            fingerprint: document.fingerprint,
        };
        prepared.hash = content_hash(&prepared, self.chunking);
        prepared
    }
}

fn text_of(document: &Document) -> Result<Extracted, NoText> {
    match &document.content {
        Content::Bytes(bytes) => extract::extract(&Raw {
            bytes,
            name: &document.source_id,
            content_type: document.content_type.as_deref(),
        }),
        Content::Text(text) => {
            Ok(extract::from_text(text, &document.source_id, document.content_type.as_deref()))
        }
    }
}

fn document_id(source: &SourceName, source_id: &str) -> Uuid {
    Uuid::new_v5(&ID_NAMESPACE, format!("{source}\n{source_id}").as_bytes())
}

/// Everything that is stored but the times: a file that was only touched has not changed.
fn content_hash(document: &NewDocument, chunking: Chunking) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let mut part = |text: Option<&str>| {
        let text = text.unwrap_or("\0none");
        hasher.update(&text.len().to_le_bytes());
        hasher.update(text.as_bytes());
    };
    part(document.source_url.as_deref());
    part(document.title.as_deref());
    part(document.author.as_deref());
    part(Some(&document.content_type));
    part(Some(&document.metadata));
    part(Some(&document.tags));
    part(Some(&document.body));
    // Other sizes make other chunks.
    part(Some(&format!("{}/{}", chunking.max_tokens, chunking.overlap_tokens)));
    *hasher.finalize().as_bytes()
}

/// What besides its content decides how a document is stored.
fn settings_stamp(chunking: Chunking, tags: &[String]) -> String {
    let settings = format!("{}/{} {tags:?}", chunking.max_tokens, chunking.overlap_tokens);
    blake3::hash(settings.as_bytes()).to_hex()[..16].to_owned()
}

/// Takes the lock of a source; it is released when the file is closed, even by a crash.
fn lock(store_path: &Path, source: &SourceName) -> Result<File, SyncError> {
    let folder = store_path.with_extension("locks");
    // The hash keeps `a-b` and `a_b` apart.
    let text = source.to_string();
    let hash = &blake3::hash(text.as_bytes()).to_hex()[..8];
    let path = folder.join(format!("{}-{hash}.lock", Identifier::sanitize(&text)));
    let failed = |error| SyncError::Lock { source_name: source.to_string(), source: error };
    fs::create_dir_all(&folder).map_err(failed)?;
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SyncError::Busy { source_name: source.to_string() }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}
