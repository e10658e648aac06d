//! Watches a folder, and signals when a sync may find changes.
//!
//! Only folders that a sync would read are watched, so ignored ones cost nothing. If the system's limit on watches is
//! reached, signals are sent at a fixed interval instead (polling).

use super::filesystem::{FilesystemConnector, error_text, is_own_file};
use ctx_core::Signal;
use notify::event::{AccessKind, AccessMode, CreateKind, ModifyKind, RemoveKind, RenameMode};
use notify::{Config, ErrorKind, Event, EventKind, RecursiveMode, Watcher};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Whether the system watches folders recursively; otherwise each folder has its own watch.
const HAS_RECURSIVE_WATCHES: bool = cfg!(any(target_os = "macos", windows));
/// Maximum passes to find folders that appear while others are being watched.
const PASSES_MAX: usize = 8;
/// Git's own folder, which changes often and is never read.
const GIT_FOLDER: &str = ".git";

/// `EMFILE`: too many inotify instances or open files.
const EMFILE: i32 = 24;

/// Debounce and polling intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchTiming {
    /// A burst of changes ends after this time without a change.
    debounce: Duration,
    /// Maximum duration of a burst before a signal is sent.
    burst_max: Duration,
    /// Interval of checks whether the root was deleted or replaced.
    root_check_interval: Duration,
    /// Interval of signals if the folder cannot be watched.
    poll_interval: Duration,
}

impl Default for WatchTiming {
    fn default() -> Self {
        Self {
            debounce: Duration::from_millis(300),
            burst_max: Duration::from_secs(1),
            root_check_interval: Duration::from_secs(1),
            poll_interval: Duration::from_secs(5),
        }
    }
}

/// Watches until the receiver of the signal is dropped.
pub(super) fn run<W: Watcher>(filesystem: &FilesystemConnector, timing: WatchTiming, signal: &Signal) {
    if let Err(error) = watch::<W>(filesystem, timing, signal) {
        tracing::warn!(
            "cannot watch the folder {}: {}; polling it every {} s instead",
            filesystem.display_root.display(),
            error_reason(&error),
            timing.poll_interval.as_secs()
        );
        while signal.has_receiver() {
            signal.send();
            thread::sleep(timing.poll_interval);
        }
    }
}

fn watch<W: Watcher>(
    filesystem: &FilesystemConnector,
    timing: WatchTiming,
    signal: &Signal,
) -> notify::Result<()> {
    let filter = Arc::new(EventFilter::new(filesystem));
    let (wake_sender, wake_receiver) = sync_channel(1);
    let on_event = {
        let filter = filter.clone();
        move |event: notify::Result<Event>| {
            if filter.is_relevant(event) {
                // A full channel already has a pending wake-up.
                wake_sender.try_send(()).ok();
            }
        }
    };
    let mut watcher = W::new(on_event, Config::default())?;
    let mut watches = FolderWatches::default();
    watches.replace(&mut watcher, filesystem, &filter)?;
    signal.send();

    let mut burst: Option<Instant> = None;
    while signal.has_receiver() {
        let wait = if burst.is_some() { timing.debounce } else { timing.root_check_interval };
        match wake_receiver.recv_timeout(wait) {
            Ok(()) if burst.get_or_insert_with(Instant::now).elapsed() < timing.burst_max => continue,
            Err(RecvTimeoutError::Timeout)
                if burst.is_none() && watches.root_identity == root_identity(filesystem) =>
            {
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Err(notify::Error::generic("its watcher stopped")),
            _ => {}
        }
        burst = None;
        // Renewed before the signal: the sync reads earlier changes, and the new watches report later ones.
        if filter.has_new_folders.swap(false, Ordering::Relaxed)
            || watches.root_identity != root_identity(filesystem)
        {
            watches.replace(&mut watcher, filesystem, &filter)?;
        }
        signal.send();
    }
    Ok(())
}

/// Identity of the root folder: one that replaces it under the same name differs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RootIdentity {
    root: PathBuf,
    identity: (u64, u64),
}

fn root_identity(filesystem: &FilesystemConnector) -> Option<RootIdentity> {
    let root = filesystem.canonical_root().ok()?;
    #[cfg(unix)]
    let identity = {
        use std::os::unix::fs::MetadataExt;
        root.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok()?
    };
    #[cfg(not(unix))]
    let identity = (0, 0);
    Some(RootIdentity { root, identity })
}

