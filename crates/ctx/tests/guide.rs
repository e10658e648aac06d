//! Follows the guide's chapters about scripts step by step: the code blocks there run here.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use crate::apis::StdioSession;
use ctx_testkit::{
    HttpResponse, MockWebServer, RecordedRequest, TestServer, TestWorkspace, github_description,
    http_response, http_response_with, official_packages,
};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Replaces curl: prints its arguments and its stdin.
const CURL: &str = r#"curl() {
    for argument in "$@"; do
        if [ "$argument" = "@-" ]; then cat; else printf '%s' "$argument"; fi
        printf '\1'
    done
    printf '\2'
}
"#;
const DEFAULT_BIND: &str = "127.0.0.1:7331";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A chapter of the guide.
struct GuideChapter(String);

impl GuideChapter {
    fn read(name: &str) -> Self {
        Self(fs::read_to_string(root().join("docs/guide").join(name)).unwrap())
    }

    /// The blocks in this language.
    fn blocks(&self, language: &str) -> Vec<&str> {
        let parts: Vec<&str> = self.0.split("```").collect();
        let blocks = parts.iter().skip(1).step_by(2);
        blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
    }

    /// The lines of shell blocks with this prefix.
    fn commands(&self, start: &str) -> Vec<&str> {
        self.blocks("sh").into_iter().flat_map(str::lines).filter(|line| line.starts_with(start)).collect()
    }
}

/// Sends the requests of the guide's curl commands to this server.
fn curl(w: &TestWorkspace, server: &TestServer, block: &str) -> Vec<HttpResponse> {
    let told = w.shell(&format!("{CURL}{block}")).success().stdout;
    let calls = told.split_terminator('\u{2}');
    let send = |call: &str| {
        let arguments: Vec<&str> = call.split_terminator('\u{1}').collect();
        let url = arguments.iter().find_map(|argument| argument.strip_prefix("http://")).unwrap();
        let path = url.strip_prefix(DEFAULT_BIND).unwrap();
        match arguments.iter().position(|argument| *argument == "-d") {
            None => server.get(path),
            Some(place) => {
                assert!(arguments.contains(&"Content-Type: application/json"), "{arguments:?}");
                let body: Value = serde_json::from_str(arguments[place + 1]).unwrap();
                server.post(path, &body)
            }
        }
    };
    calls.map(send).collect()
}

/// Makes the configuration use any free port.
fn take_any_port(w: &TestWorkspace) {
    let config = w.read("ctx.toml");
    let told = if config.contains(DEFAULT_BIND) {
        config.replace(DEFAULT_BIND, "127.0.0.1:0")
    } else {
        config + "\n[server]\nbind = \"127.0.0.1:0\"\n"
    };
    w.write("ctx.toml", told);
}

