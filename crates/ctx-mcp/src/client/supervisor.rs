//! The supervisor process of a stdio server, on Linux: it kills the server with all of its descendants.
//!
//! A descendant that calls `setsid` leaves the server's process group. So the supervisor (this program,
//! started again) is a subreaper: orphaned descendants become its children. It kills them on request, or when
//! its stdin, a Unix socket, reaches end of file: the main process is gone then. The socket also carries the
//! server's pipes and reports. A server can kill its supervisor: both run as the same user.

use super::reaper::{ReaperProgram, kill_group, signal_group};
use super::settings::ServerCommand;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, wait};
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedWriteHalf, pipe};
use tokio::process::Child;
use tokio::sync::watch;

/// The argument, after those of the reaper, that makes the program a supervisor; the server's command follows.
pub(super) const SUPERVISE: &str = "--supervise";
/// Control byte: send SIGTERM to the server.
const TERMINATE: u8 = b't';
/// How often orphans that have exited are reaped.
const REAP_INTERVAL: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// The interval without a pidfd, when reaping is the only way to notice the server's exit.
const REAP_INTERVAL_NO_PIDFD: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How long a supervisor tries to kill processes that do not end (those of another user).
const KILL_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the main process waits for a server and its descendants to be killed.
const KILL_WAIT_MAX: Duration = Duration::from_millis(1_500);
/// Bytes of a status line.
const LINE_BYTES_MAX: u64 = 64;
/// Bytes of `/proc/PID/stat`: a name of at most 64 bytes, and some fifty numbers.
const STAT_BYTES_MAX: u64 = 4_096;

/// Starts servers, each under a supervisor.
pub(super) struct ServerStarter(ReaperProgram);

/// A running server. Dropping it kills the server and its descendants.
pub(super) struct ServerHandle {
    /// Closing it makes the supervisor kill everything and exit.
    control: Option<OwnedWriteHalf>,
    status: watch::Receiver<ServerStatus>,
    supervisor: Child,
}

/// The standard streams of a server.
pub(super) struct ServerStreams {
    pub(super) input: pipe::Sender,
    pub(super) output: pipe::Receiver,
    pub(super) errors: pipe::Receiver,
}

/// The state of a server, as its supervisor reports it.
#[derive(Clone, Default)]
struct ServerStatus {
    process: Option<i32>,
    /// The `errno` of a failed start.
    start_error: Option<i32>,
    exit: Option<ExitStatus>,
    /// Whether the supervisor has exited.
    is_gone: bool,
}

impl ServerStarter {
    pub(super) fn new(program: ReaperProgram) -> Self {
        Self(program)
    }

    pub(super) async fn start(&self, command: &ServerCommand) -> io::Result<(ServerHandle, ServerStreams)> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut supervisor = tokio::process::Command::new(&self.0.path);
        supervisor
            .args(&self.0.arguments)
            .arg(SUPERVISE)
            .arg(&command.program)
            .args(&command.arguments)
            .env_clear()
            .envs(command.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&command.directory)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // In a process group of its own: a signal to ours (Ctrl-C) must not end it.
            .process_group(0);
        let child = supervisor.spawn()?;
        // Closes our copy of the supervisor's end of the socket; without that, its exit would not be noticed.
        drop(supervisor);
        let (server_input, input) = io::pipe()?;
        let (output, server_output) = io::pipe()?;
        let (errors, server_errors) = io::pipe()?;
        send_streams(&ours, [server_input.into(), server_output.into(), server_errors.into()])?;
        let streams = ServerStreams {
            input: pipe::Sender::from_owned_fd(input.into())?,
            output: pipe::Receiver::from_owned_fd(output.into())?,
            errors: pipe::Receiver::from_owned_fd(errors.into())?,
        };
        ours.set_nonblocking(true)?;
        let (reports, control) = tokio::net::UnixStream::from_std(ours)?.into_split();
        let (sender, mut status) = watch::channel(ServerStatus::default());
        tokio::spawn(read_reports(BufReader::new(reports), sender));
        let is_reported = |status: &ServerStatus| {
            status.process.is_some() || status.start_error.is_some() || status.is_gone
        };
        let started = status.wait_for(is_reported).await.map(|status| status.clone()).unwrap_or_default();
        match started {
            ServerStatus { process: Some(_), .. } => {
                Ok((ServerHandle { control: Some(control), status, supervisor: child }, streams))
            }
            ServerStatus { start_error: Some(code), .. } => Err(io::Error::from_raw_os_error(code)),
            _ => Err(io::Error::other("its supervisor did not start")),
        }
    }
}

impl ServerHandle {
    /// Waits until the server process itself has exited.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.status.wait_for(|status| status.exit.is_some() || status.is_gone).await;
        let exit = status.ok().and_then(|status| status.exit);
        exit.ok_or_else(|| io::Error::other("its supervisor has exited"))
    }

    /// Sends SIGTERM to the server's process group.
    pub(super) async fn terminate(&mut self) {
        if let Some(control) = &mut self.control
            && control.write_all(&[TERMINATE]).await.is_err()
        {
            // The supervisor has exited.
        }
    }

    /// Kills the server and its descendants, and waits for that.
    pub(super) async fn kill(mut self) {
        drop(self.control.take());
        let mut status = self.status.clone();
        let gone = status.wait_for(|status| status.is_gone);
        if tokio::time::timeout(KILL_WAIT_MAX, gone).await.is_err() {
            tracing::debug!("the processes of a server did not exit in time");
            return;
        }
        if let Err(error) = self.supervisor.wait().await {
            tracing::debug!(%error, "cannot wait for a supervisor");
        }
    }
}

