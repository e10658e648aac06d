//! The git connector: files of a repository, at the tip of a branch.
//!
//! The `git` program fetches into a bare mirror in the source's cache, with the user's own keys and credential
//! helpers. A file is read again only if its blob changed.

mod address;
mod history;
mod mirror;
mod objects;
mod own_files;
mod program;
mod reach;
mod user_config;

use super::globs::{GlobSettings, Globs, Selection};
use super::{ConnectorKind, OpenOptions, Opened, names};
use address::Address;
use async_trait::async_trait;
use ctx_core::{Change, Connector, Content, Cursor, Document, Listing, Pulled, Sink, SourceError};
use history::{Dates, History};
use mirror::{Head, Mirror, NoSnapshot, Snapshot};
use objects::Objects;
use own_files::OwnFiles;
use program::{Failure, UserOverrides};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Files per prefetch of stored stamps.
const PREFETCHED: usize = 256;
pub(super) const KIND: ConnectorKind = ConnectorKind {
    name: "git",
    summary: "files of a git repository",
    schema: ctx_core::json_schema::<Settings>,
    open,
};

/// First line of a Git LFS pointer, which replaces the content of a large file.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
/// Environment variables that set the user's own ssh command.
const OWN_SSH: [&str; 2] = ["GIT_SSH_COMMAND", "GIT_SSH"];
/// Environment variables that set a proxy, as libcurl reads them.
const OWN_PROXY: [&str; 5] = ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];

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

struct Git {
    address: Address,
    branch: Option<String>,
    /// Without leading and trailing slashes.
    root: String,
    globs: Globs,
    shallow: bool,
    cache: PathBuf,
    own: UserOverrides,
    document_bytes_max: u64,
    own_files: OwnFiles,
    /// Hash of the settings, part of the cursor: with other settings, other files may need their history.
    settings_stamp: String,
}

