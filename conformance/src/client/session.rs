//! An MCP client on stdio: sends requests, and answers those of the server.

use serde_json::{Map, Value, json};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait until all tools are listed.
const LISTING_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

pub(super) struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Session {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let gone = || io::Error::from(ErrorKind::BrokenPipe);
        let input = child.stdin.take().ok_or_else(gone)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(gone)?);
        let mut session = Self { child, input, output, last: 0 };
        let begin = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "elicitation": { "form": {} }, "sampling": {}, "roots": {} },
            "clientInfo": { "name": "conformance", "version": "1" },
        });
        session.ask("initialize", &begin)?;
        session.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(session)
    }

    /// The tools with this prefix, once there are at least `count`.
    pub(super) fn tools(&mut self, prefix: &str, count: usize) -> io::Result<Vec<Value>> {
        let begun = Instant::now();
        loop {
            let mut listed = self.ask("tools/list", &json!({}))?;
            let mut tools = match listed["result"]["tools"].take() {
                Value::Array(tools) => tools,
                _ => Vec::new(),
            };
            tools.retain(|tool| tool["name"].as_str().is_some_and(|name| name.starts_with(prefix)));
            if tools.len() >= count || begun.elapsed() > LISTING_MAX {
                return Ok(tools);
            }
            thread::sleep(POLL);
        }
    }

    pub(super) fn call(&mut self, name: &str, arguments: &Value) -> io::Result<Value> {
        self.ask("tools/call", &json!({ "name": name, "arguments": arguments }))
    }

    /// Closes the pipes and waits for the exit, as clients do.
    pub(super) fn end(self) -> io::Result<()> {
        let Self { mut child, input, output, .. } = self;
        drop(input);
        drop(output);
        child.wait().map(drop)
    }

    fn send(&mut self, message: &Value) -> io::Result<()> {
        writeln!(self.input, "{message}")?;
        self.input.flush()
    }

    /// Sends a request and returns its response; answers requests of the server meanwhile.
    fn ask(&mut self, method: &str, params: &Value) -> io::Result<Value> {
        self.last += 1;
        let id = self.last;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let message: Value = serde_json::from_str(&line)?;
            match (message["method"].as_str(), &message["id"]) {
                (None, answered) if *answered == id => return Ok(message),
                (Some(method), asked) if !asked.is_null() => {
                    let result = answer(method, &message["params"]);
                    self.send(&json!({ "jsonrpc": "2.0", "id": asked, "result": result }))?;
                }
                _ => {}
            }
        }
    }
}

/// Answers requests of the server: accepts every elicitation with its default values.
fn answer(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" => {
            let fields = params["requestedSchema"]["properties"].as_object();
            let filled_in =
                |(name, field): (&String, &Value)| Some((name.clone(), field.get("default")?.clone()));
            let content: Map<String, Value> = fields.into_iter().flatten().filter_map(filled_in).collect();
            json!({ "action": "accept", "content": content })
        }
        "roots/list" => json!({ "roots": [] }),
        _ => json!({}),
    }
}
