//! The mirror: a bare copy of a repository in the source's cache, with all commits and trees, and the blobs read so
//! far.
//!
//! It can be deleted at any time, and is recreated if it is damaged or of another repository. Its configuration is
//! that of `git init`; only commands that contact the remote know its URL.

use super::address::RepositoryAddress;
use super::program::{GitError, GitProgram, REMOTE_NAME, UserOverrides};
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
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of other queries, to the remote or the mirror.
const QUERY_TIMEOUT: Duration = Duration::from_secs(60);
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
pub(super) enum SnapshotError {
    /// The commit has no such folder.
    MissingFolder,
    /// The mirror cannot be read.
    Damaged(GitError),
}

impl From<GitError> for SnapshotError {
    fn from(error: GitError) -> Self {
        Self::Damaged(error)
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
        return Some("not a folder");
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
    pub(super) program: GitProgram,
    pub(super) address: &'a RepositoryAddress,
    pub(super) folder: PathBuf,
    /// Whether it is a partial clone, which fetches blobs only when they are read.
    pub(super) is_partial: bool,
    query_timeout: Duration,
}

impl<'a> Mirror<'a> {
    /// `user_overrides`: overrides by environment variables.
    pub(super) async fn new(
        folder: &Path,
        address: &'a RepositoryAddress,
        is_partial: bool,
        user_overrides: UserOverrides,
    ) -> Result<Self, SourceError> {
        let git_error = |error: GitError| source_error(address, &error.describe());
        let user = UserConfig::read().await.map_err(git_error)?;
        let global_config = user
            .write_global_config(folder.with_extension("config"))
            .map_err(|error| git_error(error.into()))?;
        let program =
            GitProgram::new(folder, address, user, user_overrides).with_global_config(global_config);
        let mirror =
            Self { program, address, folder: folder.to_owned(), is_partial, query_timeout: QUERY_TIMEOUT };
        // Before git runs in the folder: a tampered config or hook would execute programs.
        if let Some(tampering) = find_tampering(folder) {
            tracing::warn!(
                repository = address.display_url,
                strange = tampering,
                "the local clone has unexpected files or settings; cloning again"
            );
            mirror.discard().map_err(|error| mirror.to_source_error(&error.into()))?;
        }
        Ok(mirror)
    }

    /// The revision to read: the branch with this name, or the remote's default.
    pub(super) async fn head(&self, branch: Option<&str>) -> Result<Head, SourceError> {
        if let Some(branch) = branch {
            return Ok(Head::Branch(branch.to_owned()));
        }
        let refs = self
            .ls_remote(&["--symref", REMOTE_NAME, "HEAD"])
            .await
            .map_err(|error| self.to_source_error(&error))?;
        let branch =
            refs.lines().find_map(|line| line.strip_prefix("ref: refs/heads/")?.strip_suffix("\tHEAD"));
        match branch {
            Some(branch) => Ok(Head::Branch(branch.to_owned())),
            None if refs.ends_with("\tHEAD\n") => Ok(Head::Detached),
            None => {
                let refs =
                    self.ls_remote(&[REMOTE_NAME]).await.map_err(|error| self.to_source_error(&error))?;
                if refs.is_empty() {
                    return Ok(Head::Empty);
                }
                Err(self.source_error("its default branch does not exist; set `branch`"))
            }
        }
    }

    /// Checks that the remote answers and has the branch.
    pub(super) async fn check(mut self, branch: Option<&str>) -> Result<(), SourceError> {
        self.query_timeout = CHECK_TIMEOUT;
        let head = self.head(branch).await?;
        if branch.is_some() {
            let refs = self.ls_remote(&[REMOTE_NAME, &head.reference()]).await;
            if refs.map_err(|error| self.to_source_error(&error))?.is_empty() {
                return Err(self.missing_branch_error(&head));
            }
        }
        Ok(())
    }

    async fn ls_remote(&self, arguments: &[&str]) -> Result<String, GitError> {
        let arguments: Vec<&str> = ["ls-remote"].iter().chain(arguments).copied().collect();
        let refs = self.program.query_remote(&arguments, self.query_timeout).await?;
        Ok(String::from_utf8_lossy(&refs).into_owned())
    }

    /// Fetches the newest commit. Recreates a mirror that cannot store it.
    pub(super) async fn update(&mut self, head: &Head) -> Result<(), SourceError> {
        let is_new = self.ensure_exists().await.map_err(|error| self.to_source_error(&error))?;
        let Err(error) = self.fetch_tip(head).await else { return Ok(()) };
        if error.mentions("couldn't find remote ref") {
            return Err(self.missing_branch_error(head));
        }
        // If the remote has the ref, the mirror is at fault.
        let reachable = || async {
            self.ls_remote(&[REMOTE_NAME, &head.reference()]).await.is_ok_and(|refs| !refs.is_empty())
        };
        if is_new || !matches!(error, GitError::Failed(_)) || !reachable().await {
            return Err(self.to_source_error(&error));
        }
        tracing::warn!(
            repository = self.address.display_url,
            reason = error.describe(),
            "the local clone is unusable; cloning again"
        );
        self.recreate(head).await
    }

