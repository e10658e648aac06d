//! Runs `ctx` in a temporary folder with an isolated environment.

use crate::user::UnprivilegedUser;
use crate::{CommandOutput, TestServer, process};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const DEFAULT_CONFIG: &str = r#"[connectors.filesystem.docs]
root = "docs"

[server]
bind = "127.0.0.1:0"
"#;
const DATA_FOLDERS: &str = ".local/state/ctx/workspaces";
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A temporary workspace with an isolated home folder and environment, in which `ctx` runs. Deleted on drop.
pub struct TestWorkspace {
    root: PathBuf,
    home: PathBuf,
    binary: PathBuf,
    variables: Vec<(String, String)>,
    trusts_config: bool,
    unprivileged: Option<UnprivilegedUser>,
    /// Paths with changed permissions, restored on drop so that they can be deleted.
    restricted: RefCell<Vec<PathBuf>>,
    folder: TempDir,
}

impl TestWorkspace {
    /// A workspace with one source, `filesystem:docs`, that reads `docs/`, and a server on any free port.
    pub fn new() -> Self {
        Self::empty().config(DEFAULT_CONFIG)
    }

    /// A folder without a configuration.
    pub fn empty() -> Self {
        Self::with_binary(built_binary())
    }

    /// A folder without a configuration, in which `ctx` is this binary: another program built on the library.
    pub fn with_binary(binary: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The path as the binary sees it, with symlinks resolved.
        let base = fs::canonicalize(folder.path()).unwrap();
        let (root, home) = (base.join("workspace"), base.join("home"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&home).unwrap();
        Self {
            root,
            home,
            binary,
            variables: Vec::new(),
            trusts_config: true,
            unprivileged: None,
            restricted: RefCell::default(),
            folder,
        }
    }

    /// A copy of a folder without its hidden files.
    pub fn copy_of(folder: &Path) -> Self {
        Self::empty().copy_from(folder)
    }

    /// Copies a folder, without its hidden files, into this workspace.
    #[must_use]
    pub fn copy_from(self, folder: &Path) -> Self {
        copy_visible(folder, self.root());
        self
    }

    /// Writes a text file, and creates its parent folders.
    #[must_use]
    pub fn file(self, path: &str, text: &str) -> Self {
        self.bytes(path, text.as_bytes())
    }

    /// Writes a binary file, and creates its parent folders.
    #[must_use]
    pub fn bytes(self, path: &str, bytes: &[u8]) -> Self {
        self.write(path, bytes);
        self
    }

    /// Writes `ctx.toml`. Unless it contains `[embedding]`, embeddings are disabled: keyword search alone has
    /// predictable results.
    #[must_use]
    pub fn config(self, toml: &str) -> Self {
        match toml.contains("[embedding]") {
            true => self.file("ctx.toml", toml),
            false => self.file("ctx.toml", &format!("{toml}\n[embedding]\nprovider = \"disabled\"\n")),
        }
    }

    /// Runs every command without `CTX_TRUST`, so that the configuration is untrusted.
    #[must_use]
    pub fn untrusted(mut self) -> Self {
        self.trusts_config = false;
        self
    }

    /// Sets an environment variable for every command.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs every command as an unprivileged user, so that file permissions apply even if root runs the tests.
    #[must_use]
    pub fn unprivileged(mut self) -> Self {
        self.unprivileged = UnprivilegedUser::instead_of_root(self.folder.path(), &self.binary);
        self
    }

    /// The workspace's folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path in the workspace.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// A path in this workspace's data folder (`~/.local/state/ctx/workspaces/…`), which exists once a command has
    /// opened the workspace.
    #[track_caller]
    pub fn data(&self, path: &str) -> PathBuf {
        let folders = self.home.join(DATA_FOLDERS);
        let mut found = fs::read_dir(&folders).unwrap().map(|entry| entry.unwrap().path());
        let name = format!("{}-", self.root.file_name().unwrap().to_str().unwrap());
        let own = found.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&name));
        own.expect("a workspace that was opened").join(path)
    }

    /// The `HOME` of every command.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Writes a file, also between two commands.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        // A sync reads a file that was modified just now again the next time, so the file is dated back by a minute.
        let minute_ago = SystemTime::now() - Duration::from_secs(60);
        File::options().write(true).open(path).unwrap().set_modified(minute_ago).unwrap();
    }

    /// Reads a file.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Removes a file, or a folder with everything in it.
    pub fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// Sets the permissions of a file or folder.
    pub fn mode(&self, path: &str, mode: u32) {
        let path = self.path(path);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        self.restricted.borrow_mut().push(path);
    }

    /// Runs `ctx` with these arguments, split at spaces.
    #[track_caller]
    pub fn ctx(&self, arguments: &str) -> CommandOutput {
        self.ctx_args(arguments.split_whitespace())
    }

    /// Runs `ctx` with exactly these arguments.
    #[track_caller]
    pub fn ctx_args<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> CommandOutput {
        process::run(self.command(arguments), &self.root)
    }

    /// Runs a shell script in which `ctx` is the binary.
    #[track_caller]
    pub fn shell(&self, script: &str) -> CommandOutput {
        let mut command = self.isolated_command("/bin/sh");
        command.args(["-c", script]);
        process::run(command, &self.root)
    }

    /// The command `ctx` with these arguments, for tests that run it themselves.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.isolated_command(self.binary());
        command.args(arguments);
        command
    }

    /// Starts `ctx serve mcp`.
    #[track_caller]
    pub fn spawn_server(&self) -> TestServer {
        self.spawn(["serve", "mcp"])
    }

    /// Starts a command that runs a server.
    #[track_caller]
    pub fn spawn<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> TestServer {
        TestServer::spawn(self.command(arguments), &self.root)
    }

    /// Like [`TestWorkspace::spawn`], with a command that the caller has prepared.
    #[track_caller]
    pub fn spawn_command(&self, command: Command) -> TestServer {
        TestServer::spawn(command, &self.root)
    }

    fn binary(&self) -> &Path {
        self.unprivileged.as_ref().map_or(&self.binary, UnprivilegedUser::binary)
    }

    /// A command with an isolated environment: no variable of the test process is inherited.
    fn isolated_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let folder = self.binary().parent().unwrap().display();
        command
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", format!("{folder}:{SYSTEM_PATH}"))
            .env("HOME", &self.home)
            .env("XDG_CONFIG_HOME", self.home.join(".config"))
            // Enabled, so that the check for backtraces in the output would find one.
            .env("RUST_BACKTRACE", "1")
            .envs(self.trusts_config.then_some(("CTX_TRUST", "1")))
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        if let Some(unprivileged) = &self.unprivileged {
            unprivileged.run_as_user(&mut command, &[&self.root, &self.home]);
        }
        command
    }
}

impl Default for TestWorkspace {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TestWorkspace {
    fn drop(&mut self) {
        for path in self.restricted.take() {
            // The path may have been removed meanwhile.
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).ok();
        }
    }
}

fn copy_visible(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (name, target) = (entry.file_name(), to.join(entry.file_name()));
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy_visible(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            // Search results with equal scores are ordered by modification time, so that is copied as well.
            let modified = entry.metadata().unwrap().modified().unwrap();
            fs::File::options().write(true).open(&target).unwrap().set_modified(modified).unwrap();
        }
    }
}

/// The `ctx` binary of the same build: for the test `target/debug/deps/test` it is `target/debug/ctx`.
fn built_binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().and_then(Path::parent).unwrap().join("ctx");
    assert!(binary.is_file(), "{} is missing; `cargo build -p ctx` makes it", binary.display());
    binary
}
