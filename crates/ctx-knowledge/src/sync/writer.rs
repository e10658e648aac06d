//! The writer of a sync: extracts the text of the documents that a connector sends, and stores them.
//!
//! Runs on a blocking thread. Leaves the cursor, and the deletion of documents that a complete listing lacks, to
//! [`SyncJob`](super::SyncJob).

use super::gate::GATE;
use super::journal::{Journal, Verdict};
use super::{Progress, SyncOptions, SyncReport, Warning};
use crate::chunk::{self, Chunking};
use crate::embed::{Effort, Models};
use crate::extraction::Extraction;
use crate::knowledge::Source;
use crate::search::{View, ViewError};
use crate::sketch;
use ctx_core::{Change, Connector, Content, Document, Known, SourceName, is_private_key};
use ctx_extract::{EXTRACTION_VERSION, ExtractError, ExtractedText, RawDocument};
use ctx_store::{
    LeaseGuard, Mutation, NewDocument, NewVectors, SkipNote, Span, Stamp, Store, StoreError, TextHash,
};
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Number of written documents after which their changes are fed to the keyword index.
const FOLLOW_EVERY: u64 = 256;
/// Maximum number of warnings in a report; the rest are only counted.
const WARNINGS_MAX: usize = 100;
/// Maximum length of a stored title, which is part of every chunk.
const TITLE_BYTES_MAX: usize = 500;
/// Maximum length of a text: SQLite stores no value of a thousand million bytes or more.
const TEXT_BYTES_MAX: usize = 900_000_000;
/// Timeout for chunking one document; the largest takes a few seconds.
const SPLIT_TIME_MAX: Duration = Duration::from_secs(60);
/// Chunks embedded between two checks for cancellation.
const VECTOR_BATCH_SIZE: usize = 256;
/// Note on a document that is left out because it contains a private key. Must not change: stores contain it.
const PRIVATE_KEY_NOTE: &str = "it contains a private key";
/// Added to fingerprints of documents whose secrets the settings admit, so that a change of those settings is noticed.
const ADMITTED_MARK: &str = "secrets";
/// Version of the processing of documents. Increment it if the same content would be stored differently, so that the
/// next sync stores it again.
const PREPARATION: u32 = 2;
/// Names of skipped files per transaction.
const NAMES_AT_ONCE: usize = 1_024;
/// Version of the rules for secret content. Increment it when they change, so that the next sync examines all
/// documents again.
const SECRET_RULES: u32 = 1;
/// UUID namespace of document ids, which are derived from source and name: a document has the same id in every store.
const ID_NAMESPACE: Uuid = Uuid::from_u128(0x6374_7800_6463_4d5e_9f3a_0b1c_2d3e_4f50);

/// How the stream of changes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Exhausted,
    LimitReached,
    Cancelled,
}

/// The source's documents as stored by earlier syncs, and those that this sync has seen.
pub(super) struct Memory {
    store: Arc<dyn Store>,
    source: SourceName,
    connector: Arc<dyn Connector>,
    full: bool,
    /// Hash of the settings. Part of every stored fingerprint, so that documents are processed again when settings
    /// change.
    settings: String,
    seen: Mutex<HashSet<Uuid>>,
    current: AtomicU64,
    /// Unchanged documents that an earlier sync left out because they contain a private key.
    private_keys: AtomicU64,
    /// Number of documents in the source, if the connector announced it.
    expected: Mutex<Option<u64>>,
    /// Warnings of earlier syncs about documents that are unchanged.
    repeated: Mutex<Repeated>,
    /// Prefetched stamps, until they are used. They stay valid: only this sync writes documents of its source.
    stamps: Mutex<HashMap<Uuid, Stamp>>,
    /// Skipped files whose names an earlier version of ctx did not store.
    unnamed: Mutex<Vec<(Uuid, String)>>,
    /// Documents that this sync has written: their prefetched stamps are outdated.
    written: Mutex<HashSet<Uuid>>,
}

/// Warnings of earlier syncs that still hold.
#[derive(Default)]
struct Repeated {
    first: Vec<Warning>,
    count: u64,
    /// Number of warnings about documents without a stored text.
    unreadable: u64,
}

