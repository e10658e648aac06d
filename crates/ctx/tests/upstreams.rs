//! Upstream MCP servers: configured, called, failing and restarted.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestServer, TestWorkspace, ctx_snapshot, official_server, signal, wait_until};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

const SERVER: &str = "[server]\nbind = \"127.0.0.1:0\"\n";

/// A workspace to be the upstream of another: with one tool, and a token.
fn other() -> TestWorkspace {
    TestWorkspace::empty()
        .config(&format!(
            "{SERVER}token = \"open-sesame\"\n[tools.script.greet]\npath = \"greet.lua\"\nsecret = \"s3cret\"\n"
        ))
        .file(
            "greet.lua",
            "tool = { name = \"greet\", description = \"Greets.\", parameters = {\n\
             { name = \"name\", type = \"string\", required = true } } }\n\
             function tool.execute(params) return { text = \"hello \" .. params.name } end\n",
        )
}

/// A trusted workspace with this configuration.
fn with_config(config: &str) -> TestWorkspace {
    TestWorkspace::empty().config(&format!("{SERVER}{config}"))
}

/// The section of an upstream that runs another workspace over stdio.
fn started(other: &TestWorkspace) -> String {
    let path = other.path("ctx.toml");
    format!(
        "[mcp_servers.other]\ncommand = \"ctx\"\nargs = [\"--trust\", \"--config\", \"{}\", \"serve\", \"mcp\", \"--stdio\"]\n",
        path.display()
    )
}

/// Whether clients see a tool of this name.
fn lists(server: &TestServer, name: &str) -> bool {
    server.get("/tools/list").body.to_string().contains(name)
}

/// The result of a script.
#[track_caller]
fn run(w: &TestWorkspace, script: &str) -> Value {
    w.write("script.lua", script);
    w.ctx("exec script.lua --json").success().json()["result"].take()
}

#[test]
fn a_script_calls_a_server_that_is_a_process() {
    let other = other();
    let w = with_config(&started(&other));
    assert_eq!(run(&w, "return sdk.other.greet{ name = \"Ada\" }.text"), json!("hello Ada"));
    w.write("script.lua", "return sdk.other.greet{}");
    w.ctx("exec script.lua").code(2).stderr_contains("missing required parameter: name");
    let states = w.ctx("upstream list --json").success().json();
    let server = &states["upstreams"][0];
    assert_eq!((&server["name"], &server["state"]), (&json!("other"), &json!("ready")), "{states}");
    assert_eq!(server["protocol"], "2026-07-28", "both speak the newest");
    assert!(server["functions"].as_array().unwrap().contains(&json!("other.greet")), "{states}");
    let shown = w.ctx("upstream test other").success().stdout;
    assert!(shown.contains("    sdk.other.greet  Greets."), "{shown}");
    w.ctx("upstream test othr").code(2).stderr_contains("did you mean `other`?");
}

#[test]
fn a_server_gets_the_variables_that_the_guide_lists_and_no_others() {
    let guide = include_str!("../../../docs/guide/upstreams.md");
    let rows = ["| folders |", "| certificates |", "| proxies |", "| npm, pip and uv |"];
    let rows = rows.map(|row| guide.lines().find(|line| line.starts_with(row)).unwrap());
    let listed: Vec<&str> = rows.iter().flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    assert!(listed.contains(&"npm_config_noproxy") && listed.contains(&"UV_INSECURE_HOST"), "{listed:?}");
    let unlisted = ["NODE_OPTIONS", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "NPM_TOKEN", "PYTHONPATH"];
    let reporting = TestWorkspace::empty().config("[tools.script.variable]\npath = \"variable.lua\"\n").file(
        "variable.lua",
        "tool = { name = \"variable\", description = \"Reads a variable.\", parameters = {\n\
         { name = \"name\", type = \"string\", required = true } } }\n\
         function tool.execute(params) return { value = env.get(params.name) } end\n",
    );
    let w = with_config(&format!("{}env = {{ OWN = \"own\" }}\n", started(&reporting)));
    let value = |name: &str| format!("{}/{name}", w.home().display());
    let values: Vec<(&str, String)> =
        listed.iter().chain(&unlisted).map(|name| (*name, value(name))).collect();
    let w = values.iter().fold(w, |w, (name, value)| w.env(name, value));
    let names: Vec<&str> = listed.iter().chain(&unlisted).chain(&["OWN"]).copied().collect();
    let script = format!(
        "local values = {{}}\nfor _, name in json.decode([=[{}]=]) do\n\
         values[name] = sdk.other.variable{{ name = name }}.value\nend\nreturn values",
        json!(names)
    );
    let mut expected: serde_json::Map<String, Value> =
        values[..listed.len()].iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    expected.insert("OWN".to_owned(), json!("own"));
    assert_eq!(run(&w, &script), Value::Object(expected));
}

