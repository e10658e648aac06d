//! The servers of `misbehaviours`, over stdio, Streamable HTTP and SSE. The name of a case selects the misbehaviour.

use ctx_testkit::{RecordedRequest, http_response, http_response_with};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::net::TcpStream;
use std::process::{Command, ExitCode};
use std::time::Duration;

pub(crate) const KIND: &str = "wild";

/// An unsolicited message of a flood.
fn unsolicited_message(flood: &str, number: usize) -> String {
    let request = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": format!("s{number}"), "method": method, "params": params}).to_string()
    };
    let notification = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": params}).to_string()
    };
    match flood {
        "pings by one number" => json!({"jsonrpc": "2.0", "id": 7, "method": "ping"}).to_string(),
        "progress" => notification(
            "progress",
            json!({"progressToken": 1, "progress": number, "message": "x".repeat(50)}),
        ),
        "logs" => notification("message", json!({"level": "info", "data": "x".repeat(50)})),
        "long logs" => notification("message", json!({"level": "info", "data": "x".repeat(1 << 20)})),
        "resource updates" => notification("resources/updated", json!({"uri": format!("file:///{number}")})),
        "tool list changes" => notification("tools/list_changed", json!({})),
        "prompt list changes" => notification("prompts/list_changed", json!({})),
        "resource list changes" => notification("resources/list_changed", json!({})),
        "pings that are cancelled" if number % 2 == 1 => {
            notification("cancelled", json!({"requestId": format!("s{}", number - 1)}))
        }
        "cancellations" => notification("cancelled", json!({"requestId": number})),
        "unknown notifications" => notification("nonsense", json!({"a": 1})),
        "unknown requests" => request("nonsense/do", json!({})),
        "samplings" => {
            let messages = json!([{"role": "user", "content": {"type": "text", "text": "Hi"}}]);
            request("sampling/createMessage", json!({"messages": messages, "maxTokens": 5}))
        }
        "elicitations" => {
            let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
            request("elicitation/create", json!({"message": "Who?", "requestedSchema": schema}))
        }
        "roots" => request("roots/list", json!({})),
        "stray answers" => json!({"jsonrpc": "2.0", "id": 1_000_000 + number, "result": {}}).to_string(),
        "stray errors" => {
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32603, "message": "no"}}).to_string()
        }
        "long noise" => "x".repeat(1 << 20),
        "noise" => format!("listening on port {number}"),
        "empty lines" => String::new(),
        _ => request("ping", json!({})),
    }
}

fn tools() -> Value {
    let tool = |name: String| json!({"name": name, "inputSchema": {"type": "object"}});
    json!([tool("misbehave".to_owned()), tool("echo".to_owned())])
}

fn initialize_result(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {"tools": {"listChanged": true}, "prompts": {"listChanged": true},
        "resources": {"listChanged": true}}, "serverInfo": {"name": "wild", "version": "1"}})
}

