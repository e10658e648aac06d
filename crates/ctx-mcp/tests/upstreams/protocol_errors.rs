//! Servers that break the protocol: only their own calls fail.

use crate::fixture::UpstreamFixture;
use crate::harness::Test;
use ctx_core::{Call, Caller, Catalog, ErrorKind};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![protocol_errors:
    a_call_is_retried_after_half_a_response,
    lines_that_are_no_messages_are_skipped,
    only_the_first_response_to_an_open_call_counts,
    an_unreadable_response_fails_its_call,
    an_answer_of_200_megabytes_takes_no_memory,
    invalid_schemas_and_names_harm_no_other_tool,
];

/// The kind of this server in the tests' settings.
pub(crate) const KIND: &str = "rude";

/// The listed tools, besides those that break the protocol.
fn listed_tools() -> Value {
    let schema = |schema: Value| json!({"name": "x", "inputSchema": schema});
    let named = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let mut tools: Vec<Value> =
        ["half", "half_once", "flood", "wrong_first", "twice", "late", "bytes", "broken", "heavy", "echo"]
            .map(named)
            .to_vec();
    tools.extend(["while", "my.tool", "my-tool", "my tool", "9lives", "echo", ""].map(named));
    for (number, faulty) in [
        json!({"type": "objekt", "properties": 7}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}),
        json!({"type": "object", "properties": {"a": {"pattern": "("}}}),
        json!({"$ref": "#"}),
    ]
    .into_iter()
    .enumerate()
    {
        let mut tool = schema(faulty);
        tool["name"] = json!(format!("faulty{number}"));
        tools.push(tool);
    }
    json!({ "tools": tools })
}

pub(crate) fn main(file: &str) -> ExitCode {
    let note = |what: &str| {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
        writeln!(file.unwrap(), "{what}").unwrap();
    };
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let id = &message["id"];
        let result = |result: Value| format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": result}));
        let text = |text: &str| result(json!({"content": [{"type": "text", "text": text}]}));
        match message["method"].as_str() {
            Some("initialize") => write_text(&result(json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "rude", "version": "1.0"},
            }))),
            Some("tools/list") => write_text(&result(listed_tools())),
            Some("tools/call") => {
                let tool = message["params"]["name"].as_str().unwrap();
                note(tool);
                match tool {
                    "half" | "half_once" => {
                        let times =
                            std::fs::read_to_string(file).unwrap().lines().filter(|n| *n == tool).count();
                        if tool == "half_once" && times == 2 {
                            write_text(&text("whole"));
                            continue;
                        }
                        write_text(&text("never to be read")[..40]);
                        std::process::exit(9);
                    }
                    "flood" => {
                        let noise = format!("{}\n", "{\"not\": \"ours\"} noise ".repeat(2_000)).repeat(20);
                        (0..40).for_each(|_| write_text(&noise));
                        write_text(&text("after the flood"));
                    }
                    "wrong_first" => {
                        write_text(&text("for whom?").replace(&format!("\"id\":{id}"), "\"id\":987654"));
                        write_text(&text("for you"));
                    }
                    "twice" => {
                        write_text(&text("first"));
                        write_text(&text("second"));
                    }
                    // The response to an earlier call, which has timed out by now.
                    "late" => write_text(&text("too late").replace(&format!("\"id\":{id}"), &{
                        let before = id.as_i64().unwrap() - 1;
                        format!("\"id\":{before}")
                    })),
                    "bytes" => {
                        let mut line = text("caf?").into_bytes();
                        line.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
                        write(&line);
                    }
                    "broken" => write_text(&text("x").replace("]}", "]")),
                    "heavy" => {
                        let whole = text("@");
                        let (head, tail) = whole.split_once('@').unwrap();
                        write_text(head);
                        (0..200).for_each(|_| write_text(&"x".repeat(1 << 20)));
                        write_text(tail);
                    }
                    _ => write_text(&text(tool)),
                }
            }
            Some(method) if !method.starts_with("notifications/") => {
                write_text(&format!(
                    "{}\n",
                    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "?"}})
                ));
            }
            _ => {}
        }
    }
    ExitCode::SUCCESS
}

fn write_text(text: &str) {
    write(text.as_bytes());
}