#[test]
fn a_tool_that_is_tried_reaches_servers_too() {
    let other = other();
    let w = with_config(&started(&other)).file(
        "polite.lua",
        "tool = { name = \"polite\", description = \"Greets.\", parameters = {} }\n\
         function tool.execute() return sdk.other.greet{ name = \"Ada\" } end\n",
    );
    let shown = w.ctx("tool test polite.lua").success().stdout;
    assert!(shown.contains("hello Ada"), "{shown}");
}

#[test]
fn a_server_at_an_address_is_called_through_ours_with_the_headers_it_wants() {
    let other = other();
    let upstream = other.spawn(["--config", "ctx.toml", "serve", "mcp"]);
    let url = format!("http://{}/mcp", upstream.address());
    let w = with_config(&format!(
        "[mcp_servers.other]\nurl = \"{url}\"\nheaders = {{ Authorization = \"Bearer ${{KEY}}\" }}\nexpose = true\n"
    ))
    .env("KEY", "open-sesame");
    let server = w.spawn_server();
    let script = json!({"script": "return sdk.other.greet{ name = \"Ada\" }.text"});
    wait_until("the server is connected", || lists(&server, "other__greet"));
    assert_eq!(server.post("/tools/execute", &script).body["result"], "hello Ada");
    let reply = server.post("/tools/other__greet", &json!({"name": "Bob"})).body;
    assert_eq!(reply["result"]["text"], "hello Bob");
    // After the server stops, calls report the failure.
    upstream.stop().success();
    let reply = server.post("/tools/other__greet", &json!({"name": "Bob"}));
    assert_eq!(reply.status, 500);
    assert!(reply.body.to_string().contains("other: "), "{}", reply.body);
    server.stop().success();

    let w = w.env("KEY", "wrong-key-here");
    let told = w.ctx("upstream list").success();
    assert!(!told.stdout.contains("wrong-key-here") && !told.stderr.contains("wrong-key-here"));
    assert!(told.stdout.contains("failed"), "{}", told.stdout);
}

#[test]
fn tools_of_a_server_are_listed_one_by_one_only_if_that_is_wanted() {
    let other = other();
    let w = with_config(&started(&other));
    let server = w.spawn_server();
    let script = json!({"script": "return sdk.other.greet{ name = \"Ada\" }.text"});
    wait_until("the server is connected", || server.post("/tools/execute", &script).status == 200);
    assert!(!lists(&server, "greet"));
    server.stop().success();
}

#[test]
fn a_server_that_fails_is_told_and_the_rest_works() {
    let w = with_config(
        "[mcp_servers.broken]\ncommand = \"sh\"\nargs = [\"-c\", \"echo no licence >&2; exit 3\"]\n",
    );
    w.write("script.lua", "return 1 + 1");
    let done = w.ctx("exec script.lua").success();
    assert_eq!(done.stdout.trim(), "2");
    assert!(
        done.stderr.contains("broken: its process ended with exit status: 3; stderr: no licence"),
        "{}",
        done.stderr
    );
    let shown = w.ctx("doctor").code(1).stdout;
    assert!(
        shown.contains("✗ mcp_servers.broken: its process ended with exit status: 3; stderr: no licence"),
        "{shown}"
    );
    w.ctx("upstream test broken")
        .code(1)
        .stderr_contains("error: broken: its process ended with exit status: 3");
}

