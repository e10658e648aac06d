//! Which files the filesystem connector reads, and what it reports about the others.

use crate::common::{
    Workspace, hit_names, notes, report, stored_names, sync, sync_with, the_document, try_sync,
};
use ctx_knowledge::{SyncOptions, SyncReport, Warning};
use serde_json::json;
use std::fs;
#[cfg(unix)]
use std::os::unix::fs::symlink;

/// The documents that a sync of the workspace stores.
async fn synced(workspace: &Workspace) -> Vec<String> {
    let knowledge = workspace.open();
    sync(&knowledge).await;
    stored_names(&knowledge)
}

#[tokio::test]
async fn ignore_files_are_honoured_at_every_level_without_a_repository() {
    let workspace = Workspace::new()
        .file(".gitignore", "*.log\nbuild/\n!kept.log\n")
        .file("a.md", "harbour")
        .file("a.log", "harbour")
        .file("kept.log", "harbour")
        .file("build/b.md", "harbour")
        .file("sub/.gitignore", "private.md\n")
        .file("sub/private.md", "harbour")
        .file("sub/public.md", "harbour")
        .file("other/private.md", "harbour");
    assert_eq!(synced(&workspace).await, ["a.md", "kept.log", "other/private.md", "sub/public.md"]);
}

#[tokio::test]
async fn a_file_that_becomes_ignored_is_deleted() {
    let workspace = Workspace::new().file("a.md", "harbour").file("b.md", "harbour");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    workspace.write(".gitignore", "b.md\n");
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, deleted: 1, ..report() });
}

#[tokio::test]
async fn globs_select_files() {
    let workspace = Workspace::new()
        .file("a.md", "harbour")
        .file("deep/b.md", "harbour")
        .file("deep/drafts/c.md", "harbour")
        .file("d.txt", "harbour")
        .file("guide/e.rst", "harbour")
        .setting("include_globs", json!(["**/*.md", "guide/**"]))
        .setting("exclude_globs", json!(["**/drafts/**"]));
    assert_eq!(synced(&workspace).await, ["a.md", "deep/b.md", "guide/e.rst"]);
}

#[test]
fn wrong_settings_are_named() {
    let error = |workspace: Workspace| workspace.connector().err().unwrap();
    let bad_glob = error(Workspace::new().setting("include_globs", json!(["a[b"])));
    assert!(bad_glob.starts_with("include_globs: "), "{bad_glob}");
    let bad_type = error(Workspace::new().setting("follow_symlinks", "yes"));
    assert!(bad_type.contains("expected a boolean"), "{bad_type}");
}

#[tokio::test]
async fn hidden_files_are_not_read() {
    let workspace = Workspace::new()
        .file("a.md", "harbour")
        .file(".env", "SECRET=harbour")
        .file(".git/config", "harbour")
        .file("deep/.hidden.md", "harbour");
    assert_eq!(synced(&workspace).await, ["a.md"]);
}

#[cfg(unix)]
#[tokio::test]
async fn links_out_of_the_root_are_never_followed() {
    for follow in [false, true] {
        let workspace = Workspace::new()
            .file("a.md", "harbour")
            .file("b/c.md", "harbour")
            .setting("follow_symlinks", follow);
        fs::create_dir(workspace.beside("outside")).unwrap();
        fs::write(workspace.beside("outside/secret.md"), "secret").unwrap();
        // A sibling whose name only begins like the root's.
        fs::create_dir(workspace.beside("docs-private")).unwrap();
        fs::write(workspace.beside("docs-private/secret.md"), "secret").unwrap();
        symlink(workspace.beside("outside/secret.md"), workspace.path("file.md")).unwrap();
        symlink("../outside", workspace.path("folder")).unwrap();
        symlink("../docs-private", workspace.path("sibling")).unwrap();
        symlink("../../outside/secret.md", workspace.path("b/file.md")).unwrap();
        symlink("/etc", workspace.path("b/etc")).unwrap();
        // A path out of the root through a link that stays inside.
        symlink("b", workspace.path("detour")).unwrap();

        let expected: &[&str] = if follow { &["a.md", "b/c.md", "detour/c.md"] } else { &["a.md", "b/c.md"] };
        assert_eq!(synced(&workspace).await, expected, "follow_symlinks = {follow}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn links_inside_the_root_are_followed_when_asked() {
    let workspace = Workspace::new().file("a.md", "harbour").file("deep/b.md", "lighthouse");
    symlink("a.md", workspace.path("file.md")).unwrap();
    symlink("deep", workspace.path("folder")).unwrap();
    assert_eq!(synced(&workspace).await, ["a.md", "deep/b.md"]);
    let workspace = workspace.setting("follow_symlinks", true);
    assert_eq!(synced(&workspace).await, ["a.md", "deep/b.md", "file.md", "folder/b.md"]);
}

#[cfg(unix)]
#[tokio::test]
async fn symlink_loops_and_dangling_links_are_ignored() {
    let workspace = Workspace::new().file("deep/a.md", "harbour").setting("follow_symlinks", true);
    symlink("..", workspace.path("deep/up")).unwrap();
    symlink(".", workspace.path("here")).unwrap();
    symlink("nowhere", workspace.path("dangling.md")).unwrap();
    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, ..report() });
    assert_eq!(stored_names(&knowledge), ["deep/a.md"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_root_that_is_itself_a_link_is_read() {
    let workspace = Workspace::new().file("a.md", "harbour").setting("root", "link");
    symlink("docs", workspace.beside("link")).unwrap();
    assert_eq!(synced(&workspace).await, ["a.md"]);
}

#[tokio::test]
async fn a_binary_file_is_skipped_and_not_read_again() {
    let workspace = Workspace::new().file("a.md", "harbour").file("b.png", b"\x89PNG\r\n\x1a\n\0\0\0");
    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, skipped: 1, ..report() });
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 2, ..report() });
    assert_eq!(stored_names(&knowledge), ["a.md"]);
    workspace.remove("b.png");
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, ..report() });
}

