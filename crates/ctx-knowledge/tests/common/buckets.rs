//! A real S3 service on this machine, which checks signatures, and a proxy that counts requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

/// Serves until its input ends, that is, until the test ends in any way.
const SERVE: &str = "
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer('127.0.0.1', port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
";
const POLICY: &str = "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%7B%22Effect%22%3A%22Allow%22%2C\
                      %22Action%22%3A%22s3%3A*%22%2C%22Resource%22%3A%22*%22%7D%7D";

/// The service, with one user and the buckets of a test crate.
pub(crate) struct Buckets {
    host: String,
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: String,
    _input: ChildStdin,
    _child: Child,
}

impl Buckets {
    /// The one service of this process, with these buckets and empty objects.
    pub(crate) fn start(buckets: &[&str]) -> &'static Self {
        static SERVICE: OnceLock<Buckets> = OnceLock::new();
        SERVICE.get_or_init(|| Self::new(buckets))
    }

    fn new(buckets: &[&str]) -> Self {
        let python = python();
        assert!(
            python.exists(),
            "these tests need an S3 service: run `cargo xtask tools`, or set MOTO_PYTHON ({} is not there)",
            python.display()
        );
        let mut child = Command::new(python)
            .args(["-u", "-c", SERVE])
            // This many requests are accepted unsigned; then signatures are checked.
            .env("INITIAL_NO_AUTH_ACTION_COUNT", (3 + buckets.len()).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let host = format!("127.0.0.1:{}", port.trim());
        let identity = |action: &str| {
            let body = format!("Action={action}&UserName=tester&Version=2010-05-08");
            request(&host, "POST /", "iam", &body)
        };
        identity("CreateUser");
        identity(&format!("PutUserPolicy&PolicyName=all&PolicyDocument={POLICY}"));
        let key = identity("CreateAccessKey");
        let field = |name: &str| {
            let (_, rest) = key.split_once(&format!("<{name}>")).unwrap();
            rest.split('<').next().unwrap().to_owned()
        };
        for bucket in buckets {
            request(&host, &format!("PUT /{bucket}"), "s3", "");
        }
        Self {
            access_key_id: field("AccessKeyId"),
            secret_access_key: field("SecretAccessKey"),
            host,
            _input: child.stdin.take().unwrap(),
            _child: child,
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "where a tool of the tests is, the environment may say")]
fn python() -> PathBuf {
    let chosen = std::env::var_os("MOTO_PYTHON").map(PathBuf::from);
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    chosen.unwrap_or_else(|| target.join("tools/moto/bin/python"))
}

fn request(host: &str, line: &str, service: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    let text = format!(
        "{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nAuthorization: AWS4-HMAC-SHA256 \
         Credential=a/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

/// A proxy in front of the service, which records requests and can be stopped.
pub(crate) struct Proxy {
    pub(crate) url: String,
    state: Arc<Mutex<ProxyState>>,
}

#[derive(Default)]
struct ProxyState {
    requests: Vec<String>,
    requests_left: Option<usize>,
}

impl Proxy {
    pub(crate) fn start(service: &'static Buckets) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(ProxyState::default()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = shared.clone();
                std::thread::spawn(move || relay(stream, &service.host, &shared));
            }
        });
        Self { url, state }
    }

    /// Requests since the last time: `GET /bucket/key`.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// Answers this many more requests, then none.
    pub(crate) fn stop_after(&self, requests: Option<usize>) {
        self.state.lock().unwrap().requests_left = requests;
    }
}

/// Handles one request, then closes the connection.
fn relay(client: TcpStream, host: &str, state: &Mutex<ProxyState>) -> Option<()> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    {
        let mut state = state.lock().unwrap();
        match &mut state.requests_left {
            Some(0) => return None,
            Some(requests_left) => *requests_left -= 1,
            None => {}
        }
        let line = head.lines().next()?.trim_end_matches(" HTTP/1.1").to_owned();
        state.requests.push(line);
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let mut service = TcpStream::connect(host).ok()?;
    service.write_all(head.trim_end().as_bytes()).ok()?;
    service.write_all(b"\r\nConnection: close\r\n\r\n").ok()?;
    service.write_all(&body).ok()?;
    let mut client = client;
    std::io::copy(&mut service, &mut client).ok().map(drop)
}
