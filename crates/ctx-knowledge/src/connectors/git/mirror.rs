//! The mirror: a bare copy of a repository in the source's cache, with all commits and trees, and the blobs read so
//! far.
//!
//! It can be deleted at any time, and is recreated if it is damaged or of another repository. Its configuration is
//! that of `git init`; only commands that contact the remote know its URL.

use super::address::Address;
use super::program::{Failure, Program, REMOTE, UserOverrides};
use super::user_config::UserConfig;
use ctx_core::SourceError;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Ref of the newest commit of the branch.
const TIP: &str = "refs/ctx/tip";
/// Timeout of a query to the remote while a user waits: calls have 30 seconds.
const CHECK_MAX: Duration = Duration::from_secs(10);
/// Timeout of other queries, to the remote or the mirror.
const ASK_MAX: Duration = Duration::from_secs(60);
/// File that names the repository of a mirror; written last.
const IDENTITY: &str = "ctx-mirror";

const FETCH: [&str; 6] =
    ["fetch", "--progress", "--no-tags", "--force", "--no-write-fetch-head", "--recurse-submodules=no"];

/// The revision to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// The branch with this name.
    Branch(String),
    /// The remote's `HEAD`, which is not on a branch.
    Detached,
    /// None: the repository has no commits.
    Empty,
}

impl Head {
    fn reference(&self) -> String {
        match self {
            Self::Branch(name) => format!("refs/heads/{name}"),
            Self::Detached | Self::Empty => "HEAD".to_owned(),
        }
    }

    /// Its name in web URLs.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Branch(name) => name,
            Self::Detached | Self::Empty => "HEAD",
        }
    }
}

/// A commit, and the tree to read.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) commit: String,
    /// The tree of the configured folder.
    pub(super) tree: String,
}

/// Why there is no snapshot.
pub(super) enum NoSnapshot {
    /// The commit has no such folder.
    NoFolder,
    /// The mirror cannot be read.
    Damaged(Failure),
}

impl From<Failure> for NoSnapshot {
    fn from(failure: Failure) -> Self {
        Self::Damaged(failure)
    }
}

/// `core` settings that `git init` writes into the config of a mirror.
const INIT_SETTINGS: [&str; 6] =
    ["bare", "filemode", "ignorecase", "precomposeunicode", "repositoryformatversion", "symlinks"];
/// Files that a mirror never has: they name programs to run, other repositories or other settings.
const FORBIDDEN_FILES: [&str; 8] = [
    "commondir",
    "config.worktree",
    "hooks",
    "info/attributes",
    "info/grafts",
    "objects/info/alternates",
    "objects/info/http-alternates",
    "worktrees",
];
/// Maximum size of a mirror's config file.
const CONFIG_BYTES_MAX: u64 = 4 << 10;

/// Part of a mirror that neither ctx nor git creates: a sign of tampering.
fn find_tampering(folder: &Path) -> Option<&'static str> {
    let metadata = fs::symlink_metadata(folder).ok()?;
    if !metadata.is_dir() {
        return Some("it is no folder");
    }
    if let Some(file) = FORBIDDEN_FILES.iter().find(|file| fs::symlink_metadata(folder.join(file)).is_ok()) {
        return Some(file);
    }
    let config = folder.join("config");
    match fs::symlink_metadata(&config) {
        Err(_) => None,
        Ok(metadata) if !metadata.is_file() || metadata.len() > CONFIG_BYTES_MAX => Some("config"),
        Ok(_) => {
            let text = fs::read_to_string(&config).unwrap_or_else(|_| "unreadable".to_owned());
            (!text.lines().all(is_init_line)).then_some("config")
        }
    }
}

fn is_init_line(line: &str) -> bool {
    let line = line.trim();
    let key = line.split_once('=').map(|(key, _)| key.trim().to_ascii_lowercase());
    line == "[core]" || key.is_some_and(|key| INIT_SETTINGS.contains(&key.as_str()))
}

/// The mirror of one source's repository.
pub(super) struct Mirror<'a> {
    pub(super) program: Program,
    pub(super) address: &'a Address,
    pub(super) folder: PathBuf,
    /// Whether it is a partial clone, which fetches blobs only when they are read.
    pub(super) partial: bool,
    patience: Duration,
}

