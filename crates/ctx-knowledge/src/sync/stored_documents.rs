//! What earlier syncs have stored of a source, by which a connector skips unchanged documents, and what this sync has
//! seen of it.

use super::Warning;
use crate::chunk::Chunking;
use crate::knowledge::Source;
use ctx_core::{Connector, KnownDocuments, SourceName};
use ctx_extract::EXTRACTION_VERSION;
use ctx_store::{DocumentStamp, SkipNote, Store, StoreError};
use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;

/// Maximum number of warnings in a report; the rest are only counted.
pub(super) const WARNINGS_MAX: usize = 100;
/// Note on a document that is left out because it contains a private key. Must not change: stores contain it.
pub(super) const PRIVATE_KEY_NOTE: &str = "it contains a private key";
/// Added to fingerprints of documents whose secrets the settings admit, so that a change of those settings is noticed.
const ADMITTED_MARK: &str = "secrets";
/// Version of the processing of documents. Increment it if the same content would be stored differently, so that the
/// next sync stores it again.
pub(super) const PROCESSING_VERSION: u32 = 2;
/// Version of the rules for secret content. Increment it when they change, so that the next sync examines all
/// documents again.
const SECRET_RULES_VERSION: u32 = 1;
/// UUID namespace of document ids, which are derived from source and name: a document has the same id in every store.
const ID_NAMESPACE: Uuid = Uuid::from_u128(0x6374_7800_6463_4d5e_9f3a_0b1c_2d3e_4f50);

/// The source's documents as stored by earlier syncs, and those that this sync has seen.
pub(super) struct StoredDocuments {
    store: Arc<dyn Store>,
    source: SourceName,
    connector: Arc<dyn Connector>,
    is_full: bool,
    /// Hash of the settings. Part of every stored fingerprint, so that documents are processed again when settings
    /// change.
    settings: String,
    seen: Mutex<HashSet<Uuid>>,
    unchanged: AtomicU64,
    /// Unchanged documents that an earlier sync left out because they contain a private key.
    private_key_skips: AtomicU64,
    /// Number of documents in the source, if the connector announced it.
    expected_total: Mutex<Option<u64>>,
    /// Warnings of earlier syncs about documents that are unchanged.
    repeated_warnings: Mutex<RepeatedWarnings>,
    /// Prefetched stamps, until they are used. They stay valid: only this sync writes documents of its source.
    prefetched_stamps: Mutex<HashMap<Uuid, DocumentStamp>>,
    /// Skipped files whose names an earlier version of ctx did not store.
    unnamed_skips: Mutex<Vec<(Uuid, String)>>,
    /// Documents that this sync has written: their prefetched stamps are outdated.
    written: Mutex<HashSet<Uuid>>,
}

/// Warnings of earlier syncs that still hold.
#[derive(Default)]
pub(super) struct RepeatedWarnings {
    /// The first of them.
    pub(super) warnings: Vec<Warning>,
    pub(super) count: u64,
    /// Number of warnings about documents without a stored text.
    unreadable: u64,
}

impl StoredDocuments {
    pub(super) fn new(store: Arc<dyn Store>, source: &Source, chunking: Chunking, is_full: bool) -> Self {
        Self {
            store,
            source: source.name.clone(),
            connector: source.connector.clone(),
            is_full,
            settings: settings_stamp(chunking, &source.tags),
            seen: Mutex::default(),
            unchanged: AtomicU64::new(0),
            private_key_skips: AtomicU64::new(0),
            expected_total: Mutex::default(),
            repeated_warnings: Mutex::default(),
            prefetched_stamps: Mutex::default(),
            unnamed_skips: Mutex::default(),
            written: Mutex::default(),
        }
    }

    /// Number of documents that are unchanged by their fingerprint.
    pub(super) fn unchanged_count(&self) -> u64 {
        self.unchanged.load(Ordering::Relaxed)
    }

    /// Number of unchanged documents that an earlier sync left out because of a private key.
    pub(super) fn private_key_count(&self) -> u64 {
        self.private_key_skips.load(Ordering::Relaxed)
    }

    /// Number of documents that need not be read: unchanged, left out, or known to be unreadable.
    pub(super) fn known_count(&self) -> u64 {
        let repeated_warnings = self.repeated_warnings.lock().unwrap_or_else(PoisonError::into_inner);
        self.unchanged_count() + self.private_key_count() + repeated_warnings.unreadable
    }

