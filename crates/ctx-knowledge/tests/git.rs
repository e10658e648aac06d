//! Which files the git connector reads and leaves out, and its errors.

use crate::common::{
    GitServer, LOGIN, Repository, Workspace, files_with, hit_names, redirecting_host, search, source_name,
    stored_names, sync_source, the_document, time, try_sync,
};
use ctx_knowledge::{Knowledge, SyncOptions, SyncReport, Warning};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const SOURCE: &str = "git:test";

/// A workspace with one git source.
struct GitFixture {
    workspace: Workspace,
    knowledge: Knowledge,
}

#[allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]
impl GitFixture {
    fn new(settings: &Value) -> Self {
        Self::of(Workspace::new(), settings)
    }

    fn of(mut workspace: Workspace, settings: &Value) -> Self {
        let connector = workspace.connector_of("git", settings).unwrap();
        let knowledge = workspace.open_with("git", connector);
        Self { workspace, knowledge }
    }

    /// Opens the same store with other settings.
    fn with(self, settings: &Value) -> Self {
        let Self { workspace, knowledge } = self;
        drop(knowledge);
        Self::of(workspace, settings)
    }

    async fn sync(&self) -> SyncReport {
        sync_source(&self.knowledge, SOURCE).await.unwrap()
    }

    async fn error(&self) -> String {
        sync_source(&self.knowledge, SOURCE).await.unwrap_err().to_string()
    }

    fn stored_names(&self) -> Vec<String> {
        stored_names(&self.knowledge)
    }
}

fn report() -> SyncReport {
    SyncReport { source: SOURCE.to_owned(), ..SyncReport::default() }
}

fn two_files() -> Repository {
    let repository = Repository::new();
    repository.file("a.md", "harbour").file("b.md", "lighthouse").commit("Ada", "2026-01-01T00:00:00Z");
    repository
}

#[tokio::test]
async fn new_changed_renamed_and_deleted_files_are_followed() {
    let repository = two_files();
    let fixture = GitFixture::new(&json!({"url": repository.url()}));
    assert_eq!(fixture.sync().await, SyncReport { added: 2, ..report() });
    assert_eq!(fixture.sync().await, SyncReport { unchanged: 2, ..report() });

    repository.file("a.md", "compass").file("c/d.md", "anchor").commit("Ada", "2026-01-02T00:00:00Z");
    assert_eq!(fixture.sync().await, SyncReport { added: 1, updated: 1, unchanged: 1, ..report() });
    assert_eq!(hit_names(&fixture.knowledge, "compass"), ["a.md"]);

    repository.git(&["mv", "b.md", "B.md"]);
    repository.git(&["rm", "--quiet", "c/d.md"]);
    repository.commit("Ada", "2026-01-03T00:00:00Z");
    assert_eq!(fixture.sync().await, SyncReport { added: 1, deleted: 2, unchanged: 1, ..report() });
    assert_eq!(fixture.stored_names(), ["B.md", "a.md"]);
}

#[tokio::test]
async fn dates_and_authors_are_those_of_the_history() {
    let repository = Repository::new();
    repository.file("docs/a.md", "harbour").commit("Ada", "2026-01-01T10:00:00Z");
    repository.file("other.md", "no").commit("Nobody", "2026-01-01T11:00:00Z");
    repository.file("docs/a.md", "harbour two").commit("Ben", "2026-01-02T10:00:00Z");
    let second = repository.tip();
    repository.file("docs/b.md", "lighthouse").commit("Cem", "2026-01-03T10:00:00Z");
    let fixture = GitFixture::new(&json!({"url": repository.url(), "root": "/docs/"}));
    fixture.sync().await;
    let seen = |text| {
        let document = the_document(&fixture.knowledge, text);
        (document.source_id, document.created_at, document.updated_at, document.author)
    };
    let expected = |name: &str, created, updated, author: &str| {
        (name.to_owned(), time(created), time(updated), Some(author.to_owned()))
    };
    let (first, last) = ("2026-01-01T10:00:00Z", "2026-01-02T10:00:00Z");
    assert_eq!(seen("harbour"), expected("a.md", first, last, "Ben"));
    let born = "2026-01-03T10:00:00Z";
    assert_eq!(seen("lighthouse"), expected("b.md", born, born, "Cem"));
    let metadata = the_document(&fixture.knowledge, "harbour").metadata;
    assert_eq!(
        Value::Object(metadata),
        json!({"repository": repository.url(), "branch": "main", "commit": second})
    );

    // From here on only new commits are walked; creation dates are remembered.
    let (changed, added) = ("2026-01-04T10:00:00Z", "2026-01-05T10:00:00Z");
    repository.file("docs/a.md", "harbour three").commit("Dan", changed);
    repository.file("docs/c.md", "anchor").commit("Eve", added);
    fixture.sync().await;
    assert_eq!(seen("harbour"), expected("a.md", first, changed, "Dan"));
    assert_eq!(seen("anchor"), expected("c.md", added, added, "Eve"));
    assert_eq!(seen("lighthouse"), expected("b.md", born, born, "Cem"));

    // Read for another reason than a new commit: the whole history is walked.
    let fixture = fixture.with(&json!({"url": repository.url(), "root": "docs", "include_globs": ["b.md"]}));
    fixture.sync().await;
    let fixture = fixture.with(&json!({"url": repository.url(), "root": "docs"}));
    assert_eq!(fixture.sync().await, SyncReport { added: 2, unchanged: 1, ..report() });
    let document = the_document(&fixture.knowledge, "harbour");
    assert_eq!((document.created_at, document.updated_at), (time(first), time(changed)));
}

