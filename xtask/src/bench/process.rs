//! Processes under measurement: what they cost, and servers to talk to.

use crate::run::with_test_env;
use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Kernel ticks in a second, on every Linux that matters.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a process cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: f64,
    pub(crate) wall: f64,
    pub(crate) peak_mib: f64,
}

/// Runs a command to its end.
pub(crate) fn cost(command: &mut Command) -> Result<Cost> {
    let cpu_before = children_cpu()?;
    let started = Instant::now();
    let mut child = with_test_env(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut peak_mib: f64 = 0.0;
    let status = loop {
        peak_mib = peak_mib.max(memory_mib(child.id(), "VmHWM"));
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(Cost { cpu: children_cpu()? - cpu_before, wall: started.elapsed().as_secs_f64(), peak_mib })
}

/// CPU seconds of the processes that this one started and has seen end.
pub(crate) fn children_cpu() -> Result<f64> {
    cpu(UsageWho::RUSAGE_CHILDREN)
}

/// CPU seconds this process has used so far.
pub(crate) fn own_cpu() -> Result<f64> {
    cpu(UsageWho::RUSAGE_SELF)
}

fn cpu(who: UsageWho) -> Result<f64> {
    let usage = getrusage(who)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// A figure of `/proc/<pid>/status`.
pub(crate) fn memory_mib(pid: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|figure| figure.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// The processes that a process has started and that still run.
pub(crate) fn children(pid: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        found.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    Ok(found)
}

/// Two neighbouring fields of `/proc/<pid>/stat`, counted from behind the name: time in the program and
/// time in the kernel.
const OWN: usize = 11;
const ENDED_CHILDREN: usize = 13;

fn ticks(pid: u32, fields: usize) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    after_name.skip(fields).take(2).filter_map(|field| field.parse::<f64>().ok()).sum()
}

/// What machine this is, and how busy.
pub(crate) fn describe_machine() {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("?", |(_, m)| m);
    let cores = info.lines().filter(|line| line.starts_with("processor")).count();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("?");
    println!("{cores} × {model}; load {load} before measuring");
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    /// Starts one and waits until it tells its address.
    pub(crate) fn start(binary: &Path, arguments: &[&OsStr]) -> Result<Self> {
        Self::spawn(with_test_env(&mut Command::new(binary)).args(arguments), drop)
    }

    /// The same with a command; `told` gets what the server says, a line at a time.
    pub(crate) fn spawn(
        command: &mut Command,
        mut told: impl FnMut(String) + Send + 'static,
    ) -> Result<Self> {
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().context("no stderr")?;
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let mut address = None;
        for line in lines.by_ref() {
            address = line.strip_prefix("serving http://").map(str::to_owned);
            told(line);
            if address.is_some() {
                break;
            }
        }
        let address = address.context("the server ended before it served")?;
        // Read on, so that the server never waits for a full pipe.
        std::thread::spawn(move || lines.for_each(told));
        Ok(Self { child, address })
    }

    /// Starts one that serves this workspace.
    pub(crate) fn of(binary: &Path, workspace: &Path) -> Result<Self> {
        let config = workspace.join("ctx.toml");
        Self::start(binary, &["-c".as_ref(), config.as_os_str(), "serve".as_ref(), "mcp".as_ref()])
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// CPU seconds so far, in steps of 10 ms.
    pub(crate) fn cpu(&self) -> f64 {
        ticks(self.id(), OWN) / TICKS_PER_SECOND
    }

    /// The same with those of the processes it has started, ended or not.
    pub(crate) fn cpu_of_all(&self) -> Result<f64> {
        let running: f64 = children(self.id())?.into_iter().map(|id| ticks(id, OWN)).sum();
        Ok((ticks(self.id(), OWN) + ticks(self.id(), ENDED_CHILDREN) + running) / TICKS_PER_SECOND)
    }

    /// Asks it to end, and waits.
    pub(crate) fn stop(&mut self) -> Result<()> {
        crate::run::succeed(Command::new("kill").arg("-TERM").arg(self.id().to_string()))?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the server ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None))
            && self.child.kill().is_ok()
            && self.child.wait().is_err()
        {
            eprintln!("a server could not be ended");
        }
    }
}