/// The text without durations.
fn without_times(text: &str) -> String {
    let line = |line: &str| match line.split_once("Returned result in ") {
        Some((start, _)) => format!("{start}Returned result in a while"),
        None => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_first_tool_is_made_tried_and_called_as_the_guide_says() {
    let guide = GuideChapter::read("tools.md");
    let w = TestWorkspace::empty().file("docs/team.md", "# The team\nGreta repairs the bikes.\n");
    w.ctx("init").success();
    w.ctx("sync -q").success();
    w.shell(guide.commands("ctx tool init")[0]).success();
    assert!(w.read("ctx.toml").ends_with(guide.blocks("toml")[0]), "{}", w.read("ctx.toml"));
    assert!(w.path("tools/hello.lua").is_file());

    w.write("tools/hello.lua", guide.blocks("lua")[0]);
    let tested = w.shell(guide.commands("ctx tool test")[0]).success();
    assert_eq!(without_times(&tested.stdout), without_times(guide.blocks("text")[0]));

    take_any_port(&w);
    let server = w.spawn(["up"]);
    let called = curl(&w, &server, guide.commands("curl")[0]);
    assert_eq!((called.len(), &called[0].body["result"]["greeting"]), (1, &json!("Hello Greta!")));
    server.stop().success();
}

#[test]
fn every_section_of_a_tool_in_the_guide_is_a_valid_configuration() {
    let guide = GuideChapter::read("tools.md");
    let w = TestWorkspace::empty().config(&guide.blocks("toml").join("\n")).env("JIRA_API_TOKEN", "secret-x");
    let shown = w.ctx("config show").success();
    assert_eq!(shown.stderr, "");
    assert!(shown.stdout.contains("*.atlassian.net"), "{}", shown.stdout);
}

#[test]
fn every_function_that_the_guide_names_is_there() {
    let guide = GuideChapter::read("tools.md");
    let (_, table) = guide.0.split_once("## What a script can use").unwrap();
    let names: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once(" |"))
        .flat_map(|(apis, _)| apis.trim_end_matches('`').split("`, `"))
        .take_while(|name| *name != "name")
        .collect();
    assert!(names.contains(&"http") && names.contains(&"parallel"), "{names:?}");
    let found: String = names.iter().map(|name| format!("{name} = type({name}),")).collect();
    let functions = "get = http.get, head = http.head, delete = http.delete, post = http.post, put = http.put,
        patch = http.patch, encode = json.encode, decode = json.decode, parse = json.parse, array = json.array,
        search = context.search, page = context.get, sources = context.sources, progress = context.progress,
        elicit = context.elicit, read = fs.read, list = fs.list, variable = env.get, debug = log.debug,
        info = log.info, warn = log.warn, error = log.error, b64 = base64.encode, b64d = base64.decode,
        sha256 = crypto.sha256, hmac = crypto.hmac_sha256, sleep = sleep, parallel = parallel, print = print";
    let w = TestWorkspace::empty().file(
        "all.lua",
        &format!(
            "tool = {{ name = 'all', description = 'Names all', parameters = {{}} }}\n\
             function tool.execute(params, context)\n\
                 for name, found in {{ {functions} }} do assert(type(found) == 'function', name) end\n\
                 return {{ {found} }}\n\
             end\n"
        ),
    );
    let tested = w.ctx("tool test all.lua --json").success().json();
    for name in names {
        assert_ne!(tested["result"][name], "nil", "{name}");
    }
}

fn tickets(asked: &RecordedRequest) -> Vec<u8> {
    if asked.header("authorization") != Some("Bearer hunter2-hunter2") {
        return http_response(401, "{}");
    }
    let ticket = |id: &str, text: &str| {
        json!({
            "id": id, "text": text, "title": format!("Ticket {id}"), "reporter": "Greta", "status": "open",
            "url": format!("https://tickets.example.com/{id}"), "created": 1_767_600_000,
            "changed": "2026-01-05T09:00:00Z", "priority": 2,
        })
    };
    let tickets = match asked.parameter("since") {
        None => json!([ticket("a", "The harbour crane squeaks."), ticket("b", "The lighthouse is dark.")]),
        Some(_) => json!([ticket("b", "The lighthouse shines.")]),
    };
    http_response(200, &json!({"tickets": tickets, "now": "cursor-1"}).to_string())
}

#[test]
fn a_connector_is_made_tried_and_synced_as_the_guide_says() {
    let guide = GuideChapter::read("script-connectors.md");
    let w = TestWorkspace::empty().env("TICKETS_TOKEN", "hunter2-hunter2");
    w.ctx("init").success();
    let done = w.shell(&format!("set -e\n{}", guide.blocks("sh")[0])).success();
    assert!(done.stdout.contains("Testing connector: tickets (connectors/tickets.lua)"), "{}", done.stdout);
    assert!(done.stdout.ends_with("script:tickets: 1 added\n"), "{}", done.stdout);

    let web = MockWebServer::serve(tickets);
    let written = w.read("ctx.toml");
    let (before, _) = written.split_once("[connectors.script.tickets]").unwrap();
    let section = guide.blocks("toml")[0].replace("https://tickets.example.com", &web.url(""));
    w.write("ctx.toml", format!("{before}{section}"));
    w.write("connectors/tickets.lua", guide.blocks("lua")[0]);
    let scanned = w.ctx("connector test connectors/tickets.lua --json").success().json();
    assert_eq!((&scanned["scan"]["items"], &scanned["scan"]["cursor"]), (&json!(2), &json!("\"cursor-1\"")));
    assert_eq!(w.ctx("sync script:tickets").success().stdout, "script:tickets: 2 added\n");
    assert_eq!(w.ctx("search lighthouse --tag open --mode keyword --json").found_ids(), ["b"]);
    assert_eq!(w.ctx("sync script:tickets").success().stdout, "script:tickets: 1 updated\n");
    assert_eq!(web.requests().pop().unwrap().parameter("since"), Some("cursor-1"));
    let found = w.ctx("search harbour --mode keyword --json").success().json();
    assert_eq!(found["results"][0]["source_url"], "https://tickets.example.com/a", "what is not named stays");
}

#[test]
fn an_agent_is_made_tried_and_asked_for_as_the_guide_says() {
    let guide = GuideChapter::read("agents.md");
    let w = TestWorkspace::empty()
        .file("docs/gateway.md", "# Gateway runbook\nWhen the gateway is down, drain it first.\n");
    w.ctx("init").success();
    w.ctx("sync -q").success();
    w.shell(guide.commands("ctx agent init")[0]).success();
    let (inline, script) = (guide.blocks("toml")[0], guide.blocks("toml")[1]);
    assert!(w.read("ctx.toml").ends_with(script), "{}", w.read("ctx.toml"));
    w.write("ctx.toml", format!("{}\n{inline}", w.read("ctx.toml")));
    w.write("agents/incident-responder.lua", guide.blocks("lua")[0]);
    let tested = w.shell(guide.commands("ctx agent test")[0]).success();
    assert!(tested.stdout.contains("drain it first"), "{}", tested.stdout);
    let listed = w.shell(guide.commands("ctx agent list")[0]).success();
    assert!(listed.stdout.contains("incident-responder") && listed.stdout.contains("reviewer"), "{listed:?}");

    take_any_port(&w);
    let server = w.spawn_server();
    let block = guide.blocks("sh").pop().unwrap();
    let asks = &block[block.find("curl").unwrap()..];
    let [agents, prompt] = curl(&w, &server, asks).try_into().unwrap();
    assert_eq!(agents.body["agents"].as_array().map(Vec::len), Some(2), "{:?}", agents.body);
    assert!(prompt.body["system"].as_str().unwrap().contains("drain it first"), "{:?}", prompt.body);
    assert_eq!(prompt.body["messages"], json!([{"role": "user", "content": "gateway is down."}]));
    server.stop().success();
}

#[test]
fn many_calls_are_made_in_one_script_as_the_guide_says() {
    let guide = GuideChapter::read("execute.md");
    let w = TestWorkspace::copy_of(&root().join("examples/workspace"));
    take_any_port(&w);
    w.ctx("sync -q").success();
    let pages = json!({"rollback": "Roll back a release", "failover": "Database failover"});
    w.write("script.luau", guide.blocks("lua")[0]);
    let executed = w.ctx("exec script.luau").success();
    assert_eq!(serde_json::from_str::<Value>(&executed.stdout).unwrap(), pages);
    assert_eq!(w.shell("ctx exec - < script.luau").success().stdout, executed.stdout);

    let server = w.spawn_server();
    let called = curl(&w, &server, guide.blocks("sh")[0]);
    let [called] = &called[..] else { panic!("{called:?}") };
    let bytes_kept = called.body["meta"]["bytes_kept"].as_u64().unwrap();
    assert!(bytes_kept > 100, "{called:?}");
    let meta = json!({"calls": 2, "bytes_kept": bytes_kept});
    assert_eq!(called.body, json!({"result": pages, "logs": [], "meta": meta}));
    let execute = |script: &str| server.post("/tools/execute", &json!({ "script": script }));
    for (script, result) in [
        ("return sdk.tools.echo{ message = 'hi' }.message", json!("hi")),
        ("return #sdk.context.search{ query = 'failover', limit = 2 }.results", json!(2)),
        ("result(7)", json!(7)),
        (
            "return parallel{ a = function() return 1 end, b = function() return 2 end }",
            json!({"a": 1, "b": 2}),
        ),
        ("return { _G.http == nil, _G.fs == nil, _G.env == nil }", json!([true, true, true])),
    ] {
        let reply = execute(script);
        assert_eq!((reply.status, &reply.body["result"]), (200, &result), "{script}: {:?}", reply.body);
    }
    assert_eq!(execute("print('x')").status, 500, "neither a value nor a result is an error");
    assert_eq!(execute("result(1) return 2").status, 500, "both are one, too");
    let failed = execute("print('first') error('then')");
    assert_eq!(failed.body["logs"][0]["message"], "first", "{:?}", failed.body);
    server.stop().success();
}

#[test]
fn functions_are_found_as_the_guide_says() {
    let guide = GuideChapter::read("execute.md");
    let w = TestWorkspace::copy_of(&root().join("examples/workspace"));
    let answers: Vec<String> =
        guide.commands("ctx docs").into_iter().map(|command| w.shell(command).success().stdout).collect();
    let [overview, found, echo] = answers.as_slice() else { panic!("three commands") };
    assert!(overview.contains("\ntools – "), "{overview}");
    assert_eq!(found.lines().next(), guide.blocks("text")[0].lines().next());
    assert!(echo.contains("\nfunction sdk.tools.echo(params: { "), "{echo}");
}

#[test]
fn one_script_does_what_the_guide_says() {
    let guide = GuideChapter::read("one-script.md");
    // The packages are installed already; npx would download them.
    let npx = format!(
        "#!/bin/sh\nshift; package=$1; shift\nexec node {}/$package/dist/index.js \"$@\"\n",
        official_packages().display()
    );
    let w = TestWorkspace::empty().file("bin/npx", &npx);
    w.mode("bin/npx", 0o755);
    let (shell, text) = (guide.blocks("sh"), guide.blocks("text"));
    w.shell(shell[0]).success();
    let minutes = w.home().join("minutes");
    fs::write(minutes.join("ctx.toml"), guide.blocks("toml")[0]).unwrap();
    let in_minutes = |block: &str| w.shell(&format!("PATH=$PWD/bin:$PATH; cd ~/minutes; {block}"));
    let listed = in_minutes(shell[1]).success().stdout;
    assert!(listed.ends_with(text[0]), "{listed}");
    let lua = guide.blocks("lua");
    let found = in_minutes(shell[2]).success().stdout;
    assert!(found.starts_with("sdk.files.search_files(") && found.contains(lua[0]), "{found}");
    fs::write(minutes.join("tasks.luau"), lua[1]).unwrap();
    assert_eq!(in_minutes(shell[3]).success().stdout, guide.blocks("json")[0]);
    assert!(fs::read_to_string(minutes.join("memory.json")).unwrap().contains("order part 20"));
    assert_eq!(in_minutes(shell[4]).code(2).stderr, text[1]);
}

#[test]
fn every_section_of_a_server_in_the_guide_is_a_valid_configuration() {
    let guide = GuideChapter::read("upstreams.md");
    let w = TestWorkspace::empty()
        .config(&guide.blocks("toml").join("\n"))
        .env("ISSUES_TOKEN", "secret-x")
        .env("GITHUB_TOKEN", "secret-y");
    let shown = w.ctx("config show").success();
    assert_eq!(shown.stderr, "");
    assert!(
        shown.stdout.contains("mcp.example.com") && !shown.stdout.contains("secret-"),
        "{}",
        shown.stdout
    );
}

/// The part of the public pet store that the guide uses.
fn store_description() -> Value {
    let number = json!({"type": "integer"});
    let order = json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}});
    let mut answer = order.clone();
    answer["description"] = json!("The order");
    let id = json!({"name": "orderId", "in": "path", "required": true, "schema": number});
    json!({
        "openapi": "3.0.4", "info": {"title": "Pets", "version": "1"}, "servers": [{"url": "/api/v3"}],
        "paths": {
            "/store/order": {"post": {
                "operationId": "placeOrder", "requestBody": order, "responses": {"200": answer},
            }},
            "/store/order/{orderId}": {
                "get": {"operationId": "getOrderById", "parameters": [id], "responses": {"200": answer}},
                "delete": {"operationId": "deleteOrder", "parameters": [id], "responses": {}},
            },
            "/store/inventory": {"get": {
                "operationId": "getInventory", "security": [{"api_key": []}], "responses": {},
            }},
        },
        "components": {
            "securitySchemes": {"api_key": {"type": "apiKey", "in": "header", "name": "api_key"}},
            "schemas": {"Order": {
                "type": "object", "properties": {"id": number, "petId": number, "quantity": number},
            }},
        },
    })
}

