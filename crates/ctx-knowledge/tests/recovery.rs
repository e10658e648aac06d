//! Recovery from damage, crashes, restored backups, and other processes.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::{
    self, JIRA, ScriptedConnector, Workspace, copy_folder, document, hit_names, stored_names, sync,
    sync_source,
};
use ctx_knowledge::{Knowledge, StoreError};
use jiff::Timestamp;
use std::fs;

/// Turns the bytes of a sound file into those of a damaged one.
type Damage = fn(&[u8]) -> Vec<u8>;

const DAMAGES: [Damage; 3] = [half, |bytes| noise(bytes.len()), |_| Vec::new()];

/// Files whose sync leaves an index of several segments with deletions in them.
async fn synced() -> Workspace {
    let workspace = Workspace::new().file("a.md", "harbour").file("b.md", "anchor").file("c.md", "ship");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    workspace.write("b.md", "lighthouse");
    workspace.remove("c.md");
    sync(&knowledge).await;
    workspace
}

/// The results that a search of [`synced`] must have, whatever happened to its index.
#[track_caller]
fn assert_right_answers(knowledge: &Knowledge, after: &str) {
    for (text, expected) in [("harbour", vec!["a.md"]), ("lighthouse", vec!["b.md"]), ("anchor ship", vec![])]
    {
        assert_eq!(hit_names(knowledge, text), expected, "{text} after {after}");
    }
}

/// Deterministic pseudo-random bytes (xorshift).
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn half(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len() / 2].to_vec()
}

/// Flips a bit in the middle of a segment's file, before its footer.
fn one_bit_flipped(bytes: &[u8]) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    if let Some((rest, [a, b, c, d, _, _, _, _])) = bytes.split_last_chunk::<8>() {
        let footer_length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        flipped[rest.len().saturating_sub(footer_length) / 2] ^= 0x10;
    }
    flipped
}

/// Copies the data, damages each file of the index in turn, and passes on what was opened after the damage. Nothing
/// is open while a file is damaged: its pages would be gone from memory.
async fn after_damage(damage: Damage, check: impl Fn(Knowledge, &str, &Workspace)) {
    let workspace = synced().await;
    let whole = workspace.beside("whole");
    copy_folder(&workspace.data(), &whole);
    let files: Vec<String> = workspace.index_files().into_keys().collect();
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        copy_folder(&whole, &workspace.data());
        let path = workspace.index_folder().unwrap().join(&file);
        fs::write(&path, damage(&fs::read(&path).unwrap())).unwrap();
        check(workspace.open(), &file, &workspace);
    }
}

#[tokio::test]
async fn a_search_survives_an_index_file_that_is_cut_overwritten_or_emptied() {
    for damage in DAMAGES {
        after_damage(damage, |knowledge, file, _| assert_right_answers(&knowledge, file)).await;
    }
}

#[tokio::test]
async fn a_check_repairs_an_index_file_that_is_cut_overwritten_or_emptied() {
    for damage in DAMAGES {
        after_damage(damage, |knowledge, file, workspace| {
            let health = knowledge.check().unwrap();
            let is_lock = file.ends_with(".lock");
            assert_eq!(health.keyword_index_problem.is_some(), !is_lock, "{file}: {health:?}");
            assert_eq!((health.store_problems.len(), health.writable), (0, true));
            assert_right_answers(&knowledge, file);
            drop(knowledge);
            let again = workspace.open();
            assert_eq!(again.check().unwrap().keyword_index_problem, None, "{file}");
            assert_right_answers(&again, file);
        })
        .await;
    }
}

#[tokio::test]
async fn a_check_finds_a_single_flipped_bit() {
    after_damage(one_bit_flipped, |knowledge, file, _| {
        // The other files have no checksum, and are text that either parses or does not.
        let is_segment = !file.ends_with(".json") && !file.ends_with(".lock");
        if is_segment {
            let problem = knowledge.check().unwrap().keyword_index_problem.unwrap_or_default();
            assert!(problem.ends_with("; it was rebuilt"), "{file}: {problem}");
            assert_right_answers(&knowledge, file);
        }
    })
    .await;
}