impl Memory {
    pub(super) fn new(store: Arc<dyn Store>, source: &Source, chunking: Chunking, full: bool) -> Self {
        Self {
            store,
            source: source.name.clone(),
            connector: source.connector.clone(),
            full,
            settings: settings_stamp(chunking, &source.tags),
            seen: Mutex::default(),
            current: AtomicU64::new(0),
            private_keys: AtomicU64::new(0),
            expected: Mutex::default(),
            repeated: Mutex::default(),
            stamps: Mutex::default(),
            unnamed: Mutex::default(),
            written: Mutex::default(),
        }
    }

    /// Number of documents that are unchanged by their fingerprint.
    pub(super) fn current(&self) -> u64 {
        self.current.load(Ordering::Relaxed)
    }

    /// Number of unchanged documents that an earlier sync left out because of a private key.
    pub(super) fn private_keys(&self) -> u64 {
        self.private_keys.load(Ordering::Relaxed)
    }

    /// Number of documents that need not be read: unchanged, left out, or known to be unreadable.
    fn known(&self) -> u64 {
        let repeated = self.repeated.lock().unwrap_or_else(PoisonError::into_inner);
        self.current() + self.private_keys() + repeated.unreadable
    }

    fn expected(&self) -> Option<u64> {
        *self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connector has reported this document.
    pub(super) fn has_seen(&self, id: Uuid) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    /// Whether the connector has reported the document with this source id.
    pub(super) fn has_seen_name(&self, source_id: &str) -> bool {
        self.has_seen(document_id(&self.source, source_id))
    }

    fn note(&self, source_id: &str) -> Uuid {
        let id = document_id(&self.source, source_id);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        id
    }

    fn stamped(&self, source_id: &str, fingerprint: &str) -> String {
        let stamped = format!("{fingerprint} {}", self.settings);
        if self.admits_secret(source_id) { format!("{stamped} {ADMITTED_MARK}") } else { stamped }
    }

    fn admits_secret(&self, source_id: &str) -> bool {
        self.connector.admits_secret(source_id)
    }

    /// The stamp of a stored document; queried only if it was not prefetched.
    fn take_stamp(&self, id: Uuid) -> Result<Stamp, StoreError> {
        let ahead = self.stamps.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        match ahead {
            Some(stamp) => Ok(stamp),
            None => Ok(self.store.stamps(&[id])?.pop().unwrap_or_default()),
        }
    }

    /// The stamp of a document that is about to be written.
    fn stamp_to_write(&self, id: Uuid) -> Result<Stamp, StoreError> {
        if !self.begin_write(id) {
            self.stamps.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
        self.take_stamp(id)
    }

    /// Records that a document is about to be written; returns whether this is the first time in this sync.
    fn begin_write(&self, id: Uuid) -> bool {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
    }

    fn read_ahead(&self, source_ids: &[&str]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = source_ids.iter().map(|name| document_id(&self.source, name)).collect();
        let stamps = self.store.stamps(&ids)?;
        self.stamps.lock().unwrap_or_else(PoisonError::into_inner).extend(ids.into_iter().zip(stamps));
        Ok(())
    }

    /// Whether an earlier sync processed the document with this fingerprint. Repeats the warning of that sync; an
    /// unreadable document is known, but not counted as unchanged.
    fn is_known(&self, source_id: &str, id: Uuid, fingerprint: &str) -> Result<bool, StoreError> {
        let fingerprint = self.stamped(source_id, fingerprint);
        let stamp = self.take_stamp(id)?;
        let stored =
            stamp.stored.as_ref().is_some_and(|stored| stored.fingerprint.as_ref() == Some(&fingerprint));
        let said: Option<SkipNote> = stamp.skipped.clone().filter(|said| said.fingerprint == fingerprint);
        let known = stored || said.is_some();
        if !known {
            // Needed again when the document is stored.
            self.stamps.lock().unwrap_or_else(PoisonError::into_inner).insert(id, stamp);
        }
        if said.as_ref().is_some_and(|said| !said.is_named) {
            let mut unnamed = self.unnamed.lock().unwrap_or_else(PoisonError::into_inner);
            unnamed.push((id, source_id.to_owned()));
        }
        let reason = said.and_then(|said| said.reason);
        if reason.as_deref() == Some(PRIVATE_KEY_NOTE) {
            self.private_keys.fetch_add(1, Ordering::Relaxed);
            return Ok(true);
        }
        let unreadable = !stored && reason.is_some();
        self.current.fetch_add(u64::from(known && !unreadable), Ordering::Relaxed);
        if let Some(reason) = reason {
            let mut repeated = self.repeated.lock().unwrap_or_else(PoisonError::into_inner);
            repeated.count += 1;
            repeated.unreadable += u64::from(unreadable);
            if repeated.first.len() < WARNINGS_MAX {
                repeated.first.push(Warning { source_id: source_id.to_owned(), reason });
            }
        }
        Ok(known)
    }
}

impl Known for Memory {
    fn is_current(&self, source_id: &str, fingerprint: &str) -> bool {
        let id = self.note(source_id);
        // A store error is not reported here: the write that follows reports it.
        !self.full && self.is_known(source_id, id, fingerprint).unwrap_or(false)
    }

    fn prefetch(&self, source_ids: &[&str]) {
        // A store error is not reported here: the write that follows reports it.
        if let Err(error) = self.read_ahead(source_ids) {
            tracing::debug!(%error, "cannot read ahead what is stored");
        }
    }

    fn expect(&self, total: u64) {
        *self.expected.lock().unwrap_or_else(PoisonError::into_inner) = Some(total);
    }
}

/// Stores the changes that a connector sends.
pub(super) struct Writer {
    pub(super) store: Arc<dyn Store>,
    pub(super) view: Arc<View>,
    pub(super) source: SourceName,
    pub(super) tags: Vec<String>,
    pub(super) extraction: Extraction,
    pub(super) chunking: Chunking,
    /// The embedding models; `None` if embeddings are disabled.
    pub(super) models: Option<Arc<Models>>,
    pub(super) options: SyncOptions,
    pub(super) memory: Arc<Memory>,
    /// Crash journal: records the document that is being read.
    pub(super) journal: Journal,
    pub(super) progress: Arc<dyn Fn(Progress) + Send + Sync>,
    pub(super) cancellation: CancellationToken,
    /// Keeps the source leased until the writer ends, even if the sync's future is dropped.
    pub(super) _lease: Arc<LeaseGuard>,
    /// Documents received from the connector, readable or not.
    pub(super) handled: u64,
    pub(super) report: SyncReport,
}

impl Writer {
    pub(super) fn consume(
        mut self,
        mut changes: mpsc::Receiver<Change>,
        runtime: &Handle,
    ) -> (Result<Ended, StoreError>, SyncReport) {
        if !self.options.dry_run {
            self.log_lag(self.view.discard_if_ahead(&*self.store));
        }
        let ended = self.consume_all(&mut changes, runtime);
        self.repeat_warnings();
        if !self.options.dry_run {
            self.name_skipped();
        }
        if !self.options.dry_run && !matches!(ended, Ok(Ended::Exhausted)) {
            // If the sync's future was dropped, nothing else releases the index writer.
            self.log_lag(self.view.catch_up(&*self.store));
        }
        self.journal.close();
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
            self.apply(change, runtime)?;
            let written = self.written();
            (self.progress)(Progress {
                source: self.report.source.clone(),
                seen: self.handled + self.memory.known(),
                written,
                total: self.memory.expected(),
            });
            if self.options.limit.is_some_and(|limit| written >= limit) {
                return Ok(Ended::LimitReached);
            }
            if !self.options.dry_run && written >= followed + FOLLOW_EVERY {
                followed = written;
                self.log_lag(self.view.follow(&*self.store));
            }
        }
        // A cancelled connector closes the channel as well.
        Ok(if self.cancellation.is_cancelled() { Ended::Cancelled } else { Ended::Exhausted })
    }

    fn written(&self) -> u64 {
        self.report.added + self.report.updated
    }

    fn apply(&mut self, change: Change, runtime: &Handle) -> Result<(), StoreError> {
        self.handled += u64::from(!matches!(change, Change::Delete { .. }));
        match change {
            Change::Upsert(document) => self.upsert(*document, runtime),
            Change::Delete { source_id } => {
                let id = document_id(&self.source, &source_id);
                self.journal.retain_suspects(|suspect| suspect != source_id);
                self.memory.begin_write(id);
                self.report.deleted += delete(&*self.store, &[id], self.options.dry_run)?;
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

    /// Stores the names that an earlier version did not store. A failure is only logged.
    fn name_skipped(&self) {
        let unnamed = mem::take(&mut *self.memory.unnamed.lock().unwrap_or_else(PoisonError::into_inner));
        for names in unnamed.chunks(NAMES_AT_ONCE) {
            if let Err(error) = self.store.name_skipped(names) {
                tracing::debug!(%error, "names of skipped files cannot be stored");
                return;
            }
        }
    }

    /// Adds the warnings of earlier syncs, which hold until their documents change.
    fn repeat_warnings(&mut self) {
        let repeated = mem::take(&mut *self.memory.repeated.lock().unwrap_or_else(PoisonError::into_inner));
        self.report.warning_count += repeated.count;
        let room = WARNINGS_MAX.saturating_sub(self.report.warnings.len());
        self.report.warnings.extend(repeated.first.into_iter().take(room));
    }

    fn upsert(&mut self, mut document: Document, runtime: &Handle) -> Result<(), StoreError> {
        let fingerprint = document.fingerprint.take();
        document.fingerprint =
            fingerprint.map(|fingerprint| self.memory.stamped(&document.source_id, &fingerprint));
        let id = self.memory.note(&document.source_id);
        let SyncOptions { since, until, .. } = self.options;
        let too_old = since.is_some_and(|since| document.updated_at.is_some_and(|at| at < since));
        let too_new = until.is_some_and(|until| document.updated_at.is_some_and(|at| at > until));
        if too_old || too_new {
            return Ok(());
        }
        let (reading, verdict) = self.journal.judge(&document);
        if let Verdict::Skip(reason) = verdict {
            return self.pass_over(id, document, ExtractError::Failed(reason.to_owned()));
        }
        let cancellation = self.cancellation.clone();
        let Some(permit) = GATE.acquire(verdict == Verdict::ReadAlone, &cancellation) else { return Ok(()) };
        self.journal.begin(reading);
        let read = self.read(&mut document, runtime);
        // Before embedding and storing: a crash during those is not caused by the document.
        self.journal.finish(!cancellation.is_cancelled());
        drop(permit);
        match read {
            Ok((extracted, ..)) if self.is_refused(&document, &extracted) => {
                self.leave_out_private_key(id, document)
            }
            Ok((extracted, title, chunks)) => {
                let document = self.prepare(id, document, extracted, title, chunks);
                self.put(id, document)
            }
            Err(no_text) => self.pass_over(id, document, no_text),
        }
    }

    /// Whether the text contains a private key that the settings do not admit. Checks the extracted text, so that
    /// neither the encoding nor the format of a document hides a key.
    fn is_refused(&self, document: &Document, extracted: &ExtractedText) -> bool {
        is_private_key(extracted.body.as_bytes()) && !self.memory.admits_secret(&document.source_id)
    }

    /// Counts a document as a secret file, deletes its stored version, and skips it until it changes.
    fn leave_out_private_key(&mut self, id: Uuid, document: Document) -> Result<(), StoreError> {
        self.report.secret_files += 1;
        let is_stored = self.memory.stamp_to_write(id)?.stored.is_some();
        self.report.deleted += u64::from(is_stored);
        if self.options.dry_run {
            return Ok(());
        }
        let (source, source_id) = (self.source.clone(), document.source_id);
        let reason = PRIVATE_KEY_NOTE.to_owned();
        let note = document.fingerprint.map(|fingerprint| Mutation::SkipUnreadable {
            id,
            source,
            source_id,
            fingerprint,
            reason,
        });
        let mutations: Vec<Mutation> = std::iter::once(Mutation::Delete(id)).chain(note).collect();
        self.store.apply(&mutations).map(drop)
    }

    /// Extracts text, title and chunks of a document, and takes its content.
    fn read(
        &self,
        document: &mut Document,
        runtime: &Handle,
    ) -> Result<(ExtractedText, Option<String>, Vec<Span>), ExtractError> {
        let extracted = self.extraction.extract(take_content(document), &self.cancellation, runtime)?;
        let extracted = within(extracted, TEXT_BYTES_MAX)?;
        if is_blank(&extracted, document) {
            return Err(ExtractError::NotText);
        }
        let title = title(&extracted, document);
        let chunks = self.split(&extracted, title.as_deref())?;
        Ok((extracted, title, chunks))
    }

    fn put(&mut self, id: Uuid, document: NewDocument) -> Result<(), StoreError> {
        let dry_run = self.options.dry_run;
        if let Some(note) = &document.note {
            self.warn(document.source_id.clone(), note.clone());
        }
        match self.memory.stamp_to_write(id)?.stored {
            Some(stamp) if stamp.hash == document.hash => {
                self.report.unchanged += 1;
                if !dry_run && stamp.fingerprint != document.fingerprint {
                    let NewDocument { source_id, fingerprint, note, .. } = document;
                    let source = self.source.clone();
                    self.store.apply(&[Mutation::Refresh { id, source, source_id, fingerprint, note }])?;
                }
                return Ok(());
            }
            Some(_) => self.report.updated += 1,
            None => self.report.added += 1,
        }
        if dry_run {
            return Ok(());
        }
        match self.vectors(&document) {
            Some(vectors) => {
                self.store.apply(&[Mutation::Put(Box::new(NewDocument { vectors, ..document }))]).map(drop)
            }
            // Cancelled: the next sync reads it again.
            None => Ok(()),
        }
    }

    /// Splits a text into chunks, until a timeout or cancellation.
    fn split(&self, extracted: &ExtractedText, title: Option<&str>) -> Result<Vec<Span>, ExtractError> {
        let deadline = Instant::now() + SPLIT_TIME_MAX;
        let is_stopped = || self.cancellation.is_cancelled() || Instant::now() >= deadline;
        let chunks = chunk::split(&extracted.body, title, extracted.structure, self.chunking, &is_stopped);
        chunks.ok_or_else(|| match self.cancellation.is_cancelled() {
            true => ExtractError::NotNow("splitting it was interrupted".to_owned()),
            false => {
                ExtractError::Failed(format!("splitting it took longer than {} s", SPLIT_TIME_MAX.as_secs()))
            }
        })
    }

    /// Embeds a document with the instant model; `None` if the sync is cancelled.
    fn vectors(&self, document: &NewDocument) -> Option<NewVectors> {
        let Some(models) = &self.models else { return Some(NewVectors::default()) };
        let model = models.instant();
        let mut hashes = Vec::with_capacity(document.chunks.len());
        let mut made = Some(Vec::with_capacity(document.chunks.len()));
        for (index, spans) in document.chunks.chunks(VECTOR_BATCH_SIZE).enumerate() {
            if self.cancellation.is_cancelled() {
                return None;
            }
            let texts: Vec<(usize, String, TextHash)> = (index * VECTOR_BATCH_SIZE..)
                .zip(spans)
                .map(|(position, span)| {
                    let title = document.title.as_deref();
                    let (text, hash) = chunk::embedded_text(title, &document.body, span, self.chunking);
                    (position, text, hash)
                })
                .collect();
            hashes.extend(texts.iter().map(|(_, _, hash)| *hash));
            if let Some(all) = &mut made {
                match model.vectors(&texts, Effort::Low) {
                    Ok(vectors) => all.extend(vectors),
                    Err(error) => {
                        tracing::warn!(%error, "a document has no vectors yet");
                        made = None;
                    }
                }
            }
        }
        let made = made.map(|vectors| (model.key, vectors));
        Some(NewVectors { hashes, made, wanted: Some(models.own.key) })
    }

    fn pass_over(&mut self, id: Uuid, document: Document, no_text: ExtractError) -> Result<(), StoreError> {
        match no_text {
            ExtractError::NotText => {}
            ExtractError::NotNow(reason) => {
                // The stored version stays; the next sync tries again.
                self.warn(document.source_id, reason);
                return Ok(());
            }
            ExtractError::Failed(reason) => {
                // The stored version stays; tried again when the document changes.
                if let Some(fingerprint) = document.fingerprint.filter(|_| !self.options.dry_run) {
                    let (source, source_id) = (self.source.clone(), document.source_id.clone());
                    let reason = reason.clone();
                    let skip = Mutation::SkipUnreadable { id, source, source_id, fingerprint, reason };
                    self.store.apply(&[skip])?;
                }
                self.warn(document.source_id, reason);
                return Ok(());
            }
        }
        self.report.skipped += 1;
        self.memory.begin_write(id);
        if self.options.dry_run {
            return Ok(());
        }
        let mutation = match document.fingerprint {
            Some(fingerprint) => {
                let (source, source_id) = (self.source.clone(), document.source_id);
                Mutation::SkipEmpty { id, source, source_id, fingerprint }
            }
            None => Mutation::Delete(id),
        };
        self.store.apply(&[mutation]).map(drop)
    }

    fn prepare(
        &self,
        id: Uuid,
        document: Document,
        extracted: ExtractedText,
        title: Option<String>,
        chunks: Vec<Span>,
    ) -> NewDocument {
        let mut tags = self.tags.clone();
        for tag in document.tags.into_iter().chain(extracted.tags) {
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        let mut metadata = extracted.metadata;
        metadata.extend(document.metadata);
        let updated_at = document.updated_at.or(extracted.updated_at).unwrap_or_else(Timestamp::now);
        let mut prepared = NewDocument {
            id,
            source: self.source.to_string(),
            source_id: document.source_id,
            source_url: document.source_url,
            title,
            author: document.author.or(extracted.author),
            created_at: document.created_at.or(extracted.created_at).unwrap_or(updated_at),
            updated_at,
            content_type: extracted.content_type,
            metadata: serde_json::Value::Object(metadata).to_string(),
            tags: serde_json::Value::from(tags).to_string(),
            sketch: sketch::signature(&extracted.body),
            body: extracted.body,
            chunks,
            vectors: NewVectors::default(),
            hash: [0; 32],
            fingerprint: document.fingerprint,
            note: extracted.note,
        };
        prepared.hash = content_hash(&prepared, self.chunking);
        prepared
    }
}

/// Deletes documents and returns their number; a dry run only counts those that are stored.
pub(super) fn delete(store: &dyn Store, ids: &[Uuid], dry_run: bool) -> Result<u64, StoreError> {
    if dry_run {
        let stored = store.stamps(ids)?.into_iter().filter(|stamp| stamp.stored.is_some());
        return Ok(stored.count() as u64);
    }
    let mutations: Vec<Mutation> = ids.iter().copied().map(Mutation::Delete).collect();
    Ok(store.apply(&mutations)?.deleted)
}

/// Whether there is nothing to index: no text, no title but the file name, and no warning.
fn is_blank(extracted: &ExtractedText, document: &Document) -> bool {
    let has_title = document.title.is_some() || extracted.title.is_some();
    extracted.body.trim().is_empty() && !has_title && extracted.note.is_none()
}

/// Title of a document: from its source, else from its content, else its file name.
fn title(extracted: &ExtractedText, document: &Document) -> Option<String> {
    let given = document.title.as_deref().or(extracted.title.as_deref());
    let title = given.or_else(|| document.source_id.rsplit('/').next())?;
    let title = &title[..title.floor_char_boundary(TITLE_BYTES_MAX)];
    (!title.is_empty()).then(|| title.to_owned())
}

/// Takes the content of a document, which is then empty.
fn take_content(document: &mut Document) -> RawDocument {
    let content = mem::replace(&mut document.content, Content::Text(String::new()));
    let (name, content_type) = (&document.source_id, document.content_type.as_deref());
    match content {
        Content::Bytes(bytes) => RawDocument::new(bytes, name, content_type),
        Content::Text(text) => RawDocument::from_text(&text, name, content_type),
    }
}

fn within(extracted: ExtractedText, bytes_max: usize) -> Result<ExtractedText, ExtractError> {
    let bytes = extracted.body.len();
    if bytes <= bytes_max {
        return Ok(extracted);
    }
    let reason = format!("its text has {bytes} bytes; no more than {bytes_max} can be stored");
    Err(ExtractError::Failed(reason))
}

fn document_id(source: &SourceName, source_id: &str) -> Uuid {
    Uuid::new_v5(&ID_NAMESPACE, format!("{source}\n{source_id}").as_bytes())
}

/// Hash of everything that is stored except the times: a file that was only touched counts as unchanged.
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
    // Chunk sizes and the version of the splitter determine the chunks.
    part(Some(&format!("{PREPARATION} {}/{}", chunking.max_tokens, chunking.overlap_tokens)));
    *hasher.finalize().as_bytes()
}

/// Hash of the settings and versions that determine how documents are stored.
fn settings_stamp(chunking: Chunking, tags: &[String]) -> String {
    let Chunking { max_tokens, overlap_tokens } = chunking;
    let versions = format!("{PREPARATION} {EXTRACTION_VERSION} {SECRET_RULES}");
    let settings = format!("{versions} {max_tokens}/{overlap_tokens} {tags:?}");
    blake3::hash(settings.as_bytes()).to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_the_store_cannot_keep_is_given_up() {
        let text = |length| ExtractedText { body: "x".repeat(length), ..ExtractedText::default() };
        assert_eq!(within(text(16), 16), Ok(text(16)));
        let reason = "its text has 17 bytes; no more than 16 can be stored";
        assert_eq!(within(text(17), 16), Err(ExtractError::Failed(reason.to_owned())));
    }
}
