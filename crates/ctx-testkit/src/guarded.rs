//! A fake MCP server that requires OAuth sign-in, and its authorization server, in one process.

use crate::process::DEADLINE;
use crate::{MockWebServer, RecordedRequest, http_response, http_response_with};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard};

/// A marker in every secret of the server (codes, tokens, client secret), by which tests find leaks.
pub const OAUTH_SECRET: &str = "s3cret";
const REDIRECTS_MAX: usize = 5;

/// A server with the tools `read` and `write`. Every call needs an access token; `write` also needs the scope `write`.
/// Refresh tokens are rotated: each can be used once. Stopped on drop.
pub struct OAuthMcpServer {
    web: MockWebServer,
    state: Arc<Mutex<GuardedServerState>>,
}

#[derive(Default)]
struct GuardedServerState {
    /// Issued authorization codes, with their PKCE challenges and scopes.
    codes: HashMap<String, (String, String)>,
    /// Valid access tokens, with their scopes.
    access_tokens: HashMap<String, String>,
    /// The valid refresh token, with its scopes.
    refresh_token: Option<(String, String)>,
    issued: usize,
    refreshes: usize,
    logins: usize,
}

impl OAuthMcpServer {
    /// Starts a server without any login.
    pub fn start() -> Self {
        let state = Arc::<Mutex<GuardedServerState>>::default();
        let shared = state.clone();
        let web = MockWebServer::serve(move |request| shared.lock().unwrap().respond(request));
        Self { web, state }
    }

    /// Its MCP URL.
    pub fn url(&self) -> String {
        self.web.url("/mcp")
    }

    fn state(&self) -> MutexGuard<'_, GuardedServerState> {
        self.state.lock().unwrap()
    }

    /// Revokes all access tokens; the refresh token stays valid.
    pub fn revoke_access_tokens(&self) {
        self.state().access_tokens.clear();
    }

    /// Revokes all access tokens and the refresh token.
    pub fn revoke_all_tokens(&self) {
        let mut state = self.state();
        state.access_tokens.clear();
        state.refresh_token = None;
    }

    /// Number of token refreshes.
    pub fn refresh_count(&self) -> usize {
        self.state().refreshes
    }

    /// Number of logins.
    pub fn login_count(&self) -> usize {
        self.state().logins
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.web.requests()
    }
}

impl GuardedServerState {
    fn respond(&mut self, request: &RecordedRequest) -> Vec<u8> {
        let origin = format!("http://{}", request.header("host").unwrap_or_default());
        let json = |status, body: Value| {
            http_response_with(status, &[("Content-Type", "application/json")], &body.to_string())
        };
        match request.target().split('?').next().unwrap_or_default() {
            "GET /.well-known/oauth-protected-resource/mcp" => {
                json(200, json!({ "resource": format!("{origin}/mcp"), "authorization_servers": [origin] }))
            }
            "GET /.well-known/oauth-authorization-server" => json(
                200,
                json!({
                    "issuer": origin,
                    "authorization_endpoint": format!("{origin}/authorize"),
                    "token_endpoint": format!("{origin}/token"),
                    "registration_endpoint": format!("{origin}/register"),
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["client_secret_basic"],
                    "authorization_response_iss_parameter_supported": true,
                }),
            ),
            "POST /register" => json(
                201,
                json!({ "client_id": "registered", "client_secret": format!("client-{OAUTH_SECRET}") }),
            ),
            "GET /authorize" => {
                self.logins += 1;
                let field = |name: &str| request.parameter(name).unwrap_or_default().to_owned();
                let code = format!("code-{}-{OAUTH_SECRET}", self.logins);
                self.codes.insert(code.clone(), (field("code_challenge"), percent_decode(&field("scope"))));
                let back = percent_decode(&field("redirect_uri"));
                let to = format!("{back}?code={code}&state={}&iss={origin}", field("state"));
                http_response_with(302, &[("Location", &to)], "")
            }
            "POST /token" => match self.issue_tokens(request) {
                Some(tokens) => json(200, tokens),
                None => json(400, json!({ "error": "invalid_grant" })),
            },
            "POST /mcp" => self.call_mcp(request, &origin),
            _ => http_response(404, ""),
        }
    }