/// A stdio server.
pub(crate) fn main(case: &str) -> ExitCode {
    match case {
        "exits at once" => return ExitCode::from(3),
        "answers nothing" => park(),
        "garbage first" => (0..200_u8).for_each(|byte| write(&[byte, byte.wrapping_mul(7), 0xff, b'\n'])),
        "stray answers first" => {
            for id in [json!(987), json!("x"), json!(-1), json!(null)] {
                write_line(&json!({"jsonrpc": "2.0", "id": id, "result": {}}).to_string());
            }
            write_line(
                &json!({"jsonrpc": "2.0", "id": 55, "error": {"code": 1, "message": "no"}}).to_string(),
            );
        }
        "pings before the handshake" => flood("pings"),
        "floods stderr" => (0..20_000).for_each(|_| eprintln!("{}", "noise ".repeat(100))),
        _ => {}
    }
    let mut lists = 0;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let id = &message["id"];
        let respond =
            |result: Value| write_line(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string());
        match message["method"].as_str() {
            Some("initialize") if case == "stray answers between" => {
                write_line(&json!({"jsonrpc": "2.0", "id": 987, "result": {}}).to_string());
                let late = json!({"jsonrpc": "2.0", "id": 0, "result": {"tools": []}});
                write_line(&late.to_string());
                write_line(
                    &json!({"jsonrpc": "2.0", "id": 54, "error": {"code": 1, "message": "no"}}).to_string(),
                );
                respond(initialize_result("2025-11-25"));
            }
            Some("initialize") if case == "an unknown revision" => {
                respond(initialize_result("1999-01-01\u{202e}"))
            }
            Some("initialize") if case == "initialize is answered with nonsense" => respond(json!([1, 2])),
            Some("initialize") => respond(initialize_result("2025-11-25")),
            Some("tools/list") => {
                lists += 1;
                let page = message["params"]["cursor"].as_str().unwrap_or("0").parse::<usize>().unwrap_or(0);
                match case {
                    "10,000 tools" => {
                        let tool =
                            |number| json!({"name": format!("t{number}"), "inputSchema": {"type": "object"}});
                        respond(json!({"tools": (0..10_000).map(tool).collect::<Vec<_>>()}));
                    }
                    "endless pages" => respond(json!({"tools": [], "nextCursor": (page + 1).to_string()})),
                    "pages in a circle" => respond(json!({"tools": [], "nextCursor": "a"})),
                    "definitions that change each time" => {
                        let mut tools = tools();
                        tools[1]["description"] = json!(format!("the {lists}th"));
                        respond(json!({ "tools": tools }));
                        write_line(&unsolicited_message("tool list changes", 0));
                    }
                    "a description of 7 megabytes" => {
                        let mut tools = tools();
                        tools[1]["description"] = json!("x".repeat(7 << 20));
                        respond(json!({ "tools": tools }));
                    }
                    _ => respond(json!({ "tools": tools() })),
                }
            }
            Some("tools/call") => call(case, id, message["params"]["name"].as_str().unwrap_or_default()),
            Some(method) if !method.starts_with("notifications/") => {
                write_line(
                    &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "?"}})
                        .to_string(),
                );
            }
            _ => {}
        }
    }
    if case == "stays after its input has ended" {
        park();
    }
    ExitCode::SUCCESS
}

fn call(case: &str, id: &Value, tool: &str) {
    let text = |text: &str| json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}});
    let whole = text(tool).to_string();
    if tool == "echo" {
        return write_line(&whole);
    }
    match case {
        "answers in pieces" => {
            let (head, tail) = whole.split_at(20);
            write(head.as_bytes());
            std::thread::sleep(Duration::from_millis(50));
            write_line(tail);
        }
        "a line without end" => loop {
            write(&[b'x'; 64 << 10]);
        },
        "an answer of 100 megabytes" => {
            let (head, tail) = whole.split_once("misbehave").unwrap();
            write(head.as_bytes());
            (0..100).for_each(|_| write(&[b'x'; 1 << 20]));
            write_line(tail);
        }
        "an answer that is no UTF-8" => {
            let mut line = whole.into_bytes();
            line.iter_mut().filter(|byte| **byte == b'm').for_each(|byte| *byte = 0xff);
            line.push(b'\n');
            write(&line);
        }
        "an answer 100,000 levels deep" => {
            let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
            write_line(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{deep}}}"));
        }
        "another's number first" => {
            write_line(&whole.replace(&format!("\"id\":{id}"), "\"id\":987654"));
            write_line(&whole);
        }
        "every answer twice" => {
            write_line(&whole);
            write_line(&whole);
        }
        "numbers as texts" => {
            write_line(&whole.replace(&format!("\"id\":{id}"), &format!("\"id\":\"{id}\"")))
        }
        "exits in the middle of a call" => std::process::exit(9),
        "half an answer, then an end" => {
            write(&whole.as_bytes()[..20]);
            std::process::exit(9);
        }
        "answers after it was taken back" => {
            std::thread::sleep(Duration::from_millis(1_500));
            write_line(&whole);
        }
        "pings, reading no answer" => loop {
            write_flood("pings", 1_000);
        },
        "reads no more" => park(),
        "a daemon" | "a session of its own" | "many that multiply" => {
            let script = match case {
                "a daemon" => "(setsid sh -c 'exec sleep 1000' &) <&- >&- 2>&-",
                "a session of its own" => {
                    "setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000 & sleep 1000' <&- >&- 2>&- &"
                }
                _ => {
                    "for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'while :; do (sleep 1000 &); sleep 0.1; done' &) <&- >&- 2>&-; done"
                }
            };
            let started = Command::new("sh").args(["-c", script]).status();
            write_line(&text(if started.is_ok() { "misbehave" } else { "it cannot" }).to_string());
        }
        "floods stderr" | "stray answers first" | "stray answers between" | "garbage first" => {
            write_line(&whole)
        }
        "stays after its input has ended" | "definitions that change each time" => write_line(&whole),
        "a description of 7 megabytes" | "an unknown revision" => write_line(&whole),
        flooding => flood(flooding),
    }
}

