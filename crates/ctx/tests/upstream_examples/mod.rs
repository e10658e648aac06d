//! Scripts that call upstream servers in both call styles, over each transport; and a session with four
//! official servers.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestServer, TestWorkspace, official_packages, official_server};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The names of the servers in the configuration.
const SERVERS: [&str; 6] = ["analytics", "calculator", "data-server", "database", "risky.server", "server"];

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstream_examples/server.cjs")
}

/// A child process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).ok();
    }
}

/// Starts a server that listens; returns its port.
fn start_listening(kind: &str, name: &str) -> (KillOnDrop, u16) {
    let mut command = Command::new("node");
    command.arg(program()).arg(official_packages()).args([kind, name]).stdout(Stdio::piped());
    let mut server = KillOnDrop(command.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    (server, port.trim().parse().unwrap())
}

/// A workspace with all servers: as stdio processes, over Streamable HTTP, or over the old SSE transport.
struct ExampleWorkspace {
    server: TestServer,
    _workspace: TestWorkspace,
    _servers: Vec<KillOnDrop>,
}

impl ExampleWorkspace {
    fn of(kind: &str) -> Self {
        let mut config = "[server]\nbind = \"127.0.0.1:0\"\n".to_owned();
        let mut servers = Vec::new();
        for name in SERVERS {
            config.push_str(&format!("[mcp_servers.\"{name}\"]\n"));
            config.push_str(&match kind {
                "stdio" => format!(
                    "command = \"node\"\nargs = [\"{}\", \"{}\", \"stdio\", \"{name}\"]\n",
                    program().display(),
                    official_packages().display()
                ),
                kind => {
                    let (server, port) = start_listening(kind, name);
                    servers.push(server);
                    let transport = if kind == "sse" { "transport = \"sse\"\n" } else { "" };
                    format!("url = \"http://127.0.0.1:{port}/mcp\"\n{transport}")
                }
            });
        }
        let workspace = TestWorkspace::empty().config(&config);
        Self { server: workspace.spawn_server(), _workspace: workspace, _servers: servers }
    }

    /// The result of a script, or its error.
    fn run(&self, script: &str) -> Result<Value, String> {
        let reply = self.server.post("/tools/execute", &json!({ "script": script })).body;
        match reply["error"]["message"].as_str() {
            Some(message) => Err(message.to_owned()),
            None => Ok(reply["result"].clone()),
        }
    }
}

/// Scripts with their expected results.
fn scripts() -> Vec<(&'static str, Value)> {
    vec![
        (
            "-- Tool calls return promise-like objects\n\
             local promise = calculator.add({ a = 5, b = 3 })\n\
             -- :await() unwraps the promise synchronously\n\
             local result = promise:await()\n\
             -- Shorthand: chain immediately\n\
             local result = calculator.add({ a = 5, b = 3 }):await()\n\
             return result",
            json!(8),
        ),
        (
            "-- These run one after another, not in parallel\n\
             local a = server.tool1({ x = 1 }):await()\n\
             local b = server.tool2({ y = 2 }):await()\n\
             local c = server.tool3({ z = 3 }):await()\n\
             result({ a = a, b = b, c = c })",
            json!({"a": "one 1", "b": "two 2", "c": "three 3"}),
        ),
        ("result(42)", json!(42)),
        ("result({ sum = 10, product = 20 })", json!({"sum": 10, "product": 20})),
        ("local data = server.fetch_data({}):await()\nresult(data)", json!({"rows": 3})),
        (
            "-- Use a different variable name\n\
             local sum = calculator.add({ a = 1, b = 2 }):await()\nresult(sum)",
            json!(3),
        ),
        (
            "-- Fetch data from one server\n\
             local data = data_server.fetch_records({ limit = 10 }):await()\n\
             -- Process with another server\n\
             local summary = analytics.summarize({ records = data.records }):await()\n\
             -- Return combined result\n\
             result({\n    record_count = #data.records,\n    summary = summary\n})",
            json!({"record_count": 10, "summary": "10 records"}),
        ),
        (
            "local raw = data_server.get_users({}):await()\n\
             -- Transform in Lua\n\
             local names = {}\n\
             for i, user in ipairs(raw.users) do\n    names[i] = user.name\nend\n\
             result({ user_names = names })",
            json!({"user_names": ["Ada", "Grace"]}),
        ),
        (
            "return sdk.database.query({ sql = \"SELECT * FROM users\", limit = 10 })",
            json!({"sql": "SELECT * FROM users", "limit": 10, "rows": [{"id": 1}]}),
        ),
        // The same functions in the other call style: synchronous, and text is not parsed.
        ("return sdk.calculator.add({ a = 5, b = 3 })", json!("8")),
        (
            "return sdk.data_server.get_users()",
            json!("{\"users\":[{\"name\":\"Ada\"},{\"name\":\"Grace\"}]}"),
        ),
        ("return json.decode(sdk[\"data-server\"].get_users()).users[1].name", json!("Ada")),
        (
            "local a, b = calculator.add({ a = 1, b = 1 }), calculator.multiply({ a = 3, b = 3 })\n\
             return parallel{ a, b, function() return sdk.server.fetch_data().rows end }",
            json!([2, 9, 3]),
        ),
    ]
}

fn every_script_answers(kind: &str) {
    let world = ExampleWorkspace::of(kind);
    for (script, answer) in scripts() {
        assert_eq!(world.run(script), Ok(answer), "{kind}: {script}");
    }
    let failing = "local success, data = pcall(function()\n    \
                   return risky_server.dangerous_operation({}):await()\nend)\n\n\
                   if success then\n    result({ status = \"ok\", data = data })\nelse\n    \
                   result({ status = \"error\", message = tostring(data) })\nend";
    let failed = world.run(failing).unwrap();
    assert_eq!(failed["status"], "error");
    assert!(failed["message"].as_str().unwrap().contains("it exploded"), "{failed}");
    for hiding in [
        "local result = calculator.add({ a = 10, b = 20 }):await()\nresult(result)",
        "-- WRONG: shadows the global result() function\n\
         local result = calculator.add({ a = 1, b = 2 }):await()\n\
         result(result)  -- Error: attempt to call a table value",
    ] {
        let told = world.run(hiding).unwrap_err();
        assert!(told.contains("`result`") && told.contains("rename the variable"), "{told}");
    }
    world.server.stop().success();
}

#[test]
fn every_script_answers_with_servers_that_are_processes() {
    every_script_answers("stdio");
}

#[test]
fn every_script_answers_with_servers_at_addresses() {
    every_script_answers("http");
}

#[test]
fn every_script_answers_with_servers_of_the_oldest_kind() {
    every_script_answers("sse");
}

#[test]
fn four_official_servers_work_together_in_one_script() {
    let official = |package: &str| official_server(package).display().to_string();
    let w = TestWorkspace::empty().file("data.txt", "remember the milk");
    let root = w.root().display().to_string();
    let w = w.config(&format!(
        "[mcp_servers.everything]\ncommand = \"node\"\nargs = [\"{}\", \"stdio\"]\n\
         [mcp_servers.filesystem]\ncommand = \"node\"\nargs = [\"{}\", \"{root}\"]\nenv = {{ HOME = \"{root}\" }}\n\
         [mcp_servers.memory]\ncommand = \"node\"\nargs = [\"{}\"]\nenv = {{ MEMORY_FILE_PATH = \"{root}/memory.json\" }}\n\
         [mcp_servers.sequential-thinking]\ncommand = \"node\"\nargs = [\"{}\"]\n",
        official("server-everything"),
        official("server-filesystem"),
        official("server-memory"),
        official("server-sequential-thinking"),
    ));
    w.write(
        "script.lua",
        format!(
            r#"
            local note = sdk.filesystem.read_file({{ path = "{root}/data.txt" }})
            memory.create_entities({{ entities = {{
                {{ name = "milk", entityType = "errand", observations = {{ note.content or note }} }},
            }} }}):await()
            local graph = memory.read_graph():await()
            local thought = sequential_thinking.sequentialthinking({{
                thought = "buy it", nextThoughtNeeded = false, thoughtNumber = 1, totalThoughts = 1,
            }}):await()
            local shown = parallel{{
                function() return sdk.everything.echo{{ message = graph.entities[1].observations[1] }} end,
                everything.get_sum{{ a = 2, b = 3 }},
            }}
            return {{ shown = shown, thoughts = thought.thoughtHistoryLength }}
            "#
        ),
    );
    let done = w.ctx("exec script.lua --json").success().json();
    assert_eq!(done["result"]["shown"][0], "Echo: remember the milk", "{done}");
    assert!(done["result"]["shown"][1].to_string().contains('5'), "{done}");
    assert_eq!(done["result"]["thoughts"], 1, "{done}");
    let found = w.ctx("docs --search read a text file").success().stdout;
    assert!(found.contains("filesystem.read_text_file"), "{found}");
}