    /// Deletes the mirror and creates another.
    pub(super) async fn recreate(&mut self, head: &Head) -> Result<(), SourceError> {
        self.discard().map_err(|error| self.to_source_error(&error.into()))?;
        self.ensure_exists().await.map_err(|error| self.to_source_error(&error))?;
        self.fetch_tip(head).await.map_err(|error| self.to_source_error(&error))
    }

    /// Deletes the mirror.
    pub(super) fn discard(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Ensures that there is a mirror of this repository; returns whether it is new.
    async fn ensure_exists(&mut self) -> Result<bool, GitError> {
        let identity = |is_partial| {
            format!(
                "1\n{}\n{}\n",
                self.address.url.split('?').next().unwrap_or_default(),
                if is_partial { "partial" } else { "whole" }
            )
        };
        let path = self.folder.join(IDENTITY);
        let stored_identity = fs::read_to_string(&path).unwrap_or_default();
        // A full mirror has everything that a partial one has.
        if stored_identity == identity(false) {
            self.is_partial = false;
            return Ok(false);
        }
        if self.is_partial && stored_identity == identity(true) {
            return Ok(false);
        }
        self.discard()?;
        ctx_store::create_folder(&self.folder)?;
        let init = self.program.local_command(["init", "--quiet", "--bare", "--template="]);
        self.program.output(init, QUERY_TIMEOUT).await?;
        fs::write(path, identity(self.is_partial))?;
        Ok(true)
    }

    async fn fetch_tip(&self, head: &Head) -> Result<(), GitError> {
        let refspec = format!("+{}:{TIP}", head.reference());
        let arguments: Vec<&str> = FETCH.into_iter().chain([REMOTE_NAME, &refspec]).collect();
        self.program.fetch(&arguments, self.is_partial, b"").await
    }

    /// Fetches these blobs, all at once.
    pub(super) async fn fetch_contents(
        &mut self,
        ids: &BTreeSet<String>,
        head: &Head,
    ) -> Result<(), SourceError> {
        if ids.is_empty() || !self.is_partial {
            return Ok(());
        }
        let list: String = ids.iter().flat_map(|id| [id, "\n"]).collect();
        let no_negotiation = ["-c", "fetch.negotiationAlgorithm=noop"];
        let arguments =
            no_negotiation.into_iter().chain(FETCH).chain(["--no-auto-gc", "--stdin", REMOTE_NAME]);
        let arguments: Vec<&str> = arguments.collect();
        let Err(error) = self.program.fetch(&arguments, true, list.as_bytes()).await else {
            return Ok(());
        };
        // Some servers support partial clones, but not fetching single blobs: fetch everything.
        if error.mentions("not our ref") || error.mentions("unadvertised object") {
            self.is_partial = false;
            return self.recreate(head).await;
        }
        Err(self.to_source_error(&error))
    }

    /// The newest commit, and its tree of the folder to read.
    pub(super) async fn snapshot(&self, root: &str) -> Result<Snapshot, SnapshotError> {
        let commit = self.query(&["rev-parse", "--verify", "--quiet", &format!("{TIP}^{{commit}}")]).await?;
        let commit = String::from_utf8_lossy(&commit).trim().to_owned();
        if root.is_empty() {
            let tree =
                self.query(&["rev-parse", "--verify", "--quiet", &format!("{commit}^{{tree}}")]).await?;
            return Ok(Snapshot { tree: String::from_utf8_lossy(&tree).trim().to_owned(), commit });
        }
        // Prints nothing for a missing folder, and fails on a damaged mirror.
        let entry = self.query(&["ls-tree", "-z", &commit, "--", root]).await?;
        let entry = String::from_utf8_lossy(&entry).into_owned();
        let tree = entry.strip_prefix("040000 tree ").and_then(|rest| rest.split('\t').next());
        tree.map(|tree| Snapshot { tree: tree.to_owned(), commit: commit.clone() })
            .ok_or(SnapshotError::MissingFolder)
    }

    /// Whether one commit is an ancestor of the other; `false` if the mirror lacks one.
    pub(super) async fn is_ancestor(&self, ancestor: &str, descendant: &str) -> bool {
        self.query(&["merge-base", "--is-ancestor", ancestor, descendant]).await.is_ok()
    }

    async fn query(&self, arguments: &[&str]) -> Result<Vec<u8>, GitError> {
        self.program.output(self.program.local_command(arguments), QUERY_TIMEOUT).await
    }

    fn missing_branch_error(&self, head: &Head) -> SourceError {
        self.source_error(&format!("it has no branch `{}`", head.name()))
    }

    pub(super) fn to_source_error(&self, error: &GitError) -> SourceError {
        self.source_error(&error.describe())
    }

    pub(super) fn source_error(&self, reason: &str) -> SourceError {
        source_error(self.address, reason)
    }
}

fn source_error(address: &RepositoryAddress, reason: &str) -> SourceError {
    SourceError::Unavailable(format!("cannot read the repository {}: {reason}", address.display_url))
}