#[tokio::test]
async fn a_merge_that_resolves_a_conflict_changes_the_file() {
    let repository = two_files();
    repository.git(&["checkout", "--quiet", "-b", "side"]);
    repository.file("a.md", "harbour side").commit("Side", "2026-01-02T00:00:00Z");
    repository.git(&["checkout", "--quiet", "main"]);
    repository.file("a.md", "harbour main").commit("Main", "2026-01-03T00:00:00Z");
    repository.git(&["merge", "--quiet", "--no-commit", "-s", "ours", "side"]);
    repository.file("a.md", "harbour decided").commit("Judge", "2026-01-04T00:00:00Z");
    let fixture = GitFixture::new(&json!({"url": repository.url()}));
    fixture.sync().await;
    let document = the_document(&fixture.knowledge, "harbour");
    assert_eq!(document.author.as_deref(), Some("Judge"));
    assert_eq!(
        (document.created_at, document.updated_at),
        (time("2026-01-01T00:00:00Z"), time("2026-01-04T00:00:00Z"))
    );
}

#[tokio::test]
async fn a_rewritten_branch_is_read_as_it_is_now() {
    let repository = two_files();
    repository.file("a.md", "harbour two").commit("Ben", "2026-01-02T00:00:00Z");
    let fixture = GitFixture::new(&json!({"url": repository.url()}));
    fixture.sync().await;
    repository.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    repository.file("b.md", "compass").commit("Cem", "2026-01-03T00:00:00Z");
    assert_eq!(fixture.sync().await, SyncReport { updated: 2, ..report() });
    let document = the_document(&fixture.knowledge, "harbour");
    assert_eq!((document.body.as_str(), document.author.as_deref()), ("harbour", Some("Ada")));
}

#[tokio::test]
async fn documents_of_another_branch_are_updated() {
    let repository = two_files();
    repository.git(&["checkout", "--quiet", "-b", "release/1"]);
    repository.file("c.md", "anchor").commit("Ada", "2026-01-02T00:00:00Z");
    repository.git(&["checkout", "--quiet", "main"]);
    let fixture = GitFixture::new(&json!({"url": repository.url()}));
    fixture.sync().await;
    let fixture = fixture.with(&json!({"url": repository.url(), "branch": "release/1"}));
    assert_eq!(fixture.sync().await, SyncReport { added: 1, updated: 2, ..report() });
    assert_eq!(the_document(&fixture.knowledge, "harbour").metadata["branch"], "release/1");
    let fixture = fixture.with(&json!({"url": repository.url(), "branch": "main"}));
    assert_eq!(fixture.sync().await, SyncReport { updated: 2, deleted: 1, ..report() });
}

#[tokio::test]
async fn a_plain_path_a_full_clone_and_another_repository_work() {
    let (repository, other) = (two_files(), Repository::new());
    other.file("z.md", "anchor").commit("Ada", "2026-01-01T00:00:00Z");
    repository.git(&["config", "uploadpack.allowFilter", "false"]);
    let path = repository.path().to_str().unwrap();
    let fixture = GitFixture::new(&json!({"url": path}));
    assert_eq!(fixture.sync().await.added, 2);
    let fixture = fixture.with(&json!({"url": path, "shallow": false}));
    assert_eq!(fixture.sync().await, SyncReport { unchanged: 2, ..report() });
    let fixture = fixture.with(&json!({"url": other.url()}));
    assert_eq!(fixture.sync().await, SyncReport { added: 1, deleted: 2, ..report() });
    // Relative to the workspace.
    fs::rename(other.path(), fixture.workspace.beside("mirror")).unwrap();
    let fixture = fixture.with(&json!({"url": "mirror"}));
    assert_eq!(fixture.sync().await, SyncReport { updated: 1, ..report() });
}

