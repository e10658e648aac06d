//! The test server over stdio, with many misbehaviours.

use crate::server_features;
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::process::ExitCode;

/// Serves MCP over stdio; `kind` selects the misbehaviour.
pub(crate) fn main(kind: &str, file: &str) -> ExitCode {
    match kind {
        "dies" => {
            eprintln!("no licence found for licence-4711");
            return ExitCode::from(3);
        }
        "mute" => loop {
            std::thread::park();
        },
        "floods" => {
            for _ in 0..20_000 {
                eprintln!("{}", "noise ".repeat(100));
            }
        }
        _ => {}
    }
    let mut server = StdioServer {
        kind: kind.to_owned(),
        file: file.to_owned(),
        waiting_call: None,
        ignored_answers: 0,
        has_more_tools: false,
        has_more_prompts: false,
    };
    server.note("start");
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        server.handle_message(&message);
    }
    server.note("end");
    if kind == "stays" {
        loop {
            std::thread::park();
        }
    }
    ExitCode::SUCCESS
}

struct StdioServer {
    kind: String,
    file: String,
    /// The call that waits for a response of the client.
    waiting_call: Option<Value>,
    /// Responses of the client before the one that the call waits for.
    ignored_answers: usize,
    has_more_tools: bool,
    has_more_prompts: bool,
}

impl StdioServer {
    /// Appends a line to the file that tests read.
    fn note(&self, what: &str) {
        if !self.file.is_empty() {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(&self.file);
            writeln!(file.unwrap(), "{what}").unwrap();
        }
    }