fn write(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    // The reader is gone; this process ends with its stdin.
    let _ = output.write_all(bytes).and_then(|()| output.flush());
}

/// The text result of a tool, or its error.
async fn call(fixture: &UpstreamFixture, tool: &str) -> Result<Value, String> {
    let done = fixture.call(tool, json!({})).await;
    done.map(ctx_core::Output::into_data).map_err(|error| error.message().to_owned())
}

async fn assert_still_works(fixture: &UpstreamFixture) {
    assert_eq!(call(fixture, "echo").await, Ok(json!("echo")));
}

async fn a_call_is_retried_after_half_a_response() {
    let fixture = UpstreamFixture::of(KIND).await;
    assert_eq!(call(&fixture, "half_once").await, Ok(json!("whole")));
    let expected = "up: the connection was lost during the call, and again during the retry";
    assert_eq!(call(&fixture, "half").await, Err(expected.to_owned()));
    assert_eq!(fixture.count_noted("half"), 2);
    assert_still_works(&fixture).await;
}

async fn lines_that_are_no_messages_are_skipped() {
    let fixture = UpstreamFixture::of(KIND).await;
    assert_eq!(call(&fixture, "flood").await, Ok(json!("after the flood")));
}

async fn only_the_first_response_to_an_open_call_counts() {
    let fixture =
        UpstreamFixture::with(KIND, |settings| settings.limits.call = Duration::from_millis(300)).await;
    assert_eq!(call(&fixture, "wrong_first").await, Ok(json!("for you")));
    assert_eq!(call(&fixture, "twice").await, Ok(json!("first")));
    assert_still_works(&fixture).await;
    let late = call(&fixture, "late").await.unwrap_err();
    assert!(late.contains("timed out"), "{late}");
    assert_still_works(&fixture).await;
}

async fn an_unreadable_response_fails_its_call() {
    let fixture = UpstreamFixture::of(KIND).await;
    for tool in ["bytes", "broken"] {
        let failed = call(&fixture, tool).await.unwrap_err();
        assert!(failed.starts_with("up: its answer cannot be read"), "{failed}");
    }
    assert_still_works(&fixture).await;
}

/// The peak memory of this process since the last call of this function, in megabytes.
#[cfg(target_os = "linux")]
pub(crate) fn peak_memory_mb() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn peak_memory_mb() -> usize {
    0
}

async fn an_answer_of_200_megabytes_takes_no_memory() {
    let fixture = UpstreamFixture::of(KIND).await;
    assert_still_works(&fixture).await;
    peak_memory_mb();
    let before = peak_memory_mb();
    let failed = call(&fixture, "heavy").await.unwrap_err();
    assert_eq!(failed, "up: its answer is longer than 8388608 bytes");
    let after = peak_memory_mb();
    assert!(after <= before + 64, "{before} MB became {after} MB");
    assert_still_works(&fixture).await;
}

async fn invalid_schemas_and_names_harm_no_other_tool() {
    let fixture = UpstreamFixture::of(KIND).await;
    let catalog = fixture.catalog();
    for (name, raw) in [
        ("_while", "while"),
        ("my_tool", "my.tool"),
        ("my_tool_2", "my-tool"),
        ("my_tool_3", "my tool"),
        ("_9lives", "9lives"),
        ("faulty0", "faulty0"),
        ("faulty1", "faulty1"),
        ("faulty2", "faulty2"),
        ("faulty3", "faulty3"),
    ] {
        let call = Call::new(catalog.clone(), Caller::Cli);
        let answer = Catalog::call(&format!("up.{name}"), json!({"a": "x"}), call).await;
        assert_eq!(
            answer.map(ctx_core::Output::into_data).map_err(|e| e.message().to_owned()),
            Ok(json!(raw))
        );
    }
    let warnings = catalog.warnings().join("\n");
    assert!(
        warnings.contains("two tools of up have the same name; `my-tool` is renamed to up.my_tool_2"),
        "{warnings}"
    );
    assert!(warnings.contains("arguments of up.faulty0 are not validated"), "{warnings}");
    let missing = Catalog::call("up.nothing", json!({}), Call::new(catalog, Caller::Cli)).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}
