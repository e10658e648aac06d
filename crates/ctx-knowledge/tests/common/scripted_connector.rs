//! A scripted source, for behaviour that files do not have.

use async_trait::async_trait;
use ctx_core::{
    Change, Connector, Cursor, Document, DocumentContent, Listing, PullResult, Sink, SourceError,
};
use jiff::Timestamp;
use serde_json::Map;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Answers each pull with its next step, and repeats the last one for ever.
#[derive(Default)]
pub(crate) struct ScriptedConnector {
    pulls: Mutex<VecDeque<ScriptedPull>>,
    cursors: Mutex<Vec<Option<Cursor>>>,
    paused: Notify,
    released: Notify,
}

#[derive(Clone)]
struct ScriptedPull {
    changes: Vec<Change>,
    waits: bool,
    result: Result<PullResult, String>,
}

impl ScriptedConnector {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// A source that has these documents and no others.
    pub(crate) fn with(documents: impl IntoIterator<Item = Document>) -> Arc<Self> {
        let source = Self::new();
        source.lists(documents.into_iter().map(upsert));
        source
    }

    /// The next pull reports a complete listing.
    pub(crate) fn lists(&self, changes: impl IntoIterator<Item = Change>) {
        self.push(changes, false, Ok(PullResult { cursor: None, listing: Listing::Complete }));
    }

    /// The next pull reports changes and a new cursor.
    pub(crate) fn continues(&self, changes: impl IntoIterator<Item = Change>, cursor: Option<&str>) {
        let cursor = cursor.map(|cursor| Cursor(cursor.to_owned()));
        self.push(changes, false, Ok(PullResult { cursor, listing: Listing::Partial }));
    }

    /// The next pull reports these documents and fails.
    pub(crate) fn fails_after(&self, changes: impl IntoIterator<Item = Change>, reason: &str) {
        self.push(changes, false, Err(reason.to_owned()));
    }

    /// The next pull reports these documents and waits to be released before it ends.
    pub(crate) fn waits_after(&self, changes: impl IntoIterator<Item = Change>) {
        self.push(changes, true, Ok(PullResult { cursor: None, listing: Listing::Partial }));
    }

    /// Waits until a pull waits.
    pub(crate) async fn wait_until_paused(&self) {
        self.paused.notified().await;
    }

    pub(crate) fn release(&self) {
        self.released.notify_one();
    }

    /// The cursors that pulls were given so far.
    pub(crate) fn cursors(&self) -> Vec<Option<String>> {
        let cursors = self.cursors.lock().unwrap();
        cursors.iter().map(|cursor| cursor.as_ref().map(|cursor| cursor.0.clone())).collect()
    }

    fn push(
        &self,
        changes: impl IntoIterator<Item = Change>,
        waits: bool,
        result: Result<PullResult, String>,
    ) {
        let changes = changes.into_iter().collect();
        self.pulls.lock().unwrap().push_back(ScriptedPull { changes, waits, result });
    }
}

#[async_trait]
impl Connector for ScriptedConnector {
    async fn pull(&self, cursor: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError> {
        self.cursors.lock().unwrap().push(cursor.cloned());
        let pull = {
            let mut pulls = self.pulls.lock().unwrap();
            if pulls.len() > 1 { pulls.pop_front().unwrap() } else { pulls[0].clone() }
        };
        // As connectors do that list before they read.
        let upserts = pull.changes.iter().filter_map(|change| match change {
            Change::Upsert(document) => Some(document.source_id.as_str()),
            _ => None,
        });
        sink.prefetch(&upserts.collect::<Vec<_>>());
        for change in pull.changes {
            sink.send(change).await?;
        }
        if pull.waits {
            self.paused.notify_one();
            self.released.notified().await;
        }
        pull.result.map_err(SourceError::Unavailable)
    }

    async fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }
}

/// A document of plain text.
pub(crate) fn document(source_id: &str, text: &str) -> Document {
    Document {
        source_id: source_id.to_owned(),
        source_url: None,
        title: None,
        author: None,
        created_at: None,
        updated_at: None,
        content_type: None,
        content: DocumentContent::Text(text.to_owned()),
        metadata: Map::new(),
        tags: Vec::new(),
        fingerprint: None,
    }
}

pub(crate) fn document_at(source_id: &str, text: &str, updated_at: Timestamp) -> Document {
    Document { updated_at: Some(updated_at), ..document(source_id, text) }
}

pub(crate) fn upsert(document: Document) -> Change {
    Change::Upsert(Box::new(document))
}

pub(crate) fn delete(source_id: &str) -> Change {
    Change::Delete { source_id: source_id.to_owned() }
}