#[tokio::test]
async fn only_needed_blobs_are_fetched_in_one_request_and_only_once() {
    let repository = Repository::new();
    for name in 0..30 {
        repository.file(&format!("{name}.md"), format!("harbour {name}"));
    }
    repository.file("large.bin", "x".repeat(1000)).commit("Ada", "2026-01-01T00:00:00Z");
    repository.file("0.md", "harbour zero").commit("Ada", "2026-01-02T00:00:00Z");
    let server = GitServer::start(&repository);
    let settings = json!({
        "url": server.url(LOGIN), "include_globs": ["*.md"],
    });
    let fixture = GitFixture::new(&settings);
    assert_eq!(fixture.sync().await, SyncReport { added: 30, ..report() });
    let fetches = server.take_fetches();
    assert_eq!(fetches.len(), 2, "one for the commits and one for the contents");

    assert_eq!(fixture.sync().await, SyncReport { unchanged: 30, ..report() });
    assert_eq!(server.take_fetches(), [""; 0]);

    repository.file("1.md", "compass").commit("Ada", "2026-01-03T00:00:00Z");
    assert_eq!(fixture.sync().await, SyncReport { updated: 1, unchanged: 29, ..report() });
    let fetches = server.take_fetches();
    assert_eq!(fetches.len(), 2);
    assert_eq!(fetches[1].matches("want ").count(), 1, "{}", fetches[1]);

    for secret in ["hunter2", "amFuZTpodW50ZXIyIXg"] {
        assert_eq!(files_with(&fixture.workspace.beside(""), secret), [""; 0].map(std::path::PathBuf::from));
    }
    let document = the_document(&fixture.knowledge, "compass");
    assert_eq!(document.metadata["repository"], server.url(""));
}

#[tokio::test]
async fn wrong_and_missing_credentials_are_reported_without_showing_them() {
    let repository = two_files();
    let server = GitServer::start(&repository);
    let good = json!({"url": server.url(LOGIN)});
    let fixture = GitFixture::new(&good);
    fixture.sync().await;
    for login in ["", "jane@", "jane:wrongwrong@"] {
        let settings = json!({"url": server.url(login)});
        let connector = fixture.workspace.connector_of("git", &settings).unwrap();
        let error = connector.check().await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read the repository {}: ", server.url(""))), "{error}");
        assert!(!error.contains("wrongwrong") && !error.contains("hunter2"), "{error}");
    }
    let fixture = fixture.with(&json!({"url": server.url("jane:wrongwrong@")}));
    let error = fixture.error().await;
    assert!(error.contains("Authentication failed"), "{error}");
    assert_eq!(fixture.stored_names(), ["a.md", "b.md"]);
    let fixture = fixture.with(&good);
    assert_eq!(fixture.sync().await, SyncReport { unchanged: 2, ..report() });
}

#[tokio::test]
async fn nothing_in_a_repository_is_executed() {
    let repository = Repository::new();
    let mark = repository.path().join("ran");
    let run = format!("touch {}", mark.display());
    repository
        .file(".gitattributes", "*.md filter=evil diff=evil\n")
        .file(".gitmodules", "[submodule \"s\"]\n path = s\n url = ext::sh -c touch% /tmp/x\n")
        .file("--help", "harbour option")
        .file("-x.md", "harbour dash")
        .file("line\nbreak.md", "harbour newline")
        .file("hooks/post-checkout", "#!/bin/sh\nharbour\n")
        .file("a.md", "harbour");
    #[cfg(unix)]
    std::os::unix::fs::symlink("/etc/passwd", repository.path().join("link.md")).unwrap();
    repository.commit("<script>", "2026-01-01T00:00:00Z");
    let module = format!("160000,{},module.md", repository.tip());
    repository.git(&["update-index", "--add", "--cacheinfo", &module]);
    repository.git(&["commit", "--quiet", "-m", "module"]);
    repository.git(&["config", "filter.evil.smudge", &run]);
    repository.git(&["config", "core.fsmonitor", &run]);
    for hook in ["post-checkout", "reference-transaction", "pre-auto-gc", "post-merge"] {
        let hook = repository.path().join(".git/hooks").join(hook);
        fs::write(&hook, format!("#!/bin/sh\n{run}\n")).unwrap();
        assert!(Command::new("chmod").arg("+x").arg(hook).status().unwrap().success());
    }

    let fixture = GitFixture::new(&json!({"url": repository.url()}));
    fixture.sync().await;
    fixture.sync().await;
    assert_eq!(fixture.stored_names(), ["--help", "-x.md", "a.md", "hooks/post-checkout", "line\nbreak.md"]);
    assert!(!mark.exists());
    let hits = search(&fixture.knowledge, "harbour");
    assert!(hits.iter().all(|hit| hit.source_url.is_none()));
}