/// Responds like the pet store and GitHub.
fn store_and_github(asked: &RecordedRequest) -> Vec<u8> {
    let json =
        |value: Value| http_response_with(200, &[("Content-Type", "application/json")], &value.to_string());
    let (path, _) = asked.target().split_once('?').unwrap_or((asked.target(), ""));
    match path {
        "GET /api/v3/openapi.json" => json(store_description()),
        "POST /api/v3/store/order" => json(asked.json()),
        "GET /api/v3/store/order/4711" => json(json!({"id": 4711, "quantity": 2})),
        "GET /api/v3/store/inventory" => json(json!({"key": asked.header("api_key").map(str::len)})),
        "POST /repos/me/shop/labels" => json(asked.json()),
        "GET /repos/rust-lang/rust/issues" => match asked.parameter("page").unwrap_or("1") {
            "1" => json(json!([{"title": "a"}, {"title": "b"}])),
            "2" => json(json!([{"title": "c"}])),
            _ => json(json!([])),
        },
        _ => http_response(404, "{}"),
    }
}

#[test]
fn apis_are_called_as_the_guide_says() {
    let guide = GuideChapter::read("apis.md");
    let (lua, toml) = (guide.blocks("lua"), guide.blocks("toml"));
    let web = MockWebServer::serve(store_and_github);
    let arguments =
        guide.commands("ctx run")[0].replace("https://petstore3.swagger.io/api/v3", &web.url("/api/v3"));
    let arguments: Vec<&str> = arguments.split(' ').skip(1).collect();
    let order = json!({"id": 4711, "quantity": 2});

    let w = TestWorkspace::empty().untrusted().env("PETSTORE_KEY", "hunter2-hunter2");
    let mut client = StdioSession::start(&w, &arguments);
    let answer = client.execute(lua[0]);
    assert_eq!(answer["structuredContent"], order, "{answer}");
    assert!(client.text("search_docs", json!({"query": "order"})).contains("petstore.place_order("));
    let (_, meta) = guide.0.split_once("for one call: `").unwrap();
    let meta: Value = serde_json::from_str(meta.split_once('`').unwrap().0).unwrap();
    let inventory = json!({"script": "return sdk.petstore.get_inventory()"});
    let with_auth = json!({"name": "execute", "arguments": inventory, "_meta": {"auth": meta}});
    assert_eq!(client.call(with_auth.clone())["structuredContent"], json!({"key": "…".len()}));
    client.end();

    w.write("petstore.yaml", store_description().to_string());
    w.write("ctx.toml", toml[0].replace("https://petstore.example/v3", &web.url("/api/v3")));
    w.write("order.luau", lua[0]);
    w.ctx("exec order.luau").code(2).stderr_contains("ctx trust");
    w.ctx("trust").success();
    for command in guide.commands("ctx ").into_iter().filter(|line| line.contains('#')) {
        match w.shell(command) {
            doctor if command.starts_with("ctx doctor") => {
                doctor.stdout_contains("✓ apis.petstore: 3 functions")
            }
            exec if command.starts_with("ctx exec") => exec.success().stdout_contains("\"id\": 4711"),
            other => other.success().stdout_contains("petstore"),
        };
    }
    let mut client = StdioSession::start(&w, &["serve", "mcp", "--stdio"]);
    let refused = client.call(with_auth).to_string();
    assert!(refused.contains("request_auth = true"), "{refused}");
    let configured = client.call(json!({"name": "execute", "arguments": inventory}));
    assert_eq!(configured["structuredContent"], json!({"key": "hunter2-hunter2".len()}));
    client.end();
}

