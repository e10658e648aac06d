//! A sync that crashes at any operation of its store costs nothing but time: the next one ends where an undisturbed one
//! does, on every backend.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::{
    CrashPoint, CrashingStore, Workspace, delete, document_at, notes, query, source_name, time, try_sync,
    upsert,
};
use async_trait::async_trait;
use ctx_core::{Change, Connector, Cursor, Listing, PullResult, Sink, SourceError};
use ctx_knowledge::{Knowledge, SearchMode, SearchQuery, StoredDocument, SyncError, SyncOptions};
use ctx_store::{
    ChunkPosition, DocumentStamp, MemoryStore, SourceCounts, SourceFile, SourceRecord, SqliteStore, Store,
};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Sequences of crashes that are tried on each backend.
const SEEDS: u64 = 24;
/// At most this many crashes one after the other.
const CRASHES_MAX: u64 = 3;
/// Files before the first sync, and names that files may have.
const FILES: u64 = 10;
const NAMES: u64 = 14;
/// Changes between two syncs.
const CHANGES: u64 = 6;
const WORDS: [&str; 8] = ["harbour", "anchor", "lighthouse", "chain", "pilot", "tide", "cargo", "buoy"];
/// A source whose pulls continue at its cursor.
const FEED: &str = "script:feed";
const MODEL: &str = "fast";

/// Deterministic pseudo-random numbers (xorshift).
struct SeededRandom(u64);

impl SeededRandom {
    fn new(seed: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ (seed + 1).wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }

    fn text(&mut self) -> String {
        let words: Vec<&str> = (0..12).map(|_| WORDS[self.below(8) as usize]).collect();
        format!("# Note {}\n\n{}\n\n{}\n", self.below(100), words.join(" "), self.below(1_000_000))
    }
}

/// A source that reports its changes since the cursor.
#[derive(Default)]
struct FeedConnector(Mutex<Vec<Change>>);

#[async_trait]
impl Connector for FeedConnector {
    async fn pull(&self, cursor: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError> {
        let seen: usize = cursor.map_or(0, |cursor| cursor.0.parse().unwrap());
        let all = self.0.lock().unwrap().clone();
        for change in all[seen..].iter().cloned() {
            sink.send(change).await?;
        }
        Ok(PullResult { cursor: Some(Cursor(all.len().to_string())), listing: Listing::Partial })
    }

    async fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }
}

/// The contents of a store that must be equal in two stores with the same documents.
#[derive(Debug, PartialEq)]
struct StoreContents {
    documents: Vec<StoredDocument>,
    stamps: Vec<DocumentStamp>,
    vectors: Vec<Vec<Option<Vec<u8>>>>,
    /// All vectors, all chunks, documents with pending vectors.
    coverage: (u64, u64, u64),
    counts: BTreeMap<String, SourceCounts>,
    sources: BTreeMap<String, SourceRecord>,
    files: Vec<SourceFile>,
}

/// Reads the contents. Leaves out what depends on the time of reading: when a document was first seen, when a sync
/// ended.
fn contents(knowledge: &Knowledge, store: &dyn Store) -> StoreContents {
    let names = store.names(None, 1_000).unwrap();
    let keys: BTreeMap<_, _> =
        store.list(0, 1_000).unwrap().into_iter().map(|one| (one.id, one.key)).collect();
    let model = store.model(&knowledge.stats().unwrap().vectors.unwrap().model).unwrap().unwrap();
    let (mut documents, mut vectors) = (Vec::new(), Vec::new());
    for name in &names {
        let document = store.document(name.id).unwrap().unwrap();
        let places: Vec<ChunkPosition> =
            document.chunks.iter().map(|chunk| (keys[&name.id], chunk.index as u64)).collect();
        vectors.push(store.exact_chunk_vectors(model, &places).unwrap());
        documents.push(StoredDocument { created_at: Timestamp::UNIX_EPOCH, ..document });
    }
    assert_eq!(keys.len(), names.len());
    let mut files: Vec<SourceFile> =
        [notes(), source_name(FEED)].iter().flat_map(|of| store.files(of, None, 1_000).unwrap()).collect();
    assert!(files.iter_mut().all(|file| file.read_at.take().is_some()));
    let known: Vec<_> = files.iter().map(|file| file.id).collect();
    let coverage = store.coverage(model).unwrap();
    let mut sources = store.sources().unwrap();
    for record in sources.values_mut() {
        assert!(record.synced_at.take().is_some());
    }
    StoreContents {
        documents,
        stamps: store.stamps(&known).unwrap(),
        vectors,
        coverage: (coverage.vectors, coverage.chunks, coverage.pending_documents),
        counts: store.counts().unwrap(),
        sources,
        files,
    }
}

/// Search hits, with scores of semantic ones only: keyword scores depend on what was in the index before.
fn answers(knowledge: &Knowledge) -> Vec<(String, Option<u64>)> {
    let mut answers = Vec::new();
    for text in WORDS {
        for mode in [SearchMode::Keyword, SearchMode::Semantic] {
            let query = SearchQuery { mode: Some(mode), limit: 100, ..query(text) };
            let mut hits: Vec<(String, Option<u64>)> = knowledge
                .search(&query)
                .unwrap()
                .into_iter()
                .map(|hit| {
                    let score = (mode == SearchMode::Semantic).then(|| hit.score.to_bits());
                    (format!("{text} {mode:?} {}:{} {}", hit.source, hit.source_id, hit.snippet), score)
                })
                .collect();
            hits.sort();
            answers.extend(hits);
        }
    }
    answers
}

