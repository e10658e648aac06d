//! Child processes: how long they may take, and how they are told to stop.

use crate::Outcome;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before a test fails. Generous: it only matters when something hangs.
pub const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// Sends a signal (`TERM`, `INT`, `KILL`) to a process.
#[track_caller]
pub fn signal(process_id: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(process_id.to_string()).status().unwrap();
    assert!(status.success(), "cannot send SIG{name} to {process_id}");
}

/// Polls until `condition` holds; fails the test, naming `what`, when it never does.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "waited in vain until {what}");
        thread::sleep(POLL);
    }
}

/// Runs to the end, or to the deadline.
#[track_caller]
pub(crate) fn run(mut command: Command, root: &Path) -> Outcome {
    let shown = format!("{command:?}");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (stdout, stderr) = (read_all(stdout), read_all(stderr));
    let started = Instant::now();
    let mut text = |pipe: mpsc::Receiver<Vec<u8>>| {
        let bytes = pipe.recv_timeout(DEADLINE.saturating_sub(started.elapsed())).unwrap_or_else(|_| {
            child.kill().unwrap();
            panic!("still running after {} s: {shown}", DEADLINE.as_secs())
        });
        String::from_utf8(bytes).expect("output is UTF-8")
    };
    let (stdout, stderr) = (text(stdout), text(stderr));
    let code = child.wait().unwrap().code();
    Outcome::new(code, stdout, stderr, root)
}

/// The exit code of a process that is about to end; `None` when a signal ended it.
#[track_caller]
pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    let mut ended = None;
    wait_until("the process has ended", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    ended.and_then(|status| status.code())
}

fn read_all(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        // Nobody listens any more when the deadline has passed.
        sender.send(bytes).ok();
    });
    receiver
}
