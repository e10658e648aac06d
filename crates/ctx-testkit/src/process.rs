//! Child processes with a deadline, and signals.

use crate::CommandOutput;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of everything that a test waits for. Generous, since it only matters when something hangs.
pub const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// Sends a signal (`TERM`, `INT`, `KILL`) to a process.
#[track_caller]
pub fn signal(process_id: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(process_id.to_string()).status().unwrap();
    assert!(status.success(), "cannot send SIG{name} to {process_id}");
}

/// Polls until `condition` holds; fails the test after [`DEADLINE`], with `what` in the message.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "waited in vain until {what}");
        thread::sleep(POLL);
    }
}

/// Runs a command to its end; kills it and fails the test after [`DEADLINE`].
#[track_caller]
pub(crate) fn run(mut command: Command, root: &Path) -> CommandOutput {
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
    CommandOutput::new(code, stdout, stderr, root)
}

/// Waits for the end of a process and returns its exit code; `None` if a signal ended it.
#[track_caller]
pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    let mut status = None;
    wait_until("the process has ended", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.and_then(|status| status.code())
}

fn read_all(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        // The receiver is gone if the deadline has passed.
        sender.send(bytes).ok();
    });
    receiver
}
