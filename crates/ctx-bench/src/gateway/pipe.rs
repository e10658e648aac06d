//! The smallest MCP client that can measure: lines on pipes, the same for our program and for any other.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const REVISION: &str = "2025-06-18";

/// A server on pipes, and what it said first.
pub(crate) struct Pipe {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next: u64,
    pub(crate) hello: Value,
    /// From the start of its process to its first answer.
    pub(crate) ready_ms: f64,
}

impl Pipe {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let started = Instant::now();
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = pipes.spawn()?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut pipe = Self { child, stdin, stdout, next: 0, hello: Value::Null, ready_ms: 0.0 };
        let client = json!({
            "protocolVersion": REVISION, "capabilities": {}, "clientInfo": { "name": "bench", "version": "0" },
        });
        pipe.hello = pipe.request("initialize", client)?;
        pipe.ready_ms = started.elapsed().as_secs_f64() * 1e3;
        pipe.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(pipe)
    }

    /// A request and its result.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.send(method, params)?;
        let (answered, result) = self.receive()?;
        ensure!(answered == id, "an answer to another request");
        Ok(result)
    }

    /// A call of a tool that must not fail.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// How many milliseconds a call takes.
    pub(crate) fn time(&mut self, tool: &str, arguments: &Value) -> Result<f64> {
        let started = Instant::now();
        self.call(tool, arguments)?;
        Ok(started.elapsed().as_secs_f64() * 1e3)
    }

    /// How many calls a second there are, with so many under way at any time.
    pub(crate) fn rate(
        &mut self,
        tool: &str,
        arguments: &Value,
        at_once: usize,
        calls: usize,
    ) -> Result<f64> {
        let params = json!({ "name": tool, "arguments": arguments });
        let started = Instant::now();
        for _ in 0..at_once {
            self.send("tools/call", params.clone())?;
        }
        for done in 1..=calls {
            self.receive()?;
            if done + at_once <= calls {
                self.send("tools/call", params.clone())?;
            }
        }
        Ok(calls as f64 / started.elapsed().as_secs_f64())
    }

    fn send(&mut self, method: &str, params: Value) -> Result<u64> {
        self.next += 1;
        let id = self.next;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        Ok(id)
    }

    fn say(&mut self, message: &Value) -> Result<()> {
        let line = format!("{message}\n");
        Ok(self.stdin.as_mut().context("closed")?.write_all(line.as_bytes())?)
    }

    /// The next answer; what is no answer is passed over.
    fn receive(&mut self) -> Result<(u64, Value)> {
        loop {
            let mut line = String::new();
            ensure!(self.stdout.read_line(&mut line)? > 0, "the server has ended");
            let mut message: Value = serde_json::from_str(&line)?;
            let Some(id) = message["id"].as_u64().filter(|_| message.get("method").is_none()) else {
                continue;
            };
            let result = message["result"].take();
            if result.is_null() || result["isError"] == true {
                bail!("{}", line.trim());
            }
            return Ok((id, result));
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Some servers do not end with their input.
        let deadline = Instant::now() + std::time::Duration::from_secs(2);
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            eprintln!("a server could not be ended");
        }
    }
}