/// The folders that are being watched.
#[derive(Default)]
struct FolderWatches {
    /// `None` while the root does not exist.
    root_identity: Option<RootIdentity>,
    folders: BTreeSet<PathBuf>,
}

impl FolderWatches {
    /// Replaces all watches by watches of the present folders. No watch is kept: a folder of the same name may be a
    /// new one.
    fn replace(
        &mut self,
        watcher: &mut impl Watcher,
        filesystem: &FilesystemConnector,
        filter: &EventFilter,
    ) -> notify::Result<()> {
        self.root_identity = root_identity(filesystem);
        filter.set_root(self.root_identity.as_ref().map(|root_identity| root_identity.root.clone()));
        for folder in std::mem::take(&mut self.folders) {
            // Fails for a deleted folder, whose watch has ended.
            watcher.unwatch(&folder).ok();
        }
        let Some(root_identity) = &self.root_identity else { return Ok(()) };
        if HAS_RECURSIVE_WATCHES {
            self.folders.insert(root_identity.root.clone());
            return watcher.watch(&root_identity.root, RecursiveMode::Recursive);
        }
        for _ in 0..PASSES_MAX {
            let present = filesystem.folders(&root_identity.root);
            let new_folders: Vec<PathBuf> = present.difference(&self.folders).cloned().collect();
            if new_folders.is_empty() {
                break;
            }
            for folder in new_folders {
                match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                    Err(error) if !is_unreadable(&error) => return Err(error),
                    _ => self.folders.insert(folder),
                };
            }
        }
        Ok(())
    }
}

/// Decides which file system events can affect a sync.
struct EventFilter {
    filesystem: FilesystemConnector,
    own_files: Vec<PathBuf>,
    root: Mutex<Option<PathBuf>>,
    /// Set when there may be folders without a watch.
    has_new_folders: AtomicBool,
}

impl EventFilter {
    fn new(filesystem: &FilesystemConnector) -> Self {
        Self {
            filesystem: filesystem.clone(),
            own_files: filesystem.own_files(),
            root: Mutex::default(),
            has_new_folders: AtomicBool::new(false),
        }
    }

    fn set_root(&self, root: Option<PathBuf>) {
        *self.root.lock().unwrap_or_else(PoisonError::into_inner) = root;
    }

    /// Whether a sync may find something new after this event.
    fn is_relevant(&self, event: notify::Result<Event>) -> bool {
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            // Events were lost.
            _ => {
                self.has_new_folders.store(true, Ordering::Relaxed);
                return true;
            }
        };
        let is_read =
            |kind| matches!(kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write));
        // Our own reads cause such events too.
        if is_read(event.kind) {
            return false;
        }
        let root = self.root.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let relative = |path: &Path| Some(path.strip_prefix(root.as_ref()?).ok()?.to_owned());
        let is_ignored = |path: &&PathBuf| {
            is_own_file(path, &self.own_files)
                || relative(path)
                    .is_some_and(|path| path.components().any(|part| part.as_os_str() == GIT_FOLDER))
        };
        let relevant_paths: Vec<&PathBuf> = event.paths.iter().filter(|path| !is_ignored(path)).collect();
        if relevant_paths.is_empty() {
            return false;
        }
        if may_change_folders(event.kind, &relevant_paths) {
            self.has_new_folders.store(true, Ordering::Relaxed);
            return true;
        }
        // A path that was moved away may have been a folder, which can no longer be checked.
        matches!(event.kind, EventKind::Modify(ModifyKind::Name(_)))
            || relevant_paths
                .iter()
                .any(|path| relative(path).is_none_or(|path| self.filesystem.affects_sync(&path)))
    }
}

/// Whether folders may have been added, removed or replaced.
fn may_change_folders(kind: EventKind, paths: &[&PathBuf]) -> bool {
    match kind {
        EventKind::Create(CreateKind::File) | EventKind::Remove(RemoveKind::File) => false,
        EventKind::Access(_) | EventKind::Modify(ModifyKind::Data(_)) => false,
        // A folder that was moved away leaves none without a watch.
        EventKind::Modify(ModifyKind::Name(RenameMode::From)) => false,
        EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Metadata(_)) => {
            paths.iter().any(|path| path.is_dir())
        }
        _ => true,
    }
}

