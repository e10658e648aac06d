//! The client that the conformance suite tests: a `ctx` whose only upstream is the suite's server.
//!
//! It acts as a user and an MCP client would: if the upstream requires a login, it runs `ctx upstream login`;
//! then it connects over stdio and calls every tool of the suite's server.

mod browser;
mod session;

pub(crate) use browser::browse;

use serde_json::{Map, Value, json};
use session::Session;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

/// Maximum number of logins.
const LOGINS_MAX: usize = 5;
/// The error text of an upstream that requires a login.
const LOGIN_NEEDED: &str = "needs you to log in";
/// The client ID metadata document, for servers that support it; the suite expects this URL.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";
/// The prefix of the names of the suite's tools.
const PREFIX: &str = "suite__";
/// Tools with which the suite checks that schemas arrive unchanged.
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
    /// Runs the scenario; returns whether all calls succeeded.
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

    /// Logs in if needed; returns the number of tools, or `None` if the server cannot be reached.
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

    /// Logs in; returns whether to try again.
    fn log_in(&self) -> io::Result<bool> {
        let logged_in = run_to_end(self.ctx(&["upstream", "login", "suite"]))?;
        // If the login itself asks for another login, a further attempt may succeed.
        Ok(logged_in.status.success() || asks_to_log_in(&logged_in))
    }

    /// Calls a tool; logs in and calls again if needed. The running server must notice the login.
    fn call(&self, session: &mut Session, name: &str, arguments: &Value) -> io::Result<bool> {
        let answer = session.call(name, arguments)?;
        if !answer.to_string().contains(LOGIN_NEEDED) {
            return Ok(answer["result"].is_object());
        }
        Ok(self.log_in()? && session.call(name, arguments)?["result"]["isError"] != true)
    }

    /// This program as `ctx`, with a browser that approves everything.
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

/// Runs a command and forwards its output, which the suite records.
fn run_to_end(mut command: Command) -> io::Result<Output> {
    let output = command.stdin(Stdio::null()).output()?;
    io::stdout().write_all(&output.stdout)?;
    io::stderr().write_all(&output.stderr)?;
    Ok(output)
}

/// Whether the command failed because a login is needed. Only error lines count: a warning may say the same.
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

/// The arguments that the suite specifies for a tool. `null` stands for an omitted argument.
fn chosen(context: &Value, tool: &str) -> Option<Value> {
    let calls = context["toolCalls"].as_array()?;
    let call =
        calls.iter().find(|call| call["name"].as_str().is_some_and(|name| format!("{PREFIX}{name}") == tool));
    let mut arguments = call?["arguments"].as_object()?.clone();
    arguments.retain(|_, value| !value.is_null());
    Some(Value::Object(arguments))
}

/// Minimal arguments for a tool: all required ones, with placeholder values.
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