#[test]
fn servers_of_a_configuration_that_was_found_are_not_started() {
    let w = TestWorkspace::empty()
        .config(&format!("{SERVER}[mcp_servers.evil]\ncommand = \"touch\"\nargs = [\"started\"]\n"))
        .file("script.lua", "return 1")
        .untrusted();
    ctx_snapshot!(w.ctx("exec script.lua"), @r"
    exit_code: 0
    ----- stdout -----
    1

    ----- stderr -----
    warning: [ROOT]/ctx.toml is not trusted, so this is left out: mcp_servers.evil (touch started)
    hint: `ctx trust --show` lists what it requests; `ctx trust` allows it (without a terminal: `--trust` or CTX_TRUST=1)
    ");
    w.ctx("upstream test evil").code(1).stderr_contains("[mcp_servers.evil] is not trusted");
    assert!(!w.path("started").exists());
    w.ctx("trust").success();
    w.ctx("exec script.lua").success();
    assert!(w.path("started").exists());
    w.write("ctx.toml", format!("{SERVER}[mcp_servers.evil]\ncommand = \"touch\"\nargs = [\"again\"]\n"));
    w.ctx("exec script.lua").success().stderr_contains("is not trusted");
    assert!(!w.path("again").exists());
}

#[test]
fn no_server_outlives_ours_even_if_that_is_killed() {
    let w = with_config(
        "[mcp_servers.stuck]\ncommand = \"sh\"\nargs = [\"-c\", \"sleep 1000 & echo $! > child; wait\"]\n",
    );
    for kill in ["KILL", "TERM"] {
        let server = w.spawn_server();
        wait_until("its server runs", || w.path("child").exists() && !w.read("child").trim().is_empty());
        let child = w.read("child").trim().to_owned();
        assert!(runs(&child));
        signal(server.id(), kill);
        wait_until("its server has ended", || !runs(&child));
        w.remove("child");
    }
}

fn runs(process: &str) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", process]).output().unwrap();
    let state = String::from_utf8(state.stdout).unwrap();
    !state.trim().is_empty() && !state.starts_with('Z')
}

#[test]
fn the_official_servers_work_as_processes() {
    let w = with_config(&format!(
        "[mcp_servers.everything]\ncommand = \"node\"\nargs = [\"{}\", \"stdio\"]\n\
         [mcp_servers.filesystem]\ncommand = \"node\"\nargs = [\"{}\", \".\"]\n",
        official_server("server-everything").display(),
        official_server("server-filesystem").display(),
    ))
    .file("note.txt", "remember the milk");
    let script = r#"
        local sum = sdk.everything.get_sum{ a = 2, b = 3 }
        local echoed = sdk.everything.echo{ message = "x" }
        local weather = sdk.everything.get_structured_content{ location = "Chicago" }
        local image = sdk.everything.get_tiny_image()
        local note = sdk.filesystem.read_text_file{ path = "note.txt" }
        local failed, why = pcall(function() return sdk.filesystem.read_text_file{ path = "/etc/passwd" } end)
        return {
            sum = sum, echoed = echoed, conditions = type(weather.conditions), image = image[2].mimeType,
            note = note.content or note, failed = failed, why = tostring(why),
        }
    "#;
    let result = run(&w, script);
    assert_eq!(result["echoed"], "Echo: x", "{result}");
    assert!(result["sum"].as_str().unwrap().contains('5'), "{result}");
    assert_eq!(result["conditions"], "string", "{result}");
    assert_eq!(result["image"], "image/png", "{result}");
    assert_eq!(result["note"], "remember the milk", "{result}");
    assert_eq!(result["failed"], false, "{result}");
    assert!(result["why"].as_str().unwrap().contains("Access denied"), "{result}");
}

/// A child process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).ok();
    }
}

/// Starts the official server `everything` on this port, and waits until it listens.
fn start_everything_server(port: u16, kind: &str) -> KillOnDrop {
    let mut server = Command::new("node");
    server.arg(official_server("server-everything")).arg(kind).env("PORT", port.to_string());
    let server = KillOnDrop(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    server
}

#[test]
fn the_official_server_works_at_an_address_and_may_be_started_again() {
    assert_works_and_can_be_restarted("streamableHttp", "mcp", "streamable-http");
}

#[test]
fn the_official_server_works_as_the_oldest_do() {
    assert_works_and_can_be_restarted("sse", "sse", "sse");
}

fn assert_works_and_can_be_restarted(kind: &str, path: &str, transport: &str) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let upstream = start_everything_server(port, kind);
    let w = with_config(&format!(
        "[mcp_servers.everything]\nurl = \"http://127.0.0.1:{port}/{path}\"\ntransport = \"{transport}\"\n"
    ));
    let script = r#"
        local values = parallel{
            function() return sdk.everything.echo{ message = "a" } end,
            function() return sdk.everything.echo{ message = "b" } end,
        }
        return values
    "#;
    let server = w.spawn_server();
    let call = || server.post("/tools/execute", &json!({ "script": script }));
    wait_until("it is connected", || call().status == 200);
    drop(upstream);
    // Its sessions are lost with it.
    let _again = start_everything_server(port, kind);
    let reply = call();
    assert_eq!(
        (reply.status, &reply.body["result"]),
        (200, &json!(["Echo: a", "Echo: b"])),
        "{}",
        reply.body
    );
    server.stop().success();
}

