//! Documents, and the connectors that read them from sources.
//!
//! A [`Connector`] sends every change since a [`Cursor`] to a [`Sink`]. It neither extracts text nor splits or stores
//! documents, and need not know whether one changed: the sink compares fingerprints, and the content hash decides.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

/// Name of a configured source: `git:platform`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceName {
    kind: String,
    name: String,
}

impl SourceName {
    /// Joins a connector's kind and the configured name.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: kind.into(), name: name.into() }
    }

    /// The connector's kind: `git`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether `text` selects this source: its full name or its kind.
    pub fn matches(&self, text: &str) -> bool {
        text == self.kind || text.split_once(':') == Some((self.kind.as_str(), self.name.as_str()))
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.name)
    }
}

/// An item read from a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Id within the source, such as a path or key.
    pub source_id: String,
    /// URL at which a user can open it.
    pub source_url: Option<String>,
    /// Title; if `None`, one is derived from the content.
    pub title: Option<String>,
    /// Author.
    pub author: Option<String>,
    /// Time of creation.
    pub created_at: Option<Timestamp>,
    /// Time of the last change.
    pub updated_at: Option<Timestamp>,
    /// Media type, if the source knows it.
    pub content_type: Option<String>,
    /// The content.
    pub content: DocumentContent,
    /// Additional metadata.
    pub metadata: Map<String, Value>,
    /// Labels to filter by.
    pub tags: Vec<String>,
    /// Version marker that changes whenever the content does, and is available without reading the content. Without
    /// one, every sync reads the document again.
    pub fingerprint: Option<String>,
}

impl Document {
    /// A document with only an id and content.
    pub fn new(source_id: impl Into<String>, content: DocumentContent) -> Self {
        Self {
            source_id: source_id.into(),
            source_url: None,
            title: None,
            author: None,
            created_at: None,
            updated_at: None,
            content_type: None,
            content,
            metadata: Map::new(),
            tags: Vec::new(),
            fingerprint: None,
        }
    }
}

/// Content of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentContent {
    /// Plain text.
    Text(String),
    /// Bytes to extract text from.
    Bytes(Vec<u8>),
}

/// A change in a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A document is new or changed.
    Upsert(Box<Document>),
    /// A document was deleted.
    Delete {
        /// Id within the source.
        source_id: String,
    },
    /// A document exists but cannot be read. The stored version is kept, and the next sync tries again.
    Unreadable {
        /// Id within the source.
        source_id: String,
        /// The reason.
        reason: String,
    },
}

/// Position at which a sync resumes; opaque to all but its connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub String);

/// Result of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullResult {
    /// Position at which the next pull resumes.
    pub cursor: Option<Cursor>,
    /// Whether the pull named every document that exists.
    pub listing: Listing,
}

/// How completely a pull named the documents of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// All documents: those that were not named are deleted.
    Complete,
    /// Some documents, or only changed ones: those that were not named are kept.
    Partial,
}

/// Reads one kind of source.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// Sends every change since `cursor` to `sink`; returns the cursor to resume from.
    async fn pull(&self, cursor: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError>;

    /// Checks that the source can be reached, without reading it.
    async fn check(&self) -> Result<(), SourceError>;

    /// Whether the user's settings name this document explicitly, so that it is read although it contains a secret such
    /// as a private key.
    fn admits_secret(&self, _source_id: &str) -> bool {
        false
    }

    /// Watches the source for changes; `None` if it cannot be watched.
    fn watcher(&self) -> Option<Watcher> {
        None
    }
}

/// Watches a source on a thread of its own until its [`Watch`] is dropped. Signals once at the start, because earlier
/// changes are unknown.
pub type Watcher = Box<dyn FnOnce(&Signal) + Send>;

/// The sender of change notifications to a [`Watch`].
pub struct Signal {
    changes: mpsc::Sender<()>,
}

impl Signal {
    /// Signals that something may have changed. Signals are merged until they are received.
    pub fn send(&self) {
        // Full: a signal is already pending. Closed: `is_heard` reports it.
        self.changes.try_send(()).ok();
    }

    /// Whether the [`Watch`] still exists.
    pub fn has_receiver(&self) -> bool {
        !self.changes.is_closed()
    }
}

