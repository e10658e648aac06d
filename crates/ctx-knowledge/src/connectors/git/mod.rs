//! The git connector: files of a repository, at the tip of a branch.
//!
//! The `git` program fetches into a bare mirror in the source's cache, with the user's own keys and credential
//! helpers. A file is read again only if its blob changed.

mod address;
mod cat_file;
mod history;
mod mirror;
mod own_files;
mod pinned_remote;
mod program;
mod user_config;

use super::globs::{GlobSettings, Globs, Selection};
use super::{ConnectorKind, ConnectorResult, OpenOptions, names};
use address::RepositoryAddress;
use async_trait::async_trait;
use cat_file::CatFileProcess;
use ctx_core::{
    Change, Connector, Cursor, Document, DocumentContent, Listing, PullResult, Sink, SourceError,
};
use history::{FileHistory, HistoryByPath};
use mirror::{Head, Mirror, Snapshot, SnapshotError};
use own_files::OwnFiles;
use program::{GitError, UserOverrides};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Files per prefetch of stored stamps.
const PREFETCH_PAGE: usize = 256;
pub(super) const KIND: ConnectorKind = ConnectorKind {
    name: "git",
    summary: "files of a git repository",
    schema: ctx_core::json_schema::<Settings>,
    open,
};

/// First line of a Git LFS pointer, which replaces the content of a large file.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
/// Environment variables that set the user's own ssh command.
const SSH_VARIABLES: [&str; 2] = ["GIT_SSH_COMMAND", "GIT_SSH"];
/// Environment variables that set a proxy, as libcurl reads them.
const PROXY_VARIABLES: [&str; 5] = ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

/// Settings of `[connectors.git.<name>]`.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
struct Settings {
    /// Where the repository is: `https://…`, `git@host:…`, `ssh://…`, or a path relative to the workspace.
    url: String,
    /// The branch to read; the remote's default when there is none.
    branch: Option<String>,
    /// The folder to read; the whole repository when there is none.
    #[serde(default)]
    root: String,
    /// Which files are read, relative to `root`; all when there is none.
    #[serde(default)]
    include_globs: Vec<String>,
    /// Which of those are not.
    #[serde(default)]
    exclude_globs: Vec<String>,
    /// Files that usually hold secrets (private keys, `.env` …) are never read, except those that these globs match,
    /// whatever `include_globs` says.
    #[serde(default)]
    include_sensitive_globs: Vec<String>,
    /// Whether to fetch only the contents that are read, where the server can do that. The whole
    /// history of names and dates is fetched either way.
    #[serde(default = "yes")]
    shallow: bool,
}

fn yes() -> bool {
    true
}

struct GitConnector {
    address: RepositoryAddress,
    branch: Option<String>,
    /// Without leading and trailing slashes.
    root: String,
    globs: Globs,
    shallow: bool,
    cache: PathBuf,
    user_overrides: UserOverrides,
    document_bytes_max: u64,
    own_files: OwnFiles,
    /// Hash of the settings, part of the cursor: with other settings, other files may need their history.
    settings_stamp: String,
}

fn open(settings: &Value, options: OpenOptions<'_>) -> ConnectorResult {
    let settings: Settings = serde_json::from_value(settings.clone()).map_err(|error| error.to_string())?;
    let address = RepositoryAddress::parse(&settings.url, options.workspace_root)?;
    if let Some(branch) = settings.branch.as_deref().filter(|branch| !is_branch_name(branch)) {
        return Err(format!("branch: `{branch}` is not a valid branch name"));
    }
    let parts: Vec<&str> = settings.root.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") || parts.iter().any(|part| part.chars().any(char::is_control)) {
        return Err("root: it must be a folder inside the repository".to_owned());
    }
    let globs = GlobSettings {
        include: &settings.include_globs,
        exclude: &settings.exclude_globs,
        include_sensitive_globs: &settings.include_sensitive_globs,
    };
    let stamp = format!("{:?}", (&address.display_url, &settings.branch, &parts, globs));
    Ok(Arc::new(GitConnector {
        root: parts.join("/"),
        globs: Globs::new(globs)?,
        own_files: OwnFiles::find(&address, options.workspace_root, options.own_files),
        address,
        branch: settings.branch,
        shallow: settings.shallow,
        cache: options.cache.join("repository.git"),
        user_overrides: UserOverrides {
            has_ssh: SSH_VARIABLES.iter().any(|name| (options.environment)(name).is_some()),
            has_proxy: PROXY_VARIABLES
                .iter()
                .any(|name| (options.environment)(name).is_some_and(|value| !value.is_empty())),
        },
        document_bytes_max: options.document_bytes_max,
        settings_stamp: blake3::hash(stamp.as_bytes()).to_hex()[..16].to_owned(),
    }))
}

