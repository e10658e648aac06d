//! What is kept of a login, and where.

use super::LoginError;
use super::register::{Client, Method};
use ctx_core::{NetworkScope, Secret};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::time::{SystemTime, UNIX_EPOCH};
use url::Url;

/// A token is renewed this many seconds before it ends.
const AHEAD: u64 = 30;

/// Where logins are kept: by the address of the server that each is for. What is kept is text, and all of
/// it is secret. Every method may wait; the error tells what went wrong.
pub trait CredentialStore: Send + Sync {
    /// What is kept for a server.
    fn load(&self, server: &str) -> Result<Option<Secret>, String>;
    /// Keeps this for a server, in place of what was kept.
    fn save(&self, server: &str, kept: &Secret) -> Result<(), String>;
    /// Keeps nothing for a server any more; tells whether anything was.
    fn forget(&self, server: &str) -> Result<bool, String>;
    /// Waits until nobody else, in any process, changes what is kept for a server; nobody does until what
    /// is returned is dropped.
    fn lock(&self, server: &str) -> Result<Box<dyn Any + Send>, String>;
}

/// What a server is kept under.
pub(super) fn key(server: &Url) -> String {
    let mut server = server.clone();
    server.set_fragment(None);
    server.to_string()
}

/// A login.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    /// Who lets us in.
    pub(super) issuer: String,
    /// Where tokens are renewed.
    pub(super) token_endpoint: String,
    /// What they are for.
    pub(super) resource: String,
    /// Who we are there.
    pub(super) client: Client,
    /// What was asked for.
    pub(super) requested: Vec<String>,
    /// What the server wants to have been asked for besides.
    pub(super) wanted: Vec<String>,
    /// Where the server was when it named the token endpoint; `None` in a login of an earlier version.
    pub(super) responded_from: Option<NetworkScope>,
    pub(super) tokens: Tokens,
}

/// What lets us in.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    pub(super) access: Secret,
    pub(super) refresh: Option<Secret>,
    /// In seconds since 1970.
    pub(super) expires_at: Option<u64>,
}

impl Tokens {
    pub(super) fn has_ended(&self) -> bool {
        self.expires_at.is_some_and(|end| end <= now())
    }

    /// Whether it has ended or is about to.
    pub(super) fn ends_soon(&self) -> bool {
        self.expires_at.is_some_and(|end| end <= now() + AHEAD)
    }
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The same as it is written; this is the one place where its secrets are.
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

    /// What was written; nothing where it cannot be read, which is as good as never having logged in.
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
