//! Watches a folder, and signals when a sync may find changes.
//!
//! Only folders that a sync would read are watched, so ignored ones cost nothing. If the system's limit on watches is
//! reached, signals are sent at a fixed interval instead (polling).

use super::filesystem::{Filesystem, is_own, plain};
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
const WATCHES_DEEPLY: bool = cfg!(any(target_os = "macos", windows));
/// Maximum passes to find folders that appear while others are being watched.
const PASSES_MAX: usize = 8;
/// Git's own folder, which changes often and is never read.
const GIT: &str = ".git";

/// `EMFILE`: too many inotify instances or open files.
const TOO_MANY: i32 = 24;

/// Debounce and polling intervals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// A burst of changes ends after this time without a change.
    quiet: Duration,
    /// Maximum duration of a burst before a signal is sent.
    longest: Duration,
    /// Interval of checks whether the root was deleted or replaced.
    look: Duration,
    /// Interval of signals if the folder cannot be watched.
    poll: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            quiet: Duration::from_millis(300),
            longest: Duration::from_secs(1),
            look: Duration::from_secs(1),
            poll: Duration::from_secs(5),
        }
    }
}

/// Watches until the receiver of the signal is dropped.
pub(super) fn run<W: Watcher>(filesystem: &Filesystem, timing: Timing, signal: &Signal) {
    if let Err(error) = watch::<W>(filesystem, timing, signal) {
        tracing::warn!(
            "the folder {} cannot be watched: {}; looking at it every {} s instead",
            filesystem.shown_root.display(),
            reason(&error),
            timing.poll.as_secs()
        );
        while signal.is_heard() {
            signal.send();
            thread::sleep(timing.poll);
        }
    }
}

fn watch<W: Watcher>(filesystem: &Filesystem, timing: Timing, signal: &Signal) -> notify::Result<()> {
    let news = Arc::new(News::new(filesystem));
    let (wake, woken) = sync_channel(1);
    let hear = {
        let news = news.clone();
        move |event: notify::Result<Event>| {
            if news.matters(event) {
                // A full channel already has a pending wake-up.
                wake.try_send(()).ok();
            }
        }
    };
    let mut watcher = W::new(hear, Config::default())?;
    let mut watched = Watched::default();
    watched.renew(&mut watcher, filesystem, &news)?;
    signal.send();

    let mut burst: Option<Instant> = None;
    while signal.is_heard() {
        let wait = if burst.is_some() { timing.quiet } else { timing.look };
        match woken.recv_timeout(wait) {
            Ok(()) if burst.get_or_insert_with(Instant::now).elapsed() < timing.longest => continue,
            Err(RecvTimeoutError::Timeout) if burst.is_none() && watched.place == place(filesystem) => {
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Err(notify::Error::generic("its watcher ended")),
            _ => {}
        }
        burst = None;
        // Renewed before the signal: the sync reads earlier changes, and the new watches report later ones.
        if news.folders.swap(false, Ordering::Relaxed) || watched.place != place(filesystem) {
            watched.renew(&mut watcher, filesystem, &news)?;
        }
        signal.send();
    }
    Ok(())
}

/// Identity of the root folder: one that replaces it under the same name differs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    root: PathBuf,
    identity: (u64, u64),
}

fn place(filesystem: &Filesystem) -> Option<Place> {
    let root = filesystem.canonical_root().ok()?;
    #[cfg(unix)]
    let identity = {
        use std::os::unix::fs::MetadataExt;
        root.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok()?
    };
    #[cfg(not(unix))]
    let identity = (0, 0);
    Some(Place { root, identity })
}

/// The folders that are being watched.
#[derive(Default)]
struct Watched {
    /// `None` while the root does not exist.
    place: Option<Place>,
    folders: BTreeSet<PathBuf>,
}