/// A workspace with files of all kinds, and a feed.
struct Scenario {
    random: SeededRandom,
    workspace: Workspace,
    feed: Arc<FeedConnector>,
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let feed = Arc::new(FeedConnector::default());
        let workspace = Workspace::new().embedding(MODEL).source(FEED, &feed);
        let mut scenario = Self { random: SeededRandom::new(seed), workspace, feed };
        (0..FILES).for_each(|number| scenario.write(number));
        scenario
    }

    /// Writes a file with text, without text, or damaged; and reports a document in the feed.
    fn write(&mut self, number: u64) {
        let text = self.random.text();
        match (number % 5, self.random.below(6)) {
            (0, _) => self.workspace.write(&format!("damaged-{number}.pdf"), format!("%PDF-1.7\n{text}")),
            (1, 0) => self.workspace.write(&format!("note-{number}.md"), "\u{0}\u{1}picture"),
            (2, 0) => self.workspace.write(&format!("note-{number}.md"), ""),
            _ => self.workspace.write(&format!("note-{number}.md"), &text),
        }
        let updated_at = time("2026-01-01T12:00:00Z");
        // Another text: of near-duplicates, only one is in the results.
        let entry = document_at(&format!("entry-{}", number % 4), &self.random.text(), updated_at);
        self.feed.0.lock().unwrap().push(upsert(entry));
    }

    /// Adds, changes and deletes a few files.
    fn change(&mut self) {
        for _ in 0..CHANGES {
            let number = self.random.below(NAMES);
            if self.random.below(3) == 0 {
                for name in [format!("note-{number}.md"), format!("damaged-{number}.pdf")] {
                    // Whether it existed or not.
                    fs::remove_file(self.workspace.path(&name)).ok();
                }
                let deletion = delete(&format!("entry-{}", number % 4));
                self.feed.0.lock().unwrap().push(deletion);
            } else {
                self.write(number);
            }
        }
    }

    /// Syncs all sources into a store.
    async fn sync(&self, store: Arc<dyn Store>) -> Result<Knowledge, SyncError> {
        let knowledge = self.workspace.try_open_on(store)?;
        for source in [notes(), source_name(FEED)] {
            try_sync(&knowledge, &source, SyncOptions::default()).await?;
        }
        Ok(knowledge)
    }

    /// Syncs with crashes, and compares the result with a store that was synced once; returns how many syncs crashed.
    /// `open` opens the store with a name, always the same one for a name.
    async fn check(mut self, operations: usize, open: &dyn Fn(&Path, &str) -> Arc<dyn Store>) -> usize {
        let folder = self.workspace.beside("stores");
        let open = |name: &str| open(&folder, name);
        let mut crashes = 0;
        if self.random.below(2) == 0 {
            self.sync(open("crashed")).await.unwrap();
        }
        for _ in 0..=self.random.below(CRASHES_MAX) {
            self.change();
            let at = 1 + self.random.below(operations as u64) as usize;
            let crash = CrashPoint { operation: at, takes_effect: self.random.below(2) == 0 };
            let store = CrashingStore::crashing(open("crashed"), crash);
            let synced = self.sync(store.clone()).await;
            assert!(synced.is_ok() || store.has_crashed(), "{:?}", synced.err());
            crashes += usize::from(store.has_crashed());
            drop((synced, store));
            // A search right after the crash succeeds.
            answers(&self.workspace.open_on(open("crashed")));
        }
        let disturbed = self.sync(open("crashed")).await.unwrap();
        let left = (contents(&disturbed, &*open("crashed")), answers(&disturbed));
        assert!(open("crashed").problems().unwrap().is_empty());
        drop(disturbed);
        fs::remove_dir_all(self.workspace.data()).unwrap();
        let undisturbed = self.sync(open("fresh")).await.unwrap();
        let expected = (contents(&undisturbed, &*open("fresh")), answers(&undisturbed));
        assert!(left == expected, "left: {left:#?}\nexpected: {expected:#?}");
        crashes
    }
}

async fn check_backend(open: &dyn Fn(u64, &Path, &str) -> Arc<dyn Store>) {
    let scenario = Scenario::new(SEEDS);
    let store = CrashingStore::counting(Arc::new(MemoryStore::default()));
    scenario.sync(store.clone()).await.unwrap();
    let operations = store.operations();
    let mut crashes = 0;
    for seed in 0..SEEDS {
        crashes += Scenario::new(seed).check(operations, &|folder, name| open(seed, folder, name)).await;
    }
    assert!(crashes as u64 >= SEEDS, "{crashes} crashes: too few to prove anything");
}

#[tokio::test]
async fn a_sync_into_memory_that_crashes_at_any_operation_ends_where_an_undisturbed_one_does() {
    let stores: Mutex<BTreeMap<(u64, String), MemoryStore>> = Mutex::default();
    check_backend(&|seed, _, name| {
        let mut stores = stores.lock().unwrap();
        Arc::new(stores.entry((seed, name.to_owned())).or_default().clone())
    })
    .await;
}

#[tokio::test]
async fn a_sync_into_sqlite_that_crashes_at_any_operation_ends_where_an_undisturbed_one_does() {
    check_backend(&|_, folder, name| {
        Arc::new(SqliteStore::open(&folder.join(format!("{name}.sqlite"))).unwrap())
    })
    .await;
}
