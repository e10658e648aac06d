//! The filesystem connector: files below a folder.
//!
//! Honours ignore files, never follows a symbolic link out of the root, and reports files that it cannot read. A file
//! is read again only if its size, times or inode changed.

use super::globs::{GlobSettings, Globs, Selection};
use super::{ConnectorKind, ConnectorResult, OpenOptions, folder_watcher, names};
use async_trait::async_trait;
use ctx_core::{
    Change, Connector, Cursor, Document, DocumentContent, Listing, PullResult, Sink, SinkClosed, SourceError,
    Watcher,
};
use folder_watcher::WatchTiming;
use ignore::{DirEntry, WalkBuilder};
use jiff::Timestamp;
use notify::RecommendedWatcher;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(super) const KIND: ConnectorKind = ConnectorKind {
    name: "filesystem",
    summary: "files below a folder",
    schema: ctx_core::json_schema::<Settings>,
    open,
};

/// A file modified more recently may change again without a new modification time.
const SETTLE_TIME: Duration = Duration::from_millis(50);
/// Like [`SETTLE_TIME`], where timestamps are whole seconds.
const SETTLE_TIME_COARSE: Duration = Duration::from_secs(2);
/// Entries listed before the first file is read; no total is announced for a larger tree.
const COUNTED_ENTRIES_MAX: usize = 1 << 16;
/// Files per prefetch of stored stamps.
const PREFETCH_PAGE: usize = 256;

/// Settings of `[connectors.filesystem.<name>]`.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
struct Settings {
    /// The folder, relative to the workspace.
    root: PathBuf,
    /// Which files are read; all when there is none.
    #[serde(default)]
    include_globs: Vec<String>,
    /// Which of those are not.
    #[serde(default)]
    exclude_globs: Vec<String>,
    /// Files that usually hold secrets (private keys, `.env` …) are never read, except those that these globs match,
    /// whatever `include_globs` says.
    #[serde(default)]
    include_sensitive_globs: Vec<String>,
    /// Whether to follow symbolic links that stay inside the folder.
    #[serde(default)]
    follow_symlinks: bool,
}

/// Files with the patterns of other files that are not read.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

#[derive(Clone)]
pub(super) struct FilesystemConnector {
    root: PathBuf,
    /// The workspace folder, if the root was inside it at startup. The root must then stay inside: a folder replaced
    /// by a symlink later must not lead out.
    confined_to: Option<PathBuf>,
    /// The root as configured; messages show no other path.
    pub(super) display_root: PathBuf,
    globs: Globs,
    follow_symlinks: bool,
    document_bytes_max: u64,
    own_files: Vec<PathBuf>,
}

fn open(settings: &Value, options: OpenOptions<'_>) -> ConnectorResult {
    Ok(Arc::new(open_filesystem(settings, options)?))
}

pub(super) fn open_filesystem(
    settings: &Value,
    options: OpenOptions<'_>,
) -> Result<FilesystemConnector, String> {
    let settings: Settings = serde_json::from_value(settings.clone()).map_err(|error| error.to_string())?;
    if settings.root.starts_with("~") {
        return Err("root: `~` is not expanded; write `${HOME}`".to_owned());
    }
    let root = options.workspace_root.join(&settings.root);
    let workspace = fs::canonicalize(options.workspace_root).ok();
    let is_descending =
        settings.root.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let confined_to = workspace.filter(|workspace| match fs::canonicalize(&root) {
        Ok(root) => root.starts_with(workspace),
        Err(_) => is_descending,
    });
    Ok(FilesystemConnector {
        root,
        confined_to,
        display_root: settings.root,
        globs: Globs::new(GlobSettings {
            include: &settings.include_globs,
            exclude: &settings.exclude_globs,
            include_sensitive_globs: &settings.include_sensitive_globs,
        })?,
        follow_symlinks: settings.follow_symlinks,
        document_bytes_max: options.document_bytes_max,
        own_files: options.own_files.to_vec(),
    })
}

