//! The writer of a sync: extracts the text of the documents that a connector sends, and stores them.
//!
//! Runs on a blocking thread. Leaves the cursor, and the deletion of documents that a complete listing lacks, to
//! [`SyncJob`](super::SyncJob).

use super::batch::MutationBatch;
use super::gate::EXTRACTION_GATE;
use super::journal::{CrashJournal, ReadDecision};
use super::stored_documents::{
    PRIVATE_KEY_NOTE, PROCESSING_VERSION, StoredDocuments, WARNINGS_MAX, document_id,
};
use super::{Progress, SyncOptions, SyncReport, Warning};
use crate::chunk::{self, Chunking};
use crate::embed::{Effort, EmbeddingModels};
use crate::extraction::Extraction;
use crate::minhash;
use crate::search::{View, ViewError};
use ctx_core::{Change, Document, DocumentContent, SourceName, is_private_key};
use ctx_extract::{ExtractError, ExtractedText, RawDocument};
use ctx_store::{
    DocumentStamp, LeaseGuard, Mutation, NewDocument, NewVectors, Span, Store, StoreError, TextHash,
};
use jiff::Timestamp;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Number of written documents after which their changes are fed to the keyword index.
const INDEX_EVERY: u64 = 256;
/// Maximum length of a stored title, which is part of every chunk.
const TITLE_BYTES_MAX: usize = 500;
/// Maximum length of a text: SQLite stores no value of a thousand million bytes or more.
const TEXT_BYTES_MAX: usize = 900_000_000;
/// Timeout for chunking one document; the largest takes a few seconds.
const SPLIT_TIME_MAX: Duration = Duration::from_secs(60);
/// Chunks embedded between two checks for cancellation.
const VECTOR_BATCH_SIZE: usize = 256;
/// Names of skipped files per transaction.
const NAMES_PER_TRANSACTION: usize = 1_024;

/// How the stream of changes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamEnd {
    Exhausted,
    LimitReached,
    Cancelled,
}

/// The next thing to do for a writer.
enum NextChange {
    Received(Box<Change>),
    /// Nothing was received until the prepared mutations had to be stored.
    BatchDue,
    /// The connector is done, or the sync is cancelled.
    End,
}

/// Waits for the next change, until the batch is due.
async fn next_change(
    changes: &mut mpsc::Receiver<Change>,
    due_at: Option<Instant>,
    cancellation: &CancellationToken,
) -> NextChange {
    let receive = async {
        match due_at {
            Some(due_at) => timeout_at(due_at, changes.recv()).await.map_err(|_| NextChange::BatchDue),
            None => Ok(changes.recv().await),
        }
    };
    match cancellation.run_until_cancelled(receive).await {
        Some(Ok(Some(change))) => NextChange::Received(Box::new(change)),
        Some(Err(batch_due)) => batch_due,
        Some(Ok(None)) | None => NextChange::End,
    }
}

/// Stores the changes that a connector sends.
pub(super) struct DocumentWriter {
    pub(super) store: Arc<dyn Store>,
    pub(super) view: Arc<View>,
    pub(super) source: SourceName,
    pub(super) tags: Vec<String>,
    pub(super) extraction: Extraction,
    pub(super) chunking: Chunking,
    /// The embedding models; `None` if embeddings are disabled.
    pub(super) models: Option<Arc<EmbeddingModels>>,
    pub(super) options: SyncOptions,
    pub(super) known: Arc<StoredDocuments>,
    /// Crash journal: records the document that is being read.
    pub(super) journal: CrashJournal,
    pub(super) progress: Arc<dyn Fn(Progress) + Send + Sync>,
    pub(super) cancellation: CancellationToken,
    /// Keeps the source leased until the writer ends, even if the sync's future is dropped.
    pub(super) _lease: Arc<LeaseGuard>,
    /// Prepared mutations that are not stored yet.
    pub(super) batch: MutationBatch,
    /// Documents received from the connector, readable or not.
    pub(super) received: u64,
    pub(super) report: SyncReport,
}

impl DocumentWriter {
    pub(super) fn run(
        mut self,
        mut changes: mpsc::Receiver<Change>,
        runtime: &Handle,
    ) -> (Result<StreamEnd, StoreError>, SyncReport) {
        if !self.options.dry_run {
            self.log_index_error(self.view.discard_if_ahead(&*self.store));
        }
        let stream_end = self.apply_changes(&mut changes, runtime);
        // However the stream ended: what was read so far is kept.
        let stored = self.store_batch();
        let stream_end = stream_end.and_then(|stream_end| stored.map(|()| stream_end));
        self.repeat_warnings();
        if !self.options.dry_run {
            self.store_skipped_names();
        }
        if !self.options.dry_run && !matches!(stream_end, Ok(StreamEnd::Exhausted)) {
            // If the sync's future was dropped, nothing else releases the index writer.
            self.log_index_error(self.view.catch_up(&*self.store));
        }
        self.journal.close();
        (stream_end, self.report)
    }

