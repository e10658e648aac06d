//! Stored OAuth credentials: the interface of the store, and their serialized form.

use super::LoginError;
use super::register::{Client, Method};
use ctx_core::{NetworkScope, Secret};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::time::{SystemTime, UNIX_EPOCH};
use url::Url;

/// A token is refreshed this many seconds before it expires.
const AHEAD: u64 = 30;

/// Persistent storage of logins, by the URL of the server. A stored login is one text, which is secret as a
/// whole. Every method may block; the error says what went wrong.
pub trait CredentialStore: Send + Sync {
    /// Loads the login for a server.
    fn load(&self, server: &str) -> Result<Option<Secret>, String>;
    /// Stores the login for a server, in place of an earlier one.
    fn save(&self, server: &str, kept: &Secret) -> Result<(), String>;
    /// Deletes the login for a server; returns whether there was one.
    fn forget(&self, server: &str) -> Result<bool, String>;
    /// Locks the login for a server against changes by other threads and processes, until the returned guard
    /// is dropped.
    fn lock(&self, server: &str) -> Result<Box<dyn Any + Send>, String>;
}

/// The key of a server in the store: its URL without the fragment.
pub(super) fn key(server: &Url) -> String {
    let mut server = server.clone();
    server.set_fragment(None);
    server.to_string()
}

/// A login: tokens, and all that refreshing them needs.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    /// The issuer identifier of the authorization server.
    pub(super) issuer: String,
    /// The URL at which tokens are refreshed.
    pub(super) token_endpoint: String,
    /// The resource indicator that tokens are requested for (RFC 8707).
    pub(super) resource: String,
    /// Our client at the authorization server.
    pub(super) client: Client,
    /// Scopes that were requested or granted.
    pub(super) requested: Vec<String>,
    /// Further scopes that the server has asked for since the login.
    pub(super) wanted: Vec<String>,
    /// The network scope that the server responded from when it named the token endpoint; `None` in a login
    /// that an earlier version stored.
    pub(super) responded_from: Option<NetworkScope>,
    pub(super) tokens: Tokens,
}

/// The tokens of a login.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    pub(super) access: Secret,
    pub(super) refresh: Option<Secret>,
    /// When the access token expires, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
}

impl Tokens {
    pub(super) fn has_ended(&self) -> bool {
        self.expires_at.is_some_and(|end| end <= now())
    }

    /// Whether the access token has expired or is about to.
    pub(super) fn ends_soon(&self) -> bool {
        self.expires_at.is_some_and(|end| end <= now() + AHEAD)
    }
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The serialized form of [`Credentials`], the only type with the secrets as plain strings.
#[derive(Serialize, Deserialize)]
struct Written {
    issuer: String,
    token_endpoint: String,
    resource: String,
    client_id: String,
    client_secret: Option<String>,
    method: Method,
    requested: Vec<String>,
    wanted: Vec<String>,
    #[serde(default)]
    responded_from: Option<NetworkScope>,
    access_token: String,
    refresh_token: Option<String>,
    expires_at: Option<u64>,
}

impl Credentials {
    pub(super) fn write(&self) -> Result<Secret, LoginError> {
        let exposed = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.expose().to_owned());
        let written = Written {
            issuer: self.issuer.clone(),
            token_endpoint: self.token_endpoint.clone(),
            resource: self.resource.clone(),
            client_id: self.client.id.clone(),
            client_secret: exposed(&self.client.secret),
            method: self.client.method,
            requested: self.requested.clone(),
            wanted: self.wanted.clone(),
            responded_from: self.responded_from,
            access_token: self.tokens.access.expose().to_owned(),
            refresh_token: exposed(&self.tokens.refresh),
            expires_at: self.tokens.expires_at,
        };
        let text = serde_json::to_string(&written);
        text.map(Secret::new).map_err(|_| LoginError::new("the login cannot be written down"))
    }

    /// Parses stored credentials; `None` if they are unreadable, which counts as no login.
    pub(super) fn read(kept: &Secret) -> Option<Self> {
        let written: Written = serde_json::from_str(kept.expose()).ok()?;
        let client = Client {
            id: written.client_id,
            secret: written.client_secret.map(Secret::new),
            method: written.method,
        };
        let tokens = Tokens {
            access: Secret::new(written.access_token),
            refresh: written.refresh_token.map(Secret::new),
            expires_at: written.expires_at,
        };
        Some(Self {
            issuer: written.issuer,
            token_endpoint: written.token_endpoint,
            resource: written.resource,
            client,
            requested: written.requested,
            wanted: written.wanted,
            responded_from: written.responded_from,
            tokens,
        })
    }

    pub(super) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let tokens = [Some(&self.tokens.access), self.tokens.refresh.as_ref(), self.client.secret.as_ref()];
        tokens.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again_and_shown_nowhere() {
        let login = Credentials {
            issuer: "https://a.example".into(),
            token_endpoint: "https://a.example/token".into(),
            resource: "https://s.example/mcp".into(),
            client: Client { id: "c".into(), secret: Some(Secret::new("s3cret-1")), method: Method::Post },
            requested: vec!["a".into()],
            wanted: vec!["b".into()],
            responded_from: Some(NetworkScope::Private),
            tokens: Tokens {
                access: Secret::new("s3cret-2"),
                refresh: Some(Secret::new("s3cret-3")),
                expires_at: Some(now()),
            },
        };
        let again = Credentials::read(&login.write().unwrap()).unwrap();
        assert_eq!(format!("{login:?}"), format!("{again:?}"));
        assert!(!format!("{login:?}").contains("s3cret"));
        let secrets = |login: &Credentials| login.secrets().cloned().collect::<Vec<_>>();
        assert_eq!(secrets(&login), secrets(&again));
        assert_eq!(secrets(&login).len(), 3);
        assert!(again.tokens.ends_soon());
        assert!(Credentials::read(&Secret::new("{}")).is_none());
    }
}