#[tokio::test]
async fn a_sound_store_and_index_have_no_problems() {
    let workspace = synced().await;
    let health = workspace.open().check().unwrap();
    let expected =
        ctx_knowledge::Health { store_problems: Vec::new(), writable: true, keyword_index_problem: None };
    assert_eq!(health, expected);
}

#[tokio::test]
async fn an_index_that_was_deleted_is_built_again() {
    let workspace = synced().await;
    fs::remove_dir_all(workspace.index_folder().unwrap()).unwrap();
    let knowledge = workspace.open();
    knowledge.catch_up().unwrap();
    assert_right_answers(&knowledge, "tending");
}

#[tokio::test]
async fn an_index_that_is_deleted_while_open_still_answers_and_catches_up() {
    let workspace = synced().await;
    let knowledge = workspace.open();
    assert_right_answers(&knowledge, "opening");
    fs::remove_dir_all(workspace.index_folder().unwrap()).unwrap();
    assert_right_answers(&knowledge, "deleting the index");
    workspace.write("d.md", "compass");
    sync(&knowledge).await;
    assert_eq!(hit_names(&knowledge, "compass"), ["d.md"]);
    assert_right_answers(&knowledge, "the next sync");
    assert_right_answers(&workspace.open(), "opening again");
}

#[tokio::test]
async fn the_index_of_another_store_is_rebuilt() {
    let (workspace, other) = (synced().await, Workspace::new());
    other.write("z.md", "harbour of another store");
    (0..9).for_each(|n| other.write(&format!("{n}.md"), "lighthouse"));
    sync(&other.open()).await;
    copy_folder(&other.index_folder().unwrap(), &workspace.index_folder().unwrap());

    let knowledge = workspace.open();
    knowledge.catch_up().unwrap();
    assert_right_answers(&knowledge, "tending");
    drop(knowledge);
    copy_folder(&other.index_folder().unwrap(), &workspace.index_folder().unwrap());
    workspace.write("d.md", "compass");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    assert_eq!(hit_names(&knowledge, "compass"), ["d.md"]);
    assert_right_answers(&knowledge, "a sync");
}

#[tokio::test]
async fn documents_stored_before_a_crash_and_not_yet_indexed_are_found_after_tending() {
    let workspace = synced().await;
    let index = workspace.index_folder().unwrap();
    copy_folder(&index, &workspace.beside("index"));
    workspace.write("d.md", "compass");
    workspace.write("a.md", "beacon");
    workspace.remove("b.md");
    sync(&workspace.open()).await;
    // As if the process had ended before the index was written.
    copy_folder(&workspace.beside("index"), &index);

    let knowledge = workspace.open();
    assert_eq!(hit_names(&knowledge, "compass"), Vec::<String>::new());
    knowledge.catch_up().unwrap();
    assert_eq!(hit_names(&knowledge, "compass"), ["d.md"]);
    assert_eq!(hit_names(&knowledge, "beacon"), ["a.md"]);
    assert_eq!(hit_names(&knowledge, "harbour lighthouse"), Vec::<String>::new());
}

#[tokio::test]
async fn a_half_written_commit_does_not_break_the_index() {
    let workspace = synced().await;
    let folder = workspace.index_folder().unwrap();
    for ending in ["idx", "term", "store", "pos", "fast", "fieldnorm"] {
        fs::write(folder.join(format!("0123456789abcdef0123456789abcdef.{ending}")), noise(100)).unwrap();
    }
    let knowledge = workspace.open();
    assert_right_answers(&knowledge, "the crash");
    workspace.write("d.md", "compass");
    sync(&knowledge).await;
    assert_eq!(hit_names(&knowledge, "compass"), ["d.md"]);
    assert_right_answers(&knowledge, "a sync");
}

#[tokio::test]
async fn a_store_restored_from_an_older_copy_answers_as_it_did() {
    let workspace = synced().await;
    fs::copy(workspace.store_path(), workspace.beside("copy")).unwrap();
    workspace.write("d.md", "compass");
    workspace.write("a.md", "beacon");
    workspace.remove("b.md");
    sync(&workspace.open()).await;
    restore(&workspace);

    let knowledge = workspace.open();
    knowledge.catch_up().unwrap();
    assert_right_answers(&knowledge, "restoring");
    assert_eq!(hit_names(&knowledge, "compass beacon"), Vec::<String>::new());
    sync(&knowledge).await;
    assert_eq!(hit_names(&knowledge, "compass"), ["d.md"]);
    assert_eq!(hit_names(&knowledge, "beacon"), ["a.md"]);
    assert_eq!(hit_names(&knowledge, "harbour lighthouse"), Vec::<String>::new());
}

