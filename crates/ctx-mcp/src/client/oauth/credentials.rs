//! Stored OAuth credentials: the interface of the store, and their serialized form.

use super::LoginError;
use super::registration::{ClientAuthMethod, ClientRegistration};
use ctx_core::{NetworkScope, Secret};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::time::{SystemTime, UNIX_EPOCH};
use url::Url;

/// A token is refreshed this many seconds before it expires.
const REFRESH_AHEAD_SECONDS: u64 = 30;

/// Persistent storage of logins, by the URL of the server. A stored login is one text, which is secret as a
/// whole. Every method may block; the error says what went wrong.
pub trait CredentialStore: Send + Sync {
    /// Loads the login for a server.
    fn load(&self, server: &str) -> Result<Option<Secret>, String>;
    /// Stores the login for a server, in place of an earlier one.
    fn save(&self, server: &str, credentials: &Secret) -> Result<(), String>;
    /// Deletes the login for a server; returns whether there was one.
    fn forget(&self, server: &str) -> Result<bool, String>;
    /// Locks the login for a server against changes by other threads and processes, until the returned guard
    /// is dropped.
    fn lock(&self, server: &str) -> Result<Box<dyn Any + Send>, String>;
}

/// The key of a server in the store: its URL without the fragment.
pub(super) fn store_key(server: &Url) -> String {
    let mut server = server.clone();
    server.set_fragment(None);
    server.to_string()
}

/// A login: tokens, and all that refreshing them needs.
#[derive(Clone, Debug)]
pub(super) struct OAuthCredentials {
    /// The issuer identifier of the authorization server.
    pub(super) issuer: String,
    /// The URL at which tokens are refreshed.
    pub(super) token_endpoint: String,
    /// The resource indicator that tokens are requested for (RFC 8707).
    pub(super) resource: String,
    /// Our client at the authorization server.
    pub(super) registration: ClientRegistration,
    /// Scopes that were requested or granted.
    pub(super) requested_scopes: Vec<String>,
    /// Further scopes that the server has asked for since the login.
    pub(super) missing_scopes: Vec<String>,
    /// The network scope that the server responded from when it named the token endpoint; `None` in a login
    /// that an earlier version stored.
    pub(super) responded_from: Option<NetworkScope>,
    pub(super) tokens: OAuthTokens,
}

/// The tokens of a login.
#[derive(Clone, Debug)]
pub(super) struct OAuthTokens {
    pub(super) access: Secret,
    pub(super) refresh: Option<Secret>,
    /// When the access token expires, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
}

impl OAuthTokens {
    pub(super) fn has_expired(&self) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= unix_now())
    }

    /// Whether the access token has expired or is about to.
    pub(super) fn expires_soon(&self) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= unix_now() + REFRESH_AHEAD_SECONDS)
    }
}

pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The serialized form of [`OAuthCredentials`], the only type with the secrets as plain strings.
#[derive(Serialize, Deserialize)]
struct StoredCredentials {
    issuer: String,
    token_endpoint: String,
    resource: String,
    client_id: String,
    client_secret: Option<String>,
    #[serde(rename = "method")]
    auth_method: ClientAuthMethod,
    #[serde(rename = "requested")]
    requested_scopes: Vec<String>,
    #[serde(rename = "wanted")]
    missing_scopes: Vec<String>,
    #[serde(default)]
    responded_from: Option<NetworkScope>,
    access_token: String,
    refresh_token: Option<String>,
    expires_at: Option<u64>,
}

impl OAuthCredentials {
    pub(super) fn serialize(&self) -> Result<Secret, LoginError> {
        let exposed = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.expose().to_owned());
        let stored = StoredCredentials {
            issuer: self.issuer.clone(),
            token_endpoint: self.token_endpoint.clone(),
            resource: self.resource.clone(),
            client_id: self.registration.id.clone(),
            client_secret: exposed(&self.registration.secret),
            auth_method: self.registration.auth_method,
            requested_scopes: self.requested_scopes.clone(),
            missing_scopes: self.missing_scopes.clone(),
            responded_from: self.responded_from,
            access_token: self.tokens.access.expose().to_owned(),
            refresh_token: exposed(&self.tokens.refresh),
            expires_at: self.tokens.expires_at,
        };
        let text = serde_json::to_string(&stored);
        text.map(Secret::new).map_err(|_| LoginError::new("cannot serialize the login"))
    }

    /// Parses stored credentials; `None` if they are unreadable, which counts as no login.
    pub(super) fn parse(credentials: &Secret) -> Option<Self> {
        let stored: StoredCredentials = serde_json::from_str(credentials.expose()).ok()?;
        let registration = ClientRegistration {
            id: stored.client_id,
            secret: stored.client_secret.map(Secret::new),
            auth_method: stored.auth_method,
        };
        let tokens = OAuthTokens {
            access: Secret::new(stored.access_token),
            refresh: stored.refresh_token.map(Secret::new),
            expires_at: stored.expires_at,
        };
        Some(Self {
            issuer: stored.issuer,
            token_endpoint: stored.token_endpoint,
            resource: stored.resource,
            registration,
            requested_scopes: stored.requested_scopes,
            missing_scopes: stored.missing_scopes,
            responded_from: stored.responded_from,
            tokens,
        })
    }

    pub(super) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let tokens =
            [Some(&self.tokens.access), self.tokens.refresh.as_ref(), self.registration.secret.as_ref()];
        tokens.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_survive_a_round_trip_and_debug_shows_no_secret() {
        let login = OAuthCredentials {
            issuer: "https://a.example".into(),
            token_endpoint: "https://a.example/token".into(),
            resource: "https://s.example/mcp".into(),
            registration: ClientRegistration {
                id: "c".into(),
                secret: Some(Secret::new("s3cret-1")),
                auth_method: ClientAuthMethod::Post,
            },
            requested_scopes: vec!["a".into()],
            missing_scopes: vec!["b".into()],
            responded_from: Some(NetworkScope::Private),
            tokens: OAuthTokens {
                access: Secret::new("s3cret-2"),
                refresh: Some(Secret::new("s3cret-3")),
                expires_at: Some(unix_now()),
            },
        };
        let again = OAuthCredentials::parse(&login.serialize().unwrap()).unwrap();
        assert_eq!(format!("{login:?}"), format!("{again:?}"));
        assert!(!format!("{login:?}").contains("s3cret"));
        let secrets = |login: &OAuthCredentials| login.secrets().cloned().collect::<Vec<_>>();
        assert_eq!(secrets(&login), secrets(&again));
        assert_eq!(secrets(&login).len(), 3);
        assert!(again.tokens.expires_soon());
        assert!(OAuthCredentials::parse(&Secret::new("{}")).is_none());
    }
}
