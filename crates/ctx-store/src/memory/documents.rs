//! Documents and sources in memory.

use super::{DocumentEntry, MemoryStore, SkippedFile, StoreContent};
use crate::changes::Generation;
use crate::documents::{
    ApplyResult, Chunk, ChunkPosition, ChunkText, DocumentId, DocumentKey, DocumentName, DocumentSet,
    DocumentStamp, DocumentStore, DocumentSummary, DocumentText, ListedDocument, Mutation, NewDocument,
    SkipNote, SourceCounts, SourceRecord, StoredDocument, StoredStamp, SyncOutcome,
};
use crate::error::StoreError;
use crate::files::{FilePosition, FileState, SourceFile};
use crate::filters::Filters;
use ctx_core::SourceName;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

impl DocumentStore for MemoryStore {
    fn apply(&self, mutations: &[Mutation]) -> Result<ApplyResult, StoreError> {
        let mut applied = ApplyResult::default();
        let mut content = self.content();
        for mutation in mutations {
            let generation = content.apply(mutation);
            applied.deleted += u64::from(generation.is_some() && matches!(mutation, Mutation::Delete(_)));
            applied.generation = generation.unwrap_or(applied.generation);
        }
        Ok(applied)
    }

    fn stamps(&self, ids: &[DocumentId]) -> Result<Vec<DocumentStamp>, StoreError> {
        let content = self.content();
        let stamp = |id: &DocumentId| DocumentStamp {
            stored: content.entry(*id).map(|entry| StoredStamp {
                hash: entry.document.hash.to_vec(),
                fingerprint: entry.document.fingerprint.clone(),
            }),
            skipped: content.skipped.get(id).map(|skipped| skipped.note.clone()),
        };
        Ok(ids.iter().map(stamp).collect())
    }

    fn document(&self, id: DocumentId) -> Result<Option<StoredDocument>, StoreError> {
        Ok(self.content().entry(id).map(stored_document))
    }

    fn text(&self, id: DocumentId, bytes_max: usize) -> Result<Option<DocumentText>, StoreError> {
        Ok(self.content().entry(id).map(|entry| {
            let body = &entry.document.body;
            DocumentText {
                content_type: entry.document.content_type.clone(),
                bytes: body.len() as u64,
                text: (body.len() <= bytes_max).then(|| body.clone()),
            }
        }))
    }

    fn list(&self, after: DocumentKey, limit: usize) -> Result<Vec<ListedDocument>, StoreError> {
        let content = self.content();
        let later = content.documents.iter().filter(|(key, _)| **key > after).take(limit);
        let listed = later.map(|(key, entry)| ListedDocument {
            key: *key,
            id: entry.document.id,
            source: entry.document.source.clone(),
            source_id: entry.document.source_id.clone(),
            title: entry.document.title.clone(),
            content_type: entry.document.content_type.clone(),
            bytes: entry.document.body.len() as u64,
        });
        Ok(listed.collect())
    }

    fn names(&self, after: Option<&DocumentName>, limit: usize) -> Result<Vec<DocumentName>, StoreError> {
        let content = self.content();
        let mut names: Vec<DocumentName> = content.documents.values().map(document_name).collect();
        names.retain(|name| after.is_none_or(|after| name_key(name) > name_key(after)));
        names.sort_by(|a, b| name_key(a).cmp(&name_key(b)));
        names.truncate(limit);
        Ok(names)
    }

    fn files(
        &self,
        source: &SourceName,
        after: Option<&FilePosition>,
        limit: usize,
    ) -> Result<Vec<SourceFile>, StoreError> {
        let (content, source) = (self.content(), source.to_string());
        let stored = content.documents.values().filter(|entry| entry.document.source == source);
        let mut files: Vec<SourceFile> = stored.map(|entry| content.stored_file(entry)).collect();
        let skipped = content.skipped.iter().filter(|(_, skipped)| skipped.source == source);
        let without_text = skipped.filter(|(id, _)| content.key_of(**id).is_none());
        files.extend(without_text.map(|(id, skipped)| skipped_file(*id, skipped)));
        files.retain(|file| after.is_none_or(|after| file.position().sort_key() > after.sort_key()));
        files.sort_by(|a, b| a.position().sort_key().cmp(&b.position().sort_key()));
        files.truncate(limit);
        Ok(files)
    }

    fn name_skipped(&self, _: &[(DocumentId, String)]) -> Result<(), StoreError> {
        // Nothing in memory was stored by an earlier version.
        Ok(())
    }

    fn summaries(&self, keys: &[DocumentKey]) -> Result<Vec<DocumentSummary>, StoreError> {
        let content = self.content();
        let found = keys.iter().filter_map(|key| Some((*key, content.documents.get(key)?)));
        Ok(found.map(|(key, entry)| document_summary(key, entry)).collect())
    }