    /// Issues tokens for an authorization code or a refresh token; `None` if the grant is invalid.
    fn issue_tokens(&mut self, request: &RecordedRequest) -> Option<Value> {
        let body = String::from_utf8(request.body.clone()).unwrap();
        let field = |name: &str| {
            let mut pairs = body.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| percent_decode(value))
        };
        let user = STANDARD.encode(format!("registered:client-{OAUTH_SECRET}"));
        if request.header("authorization") != Some(&format!("Basic {user}")) {
            return None;
        }
        let scopes = match field("grant_type")?.as_str() {
            "authorization_code" => {
                let (challenge, scopes) = self.codes.remove(&field("code")?)?;
                let presented_challenge =
                    URL_SAFE_NO_PAD.encode(digest(&SHA256, field("code_verifier")?.as_bytes()));
                (presented_challenge == challenge).then_some(scopes)?
            }
            _ => {
                let (_, scopes) =
                    self.refresh_token.take_if(|(token, _)| field("refresh_token") == Some(token.clone()))?;
                self.refreshes += 1;
                scopes
            }
        };
        self.issued += 1;
        let access_token = format!("access-{}-{OAUTH_SECRET}", self.issued);
        let refresh_token = format!("refresh-{}-{OAUTH_SECRET}", self.issued);
        self.access_tokens.insert(access_token.clone(), scopes.clone());
        self.refresh_token = Some((refresh_token.clone(), scopes));
        Some(json!({
            "access_token": access_token, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh_token,
        }))
    }

    fn call_mcp(&self, request: &RecordedRequest, origin: &str) -> Vec<u8> {
        let resource_metadata =
            format!("resource_metadata=\"{origin}/.well-known/oauth-protected-resource/mcp\"");
        let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let Some(scopes) = token.and_then(|token| self.access_tokens.get(token)) else {
            let header = format!("Bearer scope=\"read\", {resource_metadata}");
            return http_response_with(401, &[("WWW-Authenticate", &header)], "");
        };
        let message = request.json();
        let respond = |field: &str, value: Value| {
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], field: value });
            http_response_with(200, &[("Content-Type", "application/json")], &body.to_string())
        };
        let schema = json!({ "type": "object" });
        match (message["method"].as_str().unwrap(), message["params"]["name"].as_str()) {
            ("initialize", _) => respond(
                "result",
                json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "guarded", "version": "1" },
                }),
            ),
            ("tools/list", _) => respond(
                "result",
                json!({ "tools": [
                    { "name": "read", "inputSchema": schema }, { "name": "write", "inputSchema": schema },
                ] }),
            ),
            ("tools/call", Some("write")) if !scopes.split(' ').any(|scope| scope == "write") => {
                let header =
                    format!("Bearer error=\"insufficient_scope\", scope=\"write\", {resource_metadata}");
                http_response_with(403, &[("WWW-Authenticate", &header)], "")
            }
            ("tools/call", Some(name)) => {
                // Returns the token, as some servers do, so that tests can check that it is masked.
                let text = format!("{name} with {}", token.unwrap_or_default());
                respond("result", json!({ "content": [{ "type": "text", "text": text }] }))
            }
            ("server/discover", _) => respond("error", json!({ "code": -32601, "message": "what?" })),
            _ => http_response(202, ""),
        }
    }
}

/// Opens a URL as a browser does, follows redirects, and returns the last response.
#[track_caller]
pub fn browse(url: &str) -> String {
    let mut url = url.to_owned();
    for _ in 0..REDIRECTS_MAX {
        let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let next = response.lines().find_map(|line| line.strip_prefix("Location: "));
        match next {
            Some(next) => url = next.to_owned(),
            None => return response,
        }
    }
    panic!("sent from one address to the next: {url}")
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            other => other,
        });
    }
    String::from_utf8(bytes).unwrap()
}
