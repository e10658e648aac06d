//! Kills the processes of stdio servers after this process is gone, however it ended.
//!
//! A server often starts other processes (`npx` starts node), and a killed process cannot clean up behind
//! itself. On Linux the supervisor of each server kills them. Elsewhere one reaper process (this program,
//! started again) receives the ID of every process group; end of file on its stdin means that we are gone,
//! and it kills those groups.

#![cfg_attr(target_os = "linux", allow(dead_code, reason = "supervisors do this on Linux"))]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

/// The command that starts a reaper or supervisor process.
#[derive(Clone, Debug)]
pub struct ReaperProgram {
    /// The program.
    pub path: PathBuf,
    /// Arguments upon which the program calls [`reaper_main`] and does nothing else.
    pub arguments: Vec<OsString>,
}

/// The main function of a reaper process, and on Linux of a supervisor process; returns its exit code.
pub fn reaper_main() -> ExitCode {
    #[cfg(target_os = "linux")]
    {
        use super::supervisor::{SUPERVISE, supervise};
        let mut command = std::env::args_os().skip_while(|argument| argument != SUPERVISE);
        if command.next().is_some() {
            return supervise(command.collect());
        }
    }
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match line.split_at_checked(1) {
            Some(("+", group)) => drop(group.parse().map(|group: i32| groups.insert(group))),
            Some(("-", group)) => drop(group.parse().map(|group: i32| groups.remove(&group))),
            _ => {}
        }
    }
    groups.into_iter().for_each(kill_group);
    ExitCode::SUCCESS
}

/// Kills every process of a group (SIGKILL).
pub(super) fn kill_group(group: i32) {
    #[cfg(unix)]
    signal_group(group, rustix::process::Signal::KILL);
    #[cfg(not(unix))]
    let _ = group;
}

/// Sends a signal to every process of a group, which may be empty already.
#[cfg(unix)]
pub(super) fn signal_group(group: i32, signal: rustix::process::Signal) {
    if let Some(group) = rustix::process::Pid::from_raw(group)
        && rustix::process::kill_process_group(group, signal).is_err()
    {
        // All of them have ended.
    }
}

/// The handle of the reaper process, which is started with the first server.
pub(super) struct Reaper {
    program: ReaperProgram,
    state: Mutex<ReaperState>,
}

#[derive(Default)]
struct ReaperState {
    groups: BTreeSet<i32>,
    running: Option<(Child, ChildStdin)>,
}

impl Reaper {
    pub(super) fn new(program: ReaperProgram) -> Self {
        Self { program, state: Mutex::default() }
    }

    /// Registers a process group to be killed after we are gone. Fails if no reaper process can be started.
    pub(super) fn register(&self, group: i32) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.insert(group);
        if let Some((_, stdin)) = state.running.as_mut()
            && send_command(stdin, '+', group).is_ok()
        {
            return Ok(());
        }
        // No reaper process runs: start one, and register all groups with it.
        stop(state.running.take());
        let (child, mut stdin) = self.start()?;
        state.groups.iter().try_for_each(|group| send_command(&mut stdin, '+', *group))?;
        state.running = Some((child, stdin));
        Ok(())
    }

    /// Unregisters a process group that has ended.
    pub(super) fn unregister(&self, group: i32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.remove(&group);
        if let Some((_, stdin)) = state.running.as_mut()
            && let Err(error) = send_command(stdin, '-', group)
        {
            tracing::debug!(%error, "cannot send a command to the reaper");
        }
    }

    fn start(&self) -> io::Result<(Child, ChildStdin)> {
        let mut command = Command::new(&self.program.path);
        command
            .args(&self.program.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // In a process group of its own: a signal to ours (Ctrl-C) must not end it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("the reaper has no stdin"))?;
        Ok((child, stdin))
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        stop(self.state.get_mut().unwrap_or_else(PoisonError::into_inner).running.take());
    }
}

/// Closes the stdin of the reaper process, upon which it exits, and waits for that.
fn stop(running: Option<(Child, ChildStdin)>) {
    let Some((mut child, stdin)) = running else { return };
    drop(stdin);
    if let Err(error) = child.wait() {
        tracing::debug!(%error, "cannot wait for the reaper");
    }
}

fn send_command(stdin: &mut ChildStdin, word: char, group: i32) -> io::Result<()> {
    stdin.write_all(format!("{word}{group}\n").as_bytes())
}
