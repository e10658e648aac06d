//! Records the terminal session: runs the program on a copy of the example workspace, and captures its output.

use super::ansi;
use super::normalise::normalise;
use super::terminal::{COLUMNS, Exchange, draw};
use crate::run::{copy_workspace, root};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The commands, as they are typed.
const COMMANDS: &[TypedCommand] = &[
    TypedCommand { command: "ctx up --trust &", end: OutputEnd::Prints("Ctrl-C stops.") },
    TypedCommand {
        command: r#"ctx search "why was the database down in January?" --limit 1"#,
        end: OutputEnd::Exits,
    },
    TypedCommand { command: "cat incidents.luau", end: OutputEnd::Exits },
    TypedCommand { command: "ctx exec incidents.luau --json", end: OutputEnd::Exits },
];

/// The script of the session, which the copy of the workspace gets.
const SCRIPT: (&str, &str) = ("incidents.luau", include_str!("incidents.luau"));

const TITLE: &str = "~/handbook";
const DESCRIPTION: &str = "A terminal session: ctx up indexes a folder and serves it, ctx search answers a question, and \
                           ctx exec runs a script that makes many calls and returns only its result";

/// Modification time of all documents, in seconds since 1970: 4 May 2026, noon.
const MODIFIED: u64 = 1_777_896_000;

/// Length of the path of the home folder, the same on every machine: results contain paths, and their sizes are shown.
const HOME_LENGTH: usize = 96;
/// Random characters of this path.
const HOME_RANDOM: usize = 8;

/// Maximum time for a command, and for the embeddings of the workspace.
const COMMAND_TIME_MAX: Duration = Duration::from_secs(60);
const EMBEDDING_TIME_MAX: Duration = Duration::from_secs(300);
const EMBEDDING_POLL: Duration = Duration::from_millis(200);

struct TypedCommand {
    command: &'static str,
    end: OutputEnd,
}