impl<'a> Mirror<'a> {
    /// `own`: overrides by environment variables.
    pub(super) async fn new(
        folder: &Path,
        address: &'a Address,
        partial: bool,
        own: UserOverrides,
    ) -> Result<Self, SourceError> {
        let refused = |failure: Failure| refused(address, &failure.text());
        let user = UserConfig::read().await.map_err(refused)?;
        let global_config = user
            .write_global_config(folder.with_extension("config"))
            .map_err(|error| refused(error.into()))?;
        let program = Program::new(folder, address, user, own).with_global_config(global_config);
        let mirror = Self { program, address, folder: folder.to_owned(), partial, patience: ASK_MAX };
        // Before git runs in the folder: a tampered config or hook would execute programs.
        if let Some(strange) = find_tampering(folder) {
            tracing::warn!(
                repository = address.shown,
                strange,
                "the copy is not as we made it, and is made anew"
            );
            mirror.discard().map_err(|error| mirror.unavailable(&error.into()))?;
        }
        Ok(mirror)
    }

    /// The revision to read: the branch with this name, or the remote's default.
    pub(super) async fn head(&self, branch: Option<&str>) -> Result<Head, SourceError> {
        if let Some(branch) = branch {
            return Ok(Head::Branch(branch.to_owned()));
        }
        let told =
            self.ask(&["--symref", REMOTE, "HEAD"]).await.map_err(|failure| self.unavailable(&failure))?;
        let branch =
            told.lines().find_map(|line| line.strip_prefix("ref: refs/heads/")?.strip_suffix("\tHEAD"));
        match branch {
            Some(branch) => Ok(Head::Branch(branch.to_owned())),
            None if told.ends_with("\tHEAD\n") => Ok(Head::Detached),
            None => {
                let told = self.ask(&[REMOTE]).await.map_err(|failure| self.unavailable(&failure))?;
                if told.is_empty() {
                    return Ok(Head::Empty);
                }
                Err(self.refused("its default branch does not exist; set `branch`"))
            }
        }
    }

    /// Checks that the remote answers and has the branch.
    pub(super) async fn check(mut self, branch: Option<&str>) -> Result<(), SourceError> {
        self.patience = CHECK_MAX;
        let head = self.head(branch).await?;
        if branch.is_some() {
            let told = self.ask(&[REMOTE, &head.reference()]).await;
            if told.map_err(|failure| self.unavailable(&failure))?.is_empty() {
                return Err(self.no_branch(&head));
            }
        }
        Ok(())
    }

    async fn ask(&self, question: &[&str]) -> Result<String, Failure> {
        let arguments: Vec<&str> = ["ls-remote"].iter().chain(question).copied().collect();
        let told = self.program.query_remote(&arguments, self.patience).await?;
        Ok(String::from_utf8_lossy(&told).into_owned())
    }

    /// Fetches the newest commit. Recreates a mirror that cannot store it.
    pub(super) async fn update(&mut self, head: &Head) -> Result<(), SourceError> {
        let fresh = self.prepare().await.map_err(|failure| self.unavailable(&failure))?;
        let Err(failure) = self.fetch_tip(head).await else { return Ok(()) };
        if failure.says("couldn't find remote ref") {
            return Err(self.no_branch(head));
        }
        // If the remote has the ref, the mirror is at fault.
        let reachable =
            || async { self.ask(&[REMOTE, &head.reference()]).await.is_ok_and(|told| !told.is_empty()) };
        if fresh || !matches!(failure, Failure::Said(_)) || !reachable().await {
            return Err(self.unavailable(&failure));
        }
        tracing::warn!(repository = self.address.shown, reason = failure.text(), "the copy is made anew");
        self.renew(head).await
    }

    /// Deletes the mirror and creates another.
    pub(super) async fn renew(&mut self, head: &Head) -> Result<(), SourceError> {
        self.discard().map_err(|error| self.unavailable(&error.into()))?;
        self.prepare().await.map_err(|failure| self.unavailable(&failure))?;
        self.fetch_tip(head).await.map_err(|failure| self.unavailable(&failure))
    }

