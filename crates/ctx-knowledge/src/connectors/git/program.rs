//! Runs the `git` program: without prompts, without hooks or configuration of a repository, and killed when its
//! future is dropped.
//!
//! Settings and credentials are in the child's environment, which other users cannot see, and not in its arguments.
//! Commands that read the mirror know no remote, so they cannot use the network.

use super::address::{GitTransport, RepositoryAddress};
use super::pinned_remote::PinnedRemote;
use super::user_config::UserConfig;
use ctx_core::{Redactor, Secret};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::{Instant, timeout, timeout_at};

/// Name of the remote, in the child's configuration only.
pub(super) const REMOTE_NAME: &str = "ctx";

/// Maximum time of a fetch without output.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum time of a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(3600);
/// Timeout of a local command that touches neither the mirror nor the remote.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum bytes of stderr that are kept, from its end.
const STDERR_BYTES_MAX: usize = 8 << 10;
/// Maximum bytes of stdout that are kept.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Maximum characters of an error in a message.
const SHOWN_CHARS_MAX: usize = 300;

/// Git aborts a transfer that is slower than this many bytes per second for this many seconds. A busy server sends
/// keep-alive packets.
const LOW_SPEED: [(&str, &str); 2] = [("http.lowSpeedLimit", "1"), ("http.lowSpeedTime", "120")];

/// Settings of every command; they override any config file. The user's and the system's config files are not read:
/// their allow-listed keys are passed one by one ([`UserConfig`]).
const FIXED_CONFIG: &[(&str, &str)] = &[
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.alternateRefsCommand", "false"),
    ("core.gitProxy", "none"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.sshCommand", "ssh"),
    ("credential.helper", ""),
    ("remote.ctx.uploadpack", "git-upload-pack"),
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.askPass", ""),
    ("credential.interactive", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("submodule.recurse", "false"),
    ("transfer.bundleURI", "false"),
    ("log.showSignature", "false"),
    ("protocol.version", "2"),
    ("protocol.ext.allow", "never"),
    ("gc.autoDetach", "false"),
    ("maintenance.autoDetach", "false"),
];

/// Environment variables that are removed: they point git to other files, or enable tracing.
const REMOVED_VARIABLES: &[&str] = &[
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ATTR_SOURCE",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CURL_VERBOSE",
    "GIT_GLOB_PATHSPECS",
    "GIT_GRAFT_FILE",
    "GIT_ICASE_PATHSPECS",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_PROXY_COMMAND",
    "GIT_PROTOCOL",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_TRACE",
    "GIT_TRACE2",
    "GIT_TRACE2_EVENT",
    "GIT_TRACE2_PERF",
    "GIT_TRACE_CURL",
    "GIT_TRACE_PACKET",
    "GIT_TRACE_SETUP",
    "GIT_WORK_TREE",
];

/// Environment variables of every command.
const FIXED_VARIABLES: &[(&str, &str)] = &[
    ("GIT_ATTR_NOSYSTEM", "1"),
    // Set and empty: disables the askpass program of the configuration and of the desktop.
    ("GIT_ASKPASS", ""),
    // The formats of a mirror, whatever the user's defaults are: others need `[extensions]` in its config, which counts
    // as tampering.
    ("GIT_DEFAULT_HASH", "sha1"),
    ("GIT_DEFAULT_REF_FORMAT", "files"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GCM_INTERACTIVE", "never"),
    ("SSH_ASKPASS", "false"),
    ("SSH_ASKPASS_REQUIRE", "force"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_PAGER", "cat"),
    ("LC_ALL", "C"),
];

/// An ssh command that never prompts, and detects a dead connection.
const SSH_COMMAND: &str =
    "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=15 -o ServerAliveCountMax=4";

/// A credential helper that prints the user name and password of the child's environment.
const CREDENTIAL_HELPER: &str = "!f() { test \"$1\" = get && \
     printf 'username=%s\\npassword=%s\\n' \"$CTX_GIT_USERNAME\" \"$CTX_GIT_PASSWORD\"; }; f";

/// Why a git command failed.
#[derive(Debug)]
pub(super) enum GitError {
    /// The program is not installed.
    NotInstalled,
    /// Timeout.
    TimedOut,
    /// The address of the remote is forbidden by the SSRF policy or cannot be resolved; the reason.
    Unreachable(String),
    /// git failed, or printed something unusable; the message, with secrets masked.
    Failed(String),
    /// Starting the process, or reading or writing its pipes, failed.
    Io(io::Error),
}

impl GitError {
    /// The reason in one line.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::NotInstalled => {
                "the program `git` is not on the PATH; install git 2.37 or later".to_owned()
            }
            Self::TimedOut => "git timed out".to_owned(),
            Self::Unreachable(why) => why.clone(),
            Self::Failed(message) => informative_line(message),
            Self::Io(error) => format!("cannot run git: {error}"),
        }
    }

    pub(super) fn mentions(&self, part: &str) -> bool {
        matches!(self, Self::Failed(message) if message.contains(part))
    }
}

impl From<io::Error> for GitError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Settings of the user's own that change how git reaches a remote.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UserOverrides {
    /// An ssh command, which replaces ours.
    pub(super) has_ssh: bool,
    /// An HTTP proxy, which may resolve host names in our place.
    pub(super) has_proxy: bool,
}

