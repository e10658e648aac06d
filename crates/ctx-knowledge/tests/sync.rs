//! Which files a sync writes, counts and skips.

#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use crate::common::{
    self, CrashingStore, JIRA, ScriptedConnector, Workspace, delete, document, generation, hit_names, names,
    notes, private_key, query, report, search, stored_names, sync, sync_source, sync_with, the_document,
    time, upsert,
};
use ctx_knowledge::{Progress, SearchMode, SearchQuery, SyncError, SyncOptions, SyncReport};
use ctx_store::MemoryStore;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const FULL: SyncOptions = SyncOptions { full: true, dry_run: false, since: None, until: None, limit: None };
const DRY_RUN: SyncOptions =
    SyncOptions { full: false, dry_run: true, since: None, until: None, limit: None };

#[tokio::test]
async fn new_changed_and_deleted_files_come_in_and_go() {
    let workspace =
        Workspace::new().file("keep.md", "harbour").file("change.md", "lighthouse").file("old.md", "anchor");
    let knowledge = workspace.open();
    let first = SyncReport { added: 3, ..report() };
    assert_eq!(sync(&knowledge).await, first);
    assert_eq!(hit_names(&knowledge, "lighthouse"), ["change.md"]);

    workspace.write("change.md", "beacon");
    workspace.write("deep/er/new.md", "compass");
    workspace.remove("old.md");
    let second = SyncReport { added: 1, updated: 1, unchanged: 1, deleted: 1, ..report() };
    assert_eq!(sync(&knowledge).await, second);
    assert_eq!(hit_names(&knowledge, "beacon"), ["change.md"]);
    assert_eq!(hit_names(&knowledge, "compass"), ["deep/er/new.md"]);
    assert_eq!(hit_names(&knowledge, "harbour"), ["keep.md"]);
    assert_eq!(hit_names(&knowledge, "lighthouse anchor"), Vec::<String>::new());
    assert_eq!(stored_names(&knowledge), ["change.md", "deep/er/new.md", "keep.md"]);
}

#[tokio::test]
async fn a_knowledge_base_works_on_any_store() {
    let workspace = Workspace::new().file("keep.md", "harbour").file("change.md", "lighthouse");
    let knowledge = workspace.open_on(Arc::new(MemoryStore::default()));
    assert_eq!(sync(&knowledge).await, SyncReport { added: 2, ..report() });
    workspace.write("change.md", "beacon");
    assert_eq!(sync(&knowledge).await, SyncReport { updated: 1, unchanged: 1, ..report() });
    assert_eq!(hit_names(&knowledge, "beacon"), ["change.md"]);
    assert_eq!(hit_names(&knowledge, "lighthouse"), Vec::<String>::new());
    workspace.remove("keep.md");
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, deleted: 1, ..report() });
    assert_eq!(stored_names(&knowledge), ["change.md"]);
    assert_eq!(knowledge.stats().unwrap().documents, 1);
}

#[tokio::test]
async fn documents_of_a_slow_source_are_stored_while_it_is_waited_for() {
    let jira = ScriptedConnector::new();
    jira.waits_after([upsert(document("a", "harbour")), upsert(document("b", "beacon")), delete("a")]);
    let workspace = Workspace::new().source(JIRA, &jira);
    let store = MemoryStore::default();
    let knowledge = workspace.open_on(Arc::new(store.clone()));
    let stored = async {
        jira.wait_until_paused().await;
        for _ in 0..500 {
            if knowledge.stats().unwrap().documents == 1 && generation(&knowledge) == 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let stored = stored_names(&knowledge);
        jira.release();
        stored
    };
    let (report, stored) = tokio::join!(sync_source(&knowledge, JIRA), stored);
    let report = report.unwrap();
    assert_eq!(stored, ["b"]);
    assert_eq!((report.added, report.deleted), (2, 1));
}

#[tokio::test]
async fn the_last_version_of_a_document_in_one_sync_wins() {
    let jira = ScriptedConnector::with([document("a", "harbour")]);
    jira.continues([delete("a"), upsert(document("a", "harbour"))], None);
    jira.continues([upsert(document("a", "beacon")), upsert(document("a", "harbour"))], None);
    jira.continues([upsert(document("a", " ")), upsert(document("a", "harbour"))], None);
    let workspace = Workspace::new().source(JIRA, &jira);
    let knowledge = workspace.open();
    for pull in 0..4 {
        sync_source(&knowledge, JIRA).await.unwrap();
        assert_eq!(hit_names(&knowledge, "harbour"), ["a"], "pull {pull}");
    }
}

#[tokio::test]
async fn a_renamed_file_is_another_document() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    std::fs::rename(workspace.path("a.md"), workspace.path("b.md")).unwrap();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, deleted: 1, ..report() });
    assert_eq!(hit_names(&knowledge, "harbour"), ["b.md"]);
}