#[test]
fn a_large_api_is_called_as_the_guide_says() {
    let guide = GuideChapter::read("apis.md");
    let (lua, toml) = (guide.blocks("lua"), guide.blocks("toml"));
    let web = MockWebServer::serve(store_and_github);
    let (spec, base) = (github_description(), web.url(""));
    let section = format!("[apis.github]\nspec = {spec:?}\nbase_url = \"{base}\"\n");
    let w = TestWorkspace::empty().config(&section).env("GITHUB_TOKEN", "secret-x");
    w.write("labels.luau", format!("{}return 1", lua[1]));
    w.ctx("exec labels.luau").success();
    let sent: Vec<Value> = web.requests().iter().map(RecordedRequest::json).collect();
    assert_eq!(sent, vec![json!({"name": "bug", "color": "d73a4a"}); 3]);
    w.write("titles.luau", lua[2]);
    assert_eq!(w.ctx("exec titles.luau").success().json(), json!(["a", "b", "c"]));
    w.ctx("docs github.issues_create").success().stdout_contains("request_body: { title: ");

    let narrowed: Vec<String> = toml[2]
        .lines()
        .map(|line| if line.starts_with("spec = ") { format!("spec = {spec:?}") } else { line.to_owned() })
        .collect();
    w.write("ctx.toml", narrowed.join("\n"));
    w.ctx("docs github.issues_get")
        .success()
        .stdout_contains("issues_get(params: { repo: string, issue_number: number })");
    let listed = w.ctx("upstream test github").success().stdout;
    let has = |name: &str| listed.contains(&format!("github.{name} "));
    assert!(has("pulls_get") && has("users_get_authenticated") && has("search_code"), "{listed}");
    assert!(!has("pulls_list") && !has("repos_get"), "{listed}");
}