/// The receiver of change notifications of a source.
pub struct Watch {
    changes: mpsc::Receiver<()>,
}

impl Watch {
    /// A signal and the watch that receives it.
    pub fn channel() -> (Signal, Self) {
        let (sender, changes) = mpsc::channel(1);
        (Signal { changes: sender }, Self { changes })
    }

    /// Waits for the next signal that something may have changed; `false` once the watcher has ended.
    pub async fn changed(&mut self) -> bool {
        self.changes.recv().await.is_some()
    }
}

/// A failure to read a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The source is unreachable or refuses access.
    #[error("{0}")]
    Unavailable(String),
    /// The sync has ended; the source is not at fault.
    #[error(transparent)]
    Closed(#[from] SinkClosed),
}

/// The receiver of a [`Sink`] was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sync has ended")]
pub struct SinkClosed;

/// The documents of a source that the last sync stored.
pub trait KnownDocuments: Send + Sync + 'static {
    /// Whether the document is stored with this fingerprint. Also marks it as existing.
    fn is_current(&self, source_id: &str, fingerprint: &str) -> bool;

    /// Looks these documents up at once, before [`KnownDocuments::is_current`] is called for each.
    fn prefetch(&self, _source_ids: &[&str]) {}

    /// Sets the number of documents of the source, for progress.
    fn expect(&self, _total: u64) {}
}

/// Sends changes from a connector to the sync. Bounded, so that a fast source waits for a slow disk.
#[derive(Clone)]
pub struct Sink {
    changes: mpsc::Sender<Change>,
    known: Arc<dyn KnownDocuments>,
    secret_files: Arc<AtomicU64>,
}

impl Sink {
    /// A sink that buffers up to `capacity` changes, and its receiver.
    pub fn channel(capacity: usize, known: Arc<dyn KnownDocuments>) -> (Self, mpsc::Receiver<Change>) {
        let (changes, receiver) = mpsc::channel(capacity);
        (Self { changes, known, secret_files: Arc::default() }, receiver)
    }

    /// Whether the document must be read: it is new, or its fingerprint differs. Marks it as existing either way.
    pub fn needs_read(&self, source_id: &str, fingerprint: &str) -> bool {
        !self.known.is_current(source_id, fingerprint)
    }

    /// Announces documents for which [`Sink::needs_read`] will be called, a few hundred at a time, so that they are looked
    /// up together. Optional; but `wants` must be called for every announced document.
    pub fn prefetch(&self, source_ids: &[&str]) {
        if !source_ids.is_empty() {
            self.known.prefetch(source_ids);
        }
    }

    /// Counts a file that was left out because it usually holds secrets ([`crate::is_secret_file`]).
    pub fn leave_out_secret_file(&self) {
        self.secret_files.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of files that were left out because they usually hold secrets.
    pub fn secret_file_count(&self) -> u64 {
        self.secret_files.load(Ordering::Relaxed)
    }

    /// Announces the number of documents of the source, if it is known before they are read. Only for progress, so it
    /// may be wrong.
    pub fn set_total(&self, total: u64) {
        self.known.expect(total);
    }

    /// Sends a change.
    pub async fn send(&self, change: Change) -> Result<(), SinkClosed> {
        self.changes.send(change).await.map_err(|_| SinkClosed)
    }

    /// Sends a change from a thread that may block.
    pub fn send_blocking(&self, change: Change) -> Result<(), SinkClosed> {
        self.changes.blocking_send(change).map_err(|_| SinkClosed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_meant_by_its_full_name_or_its_kind() {
        let source = SourceName::new("git", "platform");
        assert!(source.matches("git") && source.matches("git:platform"));
        assert!(!source.matches("git:plat") && !source.matches("platform") && !source.matches("gi"));
    }

    #[tokio::test]
    async fn changes_that_nobody_has_heard_yet_are_heard_once() {
        let (signal, mut watch) = Watch::channel();
        signal.send();
        signal.send();
        assert!(watch.changed().await);
        drop(signal);
        assert!(!watch.changed().await);
    }

    #[test]
    fn a_signal_knows_when_nobody_listens() {
        let (signal, watch) = Watch::channel();
        assert!(signal.has_receiver());
        drop(watch);
        signal.send();
        assert!(!signal.has_receiver());
    }
}