#[tokio::test]
async fn an_unchanged_tree_is_not_written_again() {
    let workspace = Workspace::new().file("a.md", "harbour").file("b/c.txt", "lighthouse");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let before = (generation(&knowledge), workspace.index_files());
    for options in [SyncOptions::default(), FULL] {
        let expected = SyncReport { unchanged: 2, ..report() };
        assert_eq!(sync_with(&knowledge, options).await, expected, "{options:?}");
        assert_eq!((generation(&knowledge), workspace.index_files()), before, "{options:?}");
    }
}

#[tokio::test]
async fn an_unchanged_tree_is_not_written_by_another_process_either() {
    let workspace = Workspace::new().file("a.md", "harbour");
    sync(&workspace.open()).await;
    let before = (generation(&workspace.open()), workspace.index_files());
    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, ..report() });
    assert_eq!((generation(&knowledge), workspace.index_files()), before);
}

#[tokio::test]
async fn a_file_that_was_only_touched_is_unchanged() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let before = (generation(&knowledge), workspace.index_files());
    for at in ["2026-02-01T00:00:00.25Z", "2020-02-01T00:00:00Z"] {
        workspace.touch("a.md", at);
        assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, ..report() });
        assert_eq!((generation(&knowledge), workspace.index_files()), before);
    }
}

#[tokio::test]
async fn a_file_changed_just_now_and_again_at_the_same_size_is_read_again() {
    let workspace = Workspace::new();
    let knowledge = workspace.open();
    for content in ["harbour", "compass", "anchors"] {
        std::fs::write(workspace.path("a.md"), content).unwrap();
        sync(&knowledge).await;
        assert_eq!(hit_names(&knowledge, content), ["a.md"]);
    }
}

#[tokio::test]
async fn files_of_any_date_are_stored_and_read_once() {
    let dates =
        ["1901-12-14T00:00:00Z", "1969-12-31T23:59:59.5Z", "1970-01-01T00:00:00Z", "2201-01-01T00:00:00Z"];
    let workspace = Workspace::new();
    dates
        .iter()
        .enumerate()
        .for_each(|(n, date)| workspace.write_at(&format!("{n}.md"), format!("word{n}"), date));
    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 4, ..report() });
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 4, ..report() });
    for (n, date) in dates.iter().enumerate() {
        assert_eq!(the_document(&knowledge, &format!("word{n}")).updated_at, time(date));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_change_is_noticed_whatever_the_modification_time() {
    let workspace = Workspace::new().file("a.md", "one");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    // The modification time moves into the future, stays, and moves back; the size is the same.
    let years = [2201, 2201, 2020, 1960, 1960];
    for (text, year) in ["two", "six", "ten", "red", "sea"].into_iter().zip(years) {
        until_the_clock_ticks(&workspace, "a.md");
        workspace.write_at("a.md", text, &format!("{year}-01-01T00:00:00.5Z"));
        assert_eq!(sync(&knowledge).await, SyncReport { updated: 1, ..report() }, "{text}");
        assert_eq!(hit_names(&knowledge, text), ["a.md"]);
    }
}

/// Waits until a new modification time differs from that of this file.
#[cfg(unix)]
fn until_the_clock_ticks(workspace: &Workspace, name: &str) {
    use std::os::unix::fs::MetadataExt;
    let changed_at = |path: std::path::PathBuf| {
        let metadata = path.metadata().unwrap();
        (metadata.ctime(), metadata.ctime_nsec())
    };
    while {
        std::fs::write(workspace.beside("probe"), "").unwrap();
        changed_at(workspace.beside("probe")) <= changed_at(workspace.path(name))
    } {}
}

#[tokio::test]
async fn id_and_creation_survive_an_update() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let before = the_document(&knowledge, "harbour");

    workspace.remove("a.md");
    workspace.write_at("a.md", "# Lights\nlighthouse", "2026-03-01T00:00:00.5Z");
    assert_eq!(sync(&knowledge).await, SyncReport { updated: 1, ..report() });
    let after = the_document(&knowledge, "lighthouse");
    assert_eq!((after.id, after.created_at), (before.id, before.created_at));
    assert_eq!(after.updated_at, time("2026-03-01T00:00:00.5Z"));
    assert_eq!((before.title.as_deref(), after.title.as_deref()), (Some("a.md"), Some("Lights")));
}