/// Whether git allows the name, and no part of it has a meaning in a refspec.
fn is_branch_name(name: &str) -> bool {
    let forbidden = |char: char| char.is_control() || " ~^:?*[\\".contains(char);
    !name.is_empty()
        && !name.starts_with(['-', '/'])
        && !name.ends_with(['/', '.'])
        && !name.contains("..")
        && !name.contains("//")
        && !name.contains("@{")
        && !name.chars().any(forbidden)
}

/// A file to read, since its fingerprint is not stored.
struct PendingFile {
    source_id: String,
    id: String,
    fingerprint: String,
}

/// Moves the files of a page that must be read to `files`; drops the others.
fn move_changed(page: &mut Vec<(Vec<u8>, PendingFile)>, files: &mut PendingFiles, sink: &Sink) {
    sink.prefetch(&page.iter().map(|(_, file)| file.source_id.as_str()).collect::<Vec<_>>());
    files.extend(page.drain(..).filter(|(_, file)| sink.needs_read(&file.source_id, &file.fingerprint)));
}

/// Files to read by their path below the root.
type PendingFiles = BTreeMap<Vec<u8>, PendingFile>;

#[async_trait]
impl Connector for GitConnector {
    async fn pull(&self, cursor: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError> {
        let mut mirror = self.mirror().await?;
        let head = mirror.head(self.branch.as_deref()).await?;
        if head == Head::Empty {
            // The repository was emptied, or another server answers: the documents stay.
            return match cursor {
                Some(_) => Err(mirror.source_error("it has no commits any more")),
                None => Ok(PullResult { cursor: None, listing: Listing::Partial }),
            };
        }
        mirror.update(&head).await?;
        let snapshot = self.snapshot(&mut mirror, &head).await?;
        let files = self
            .list_pending_files(&mirror, &head, &snapshot, sink)
            .await
            .map_err(|error| self.discard_damaged(&mirror, &error))?;
        if !files.is_empty() {
            let before = self.resumable_commit(&mirror, cursor, &snapshot).await;
            let history = self
                .read_history(&mirror, before, &snapshot, &files)
                .await
                .map_err(|error| self.discard_damaged(&mirror, &error))?;
            self.fetch_missing(&mut mirror, &head, &files).await?;
            self.send_files(&mirror, &head, files, history, sink).await?;
        }
        let cursor = Cursor(format!("{} {}", snapshot.commit, self.settings_stamp));
        Ok(PullResult { cursor: Some(cursor), listing: Listing::Complete })
    }

    async fn check(&self) -> Result<(), SourceError> {
        self.mirror().await?.check(self.branch.as_deref()).await
    }

    fn admits_secret(&self, source_id: &str) -> bool {
        self.globs.admits_secret(source_id)
    }
}

impl GitConnector {
    async fn mirror(&self) -> Result<Mirror<'_>, SourceError> {
        Mirror::new(&self.cache, &self.address, self.shallow, self.user_overrides).await
    }

