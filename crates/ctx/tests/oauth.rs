//! A server with OAuth: callers with access tokens, and the tools that their scopes allow.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{
    AuthorizationServer, HttpResponse, SigningKey, TestServer, TestWorkspace, ctx_snapshot, valid_claims,
};
use serde_json::{Value, json};
use std::io::Write;

const WRITE: &str = "tool = { name = \"write\", description = \"Writes\", parameters = {} }\n\
                     function tool.execute() return \"written\" end\n";

struct OAuthWorkspace {
    key: SigningKey,
    issuer: AuthorizationServer,
    workspace: TestWorkspace,
    server: TestServer,
}

impl OAuthWorkspace {
    /// Requires `ctx:read` for all calls, `ctx:write` for the tool `write`, and `ctx:act` for agents.
    fn start(more: &str) -> Self {
        let key = SigningKey::new("ES256", "one");
        let issuer = AuthorizationServer::start(&[&key]);
        let config = format!(
            r#"
[connectors.filesystem.docs]
root = "docs"
[server]
bind = "127.0.0.1:0"
{more}
[server.oauth]
issuer = "{}"
scopes = ["ctx:read"]
tool_scopes = {{ "tools.*" = ["ctx:write"], "agents.*" = ["ctx:act"], sources = ["ctx:read", "ctx:list"] }}
[tools.script.write]
path = "write.lua"
[agents.inline.editor]
description = "Edits"
system_prompt = "Be brief."
"#,
            issuer.issuer()
        );
        let workspace = TestWorkspace::empty()
            .config(&config)
            .file("docs/deploy.md", "# Deploy\nPush the button.\n")
            .file("write.lua", WRITE);
        workspace.ctx("sync").success();
        let server = workspace.spawn_server();
        Self { key, issuer, workspace, server }
    }

    fn token(&self, scopes: &str) -> String {
        let resource = format!("http://{}/mcp", self.server.address());
        let mut claims = valid_claims(&self.issuer.issuer(), &resource);
        claims["scope"] = json!(scopes);
        self.key.sign(&claims)
    }

    fn post(&self, token: &str, path: &str, body: &Value) -> HttpResponse {
        let authorization = format!("Bearer {token}");
        let headers = [("content-type", "application/json"), ("authorization", authorization.as_str())];
        self.server.send("POST", path, &headers, body.to_string().as_bytes())
    }

    fn execute(&self, token: &str, script: &str) -> HttpResponse {
        self.post(token, "/tools/execute", &json!({ "script": script }))
    }
}

