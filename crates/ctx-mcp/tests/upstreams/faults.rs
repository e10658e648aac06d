//! Servers that fail, and the processes that they leave behind.

use crate::harness::Test;
use crate::world::{PARENT, World, options, program, runs, settings, until};
use ctx_core::ErrorKind;
use ctx_mcp::{Transport, UpstreamState, Upstreams};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![faults:
    one_that_cannot_be_started_is_told_with_what_it_said,
    one_that_does_not_answer_is_given_up_and_ends,
    one_that_floods_stderr_works,
    a_call_whose_server_crashed_is_made_once_more,
    a_call_that_destroys_is_not_made_again,
    one_that_crashed_is_back_for_the_next_call,
    lists_of_tools_are_bounded,
    shutting_down_leaves_no_process,
    one_that_does_not_end_is_ended,
    dropping_them_leaves_no_process,
    no_process_outlives_a_parent_that_is_killed,
    what_was_started_in_another_session_ends_with_its_server,
    a_server_that_is_killed_takes_what_it_has_started_with_it,
    a_supervisor_stays_when_it_is_asked_to_end,
];

async fn one_that_cannot_be_started_is_told_with_what_it_said() {
    let world = World::of("dies").await;
    assert_eq!(world.reason(), "its process ended with exit status: 3; it said: no licence found for ***");
    let world = World::with("good", |settings| {
        if let Transport::Stdio(command) = &mut settings.transport {
            command.program = "no-such-program-here".into();
        }
    })
    .await;
    assert!(world.reason().starts_with("`no-such-program-here` cannot be started: "), "{}", world.reason());
    assert!(world.upstreams.providers()[0].tools().is_empty());
}

async fn one_that_does_not_answer_is_given_up_and_ends() {
    let world = World::with("mute", |settings| settings.limits.start = Duration::from_millis(300)).await;
    assert_eq!(world.reason(), "it did not answer within 0.3 s");
    world.upstreams.shutdown().await;
    assert_eq!(world.state(), UpstreamState::Stopped);
}

async fn one_that_floods_stderr_works() {
    let world = World::of("floods").await;
    assert_eq!(world.call("echo", json!({"text": "a"})).await.unwrap().into_data(), json!("a"));
    let said = world.upstreams.states().remove(0).said;
    assert_eq!(said.len(), 50);
    assert!(said.iter().all(|line| line.len() <= 500));
}

async fn a_call_whose_server_crashed_is_made_once_more() {
    let world = World::of("good").await;
    assert_eq!(world.call("crash_once", json!({})).await.unwrap().into_data(), json!("second time"));
    assert_eq!(world.noted("start"), 2);
    let error = world.call("crash", json!({})).await.unwrap_err();
    let told = "up: the connection was lost during the call, and once more when it was repeated";
    assert_eq!((error.kind(), error.message()), (ErrorKind::Tool, told));
    assert_eq!(world.noted("crash"), 2);
}

async fn a_call_that_destroys_is_not_made_again() {
    let world = World::of("good").await;
    let error = world.call("destroys", json!({})).await.unwrap_err();
    assert!(error.message().contains("`destroys` may have run"), "{error}");
    assert_eq!(world.noted("destroys"), 1);
}

async fn one_that_crashed_is_back_for_the_next_call() {
    let world = World::of("good").await;
    world.call("destroys", json!({})).await.unwrap_err();
    assert_eq!(world.call("echo", json!({"text": "back"})).await.unwrap().into_data(), json!("back"));
    assert_eq!(world.noted("start"), 2);
}

async fn lists_of_tools_are_bounded() {
    let world = World::of("many").await;
    assert_eq!(world.upstreams.states().remove(0).tools, 5_000);
    assert_eq!(world.catalog().functions().count(), 5_000);
    for (kind, reason) in [
        ("too_many", "it has more than 5000 tools"),
        ("endless", "its list of tools has more than 500 pages"),
        ("loops", "its list of tools never ends"),
    ] {
        assert_eq!(World::of(kind).await.reason(), reason);
    }
}