#[async_trait]
impl Connector for FilesystemConnector {
    async fn pull(&self, _cursor: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError> {
        let (filesystem, sink) = (self.clone(), sink.clone());
        tokio::task::spawn_blocking(move || filesystem.walk(&sink))
            .await
            .unwrap_or_else(|_| Err(SourceError::Unavailable("reading the folder panicked".to_owned())))
    }

    async fn check(&self) -> Result<(), SourceError> {
        // On a blocking thread: a folder on an unreachable network drive blocks.
        let filesystem = self.clone();
        tokio::task::spawn_blocking(move || filesystem.canonical_root().map(drop))
            .await
            .unwrap_or_else(|_| Err(SourceError::Unavailable("reading the folder panicked".to_owned())))
    }

    fn admits_secret(&self, source_id: &str) -> bool {
        self.globs.admits_secret(source_id)
    }

    fn watcher(&self) -> Option<Watcher> {
        let filesystem = self.clone();
        Some(Box::new(move |signal| {
            folder_watcher::run::<RecommendedWatcher>(&filesystem, WatchTiming::default(), signal)
        }))
    }
}

impl FilesystemConnector {
    fn walk(&self, sink: &Sink) -> Result<PullResult, SourceError> {
        let root = self.canonical_root()?;
        let mut listing = Listing::Complete;
        let mut walk = self.walk_builder(&root).sort_by_file_path(Path::cmp).build();
        // Listed first, to announce the number of files before the first is read.
        let first_entries: Vec<_> = walk.by_ref().take(COUNTED_ENTRIES_MAX).collect();
        if first_entries.len() < COUNTED_ENTRIES_MAX {
            let is_file_to_read = |entry: &&DirEntry| self.is_selected(&root, entry);
            sink.set_total(first_entries.iter().flatten().filter(is_file_to_read).count() as u64);
        }
        let mut secret_files = Vec::new();
        let mut entries = first_entries.into_iter().chain(walk);
        loop {
            let page: Vec<_> = entries.by_ref().take(PREFETCH_PAGE).collect();
            if page.is_empty() {
                break;
            }
            self.prefetch(&root, &page, sink);
            for entry in page {
                match entry {
                    Ok(entry) => self.process_entry(&root, &entry, sink, &mut secret_files)?,
                    // A cycle of symbolic links, a dangling link, or a file that is gone.
                    Err(error)
                        if is_symlink_loop(&error)
                            || is_not_found(&error)
                            || is_unresolvable_link(&error) => {}
                    Err(error) => {
                        // A folder that cannot be listed may contain any file: nothing counts as deleted.
                        listing = Listing::Partial;
                        sink.send_blocking(Change::Unreadable {
                            source_id: error_path(&error, &root),
                            reason: error_reason(&error),
                        })?;
                    }
                }
            }
        }
        if listing == Listing::Partial {
            // A partial listing deletes nothing, but files indexed before they counted as secret must go now.
            for source_id in secret_files {
                sink.send_blocking(Change::Delete { source_id })?;
            }
        }
        Ok(PullResult { cursor: None, listing })
    }