fn required_scope(reply: &HttpResponse) -> &str {
    let header = &reply.headers["www-authenticate"];
    assert!(header.contains("error=\"insufficient_scope\""), "{header}");
    header.split("scope=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap()
}

#[test]
fn callers_can_call_what_their_scopes_allow() {
    let team = OAuthWorkspace::start("");
    let (reader, writer) = (team.token("ctx:read"), team.token("ctx:read ctx:write"));
    let query = json!({"query": "button"});
    assert_eq!(team.post(&reader, "/tools/search", &query).found_ids(), ["deploy.md"]);
    let refused = team.post(&reader, "/tools/write", &json!({}));
    assert_eq!((refused.status, required_scope(&refused)), (403, "ctx:write"));
    assert_eq!(
        refused.body["error"]["message"],
        "tools.write is not allowed: the caller lacks the scope `ctx:write`"
    );
    assert_eq!(team.post(&writer, "/tools/write", &json!({})).body, json!({"result": "written"}));
    let refused = team.post(&reader, "/tools/sources", &json!({}));
    assert_eq!((refused.status, required_scope(&refused)), (403, "ctx:list ctx:read"));
    let refused = team.post(&writer, "/agents/editor/prompt", &json!({}));
    assert_eq!((refused.status, required_scope(&refused)), (403, "ctx:act"));
    let actor = team.token("ctx:act ctx:read");
    assert_eq!(team.post(&actor, "/agents/editor/prompt", &json!({})).body["system"], "Be brief.");
    let refused = team.post(&team.token("ctx:write"), "/tools/search", &query);
    assert_eq!((refused.status, required_scope(&refused)), (403, "ctx:read"));
    assert_eq!(team.server.post("/tools/search", &query).status, 401);
}

#[test]
fn mcp_clients_are_told_which_scopes_are_missing() {
    let team = OAuthWorkspace::start("");
    let (reader, writer) = (team.token("ctx:read"), team.token("ctx:read ctx:write"));
    let call = |token: &str, tool: &str, arguments: Value| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let authorization = format!("Bearer {token}");
        let headers = [
            ("content-type", "application/json"),
            ("authorization", authorization.as_str()),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", tool),
        ];
        team.server.send("POST", "/mcp", &headers, body.to_string().as_bytes())
    };
    let refused = call(&reader, "write", json!({}));
    assert_eq!((refused.status, required_scope(&refused)), (403, "ctx:write"));
    let text = |reply: &HttpResponse| reply.body["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(text(&call(&writer, "write", json!({}))), "written");
    let around = call(&reader, "execute", json!({"script": "return sdk.tools.write{}"}));
    assert_eq!((around.status, &around.body["result"]["isError"]), (200, &json!(true)));
    assert!(text(&around).contains("lacks the scope `ctx:write`"), "{around:?}");
    assert_eq!(call("nonsense", "write", json!({})).status, 401);
}

#[test]
fn a_script_has_the_scopes_of_its_caller() {
    let team = OAuthWorkspace::start("");
    let (reader, writer) = (team.token("ctx:read"), team.token("ctx:read ctx:write"));
    let found = team.execute(&reader, "return #context.search('button')");
    assert_eq!((found.status, &found.body["result"]), (200, &json!(1)));
    let around = team.execute(&reader, "return sdk.tools.write{}");
    let message = around.body["error"]["message"].as_str().unwrap();
    assert!(around.status >= 400 && message.contains("lacks the scope `ctx:write`"), "{around:?}");
    let caught = "local ok, why = pcall(function() return sdk.tools.write{} end)\n\
                  return { ok = ok, why = tostring(why) }";
    let caught = team.execute(&reader, caught).body["result"].clone();
    assert_eq!(caught["ok"], false, "{caught}");
    assert!(caught["why"].as_str().unwrap().contains("lacks the scope `ctx:write`"), "{caught}");
    assert_eq!(team.execute(&writer, "return sdk.tools.write{}").body["result"], "written");
}

#[test]
fn local_commands_need_no_token() {
    let team = OAuthWorkspace::start("");
    team.workspace.write("script.luau", "return { sdk.tools.write{}, #context.search('button') }");
    let ran = team.workspace.ctx("exec script.luau").success();
    assert_eq!(ran.json(), json!(["written", 1]));
}

#[test]
fn the_static_token_has_every_scope() {
    let team = OAuthWorkspace::start("token = \"${CTX_TOKEN:-correct-horse}\"");
    assert_eq!(team.execute("correct-horse", "return sdk.tools.write{}").body["result"], "written");
    assert_eq!(team.post("correct-horsf", "/tools/write", &json!({})).status, 401);
    assert_eq!(team.post(&team.token("ctx:read"), "/tools/search", &json!({"query": "button"})).status, 200);
}

#[test]
fn clients_learn_where_tokens_come_from() {
    let team = OAuthWorkspace::start("");
    let reply = team.server.get("/.well-known/oauth-protected-resource/mcp");
    let resource = format!("http://{}/mcp", team.server.address());
    assert_eq!(reply.body["resource"], resource);
    assert_eq!(reply.body["authorization_servers"], json!([team.issuer.issuer()]));
    assert_eq!(reply.body["scopes_supported"], json!(["ctx:act", "ctx:list", "ctx:read", "ctx:write"]));
    let place = format!("http://{}/.well-known/oauth-protected-resource/mcp", team.server.address());
    let challenge = &team.server.get("/tools/list").headers["www-authenticate"];
    assert_eq!(*challenge, format!("Bearer resource_metadata=\"{place}\", scope=\"ctx:read\""));
    let outcome = team.server.stop().success();
    assert!(!outcome.stderr.contains("warning:"), "{}", outcome.stderr);
}

#[test]
fn a_server_without_its_issuer_starts_and_says_so() {
    let workspace = TestWorkspace::new()
        .config("[server]\nbind = \"127.0.0.1:0\"\n[server.oauth]\nissuer = \"http://127.0.0.1:1\"\n");
    let mut server = workspace.spawn_server();
    server.wait_for("cannot fetch the signing keys of the issuer http://127.0.0.1:1; retrying");
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/tools/list").status, 401);
    server.stop().success();
}

#[test]
fn a_server_that_others_reach_must_say_what_tokens_are_meant_for() {
    let config = "[server]\nbind = \"0.0.0.0:0\"\n[server.oauth]\nissuer = \"https://login.example.com\"\n";
    let workspace = TestWorkspace::new().config(config);
    ctx_snapshot!(workspace.ctx("serve mcp"), @r#"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: `[server.oauth]` needs `resource`, the public URL of this server for which access tokens are issued
    hint: set it, for example to "https://ctx.example.com/mcp"
    "#);
    let resource = format!("{config}resource = \"https://ctx.example.com/mcp\"\n");
    let server = TestWorkspace::new().config(&resource).spawn_server();
    let metadata = server.get("/.well-known/oauth-protected-resource");
    assert_eq!(metadata.body["resource"], "https://ctx.example.com/mcp");
    let health = |host: &str| {
        let mut stream = server.connect();
        let request = format!("GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        HttpResponse::read(&stream).status
    };
    assert_eq!(health("ctx.example.com"), 200, "what tokens are meant for is a name of the server");
    assert_eq!(health("other.example.com"), 403);
}

#[test]
fn the_guides_example_is_a_configuration() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/operation.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let example = guide.split("```toml\n").skip(1).find(|block| block.contains("[server.oauth]")).unwrap();
    let example = example.split("```").next().unwrap().replace("0.0.0.0:7331", "127.0.0.1:0");
    let server = TestWorkspace::empty().config(&example).spawn_server();
    let metadata = server.get("/.well-known/oauth-protected-resource/mcp").body;
    assert_eq!(metadata["scopes_supported"], json!(["ctx:read", "ctx:script", "ctx:write"]));
    let challenge = server.get("/tools/list").headers["www-authenticate"].clone();
    assert!(guide.contains(&format!("# www-authenticate: {challenge}")), "{challenge}");
}
