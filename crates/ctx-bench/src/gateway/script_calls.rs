//! The cost of upstream calls in scripts: ten, one after the other, and a single one compared with the same call made
//! directly.
//!
//! The upstream is this program, which answers at once: an official server on Node takes more CPU time than ours.

use super::{CALLS, EMPTY, StdioClient, WARM_UP_CALLS, gateway, script};
use crate::{median, percentile, process};
use anyhow::Result;
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::Command;

/// The argument that makes this program the upstream.
pub(crate) const STUB: &str = "__mcp_stub";

const ROUNDS: usize = 9;
const ONE: &str = "return sdk.stub.echo{ message = 'hello' }";
const TEN: &str = "for i = 1, 10 do sdk.stub.echo{ message = 'hello' } end return 1";

/// An MCP server on stdin and stdout with one tool.
pub(crate) fn serve_stub() -> Result<()> {
    let schema = json!({ "type": "object", "properties": { "message": { "type": "string" } } });
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else { continue };
        let result = match method {
            "initialize" => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "stub", "version": "0" },
            }),
            "tools/list" => {
                json!({ "tools": [{ "name": "echo", "description": "Echo", "inputSchema": schema }] })
            }
            "tools/call" => {
                json!({ "content": [{ "type": "text", "text": message["params"]["arguments"]["message"] }] })
            }
            "ping" => json!({}),
            _ => {
                let error = json!({ "code": -32601, "message": "not here" });
                writeln!(output, "{}", json!({ "jsonrpc": "2.0", "id": id, "error": error }))?;
                output.flush()?;
                continue;
            }
        };
        // In one write: line by line, `LineWriter` writes each at its end.
        writeln!(output, "{}", json!({ "jsonrpc": "2.0", "id": id, "result": result }))?;
        output.flush()?;
    }
    Ok(())
}

/// One kind of call, and what was measured of it.
struct Workload<'a> {
    label: &'a str,
    tool: &'a str,
    arguments: Value,
    is_direct: bool,
    times: Vec<f64>,
    /// CPU milliseconds of a call, in each round.
    cpu: Vec<f64>,
}

pub(super) fn measure(binary: &Path) -> Result<()> {
    let this = std::env::current_exe()?;
    let mut direct = StdioClient::start(Command::new(&this).arg(STUB))?;
    let mut gateway = gateway(binary, &[("stub".to_owned(), format!("'{}' {STUB}", this.display()))])?;
    let workload = |label, tool, arguments, is_direct| Workload {
        label,
        tool,
        arguments,
        is_direct,
        times: Vec::new(),
        cpu: Vec::new(),
    };
    let mut workloads = [
        workload("one call directly", "echo", json!({ "message": "hello" }), true),
        workload("a script without a call", "execute", script(EMPTY), false),
        workload("a script with one call", "execute", script(ONE), false),
        workload("a script with ten calls, one after the other", "execute", script(TEN), false),
    ];
    // The first round warms up, and is not counted.
    for round in 0..=ROUNDS {
        for workload in &mut workloads {
            let client = if workload.is_direct { &mut direct } else { &mut gateway };
            let calls = if round == 0 { WARM_UP_CALLS } else { CALLS / ROUNDS };
            let before = process::cpu_of_descendants(client.id());
            for _ in 0..calls {
                let time = client.time(workload.tool, &workload.arguments)?;
                if round > 0 {
                    workload.times.push(time);
                }
            }
            if round > 0 {
                let spent = process::cpu_of_descendants(client.id()) - before;
                workload.cpu.push(spent * 1e3 / calls as f64);
            }
        }
    }
    println!("\n| calls of an upstream that answers at once | CPU ms, all processes | p50 ms | p95 ms |");
    println!("|---|---|---|---|");
    for Workload { label, mut times, cpu, .. } in workloads {
        let (p50, p95) = (median(times.clone()), percentile(&mut times, 0.95));
        println!("| {label} | {:.3} | {p50:.3} | {p95:.3} |", median(cpu));
    }
    Ok(())
}
