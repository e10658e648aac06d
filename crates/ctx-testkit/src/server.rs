//! A running `ctx` server, and an HTTP client for it.

use crate::process::{self, DEADLINE, signal};
use crate::{CommandOutput, HttpResponse};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// A running server; killed on drop.
pub struct TestServer {
    child: Child,
    address: SocketAddr,
    /// The lines of its stderr as they come. Behind a lock, so that several threads can use the server.
    stderr_lines: Mutex<Receiver<String>>,
    /// The lines of its stderr that were read so far.
    stderr: String,
    root: PathBuf,
}

impl TestServer {
    /// Starts the command and waits for the line with its address.
    #[track_caller]
    pub(crate) fn spawn(mut command: Command, root: &Path) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr_lines = Mutex::new(lines(child.stderr.take().unwrap()));
        let address = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut server = Self { child, address, stderr_lines, stderr: String::new(), root: root.to_owned() };
        server.address = loop {
            let line = server.stderr_lines.get_mut().unwrap().recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|_| panic!("the server did not start:\n{}", server.stderr));
            server.stderr.push_str(&format!("{line}\n"));
            if let Some(address) = line.strip_prefix("serving http://") {
                break address.parse().expect("an address and port");
            }
        };
        server
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Opens a TCP connection to it.
    #[track_caller]
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// Sends a `GET` request.
    #[track_caller]
    pub fn get(&self, path: &str) -> HttpResponse {
        self.send("GET", path, &[], b"")
    }

    /// Sends a `POST` request with a JSON body.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> HttpResponse {
        let body = serde_json::to_vec(body).unwrap();
        self.send("POST", path, &[("content-type", "application/json")], &body)
    }

    /// Sends a request on a new connection.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpResponse {
        let mut stream = self.connect();
        stream.write_all(self.request_head(method, path, headers, body.len()).as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        HttpResponse::read(&stream)
    }

    /// The request line and headers of a request.
    pub fn request_head(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body_bytes: usize,
    ) -> String {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {body_bytes}\r\n\
             {headers}\r\n",
            self.address
        )
    }

    /// Waits until a line of its stderr contains `part`.
    #[track_caller]
    pub fn wait_for(&mut self, part: &str) {
        loop {
            let line = self.stderr_lines.get_mut().unwrap().recv_timeout(DEADLINE);
            let line = line.unwrap_or_else(|_| panic!("`{part}` was not said:\n{}", self.stderr));
            self.stderr.push_str(&format!("{line}\n"));
            if line.contains(part) {
                return;
            }
        }
    }

    /// Stops it with SIGTERM, and waits for its end.
    #[track_caller]
    pub fn stop(self) -> CommandOutput {
        signal(self.id(), "TERM");
        self.wait()
    }

    /// Waits for its end, without a signal.
    #[track_caller]
    pub fn wait(mut self) -> CommandOutput {
        let code = process::wait(&mut self.child);
        let mut stdout = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        let mut stderr = std::mem::take(&mut self.stderr);
        stderr.extend(self.stderr_lines.get_mut().unwrap().iter().map(|line| format!("{line}\n")));
        CommandOutput::new(code, stdout, stderr, &self.root)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            if sender.send(line.unwrap()).is_err() {
                break;
            }
        }
    });
    receiver
}