/// Whether a folder was deleted meanwhile or may not be read, which a sync reports.
fn is_unreadable(error: &notify::Error) -> bool {
    match &error.kind {
        ErrorKind::PathNotFound => true,
        ErrorKind::Io(error) => {
            matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
            )
        }
        _ => false,
    }
}

fn error_reason(error: &notify::Error) -> String {
    match &error.kind {
        ErrorKind::MaxFilesWatch => {
            "the system's limit on watches is reached (fs.inotify.max_user_watches)".to_owned()
        }
        ErrorKind::Io(error) if error.raw_os_error() == Some(EMFILE) => {
            "there are too many watchers (fs.inotify.max_user_instances) or open files".to_owned()
        }
        ErrorKind::Io(error) => error_text(error),
        ErrorKind::Generic(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connectors::OpenOptions;
    use crate::connectors::filesystem::open_filesystem;
    use ctx_core::Watch;
    use notify::event::{DataChange, MetadataKind};
    use notify::{EventHandler, WatcherKind};
    use serde_json::json;
    use std::fs;
    use tempfile::TempDir;

    /// A watcher that is at the system's limit of watches.
    struct ExhaustedWatcher;

    impl Watcher for ExhaustedWatcher {
        fn new<F: EventHandler>(_: F, _: Config) -> notify::Result<Self> {
            Ok(Self)
        }
        fn watch(&mut self, _: &Path, _: RecursiveMode) -> notify::Result<()> {
            Err(notify::Error::new(ErrorKind::MaxFilesWatch))
        }
        fn unwatch(&mut self, _: &Path) -> notify::Result<()> {
            Ok(())
        }
        fn kind() -> WatcherKind {
            WatcherKind::NullWatcher
        }
    }

    fn filesystem(folder: &TempDir) -> FilesystemConnector {
        let own_files = [folder.path().join("ctx.sqlite")];
        let options = OpenOptions {
            workspace_root: folder.path(),
            cache: folder.path(),
            environment: &|_| None,
            document_bytes_max: 1_000,
            own_files: &own_files,
        };
        open_filesystem(&json!({"root": ".", "include_globs": ["**/*.md"]}), options).unwrap()
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_watched_is_polled() {
        let folder = tempfile::tempdir().unwrap();
        let filesystem = filesystem(&folder);
        let (signal, mut watch) = Watch::channel();
        let timing = WatchTiming { poll_interval: Duration::from_millis(1), ..WatchTiming::default() };
        let watching = thread::spawn(move || run::<ExhaustedWatcher>(&filesystem, timing, &signal));
        for _ in 0..3 {
            assert!(watch.changed().await);
        }
        drop(watch);
        watching.join().unwrap();
    }

    #[test]
    fn only_events_that_can_affect_a_sync_are_relevant() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("new")).unwrap();
        let filesystem = filesystem(&folder);
        let filter = EventFilter::new(&filesystem);
        let root = filesystem.canonical_root().unwrap();
        filter.set_root(Some(root.clone()));
        let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let created = EventKind::Create(CreateKind::File);
        let renamed = |mode| EventKind::Modify(ModifyKind::Name(mode));
        for (kind, path, expected, folders) in [
            (written, "a.md", true, false),
            (created, "deep/down/a.md", true, false),
            (EventKind::Remove(RemoveKind::File), "a.md", true, false),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), "a.md", true, false),
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), "a.md", false, false),
            (written, "server.log", false, false),
            (written, "deep/.gitignore", true, false),
            (written, "ctx.sqlite", false, false),
            (written, "ctx.sqlite-wal", false, false),
            (EventKind::Create(CreateKind::Folder), ".git/objects/00", false, false),
            (EventKind::Create(CreateKind::Folder), "new", true, true),
            (EventKind::Remove(RemoveKind::Folder), "old", true, true),
            (EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any)), "new", true, true),
            (renamed(RenameMode::From), "old", true, false),
            (renamed(RenameMode::To), "new", true, true),
            (renamed(RenameMode::To), "b.md", true, false),
        ] {
            let is_relevant = filter.is_relevant(Ok(Event::new(kind).add_path(root.join(path))));
            let effect = (is_relevant, filter.has_new_folders.swap(false, Ordering::Relaxed));
            assert_eq!(effect, (expected, folders), "{kind:?} {path}");
        }
        assert!(filter.is_relevant(Err(notify::Error::generic("overflow"))));
        assert!(filter.has_new_folders.load(Ordering::Relaxed));
    }
}