#[tokio::test]
async fn a_file_has_the_same_id_in_every_store() {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let workspace = Workspace::new().file("deep/a.md", "harbour");
        let knowledge = workspace.open();
        sync(&knowledge).await;
        ids.push(the_document(&knowledge, "harbour").id);
    }
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_document_keeps_what_the_file_says_of_itself() {
    let workspace = Workspace::new().file("deep/a b.md", "# Harbour\nShips rest.").tags(&["team", "sea"]);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let document = the_document(&knowledge, "ships");
    let root = std::fs::canonicalize(workspace.path("")).unwrap();
    assert_eq!(document.source, "filesystem:notes");
    assert_eq!(document.source_id, "deep/a b.md");
    assert_eq!(document.source_url, Some(format!("file://{}/deep/a%20b.md", root.display())));
    assert_eq!(document.title.as_deref(), Some("Harbour"));
    assert_eq!(document.updated_at, time("2026-01-01T12:00:00.5Z"));
    assert_eq!(document.content_type, "text/markdown");
    assert_eq!(document.body, "# Harbour\nShips rest.");
    assert_eq!(document.tags, ["team", "sea"]);
    assert_eq!(document.chunks.len(), 1);
}

#[tokio::test]
async fn a_title_is_the_first_heading_else_the_file_name() {
    let workspace = Workspace::new()
        .file("a.md", "intro harbour\n\n## Second level\n")
        .file("deep/b.md", "harbour without heading")
        .file("c.txt", "# harbour: a comment, not a heading");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let mut titles: Vec<_> =
        search(&knowledge, "harbour").into_iter().map(|hit| hit.title.unwrap()).collect();
    titles.sort();
    assert_eq!(titles, ["Second level", "b.md", "c.txt"]);
}

#[tokio::test]
async fn a_file_without_text_is_no_hit_and_not_read_twice() {
    let workspace = Workspace::new()
        .embedding("fast")
        .file("deep/lighthouse.md", "")
        .file("blank.txt", " \n\t\n")
        .file("tower.md", "# Lighthouse\n");
    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, skipped: 2, ..report() });
    for text in ["lighthouse", "blank", "lighthouse.md"] {
        for mode in [SearchMode::Keyword, SearchMode::Semantic, SearchMode::Hybrid] {
            let hits = knowledge.search(&SearchQuery { mode: Some(mode), ..query(text) }).unwrap();
            let blank: Vec<String> = names(&hits).into_iter().filter(|name| name != "tower.md").collect();
            assert_eq!(blank, [""; 0], "{text} {mode:?}");
        }
    }
    assert_eq!(hit_names(&knowledge, "lighthouse"), ["tower.md"], "a heading is text");
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 3, ..report() });

    workspace.write("deep/lighthouse.md", "The lamp is lit at dusk.");
    workspace.write("tower.md", "\n");
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, unchanged: 1, skipped: 1, ..report() });
    assert_eq!(
        hit_names(&knowledge, "lighthouse"),
        ["deep/lighthouse.md"],
        "found again by its name and text"
    );
}