/// When the output of a command is complete.
enum OutputEnd {
    Exits,
    /// The command goes on in the background after it has printed this.
    Prints(&'static str),
}

/// Runs the session with this program, and returns its SVG.
pub(super) fn draw_session(binary: &Path) -> Result<String> {
    let home = Home::new(binary)?;
    let mut session = Vec::new();
    let mut background = Vec::new();
    for TypedCommand { command, end } in COMMANDS {
        let started = home.start(command)?;
        let output = match end {
            OutputEnd::Exits => started.finish()?,
            OutputEnd::Prints(last) => {
                let (output, running) = started.until(last)?;
                background.push(running);
                // Searches before all embeddings are computed would have other scores.
                home.await_embeddings()?;
                output
            }
        };
        let output = ansi::lines(&normalise(&output, &home.path()?), COLUMNS);
        session.push(Exchange { command: (*command).to_owned(), output });
    }
    for running in background {
        running.stop()?;
    }
    Ok(draw(TITLE, DESCRIPTION, &session))
}

/// A home folder with the program and the workspace, and nothing else.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new(binary: &Path) -> Result<Self> {
        let parent = std::env::temp_dir().canonicalize()?;
        let used = parent.as_os_str().len() + 1 + HOME_RANDOM;
        let prefix = format!("{:-<1$}", "ctx-pictures-", HOME_LENGTH.saturating_sub(used));
        let folder = tempfile::Builder::new().prefix(&prefix).rand_bytes(HOME_RANDOM).tempdir_in(parent)?;
        let home = Self { folder };
        let programs = home.path()?.join("bin");
        fs::create_dir(&programs)?;
        let program = programs.join("ctx");
        // A link if it is the same file system: the program is large.
        fs::hard_link(binary, &program)
            .or_else(|_| fs::copy(binary, &program).map(drop))
            .with_context(|| format!("cannot use {}", binary.display()))?;
        let workspace = home.workspace()?;
        copy_workspace(&root().join("examples/workspace"), &workspace)?;
        fs::write(workspace.join(SCRIPT.0), SCRIPT.1)?;
        // Any free port: a developer's own server may be using the usual one.
        let config = workspace.join("ctx.toml");
        fs::write(&config, fs::read_to_string(&config)?.replace("127.0.0.1:7331", "127.0.0.1:0"))?;
        set_modified(&workspace, SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED))?;
        Ok(home)
    }

    /// Resolved, as the program prints it.
    fn path(&self) -> Result<PathBuf> {
        Ok(self.folder.path().canonicalize()?)
    }

    fn workspace(&self) -> Result<PathBuf> {
        Ok(self.path()?.join("handbook"))
    }

    /// A command in the workspace, with colours.
    fn command(&self, program: impl AsRef<OsStr>) -> Result<Command> {
        let home = self.path()?;
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", &home)
            .env("PATH", format!("{}:/usr/bin:/bin", home.join("bin").display()))
            .env("LANG", "C.UTF-8")
            .env("CLICOLOR_FORCE", "1")
            .current_dir(self.workspace()?);
        Ok(command)
    }

    fn start(&self, typed: &str) -> Result<RunningCommand> {
        let (mut reader, writer) = io::pipe()?;
        let line = format!("exec {}", typed.trim_end_matches(" &"));
        let mut command = self.command("/bin/sh")?;
        command.args(["-c", &line]).stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn()?;
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(RunningCommand { typed: typed.to_owned(), child, output })
    }

    fn await_embeddings(&self) -> Result<()> {
        let deadline = Instant::now() + EMBEDDING_TIME_MAX;
        loop {
            let stats = self.command(self.path()?.join("bin/ctx"))?.arg("stats").output()?;
            let stats = String::from_utf8_lossy(&stats.stdout).into_owned();
            let vectors = stats.lines().find(|line| line.starts_with("vectors ")).unwrap_or_default();
            if !vectors.is_empty() && !vectors.contains("missing") {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the embeddings were not computed in time:\n{stats}");
            thread::sleep(EMBEDDING_POLL);
        }
    }
}

fn set_modified(folder: &Path, time: SystemTime) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            set_modified(&path, time)?;
        } else {
            File::options().write(true).open(&path)?.set_modified(time)?;
        }
    }
    Ok(())
}

/// A command that was started; killed when dropped.
struct RunningCommand {
    typed: String,
    child: Child,
    output: Receiver<Vec<u8>>,
}

impl RunningCommand {
    /// The whole output of a command that must succeed.
    fn finish(mut self) -> Result<String> {
        let output = self.read(None)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "`{}` failed ({status}):\n{output}", self.typed);
        Ok(output)
    }

    /// The output until a line that contains `last`; the command goes on.
    fn until(mut self, last: &str) -> Result<(String, Self)> {
        let output = self.read(Some(last))?;
        ensure!(output.contains(last), "`{}` ended without `{last}`:\n{output}", self.typed);
        Ok((output, self))
    }

    fn read(&mut self, last: Option<&str>) -> Result<String> {
        let deadline = Instant::now() + COMMAND_TIME_MAX;
        let mut output = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&output);
            if last.is_some_and(|last| text.rsplit_once(last).is_some_and(|(_, rest)| rest.contains('\n'))) {
                return Ok(text.into_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => output.extend(bytes),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                    return Ok(String::from_utf8(output)?);
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    bail!("`{}` was not done in time:\n{}", self.typed, String::from_utf8_lossy(&output));
                }
            }
        }
    }

    /// Ends the command with SIGTERM, and waits for its end.
    fn stop(mut self) -> Result<()> {
        crate::run::succeed(Command::new("kill").arg("-TERM").arg(self.child.id().to_string()))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "`{}` ended with {status}", self.typed);
        Ok(())
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None))
            && self.child.kill().is_ok()
            && self.child.wait().is_err()
        {
            eprintln!("`{}` could not be ended", self.typed);
        }
    }
}
