//! An MCP client of `ctx` on stdio.

use ctx_testkit::TestWorkspace;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// An initialised client.
pub(crate) struct StdioSession {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    sent: u64,
}

impl StdioSession {
    pub(crate) fn start(w: &TestWorkspace, arguments: &[&str]) -> Self {
        let mut child = w.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut client = Self { child, stdin, lines, sent: 0 };
        let about = json!({"name": "t", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about});
        client.ask("initialize", params);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let id = self.sent;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let line: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
            if line["id"] == id {
                return line.get("result").unwrap_or(&line["error"]).clone();
            }
        }
    }

    /// Sends `tools/call` with these parameters.
    pub(crate) fn call(&mut self, params: Value) -> Value {
        self.ask("tools/call", params)
    }

    /// Runs a script with `execute`.
    pub(crate) fn execute(&mut self, script: &str) -> Value {
        self.call(json!({"name": "execute", "arguments": {"script": script}}))
    }

    /// The text of a tool's result.
    pub(crate) fn text(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(json!({"name": tool, "arguments": arguments}));
        answer["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Closes stdin; the program exits by itself.
    pub(crate) fn end(self) {
        let Self { mut child, stdin, .. } = self;
        drop(stdin);
        assert!(child.wait().unwrap().success());
    }
}