    fn log_index_error(&self, outcome: Result<(), ViewError>) {
        if let Err(error) = outcome {
            tracing::warn!(%error, "cannot update the keyword index");
        }
    }

    fn apply_changes(
        &mut self,
        changes: &mut mpsc::Receiver<Change>,
        runtime: &Handle,
    ) -> Result<StreamEnd, StoreError> {
        let mut indexed = 0;
        if self.options.limit == Some(0) {
            return Ok(StreamEnd::LimitReached);
        }
        let cancellation = self.cancellation.clone();
        loop {
            let next = next_change(changes, self.batch.due_at(), &cancellation);
            let change = match runtime.block_on(next) {
                NextChange::Received(change) => *change,
                NextChange::BatchDue => {
                    self.store_batch()?;
                    continue;
                }
                NextChange::End => break,
            };
            if cancellation.is_cancelled() {
                return Ok(StreamEnd::Cancelled);
            }
            if self.batch.is_due() {
                self.store_batch()?;
            }
            self.apply(change, runtime)?;
            let written = self.written();
            (self.progress)(Progress {
                source: self.report.source.clone(),
                seen: self.received + self.known.known_count(),
                written,
                total: self.known.expected_total(),
            });
            if self.options.limit.is_some_and(|limit| written >= limit) {
                return Ok(StreamEnd::LimitReached);
            }
            if !self.options.dry_run && written >= indexed + INDEX_EVERY {
                indexed = written;
                self.store_batch()?;
                self.log_index_error(self.view.feed_during_sync(&*self.store));
            }
        }
        // A cancelled connector closes the channel as well.
        Ok(if self.cancellation.is_cancelled() { StreamEnd::Cancelled } else { StreamEnd::Exhausted })
    }

    fn written(&self) -> u64 {
        self.report.added + self.report.updated
    }

    fn apply(&mut self, change: Change, runtime: &Handle) -> Result<(), StoreError> {
        self.received += u64::from(!matches!(change, Change::Delete { .. }));
        match change {
            Change::Upsert(document) => self.upsert(*document, runtime),
            Change::Delete { source_id } => {
                let id = document_id(&self.source, &source_id);
                self.journal.retain_suspects(|suspect| suspect != source_id);
                self.report.deleted += u64::from(self.stamp_to_write(id)?.stored.is_some());
                self.write(Mutation::Delete(id));
                Ok(())
            }
            Change::Unreadable { source_id, reason } => {
                self.known.mark_seen(&source_id);
                self.warn(source_id, reason);
                Ok(())
            }
        }
    }

    /// The stamp of a document that is about to be written, with what this sync has written before.
    fn stamp_to_write(&mut self, id: Uuid) -> Result<DocumentStamp, StoreError> {
        if self.batch.contains(id) {
            self.store_batch()?;
        }
        self.known.stamp_to_write(id)
    }

    /// Adds a mutation to the batch, unless this is a dry run.
    fn write(&mut self, mutation: Mutation) {
        if !self.options.dry_run {
            self.batch.push(mutation);
        }
    }

    /// Stores all prepared mutations.
    fn store_batch(&mut self) -> Result<(), StoreError> {
        let mutations = self.batch.take();
        if mutations.is_empty() { Ok(()) } else { self.store.apply(&mutations).map(drop) }
    }

    fn warn(&mut self, source_id: String, reason: String) {
        tracing::debug!(source = %self.source, source_id, reason, "cannot read a document");
        self.report.warning_count += 1;
        if self.report.warnings.len() < WARNINGS_MAX {
            self.report.warnings.push(Warning { source_id, reason });
        }
    }

    /// Stores the names that an earlier version did not store. A failure is only logged.
    fn store_skipped_names(&self) {
        for names in self.known.take_unnamed_skips().chunks(NAMES_PER_TRANSACTION) {
            if let Err(error) = self.store.name_skipped(names) {
                tracing::debug!(%error, "cannot store the names of skipped files");
                return;
            }
        }
    }

