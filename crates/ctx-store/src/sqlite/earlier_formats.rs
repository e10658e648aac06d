//! Tests with stores of every earlier format: each opens, migrates and keeps its content.

use super::SqliteStore;
use super::schema::MIGRATIONS;
use crate::changes::{ChangeCursor, ChangeFeed, ChangeScope, Generation};
use crate::contract::samples::{document, source};
use crate::documents::{DocumentStore, Mutation, SourceCounts};
use crate::files::FileState;
use crate::fixtures;
use crate::store::Store;
use crate::vectors::VectorStore;
use ctx_core::SourceName;
use jiff::Timestamp;
use uuid::Uuid;

const BODY: &str = "# Deploy\nPush the button.\n\n## Roll back\nPull the lever.\n";

fn id(text: &str) -> Uuid {
    text.parse().unwrap()
}

/// Checks a store that was migrated from this format.
fn check(store: &SqliteStore, format: usize) {
    assert_eq!(store.identity().id, id("cb5af186-1c4a-4c0c-aada-30a0a41eeb2c"));
    assert!(store.writable() && store.problems().unwrap().is_empty());
    let docs = SourceName::new("filesystem", "docs");
    let deploy = id("68f59417-ad83-5f8e-8f26-775ff877d6b3");
    let [empty, damaged, picture] = [
        "2c3bfa40-0264-5d85-b22a-67ccb15c5715",
        "72184c29-4fd3-5973-bdad-113ec5857b64",
        "a286017c-ef28-5df6-ac7c-13f7c4dc733e",
    ]
    .map(id);

    let stored = store.document(deploy).unwrap().unwrap();
    assert_eq!((stored.body.as_str(), stored.source_id.as_str()), (BODY, "deploy.md"));
    assert_eq!((stored.title.as_deref(), stored.content_type.as_str()), (Some("Deploy"), "text/markdown"));
    assert_eq!(stored.updated_at, "2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap());
    let chunks: Vec<&str> = stored.chunks.iter().map(|chunk| chunk.text.as_str()).collect();
    assert_eq!(chunks, ["# Deploy\nPush the button.\n", "## Roll back\nPull the lever.\n"]);
    let headings: Vec<String> =
        store.chunk_texts(&[(1, 0), (1, 1)]).unwrap().into_iter().map(|chunk| chunk.heading).collect();
    assert_eq!(headings, ["Deploy", "Deploy › Roll back"]);
    let counts = SourceCounts { documents: 1, chunks: 2, bytes: BODY.len() as u64 };
    assert_eq!(store.counts().unwrap()["filesystem:docs"], counts);

    let record = store.sources().unwrap().remove("filesystem:docs").unwrap();
    assert_eq!((record.cursor, record.error, record.warnings), (None, None, 1));
    assert_eq!(record.synced_at, Timestamp::from_millisecond(1_795_034_021_719).ok());
    let stamps = store.stamps(&[deploy, empty, damaged]).unwrap();
    assert!(stamps[0].stored.as_ref().is_some_and(|stamp| stamp.fingerprint.is_some()));
    assert!(stamps[1..].iter().all(|stamp| stamp.stored.is_none() && stamp.skipped.is_some()));
    // Reasons were added in format 3, names in format 5.
    let reason = "it is damaged: failed parsing cross reference table".to_owned();
    let damage = match format {
        ..3 => FileState::Empty,
        _ => FileState::Unreadable { reason, has_earlier_text: false },
    };
    let files = store.files(&docs, None, 9).unwrap();
    assert!(files.iter().all(|file| file.read_at.is_none()));
    let files: Vec<_> =
        files.into_iter().map(|file| (file.source_id.unwrap_or_default(), file.id, file.state)).collect();
    let nameless = String::new;
    let expected = [
        ("deploy.md".to_owned(), deploy, FileState::Indexed),
        (nameless(), empty, FileState::Empty),
        (nameless(), damaged, damage),
        (nameless(), picture, FileState::Empty),
    ];
    assert_eq!(files, expected);

    // Vectors were added in format 2, rejected chunks in format 3.
    let own = store.model("builtin-fast-1").unwrap();
    assert_eq!(own.is_some(), format >= 2);
    if let Some(own) = own {
        assert_eq!((store.dimensions(own).unwrap(), store.coverage(own).unwrap().vectors), (Some(8), 2));
        let exact = store.exact_chunk_vectors(own, &[(1, 0), (1, 1)]).unwrap();
        assert!(exact.iter().all(|half| half.as_ref().is_some_and(|half| half.len() == 16)));
        let page = store.changes(ChangeCursor::START, ChangeScope::Vectors(own), 9).unwrap().unwrap();
        let codes: Vec<u8> = page.vectors.rows().map(|row| row.codes[0]).collect();
        assert_eq!((codes, page.live_vectors), (vec![0xc4, 0x40], 2));
        assert_eq!(store.unreadable(own, 9).unwrap().0, u64::from(format >= 3));
    }

    assert_eq!(store.generation().unwrap(), Generation(3));
    let page = store.changes(ChangeCursor::START, ChangeScope::Documents, 9).unwrap().unwrap();
    assert_eq!((page.written.len(), page.written[0].body.as_str(), page.deleted), (1, BODY, vec![2]));
}

#[test]
fn stores_of_every_earlier_format_open_migrate_and_keep_what_is_in_them() {
    for format in 1..MIGRATIONS.len() {
        let (_folder, path) = fixtures::load("store", &MIGRATIONS[..format]);
        check(&SqliteStore::open(&path).unwrap(), format);
        let store = SqliteStore::open(&path).unwrap();
        check(&store, format);
        store.apply(&[Mutation::Put(Box::new(document(1, "new", "one\n")))]).unwrap();
        let keys: Vec<u64> = store.list(0, 9).unwrap().iter().map(|one| one.key).collect();
        assert_eq!(keys, [1, 3], "the key of a document that was deleted is not used again");
        assert_eq!(store.files(&source(1), None, 9).unwrap().len(), 1);
    }
}