/// Floods standard output from a thread of its own.
fn flood(case: &str) {
    let case = case.to_owned();
    std::thread::spawn(move || {
        loop {
            write_flood(&case, 1_000);
        }
    });
}

fn write_flood(case: &str, count: usize) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let count = if case.starts_with("long") { 1 } else { count };
    let first = SENT.fetch_add(count, Ordering::Relaxed);
    let lines: String =
        (first..first + count).map(|number| unsolicited_message(case, number) + "\n").collect();
    write(lines.as_bytes());
}

fn park() -> ! {
    loop {
        std::thread::park();
    }
}

fn write_line(text: &str) {
    write(format!("{text}\n").as_bytes());
}

fn write(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    if output.write_all(bytes).and_then(|()| output.flush()).is_err() {
        // The reader is gone.
        std::process::exit(0);
    }
}

const JSON: (&str, &str) = ("Content-Type", "application/json");
const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

/// A Streamable HTTP server.
pub(crate) fn answer(case: &str, request: &RecordedRequest, stream: &mut TcpStream) {
    let send = |stream: &mut TcpStream, bytes: &[u8]| drop(stream.write_all(bytes));
    if case == "redirects in a circle" {
        return send(stream, &http_response_with(307, &[("Location", "/mcp")], ""));
    }
    if case == "closes without a word" {
        return;
    }
    if case == "headers without end" {
        send(stream, b"HTTP/1.1 200 OK\r\n");
        return write_endless(stream, |number| format!("X-{number}: {}\r\n", "x".repeat(1_000)));
    }
    if request.line.starts_with("GET") {
        return match case {
            "a stream that ends at once, again and again" => {
                send(stream, format!("{EVENTS}retry: 0\nid: 1\ndata: \n\n").as_bytes());
            }
            "notifications on the stream" => {
                send(stream, EVENTS.as_bytes());
                write_endless(stream, |number| format!("data: {}\n\n", unsolicited_message("logs", number)));
            }
            "noise on the stream" | "long noise on the stream" => {
                send(stream, EVENTS.as_bytes());
                let noise = case.trim_end_matches(" on the stream");
                write_endless(stream, |number| format!("data: {}\n\n", unsolicited_message(noise, number)));
            }
            "noise on resumed streams" => {
                send(stream, format!("{EVENTS}retry: 0\nid: 1\ndata: \n\n").as_bytes());
                (0..4_000).for_each(|_| send(stream, b"data: {}\n\n"));
            }
            _ => send(stream, &http_response(405, "")),
        };
    }
    if !request.line.starts_with("POST") {
        return send(stream, &http_response(405, ""));
    }
    let message = request.json();
    let id = &message["id"];
    let result = |result: Value| {
        http_response_with(
            200,
            &[JSON, ("Mcp-Session-Id", "1")],
            &json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string(),
        )
    };
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => send(stream, &result(initialize_result("2025-11-25"))),
        "tools/list" => send(stream, &result(json!({ "tools": tools() }))),
        "tools/call" if message["params"]["name"] == "misbehave" => misbehave(case, id, stream),
        "tools/call" => send(stream, &result(json!({"content": [{"type": "text", "text": "echo"}]}))),
        method if id.is_null() || method.is_empty() => send(stream, &http_response(202, "")),
        _ => {
            let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "?"}});
            send(stream, &http_response_with(200, &[JSON], &error.to_string()));
        }
    }
}

