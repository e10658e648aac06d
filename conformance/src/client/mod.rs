//! The client that the conformance suite is run against: a `ctx` whose one upstream is the suite's server.
//!
//! What people and their programs would do with it is done here. Where it says that somebody must log in,
//! that is done by the very command that it names; then a client of it calls every tool that it has from
//! the suite's server.

mod browser;
mod session;

pub(crate) use browser::browse;

use serde_json::{Map, Value, json};
use session::Session;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

/// How often somebody logs in before it is given up.
const LOGINS_MAX: usize = 5;
/// What is said where somebody must.
const LOGIN_NEEDED: &str = "needs you to log in";
/// What describes the client, where the server knows such documents; the suite expects this one.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";
/// How tools of the suite's server are called.
const PREFIX: &str = "suite__";
/// The tools by which the suite sees whether schemas come through whole.
const RICH_TOOL: &str = "suite__json_schema_2020_12_tool";
const ECHO_TOOL: &str = "suite__json_schema_echo";

/// Runs the suite's scenario against its server.
pub(crate) fn run(url: &str) -> io::Result<ExitCode> {
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let folder = std::env::temp_dir().join(format!("ctx-conformance-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let person = Person { folder: &folder, program: std::env::current_exe()? };
    let done = person.run(url, &scenario, &context);
    fs::remove_dir_all(&folder)?;
    Ok(if done? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Person<'a> {
    folder: &'a Path,
    program: PathBuf,
}

impl Person<'_> {
    /// Whether all that was tried worked.
    fn run(&self, url: &str, scenario: &str, context: &Value) -> io::Result<bool> {
        fs::write(self.folder.join("ctx.toml"), configuration(url, scenario, context))?;
        let Some(tools) = self.get_let_in()? else { return Ok(false) };
        let mut session = Session::start(self.ctx(&["serve", "mcp", "--stdio"]))?;
        let listed = session.tools(PREFIX, tools)?;
        let schema_of =
            |name: &str| listed.iter().find(|tool| tool["name"] == name).map(|tool| &tool["inputSchema"]);
        let mut all_worked = true;
        for tool in &listed {
            let name = tool["name"].as_str().unwrap_or_default();
            let arguments = match (chosen(context, name), schema_of(RICH_TOOL)) {
                (Some(arguments), _) => arguments,
                (None, Some(schema)) if name == ECHO_TOOL => json!({ "schema": schema }),
                (None, _) => smallest(&tool["inputSchema"]),
            };
            all_worked &= self.call(&mut session, name, &arguments)?;
        }
        session.end()?;
        Ok(all_worked)
    }

    /// Logs in where that is needed; how many tools there are then, or nothing where it cannot be reached.
    fn get_let_in(&self) -> io::Result<Option<usize>> {
        for _ in 0..LOGINS_MAX {
            let tested = run_to_end(self.ctx(&["upstream", "test", "suite", "--json"]))?;
            if tested.status.success() {
                let told: Value = serde_json::from_slice(&tested.stdout)?;
                return Ok(Some(told["functions"].as_array().map_or(0, Vec::len)));
            }
            if !asks_to_log_in(&tested) || !self.log_in()? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Whether it is worth to go on.
    fn log_in(&self) -> io::Result<bool> {
        let logged_in = run_to_end(self.ctx(&["upstream", "login", "suite"]))?;
        // One that is asked for once more was of no use so far.
        Ok(logged_in.status.success() || asks_to_log_in(&logged_in))
    }

    /// Calls a tool; once more after logging in where that is needed. What runs has to take that up.
    fn call(&self, session: &mut Session, name: &str, arguments: &Value) -> io::Result<bool> {
        let answer = session.call(name, arguments)?;
        if !answer.to_string().contains(LOGIN_NEEDED) {
            return Ok(answer["result"].is_object());
        }
        Ok(self.log_in()? && session.call(name, arguments)?["result"]["isError"] != true)
    }

    /// This program, as the `ctx` that it is, with a browser that asks nobody.
    fn ctx(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["-c", "ctx.toml"])
            .args(arguments)
            .current_dir(self.folder)
            .env("CTX_TRUST", "1")
            .env("HOME", self.folder)
            .env("XDG_STATE_HOME", self.folder.join("state"))
            .env("BROWSER", format!("{} {}", self.program.display(), crate::BROWSER));
        command
    }
}

/// Runs a command; the suite keeps what it says.
fn run_to_end(mut command: Command) -> io::Result<Output> {
    let output = command.stdin(Stdio::null()).output()?;
    io::stdout().write_all(&output.stdout)?;
    io::stderr().write_all(&output.stderr)?;
    Ok(output)
}

/// Whether it failed since somebody must log in; it may have warned of that before.
fn asks_to_log_in(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let is_error = |line: &str| line.starts_with("error: ") || line.starts_with("{\"error\":");
    said.lines().any(|line| is_error(line) && line.contains(LOGIN_NEEDED))
}

fn configuration(url: &str, scenario: &str, context: &Value) -> String {
    let mut text = format!(
        "[embedding]\nprovider = \"disabled\"\n[mcp_servers.suite]\nurl = \"{url}\"\nexpose = true\n\
         [mcp_servers.suite.oauth]\n"
    );
    if let (Some(id), Some(secret)) = (context["client_id"].as_str(), context["client_secret"].as_str()) {
        text.push_str(&format!("client_id = \"{id}\"\nclient_secret = \"{secret}\"\n"));
    }
    if scenario == "auth/basic-cimd" {
        text.push_str(&format!("client_metadata_url = \"{DOCUMENT}\"\n"));
    }
    text
}

/// The arguments that the suite wants a tool to be called with. None is null: that is to be left out.
fn chosen(context: &Value, tool: &str) -> Option<Value> {
    let calls = context["toolCalls"].as_array()?;
    let call =
        calls.iter().find(|call| call["name"].as_str().is_some_and(|name| format!("{PREFIX}{name}") == tool));
    let mut arguments = call?["arguments"].as_object()?.clone();
    arguments.retain(|_, value| !value.is_null());
    Some(Value::Object(arguments))
}

/// The least that a tool can be called with.
fn smallest(schema: &Value) -> Value {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let argument = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("number" | "integer") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("x"),
    };
    Value::Object(required.map(|name| (name.to_owned(), argument(name))).collect::<Map<_, _>>())
}
