//! Servers that fail, and the processes that they leave behind.

use crate::fixture::{PARENT, UpstreamFixture, is_running, options, program, settings, until};
use crate::harness::Test;
use ctx_core::ErrorKind;
use ctx_mcp::{Transport, UpstreamState, Upstreams};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![faults:
    a_failed_start_is_reported_with_stderr,
    a_server_that_does_not_answer_fails_and_is_ended,
    a_server_that_floods_stderr_works,
    a_call_whose_server_crashed_is_retried_once,
    a_destructive_call_is_not_retried,
    a_crashed_server_is_restarted_for_the_next_call,
    lists_of_tools_are_bounded,
    shutting_down_leaves_no_process,
    a_server_that_does_not_exit_is_killed,
    dropping_upstreams_leaves_no_process,
    no_process_outlives_a_parent_that_is_killed,
    what_was_started_in_another_session_ends_with_its_server,
    a_server_that_is_killed_takes_what_it_has_started_with_it,
    a_supervisor_ignores_sigterm,
];

async fn a_failed_start_is_reported_with_stderr() {
    let fixture = UpstreamFixture::of("dies").await;
    assert_eq!(fixture.reason(), "its process ended with exit status: 3; stderr: no licence found for ***");
    let fixture = UpstreamFixture::with("good", |settings| {
        if let Transport::Stdio(command) = &mut settings.transport {
            command.program = "no-such-program-here".into();
        }
    })
    .await;
    assert!(
        fixture.reason().starts_with("`no-such-program-here` cannot be started: "),
        "{}",
        fixture.reason()
    );
    assert!(fixture.upstreams.providers()[0].tools().is_empty());
}

async fn a_server_that_does_not_answer_fails_and_is_ended() {
    let fixture =
        UpstreamFixture::with("mute", |settings| settings.limits.start = Duration::from_millis(300)).await;
    assert_eq!(fixture.reason(), "it did not answer within 0.3 s");
    fixture.upstreams.shutdown().await;
    assert_eq!(fixture.state(), UpstreamState::Stopped);
}

async fn a_server_that_floods_stderr_works() {
    let fixture = UpstreamFixture::of("floods").await;
    assert_eq!(fixture.call("echo", json!({"text": "a"})).await.unwrap().into_data(), json!("a"));
    let stderr_lines = fixture.upstreams.statuses().remove(0).stderr_lines;
    assert_eq!(stderr_lines.len(), 50);
    assert!(stderr_lines.iter().all(|line| line.len() <= 500));
}

async fn a_call_whose_server_crashed_is_retried_once() {
    let fixture = UpstreamFixture::of("good").await;
    assert_eq!(fixture.call("crash_once", json!({})).await.unwrap().into_data(), json!("second time"));
    assert_eq!(fixture.count_noted("start"), 2);
    let error = fixture.call("crash", json!({})).await.unwrap_err();
    let message = "up: the connection was lost during the call, and again during the retry";
    assert_eq!((error.kind(), error.message()), (ErrorKind::Tool, message));
    assert_eq!(fixture.count_noted("crash"), 2);
}

async fn a_destructive_call_is_not_retried() {
    let fixture = UpstreamFixture::of("good").await;
    let error = fixture.call("destroys", json!({})).await.unwrap_err();
    assert!(error.message().contains("`destroys` may have run"), "{error}");
    assert_eq!(fixture.count_noted("destroys"), 1);
}

async fn a_crashed_server_is_restarted_for_the_next_call() {
    let fixture = UpstreamFixture::of("good").await;
    fixture.call("destroys", json!({})).await.unwrap_err();
    assert_eq!(fixture.call("echo", json!({"text": "back"})).await.unwrap().into_data(), json!("back"));
    assert_eq!(fixture.count_noted("start"), 2);
}

async fn lists_of_tools_are_bounded() {
    let fixture = UpstreamFixture::of("many").await;
    assert_eq!(fixture.upstreams.statuses().remove(0).tools, 5_000);
    assert_eq!(fixture.catalog().functions().count(), 5_000);
    for (kind, reason) in [
        ("too_many", "it has more than 5000 tools"),
        ("endless", "its list of tools has more than 500 pages"),
        ("loops", "its list of tools never ends"),
    ] {
        assert_eq!(UpstreamFixture::of(kind).await.reason(), reason);
    }
}

async fn grandchild(fixture: &UpstreamFixture) -> String {
    start_process(fixture, "grandchild").await
}

/// Has the server start a process with this tool; returns its pid.
async fn start_process(fixture: &UpstreamFixture, tool: &str) -> String {
    let process = fixture.call(tool, json!({})).await.unwrap().into_data();
    let process = process.as_str().unwrap().to_owned();
    assert!(is_running(&process));
    process
}