#[cfg(unix)]
#[tokio::test]
async fn files_with_names_that_are_not_utf8_are_read() {
    use std::os::unix::ffi::OsStrExt;
    let repository = Repository::new();
    fs::write(repository.path().join(std::ffi::OsStr::from_bytes(b"a\xff.md")), "harbour").unwrap();
    repository.commit("Ada", "2026-01-01T00:00:00Z");
    let fixture = GitFixture::new(&json!({"url": repository.url()}));
    assert_eq!(fixture.sync().await.added, 1);
    assert_eq!(fixture.stored_names(), ["a\\xff.md"]);
    assert_eq!(the_document(&fixture.knowledge, "harbour").author.as_deref(), Some("Ada"));
    assert_eq!(fixture.sync().await, SyncReport { unchanged: 1, ..report() });
}

#[tokio::test]
async fn unreadable_files_are_warnings_and_binary_files_are_skipped() {
    let repository = two_files();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
    repository
        .file("large.md", "x".repeat(201))
        .file("lfs.pdf", pointer)
        .file("image.png", b"\x89PNG\r\n\x1a\n\0\0\0")
        .commit("Ada", "2026-01-02T00:00:00Z");
    let workspace = Workspace::new().document_bytes_max(200);
    let fixture = GitFixture::of(workspace, &json!({"url": repository.url()}));
    let warning =
        |name: &str, reason: &str| Warning { source_id: name.to_owned(), reason: reason.to_owned() };
    let expected = SyncReport {
        warning_count: 2,
        warnings: vec![
            warning("large.md", "it has 201 bytes; the limit is 200 (limits.document_bytes)"),
            warning("lfs.pdf", "it is in Git LFS; the repository has only a pointer to it"),
        ],
        ..report()
    };
    assert_eq!(fixture.sync().await, SyncReport { added: 2, skipped: 1, ..expected.clone() });
    assert_eq!(fixture.sync().await, SyncReport { unchanged: 3, ..expected });
}

#[tokio::test]
async fn an_empty_repository_is_an_error_only_if_it_had_commits() {
    let repository = Repository::new();
    let settings = json!({"url": repository.url()});
    let fixture = GitFixture::new(&settings);
    assert_eq!(fixture.sync().await, report());
    repository.file("a.md", "harbour").commit("Ada", "2026-01-01T00:00:00Z");
    assert_eq!(fixture.sync().await.added, 1);
    repository.git(&["update-ref", "-d", "HEAD"]);
    let error = fixture.error().await;
    assert!(error.ends_with("it has no commits any more"), "{error}");
    assert_eq!(fixture.stored_names(), ["a.md"]);
}

#[tokio::test]
async fn a_missing_branch_folder_or_remote_is_an_error_and_deletes_nothing() {
    let repository = two_files();
    let good = json!({"url": repository.url()});
    let mut fixture = GitFixture::new(&good);
    fixture.sync().await;
    let expected =
        |reason: &str| format!("git:test: cannot read the repository {}: {reason}", repository.url());
    for (settings, reason) in [
        (json!({"url": repository.url(), "branch": "nope"}), "it has no branch `nope`"),
        (json!({"url": repository.url(), "root": "nope/deep"}), "it has no folder `nope/deep`"),
        (json!({"url": repository.url(), "root": "a.md"}), "it has no folder `a.md`"),
    ] {
        fixture = fixture.with(&settings);
        assert_eq!(fixture.error().await, expected(reason));
        assert_eq!(fixture.stored_names(), ["a.md", "b.md"]);
    }
    let checked = fixture.workspace.connector_of("git", &json!({"url": repository.url(), "branch": "nope"}));
    let error = checked.unwrap().check().await.unwrap_err().to_string();
    assert!(error.ends_with("it has no branch `nope`"), "{error}");

    fixture = fixture.with(&good);
    let away = repository.path().with_extension("away");
    fs::rename(repository.path(), &away).unwrap();
    let error = fixture.error().await;
    assert!(error.contains("does not appear to be a git repository"), "{error}");
    assert_eq!(fixture.stored_names(), ["a.md", "b.md"]);
    fs::rename(&away, repository.path()).unwrap();
    assert_eq!(fixture.sync().await, SyncReport { unchanged: 2, ..report() });
}