    /// Prefetches the stored stamps of these files.
    fn prefetch(&self, root: &Path, entries: &[Result<DirEntry, ignore::Error>], sink: &Sink) {
        let files = entries.iter().flatten().filter(|entry| self.is_selected(root, entry));
        let relative = files.filter_map(|entry| entry.path().strip_prefix(root).ok());
        let names: Vec<String> = relative.map(source_id).collect();
        sink.prefetch(&names.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Walks everything below the root that may be read.
    fn walk_builder(&self, root: &Path) -> WalkBuilder {
        let mut builder = WalkBuilder::new(root);
        // Ignore files apply even outside of repositories, and the user's global ones never, so that two machines
        // index the same files. The globs decide about hidden names.
        builder.require_git(false).git_global(false).hidden(false).follow_links(self.follow_symlinks);
        let (inside, own_files, globs) = (root.to_owned(), self.own_files(), self.globs.clone());
        builder.filter_entry(move |entry| {
            let path = entry.path();
            let escapes_root = entry.path_is_symlink() && !stays_inside(path, &inside);
            let has_external_ignore = is_folder(entry) && has_external_ignore_file(path, &inside);
            let is_hidden_folder = is_folder(entry)
                && path.strip_prefix(&inside).is_ok_and(|relative| globs.hides_folder(relative));
            !(is_own_file(path, &own_files) || escapes_root || has_external_ignore || is_hidden_folder)
        });
        builder
    }

    /// Path prefixes of ctx's own files, canonicalised like the paths of a walk from a canonical root.
    pub(super) fn own_files(&self) -> Vec<PathBuf> {
        let canonical = |path: &PathBuf| Some(fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?));
        self.own_files.iter().map(|path| canonical(path).unwrap_or_else(|| path.clone())).collect()
    }

    /// The folders that may contain files to read, including the root.
    pub(super) fn folders(&self, root: &Path) -> BTreeSet<PathBuf> {
        let entries = self.walk_builder(root).build().flatten();
        entries.filter(is_folder).map(DirEntry::into_path).collect()
    }

    /// Every file and folder that a sync would visit, with its size if it would be read. Empty if the root cannot be
    /// read, which a sync reports.
    pub(super) fn sizes(&self) -> impl Iterator<Item = Option<u64>> {
        self.canonical_root().ok().into_iter().flat_map(move |root| {
            self.walk_builder(&root).build().map(move |entry| {
                let entry = entry.ok()?;
                let relative = entry.path().strip_prefix(&root).ok()?;
                if !is_file(&entry) || self.globs.select(relative) != Selection::Read {
                    return None;
                }
                let bytes = entry.metadata().ok()?.len();
                (bytes <= self.document_bytes_max).then_some(bytes)
            })
        })
    }

    /// Whether a change of this file can change the result of a sync.
    pub(super) fn affects_sync(&self, relative: &Path) -> bool {
        self.globs.select(relative) == Selection::Read
            || IGNORE_FILES.iter().any(|name| relative.ends_with(name))
    }

    pub(super) fn canonical_root(&self) -> Result<PathBuf, SourceError> {
        let unavailable = |reason: String| {
            SourceError::Unavailable(format!(
                "cannot read the folder {}: {reason}",
                self.display_root.display()
            ))
        };
        let root = fs::canonicalize(&self.root).map_err(|error| unavailable(error_text(&error)))?;
        if self.confined_to.as_ref().is_some_and(|workspace| !root.starts_with(workspace)) {
            return Err(unavailable("it now leads out of the workspace".to_owned()));
        }
        if has_external_ignore_file(&root, &root) {
            return Err(unavailable("its ignore file is a symlink to a file outside it".to_owned()));
        }
        fs::read_dir(&root).map_err(|error| unavailable(error_text(&error)))?;
        Ok(root)
    }

    fn process_entry(
        &self,
        root: &Path,
        entry: &DirEntry,
        sink: &Sink,
        secret_files: &mut Vec<String>,
    ) -> Result<(), SinkClosed> {
        let path = entry.path();
        let Ok(relative) = path.strip_prefix(root) else { return Ok(()) };
        if !is_file(entry) {
            return Ok(());
        }
        let source_id = source_id(relative);
        let selection = match self.globs.select(relative) {
            Selection::Read if self.resolves_to_secret(path, root) => Selection::Secret,
            selection => selection,
        };
        match selection {
            Selection::Read => {}
            Selection::Secret => {
                sink.leave_out_secret_file();
                secret_files.push(source_id);
                return Ok(());
            }
            Selection::Skip => return Ok(()),
        }
        match self.read(path, &source_id, sink) {
            Ok(Some(document)) => sink.send_blocking(Change::Upsert(Box::new(document))),
            Ok(None) => Ok(()),
            // Deleted since it was listed: the next listing will not have it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => sink.send_blocking(Change::Unreadable { source_id, reason: error_text(&error) }),
        }
    }

    /// Whether a file, possibly behind a symbolic link, resolves to a secret file.
    fn resolves_to_secret(&self, path: &Path, root: &Path) -> bool {
        self.follow_symlinks
            && fs::canonicalize(path).is_ok_and(|target| {
                target.strip_prefix(root).is_ok_and(|relative| self.globs.is_excluded_secret(relative))
            })
    }

    /// Whether an entry is a file that the globs select.
    fn is_selected(&self, root: &Path, entry: &DirEntry) -> bool {
        let relative = entry.path().strip_prefix(root);
        is_file(entry) && relative.is_ok_and(|relative| self.globs.select(relative) == Selection::Read)
    }

    /// Reads a document; `None` if its fingerprint is unchanged.
    fn read(&self, path: &Path, source_id: &str, sink: &Sink) -> io::Result<Option<Document>> {
        let before = fs::metadata(path)?;
        let fingerprint = fingerprint(&before);
        if !sink.needs_read(source_id, &fingerprint) {
            return Ok(None);
        }
        if before.len() > self.document_bytes_max {
            return Err(io::Error::other(names::too_large_reason(before.len(), self.document_bytes_max)));
        }
        let mut bytes = names::allocate_buffer(before.len()).map_err(io::Error::other)?;
        // Bounds a file that grows while it is read, or a device that reports a false size.
        File::open(path)?.take(self.document_bytes_max).read_to_end(&mut bytes)?;
        let settled = is_settled(&before) && fingerprint == self::fingerprint(&fs::metadata(path)?);

        let modified = before.modified().ok().and_then(timestamp);
        Ok(Some(Document {
            source_id: source_id.to_owned(),
            source_url: file_url(path),
            title: None,
            author: None,
            created_at: before.created().ok().and_then(timestamp).or(modified),
            updated_at: modified,
            content_type: None,
            content: DocumentContent::Bytes(bytes),
            metadata: Map::new(),
            tags: Vec::new(),
            fingerprint: settled.then_some(fingerprint),
        }))
    }
}

/// Whether a path begins with the path of one of ctx's own files; by bytes, so that `ctx.sqlite` covers
/// `ctx.sqlite-wal`.
pub(super) fn is_own_file(path: &Path, own_files: &[PathBuf]) -> bool {
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_owned();
    own_files.iter().any(|own| bytes(path).starts_with(&bytes(own)))
}

fn is_file(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_file())
}

fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
}