fn open(settings: &Value, options: OpenOptions<'_>) -> Opened {
    let settings: Settings = serde_json::from_value(settings.clone()).map_err(|error| error.to_string())?;
    let address = Address::parse(&settings.url, options.workspace_root)?;
    if let Some(branch) = settings.branch.as_deref().filter(|branch| !is_branch_name(branch)) {
        return Err(format!("branch: `{branch}` cannot be the name of one"));
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
    let stamp = format!("{:?}", (&address.shown, &settings.branch, &parts, globs));
    Ok(Arc::new(Git {
        root: parts.join("/"),
        globs: Globs::new(globs)?,
        own_files: OwnFiles::find(&address, options.workspace_root, options.own_files),
        address,
        branch: settings.branch,
        shallow: settings.shallow,
        cache: options.cache.join("repository.git"),
        own: UserOverrides {
            has_ssh: OWN_SSH.iter().any(|name| (options.environment)(name).is_some()),
            has_proxy: OWN_PROXY
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
struct Wanted {
    source_id: String,
    id: String,
    fingerprint: String,
}

/// Moves the files of a page that must be read to `files`; drops the others.
fn keep_wanted(page: &mut Vec<(Vec<u8>, Wanted)>, files: &mut Files, sink: &Sink) {
    sink.prefetch(&page.iter().map(|(_, file)| file.source_id.as_str()).collect::<Vec<_>>());
    files.extend(page.drain(..).filter(|(_, file)| sink.wants(&file.source_id, &file.fingerprint)));
}

/// Files to read by their path below the root.
type Files = BTreeMap<Vec<u8>, Wanted>;

#[async_trait]
impl Connector for Git {
    async fn pull(&self, cursor: Option<&Cursor>, sink: &Sink) -> Result<Pulled, SourceError> {
        let mut mirror = self.mirror().await?;
        let head = mirror.head(self.branch.as_deref()).await?;
        if head == Head::Empty {
            // The repository was emptied, or another server answers: the documents stay.
            return match cursor {
                Some(_) => Err(mirror.refused("it has no commits any more")),
                None => Ok(Pulled { cursor: None, listing: Listing::Partial }),
            };
        }
        mirror.update(&head).await?;
        let snapshot = self.snapshot(&mut mirror, &head).await?;
        let files = self
            .wanted(&mirror, &head, &snapshot, sink)
            .await
            .map_err(|failure| self.damaged(&mirror, &failure))?;
        if !files.is_empty() {
            let before = self.resume(&mirror, cursor, &snapshot).await;
            let history = self
                .history(&mirror, before, &snapshot, &files)
                .await
                .map_err(|failure| self.damaged(&mirror, &failure))?;
            self.fetch_missing(&mut mirror, &head, &files).await?;
            self.send(&mirror, &head, files, history, sink).await?;
        }
        let cursor = Cursor(format!("{} {}", snapshot.commit, self.settings_stamp));
        Ok(Pulled { cursor: Some(cursor), listing: Listing::Complete })
    }

    async fn check(&self) -> Result<(), SourceError> {
        self.mirror().await?.check(self.branch.as_deref()).await
    }

    fn admits_secret(&self, source_id: &str) -> bool {
        self.globs.admits_secret(source_id)
    }
}

impl Git {
    async fn mirror(&self) -> Result<Mirror<'_>, SourceError> {
        Mirror::new(&self.cache, &self.address, self.shallow, self.own).await
    }

    /// The snapshot at the tip. It was listed completely once, so that damage is noticed before any file is reported.
    async fn snapshot(&self, mirror: &mut Mirror<'_>, head: &Head) -> Result<Snapshot, SourceError> {
        match self.listed(mirror).await {
            Err(NoSnapshot::Damaged(failure)) => {
                tracing::warn!(
                    repository = self.address.shown,
                    reason = failure.text(),
                    "the copy is made anew"
                );
                mirror.renew(head).await?;
            }
            Err(NoSnapshot::NoFolder) => return Err(self.no_folder(mirror)),
            Ok(snapshot) => return Ok(snapshot),
        }
        self.listed(mirror).await.map_err(|reason| match reason {
            NoSnapshot::NoFolder => self.no_folder(mirror),
            NoSnapshot::Damaged(failure) => mirror.unavailable(&failure),
        })
    }

    async fn listed(&self, mirror: &Mirror<'_>) -> Result<Snapshot, NoSnapshot> {
        let snapshot = mirror.snapshot(&self.root).await?;
        objects::list(&mirror.program, &snapshot.tree, |_| ()).await?;
        Ok(snapshot)
    }

    fn no_folder(&self, mirror: &Mirror<'_>) -> SourceError {
        mirror.refused(&format!("it has no folder `{}`", self.root))
    }

    /// Discards a mirror that turns out to be damaged during a sync. No document is deleted; the next sync creates
    /// another mirror.
    fn damaged(&self, mirror: &Mirror<'_>, failure: &Failure) -> SourceError {
        let _ = mirror.discard();
        mirror.refused(&format!(
            "the copy of it was damaged and has been removed; sync again ({})",
            failure.text()
        ))
    }

    /// Reports every file to the sink, and returns those that must be read.
    async fn wanted(
        &self,
        mirror: &Mirror<'_>,
        head: &Head,
        snapshot: &Snapshot,
        sink: &Sink,
    ) -> Result<Files, Failure> {
        let mut files = Files::new();
        let mut page = Vec::with_capacity(PREFETCHED);
        let mut total = 0;
        // Documents contain the repository and the branch, so fingerprints cover both.
        let place = format!("{}\n{}", self.address.shown, head.name());
        let place = &blake3::hash(place.as_bytes()).to_hex()[..8];
        objects::list(&mirror.program, &snapshot.tree, |entry| {
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
            let fingerprint = format!("{}:{}:{place}", entry.id, entry.mode);
            page.push((entry.path.to_vec(), Wanted { source_id, id: entry.id.to_owned(), fingerprint }));
            if page.len() == PREFETCHED {
                keep_wanted(&mut page, &mut files, sink);
            }
        })
        .await?;
        keep_wanted(&mut page, &mut files, sink);
        sink.expect(total);
        Ok(files)
    }

    /// The commit of the last sync, if the history since then suffices: settings are the same and the commit is an
    /// ancestor.
    async fn resume<'c>(
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

    async fn history(
        &self,
        mirror: &Mirror<'_>,
        before: Option<&str>,
        snapshot: &Snapshot,
        files: &Files,
    ) -> Result<History, Failure> {
        let unknown = || files.keys().map(|path| (self.full_path(path), None)).collect::<History>();
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
        files: &Files,
    ) -> Result<(), SourceError> {
        if !mirror.partial {
            return Ok(());
        }
        let missing = async {
            let mut missing = BTreeSet::new();
            let mut sizes = Objects::sizes(&mirror.program)?;
            for wanted in files.values() {
                if sizes.size(&wanted.id).await?.is_none() {
                    missing.insert(wanted.id.clone());
                }
            }
            sizes.finish().await.map(|()| missing)
        };
        let missing = missing.await.map_err(|failure| self.damaged(mirror, &failure))?;
        mirror.fetch_contents(&missing, head).await
    }

    /// Sends the files, one at a time.
    async fn send(
        &self,
        mirror: &Mirror<'_>,
        head: &Head,
        files: Files,
        mut history: History,
        sink: &Sink,
    ) -> Result<(), SourceError> {
        let damaged = |failure: Failure| self.damaged(mirror, &failure);
        let mut sizes = Objects::sizes(&mirror.program).map_err(damaged)?;
        let mut contents = Objects::contents(&mirror.program).map_err(damaged)?;
        for (path, wanted) in files {
            let full_path = self.full_path(&path);
            let dates = history.remove(&full_path).flatten();
            let size = sizes.size(&wanted.id).await.map_err(damaged)?.unwrap_or(0);
            let read = if size > self.document_bytes_max {
                Err(names::too_large(size, self.document_bytes_max))
            } else {
                match contents.content(&wanted.id).await.map_err(damaged)? {
                    None => Err("the repository does not have its content".to_owned()),
                    Some(bytes) if bytes.starts_with(LFS_POINTER) => {
                        Err("it is in Git LFS; the repository has only a pointer to it".to_owned())
                    }
                    Some(bytes) => Ok(bytes),
                }
            };
            let change = match read {
                Ok(bytes) => Change::Upsert(Box::new(self.document(wanted, head, &full_path, bytes, dates))),
                Err(reason) => Change::Unreadable { source_id: wanted.source_id, reason },
            };
            sink.send(change).await?;
        }
        contents.finish().await.map_err(damaged)?;
        sizes.finish().await.map_err(damaged)
    }

    fn document(
        &self,
        wanted: Wanted,
        head: &Head,
        full_path: &[u8],
        bytes: Vec<u8>,
        dates: Option<Dates>,
    ) -> Document {
        let mut metadata = Map::new();
        metadata.insert("repository".to_owned(), json!(self.address.shown));
        metadata.insert("branch".to_owned(), json!(head.name()));
        if let Some(dates) = &dates {
            metadata.insert("commit".to_owned(), json!(dates.commit));
        }
        Document {
            source_id: wanted.source_id,
            source_url: self.address.web_url(head.name(), full_path),
            title: None,
            created_at: dates.as_ref().map(|dates| dates.created_at),
            updated_at: dates.as_ref().map(|dates| dates.updated_at),
            author: dates.map(|dates| dates.author).filter(|author| !author.is_empty()),
            content_type: None,
            content: Content::Bytes(bytes),
            metadata,
            tags: Vec::new(),
            fingerprint: Some(wanted.fingerprint),
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
