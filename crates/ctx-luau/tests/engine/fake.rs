//! Faulty workers, which violate the protocol.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Duration;

const READY: u8 = 16;
const QUESTION: u8 = 17;
const LOG: u8 = 18;
const DONE: u8 = 19;
const VERSION: u32 = 2;
const LINES: usize = 1_000_000;

fn header(kind: u8, number: u32, name: usize, json: u32, bytes: u32) -> Vec<u8> {
    let mut header = vec![kind, u8::try_from(name).unwrap()];
    for figure in [number, json, bytes] {
        header.extend_from_slice(&figure.to_le_bytes());
    }
    header
}

fn frame(kind: u8, number: u32, name: &str, json: &str) -> Vec<u8> {
    let header = header(kind, number, name.len(), u32::try_from(json.len()).unwrap(), 0);
    [&header[..], name.as_bytes(), json.as_bytes()].concat()
}

/// Writes to the parent; sleeps for ever if the parent has closed the pipe.
fn send(bytes: &[u8]) {
    if std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()).is_err() {
        std::thread::sleep(Duration::MAX);
    }
}

fn receive() -> Vec<u8> {
    let mut received = vec![0; 1 << 16];
    let length = std::io::stdin().read(&mut received).unwrap();
    received.truncate(length);
    received
}

#[allow(clippy::disallowed_methods, reason = "tells what a worker could learn")]
fn surroundings() -> String {
    let folder = std::env::current_dir().unwrap();
    serde_json::json!({ "environment": std::env::vars_os().count(), "folder": folder }).to_string()
}

/// Misbehaves as the argument says, and then stays silent.
pub(crate) fn main(fault: &str) -> ExitCode {
    let greeting = receive();
    if greeting.is_empty() {
        return ExitCode::SUCCESS;
    }
    match fault {
        "is-silent" => std::thread::sleep(Duration::MAX),
        "greets-with-garbage" => send(b"Hello, this is a worker speaking."),
        "ends-at-once" => return ExitCode::from(7),
        _ => send(&frame(READY, VERSION, "", "")),
    }
    let run = receive();
    if run.is_empty() {
        return ExitCode::SUCCESS;
    }
    match fault {
        "claims-too-much" => send(&header(DONE, 0, 0, u32::MAX, u32::MAX)),
        "claims-a-lot-and-stops" => send(&header(DONE, 0, 0, 60 << 20, 0)),
        "is-of-no-kind" => send(&frame(99, 0, "", "")),
        "greets-again" => send(&frame(READY, VERSION, "", "")),
        "logs-without-end" => (0..LINES).for_each(|_| send(&frame(LOG, 1, "", ""))),
        "asks-without-waiting" => {
            (0..1_000).for_each(|number| send(&frame(QUESTION, number, "never", "null")));
        }
        "asks-the-same-twice" => (0..2).for_each(|_| send(&frame(QUESTION, 1, "env.get", "null"))),
        "answers-too-deep" => {
            send(&frame(DONE, 0, "", &format!("{}{}", "[".repeat(1_000), "]".repeat(1_000))));
        }
        "answers-too-many" => send(&frame(DONE, 0, "", &format!("[{}1]", "1,".repeat(400_000)))),
        "answers-too-large" => send(&frame(DONE, 0, "", &format!("\"{}\"", "a".repeat(3 << 20)))),
        "answers-no-json" => send(&frame(DONE, 0, "", "{")),
        "answers-twice" => send(&[frame(DONE, 0, "", "1"), frame(DONE, 0, "", "2")].concat()),
        "ends" => return ExitCode::from(7),
        "has-no-memory" => {
            std::io::stderr().write_all(b"memory allocation of 64 bytes failed").unwrap();
            std::process::abort();
        }
        "says-what-it-has" => send(&frame(DONE, 0, "", &surroundings())),
        "asks-two-at-once" => {
            send(&[frame(QUESTION, 1, "echo", "\"a\""), frame(QUESTION, 2, "echo", "\"b\"")].concat());
            let mut received = String::new();
            while !(received.contains("\"a\"") && received.contains("\"b\"")) {
                received.push_str(&String::from_utf8_lossy(&receive()));
            }
            send(&frame(DONE, 0, "", "\"both\""));
        }
        _ => {}
    }
    std::thread::sleep(Duration::MAX);
    ExitCode::SUCCESS
}
