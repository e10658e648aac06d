//! Kills the processes of stdio servers after this process is gone, however it ended.
//!
//! A server often starts other processes (`npx` starts node), and a killed process cannot clean up behind itself. On
//! Linux the supervisor of each server does. Elsewhere one reaper process, the same program started again, is told of
//! every process group; end of file on its standard input means that we are gone, and it kills those groups.

#![cfg_attr(target_os = "linux", allow(dead_code, reason = "supervisors do this on Linux"))]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};

/// Which program the reaper is.
#[derive(Clone, Debug)]
pub struct ReaperProgram {
    /// The program.
    pub path: PathBuf,
    /// What tells it to be the reaper: it calls [`reaper_main`] then.
    pub arguments: Vec<OsString>,
}

/// What the program does when it was started to be the reaper: it ends with what is returned.
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
    groups.into_iter().for_each(end_group);
    ExitCode::SUCCESS
}

/// Ends every process of a group at once.
pub(super) fn end_group(group: i32) {
    #[cfg(unix)]
    signal_group(group, rustix::process::Signal::KILL);
    #[cfg(not(unix))]
    let _ = group;
}

/// Sends a signal to every process of a group; nobody may be left in it.
#[cfg(unix)]
pub(super) fn signal_group(group: i32, signal: rustix::process::Signal) {
    if let Some(group) = rustix::process::Pid::from_raw(group)
        && rustix::process::kill_process_group(group, signal).is_err()
    {
        // All of them have ended.
    }
}

/// The reaper as whoever starts servers knows it; it is started with the first of them.
pub(super) struct Reaper {
    program: ReaperProgram,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: BTreeSet<i32>,
    running: Option<(Child, ChildStdin)>,
}

impl Reaper {
    pub(super) fn new(program: ReaperProgram) -> Self {
        Self { program, state: Mutex::default() }
    }

    /// Has this group end with us. The error tells why nobody would see to it.
    pub(super) fn watch(&self, group: i32) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.insert(group);
        if let Some((_, told)) = state.running.as_mut()
            && tell(told, '+', group).is_ok()
        {
            return Ok(());
        }
        // There is none, or it is gone: then another is told of all.
        end(state.running.take());
        let (child, mut told) = self.start()?;
        state.groups.iter().try_for_each(|group| tell(&mut told, '+', *group))?;
        state.running = Some((child, told));
        Ok(())
    }

    /// The group is gone.
    pub(super) fn forget(&self, group: i32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.groups.remove(&group);
        if let Some((_, told)) = state.running.as_mut()
            && let Err(error) = tell(told, '-', group)
        {
            tracing::debug!(%error, "the reaper does not listen");
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
        // Not of our group: whoever ends that must not end it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let told = child.stdin.take().ok_or_else(|| io::Error::other("the reaper has no input"))?;
        Ok((child, told))
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        end(self.state.get_mut().unwrap_or_else(PoisonError::into_inner).running.take());
    }
}

/// It ends when its input does, which is now.
fn end(running: Option<(Child, ChildStdin)>) {
    let Some((mut child, told)) = running else { return };
    drop(told);
    if let Err(error) = child.wait() {
        tracing::debug!(%error, "the reaper cannot be waited for");
    }
}

fn tell(told: &mut ChildStdin, word: char, group: i32) -> io::Result<()> {
    told.write_all(format!("{word}{group}\n").as_bytes())
}