async fn grandchild(world: &World) -> String {
    start_process(world, "grandchild").await
}

/// Has the server start a process with this tool; returns its pid.
async fn start_process(world: &World, tool: &str) -> String {
    let process = world.call(tool, json!({})).await.unwrap().into_data();
    let process = process.as_str().unwrap().to_owned();
    assert!(runs(&process));
    process
}

async fn shutting_down_leaves_no_process() {
    let world = World::of("good").await;
    let process = grandchild(&world).await;
    world.upstreams.shutdown().await;
    assert!(!runs(&process));
    assert_eq!(world.noted("end"), 1);
    let error = world.call("echo", json!({})).await.unwrap_err();
    assert_eq!(error.message(), "up: it was shut down");
}

async fn one_that_does_not_end_is_ended() {
    let world = World::of("stays").await;
    let process = grandchild(&world).await;
    world.upstreams.shutdown().await;
    assert!(!runs(&process));
}

async fn dropping_them_leaves_no_process() {
    let world = World::of("stays").await;
    let process = grandchild(&world).await;
    drop(world);
    until("the process has ended", || !runs(&process)).await;
}

async fn no_process_outlives_a_parent_that_is_killed() {
    let mut parent =
        std::process::Command::new(program()).arg(PARENT).stdout(Stdio::piped()).spawn().unwrap();
    let mut processes = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut processes).unwrap();
    let processes: Vec<&str> = processes.split_whitespace().collect();
    assert!(!processes.is_empty() && processes.iter().all(|process| runs(process)), "{processes:?}");
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("the processes have ended", || !processes.iter().any(|process| runs(process))).await;
}

/// Tools of the test server that start a process. That of `escaped` leaves the process group, so only Linux can end it.
const SPAWN_TOOLS: &[&str] =
    if cfg!(target_os = "linux") { &["grandchild", "escaped"] } else { &["grandchild"] };

async fn what_was_started_in_another_session_ends_with_its_server() {
    for kind in ["good", "stays"] {
        let world = World::of(kind).await;
        let mut processes = Vec::new();
        for tool in SPAWN_TOOLS {
            processes.push(start_process(&world, tool).await);
        }
        world.upstreams.shutdown().await;
        assert!(!processes.iter().any(|process| runs(process)), "{kind}: {processes:?}");
    }
}

async fn a_server_that_is_killed_takes_what_it_has_started_with_it() {
    let world = World::of("good").await;
    let mut processes = Vec::new();
    for tool in SPAWN_TOOLS {
        processes.push(start_process(&world, tool).await);
    }
    world.call("destroys", json!({})).await.unwrap_err();
    until("the processes have ended", || !processes.iter().any(|process| runs(process))).await;
    assert_eq!(world.call("echo", json!({"text": "back"})).await.unwrap().into_data(), json!("back"));
}

/// `pkill ctx` is meant for the main process, but signals supervisors too.
async fn a_supervisor_stays_when_it_is_asked_to_end() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let world = World::of("good").await;
    let process = start_process(&world, "escaped").await;
    let parent = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.split_whitespace().collect();
        fields.get(3).copied().unwrap_or_default().to_owned()
    };
    let supervisor = parent();
    let line = std::fs::read_to_string(format!("/proc/{supervisor}/cmdline")).unwrap();
    assert!(line.contains("--supervise"), "{line}");
    let asked = std::process::Command::new("kill").args(["-TERM", &supervisor]).status().unwrap();
    assert!(asked.success());
    assert_eq!(world.call("echo", json!({"text": "on"})).await.unwrap().into_data(), json!("on"));
    assert!(runs(&supervisor) && parent() == supervisor);
    world.upstreams.shutdown().await;
    assert!(!runs(&process) && !runs(&supervisor));
}

/// A process to be killed, whose server has started other processes.
#[allow(clippy::print_stdout, reason = "what it says is for the test")]
pub(crate) fn parent() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let settings = settings("up", "stays", std::path::Path::new(""));
        let upstreams = Upstreams::start(vec![settings], options(Arc::new(|| {})));
        upstreams.settled().await;
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