/// Runs git commands for one source.
#[derive(Clone, Debug)]
pub(super) struct GitProgram {
    folder: PathBuf,
    address: RepositoryAddress,
    redactor: Redactor,
    /// Allow-listed settings of the user's own git configuration.
    user_config: UserConfig,
    /// File for `GIT_CONFIG_GLOBAL`, in place of the user's own. Needed for `safe.directory`: the `git-upload-pack`
    /// that serves a local repository does not inherit `GIT_CONFIG_COUNT`.
    global_config: Option<PathBuf>,
    /// The user's own configuration and environment variables.
    user_overrides: UserOverrides,
    /// URL and pinned addresses of the remote, after redirects; `None` until first resolved.
    remote: Arc<Mutex<Option<PinnedRemote>>>,
}

impl GitProgram {
    /// `user_overrides`: what the environment variables set.
    pub(super) fn new(
        folder: &Path,
        address: &RepositoryAddress,
        user_config: UserConfig,
        user_overrides: UserOverrides,
    ) -> Self {
        let credentials = address.credentials.iter();
        let secrets = credentials.flat_map(|credentials| match &credentials.password {
            Some(password) => vec![password.clone()],
            // A user name without a password may be a token.
            None => vec![Secret::new(credentials.username.clone())],
        });
        let query = address.url.split_once('?').map(|(_, query)| Secret::new(query));
        let redactor = Redactor::new(secrets.chain(query));
        let user_overrides = UserOverrides {
            has_ssh: user_overrides.has_ssh || user_config.has_ssh_command(),
            has_proxy: user_overrides.has_proxy || user_config.has_proxy(),
        };
        let (folder, address, remote) = (folder.to_owned(), address.clone(), Arc::default());
        Self { folder, address, redactor, user_config, global_config: None, user_overrides, remote }
    }

    /// Sets the file that every command reads in place of the user's global config.
    pub(super) fn with_global_config(mut self, file: Option<PathBuf>) -> Self {
        self.global_config = file;
        self
    }

    /// Checks the remote against the SSRF policy and resolves its addresses, once.
    async fn resolve_remote(&self) -> Result<(), GitError> {
        if self.resolved_remote().is_none() {
            let remote = PinnedRemote::resolve(&self.address, self.user_overrides.has_proxy)
                .await
                .map_err(GitError::Unreachable)?;
            *self.remote.lock().unwrap_or_else(PoisonError::into_inner) = Some(remote);
        }
        Ok(())
    }

    /// After a command failed with an HTTP redirect: resolves the new location of the remote. Returns whether there is
    /// one.
    async fn resolve_redirect(&self, error: &GitError) -> Result<bool, GitError> {
        let Some(remote) = self.resolved_remote().filter(|_| error.mentions("returned error: 30")) else {
            return Ok(false);
        };
        let moved =
            remote.follow_redirects(self.user_overrides.has_proxy).await.map_err(GitError::Unreachable)?;
        let has_moved = moved.is_some();
        if has_moved {
            *self.remote.lock().unwrap_or_else(PoisonError::into_inner) = moved;
        }
        Ok(has_moved)
    }