#[tokio::test]
async fn a_dry_run_counts_and_writes_nothing() {
    let workspace = Workspace::new().file("a.md", "harbour").file("b.md", "anchor");
    let knowledge = workspace.open();
    let expected = SyncReport { added: 2, ..report() };
    assert_eq!(sync_with(&knowledge, DRY_RUN).await, expected);
    assert_eq!((stored_names(&knowledge), workspace.index_folder()), (Vec::new(), None));
    assert_eq!(knowledge.sources().await.unwrap()[0].last_sync, None);

    sync(&knowledge).await;
    let before = (knowledge.stats().unwrap(), workspace.index_files());
    workspace.write("a.md", "beacon");
    workspace.write("c.md", "compass");
    workspace.write("d.bin", b"\0\0\0");
    workspace.remove("b.md");
    let expected = SyncReport { added: 1, updated: 1, deleted: 1, skipped: 1, ..report() };
    assert_eq!(sync_with(&knowledge, DRY_RUN).await, expected);
    assert_eq!((knowledge.stats().unwrap(), workspace.index_files()), before);
    assert_eq!(hit_names(&knowledge, "anchor"), ["b.md"]);
    assert_eq!(sync(&knowledge).await, expected);
}

#[tokio::test]
async fn a_limited_sync_deletes_nothing_and_the_next_goes_on() {
    let workspace = Workspace::new().file("gone.md", "anchor");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    workspace.remove("gone.md");
    (0..5).for_each(|n| workspace.write(&format!("{n}.md"), "harbour"));

    let limited = SyncOptions { limit: Some(2), ..SyncOptions::default() };
    assert_eq!(sync_with(&knowledge, limited).await, SyncReport { added: 2, ..report() });
    assert_eq!(stored_names(&knowledge), ["0.md", "1.md", "gone.md"]);
    let rest = SyncReport { added: 3, unchanged: 2, deleted: 1, ..report() };
    assert_eq!(sync(&knowledge).await, rest);
}

#[tokio::test]
async fn since_and_until_choose_what_is_written_and_delete_nothing() {
    let workspace = Workspace::new();
    let knowledge = workspace.open();
    let write_all = |content: &str| {
        for month in 1..=5 {
            workspace.write_at(&format!("{month}.md"), content, &format!("2026-0{month}-01T00:00:00Z"));
        }
    };
    write_all("harbour");
    let spring = SyncOptions {
        since: Some(time("2026-02-01T00:00:00Z")),
        until: Some(time("2026-04-01T00:00:00Z")),
        ..SyncOptions::default()
    };
    assert_eq!(sync_with(&knowledge, spring).await, SyncReport { added: 3, ..report() });
    assert_eq!(stored_names(&knowledge), ["2.md", "3.md", "4.md"]);

    sync(&knowledge).await;
    write_all("lighthouse");
    workspace.remove("5.md");
    assert_eq!(sync_with(&knowledge, spring).await, SyncReport { updated: 3, ..report() });
    assert_eq!(hit_names(&knowledge, "harbour").len(), 2);
    let few = SyncOptions { limit: Some(100), ..SyncOptions::default() };
    let rest = SyncReport { updated: 1, unchanged: 3, ..report() };
    assert_eq!(sync_with(&knowledge, few).await, rest);
    assert_eq!(sync(&knowledge).await, SyncReport { deleted: 1, unchanged: 4, ..report() });
}

#[tokio::test]
async fn progress_knows_how_many_files_there_are_before_the_first_is_read() {
    let workspace = Workspace::new().setting("exclude_globs", vec!["drafts/**"]);
    (0..20).for_each(|n| workspace.write(&format!("{n:02}.md"), format!("harbour {n}")));
    workspace.write("picture.md", b"\0\0\0");
    workspace.write("drafts/none.md", "not read");
    let knowledge = workspace.open();
    let progress_of = async || {
        let totals = Arc::new(Mutex::new(Vec::new()));
        let tell = {
            let totals = totals.clone();
            Arc::new(move |progress: Progress| totals.lock().unwrap().push((progress.seen, progress.total)))
        };
        knowledge.sync(&notes(), SyncOptions::default(), tell, CancellationToken::new()).await.unwrap();
        totals.lock().unwrap().clone()
    };
    let all: Vec<(u64, Option<u64>)> = (1..=21).map(|seen| (seen, Some(21))).collect();
    assert_eq!(progress_of().await, all);
    workspace.write("the-last.md", "anchor");
    let last = progress_of().await;
    assert_eq!(last.last(), Some(&(22, Some(22))), "what need not be read is done: {last:?}");
}