async fn shutting_down_leaves_no_process() {
    let fixture = UpstreamFixture::of("good").await;
    let process = grandchild(&fixture).await;
    fixture.upstreams.shutdown().await;
    assert!(!is_running(&process));
    assert_eq!(fixture.count_noted("end"), 1);
    let error = fixture.call("echo", json!({})).await.unwrap_err();
    assert_eq!(error.message(), "up: it was shut down");
}

async fn a_server_that_does_not_exit_is_killed() {
    let fixture = UpstreamFixture::of("stays").await;
    let process = grandchild(&fixture).await;
    fixture.upstreams.shutdown().await;
    assert!(!is_running(&process));
}

async fn dropping_upstreams_leaves_no_process() {
    let fixture = UpstreamFixture::of("stays").await;
    let process = grandchild(&fixture).await;
    drop(fixture);
    until("the process has ended", || !is_running(&process)).await;
}

async fn no_process_outlives_a_parent_that_is_killed() {
    let mut parent =
        std::process::Command::new(program()).arg(PARENT).stdout(Stdio::piped()).spawn().unwrap();
    let mut processes = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut processes).unwrap();
    let processes: Vec<&str> = processes.split_whitespace().collect();
    assert!(!processes.is_empty() && processes.iter().all(|process| is_running(process)), "{processes:?}");
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the processes have ended", || !processes.iter().any(|process| is_running(process))).await;
}

/// Tools of the test server that start a process. That of `escaped` leaves the process group, so only Linux can end it.
const SPAWN_TOOLS: &[&str] =
    if cfg!(target_os = "linux") { &["grandchild", "escaped"] } else { &["grandchild"] };

async fn what_was_started_in_another_session_ends_with_its_server() {
    for kind in ["good", "stays"] {
        let fixture = UpstreamFixture::of(kind).await;
        let mut processes = Vec::new();
        for tool in SPAWN_TOOLS {
            processes.push(start_process(&fixture, tool).await);
        }
        fixture.upstreams.shutdown().await;
        assert!(!processes.iter().any(|process| is_running(process)), "{kind}: {processes:?}");
    }
}

async fn a_server_that_is_killed_takes_what_it_has_started_with_it() {
    let fixture = UpstreamFixture::of("good").await;
    let mut processes = Vec::new();
    for tool in SPAWN_TOOLS {
        processes.push(start_process(&fixture, tool).await);
    }
    fixture.call("destroys", json!({})).await.unwrap_err();
    until("the processes have ended", || !processes.iter().any(|process| is_running(process))).await;
    assert_eq!(fixture.call("echo", json!({"text": "back"})).await.unwrap().into_data(), json!("back"));
}

/// `pkill ctx` is meant for the main process, but signals supervisors too.
async fn a_supervisor_ignores_sigterm() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let fixture = UpstreamFixture::of("good").await;
    let process = start_process(&fixture, "escaped").await;
    let parent = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.split_whitespace().collect();
        fields.get(3).copied().unwrap_or_default().to_owned()
    };
    let supervisor = parent();
    let line = std::fs::read_to_string(format!("/proc/{supervisor}/cmdline")).unwrap();
    assert!(line.contains("--supervise"), "{line}");
    let status = std::process::Command::new("kill").args(["-TERM", &supervisor]).status().unwrap();
    assert!(status.success());
    assert_eq!(fixture.call("echo", json!({"text": "on"})).await.unwrap().into_data(), json!("on"));
    assert!(is_running(&supervisor) && parent() == supervisor);
    fixture.upstreams.shutdown().await;
    assert!(!is_running(&process) && !is_running(&supervisor));
}

/// A process to be killed, whose server has started other processes.
#[allow(clippy::print_stdout, reason = "what it says is for the test")]
pub(crate) fn parent() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let settings = settings("up", "stays", std::path::Path::new(""));
        let upstreams = Upstreams::start(vec![settings], options(Arc::new(|| {})));
        upstreams.wait_for_first_attempts().await;
        let catalog = ctx_core::Catalog::builder().provider(upstreams.providers().remove(0)).build();
        let mut processes = Vec::new();
        for tool in SPAWN_TOOLS {
            let call = ctx_core::Call::new(catalog.clone(), ctx_core::Caller::Cli);
            let started = ctx_core::Catalog::call(&format!("up.{tool}"), json!({}), call).await;
            processes.push(started.unwrap().into_data().as_str().unwrap().to_owned());
        }
        println!("{}", processes.join(" "));
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}