    fn resolved_remote(&self) -> Option<PinnedRemote> {
        self.remote.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A command that reads the mirror and knows no remote.
    pub(super) fn local_command<I: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = I>) -> Command {
        self.command(arguments, &[])
    }

    /// A command that may contact the remote; `filter` leaves blobs there until they are needed (partial clone).
    fn remote_command<I: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = I>,
        filter: bool,
    ) -> Command {
        let remote = self.resolved_remote();
        let url = remote.as_ref().map_or(&self.address.url, |remote| &remote.url);
        // A header without a URL scope is meant for the configured origin. Scoped ones (`http.<url>.extraHeader`) are
        // matched by git.
        let is_redirected = !is_same_origin(url, &self.address.url);
        let own_settings =
            self.user_config.settings.iter().filter(|(key, _)| !is_redirected || !is_unscoped_header(key));
        let mut config: Vec<(String, String)> = own_settings.cloned().collect();
        config.push((format!("remote.{REMOTE_NAME}.url"), url.clone()));
        // Git has no SSRF checks: pin the resolved addresses, and follow redirects ourselves.
        config.push(("http.followRedirects".to_owned(), "false".to_owned()));
        config.extend(
            remote.and_then(|remote| Some(("http.curloptResolve".to_owned(), remote.curlopt_resolve?))),
        );
        if filter {
            config.push((format!("remote.{REMOTE_NAME}.promisor"), "true".to_owned()));
            config.push((format!("remote.{REMOTE_NAME}.partialclonefilter"), "blob:none".to_owned()));
        }
        config.extend(LOW_SPEED.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let credentials = self.address.credentials.as_ref();
        if let Some(credentials) = credentials {
            config.push((format!("credential.{}.username", credentials.scope), credentials.username.clone()));
            if credentials.password.is_some() {
                // No other helper is asked for the password, or told to store it.
                config.push(("credential.helper".to_owned(), String::new()));
                config
                    .push((format!("credential.{}.helper", credentials.scope), CREDENTIAL_HELPER.to_owned()));
            }
        }
        let mut command = self.command(arguments, &config);
        if let Some((credentials, password)) = credentials
            .and_then(|credentials| credentials.password.as_ref().map(|password| (credentials, password)))
        {
            command.env("CTX_GIT_USERNAME", &credentials.username).env("CTX_GIT_PASSWORD", password.expose());
        }
        // `insteadOf` may rewrite the URL to another host, but never to a program or a file.
        let protocols =
            if self.address.transport == GitTransport::Local { "file" } else { "http:https:ssh:git" };
        command.env("GIT_ALLOW_PROTOCOL", protocols);
        if !self.user_overrides.has_ssh {
            command.env("GIT_SSH_COMMAND", SSH_COMMAND);
        }
        command
    }

    fn command<I: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = I>,
        config: &[(String, String)],
    ) -> Command {
        let mut command = base_command(arguments);
        command.env("GIT_DIR", &self.folder);
        let global = self.global_config.as_deref().unwrap_or(Path::new("/dev/null"));
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", global);
        let fixed = FIXED_CONFIG.iter().map(|(key, value)| (*key, *value));
        let all = fixed.chain(config.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        let mut count = 0;
        for (key, value) in all {
            command.env(format!("GIT_CONFIG_KEY_{count}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        command
    }

    /// The output of a command, up to [`OUTPUT_BYTES_MAX`].
    pub(super) async fn output(&self, command: Command, within: Duration) -> Result<Vec<u8>, GitError> {
        let (status, stdout_bytes, stderr_bytes) = collect_output(command, within).await?;
        self.check_status(status, &stderr_bytes)?;
        Ok(stdout_bytes)
    }

    /// Output of a command that queries the remote; retried once at the new location after a redirect.
    pub(super) async fn query_remote(
        &self,
        arguments: &[&str],
        within: Duration,
    ) -> Result<Vec<u8>, GitError> {
        self.resolve_remote().await?;
        match self.output(self.remote_command(arguments, false), within).await {
            Err(error) if self.resolve_redirect(&error).await? => {
                self.output(self.remote_command(arguments, false), within).await
            }
            answer => answer,
        }
    }

    /// Fetches from the remote; retried once at the new location after a redirect.
    pub(super) async fn fetch(&self, arguments: &[&str], filter: bool, input: &[u8]) -> Result<(), GitError> {
        self.resolve_remote().await?;
        match self.fetch_once(self.remote_command(arguments, filter), input).await {
            Err(error) if self.resolve_redirect(&error).await? => {
                self.fetch_once(self.remote_command(arguments, filter), input).await
            }
            result => result,
        }
    }

    /// Runs a fetch for as long as it makes progress; `input` is written to its stdin.
    async fn fetch_once(&self, mut command: Command, input: &[u8]) -> Result<(), GitError> {
        command.stdout(Stdio::null()).stdin(Stdio::piped());
        let mut running = RunningCommand::start(command)?;
        let (stdin, stderr) = (running.child.stdin.take(), running.child.stderr.take());
        let deadline = Instant::now() + FETCH_TIMEOUT;
        let write = async {
            if let Some(mut stdin) = stdin {
                // Ignored: if git exits early, its stderr says why.
                let _ = stdin.write_all(input).await;
            }
        };
        let both = async { tokio::join!(write, read_stderr_tail(stderr, deadline, SILENCE_TIMEOUT)) };
        let ((), stderr_bytes) = timeout_at(deadline, both).await.map_err(|_| GitError::TimedOut)?;
        let stderr_bytes = stderr_bytes?;
        let status =
            timeout(SILENCE_TIMEOUT, running.child.wait()).await.map_err(|_| GitError::TimedOut)??;
        self.check_status(status, &stderr_bytes)
    }

    /// Starts a command whose stdout is read as a stream.
    pub(super) fn start(&self, mut command: Command) -> Result<RunningCommand, GitError> {
        // Discarded: git would block on a full pipe that nobody reads.
        command.stderr(Stdio::null());
        RunningCommand::start(command)
    }

    fn check_status(&self, status: ExitStatus, stderr_bytes: &[u8]) -> Result<(), GitError> {
        if status.success() {
            return Ok(());
        }
        Err(GitError::Failed(self.redactor.text(String::from_utf8_lossy(stderr_bytes).into_owned())))
    }
}

fn is_unscoped_header(key: &str) -> bool {
    key.eq_ignore_ascii_case("http.extraheader")
}

/// Whether two URLs have the same scheme, host and port.
fn is_same_origin(url: &str, other: &str) -> bool {
    let origin = |url: &str| url::Url::parse(url).ok().map(|url| url.origin());
    url == other || origin(url).is_some_and(|found| Some(found) == origin(other))
}

/// A git command with a sanitized environment, without repository or config.
pub(super) fn base_command<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new("git");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    // A process group of its own: it is killed together with its children, and Ctrl-C reaches only ctx.
    #[cfg(unix)]
    command.process_group(0);
    REMOVED_VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.envs(FIXED_VARIABLES.iter().copied());
    command
}

/// Output of a local command that touches neither the mirror nor the remote.
pub(super) async fn run_local(command: Command) -> Result<Vec<u8>, GitError> {
    let (status, stdout_bytes, stderr_bytes) = collect_output(command, LOCAL_TIMEOUT).await?;
    match status.success() {
        true => Ok(stdout_bytes),
        false => Err(GitError::Failed(String::from_utf8_lossy(&stderr_bytes).into_owned())),
    }
}

/// Runs a command to its end: exit status, stdout, and the tail of stderr.
async fn collect_output(
    command: Command,
    within: Duration,
) -> Result<(ExitStatus, Vec<u8>, Vec<u8>), GitError> {
    let mut running = RunningCommand::start(command)?;
    let (stdout, stderr) = (running.child.stdout.take(), running.child.stderr.take());
    let deadline = Instant::now() + within;
    let both = async {
        tokio::join!(read_bounded(stdout, OUTPUT_BYTES_MAX), read_stderr_tail(stderr, deadline, within))
    };
    let (stdout_bytes, stderr_bytes) = timeout_at(deadline, both).await.map_err(|_| GitError::TimedOut)?;
    let status = timeout_at(deadline, running.child.wait()).await.map_err(|_| GitError::TimedOut)??;
    Ok((status, stdout_bytes?, stderr_bytes?))
}

/// A running git command; it and its children are killed on drop.
pub(super) struct RunningCommand {
    pub(super) child: Child,
}

impl RunningCommand {
    fn start(mut command: Command) -> Result<Self, GitError> {
        match command.spawn() {
            Ok(child) => Ok(Self { child }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(GitError::NotInstalled),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the process to exit successfully.
    pub(super) async fn finish(mut self) -> Result<(), GitError> {
        drop(self.child.stdin.take());
        let status = timeout(SILENCE_TIMEOUT, self.child.wait()).await.map_err(|_| GitError::TimedOut)??;
        if status.success() { Ok(()) } else { Err(GitError::Failed(String::new())) }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // A process without an id has already exited and been reaped.
        #[cfg(unix)]
        if let Some(id) =
            self.child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?))
        {
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }
}

async fn read_bounded(from: Option<impl AsyncRead + Unpin>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let mut from = from.take(bytes_max);
        from.read_to_end(&mut bytes).await?;
        // The rest is discarded, but read, so that the process does not block.
        tokio::io::copy(&mut from.into_inner(), &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

/// The end of stderr. Fails after `silence` without output, or at `deadline`.
async fn read_stderr_tail(
    from: Option<ChildStderr>,
    deadline: Instant,
    silence: Duration,
) -> Result<Vec<u8>, GitError> {
    let Some(mut from) = from else { return Ok(Vec::new()) };
    let mut tail = VecDeque::with_capacity(STDERR_BYTES_MAX);
    let mut buffer = [0; 1024];
    loop {
        let silence_deadline = deadline.min(Instant::now() + silence);
        let count =
            timeout_at(silence_deadline, from.read(&mut buffer)).await.map_err(|_| GitError::TimedOut)??;
        if count == 0 {
            return Ok(tail.into());
        }
        tail.extend(&buffer[..count]);
        tail.drain(..tail.len().saturating_sub(STDERR_BYTES_MAX));
    }
}

/// The most informative line of git's stderr.
fn informative_line(stderr: &str) -> String {
    let lines: Vec<&str> = stderr
        .split(['\n', '\r'])
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("warning: "))
        .collect();
    let fatal = lines.iter().position(|line| line.starts_with("fatal: ") || line.starts_with("error: "));
    let line = match fatal {
        // The line before is from ssh and is more specific.
        Some(at) if lines[at].contains("Could not read from remote repository") && at > 0 => lines[at - 1],
        Some(at) => lines[at],
        None => lines.last().copied().unwrap_or("git failed without an error message"),
    };
    let line = ["fatal: ", "error: ", "remote: "]
        .iter()
        .fold(line, |line, start| line.strip_prefix(start).unwrap_or(line));
    let line = line.trim_end_matches('.');
    if line.contains("terminal prompts disabled") || line.starts_with("could not read Username") {
        return "it requires authentication, and git has no credentials for it; set up a credential helper, or put \
                `https://user:${TOKEN}@…` into the url"
            .to_owned();
    }
    line.chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_informative_line_of_stderr_is_found() {
        for (stderr, expected) in [
            ("fatal: repository 'https://h/x/' not found\n", "repository 'https://h/x/' not found"),
            (
                "Receiving objects:  10%\rReceiving objects:  20%\rfatal: early EOF\nfatal: index-pack failed",
                "early EOF",
            ),
            (
                "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.\n\n\
                 Please make sure you have the correct access rights\nand the repository exists.",
                "git@h: Permission denied (publickey)",
            ),
            ("warning: x\nsomething else", "something else"),
            ("", "git failed without an error message"),
        ] {
            assert_eq!(informative_line(stderr), expected);
        }
        let stderr = "fatal: could not read Username for 'https://h': terminal prompts disabled";
        assert!(informative_line(stderr).contains("credential helper"));
    }
}