    /// Adds the warnings of earlier syncs, which hold until their documents change.
    fn repeat_warnings(&mut self) {
        let repeated = self.known.take_repeated_warnings();
        self.report.warning_count += repeated.count;
        let room = WARNINGS_MAX.saturating_sub(self.report.warnings.len());
        self.report.warnings.extend(repeated.warnings.into_iter().take(room));
    }

    fn upsert(&mut self, mut document: Document, runtime: &Handle) -> Result<(), StoreError> {
        let fingerprint = document.fingerprint.take();
        document.fingerprint =
            fingerprint.map(|fingerprint| self.known.stamped_fingerprint(&document.source_id, &fingerprint));
        let id = self.known.mark_seen(&document.source_id);
        let SyncOptions { since, until, .. } = self.options;
        let too_old = since.is_some_and(|since| document.updated_at.is_some_and(|at| at < since));
        let too_new = until.is_some_and(|until| document.updated_at.is_some_and(|at| at > until));
        if too_old || too_new {
            return Ok(());
        }
        let (version, decision) = self.journal.decide(&document);
        if let ReadDecision::Skip(reason) = decision {
            return self.skip(id, document, ExtractError::Failed(reason.to_owned()));
        }
        if decision == ReadDecision::ReadExclusively {
            // It may crash the process.
            self.store_batch()?;
        }
        let cancellation = self.cancellation.clone();
        let Some(permit) = EXTRACTION_GATE.acquire(decision == ReadDecision::ReadExclusively, &cancellation)
        else {
            return Ok(());
        };
        self.journal.begin(version);
        let result = self.extract(&mut document, runtime);
        // Before embedding and storing: a crash during those is not caused by the document.
        self.journal.finish(!cancellation.is_cancelled());
        drop(permit);
        match result {
            Ok((extracted, ..)) if self.has_refused_key(&document, &extracted) => {
                self.skip_private_key(id, document)
            }
            Ok((extracted, title, chunks)) => {
                let document = self.new_document(id, document, extracted, title, chunks);
                self.store_document(id, document)
            }
            Err(error) => self.skip(id, document, error),
        }
    }

    /// Whether the text contains a private key that the settings do not admit. Checks the extracted text, so that
    /// neither the encoding nor the format of a document hides a key.
    fn has_refused_key(&self, document: &Document, extracted: &ExtractedText) -> bool {
        is_private_key(extracted.body.as_bytes()) && !self.known.admits_secret(&document.source_id)
    }

    /// Counts a document as a secret file, deletes its stored version, and skips it until it changes.
    fn skip_private_key(&mut self, id: Uuid, document: Document) -> Result<(), StoreError> {
        self.report.secret_files += 1;
        let is_stored = self.stamp_to_write(id)?.stored.is_some();
        self.report.deleted += u64::from(is_stored);
        self.write(Mutation::Delete(id));
        if let Some(fingerprint) = document.fingerprint {
            let (source, source_id) = (self.source.clone(), document.source_id);
            let reason = PRIVATE_KEY_NOTE.to_owned();
            self.write(Mutation::SkipUnreadable { id, source, source_id, fingerprint, reason });
        }
        Ok(())
    }

    /// Extracts text, title and chunks of a document, and takes its content.
    fn extract(
        &self,
        document: &mut Document,
        runtime: &Handle,
    ) -> Result<(ExtractedText, Option<String>, Vec<Span>), ExtractError> {
        let extracted = self.extraction.extract(take_content(document), &self.cancellation, runtime)?;
        let extracted = check_text_size(extracted, TEXT_BYTES_MAX)?;
        if is_blank(&extracted, document) {
            return Err(ExtractError::NotText);
        }
        let title = document_title(&extracted, document);
        let chunks = self.split(&extracted, title.as_deref())?;
        Ok((extracted, title, chunks))
    }