    /// The snapshot at the tip. It was listed completely once, so that damage is noticed before any file is reported.
    async fn snapshot(&self, mirror: &mut Mirror<'_>, head: &Head) -> Result<Snapshot, SourceError> {
        match self.verified_snapshot(mirror).await {
            Err(SnapshotError::Damaged(error)) => {
                tracing::warn!(
                    repository = self.address.display_url,
                    reason = error.describe(),
                    "the local clone is unusable; cloning again"
                );
                mirror.recreate(head).await?;
            }
            Err(SnapshotError::MissingFolder) => return Err(self.missing_folder_error(mirror)),
            Ok(snapshot) => return Ok(snapshot),
        }
        self.verified_snapshot(mirror).await.map_err(|reason| match reason {
            SnapshotError::MissingFolder => self.missing_folder_error(mirror),
            SnapshotError::Damaged(error) => mirror.to_source_error(&error),
        })
    }

    async fn verified_snapshot(&self, mirror: &Mirror<'_>) -> Result<Snapshot, SnapshotError> {
        let snapshot = mirror.snapshot(&self.root).await?;
        cat_file::list_files(&mirror.program, &snapshot.tree, |_| ()).await?;
        Ok(snapshot)
    }

    fn missing_folder_error(&self, mirror: &Mirror<'_>) -> SourceError {
        mirror.source_error(&format!("it has no folder `{}`", self.root))
    }

    /// Discards a mirror that turns out to be damaged during a sync. No document is deleted; the next sync creates
    /// another mirror.
    fn discard_damaged(&self, mirror: &Mirror<'_>, error: &GitError) -> SourceError {
        let _ = mirror.discard();
        mirror.source_error(&format!(
            "its local clone was damaged and has been removed; sync again ({})",
            error.describe()
        ))
    }

    /// Reports every file to the sink, and returns those that must be read.
    async fn list_pending_files(
        &self,
        mirror: &Mirror<'_>,
        head: &Head,
        snapshot: &Snapshot,
        sink: &Sink,
    ) -> Result<PendingFiles, GitError> {
        let mut files = PendingFiles::new();
        let mut page = Vec::with_capacity(PREFETCH_PAGE);
        let mut total = 0;
        // Documents contain the repository and the branch, so fingerprints cover both.
        let location_hash = format!("{}\n{}", self.address.display_url, head.name());
        let location_hash = &blake3::hash(location_hash.as_bytes()).to_hex()[..8];
        cat_file::list_files(&mirror.program, &snapshot.tree, |entry| {
            if self.own_files.contains(&self.full_path(entry.path)) {
                return;
            }
            let source_id = names::source_id(entry.path);
            match self.globs.select(&source_id) {
                Selection::Read => {}
                Selection::Secret => return sink.leave_out_secret_file(),
                Selection::Skip => return,
            }
            total += 1;
            let fingerprint = format!("{}:{}:{location_hash}", entry.id, entry.mode);
            page.push((entry.path.to_vec(), PendingFile { source_id, id: entry.id.to_owned(), fingerprint }));
            if page.len() == PREFETCH_PAGE {
                move_changed(&mut page, &mut files, sink);
            }
        })
        .await?;
        move_changed(&mut page, &mut files, sink);
        sink.set_total(total);
        Ok(files)
    }