#[tokio::test]
async fn a_damaged_mirror_is_recreated() {
    let repository = two_files();
    let fixture = GitFixture::new(&json!({"url": repository.url()}));
    fixture.sync().await;
    let copy = fixture.workspace.cache("git").join("repository.git");
    let packs = || {
        let entries = fs::read_dir(copy.join("objects/pack")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "pack")).collect::<Vec<_>>()
    };
    let lock = || fs::write(copy.join("refs/ctx/tip.lock"), "").unwrap();
    let damages: [&dyn Fn(); 4] = [
        &|| fs::write(copy.join("HEAD"), "nonsense").unwrap(),
        &lock,
        &|| fs::remove_dir_all(copy.join("objects")).unwrap(),
        &|| {
            for pack in packs() {
                fs::remove_file(&pack).unwrap();
                fs::write(pack, "nonsense").unwrap();
            }
        },
    ];
    for (round, damage) in damages.iter().enumerate() {
        damage();
        repository.file("a.md", format!("harbour {round}")).commit("Ada", "2026-01-02T00:00:00Z");
        assert_eq!(fixture.sync().await, SyncReport { updated: 1, unchanged: 1, ..report() }, "{round}");
    }
}

#[tokio::test]
async fn a_mirror_that_git_repacks_keeps_its_blobs() {
    let repository = two_files();
    let server = GitServer::start(&repository);
    let fixture = GitFixture::new(&json!({"url": server.url(LOGIN)}));
    fixture.sync().await;
    let copy = fixture.workspace.cache("git").join("repository.git");
    let packs = || {
        let entries = fs::read_dir(copy.join("objects/pack")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "pack")).count()
    };
    for round in 0..4 {
        repository.file("a.md", format!("harbour {round}")).commit("Ada", "2026-01-02T00:00:00Z");
        assert_eq!(fixture.sync().await, SyncReport { updated: 1, unchanged: 1, ..report() });
    }
    assert!(packs() >= 4);
    // The maintenance that git runs after some dozens of fetches, with the settings of our fetches.
    let partial = ["remote.ctx.url=x", "remote.ctx.promisor=true", "remote.ctx.partialclonefilter=blob:none"];
    let mut gc = Command::new("git");
    gc.env("GIT_DIR", &copy).args(partial.iter().flat_map(|setting| ["-c", setting])).args(["gc", "--quiet"]);
    assert!(gc.status().unwrap().success());
    assert!(packs() < 4, "it was not repacked");
    server.take_fetches();
    let options = SyncOptions { full: true, ..SyncOptions::default() };
    let again = try_sync(&fixture.knowledge, &source_name(SOURCE), options).await.unwrap();
    assert_eq!(again, SyncReport { unchanged: 2, ..report() });
    assert_eq!(server.take_fetches(), [""; 0]);
}

