//! A server process: started, read until it prints its address, and stopped.

use crate::run::{succeed, with_test_env};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server.
pub struct ServerProcess {
    child: Child,
    /// Host and port.
    pub address: String,
}

impl ServerProcess {
    /// Starts a server and waits until it prints its address; `on_line` receives each line of its stderr.
    pub fn spawn(command: &mut Command, mut on_line: impl FnMut(String) + Send + 'static) -> Result<Self> {
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().context("no stderr")?;
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let mut address = None;
        for line in lines.by_ref() {
            address = line.strip_prefix("serving http://").map(str::to_owned);
            on_line(line);
            if address.is_some() {
                break;
            }
        }
        let address = address.context("the server ended before it served")?;
        // Read until the end, so that the server never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(on_line));
        Ok(Self { child, address })
    }

    /// Starts a server for this workspace.
    pub fn of(binary: &Path, workspace: &Path) -> Result<Self> {
        let mut command = Command::new(binary);
        with_test_env(&mut command).arg("-c").arg(workspace.join("ctx.toml")).args(["serve", "mcp"]);
        Self::spawn(&mut command, drop)
    }

    /// The process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server with SIGTERM, and waits for its end.
    pub fn stop(&mut self) -> Result<()> {
        succeed(Command::new("kill").arg("-TERM").arg(self.id().to_string()))?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the server ended with {status}");
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None))
            && self.child.kill().is_ok()
            && self.child.wait().is_err()
        {
            eprintln!("a server could not be ended");
        }
    }
}