    /// The commit of the last sync, if the history since then suffices: settings are the same and the commit is an
    /// ancestor.
    async fn resumable_commit<'c>(
        &self,
        mirror: &Mirror<'_>,
        cursor: Option<&'c Cursor>,
        snapshot: &Snapshot,
    ) -> Option<&'c str> {
        let (commit, stamp) = cursor?.0.split_once(' ')?;
        let is_commit = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        let usable =
            is_commit && stamp == self.settings_stamp && mirror.is_ancestor(commit, &snapshot.commit).await;
        usable.then_some(commit)
    }

    async fn read_history(
        &self,
        mirror: &Mirror<'_>,
        before: Option<&str>,
        snapshot: &Snapshot,
        files: &PendingFiles,
    ) -> Result<HistoryByPath, GitError> {
        let unknown = || files.keys().map(|path| (self.full_path(path), None)).collect::<HistoryByPath>();
        let mut history = unknown();
        history::read(&mirror.program, &snapshot.commit, before, &self.root, &mut history).await?;
        if before.is_some() && history.values().any(Option::is_none) {
            // A file is read for another reason than a new commit: walk the whole history.
            history = unknown();
            history::read(&mirror.program, &snapshot.commit, None, &self.root, &mut history).await?;
        }
        Ok(history)
    }

    async fn fetch_missing(
        &self,
        mirror: &mut Mirror<'_>,
        head: &Head,
        files: &PendingFiles,
    ) -> Result<(), SourceError> {
        if !mirror.is_partial {
            return Ok(());
        }
        let missing = async {
            let mut missing = BTreeSet::new();
            let mut sizes = CatFileProcess::start_for_sizes(&mirror.program)?;
            for file in files.values() {
                if sizes.size(&file.id).await?.is_none() {
                    missing.insert(file.id.clone());
                }
            }
            sizes.finish().await.map(|()| missing)
        };
        let missing = missing.await.map_err(|error| self.discard_damaged(mirror, &error))?;
        mirror.fetch_contents(&missing, head).await
    }

    /// Sends the files, one at a time.
    async fn send_files(
        &self,
        mirror: &Mirror<'_>,
        head: &Head,
        files: PendingFiles,
        mut history: HistoryByPath,
        sink: &Sink,
    ) -> Result<(), SourceError> {
        let discard_damaged = |error: GitError| self.discard_damaged(mirror, &error);
        let mut sizes = CatFileProcess::start_for_sizes(&mirror.program).map_err(discard_damaged)?;
        let mut contents = CatFileProcess::start_for_contents(&mirror.program).map_err(discard_damaged)?;
        for (path, file) in files {
            let full_path = self.full_path(&path);
            let file_history = history.remove(&full_path).flatten();
            let size = sizes.size(&file.id).await.map_err(discard_damaged)?.unwrap_or(0);
            let content = if size > self.document_bytes_max {
                Err(names::too_large_reason(size, self.document_bytes_max))
            } else {
                match contents.content(&file.id).await.map_err(discard_damaged)? {
                    None => Err("the repository does not have its content".to_owned()),
                    Some(bytes) if bytes.starts_with(LFS_POINTER) => {
                        Err("it is in Git LFS; the repository has only a pointer to it".to_owned())
                    }
                    Some(bytes) => Ok(bytes),
                }
            };
            let change = match content {
                Ok(bytes) => {
                    Change::Upsert(Box::new(self.document(file, head, &full_path, bytes, file_history)))
                }
                Err(reason) => Change::Unreadable { source_id: file.source_id, reason },
            };
            sink.send(change).await?;
        }
        contents.finish().await.map_err(discard_damaged)?;
        sizes.finish().await.map_err(discard_damaged)
    }

    fn document(
        &self,
        file: PendingFile,
        head: &Head,
        full_path: &[u8],
        bytes: Vec<u8>,
        history: Option<FileHistory>,
    ) -> Document {
        let mut metadata = Map::new();
        metadata.insert("repository".to_owned(), json!(self.address.display_url));
        metadata.insert("branch".to_owned(), json!(head.name()));
        if let Some(history) = &history {
            metadata.insert("commit".to_owned(), json!(history.commit));
        }
        Document {
            source_id: file.source_id,
            source_url: self.address.web_url(head.name(), full_path),
            title: None,
            created_at: history.as_ref().map(|history| history.created_at),
            updated_at: history.as_ref().map(|history| history.updated_at),
            author: history.map(|history| history.author).filter(|author| !author.is_empty()),
            content_type: None,
            content: DocumentContent::Bytes(bytes),
            metadata,
            tags: Vec::new(),
            fingerprint: Some(file.fingerprint),
        }
    }

    fn full_path(&self, path: &[u8]) -> Vec<u8> {
        if self.root.is_empty() { path.to_vec() } else { [self.root.as_bytes(), b"/", path].concat() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_names_are_what_git_allows() {
        for name in ["main", "feature/x", "v1.0", "Ünicode", "a@b"] {
            assert!(is_branch_name(name), "{name}");
        }
        for name in
            ["", "-x", "--upload-pack=x", "a b", "a:b", "a*", "a..b", "/a", "a/", "a\n", "a@{1}", "a~1"]
        {
            assert!(!is_branch_name(name), "{name}");
        }
    }
}