#[tokio::test]
async fn a_file_that_turns_binary_is_no_longer_found_and_comes_back_as_text() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    workspace.write("a.md", b"harbour\0\0\0");
    assert_eq!(sync(&knowledge).await, SyncReport { skipped: 1, ..report() });
    assert_eq!((hit_names(&knowledge, "harbour"), stored_names(&knowledge)), (Vec::new(), Vec::new()));
    workspace.write("a.md", "harbour again");
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, ..report() });
    assert_eq!(hit_names(&knowledge, "harbour"), ["a.md"]);
}

#[tokio::test]
async fn other_encodings_are_searchable() {
    let utf16: Vec<u8> = "\u{feff}café".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let workspace = Workspace::new()
        .file("utf8.txt", "café")
        .file("windows-1252.txt", b"na\xefve caf\xe9 \x96 r\xe9sum\xe9")
        .file("utf16.txt", utf16);
    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 3, ..report() });
    let mut names = hit_names(&knowledge, "café");
    names.sort();
    assert_eq!(names, ["utf16.txt", "utf8.txt", "windows-1252.txt"]);
    assert_eq!(hit_names(&knowledge, "résumé"), ["windows-1252.txt"]);
}

#[tokio::test]
async fn a_file_over_the_limit_is_a_warning_every_time_and_the_rest_is_read() {
    let workspace =
        Workspace::new().file("a.md", "harbour").file("b.md", "lighthouse").document_bytes_max(16);
    let knowledge = workspace.open();
    sync(&knowledge).await;

    workspace.write("a.md", "x".repeat(17));
    workspace.write("c.md", "x".repeat(16));
    let warning = Warning {
        source_id: "a.md".to_owned(),
        reason: "it has 17 bytes; the limit is 16 (limits.document_bytes)".to_owned(),
    };
    let expected = SyncReport { unchanged: 1, warning_count: 1, warnings: vec![warning], ..report() };
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, ..expected.clone() });
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 2, ..expected });
    assert_eq!(hit_names(&knowledge, "harbour"), ["a.md"], "it is kept as it was");
    let status = &knowledge.sources().await.unwrap()[0];
    assert_eq!((status.warnings, status.healthy, status.documents), (1, true, 3));

    workspace.write("a.md", "compass");
    assert_eq!(sync(&knowledge).await, SyncReport { updated: 1, unchanged: 2, ..report() });
}

#[tokio::test]
async fn a_damaged_file_is_a_warning_every_time_but_read_only_when_it_changes() {
    let workspace =
        Workspace::new().file("a.ipynb", r##"{"cells":[{"cell_type":"raw","source":"harbour"}]}"##);
    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, ..report() });

    workspace.write_at("a.ipynb", "{ harbour", "2026-01-02T00:00:00Z");
    workspace.write("new.ipynb", "{");
    let failing = |report: &SyncReport| {
        let names: Vec<_> = report.warnings.iter().map(|warning| warning.source_id.clone()).collect();
        assert!(report.warnings.iter().all(|warning| warning.reason.starts_with("it is not a notebook: ")));
        assert_eq!((report.warning_count, report.unchanged, report.skipped), (2, 0, 0));
        names
    };
    let mut names = failing(&sync(&knowledge).await);
    names.sort();
    assert_eq!(names, ["a.ipynb", "new.ipynb"]);
    drop(knowledge);
    // If they were read again, they would be too large.
    let workspace = workspace.document_bytes_max(0);
    assert_eq!(failing(&sync(&workspace.open()).await).len(), 2);
    let workspace = workspace.document_bytes_max(1_000);
    let knowledge = workspace.open();
    assert_eq!(hit_names(&knowledge, "harbour"), ["a.ipynb"], "it is kept as it was");
    assert_eq!(knowledge.sources().await.unwrap()[0].warnings, 2);

    workspace.write_at(
        "a.ipynb",
        r##"{"cells":[{"cell_type":"raw","source":"compass"}]}"##,
        "2026-01-03T00:00:00Z",
    );
    workspace.remove("new.ipynb");
    assert_eq!(sync(&knowledge).await, SyncReport { updated: 1, ..report() });
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, ..report() });
    assert_eq!(hit_names(&knowledge, "compass"), ["a.ipynb"]);
}