    fn chunk_texts(&self, chunks: &[ChunkPosition]) -> Result<Vec<ChunkText>, StoreError> {
        let content = self.content();
        let text = |(key, position): &ChunkPosition| {
            let document = &content.documents.get(key)?.document;
            let span = document.chunks.get(usize::try_from(*position).ok()?)?;
            Some(ChunkText { heading: span.heading.clone(), text: span.of(&document.body).to_owned() })
        };
        Ok(chunks.iter().map(|place| text(place).unwrap_or_default()).collect())
    }

    fn documents_within(
        &self,
        filters: &Filters,
        sources: Option<&BTreeSet<String>>,
    ) -> Result<DocumentSet, StoreError> {
        let mut set = DocumentSet::default();
        for (key, entry) in &self.content().documents {
            let DocumentEntry { document, .. } = entry;
            let tags = entry.tags();
            let is_within = sources.is_none_or(|sources| sources.contains(&document.source))
                && filters.allows_source(&document.source)
                && filters.tags.iter().all(|tag| tags.contains(tag))
                && filters.since.is_none_or(|since| document.updated_at >= since)
                && filters.until.is_none_or(|until| document.updated_at <= until);
            if is_within {
                set.insert(*key);
            }
        }
        Ok(set)
    }

    fn sources(&self) -> Result<BTreeMap<String, SourceRecord>, StoreError> {
        Ok(self.content().sources.clone())
    }

    fn sources_with_documents(&self) -> Result<BTreeSet<String>, StoreError> {
        Ok(self.content().documents.values().map(|entry| entry.document.source.clone()).collect())
    }

    fn counts(&self) -> Result<BTreeMap<String, SourceCounts>, StoreError> {
        Ok(self.content().counts.clone())
    }

    fn finish_sync(&self, source: &SourceName, outcome: &SyncOutcome) -> Result<(), StoreError> {
        let mut content = self.content();
        let record = content.sources.entry(source.to_string()).or_default();
        if let Some(cursor) = &outcome.cursor {
            record.cursor = cursor.clone();
        }
        if outcome.error.is_none() {
            record.synced_at = Some(now());
        }
        record.error = outcome.error.clone();
        record.warnings = outcome.warnings;
        Ok(())
    }

    fn forget_source(&self, source: &SourceName) -> Result<(), StoreError> {
        self.content().sources.remove(&source.to_string());
        Ok(())
    }

    fn forget_old_deletions(&self, keep: usize) -> Result<(), StoreError> {
        let mut content = self.content();
        while content.deletions.len() > keep {
            let Some((generation, _)) = content.deletions.pop_first() else { break };
            content.forgotten = generation;
        }
        Ok(())
    }
}

impl StoreContent {
    fn apply(&mut self, mutation: &Mutation) -> Option<Generation> {
        match mutation {
            Mutation::Put(document) => Some(self.put(document)),
            Mutation::Refresh { id, source, source_id, fingerprint, note } => {
                let key = self.key_of(*id);
                if let Some(entry) = key.and_then(|key| self.documents.get_mut(&key)) {
                    entry.document.fingerprint.clone_from(fingerprint);
                    entry.read_at = now();
                }
                let file = FileRef { id: *id, source: &source.to_string(), source_id };
                self.replace_skip_note(file, fingerprint.as_deref(), note.as_deref());
                None
            }
            Mutation::SkipEmpty { id, source, source_id, fingerprint } => {
                let deleted = self.delete(*id);
                self.add_skip_note(
                    FileRef { id: *id, source: &source.to_string(), source_id },
                    fingerprint,
                    None,
                );
                deleted
            }
            Mutation::SkipUnreadable { id, source, source_id, fingerprint, reason } => {
                self.add_skip_note(
                    FileRef { id: *id, source: &source.to_string(), source_id },
                    fingerprint,
                    Some(reason),
                );
                None
            }
            Mutation::Delete(id) => self.delete(*id),
        }
    }

    fn put(&mut self, document: &NewDocument) -> Generation {
        let generation = self.next_generation();
        let known = self.key_of(document.id);
        let key = known.unwrap_or(self.last_key + 1);
        self.last_key = self.last_key.max(key);
        let before = self.documents.remove(&key);
        let mut document = document.clone();
        let mut unreadable = Vec::new();
        self.add_counts(&document);
        if let Some(before) = before {
            self.subtract_counts(&before.document);
            document.created_at = before.document.created_at;
            unreadable = before.unreadable;
        }
        let (vectors, note) = (std::mem::take(&mut document.vectors), document.note.clone());
        let file = FileRef { id: document.id, source: &document.source, source_id: &document.source_id };
        self.replace_skip_note(file, document.fingerprint.as_deref(), note.as_deref());
        self.documents
            .insert(key, DocumentEntry { document, generation, read_at: now(), embedded: 0, unreadable });
        self.replace_vectors(key, &vectors);
        generation
    }