/// Reads the reports of a supervisor until it exits. If it was killed before the server exited, kills the server's
/// process group in its place.
async fn read_reports(
    mut reports: impl tokio::io::AsyncBufRead + Unpin,
    status: watch::Sender<ServerStatus>,
) {
    let mut line = String::new();
    loop {
        line.clear();
        match tokio::io::AsyncReadExt::take(&mut reports, LINE_BYTES_MAX).read_line(&mut line).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
        let (word, number) = line.trim().split_once(' ').unwrap_or_default();
        let number: Option<i32> = number.parse().ok();
        status.send_modify(|status| match word {
            "started" => status.process = number,
            "failed" => status.start_error = number,
            "ended" => status.exit = number.map(ExitStatus::from_raw),
            _ => {}
        });
    }
    status.send_modify(|status| {
        if let (Some(process), None) = (status.process, status.exit) {
            kill_group(process);
        }
        status.is_gone = true;
    });
}

fn send_streams(socket: &UnixStream, streams: [OwnedFd; 3]) -> io::Result<()> {
    let streams = streams.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    message.push(SendAncillaryMessage::ScmRights(&streams));
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(b"s")], &mut message, SendFlags::NOSIGNAL))?;
    Ok(())
}

fn receive_streams(socket: &UnixStream) -> io::Result<[OwnedFd; 3]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut message = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut message, RecvFlags::CMSG_CLOEXEC)
    })?;
    let streams = message.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(streams) => Some(streams),
        _ => None,
    });
    let streams: Vec<OwnedFd> = streams.flatten().collect();
    streams.try_into().map_err(|_| io::Error::other("the server's streams are missing"))
}

/// The main function of a supervisor: starts the server, and returns when it and its descendants have ended.
pub(super) fn supervise(command: Vec<OsString>) -> ExitCode {
    match try_supervise(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn try_supervise(command: Vec<OsString>) -> io::Result<()> {
    let mut control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // SIGTERM, SIGINT and SIGHUP are ignored: `pkill ctx` is meant for the main process, whose end ends this one.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    use tokio::signal::unix::{SignalKind, signal};
    let _ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let [input, output, errors] = receive_streams(&control)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut server = std::process::Command::new(program);
    server.args(arguments).stdin(input).stdout(output).stderr(errors).process_group(0);
    let started = server.spawn();
    // Closes our copies of the server's pipes; with them open, the server's end of file would never be seen.
    drop(server);
    let process = match started.map(|server| i32::try_from(server.id()).ok().and_then(Pid::from_raw)) {
        Ok(Some(process)) => process,
        Ok(None) => return Err(io::Error::other("it has no process id")),
        Err(error) => {
            return writeln!(
                control,
                "failed {}",
                error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error())
            );
        }
    };
    writeln!(control, "started {}", process.as_raw_nonzero())?;
    wait_for_end(&mut control, process);
    kill_group(process.as_raw_nonzero().get());
    kill_descendants();
    Ok(())
}

/// Reaps children and handles control bytes until the main process is gone, or no child is left.
fn wait_for_end(control: &mut UnixStream, server: Pid) {
    // Kernels before 5.3 have none; then the server's exit is noticed when children are reaped.
    let mut pidfd = pidfd_open(server, PidfdFlags::empty()).ok();
    let mut is_running = true;
    loop {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((process, status))) if process == server => {
                    (is_running, pidfd) = (false, None);
                    if writeln!(control, "ended {}", status.as_raw()).is_err() {
                        return;
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let mut ready = vec![PollFd::new(&*control, PollFlags::IN)];
        ready.extend(pidfd.as_ref().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        let pause = if pidfd.is_some() { &REAP_INTERVAL } else { &REAP_INTERVAL_NO_PIDFD };
        if poll(&mut ready, Some(pause)).is_err() || ready[0].revents().is_empty() {
            continue;
        }
        let mut byte = [0];
        match control.read(&mut byte) {
            Ok(1) if byte[0] == TERMINATE && is_running => {
                signal_group(server.as_raw_nonzero().get(), Signal::TERM);
            }
            Ok(1) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Kills all descendants. Only direct children are signalled: their pids cannot be reused before they are reaped. Their
/// children are reparented to us then, and are next.
fn kill_descendants() {
    let until = Instant::now() + KILL_TIME_MAX;
    while Instant::now() < until {
        for child in children() {
            if kill_process(child, Signal::KILL).is_err() {
                // It has exited, or belongs to another user.
            }
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The pids of our direct children.
fn children() -> Vec<Pid> {
    let own_pid = rustix::process::getpid().as_raw_nonzero().get();
    let Ok(folders) = std::fs::read_dir("/proc") else { return Vec::new() };
    let child = |folder: io::Result<std::fs::DirEntry>| {
        let process: i32 = folder.ok()?.file_name().to_str()?.parse().ok()?;
        let file = std::fs::File::open(format!("/proc/{process}/stat")).ok()?;
        let mut stat = Vec::new();
        // The process name in parentheses may contain anything: parentheses, spaces, line breaks.
        file.take(STAT_BYTES_MAX).read_to_end(&mut stat).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        let parent: i32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        (parent == own_pid).then(|| Pid::from_raw(process))?
    };
    folders.filter_map(child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_whatever_its_name_is() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a\n", ") 1 (", "a\n) S 1"] {
            let program = folder.path().join(name);
            std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
            let mut child = std::process::Command::new(program).arg0("sleep").arg("1000").spawn().unwrap();
            let process = Pid::from_raw(child.id() as i32).unwrap();
            let is_found = children().contains(&process);
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(is_found, "{name:?}");
        }
    }
}