#[tokio::test]
async fn a_copy_that_somebody_else_prepared_runs_nothing_and_is_made_anew() {
    let repository = two_files();
    let marks = tempfile::tempdir().unwrap();
    let mark = marks.path().join("ran");
    let touch = format!("touch {}", mark.display());
    let config = |setting: &str| format!("[core]\nrepositoryformatversion = 0\nbare = true\n{setting}\n");
    for (number, (file, content)) in [
        ("config", config(&format!("[remote \"ctx\"]\nuploadpack = \"{touch}; git-upload-pack\""))),
        ("config", config(&format!("fsmonitor = \"{touch}\"\nsshCommand = \"{touch}\""))),
        ("config", config(&format!("[credential]\nhelper = \"!{touch}\""))),
        ("config", config(&format!("[alias]\nfetch = \"!{touch}\"\nls-remote = \"!{touch}\""))),
        ("config", config("[include]\npath = /etc/gitconfig")),
        ("config", config("[extensions]\nworktreeConfig = true")),
        ("config.worktree", format!("[core]\nsshCommand = \"{touch}\"\n")),
        ("hooks/post-index-change", format!("#!/bin/sh\n{touch}\n")),
        ("hooks/reference-transaction", format!("#!/bin/sh\n{touch}\n")),
        ("objects/info/alternates", "/etc\n".to_owned()),
        ("info/attributes", "* filter=x\n".to_owned()),
        ("commondir", "/tmp\n".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        let fixture = GitFixture::new(&json!({"url": repository.path().display().to_string()}));
        let copy = fixture.workspace.cache("git").join("repository.git");
        if number % 2 == 0 {
            fixture.sync().await;
        }
        fs::create_dir_all(copy.join(file).parent().unwrap()).unwrap();
        fs::write(copy.join(file), &content).unwrap();
        #[cfg(unix)]
        fs::set_permissions(copy.join(file), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        fixture.knowledge.sources().await.unwrap();
        fixture.sync().await;
        assert!(!mark.exists(), "{file}: {content}");
        assert!(file == "config" || !copy.join(file).exists(), "{file} stayed");
        assert!(!fs::read_to_string(copy.join("config")).unwrap().contains("touch"), "{content}");
    }
}

#[tokio::test]
async fn a_server_without_partial_clones_is_cloned_fully() {
    let repository = two_files();
    repository.git(&["config", "uploadpack.allowAnySHA1InWant", "false"]);
    let server = GitServer::old(&repository);
    let fixture = GitFixture::new(&json!({"url": server.url(LOGIN)}));
    assert_eq!(fixture.sync().await, SyncReport { added: 2, ..report() });
    repository.file("a.md", "compass").commit("Ada", "2026-01-02T00:00:00Z");
    assert_eq!(fixture.sync().await, SyncReport { updated: 1, unchanged: 1, ..report() });
}

#[tokio::test]
async fn a_redirect_leads_to_no_metadata_and_takes_no_password_along() {
    let repository = two_files();
    let server = GitServer::start(&repository);
    let redirecting_url = |to| format!("http://{LOGIN}{}/old.git", redirecting_host(to));
    // The password belongs to the old origin and is not sent to the new one, which then refuses access.
    let fixture = GitFixture::new(&json!({"url": redirecting_url(server.url(""))}));
    let error = fixture.error().await;
    assert!(error.contains("password") || error.contains("it requires authentication"), "{error}");
    assert_eq!(server.take_fetches(), [""; 0]);
    for to in
        ["http://169.254.169.254/a.git", "http://[2002:a9fe:a9fe::1]/a.git", "http://[fd00:ec2::254]/a.git"]
    {
        let fixture = GitFixture::new(&json!({"url": redirecting_url(to.to_owned())}));
        let error = fixture.error().await;
        assert!(error.contains("it redirects to a"), "{to}: {error}");
    }
}

#[tokio::test]
async fn a_cancelled_sync_leaves_no_git_process() {
    // Accepts a connection and sends nothing until the other end closes it.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a.git", listener.local_addr().unwrap());
    let (arrived, arrival) = tokio::sync::oneshot::channel();
    let (left, leaving) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        arrived.send(()).unwrap();
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        left.send(()).unwrap();
    });
    let fixture = GitFixture::new(&json!({ "url": url }));
    let stop = CancellationToken::new();
    let name = source_name(SOURCE);
    let sync = fixture.knowledge.sync(&name, SyncOptions::default(), Arc::new(|_| ()), stop.clone());
    let (outcome, _) = tokio::join!(sync, async {
        arrival.await.unwrap();
        stop.cancel();
    });
    assert_eq!(outcome.unwrap_err().to_string(), "git:test: interrupted; what was read so far is kept");
    leaving.await.unwrap();
}

#[test]
fn wrong_settings_are_named() {
    let workspace = Workspace::new();
    for (settings, expected) in [
        (json!({}), "missing field `url`"),
        (json!({"url": "ext::sh -c x"}), "url: `ext:` is not a supported scheme"),
        (json!({"url": "--upload-pack=x"}), "url: not a repository URL or path"),
        (json!({"url": "a", "branch": "-x"}), "branch: `-x` is not a valid branch name"),
        (json!({"url": "a", "branch": "a:b"}), "branch: `a:b` is not a valid branch name"),
        (json!({"url": "a", "root": "../x"}), "root: it must be a folder inside the repository"),
        (json!({"url": "a", "include_globs": ["a[b"]}), "include_globs: "),
    ] {
        let error = workspace.connector_of("git", &settings).err().unwrap();
        assert!(error.starts_with(expected), "{error}");
    }
}