    fn handle_message(&mut self, message: &Value) {
        let id = &message["id"];
        match message["method"].as_str() {
            Some("initialize") => {
                let mut result = json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {
                        "tools": {"listChanged": true},
                        "resources": {"listChanged": true, "subscribe": true},
                        "prompts": {"listChanged": true},
                        "completions": {},
                    },
                    "serverInfo": {"name": "obedient", "version": "1.0"},
                });
                patch("initialize", &mut result);
                write_result(id, &result);
            }
            Some("tools/list") => self.list(message),
            Some("tools/call") => self.call(id, &message["params"]),
            Some("notifications/cancelled") => self.note("cancelled"),
            Some("resources/subscribe" | "resources/unsubscribe") => {
                let method = message["method"].as_str().unwrap_or_default();
                self.note(&format!("{method} {}", message["params"]["uri"].as_str().unwrap_or_default()));
                write_result(id, &json!({}));
            }
            Some(method) if server_features::METHODS.contains(&method) => {
                let reply_body =
                    server_features::answer(&self.kind, method, &message["params"], self.has_more_prompts);
                if let Some(mut reply_body) = reply_body {
                    for list in ["prompts", "resources", "resourceTemplates"] {
                        let first =
                            reply_body.as_mut().ok().and_then(|result| result.get_mut(list)?.get_mut(0));
                        first.into_iter().for_each(|first| patch(list, first));
                    }
                    let mut reply = json!({"jsonrpc": "2.0", "id": id});
                    let (key, value) = match reply_body {
                        Ok(result) => ("result", result),
                        Err(error) => ("error", error),
                    };
                    reply[key] = value;
                    write_message(&reply);
                }
            }
            Some(method) if !method.starts_with("notifications/") => write_message(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "what?"}}),
            ),
            Some(_) => {}
            None if self.ignored_answers > 0 => self.ignored_answers -= 1,
            None => {
                if let Some(call) = self.waiting_call.take() {
                    let answer_text = message["result"].to_string();
                    write_result(&call, &json!({"content": [{"type": "text", "text": answer_text}]}));
                }
            }
        }
    }

    fn list(&self, message: &Value) {
        let plain = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let names = |count: usize| (0..count).map(|number| plain(&format!("t{number}"))).collect::<Vec<_>>();
        let cursor = message["params"]["cursor"].as_str().unwrap_or("0").to_owned();
        // The definition may be changed between two runs.
        let says = std::env::var("ECHO_SAYS").ok();
        let (tools, next) = match self.kind.as_str() {
            "many" => {
                let page: usize = cursor.parse().unwrap();
                let tools = (page * 500..(page + 1) * 500).map(|number| plain(&format!("t{number}")));
                (tools.collect(), (page < 9).then(|| (page + 1).to_string()))
            }
            "too_many" => (names(5_001), None),
            "endless" => (Vec::new(), Some(format!("{}", cursor.parse::<u64>().unwrap() + 1))),
            "loops" => (Vec::new(), Some("1".to_owned())),
            _ => {
                let mut tools: Vec<Value> = [
                    "echo",
                    "structured",
                    "fails",
                    "refuses",
                    "slow",
                    "progress",
                    "logs",
                    "ask",
                    "ask_much",
                    "model",
                    "roots",
                    "crash",
                    "crash_once",
                    "grandchild",
                    "escaped",
                    "environment",
                    "huge",
                    "wrong_id",
                    "unreadable",
                    "grow",
                    "several",
                    "links",
                    "touch",
                    "grow_prompts",
                    "parameters",
                ]
                .map(plain)
                .to_vec();
                let mut destroys = plain("destroys");
                destroys["annotations"] = json!({"destructiveHint": true, "readOnlyHint": false});
                tools.push(destroys);
                if let Some(says) = says {
                    tools[0]["description"] = json!(says);
                }
                patch("echo", &mut tools[0]);
                tools.extend(self.has_more_tools.then(|| plain("one_more")));
                (tools, None)
            }
        };
        let mut result = json!({ "tools": tools });
        if let Some(next) = next {
            result["nextCursor"] = json!(next);
        }
        write_result(&message["id"], &result);
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        let tool = params["name"].as_str().unwrap();
        let ask = |method: &str, params: Value| {
            write_message(&json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": params}));
        };
        self.note(tool);
        match tool {
            "echo" => write_result(id, &text(params["arguments"]["text"].as_str().unwrap_or("nothing"))),
            "parameters" => write_result(id, &text(&params.to_string())),
            "several" => write_result(
                id,
                &json!({"content": [
                    {"type": "text", "text": "one"},
                    {"type": "image", "data": "AA==", "mimeType": "image/png"},
                ]}),
            ),
            "structured" => write_result(
                id,
                &json!({"structuredContent": {"sum": 3}, "content": [{"type": "text", "text": "{\"sum\":3}"}]}),
            ),
            "fails" => {
                let mut result = text("the disk is full");
                result["isError"] = json!(true);
                write_result(id, &result);
            }
            "refuses" => write_message(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "bad x"}}),
            ),
            "slow" => {}
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                let params = json!({"progressToken": token, "progress": 1, "total": 2, "message": "half"});
                write_message(
                    &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
                );
            }
            "logs" => {
                let params = json!({"level": "warning", "data": "careful"});
                write_message(
                    &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}),
                );
            }
            "ask" => {
                self.waiting_call = Some(id.clone());
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                ask("elicitation/create", json!({"message": "Who?", "requestedSchema": schema}));
            }
            // A hundred questions; waits until all but sixteen are answered.
            "ask_much" => {
                (self.waiting_call, self.ignored_answers) = (Some(id.clone()), 83);
                let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
                let params = json!({"message": "Who?", "requestedSchema": schema});
                for number in 0..100 {
                    let id = format!("q{number}");
                    write_message(
                        &json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}),
                    );
                }
            }
            "model" => {
                self.waiting_call = Some(id.clone());
                let messages = json!([{"role": "user", "content": {"type": "text", "text": "Hi"}}]);
                ask("sampling/createMessage", json!({"messages": messages, "maxTokens": 5}));
            }
            "roots" => {
                self.waiting_call = Some(id.clone());
                ask("roots/list", json!({}));
            }
            "crash" | "destroys" => std::process::exit(9),
            "crash_once" => {
                let count_noted = std::fs::read_to_string(&self.file).unwrap();
                match count_noted.lines().filter(|line| *line == "crash_once").count() {
                    1 => std::process::exit(9),
                    _ => write_result(id, &text("second time")),
                }
            }
            "grandchild" => {
                #[allow(clippy::zombie_processes, reason = "it is to be left behind")]
                let child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
                write_result(id, &text(&child.id().to_string()));
            }
            // In a session of its own, and orphaned before its pid is returned.
            "escaped" => {
                let script = "(setsid sh -c 'trap \"\" TERM HUP; echo $$; exec sleep 1000 <&- >&- 2>&-' &) | head -n 1";
                let started = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
                write_result(id, &text(String::from_utf8(started.stdout).unwrap().trim()));
            }
            "environment" => {
                let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                write_result(id, &json!({"structuredContent": {"names": names}, "content": []}));
            }
            "huge" => write_result(id, &text(&"x".repeat(9 << 20))),
            "wrong_id" => write_result(&json!(987_654), &text("for whom?")),
            "unreadable" => write_message(&json!({"jsonrpc": "2.0", "id": id, "answer": 1})),
            "grow" => {
                self.has_more_tools = true;
                write_message(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                write_result(id, &text("grown"));
            }
            "links" => write_result(id, &server_features::links()),
            "touch" => {
                let params = json!({"uri": server_features::DATA});
                write_message(
                    &json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}),
                );
                write_result(id, &text("touched"));
            }
            "grow_prompts" => {
                self.has_more_prompts = true;
                write_message(&json!({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}));
                write_result(id, &text("grown"));
            }
            _ => write_result(id, &text("?")),
        }
    }
}

/// Overrides fields of a definition with those under this key in the environment variable `PATCH`.
fn patch(key: &str, value: &mut Value) {
    let patches: Value =
        serde_json::from_str(&std::env::var("PATCH").unwrap_or_default()).unwrap_or_default();
    for (field, patched) in patches[key].as_object().into_iter().flatten() {
        value[field] = patched.clone();
    }
}

fn write_result(id: &Value, result: &Value) {
    write_message(&json!({"result": result, "jsonrpc": "2.0", "id": id}));
}

fn write_message(message: &Value) {
    let mut output = std::io::stdout().lock();
    // The reader is gone; this process ends with its stdin.
    let _ = writeln!(output, "{message}").and_then(|()| output.flush());
}