/// The result of a request of the newest revision.
#[track_caller]
fn ask(server: &TestServer, method: &str, mut params: Value) -> Value {
    let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let mut headers = vec![
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
    ];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    let mut reply = server.send("POST", "/mcp", &headers, body.to_string().as_bytes());
    assert!(reply.body["result"].is_object(), "{method}: {}", reply.body);
    reply.body["result"].take()
}

#[test]
fn resources_and_prompts_of_the_official_server_are_listed_and_read_through_ours() {
    let w = with_config(&format!(
        "[mcp_servers.everything]\ncommand = \"node\"\nargs = [\"{}\", \"stdio\"]\n",
        official_server("server-everything").display(),
    ));
    let agents = w.ctx("agent list --json").success().json();
    let simple = json!({
        "name": "everything/simple-prompt", "description": "A prompt with no arguments", "source": "mcp",
        "tools": [], "arguments": [],
    });
    assert!(agents["agents"].as_array().unwrap().contains(&simple), "{agents}");

    let server = w.spawn_server();
    wait_until("it is connected", || {
        ask(&server, "prompts/list", json!({})).to_string().contains("everything/args-prompt")
    });
    let listed = ask(&server, "resources/list", json!({}));
    let listed: Vec<&str> =
        listed["resources"].as_array().unwrap().iter().map(|one| one["uri"].as_str().unwrap()).collect();
    let uri = listed.iter().find(|uri| uri.starts_with("mcp://everything/")).unwrap();
    let read = ask(&server, "resources/read", json!({ "uri": uri }));
    assert_eq!(read["contents"][0]["uri"], json!(uri), "{read}");
    assert!(!read["contents"][0]["text"].as_str().unwrap().is_empty());

    let templates = ask(&server, "resources/templates/list", json!({})).to_string();
    let form = "mcp://everything/demo://resource/dynamic/text/{resourceId}";
    assert!(templates.contains(form), "{templates}");
    let asked = json!({
        "ref": {"type": "ref/resource", "uri": form}, "argument": {"name": "resourceId", "value": "7"},
    });
    let completed = ask(&server, "completion/complete", asked);
    assert_eq!(completed["completion"]["values"], json!(["7"]));
    let asked = json!({
        "ref": {"type": "ref/prompt", "name": "everything/completable-prompt"},
        "argument": {"name": "department", "value": "Eng"},
    });
    let completed = ask(&server, "completion/complete", asked);
    assert_eq!(completed["completion"]["values"], json!(["Engineering"]));

    let prompt = ask(
        &server,
        "prompts/get",
        json!({"name": "everything/args-prompt", "arguments": {"city": "Rome", "state": "Lazio"}}),
    );
    assert!(prompt["messages"][0]["content"]["text"].as_str().unwrap().contains("Rome, Lazio"), "{prompt}");
    let reply = server.post("/agents/everything%2Fsimple-prompt/prompt", &json!({}));
    assert_eq!((reply.status, &reply.body["messages"][0]["role"]), (200, &json!("user")), "{}", reply.body);

    let script = json!({"script": "return sdk.everything.get_resource_links{ count = 2 }"});
    let links = server.post("/tools/execute", &script).body["result"].take();
    let link = links[2]["uri"].as_str().unwrap();
    assert!(link.starts_with("mcp://everything/demo://resource/dynamic/"), "{links}");
    let read = ask(&server, "resources/read", json!({ "uri": link }));
    assert_eq!(read["contents"][0]["uri"], json!(link), "{read}");
    server.stop().success();
}