impl Watched {
    /// Replaces all watches by watches of the present folders. No watch is kept: a folder of the same name may be a
    /// new one.
    fn renew(
        &mut self,
        watcher: &mut impl Watcher,
        filesystem: &Filesystem,
        news: &News,
    ) -> notify::Result<()> {
        self.place = place(filesystem);
        news.set_root(self.place.as_ref().map(|place| place.root.clone()));
        for folder in std::mem::take(&mut self.folders) {
            // Fails for a deleted folder, whose watch has ended.
            watcher.unwatch(&folder).ok();
        }
        let Some(place) = &self.place else { return Ok(()) };
        if WATCHES_DEEPLY {
            self.folders.insert(place.root.clone());
            return watcher.watch(&place.root, RecursiveMode::Recursive);
        }
        for _ in 0..PASSES_MAX {
            let found = filesystem.folders(&place.root);
            let fresh: Vec<PathBuf> = found.difference(&self.folders).cloned().collect();
            if fresh.is_empty() {
                break;
            }
            for folder in fresh {
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
struct News {
    filesystem: Filesystem,
    own_files: Vec<PathBuf>,
    root: Mutex<Option<PathBuf>>,
    /// Set when there may be folders without a watch.
    folders: AtomicBool,
}

impl News {
    fn new(filesystem: &Filesystem) -> Self {
        Self {
            filesystem: filesystem.clone(),
            own_files: filesystem.own_files(),
            root: Mutex::default(),
            folders: AtomicBool::new(false),
        }
    }

    fn set_root(&self, root: Option<PathBuf>) {
        *self.root.lock().unwrap_or_else(PoisonError::into_inner) = root;
    }

    /// Whether a sync may find something new after this event.
    fn matters(&self, event: notify::Result<Event>) -> bool {
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            // Events were lost.
            _ => {
                self.folders.store(true, Ordering::Relaxed);
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
        let is_ours = |path: &&PathBuf| {
            is_own(path, &self.own_files)
                || relative(path).is_some_and(|path| path.components().any(|part| part.as_os_str() == GIT))
        };
        let foreign: Vec<&PathBuf> = event.paths.iter().filter(|path| !is_ours(path)).collect();
        if foreign.is_empty() {
            return false;
        }
        if concerns_folders(event.kind, &foreign) {
            self.folders.store(true, Ordering::Relaxed);
            return true;
        }
        // A path that was moved away may have been a folder, which can no longer be checked.
        matches!(event.kind, EventKind::Modify(ModifyKind::Name(_)))
            || foreign.iter().any(|path| relative(path).is_none_or(|path| self.filesystem.depends_on(&path)))
    }
}

/// Whether folders may have been added, removed or replaced.
fn concerns_folders(kind: EventKind, paths: &[&PathBuf]) -> bool {
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

fn reason(error: &notify::Error) -> String {
    match &error.kind {
        ErrorKind::MaxFilesWatch => {
            "the system's limit on watches is reached (fs.inotify.max_user_watches)".to_owned()
        }
        ErrorKind::Io(error) if error.raw_os_error() == Some(TOO_MANY) => {
            "there are too many watchers (fs.inotify.max_user_instances) or open files".to_owned()
        }
        ErrorKind::Io(error) => plain(error),
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
    struct NoMore;

    impl Watcher for NoMore {
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

    fn filesystem(folder: &TempDir) -> Filesystem {
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
    async fn a_folder_that_cannot_be_watched_is_looked_at_now_and_then() {
        let folder = tempfile::tempdir().unwrap();
        let filesystem = filesystem(&folder);
        let (signal, mut watch) = Watch::channel();
        let timing = Timing { poll: Duration::from_millis(1), ..Timing::default() };
        let watching = thread::spawn(move || run::<NoMore>(&filesystem, timing, &signal));
        for _ in 0..3 {
            assert!(watch.changed().await);
        }
        drop(watch);
        watching.join().unwrap();
    }

    #[test]
    fn only_what_can_change_what_is_read_matters() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("new")).unwrap();
        let filesystem = filesystem(&folder);
        let news = News::new(&filesystem);
        let root = filesystem.canonical_root().unwrap();
        news.set_root(Some(root.clone()));
        let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        let created = EventKind::Create(CreateKind::File);
        let renamed = |mode| EventKind::Modify(ModifyKind::Name(mode));
        for (kind, path, matters, folders) in [
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
            let told = news.matters(Ok(Event::new(kind).add_path(root.join(path))));
            let seen = (told, news.folders.swap(false, Ordering::Relaxed));
            assert_eq!(seen, (matters, folders), "{kind:?} {path}");
        }
        assert!(news.matters(Err(notify::Error::generic("overflow"))));
        assert!(news.folders.load(Ordering::Relaxed));
    }
}