/// Restores the copy of the store, and nothing else.
fn restore(workspace: &Workspace) {
    fs::copy(workspace.beside("copy"), workspace.store_path()).unwrap();
    for ending in ["sqlite-wal", "sqlite-shm"] {
        assert!(!workspace.store_path().with_extension(ending).exists(), "the store was closed");
    }
}

#[test]
fn a_store_that_is_garbage_says_so_and_is_left_alone() {
    let workspace = Workspace::new();
    fs::create_dir(workspace.data()).unwrap();
    fs::write(workspace.store_path(), noise(10_000)).unwrap();
    let error = workspace.try_open().err().unwrap();
    let expected =
        format!("the store {} is damaged: file is not a database", workspace.store_path().display());
    assert!(matches!(&error, StoreError::Corrupt { .. }), "{error:?}");
    assert_eq!(error.to_string(), expected);
    assert_eq!(fs::read(workspace.store_path()).unwrap(), noise(10_000));
}

#[tokio::test]
async fn a_store_with_a_torn_page_is_an_error_or_a_problem_and_never_a_panic() {
    let workspace = Workspace::new();
    (0..200).for_each(|n| workspace.write(&format!("{n}.md"), format!("harbour {n} ").repeat(50)));
    sync(&workspace.open()).await;
    let whole = fs::read(workspace.store_path()).unwrap();
    for page in 1..whole.len() / 4096 {
        let mut torn = whole.clone();
        torn[page * 4096..(page + 1) * 4096].copy_from_slice(&noise(4096));
        fs::write(workspace.store_path(), torn).unwrap();
        match workspace.try_open() {
            Err(error) => assert!(matches!(error, StoreError::Corrupt { .. }), "page {page}: {error:?}"),
            Ok(knowledge) => {
                let _any = (knowledge.search(&common::query("harbour")), knowledge.stats(), knowledge.ids());
                match knowledge.check() {
                    Ok(health) => assert!(!health.store_problems.is_empty(), "page {page}"),
                    Err(error) => {
                        assert!(matches!(error, StoreError::Corrupt { .. }), "page {page}: {error:?}")
                    }
                }
            }
        }
    }
}

#[test]
fn a_store_of_a_newer_version_is_not_touched() {
    let workspace = Workspace::new();
    drop(workspace.open());
    let store = ctx_store::RawConnection::open(&workspace.store_path()).unwrap();
    store.execute("PRAGMA user_version = 99").unwrap();
    let error = workspace.try_open().err().unwrap();
    assert!(matches!(&error, StoreError::Newer { found: 99, known: ..99, .. }), "{error:?}");
}

#[tokio::test]
async fn stored_times_of_a_wrong_clock_do_not_stop_a_sync() {
    let workspace = synced().await;
    let store = ctx_store::RawConnection::open(&workspace.store_path()).unwrap();
    for wrong in [i64::MIN, -1, 0, 32_503_680_000_000, i64::MAX] {
        store.execute(&format!("UPDATE sources SET synced_at = {wrong}")).unwrap();
        store.execute(&format!("UPDATE documents SET created_at = {wrong}, updated_at = {wrong}")).unwrap();
        let knowledge = workspace.open();
        assert!(knowledge.sources().await.unwrap()[0].healthy, "{wrong}");
        assert_right_answers(&knowledge, &wrong.to_string());
        workspace.write("d.md", format!("compass {wrong}"));
        sync(&knowledge).await;
        let age = Timestamp::now().duration_since(knowledge.last_sync(&common::notes()).unwrap().unwrap());
        assert!(!age.is_negative() && age.as_hours() == 0, "{wrong}: {age}");
        assert_eq!(hit_names(&knowledge, "compass"), ["d.md"], "{wrong}");
    }
}

