//! Servers that start slowly.

use crate::fixture::{UpstreamFixture, options, settings};
use crate::harness::Test;
use ctx_mcp::{Transport, UpstreamOptions, UpstreamSettings, UpstreamState, Upstreams};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![slow_start:
    a_slow_server_that_ignores_the_probe_connects,
    a_slow_server_that_keeps_to_the_era_of_the_probe_connects,
    many_start_a_few_at_a_time,
    the_start_limit_does_not_count_the_time_before_a_server_is_started,
    a_settled_catalog_has_the_tools_of_a_connecting_server,
];

/// The kind of this server in the tests' settings.
pub(crate) const KIND: &str = "slow";

/// The server ignores `server/discover`, as older ones do.
const IGNORES_PROBE: &str = "ignores";
/// It speaks the era of the first request that it reads, as servers of the Python SDK 2.x do.
const KEEPS_TO_PROBE: &str = "keeps";

/// Reads nothing for `delay` milliseconds, then serves the tool `echo`.
pub(crate) fn main(file: &str, style: &str, delay: &str) -> ExitCode {
    let note = |what: &str| {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
        // One write: other servers note in the same file.
        file.unwrap().write_all(format!("{what}\n").as_bytes()).unwrap();
    };
    note("started");
    std::thread::sleep(Duration::from_millis(delay.parse().unwrap()));
    let mut is_stateless = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let method = message["method"].as_str().unwrap_or_default();
        let is_probe = method == "server/discover";
        let is_stateless = *is_stateless.get_or_insert(is_probe && style == KEEPS_TO_PROBE);
        let info = json!({"name": "slow", "version": "1"});
        let result = match method {
            "server/discover" if is_stateless => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "serverInfo": info, "ttlMs": 0, "cacheScope": "private",
            }),
            "initialize" if !is_stateless => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info,
            }),
            "tools/list" => {
                note("listed");
                let tools = json!([{"name": "echo", "inputSchema": {"type": "object"}}]);
                json!({"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"})
            }
            "initialize" => {
                let error = json!({"code": -32600, "message": "another era"});
                write_message(&json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
                continue;
            }
            _ => continue,
        };
        if method != "tools/list" {
            note("answered");
        }
        write_message(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
    }
    ExitCode::SUCCESS
}

#[allow(clippy::print_stdout, reason = "stdout is the protocol")]
fn write_message(message: &Value) {
    println!("{message}");
}

/// Makes a server answer in this style, and after this many milliseconds.
fn slow_down(settings: &mut UpstreamSettings, style: &str, delay: &str, limit: Duration) {
    settings.limits.start = limit;
    if let Transport::Stdio(command) = &mut settings.transport {
        command.arguments.extend([style.into(), delay.into()]);
    }
}

/// A server that answers after a good part of its start limit.
async fn slow(style: &str) -> UpstreamFixture {
    UpstreamFixture::with(KIND, |settings| slow_down(settings, style, "2500", Duration::from_secs(8))).await
}

async fn a_slow_server_that_ignores_the_probe_connects() {
    let fixture = slow(IGNORES_PROBE).await;
    assert_eq!(fixture.state(), UpstreamState::Ready);
    assert_eq!(fixture.upstreams.statuses().remove(0).protocol.as_deref(), Some("2025-11-25"));
}

async fn a_slow_server_that_keeps_to_the_era_of_the_probe_connects() {
    let fixture = slow(KEEPS_TO_PROBE).await;
    assert_eq!(fixture.state(), UpstreamState::Ready);
    assert_eq!(fixture.upstreams.statuses().remove(0).protocol.as_deref(), Some("2026-07-28"));
}

/// Starts this many servers, each with this delay and limit, a few at once; returns them when all have been tried.
async fn start_many(
    count: usize,
    starts_at_once: usize,
    delay: &str,
    limit: Duration,
    file: &Path,
) -> Upstreams {
    let server = |number: usize| {
        let mut settings = settings(&format!("up{number}"), KIND, file);
        slow_down(&mut settings, KEEPS_TO_PROBE, delay, limit);
        settings
    };
    let options = UpstreamOptions { starts_at_once, ..options(Arc::new(|| {})) };
    let upstreams = Upstreams::start((0..count).map(server).collect(), options);
    upstreams.wait_for_first_attempts().await;
    upstreams
}

async fn many_start_a_few_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noted");
    let upstreams = start_many(9, 3, "100", Duration::from_secs(60), &file).await;
    let states: Vec<_> = upstreams.statuses().into_iter().map(|status| status.state).collect();
    assert!(states.iter().all(|state| *state == UpstreamState::Ready), "{states:?}");
    let count_noted = std::fs::read_to_string(&file).unwrap();
    let (mut starting, mut most) = (0, 0);
    for line in count_noted.lines() {
        match line {
            "started" => starting += 1,
            "answered" => starting -= 1,
            _ => {}
        }
        most = most.max(starting);
    }
    assert!((1..=3).contains(&most), "{most} at once: {count_noted}");
}

/// Each server takes one second of its three; the last one is started after five.
async fn the_start_limit_does_not_count_the_time_before_a_server_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let upstreams = start_many(6, 1, "1000", Duration::from_secs(3), &folder.path().join("noted")).await;
    let states: Vec<_> = upstreams.statuses().into_iter().map(|status| status.state).collect();
    assert!(states.iter().all(|state| *state == UpstreamState::Ready), "{states:?}");
}

async fn a_settled_catalog_has_the_tools_of_a_connecting_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noted");
    let mut settings = settings("up", KIND, &file);
    slow_down(&mut settings, KEEPS_TO_PROBE, "300", Duration::from_secs(60));
    let fixture = UpstreamFixture::start(settings, file, None);
    let catalog = fixture.catalog();
    assert_eq!(catalog.functions().count(), 0);
    let settled = catalog.wait_for_providers(|_| true, Duration::from_secs(60)).await;
    let functions: Vec<String> = settled.functions().map(|entry| entry.name.to_string()).collect();
    assert_eq!((functions, settled.pending_providers().count()), (vec!["up.echo".to_owned()], 0));
}