#[tokio::test]
async fn a_document_with_a_private_key_is_left_out_whatever_its_source_and_format() {
    let html = format!("<!doctype html><p>harbour</p><pre>{}</pre>", private_key());
    let json = format!("{{\"private_key\": {}}}", serde_json::Value::from(private_key()));
    let connector = ScriptedConnector::with([
        document("ticket", &format!("harbour\n{}", private_key())),
        document("page", &html),
        document("account", &json),
        document("manual", "harbour: a key begins with -----BEGIN PRIVATE KEY-----"),
    ]);
    let workspace = Workspace::new().source(JIRA, &connector);
    let knowledge = workspace.open();
    let report = sync_source(&knowledge, JIRA).await.unwrap();
    assert_eq!((report.added, report.secret_files, report.skipped), (1, 3, 0), "{report:?}");
    assert_eq!(stored_names(&knowledge), ["manual"]);
}

#[tokio::test]
async fn an_interrupted_sync_keeps_what_it_read_and_the_next_one_completes() {
    let workspace = Workspace::new().file("gone.md", "anchor");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    workspace.remove("gone.md");
    (0..40).for_each(|n| workspace.write(&format!("{n:02}.md"), "harbour"));

    let cancellation = CancellationToken::new();
    let stop = cancellation.clone();
    let progress = Arc::new(move |progress: ctx_knowledge::Progress| {
        if progress.written == 5 {
            stop.cancel();
        }
    });
    let outcome = knowledge.sync(&notes(), SyncOptions::default(), progress, cancellation).await;
    assert!(matches!(outcome, Err(SyncError::Interrupted { .. })), "{outcome:?}");
    let kept = ["00.md", "01.md", "02.md", "03.md", "04.md", "gone.md"];
    assert_eq!(stored_names(&knowledge), kept);
    assert_eq!(hit_names(&knowledge, "harbour").len(), 5);

    let rest = SyncReport { added: 35, unchanged: 5, deleted: 1, ..report() };
    assert_eq!(sync(&knowledge).await, rest);
}

#[tokio::test]
async fn stamps_of_unchanged_files_are_looked_up_a_page_at_a_time() {
    const FILES: usize = 600;
    const PAGE: usize = 256;
    let workspace = Workspace::new();
    (0..FILES).for_each(|number| workspace.write(&format!("{}/{number}.md", number % 7), "harbour"));
    let store = MemoryStore::default();
    sync(&workspace.open_on(Arc::new(store.clone()))).await;

    let counting = CrashingStore::counting(Arc::new(store));
    let unchanged = SyncReport { unchanged: FILES as u64, ..report() };
    assert_eq!(sync(&workspace.open_on(counting.clone())).await, unchanged);
    let looks = counting.calls("stamps");
    assert!((1..=FILES / PAGE + 1).contains(&looks), "{looks} looks at stamps");
    assert_eq!(counting.calls("apply"), 0);
}

#[tokio::test]
async fn other_chunk_sizes_reach_documents_that_are_read_again() {
    let text = "Ships rest in the harbour. ".repeat(40);
    let workspace = Workspace::new().file("a.txt", text);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let before = knowledge.stats().unwrap().chunks;
    drop(knowledge);

    let workspace = workspace.chunking(16, 0);
    let knowledge = workspace.open();
    let expected = SyncReport { updated: 1, ..report() };
    assert_eq!(sync_with(&knowledge, FULL).await, expected);
    let after = knowledge.stats().unwrap().chunks;
    assert!(after > 5 * before, "{before} and {after} chunks");
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, ..report() });
}

#[tokio::test]
async fn a_source_that_is_not_configured_cannot_be_synced() {
    let knowledge = Workspace::new().open();
    let outcome = common::sync_source(&knowledge, "git:platform").await;
    assert_eq!(outcome.unwrap_err().to_string(), "git:platform: it is not configured");
}