/// Whether a path resolves to something below the root.
fn stays_inside(path: &Path, root: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|target| target.starts_with(root))
}

/// Whether a folder has an ignore file that is a symlink out of the root; the walker would follow and read it.
fn has_external_ignore_file(folder: &Path, root: &Path) -> bool {
    let is_external = |name: &&&str| {
        let file = folder.join(name);
        file.is_symlink() && !stays_inside(&file, root)
    };
    let external = IGNORE_FILES.iter().find(is_external);
    if let Some(name) = external {
        tracing::warn!(
            "{} is a symlink to a file outside the folder; its folder is not read",
            folder.join(name).display()
        );
    }
    external.is_some()
}

fn fingerprint(metadata: &Metadata) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        format!(
            "{}:{}.{:09}:{}.{:09}:{}",
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
            metadata.ino()
        )
    }
    #[cfg(not(unix))]
    {
        let modified =
            metadata.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        format!("{}:{}", metadata.len(), modified.map_or(0, |since| since.as_nanos()))
    }
}

/// Whether every later change of the file will have another modification time.
fn is_settled(metadata: &Metadata) -> bool {
    let Ok(modified) = metadata.modified() else { return false };
    let coarse = modified.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since.subsec_nanos() == 0);
    let needed = if coarse { SETTLE_TIME_COARSE } else { SETTLE_TIME };
    match SystemTime::now().duration_since(modified) {
        Ok(age) => age > needed,
        // In the future: a change made now sets another time.
        Err(_) => true,
    }
}

fn timestamp(time: SystemTime) -> Option<Timestamp> {
    Timestamp::try_from(time).ok()
}

/// The `file://` URL of a path, as in documents.
pub(crate) fn file_url(path: &Path) -> Option<String> {
    Some(format!("file://{}", names::percent_encode_path(path.to_str()?.as_bytes())))
}

fn is_symlink_loop(error: &ignore::Error) -> bool {
    match error {
        ignore::Error::Loop { .. } => true,
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithPath { err, .. } => is_symlink_loop(err),
        _ => false,
    }
}

fn is_not_found(error: &ignore::Error) -> bool {
    error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Whether the error is about a symbolic link that cannot be resolved, such as one to itself.
fn is_unresolvable_link(error: &ignore::Error) -> bool {
    match error {
        ignore::Error::WithPath { path, .. } => path.is_symlink(),
        ignore::Error::WithDepth { err, .. } => is_unresolvable_link(err),
        _ => false,
    }
}

fn source_id(relative: &Path) -> String {
    let name = names::source_id(relative.as_os_str().as_encoded_bytes());
    if cfg!(windows) { name.replace('\\', "/") } else { name }
}

fn error_path(error: &ignore::Error, root: &Path) -> String {
    match error {
        ignore::Error::WithPath { path, .. } => source_id(path.strip_prefix(root).unwrap_or(path)),
        ignore::Error::WithDepth { err, .. } => error_path(err, root),
        _ => ".".to_owned(),
    }
}

fn error_reason(error: &ignore::Error) -> String {
    error.io_error().map_or_else(|| error.to_string(), |error| error_text(os_error(error)))
}

/// The error of the operating system, without the absolute path that the walker adds.
fn os_error(error: &io::Error) -> &io::Error {
    let source = error.get_ref().and_then(|wrapper| wrapper.source());
    source.and_then(|source| source.downcast_ref()).unwrap_or(error)
}

/// The text of an error, without the error number, beginning in lower case.
pub(super) fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
