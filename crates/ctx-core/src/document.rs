//! What can be read, and how it comes in.
//!
//! A [`Connector`] sends every change since a [`Cursor`] to a [`Sink`]. What happens then (text
//! extraction, chunks, the store) is not its business, and neither is whether something changed:
//! the sink can tell, by fingerprint, and the content hash decides.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

/// One configured place: `git:platform`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceName {
    kind: String,
    name: String,
}

impl SourceName {
    /// Joins a connector's kind and the name it is configured under.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: kind.into(), name: name.into() }
    }

    /// The connector's kind: `git`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether `text` means this source: its full name or its kind.
    pub fn matches(&self, text: &str) -> bool {
        text == self.kind || text.split_once(':') == Some((self.kind.as_str(), self.name.as_str()))
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.name)
    }
}

/// One thing read from a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its name within the source: a path, a key, an id.
    pub source_id: String,
    /// Where a person can open it.
    pub source_url: Option<String>,
    /// Its title; where there is none, one is taken from the content.
    pub title: Option<String>,
    /// Who wrote it.
    pub author: Option<String>,
    /// When it came to be.
    pub created_at: Option<Timestamp>,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// Its media type, where the source knows it.
    pub content_type: Option<String>,
    /// What it says.
    pub content: Content,
    /// Anything else worth keeping.
    pub metadata: Map<String, Value>,
    /// Labels to filter by.
    pub tags: Vec<String>,
    /// Changes whenever the content does, and can be had without reading it. Without one the
    /// document is read again at every sync.
    pub fingerprint: Option<String>,
}

impl Document {
    /// A document of which only its name and what it says are known.
    pub fn new(source_id: impl Into<String>, content: Content) -> Self {
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

/// What a document says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text as it is.
    Text(String),
    /// Bytes to extract text from.
    Bytes(Vec<u8>),
}

/// Something that changed in a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A document is new or different.
    Upsert(Box<Document>),
    /// A document is gone.
    Delete {
        /// Its name within the source.
        source_id: String,
    },
    /// A document is there but cannot be had; it is kept as it was and tried again next time.
    Unreadable {
        /// Its name within the source.
        source_id: String,
        /// Why.
        reason: String,
    },
}

/// Where a sync left off; opaque to everyone but its connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub String);

/// What a pull amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Where to resume from next time.
    pub cursor: Option<Cursor>,
    /// Whether everything that exists was named.
    pub listing: Listing,
}

/// How much of the source a pull has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// All of it: what was not named is gone.
    Complete,
    /// A part, or only what changed: nothing follows from silence.
    Partial,
}

/// Code that reads a kind of place.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// Sends every change since `cursor` to `sink`; returns the cursor to resume from.
    async fn pull(&self, cursor: Option<&Cursor>, sink: &Sink) -> Result<Pulled, SourceError>;

    /// Whether the place can be reached, without reading it.
    async fn check(&self) -> Result<(), SourceError>;

    /// Whether the user's settings name this document for reading although it contains a secret, such as a private key.
    fn admits_secret(&self, _source_id: &str) -> bool {
        false
    }

    /// What watches the place; `None` when it cannot tell that it changed.
    fn watcher(&self) -> Option<Watcher> {
        None
    }
}

/// Watches a place on a thread of its own, for as long as its signals are heard. It signals once
/// when it has begun, since nobody knows what changed before.
pub type Watcher = Box<dyn FnOnce(&Signal) + Send>;

/// The end of a [`Watch`] that tells.
pub struct Signal {
    changes: mpsc::Sender<()>,
}

impl Signal {
    /// Tells that something may have changed. Twice before it is heard is once.
    pub fn send(&self) {
        // Full: it will be heard. Closed: `is_heard` tells.
        self.changes.try_send(()).ok();
    }

    /// Whether anybody still wants to know.
    pub fn is_heard(&self) -> bool {
        !self.changes.is_closed()
    }
}

/// Hears when a place may have changed.
pub struct Watch {
    changes: mpsc::Receiver<()>,
}

impl Watch {
    /// A watch, and what makes it hear.
    pub fn channel() -> (Signal, Self) {
        let (sender, changes) = mpsc::channel(1);
        (Signal { changes: sender }, Self { changes })
    }

    /// Waits until something may have changed since the last time; `false` when nobody watches any
    /// more.
    pub async fn changed(&mut self) -> bool {
        self.changes.recv().await.is_some()
    }
}

/// A source that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The place is not there or says no.
    #[error("{0}")]
    Unavailable(String),
    /// The sync has ended; nothing is wrong with the source.
    #[error(transparent)]
    Closed(#[from] SinkClosed),
}

/// The other end of a [`Sink`] is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sync has ended")]
pub struct SinkClosed;

/// Remembers what a source had at its last sync.
pub trait Known: Send + Sync + 'static {
    /// Whether the document is stored with this fingerprint. Also notes that it exists.
    fn is_current(&self, source_id: &str, fingerprint: &str) -> bool;

    /// Prepares for questions about these documents, which are about to be asked: one look for all of them.
    fn prefetch(&self, _source_ids: &[&str]) {}

    /// Takes note of how many documents the source has, for progress.
    fn expect(&self, _total: u64) {}
}

/// Where a connector sends changes; bounded, so a fast source waits for a slow disk.
#[derive(Clone)]
pub struct Sink {
    changes: mpsc::Sender<Change>,
    known: Arc<dyn Known>,
    secret_files: Arc<AtomicU64>,
}

impl Sink {
    /// A sink that holds up to `capacity` changes, and the end they come out of.
    pub fn channel(capacity: usize, known: Arc<dyn Known>) -> (Self, mpsc::Receiver<Change>) {
        let (changes, receiver) = mpsc::channel(capacity);
        (Self { changes, known, secret_files: Arc::default() }, receiver)
    }

    /// Whether the document must be read: it is new, or its fingerprint is another. Names it as
    /// existing either way.
    pub fn wants(&self, source_id: &str, fingerprint: &str) -> bool {
        !self.known.is_current(source_id, fingerprint)
    }

    /// Announces documents that [`Sink::wants`] is about to be asked for, a few hundred at a time, so that what is known of
    /// them is read in one go. It need not be called, and a document that is announced must be asked for.
    pub fn prefetch(&self, source_ids: &[&str]) {
        if !source_ids.is_empty() {
            self.known.prefetch(source_ids);
        }
    }

    /// Notes that a file was left out because it usually holds secrets ([`crate::is_secret_file`]).
    pub fn leave_out_secret_file(&self) {
        self.secret_files.fetch_add(1, Ordering::Relaxed);
    }

    /// How many files were left out because they usually hold secrets.
    pub fn secret_file_count(&self) -> u64 {
        self.secret_files.load(Ordering::Relaxed)
    }

    /// Announces how many documents the source has, where that is known before they are read. Only progress is made
    /// of it: the number may be wrong.
    pub fn expect(&self, total: u64) {
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
        assert!(signal.is_heard());
        drop(watch);
        signal.send();
        assert!(!signal.is_heard());
    }
}
