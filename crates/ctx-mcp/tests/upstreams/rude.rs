//! Servers that break the protocol: only their own calls fail.

use crate::harness::Test;
use crate::world::World;
use ctx_core::{Call, Caller, Catalog, ErrorKind};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = tests![rude:
    one_that_ends_in_the_middle_of_an_answer_is_called_once_more,
    what_is_no_message_is_passed_over_however_much_it_is,
    only_the_first_answer_counts_and_only_that_to_a_call_that_waits,
    an_answer_that_is_no_text_fails_its_call,
    an_answer_of_200_megabytes_takes_no_memory,
    schemas_and_names_that_cannot_be_harm_no_other_tool,
];

/// The kind of this server in the tests' settings.
pub(crate) const KIND: &str = "rude";

/// The listed tools, besides those that break the protocol.
fn listed() -> Value {
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
            Some("initialize") => say(&result(json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "rude", "version": "1.0"},
            }))),
            Some("tools/list") => say(&result(listed())),
            Some("tools/call") => {
                let tool = message["params"]["name"].as_str().unwrap();
                note(tool);
                match tool {
                    "half" | "half_once" => {
                        let times =
                            std::fs::read_to_string(file).unwrap().lines().filter(|n| *n == tool).count();
                        if tool == "half_once" && times == 2 {
                            say(&text("whole"));
                            continue;
                        }
                        say(&text("never to be read")[..40]);
                        std::process::exit(9);
                    }
                    "flood" => {
                        let noise = format!("{}\n", "{\"not\": \"ours\"} noise ".repeat(2_000)).repeat(20);
                        (0..40).for_each(|_| say(&noise));
                        say(&text("after the flood"));
                    }
                    "wrong_first" => {
                        say(&text("for whom?").replace(&format!("\"id\":{id}"), "\"id\":987654"));
                        say(&text("for you"));
                    }
                    "twice" => {
                        say(&text("first"));
                        say(&text("second"));
                    }
                    // The response to an earlier call, which has timed out by now.
                    "late" => say(&text("too late").replace(&format!("\"id\":{id}"), &{
                        let before = id.as_i64().unwrap() - 1;
                        format!("\"id\":{before}")
                    })),
                    "bytes" => {
                        let mut line = text("caf?").into_bytes();
                        line.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
                        write(&line);
                    }
                    "broken" => say(&text("x").replace("]}", "]")),
                    "heavy" => {
                        let whole = text("@");
                        let (head, tail) = whole.split_once('@').unwrap();
                        say(head);
                        (0..200).for_each(|_| say(&"x".repeat(1 << 20)));
                        say(tail);
                    }
                    _ => say(&text(tool)),
                }
            }
            Some(method) if !method.starts_with("notifications/") => {
                say(&format!(
                    "{}\n",
                    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "?"}})
                ));
            }
            _ => {}
        }
    }
    ExitCode::SUCCESS
}

fn say(text: &str) {
    write(text.as_bytes());
}

fn write(bytes: &[u8]) {
    let mut output = std::io::stdout().lock();
    // The reader is gone; this process ends with its stdin.
    let _ = output.write_all(bytes).and_then(|()| output.flush());
}

/// The text result of a tool, or its error.
async fn told(world: &World, tool: &str) -> Result<Value, String> {
    let done = world.call(tool, json!({})).await;
    done.map(ctx_core::Output::into_data).map_err(|error| error.message().to_owned())
}

async fn still_works(world: &World) {
    assert_eq!(told(world, "echo").await, Ok(json!("echo")));
}

async fn one_that_ends_in_the_middle_of_an_answer_is_called_once_more() {
    let world = World::of(KIND).await;
    assert_eq!(told(&world, "half_once").await, Ok(json!("whole")));
    let told_twice = "up: the connection was lost during the call, and once more when it was repeated";
    assert_eq!(told(&world, "half").await, Err(told_twice.to_owned()));
    assert_eq!(world.noted("half"), 2);
    still_works(&world).await;
}

async fn what_is_no_message_is_passed_over_however_much_it_is() {
    let world = World::of(KIND).await;
    assert_eq!(told(&world, "flood").await, Ok(json!("after the flood")));
}

async fn only_the_first_answer_counts_and_only_that_to_a_call_that_waits() {
    let world = World::with(KIND, |settings| settings.limits.call = Duration::from_millis(300)).await;
    assert_eq!(told(&world, "wrong_first").await, Ok(json!("for you")));
    assert_eq!(told(&world, "twice").await, Ok(json!("first")));
    still_works(&world).await;
    let late = told(&world, "late").await.unwrap_err();
    assert!(late.contains("timed out"), "{late}");
    still_works(&world).await;
}

async fn an_answer_that_is_no_text_fails_its_call() {
    let world = World::of(KIND).await;
    for tool in ["bytes", "broken"] {
        let failed = told(&world, tool).await.unwrap_err();
        assert!(failed.starts_with("up: its answer cannot be read"), "{failed}");
    }
    still_works(&world).await;
}

/// The peak memory of this process since the last call of this function, in megabytes.
#[cfg(target_os = "linux")]
pub(crate) fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn peak() -> usize {
    0
}

async fn an_answer_of_200_megabytes_takes_no_memory() {
    let world = World::of(KIND).await;
    still_works(&world).await;
    peak();
    let before = peak();
    let failed = told(&world, "heavy").await.unwrap_err();
    assert_eq!(failed, "up: its answer is longer than 8388608 bytes");
    let after = peak();
    assert!(after <= before + 64, "{before} MB became {after} MB");
    still_works(&world).await;
}

async fn schemas_and_names_that_cannot_be_harm_no_other_tool() {
    let world = World::of(KIND).await;
    let catalog = world.catalog();
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
    assert!(warnings.contains("two tools of up collide; `my-tool` is now up.my_tool_2"), "{warnings}");
    assert!(warnings.contains("arguments of up.faulty0 are not checked"), "{warnings}");
    let missing = Catalog::call("up.nothing", json!({}), Call::new(catalog, Caller::Cli)).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}