    fn store_document(&mut self, id: Uuid, document: NewDocument) -> Result<(), StoreError> {
        if let Some(note) = &document.note {
            self.warn(document.source_id.clone(), note.clone());
        }
        match self.stamp_to_write(id)?.stored {
            Some(stamp) if stamp.hash == document.hash => {
                self.report.unchanged += 1;
                if stamp.fingerprint != document.fingerprint {
                    let NewDocument { source_id, fingerprint, note, .. } = document;
                    let source = self.source.clone();
                    self.write(Mutation::Refresh { id, source, source_id, fingerprint, note });
                }
                return Ok(());
            }
            Some(_) => self.report.updated += 1,
            None => self.report.added += 1,
        }
        if self.options.dry_run {
            return Ok(());
        }
        // Cancelled if there are none: the next sync reads it again.
        if let Some(vectors) = self.embed(&document) {
            self.write(Mutation::Put(Box::new(NewDocument { vectors, ..document })));
        }
        Ok(())
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
    fn embed(&self, document: &NewDocument) -> Option<NewVectors> {
        let Some(models) = &self.models else { return Some(NewVectors::default()) };
        let model = models.ingest_model();
        let mut hashes = Vec::with_capacity(document.chunks.len());
        let mut all_vectors = Some(Vec::with_capacity(document.chunks.len()));
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
            if let Some(all) = &mut all_vectors {
                match model.vectors(&texts, Effort::Low) {
                    Ok(vectors) => all.extend(vectors),
                    Err(error) => {
                        tracing::warn!(%error, "cannot embed a document; it has no vectors yet");
                        all_vectors = None;
                    }
                }
            }
        }
        let all_vectors = all_vectors.map(|vectors| (model.key, vectors));
        Some(NewVectors { hashes, computed: all_vectors, required_model: Some(models.configured.key) })
    }

    fn skip(&mut self, id: Uuid, document: Document, error: ExtractError) -> Result<(), StoreError> {
        match error {
            ExtractError::NotText => {}
            ExtractError::NotNow(reason) => {
                // The stored version stays; the next sync tries again.
                self.warn(document.source_id, reason);
                return Ok(());
            }
            ExtractError::Failed(reason) => {
                // The stored version stays; tried again when the document changes.
                if let Some(fingerprint) = document.fingerprint {
                    let (source, source_id) = (self.source.clone(), document.source_id.clone());
                    let reason = reason.clone();
                    self.write(Mutation::SkipUnreadable { id, source, source_id, fingerprint, reason });
                }
                self.warn(document.source_id, reason);
                return Ok(());
            }
        }
        self.report.skipped += 1;
        self.known.mark_written(id);
        let mutation = match document.fingerprint {
            Some(fingerprint) => {
                let (source, source_id) = (self.source.clone(), document.source_id);
                Mutation::SkipEmpty { id, source, source_id, fingerprint }
            }
            None => Mutation::Delete(id),
        };
        self.write(mutation);
        Ok(())
    }

    fn new_document(
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
        let mut new_document = NewDocument {
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
            sketch: minhash::signature(&extracted.body),
            body: extracted.body,
            chunks,
            vectors: NewVectors::default(),
            hash: [0; 32],
            fingerprint: document.fingerprint,
            note: extracted.note,
        };
        new_document.hash = content_hash(&new_document, self.chunking);
        new_document
    }
}

/// Deletes documents and returns their number; a dry run only counts those that are stored.
pub(super) fn delete_documents(store: &dyn Store, ids: &[Uuid], dry_run: bool) -> Result<u64, StoreError> {
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
fn document_title(extracted: &ExtractedText, document: &Document) -> Option<String> {
    let explicit = document.title.as_deref().or(extracted.title.as_deref());
    let title = explicit.or_else(|| document.source_id.rsplit('/').next())?;
    let title = &title[..title.floor_char_boundary(TITLE_BYTES_MAX)];
    (!title.is_empty()).then(|| title.to_owned())
}

/// Takes the content of a document, which is then empty.
fn take_content(document: &mut Document) -> RawDocument {
    let content = mem::replace(&mut document.content, DocumentContent::Text(String::new()));
    let (name, content_type) = (&document.source_id, document.content_type.as_deref());
    match content {
        DocumentContent::Bytes(bytes) => RawDocument::new(bytes, name, content_type),
        DocumentContent::Text(text) => RawDocument::from_text(&text, name, content_type),
    }
}

fn check_text_size(extracted: ExtractedText, bytes_max: usize) -> Result<ExtractedText, ExtractError> {
    let bytes = extracted.body.len();
    if bytes <= bytes_max {
        return Ok(extracted);
    }
    let reason = format!("its text has {bytes} bytes; no more than {bytes_max} can be stored");
    Err(ExtractError::Failed(reason))
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
    part(Some(&format!("{PROCESSING_VERSION} {}/{}", chunking.max_tokens, chunking.overlap_tokens)));
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_larger_than_the_store_allows_is_rejected() {
        let text = |length| ExtractedText { body: "x".repeat(length), ..ExtractedText::default() };
        assert_eq!(check_text_size(text(16), 16), Ok(text(16)));
        let reason = "its text has 17 bytes; no more than 16 can be stored";
        assert_eq!(check_text_size(text(17), 16), Err(ExtractError::Failed(reason.to_owned())));
    }
}
