//! Hostile scripts, sent to a server and to `ctx exec`: each ends with the expected error, and does not
//! affect other calls.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{HostileScript, HttpResponse, TestServer, TestWorkspace, hostile_scripts, wait_until};
use serde_json::json;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Number of concurrent scripts.
const AT_ONCE: usize = 8;
/// Every n-th script also runs alone.
const ALONE_EVERY: usize = 4;
/// Every n-th script also runs with `ctx exec`.
const EXEC_EVERY: usize = 12;
/// Interval of health checks.
const HEALTH_EVERY: Duration = Duration::from_millis(50);
/// Maximum growth of a server's memory after all scripts.
const MEMORY_KEPT_KB: u64 = 40 << 10;
/// Idle workers that a server starts in advance.
const SPARE_WORKERS: usize = 1;

/// A workspace with this time limit, and otherwise with the limits that the scripts were written for.
fn workspace(seconds: u32) -> TestWorkspace {
    TestWorkspace::empty().config(&format!(
        "[server]\nbind = \"127.0.0.1:0\"\n[limits]\nscript_timeout = {seconds}\nscript_memory_mb = 16\n\
         script_log_bytes = 4096\n"
    ))
}

/// Two servers with different time limits: a terminating script must not time out beside seven endless ones.
struct TestServers {
    hasty: TestServer,
    patient: TestServer,
}

impl TestServers {
    fn each(&self) -> [&TestServer; 2] {
        [&self.hasty, &self.patient]
    }

    /// The error message if a script did not end as expected.
    fn violation(&self, case: &HostileScript) -> Option<String> {
        let server = if case.expects_timeout() { &self.hasty } else { &self.patient };
        let reply = server.post("/tools/execute", &json!({ "script": case.source }));
        let fits = kinds(&reply).iter().any(|kind| case.matches(Err(kind)))
            || reply.status == 200 && case.matches(Ok(&reply.body["result"]));
        (!fits).then(|| format!("{}: {} {}", case.name, reply.status, reply.body))
    }
}

/// The kinds of failure that a response may stand for.
fn kinds(reply: &HttpResponse) -> &'static [&'static str] {
    match (reply.status, reply.error_code()) {
        // The static check rejects unsupported syntax before the script runs.
        (400, "bad_request") => &["source", "raised"],
        (408, "timeout") => &["time"],
        (500, "tool_error") => &["raised", "memory", "result", "contract"],
        _ => &[],
    }
}

/// The resident memory of a process, from `/proc`.
fn resident_kb(process_id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process_id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The child processes of a server: process ID and CPU time in clock ticks.
fn workers(server: &TestServer) -> Vec<(u32, u64)> {
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().file_name());
    let numbers = entries.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let worker = |id: u32| {
        // The process may have ended meanwhile.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |place: usize| fields[place].parse::<u64>().unwrap();
        (number(1) == u64::from(server.id())).then(|| (id, number(11) + number(12)))
    };
    numbers.filter_map(worker).collect()
}

/// Polls `/health` until `done`; returns the number of requests.
fn watch(server: &TestServer, done: &AtomicBool) -> usize {
    let mut asked = 0;
    while !done.load(Ordering::SeqCst) {
        assert_eq!(server.get("/health").status, 200);
        asked += 1;
        thread::sleep(HEALTH_EVERY);
    }
    asked
}

/// Runs scripts concurrently, while the health of both servers is polled.
fn run(servers: &TestServers, cases: &[&HostileScript], at_once: usize) {
    let (done, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let complaints: Vec<String> = thread::scope(|scope| {
        let watched = servers.each().map(|server| scope.spawn(|| watch(server, &done)));
        let runners: Vec<_> = (0..at_once)
            .map(|_| {
                scope.spawn(|| {
                    let take = || cases.get(next.fetch_add(1, Ordering::SeqCst));
                    std::iter::from_fn(take).filter_map(|case| servers.violation(case)).collect::<Vec<_>>()
                })
            })
            .collect();
        let ended: Vec<_> = runners.into_iter().map(|runner| runner.join()).collect();
        done.store(true, Ordering::SeqCst);
        for watched in watched {
            assert!(watched.join().unwrap() > 0);
        }
        ended.into_iter().flat_map(Result::unwrap).collect()
    });
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn hostile_scripts_end_as_they_must_and_the_server_stays_as_it_was() {
    let (quick, slow) = (workspace(1), workspace(30));
    let servers = TestServers { hasty: quick.spawn_server(), patient: slow.spawn_server() };
    for server in servers.each() {
        let warm = server.post("/tools/execute", &json!({"script": "return 1"}));
        assert_eq!((warm.status, &warm.body["result"]), (200, &json!(1)), "{:?}", warm.body);
    }
    let before = servers.each().map(|server| resident_kb(server.id()));
    let cases = hostile_scripts();
    run(&servers, &cases.iter().collect::<Vec<_>>(), AT_ONCE);
    run(&servers, &cases.iter().step_by(ALONE_EVERY).collect::<Vec<_>>(), 1);

    for (server, before) in servers.each().into_iter().zip(before) {
        wait_until("what the server keeps is near what it was", || {
            resident_kb(server.id()) < before + MEMORY_KEPT_KB
        });
        wait_until("only workers that wait for work are left", || {
            (1..=AT_ONCE + SPARE_WORKERS).contains(&workers(server).len())
        });
        wait_until("no worker computes any more", || {
            let earlier = workers(server);
            thread::sleep(HEALTH_EVERY);
            workers(server) == earlier
        });
        let fair = server.post("/tools/execute", &json!({"script": "return #string.rep('x', 1000)"}));
        assert_eq!(fair.body["result"], 1000);
    }
    let left: Vec<u32> = servers.each().into_iter().flat_map(workers).map(|(id, _)| id).collect();
    servers.hasty.stop().success();
    servers.patient.stop().success();
    wait_until("the workers have ended with their servers", || {
        left.iter().all(|id| !fs::exists(format!("/proc/{id}")).unwrap())
    });
}

#[test]
fn hostile_scripts_end_as_they_must_for_exec_too() {
    let (quick, slow) = (workspace(1), workspace(30));
    let cases = hostile_scripts();
    let mut complaints = Vec::new();
    for case in cases.iter().step_by(EXEC_EVERY) {
        let w = if case.expects_timeout() { &quick } else { &slow };
        w.write("hostile.luau", &case.source);
        let ended = w.ctx("exec hostile.luau --json");
        let fits = match ended.code {
            Some(0) => case.matches(Ok(&ended.json()["result"])),
            Some(1) if ended.stderr.contains("timed out") => case.matches(Err("time")),
            Some(1) => ["raised", "memory", "result", "contract"].iter().any(|kind| case.matches(Err(kind))),
            // The static check rejects unsupported syntax before the script runs.
            Some(2) => case.matches(Err("source")) || case.matches(Err("raised")),
            _ => false,
        };
        if !fits {
            complaints.push(format!("{}: {:?} {}{}", case.name, ended.code, ended.stdout, ended.stderr));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
