//! Measures CPU time and memory of processes, from `/proc` and `getrusage`.

use anyhow::{Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use xtask::with_test_env;

/// Kernel clock ticks per second (`USER_HZ`), on all common Linux systems.
const TICKS_PER_SECOND: f64 = 100.0;

/// The resources that a process used: CPU and wall seconds, and peak memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: f64,
    pub(crate) wall: f64,
    pub(crate) peak_mib: f64,
}

/// Runs a command to its end and measures it.
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

/// The CPU and wall seconds of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunTime {
    pub(crate) cpu: f64,
    pub(crate) wall: f64,
}

/// Runs a short command to its end; unlike [`cost`], does not poll, which would round its time up.
pub(crate) fn time(command: &mut Command) -> Result<RunTime> {
    let cpu_before = children_cpu()?;
    let started = Instant::now();
    let output = with_test_env(command).output()?;
    let wall = started.elapsed().as_secs_f64();
    if !output.status.success() {
        bail!("{command:?} failed ({})", output.status);
    }
    Ok(RunTime { cpu: children_cpu()? - cpu_before, wall })
}

/// The number of threads of a process.
pub(crate) fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// CPU seconds of the child processes that have ended and were waited for.
pub(crate) fn children_cpu() -> Result<f64> {
    cpu(UsageWho::RUSAGE_CHILDREN)
}

/// CPU seconds of this process so far.
pub(crate) fn own_cpu() -> Result<f64> {
    cpu(UsageWho::RUSAGE_SELF)
}

fn cpu(who: UsageWho) -> Result<f64> {
    let usage = getrusage(who)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// A memory figure of `/proc/<pid>/status`, such as `VmRSS`, in MiB.
pub(crate) fn memory_mib(pid: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|figure| figure.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// The running child processes of a process.
pub(crate) fn children(pid: u32) -> Result<Vec<u32>> {
    let mut child_ids = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        child_ids.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
    }
    Ok(child_ids)
}

/// Positions in `/proc/<pid>/stat`, counted after the process name, of user time; system time is the next field.
const OWN_TICKS: usize = 11;
const ENDED_CHILDREN_TICKS: usize = 13;

fn ticks(pid: u32, fields: usize) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    after_name.skip(fields).take(2).filter_map(|field| field.parse::<f64>().ok()).sum()
}

/// CPU seconds of a process so far, with a resolution of 10 ms.
pub(crate) fn cpu_of(pid: u32) -> f64 {
    ticks(pid, OWN_TICKS) / TICKS_PER_SECOND
}

/// CPU seconds of a process and of its children so far, both running and ended ones.
pub(crate) fn cpu_of_tree(pid: u32) -> Result<f64> {
    let running: f64 = children(pid)?.into_iter().map(|id| ticks(id, OWN_TICKS)).sum();
    Ok((ticks(pid, OWN_TICKS) + ticks(pid, ENDED_CHILDREN_TICKS) + running) / TICKS_PER_SECOND)
}

/// CPU seconds so far of a process and of all that it has started, directly or not, and that still run.
pub(crate) fn cpu_of_descendants(pid: u32) -> f64 {
    let started = children(pid).unwrap_or_default();
    ticks(pid, OWN_TICKS) / TICKS_PER_SECOND + started.into_iter().map(cpu_of_descendants).sum::<f64>()
}

/// Prints the processor and the current load.
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
