//! A minimal MCP client on stdin and stdout, with the same overhead for our program and for any other server.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const REVISION: &str = "2025-06-18";

/// A running server on stdin and stdout, and its response to `initialize`.
pub(crate) struct StdioClient {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next: u64,
    pub(crate) initialize_result: Value,
    /// Time from the start of the process to its first response.
    pub(crate) ready_ms: f64,
}

impl StdioClient {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let started = Instant::now();
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = pipes.spawn()?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut stdio_client =
            Self { child, stdin, stdout, next: 0, initialize_result: Value::Null, ready_ms: 0.0 };
        let client = json!({
            "protocolVersion": REVISION, "capabilities": {}, "clientInfo": { "name": "bench", "version": "0" },
        });
        stdio_client.initialize_result = stdio_client.request("initialize", client)?;
        stdio_client.ready_ms = started.elapsed().as_secs_f64() * 1e3;
        stdio_client.write_message(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(stdio_client)
    }

    /// The id of the server's process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request and returns its result.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.send(method, params)?;
        let (answered, result) = self.receive()?;
        ensure!(answered == id, "an answer to another request");
        Ok(result)
    }

    /// Calls a tool; an error result is an error.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value> {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Calls a tool and returns the milliseconds that it took.
    pub(crate) fn time(&mut self, tool: &str, arguments: &Value) -> Result<f64> {
        let started = Instant::now();
        self.call(tool, arguments)?;
        Ok(started.elapsed().as_secs_f64() * 1e3)
    }

    /// Calls per second, with `concurrency` calls in flight at any time.
    pub(crate) fn rate(
        &mut self,
        tool: &str,
        arguments: &Value,
        concurrency: usize,
        calls: usize,
    ) -> Result<f64> {
        let params = json!({ "name": tool, "arguments": arguments });
        let started = Instant::now();
        for _ in 0..concurrency {
            self.send("tools/call", params.clone())?;
        }
        for done in 1..=calls {
            self.receive()?;
            if done + concurrency <= calls {
                self.send("tools/call", params.clone())?;
            }
        }
        Ok(calls as f64 / started.elapsed().as_secs_f64())
    }

    fn send(&mut self, method: &str, params: Value) -> Result<u64> {
        self.next += 1;
        let id = self.next;
        self.write_message(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        Ok(id)
    }

    fn write_message(&mut self, message: &Value) -> Result<()> {
        let line = format!("{message}\n");
        Ok(self.stdin.as_mut().context("closed")?.write_all(line.as_bytes())?)
    }

    /// Reads the next response; skips notifications and requests of the server.
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

impl Drop for StdioClient {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Some servers do not exit at the end of their stdin, so they are killed after two seconds.
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