    /// Deletes the mirror.
    pub(super) fn discard(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Ensures that there is a mirror of this repository; returns whether it is new.
    async fn prepare(&mut self) -> Result<bool, Failure> {
        let identity = |partial| {
            format!(
                "1\n{}\n{}\n",
                self.address.url.split('?').next().unwrap_or_default(),
                if partial { "partial" } else { "whole" }
            )
        };
        let path = self.folder.join(IDENTITY);
        let found = fs::read_to_string(&path).unwrap_or_default();
        // A full mirror has everything that a partial one has.
        if found == identity(false) {
            self.partial = false;
            return Ok(false);
        }
        if self.partial && found == identity(true) {
            return Ok(false);
        }
        self.discard()?;
        ctx_store::create_folder(&self.folder)?;
        let init = self.program.local(["init", "--quiet", "--bare", "--template="]);
        self.program.answer(init, ASK_MAX).await?;
        fs::write(path, identity(self.partial))?;
        Ok(true)
    }

    async fn fetch_tip(&self, head: &Head) -> Result<(), Failure> {
        let refspec = format!("+{}:{TIP}", head.reference());
        let arguments: Vec<&str> = FETCH.into_iter().chain([REMOTE, &refspec]).collect();
        self.program.fetch(&arguments, self.partial, b"").await
    }

    /// Fetches these blobs, all at once.
    pub(super) async fn fetch_contents(
        &mut self,
        ids: &BTreeSet<String>,
        head: &Head,
    ) -> Result<(), SourceError> {
        if ids.is_empty() || !self.partial {
            return Ok(());
        }
        let list: String = ids.iter().flat_map(|id| [id, "\n"]).collect();
        let alone = ["-c", "fetch.negotiationAlgorithm=noop"];
        let arguments = alone.into_iter().chain(FETCH).chain(["--no-auto-gc", "--stdin", REMOTE]);
        let arguments: Vec<&str> = arguments.collect();
        let Err(failure) = self.program.fetch(&arguments, true, list.as_bytes()).await else {
            return Ok(());
        };
        // Some servers support partial clones, but not fetching single blobs: fetch everything.
        if failure.says("not our ref") || failure.says("unadvertised object") {
            self.partial = false;
            return self.renew(head).await;
        }
        Err(self.unavailable(&failure))
    }

    /// The newest commit, and its tree of the folder to read.
    pub(super) async fn snapshot(&self, root: &str) -> Result<Snapshot, NoSnapshot> {
        let commit = self.read(&["rev-parse", "--verify", "--quiet", &format!("{TIP}^{{commit}}")]).await?;
        let commit = String::from_utf8_lossy(&commit).trim().to_owned();
        if root.is_empty() {
            let tree =
                self.read(&["rev-parse", "--verify", "--quiet", &format!("{commit}^{{tree}}")]).await?;
            return Ok(Snapshot { tree: String::from_utf8_lossy(&tree).trim().to_owned(), commit });
        }
        // Prints nothing for a missing folder, and fails on a damaged mirror.
        let entry = self.read(&["ls-tree", "-z", &commit, "--", root]).await?;
        let entry = String::from_utf8_lossy(&entry).into_owned();
        let tree = entry.strip_prefix("040000 tree ").and_then(|rest| rest.split('\t').next());
        tree.map(|tree| Snapshot { tree: tree.to_owned(), commit: commit.clone() })
            .ok_or(NoSnapshot::NoFolder)
    }

    /// Whether one commit is an ancestor of the other; `false` if the mirror lacks one.
    pub(super) async fn is_ancestor(&self, before: &str, after: &str) -> bool {
        self.read(&["merge-base", "--is-ancestor", before, after]).await.is_ok()
    }

    async fn read(&self, arguments: &[&str]) -> Result<Vec<u8>, Failure> {
        self.program.answer(self.program.local(arguments), ASK_MAX).await
    }

    fn no_branch(&self, head: &Head) -> SourceError {
        self.refused(&format!("it has no branch `{}`", head.name()))
    }

    pub(super) fn unavailable(&self, failure: &Failure) -> SourceError {
        self.refused(&failure.text())
    }

    pub(super) fn refused(&self, reason: &str) -> SourceError {
        refused(self.address, reason)
    }
}

fn refused(address: &Address, reason: &str) -> SourceError {
    SourceError::Unavailable(format!("cannot read the repository {}: {reason}", address.shown))
}
