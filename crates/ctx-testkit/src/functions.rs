//! A test set for function search: more than a thousand real functions, and questions with their right functions.
//!
//! The functions are those of GitHub's REST API and of the official MCP servers, with names, descriptions and
//! parameters only. The questions paraphrase what functions do, and were written before any search was run on them.

use crate::{TestTool, provider, tool};
use ctx_core::Provider;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

const QUESTIONS: &str = include_str!("questions.jsonl");

/// The methods under which a path of an OpenAPI description has operations.
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// The official MCP servers: our name, the npm package, and the command line argument.
pub const OFFICIAL_SERVERS: [(&str, &str, &str); 4] = [
    ("everything", "server-everything", "stdio"),
    ("filesystem", "server-filesystem", "."),
    ("memory", "server-memory", ""),
    ("thinking", "server-sequential-thinking", ""),
];

/// A question, and the functions that answer it.
pub struct SearchQuestion {
    /// The question in a user's words.
    pub question: String,
    /// The full names of the right functions; several if they are interchangeable.
    pub expected_functions: Vec<String>,
    /// Whether the question belongs to the held-out set, which is never used for tuning.
    pub held_out: bool,
}

/// All questions.
pub fn questions() -> Vec<SearchQuestion> {
    let read = |line| {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let right = line["right"].as_array().expect("functions").iter();
        SearchQuestion {
            question: line["question"].as_str().expect("a question").to_owned(),
            expected_functions: right.map(|name| name.as_str().expect("a name").to_owned()).collect(),
            held_out: line["held_out"] == true,
        }
    };
    QUESTIONS.lines().map(read).collect()
}

/// All functions, one provider per API or server.
#[track_caller]
pub fn real_functions() -> Vec<Arc<dyn Provider>> {
    let file = BufReader::new(File::open(github_description()).unwrap());
    let description: Value = serde_json::from_reader(file).unwrap();
    let servers = OFFICIAL_SERVERS.iter().map(|(name, package, argument)| {
        let tools = list_tools(&official_server(package), argument);
        provider(
            name,
            tools.iter().map(|tool| function(&tool["name"], &tool["description"], &tool["inputSchema"])),
        )
    });
    std::iter::once(provider("github", operations(&description))).chain(servers).collect()
}

/// The OpenAPI description of GitHub's REST API, installed by `cargo xtask tools`.
#[track_caller]
pub fn github_description() -> PathBuf {
    tool_path("functions/node_modules/@octokit/openapi/generated/api.github.com.json")
}

/// The Luau type checker: its first argument is a definitions file, the others are scripts.
#[track_caller]
pub fn luau_check() -> Command {
    Command::new(tool_path("luau/debug/luau-check"))
}

/// The program of an official MCP server, installed by `cargo xtask tools`.
#[track_caller]
pub fn official_server(package: &str) -> PathBuf {
    tool_path(&format!("mcp-servers/node_modules/@modelcontextprotocol/{package}/dist/index.js"))
}

/// The `node_modules` folder of the official MCP servers, which also contains the official SDK.
#[track_caller]
pub fn official_packages() -> PathBuf {
    tool_path("mcp-servers/node_modules")
}

#[track_caller]
#[allow(clippy::disallowed_methods, reason = "where the tools of tests are, the environment may say")]
fn tool_path(path: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let path = target.join("tools").join(path);
    assert!(path.exists(), "{} is not there: run `cargo xtask tools`", path.display());
    path.canonicalize().unwrap()
}

fn function(name: &Value, description: &Value, schema: &Value) -> TestTool {
    let no_op = tool(name.as_str().expect("a name"), |_, _| Box::pin(async { Ok(Value::Null.into()) }));
    no_op.description(description.as_str().unwrap_or_default()).schema(schema.clone())
}

/// The tools that an MCP server on stdin and stdout lists.
fn list_tools(program: &Path, argument: &str) -> Vec<Value> {
    let client = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"},
    });
    let mut command = Command::new("node");
    command.arg(program).args(Some(argument).filter(|argument| !argument.is_empty()));
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = pipes.spawn().expect("node must be on the PATH");
    let mut stdin = server.stdin.take().unwrap();
    let lines = [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    ];
    lines.iter().for_each(|line| writeln!(stdin, "{line}").unwrap());
    let responses = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut responses = responses.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    let response = responses.find(|response| response["id"] == 1).expect("a list of tools");
    drop(stdin);
    server.kill().unwrap();
    server.wait().unwrap();
    response["result"]["tools"].as_array().expect("tools").clone()
}

/// The operations of an OpenAPI description, parsed as far as function search needs it.
fn operations(description: &Value) -> Vec<TestTool> {
    let paths = description["paths"].as_object().expect("paths");
    let found = paths.values().flat_map(|path| METHODS.iter().filter_map(|method| path.get(*method)));
    found
        .map(|operation| {
            let text = |field: &str| operation[field].as_str().unwrap_or_default();
            let name = text("operationId").replace(['/', '-'], "_");
            let about = format!("{}\n\n{}", text("summary"), text("description"));
            function(&name.into(), &about.into(), &parameters(description, operation))
        })
        .collect()
}

/// The schema of an operation's parameters and the fields of its JSON body.
fn parameters(description: &Value, operation: &Value) -> Value {
    let mut properties = Map::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let parameter = resolve_reference(description, parameter);
        let name = parameter["name"].as_str().expect("a name").to_owned();
        properties.insert(name, property(&parameter["schema"], &parameter["description"]));
    }
    let body =
        resolve_reference(description, &operation["requestBody"]["content"]["application/json"]["schema"]);
    for (name, field) in body["properties"].as_object().into_iter().flatten() {
        let field = resolve_reference(description, field);
        properties.insert(name.clone(), property(field, &field["description"]));
    }
    json!({"type": "object", "properties": properties})
}

fn property(schema: &Value, description: &Value) -> Value {
    let mut property = Map::new();
    let known = [("type", &schema["type"]), ("enum", &schema["enum"]), ("description", description)];
    property.extend(
        known.into_iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.to_owned(), v.clone())),
    );
    Value::Object(property)
}

fn resolve_reference<'a>(description: &'a Value, value: &'a Value) -> &'a Value {
    let reference = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    reference.map_or(value, |reference| description.pointer(reference).expect("a reference"))
}