#[tokio::test]
async fn a_damaged_file_that_comes_back_as_it_was_is_fine_again() {
    let workspace =
        Workspace::new().file("a.ipynb", r##"{"cells":[{"cell_type":"raw","source":"harbour"}]}"##);
    let knowledge = workspace.open();
    sync(&knowledge).await;
    workspace.write_at("a.ipynb", "{", "2026-01-02T00:00:00Z");
    assert_eq!(sync(&knowledge).await.warning_count, 1);
    let whole = r##"{"cells":[{"cell_type":"raw","source":"harbour"}]}"##;
    workspace.write_at("a.ipynb", whole, "2026-01-03T00:00:00Z");
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, ..report() });
    // Deleted while it was damaged: nothing is left of it.
    workspace.write_at("a.ipynb", "{", "2026-01-04T00:00:00Z");
    sync(&knowledge).await;
    workspace.remove("a.ipynb");
    let dry_run = SyncOptions { dry_run: true, ..SyncOptions::default() };
    assert_eq!(sync_with(&knowledge, dry_run).await, SyncReport { deleted: 1, ..report() });
    assert_eq!(sync(&knowledge).await, SyncReport { deleted: 1, ..report() });
    assert_eq!(sync(&knowledge).await, report());
}

#[tokio::test]
async fn a_truncated_file_is_a_warning_every_time() {
    let scanned = b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n\
        2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n3 0 obj<</Type/Page/Parent 2 0 R>>endobj\n\
        trailer<</Root 1 0 R>>\n%%EOF";
    let workspace = Workspace::new().file("a.pdf", scanned);
    let knowledge = workspace.open();
    let warning = Warning {
        source_id: "a.pdf".to_owned(),
        reason: "it has no text, only images; run OCR on it first".to_owned(),
    };
    let expected = SyncReport { warning_count: 1, warnings: vec![warning], ..report() };
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, ..expected.clone() });
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, ..expected });
}

#[tokio::test]
async fn what_a_document_says_of_itself_is_stored() {
    let workspace = Workspace::new()
        .tags(&["docs"])
        .file("a.md", "---\ntitle: Harbour\nauthor: Ada\ntags: [sea, docs]\nstatus: draft\n---\nShips.\n");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    let document = the_document(&knowledge, "ships");
    assert_eq!((document.title.as_deref(), document.author.as_deref()), (Some("Harbour"), Some("Ada")));
    assert_eq!(document.body, "Ships.\n");
    assert_eq!(json!(document.tags), json!(["docs", "sea"]));
    assert_eq!(json!(document.metadata)["status"], "draft");
}

#[tokio::test]
async fn a_missing_root_is_an_error_that_shows_the_path_as_configured() {
    let workspace = Workspace::new().file("a.md", "harbour");
    let knowledge = workspace.open();
    sync(&knowledge).await;
    fs::rename(workspace.beside("docs"), workspace.beside("moved")).unwrap();

    let error = try_sync(&knowledge, &notes(), SyncOptions::default()).await.unwrap_err();
    let reason = "cannot read the folder docs: no such file or directory";
    assert_eq!(error.to_string(), format!("filesystem:notes: {reason}"));
    assert_eq!(hit_names(&knowledge, "harbour"), ["a.md"]);
    let status = &knowledge.sources().await.unwrap()[0];
    assert_eq!((status.healthy, status.documents), (false, 1));
    assert_eq!(status.last_error.as_deref(), Some(reason));
    assert!(status.last_sync.is_some());

    fs::rename(workspace.beside("moved"), workspace.beside("docs")).unwrap();
    let status = &knowledge.sources().await.unwrap()[0];
    assert_eq!(status.notes, Some(format!("the last sync failed: {reason}")));
    assert_eq!(sync(&knowledge).await, SyncReport { unchanged: 1, ..report() });
    let status = &knowledge.sources().await.unwrap()[0];
    assert_eq!((status.healthy, status.last_error.as_deref()), (true, None));
}

#[tokio::test]
async fn a_root_that_is_a_file_is_an_error() {
    let workspace = Workspace::new().setting("root", "docs/a.md").file("a.md", "harbour");
    let error = try_sync(&workspace.open(), &notes(), SyncOptions::default()).await.unwrap_err();
    let expected = "filesystem:notes: cannot read the folder docs/a.md: not a directory";
    assert_eq!(error.to_string(), expected);
}

#[cfg(unix)]
#[tokio::test]
async fn special_files_are_not_opened() {
    let workspace = Workspace::new().file("a.md", "harbour");
    // Opening a socket fails, opening a pipe without a writer would hang.
    let _socket = std::os::unix::net::UnixListener::bind(workspace.path("socket")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(workspace.path("pipe")).status().unwrap();
    assert!(made.success());
    let knowledge = workspace.open();
    assert_eq!(sync(&knowledge).await, SyncReport { added: 1, ..report() });
}
