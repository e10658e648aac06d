//! Size of the tool lists that a client gets, in tokens: ours, compared with those of all upstreams.

use super::{StdioClient, gateway};
use anyhow::{Context, Result, bail};
use ctx_testkit::OFFICIAL_SERVERS;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Approximate number of characters per token.
const TOKEN_CHARS: usize = 4;

const CONNECTING_MAX: Duration = Duration::from_secs(30);

pub(super) fn measure(binary: &Path) -> Result<()> {
    let (mut upstreams, mut upstream_tokens) = (Vec::new(), 0);
    println!("\n| shown to a client | tools | tokens |\n|---|---|---|");
    for (name, package, argument) in OFFICIAL_SERVERS {
        let program = ctx_testkit::official_server(package);
        let mut command = Command::new("node");
        command.arg(&program).args(Some(argument).filter(|argument| !argument.is_empty()));
        let listed = StdioClient::start(&mut command)?.request("tools/list", json!({}))?;
        upstream_tokens += print_list_size(name, &listed, 0);
        upstreams.push((name.to_owned(), format!("node '{}' {argument}", program.display())));
    }
    let mut gateway = gateway(binary, &upstreams)?;
    let instructions = gateway.initialize_result["instructions"].as_str().unwrap_or_default().chars().count();
    let listed = gateway.request("tools/list", json!({}))?;
    let ctx_tokens = print_list_size("ctx, with its instructions", &listed, instructions);
    println!(
        "\nOf {upstream_tokens} tokens {ctx_tokens} are left, {:.0} %.",
        100.0 * ctx_tokens as f64 / upstream_tokens as f64
    );

    wait_for_all(&mut gateway)?;
    let names = OFFICIAL_SERVERS.map(|(name, ..)| json!({ "provider": name }));
    let mut largest = 0;
    for arguments in names.into_iter().chain([json!({})]) {
        let response = gateway.call("list_functions", &arguments)?;
        largest = largest.max(text(&response)?.chars().count());
    }
    println!("The largest answer of `list_functions` over them: {} tokens.", largest / TOKEN_CHARS);
    Ok(())
}

/// Waits until the tools of all upstreams are known.
fn wait_for_all(gateway: &mut StdioClient) -> Result<()> {
    let deadline = Instant::now() + CONNECTING_MAX;
    while Instant::now() < deadline {
        let response = gateway.call("list_functions", &json!({}))?;
        let overview = text(&response)?;
        // A connected upstream has a line `name – 9 functions: …`; for others the line says why they are unavailable.
        let counts = |line: &str, name: &str| {
            let about = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(" – "));
            about.is_some_and(|about| about.starts_with(|letter: char| letter.is_ascii_digit()))
        };
        let is_connected = |name: &str| overview.lines().any(|line| counts(line, name));
        if OFFICIAL_SERVERS.iter().all(|(name, ..)| is_connected(name)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("not all upstreams were there in time")
}

fn text(response: &Value) -> Result<&str> {
    response["content"][0]["text"].as_str().context("no text")
}

/// Prints the size of a tool list, and returns it in tokens.
fn print_list_size(who: &str, listed: &Value, more_chars: usize) -> usize {
    let tools = listed["tools"].as_array().map_or(0, Vec::len);
    let tokens = (listed["tools"].to_string().chars().count() + more_chars) / TOKEN_CHARS;
    println!("| {who} | {tools} | {tokens} |");
    tokens
}