fn misbehave(case: &str, id: &Value, stream: &mut TcpStream) {
    let whole =
        json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "misbehave"}]}});
    let send = |stream: &mut TcpStream, text: &str| drop(stream.write_all(text.as_bytes()));
    let body = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
    match case {
        "an event without end" => {
            send(stream, &format!("{EVENTS}data: "));
            write_endless(stream, |_| "x".repeat(64 << 10));
        }
        "comments without end" => {
            send(stream, EVENTS);
            write_endless(stream, |_| format!(": {}\n", "x".repeat(64 << 10)));
        }
        "a body without end" => {
            send(stream, body);
            write_endless(stream, |_| "x".repeat(64 << 10));
        }
        "a wrong type of content" => {
            drop(stream.write_all(&http_response_with(200, &[("Content-Type", "text/html")], "<p>")))
        }
        "a negative length" => send(stream, "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}"),
        "a length that is too long" => {
            send(
                stream,
                &format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n{whole}"
                ),
            );
        }
        "half of the JSON" => send(stream, &format!("{body}{}", &whole.to_string()[..20])),
        "a byte now and then" => {
            send(stream, body);
            for byte in whole.to_string().bytes().cycle() {
                std::thread::sleep(Duration::from_millis(50));
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
            }
        }
        "chunks of no length" => {
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            send(stream, &format!("{head}zz\r\n{{}}\r\n0\r\n\r\n"));
        }
        "a stream that ends at once, again and again"
        | "notifications on the stream"
        | "noise on the stream"
        | "long noise on the stream"
        | "noise on resumed streams" => {
            drop(stream.write_all(&http_response_with(200, &[JSON], &whole.to_string())));
        }
        "stray events first" => {
            let stray = json!({"jsonrpc": "2.0", "id": 987, "result": {}});
            send(
                stream,
                &format!(
                    "{EVENTS}event: endpoint\ndata: /x\n\ndata: {stray}\n\ndata: {{\n\ndata: {whole}\n\n"
                ),
            );
        }
        flooding => {
            send(stream, EVENTS);
            let flooding = flooding.strip_suffix(" over HTTP").unwrap_or(flooding);
            write_endless(stream, |number| format!("data: {}\n\n", unsolicited_message(flooding, number)));
        }
    }
}

/// A server with the HTTP+SSE transport (2024-11-05): an event stream, and an endpoint to post to.
pub(crate) fn answer_sse(case: &str, request: &RecordedRequest, stream: &mut TcpStream) {
    if request.line.starts_with("POST") {
        return drop(stream.write_all(&http_response(202, "")));
    }
    drop(stream.write_all(EVENTS.as_bytes()));
    match case {
        "no address over SSE" => write_endless(stream, |_| ": waiting\n\n".to_owned()),
        "an event without end over SSE" => {
            write_endless(stream, |_| "data: ".to_owned() + &"x".repeat(64 << 10))
        }
        "an address elsewhere over SSE" => {
            drop(stream.write_all(b"event: endpoint\ndata: http://127.0.0.2:1/\n\n"));
        }
        flooding => {
            drop(stream.write_all(b"event: endpoint\ndata: /post\n\n"));
            let flooding = flooding.strip_suffix(" over SSE").unwrap_or(flooding);
            write_endless(stream, |number| format!("data: {}\n\n", unsolicited_message(flooding, number)));
        }
    }
}

/// Writes parts until the other end closes the connection.
fn write_endless(stream: &mut TcpStream, part: impl Fn(usize) -> String) {
    let mut parts = (0..).map(part);
    while stream.write_all(parts.by_ref().take(20).collect::<String>().as_bytes()).is_ok() {}
}