    fn delete(&mut self, id: DocumentId) -> Option<Generation> {
        self.skipped.remove(&id);
        let key = self.key_of(id)?;
        if let Some(entry) = self.documents.remove(&key) {
            self.subtract_counts(&entry.document);
        }
        self.vectors.retain(|_, vector| vector.document != key);
        let generation = self.next_generation();
        self.deletions.insert(generation.0, (key, id));
        Some(generation)
    }

    fn add_counts(&mut self, document: &NewDocument) {
        let (counts, part) =
            (self.counts.entry(document.source.clone()).or_default(), SourceCounts::of(document));
        counts.documents += part.documents;
        counts.chunks += part.chunks;
        counts.bytes += part.bytes;
    }

    fn subtract_counts(&mut self, document: &NewDocument) {
        let Some(counts) = self.counts.get_mut(&document.source) else { return };
        let part = SourceCounts::of(document);
        counts.documents = counts.documents.saturating_sub(part.documents);
        counts.chunks = counts.chunks.saturating_sub(part.chunks);
        counts.bytes = counts.bytes.saturating_sub(part.bytes);
        if counts.documents == 0 {
            self.counts.remove(&document.source);
        }
    }

    /// The counters as they must be.
    pub(super) fn recount(&self) -> BTreeMap<String, SourceCounts> {
        let mut recounted = Self::default();
        self.documents.values().for_each(|entry| recounted.add_counts(&entry.document));
        recounted.counts
    }

    fn replace_skip_note(&mut self, file: FileRef<'_>, fingerprint: Option<&str>, note: Option<&str>) {
        self.skipped.remove(&file.id);
        if let (Some(fingerprint), Some(note)) = (fingerprint, note) {
            self.add_skip_note(file, fingerprint, Some(note));
        }
    }

    fn add_skip_note(&mut self, file: FileRef<'_>, fingerprint: &str, reason: Option<&str>) {
        let (fingerprint, reason) = (fingerprint.to_owned(), reason.map(str::to_owned));
        let skipped = SkippedFile {
            source: file.source.to_owned(),
            source_id: file.source_id.to_owned(),
            note: SkipNote { fingerprint, reason, is_named: true },
            read_at: now(),
        };
        self.skipped.insert(file.id, skipped);
    }

    fn stored_file(&self, entry: &DocumentEntry) -> SourceFile {
        let document = &entry.document;
        let skipped = self.skipped.get(&document.id);
        let note = skipped.map(|skipped| (skipped.note.fingerprint.as_str(), skipped.note.reason.clone()));
        SourceFile {
            id: document.id,
            source_id: Some(document.source_id.clone()),
            read_at: Some(skipped.map_or(entry.read_at, |skipped| skipped.read_at)),
            state: FileState::for_stored(document.fingerprint.as_deref(), note),
        }
    }
}

/// The file that a skip note is about.
struct FileRef<'a> {
    id: DocumentId,
    source: &'a str,
    source_id: &'a str,
}

fn skipped_file(id: DocumentId, skipped: &SkippedFile) -> SourceFile {
    SourceFile {
        id,
        source_id: Some(skipped.source_id.clone()),
        read_at: Some(skipped.read_at),
        state: FileState::for_skipped(skipped.note.reason.clone()),
    }
}

/// The current time, in whole milliseconds as in SQLite.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

fn stored_document(entry: &DocumentEntry) -> StoredDocument {
    let document = &entry.document;
    let chunks = document.chunks.iter().enumerate();
    StoredDocument {
        id: document.id,
        source: document.source.clone(),
        source_id: document.source_id.clone(),
        source_url: document.source_url.clone(),
        title: document.title.clone(),
        author: document.author.clone(),
        created_at: document.created_at,
        updated_at: document.updated_at,
        content_type: document.content_type.clone(),
        body: document.body.clone(),
        metadata: serde_json::from_str(&document.metadata).unwrap_or_default(),
        chunks: chunks
            .map(|(index, span)| Chunk { index, text: span.of(&document.body).to_owned() })
            .collect(),
        tags: entry.tags(),
    }
}

fn document_summary(key: DocumentKey, entry: &DocumentEntry) -> DocumentSummary {
    let document = &entry.document;
    DocumentSummary {
        key,
        id: document.id,
        source: document.source.clone(),
        source_id: document.source_id.clone(),
        source_url: document.source_url.clone(),
        title: document.title.clone(),
        updated_at: document.updated_at,
        sketch: Some(document.sketch.clone()),
    }
}

fn document_name(entry: &DocumentEntry) -> DocumentName {
    DocumentName {
        id: entry.document.id,
        source: entry.document.source.clone(),
        source_id: entry.document.source_id.clone(),
        source_url: entry.document.source_url.clone(),
    }
}

fn name_key(name: &DocumentName) -> (&str, &str) {
    (&name.source, &name.source_id)
}
