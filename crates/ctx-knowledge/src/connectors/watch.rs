//! Watching a folder: tells when something below it may have changed.
//!
//! Only folders that a sync would read are watched, so what is ignored costs nothing. Where the
//! system will not watch so many, the folder is looked at every few seconds instead.

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

/// Whether the system watches a folder with all that is below it; else each has its own watch.
const WATCHES_DEEPLY: bool = cfg!(any(target_os = "macos", windows));
/// How often folders that appear while others are listed are looked for.
const PASSES_MAX: usize = 8;
/// Git's own folder: busy, and never read.
const GIT: &str = ".git";

/// What the system says to one watcher or open file too many.
const TOO_MANY: i32 = 24;

/// When to tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Without a change for this long, a burst of changes is over.
    quiet: Duration,
    /// How long a burst may be before it is told all the same.
    longest: Duration,
    /// How often to look whether the folder itself is still there.
    look: Duration,
    /// How often to tell where nothing can be watched.
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

/// Watches until nobody hears the signal any more.
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
                // Full: it is awake already.
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
        // Watched before it is told: what comes in between is read, what comes later is heard.
        if news.folders.swap(false, Ordering::Relaxed) || watched.place != place(filesystem) {
            watched.renew(&mut watcher, filesystem, &news)?;
        }
        signal.send();
    }
    Ok(())
}

/// Which folder a path leads to now; another one of the same name is another place.
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

/// What is being watched.
#[derive(Default)]
struct Watched {
    /// `None` while the folder is gone.
    place: Option<Place>,
    folders: BTreeSet<PathBuf>,
}

impl Watched {
    /// Watches what there is now. All of it anew: a folder of the same name may be another one.
    fn renew(
        &mut self,
        watcher: &mut impl Watcher,
        filesystem: &Filesystem,
        news: &News,
    ) -> notify::Result<()> {
        self.place = place(filesystem);
        news.set_root(self.place.as_ref().map(|place| place.root.clone()));
        for folder in std::mem::take(&mut self.folders) {
            // Gone already, most likely, and its watch with it.
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

/// What the system tells, and what of it matters.
struct News {
    filesystem: Filesystem,
    own_files: Vec<PathBuf>,
    root: Mutex<Option<PathBuf>>,
    /// Whether there may be folders that are not watched.
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

    /// Whether a sync might find something new.
    fn matters(&self, event: notify::Result<Event>) -> bool {
        let event = match event {
            Ok(event) if !event.need_rescan() => event,
            // Something was missed.
            _ => {
                self.folders.store(true, Ordering::Relaxed);
                return true;
            }
        };
        let is_read =
            |kind| matches!(kind, EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write));
        // Also what our own reading looks like.
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
        // What was moved away may have been a folder, and cannot be asked any more.
        matches!(event.kind, EventKind::Modify(ModifyKind::Name(_)))
            || foreign.iter().any(|path| relative(path).is_none_or(|path| self.filesystem.depends_on(&path)))
    }
}

/// Whether folders came or went.
fn concerns_folders(kind: EventKind, paths: &[&PathBuf]) -> bool {
    match kind {
        EventKind::Create(CreateKind::File) | EventKind::Remove(RemoveKind::File) => false,
        EventKind::Access(_) | EventKind::Modify(ModifyKind::Data(_)) => false,
        // Their watches go with them.
        EventKind::Modify(ModifyKind::Name(RenameMode::From)) => false,
        EventKind::Modify(ModifyKind::Name(_) | ModifyKind::Metadata(_)) => {
            paths.iter().any(|path| path.is_dir())
        }
        _ => true,
    }
}

/// Whether a folder vanished meanwhile or may not be read, which a sync will find as well.
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

    /// The system's limit, reached.
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