#[tokio::test]
async fn what_one_process_syncs_another_finds() {
    let workspace = synced().await;
    let (one, other) = (workspace.open(), workspace.open());
    assert_right_answers(&other, "opening");
    workspace.write("d.md", "compass");
    workspace.write("a.md", "beacon");
    workspace.remove("b.md");
    sync(&one).await;
    assert_eq!(hit_names(&other, "compass"), ["d.md"]);
    assert_eq!(hit_names(&other, "beacon"), ["a.md"]);
    assert_eq!(hit_names(&other, "harbour lighthouse"), Vec::<String>::new());
    assert_eq!(stored_names(&other), ["a.md", "d.md"]);
}

#[test]
fn a_new_store_may_be_opened_by_many_at_once() {
    let workspace = Workspace::new();
    std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8).map(|_| scope.spawn(|| workspace.try_open().map(drop))).collect();
        for opened in opening {
            opened.join().unwrap().unwrap();
        }
    });
    assert_eq!(stored_names(&workspace.open()), Vec::<String>::new());
}

#[tokio::test]
async fn two_processes_that_sync_at_once_lose_nothing() {
    let documents = |prefix: &str| {
        let prefix = prefix.to_owned();
        ScriptedConnector::with(
            (0..400).map(move |n| document(&format!("{prefix}{n}"), &format!("{prefix} word{n}"))),
        )
    };
    let [jira, wiki] = [documents("j"), documents("w")];
    let workspace = Workspace::new().source(JIRA, &jira).source("script:wiki", &wiki);
    let (one, other) = (workspace.open(), workspace.open());
    let (first, second) = tokio::join!(sync_source(&one, JIRA), sync_source(&other, "script:wiki"));
    assert_eq!((first.unwrap().added, second.unwrap().added), (400, 400));
    for knowledge in [&one, &other, &workspace.open()] {
        for n in [0, 199, 256, 399] {
            let mut names = hit_names(knowledge, &format!("word{n}"));
            names.sort();
            assert_eq!(names, [format!("j{n}"), format!("w{n}")]);
        }
    }
}

#[tokio::test]
async fn a_search_while_another_process_syncs_never_fails() {
    let jira = ScriptedConnector::with((0..600).map(|n| document(&n.to_string(), "harbour")));
    let workspace = Workspace::new().source(JIRA, &jira);
    let (one, other) = (workspace.open(), std::sync::Arc::new(workspace.open()));
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let searching = tokio::task::spawn_blocking({
        let (other, done) = (other.clone(), done.clone());
        move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                other.search(&common::query("harbour")).unwrap();
                other.catch_up().unwrap();
            }
        }
    });
    sync_source(&one, JIRA).await.unwrap();
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    searching.await.unwrap();
    assert_eq!(hit_names(&other, "harbour").len(), 10);
    assert_eq!(stored_names(&other).len(), 600);
}

#[tokio::test]
async fn leftovers_of_a_killed_commit_do_not_stop_the_next_one() {
    let workspace = Workspace::new().file("a.md", "harbour").file("b.md", "anchor");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let index = workspace.index_folder().unwrap();
    let before = fs::read(index.join("meta.json")).unwrap();
    workspace.remove("b.md");
    sync(&knowledge).await;
    drop(knowledge);
    // As if killed after the list of deleted entries was written and before the commit was.
    fs::write(index.join("meta.json"), before).unwrap();

    let knowledge = workspace.open();
    knowledge.catch_up().unwrap();
    assert_eq!(hit_names(&knowledge, "harbour anchor"), ["a.md"]);
}

/// Prevents the WAL index (`-shm`) from being created, as a full disk does: SQLite then cannot even read.
fn block_wal_index(workspace: &Workspace) {
    let mut index = workspace.store_path().into_os_string();
    index.push("-shm");
    fs::create_dir(&index).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_space_for_its_wal_index_is_searched_by_many_at_once() {
    let workspace = synced().await;
    block_wal_index(&workspace);
    let knowledge = workspace.open();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_right_answers(&knowledge, "the disk was full"));
        }
    });
    assert!(!knowledge.check().unwrap().writable);
    workspace.write("d.md", "compass");
    let refused = common::try_sync(&knowledge, &common::notes(), Default::default()).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_right_answers(&knowledge, "a sync that failed");
}