    pub(super) fn expected_total(&self) -> Option<u64> {
        *self.expected_total.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connector has reported this document.
    pub(super) fn has_seen(&self, id: Uuid) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    /// Whether the connector has reported the document with this source id.
    pub(super) fn has_seen_source_id(&self, source_id: &str) -> bool {
        self.has_seen(document_id(&self.source, source_id))
    }

    pub(super) fn mark_seen(&self, source_id: &str) -> Uuid {
        let id = document_id(&self.source, source_id);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        id
    }

    pub(super) fn stamped_fingerprint(&self, source_id: &str, fingerprint: &str) -> String {
        let stamped_fingerprint = format!("{fingerprint} {}", self.settings);
        if self.admits_secret(source_id) {
            format!("{stamped_fingerprint} {ADMITTED_MARK}")
        } else {
            stamped_fingerprint
        }
    }

    pub(super) fn admits_secret(&self, source_id: &str) -> bool {
        self.connector.admits_secret(source_id)
    }

    /// The stamp of a stored document; queried only if it was not prefetched.
    fn take_stamp(&self, id: Uuid) -> Result<DocumentStamp, StoreError> {
        let prefetched = self.prefetched_stamps.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        match prefetched {
            Some(stamp) => Ok(stamp),
            None => Ok(self.store.stamps(&[id])?.pop().unwrap_or_default()),
        }
    }

    /// The stamp of a document that is about to be written.
    pub(super) fn stamp_to_write(&self, id: Uuid) -> Result<DocumentStamp, StoreError> {
        if !self.mark_written(id) {
            self.prefetched_stamps.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
        self.take_stamp(id)
    }

    /// Records that a document is about to be written; returns whether this is the first time in this sync.
    pub(super) fn mark_written(&self, id: Uuid) -> bool {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
    }

    fn prefetch_stamps(&self, source_ids: &[&str]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = source_ids.iter().map(|name| document_id(&self.source, name)).collect();
        let prefetched_stamps = self.store.stamps(&ids)?;
        self.prefetched_stamps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(ids.into_iter().zip(prefetched_stamps));
        Ok(())
    }

    /// Takes the skipped files whose names are not stored.
    pub(super) fn take_unnamed_skips(&self) -> Vec<(Uuid, String)> {
        mem::take(&mut *self.unnamed_skips.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the warnings of earlier syncs that still hold.
    pub(super) fn take_repeated_warnings(&self) -> RepeatedWarnings {
        mem::take(&mut *self.repeated_warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether an earlier sync processed the document with this fingerprint. Repeats the warning of that sync; an
    /// unreadable document is known, but not counted as unchanged.
    fn is_known(&self, source_id: &str, id: Uuid, fingerprint: &str) -> Result<bool, StoreError> {
        let fingerprint = self.stamped_fingerprint(source_id, fingerprint);
        let stamp = self.take_stamp(id)?;
        let stored =
            stamp.stored.as_ref().is_some_and(|stored| stored.fingerprint.as_ref() == Some(&fingerprint));
        let skip_note: Option<SkipNote> =
            stamp.skipped.clone().filter(|skip_note| skip_note.fingerprint == fingerprint);
        let known = stored || skip_note.is_some();
        if !known {
            // Needed again when the document is stored.
            self.prefetched_stamps.lock().unwrap_or_else(PoisonError::into_inner).insert(id, stamp);
        }
        if skip_note.as_ref().is_some_and(|skip_note| !skip_note.is_named) {
            let mut unnamed_skips = self.unnamed_skips.lock().unwrap_or_else(PoisonError::into_inner);
            unnamed_skips.push((id, source_id.to_owned()));
        }
        let reason = skip_note.and_then(|skip_note| skip_note.reason);
        if reason.as_deref() == Some(PRIVATE_KEY_NOTE) {
            self.private_key_skips.fetch_add(1, Ordering::Relaxed);
            return Ok(true);
        }
        let unreadable = !stored && reason.is_some();
        self.unchanged.fetch_add(u64::from(known && !unreadable), Ordering::Relaxed);
        if let Some(reason) = reason {
            let mut repeated_warnings = self.repeated_warnings.lock().unwrap_or_else(PoisonError::into_inner);
            repeated_warnings.count += 1;
            repeated_warnings.unreadable += u64::from(unreadable);
            if repeated_warnings.warnings.len() < WARNINGS_MAX {
                repeated_warnings.warnings.push(Warning { source_id: source_id.to_owned(), reason });
            }
        }
        Ok(known)
    }
}

impl KnownDocuments for StoredDocuments {
    fn is_current(&self, source_id: &str, fingerprint: &str) -> bool {
        let id = self.mark_seen(source_id);
        // A store error is not reported here: the write that follows reports it.
        !self.is_full && self.is_known(source_id, id, fingerprint).unwrap_or(false)
    }

    fn prefetch(&self, source_ids: &[&str]) {
        // A store error is not reported here: the write that follows reports it.
        if let Err(error) = self.prefetch_stamps(source_ids) {
            tracing::debug!(%error, "cannot prefetch stored documents");
        }
    }

    fn expect(&self, total: u64) {
        *self.expected_total.lock().unwrap_or_else(PoisonError::into_inner) = Some(total);
    }
}

pub(super) fn document_id(source: &SourceName, source_id: &str) -> Uuid {
    Uuid::new_v5(&ID_NAMESPACE, format!("{source}\n{source_id}").as_bytes())
}

/// Hash of the settings and versions that determine how documents are stored.
fn settings_stamp(chunking: Chunking, tags: &[String]) -> String {
    let Chunking { max_tokens, overlap_tokens } = chunking;
    let versions = format!("{PROCESSING_VERSION} {EXTRACTION_VERSION} {SECRET_RULES_VERSION}");
    let settings = format!("{versions} {max_tokens}/{overlap_tokens} {tags:?}");
    blake3::hash(settings.as_bytes()).to_hex()[..16].to_owned()
}
