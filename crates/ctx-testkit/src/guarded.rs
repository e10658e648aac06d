//! A fake MCP server that requires OAuth sign-in, and its authorization server, in one process.

use crate::process::DEADLINE;
use crate::{Asked, Web, reply, reply_with};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard};

/// A marker in every secret of the server (codes, tokens, client secret), by which tests find leaks.
pub const GUARDED_SECRET: &str = "s3cret";
const REDIRECTS_MAX: usize = 5;

/// A server with the tools `read` and `write`. Every call needs an access token; `write` also needs the scope `write`.
/// Refresh tokens are rotated: each can be used once. Stopped on drop.
pub struct GuardedServer {
    web: Web,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Issued authorization codes, with their PKCE challenges and scopes.
    codes: HashMap<String, (String, String)>,
    /// Valid access tokens, with their scopes.
    access: HashMap<String, String>,
    /// The valid refresh token, with its scopes.
    refresh: Option<(String, String)>,
    given: usize,
    renewed: usize,
    logins: usize,
}

impl GuardedServer {
    /// Starts a server without any login.
    pub fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let shared = state.clone();
        let web = Web::serve(move |asked| shared.lock().unwrap().answer(asked));
        Self { web, state }
    }

    /// Its MCP URL.
    pub fn url(&self) -> String {
        self.web.url("/mcp")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Revokes all access tokens; the refresh token stays valid.
    pub fn end_tokens(&self) {
        self.state().access.clear();
    }

    /// Revokes all access tokens and the refresh token.
    pub fn end_logins(&self) {
        let mut state = self.state();
        state.access.clear();
        state.refresh = None;
    }

    /// Number of token refreshes.
    pub fn times_renewed(&self) -> usize {
        self.state().renewed
    }

    /// Number of logins.
    pub fn times_logged_in(&self) -> usize {
        self.state().logins
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.web.asked()
    }
}

impl State {
    fn answer(&mut self, asked: &Asked) -> Vec<u8> {
        let origin = format!("http://{}", asked.header("host").unwrap_or_default());
        let json = |status, body: Value| {
            reply_with(status, &[("Content-Type", "application/json")], &body.to_string())
        };
        match asked.target().split('?').next().unwrap_or_default() {
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
                json!({ "client_id": "registered", "client_secret": format!("client-{GUARDED_SECRET}") }),
            ),
            "GET /authorize" => {
                self.logins += 1;
                let field = |name: &str| asked.parameter(name).unwrap_or_default().to_owned();
                let code = format!("code-{}-{GUARDED_SECRET}", self.logins);
                self.codes.insert(code.clone(), (field("code_challenge"), decoded(&field("scope"))));
                let back = decoded(&field("redirect_uri"));
                let to = format!("{back}?code={code}&state={}&iss={origin}", field("state"));
                reply_with(302, &[("Location", &to)], "")
            }
            "POST /token" => match self.give(asked) {
                Some(given) => json(200, given),
                None => json(400, json!({ "error": "invalid_grant" })),
            },
            "POST /mcp" => self.serve(asked, &origin),
            _ => reply(404, ""),
        }
    }

    /// Issues tokens for an authorization code or a refresh token; `None` if the grant is invalid.
    fn give(&mut self, asked: &Asked) -> Option<Value> {
        let body = String::from_utf8(asked.body.clone()).unwrap();
        let field = |name: &str| {
            let mut pairs = body.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| decoded(value))
        };
        let user = STANDARD.encode(format!("registered:client-{GUARDED_SECRET}"));
        if asked.header("authorization") != Some(&format!("Basic {user}")) {
            return None;
        }
        let scopes = match field("grant_type")?.as_str() {
            "authorization_code" => {
                let (proof, scopes) = self.codes.remove(&field("code")?)?;
                let shown = URL_SAFE_NO_PAD.encode(digest(&SHA256, field("code_verifier")?.as_bytes()));
                (shown == proof).then_some(scopes)?
            }
            _ => {
                let (_, scopes) =
                    self.refresh.take_if(|(token, _)| field("refresh_token") == Some(token.clone()))?;
                self.renewed += 1;
                scopes
            }
        };
        self.given += 1;
        let access = format!("access-{}-{GUARDED_SECRET}", self.given);
        let refresh = format!("refresh-{}-{GUARDED_SECRET}", self.given);
        self.access.insert(access.clone(), scopes.clone());
        self.refresh = Some((refresh.clone(), scopes));
        Some(json!({
            "access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh,
        }))
    }

    fn serve(&self, asked: &Asked, origin: &str) -> Vec<u8> {
        let about = format!("resource_metadata=\"{origin}/.well-known/oauth-protected-resource/mcp\"");
        let token = asked.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let Some(scopes) = token.and_then(|token| self.access.get(token)) else {
            let header = format!("Bearer scope=\"read\", {about}");
            return reply_with(401, &[("WWW-Authenticate", &header)], "");
        };
        let message = asked.json();
        let answer = |field: &str, value: Value| {
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], field: value });
            reply_with(200, &[("Content-Type", "application/json")], &body.to_string())
        };
        let schema = json!({ "type": "object" });
        match (message["method"].as_str().unwrap(), message["params"]["name"].as_str()) {
            ("initialize", _) => answer(
                "result",
                json!({
                    "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "guarded", "version": "1" },
                }),
            ),
            ("tools/list", _) => answer(
                "result",
                json!({ "tools": [
                    { "name": "read", "inputSchema": schema }, { "name": "write", "inputSchema": schema },
                ] }),
            ),
            ("tools/call", Some("write")) if !scopes.split(' ').any(|scope| scope == "write") => {
                let header = format!("Bearer error=\"insufficient_scope\", scope=\"write\", {about}");
                reply_with(403, &[("WWW-Authenticate", &header)], "")
            }
            ("tools/call", Some(name)) => {
                // Returns the token, as some servers do, so that tests can check that it is masked.
                let text = format!("{name} with {}", token.unwrap_or_default());
                answer("result", json!({ "content": [{ "type": "text", "text": text }] }))
            }
            ("server/discover", _) => answer("error", json!({ "code": -32601, "message": "what?" })),
            _ => reply(202, ""),
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
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let next = page.lines().find_map(|line| line.strip_prefix("Location: "));
        match next {
            Some(next) => url = next.to_owned(),
            None => return page,
        }
    }
    panic!("sent from one address to the next: {url}")
}

fn decoded(text: &str) -> String {
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
