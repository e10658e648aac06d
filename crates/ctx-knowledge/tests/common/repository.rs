//! A git repository in a temporary folder, and a web server that serves it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// User name and password of a [`GitServer`], and the header that contains them.
pub(crate) const LOGIN: &str = "jane:hunter2%21x@";
pub(crate) const AUTHORIZATION: &str = "Basic amFuZTpodW50ZXIyIXg=";

/// A repository with a working tree, on branch `main`.
pub(crate) struct Repository {
    folder: TempDir,
}

impl Repository {
    pub(crate) fn new() -> Self {
        let repository = Self { folder: tempfile::tempdir().unwrap() };
        repository.git(&["init", "--quiet", "-b", "main"]);
        // As the usual git hosts do.
        repository.git(&["config", "uploadpack.allowFilter", "true"]);
        repository.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
        repository
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.path().display())
    }

    /// Writes a file; nothing is committed.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// Commits all files.
    pub(crate) fn commit(&self, author: &str, at: &str) -> &Self {
        self.git(&["add", "--all"]);
        self.run(&["commit", "--quiet", "--allow-empty", "-m", "a change"], author, at);
        self
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        self.run(arguments, "Somebody", "2026-01-01T00:00:00Z")
    }

    fn run(&self, arguments: &[&str], author: &str, at: &str) -> String {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(self.path());
        for (key, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_AUTHOR_NAME", author),
            ("GIT_COMMITTER_NAME", "The Committer"),
            ("GIT_AUTHOR_EMAIL", "a@example.test"),
            ("GIT_COMMITTER_EMAIL", "c@example.test"),
            ("GIT_AUTHOR_DATE", "2000-01-01T00:00:00Z"),
            ("GIT_COMMITTER_DATE", at),
        ] {
            command.env(key, value);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The id of the newest commit.
    pub(crate) fn tip(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }
}

/// Serves a repository over HTTP with a password, until the test ends. Used as an HTTP proxy, it serves the
/// repository at every URL.
pub(crate) struct GitServer {
    host: String,
    fetches: Arc<Mutex<Vec<String>>>,
}

impl GitServer {
    pub(crate) fn start(repository: &Repository) -> Self {
        Self::speaking("version=2", repository)
    }

    /// A server that knows only version 0 of git's protocol.
    pub(crate) fn old(repository: &Repository) -> Self {
        Self::speaking("version=0", repository)
    }

    fn speaking(protocol: &'static str, repository: &Repository) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let fetches = Arc::new(Mutex::new(Vec::new()));
        let (root, seen) = (repository.path().to_owned(), fetches.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (root, seen) = (root.clone(), seen.clone());
                std::thread::spawn(move || answer(stream, &root, protocol, &seen));
            }
        });
        Self { host, fetches }
    }

    /// The URL of the repository with these credentials.
    pub(crate) fn url(&self, login: &str) -> String {
        format!("http://{login}{}/.git", self.host)
    }

    /// The URL of the server as a proxy.
    pub(crate) fn proxy_url(&self) -> String {
        format!("http://{}", self.host)
    }

    /// The bodies of the requests for objects so far.
    pub(crate) fn take_fetches(&self) -> Vec<String> {
        std::mem::take(&mut self.fetches.lock().unwrap())
    }
}

/// Answers one request with git's own HTTP backend.
fn answer(stream: TcpStream, root: &Path, protocol: &str, seen: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head).ok()? == 0 {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let header = |name: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}: ")))?;
        Some(line[name.len() + 2..].to_owned())
    };
    let mut words = head.split_whitespace();
    let (method, target) = (words.next()?, words.next()?);
    // Requests to a proxy have a whole URL.
    let target = target.strip_prefix("http://").map_or(target, |rest| &rest[rest.find('/').unwrap_or(0)..]);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut body = vec![0; header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let mut stream = stream;
    if header("authorization").as_deref() != Some(AUTHORIZATION) {
        let refusal = "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"t\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        return stream.write_all(refusal.as_bytes()).ok();
    }
    let is_zipped = header("content-encoding").is_some();
    let text = String::from_utf8_lossy(&body).into_owned();
    if is_zipped || text.contains("command=fetch") {
        seen.lock().unwrap().push(text);
    }
    let mut child = Command::new("git")
        .args(["-c", "safe.directory=*", "http-backend"])
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("CONTENT_TYPE", header("content-type").unwrap_or_default())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding").unwrap_or_default())
        .env("GIT_PROTOCOL", protocol)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(&body).ok()?;
    let output = child.wait_with_output().ok()?.stdout;
    let status = if output.starts_with(b"Status: ") { "404 Not Found" } else { "200 OK" };
    stream.write_all(format!("HTTP/1.1 {status}\r\nConnection: close\r\n").as_bytes()).ok()?;
    stream.write_all(&output).ok()
}

/// The host of a web server that redirects to the repository at this URL.
pub(crate) fn redirecting_host(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("localhost:{}", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let mut reader = BufReader::new(&stream);
            while reader.read_line(&mut line).is_ok() && !line.ends_with("\n\r\n") {}
            let answer = format!(
                "HTTP/1.1 301 Moved\r\nLocation: {to}/info/refs?service=git-upload-pack\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            Write::write_all(&mut &stream, answer.as_bytes()).ok();
        }
    });
    host
}

/// Every file below a folder that contains these bytes.
pub(crate) fn files_with(folder: &Path, needle: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            paths.extend(files_with(&path, needle));
        } else if fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle.as_bytes()) {
            paths.push(path);
        }
    }
    paths
}