#[test]
fn credentials_of_apis_are_told_and_types_are_generated_as_the_guide_says() {
    let guide = GuideChapter::read("apis.md");
    let secrets = ["PETSTORE_KEY", "PASSWORD", "CRM_KEY", "CRM_SECRET"];
    let w = TestWorkspace::empty().config(guide.blocks("toml")[1]);
    w.write("petstore.yaml", store_description().to_string());
    for name in secrets {
        w.ctx("config show").success().stderr_contains(name);
    }
    let w = secrets.into_iter().fold(w, |w, name| w.env(name, "secret-x"));
    let shown = w.ctx("config show").success();
    assert_eq!(shown.stderr, "");
    assert!(shown.stdout.contains("[apis.crm") && !shown.stdout.contains("secret-"), "{}", shown.stdout);

    w.shell(guide.commands("ctx generate")[0]).success();
    for row in guide.0.lines().filter_map(|line| line.strip_prefix("| `types/")) {
        let (path, _) = row.split_once('`').unwrap();
        assert!(w.read(&format!("types/{path}")).contains("place_order"), "{path}");
    }
    let settings: Value = serde_json::from_str(guide.blocks("json")[0]).unwrap();
    let definitions = settings["luau-lsp.types.definitionFiles"]["@ctx"].as_str().unwrap();
    assert!(w.path(definitions).is_file(), "{definitions}");
}
