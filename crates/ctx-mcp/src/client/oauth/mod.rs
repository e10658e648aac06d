//! OAuth logins at upstream HTTP servers (the client side of MCP authorization).
//!
//! `challenge` parses `WWW-Authenticate`, `discovery` finds the authorization server, `registration` registers a
//! client there, `login` is the authorization code flow, `token` the token endpoint, `credentials` the stored
//! credentials, `fetch` the HTTP requests. rmcp's OAuth client is not used: it does not keep the client
//! secret, so a registered client could not refresh tokens after a restart.

mod challenge;
mod credentials;
mod discovery;
mod fetch;
mod login;
mod registration;
mod token;

pub use credentials::CredentialStore;
pub use login::Login;

use challenge::Challenge;
use credentials::OAuthCredentials;
use ctx_core::{Identifier, Redactor, Secret};
use fetch::OAuthHttpClient;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use token::TokenError;
use url::Url;

/// How long loaded credentials are used before the store is read again: another process may have logged in or
/// out meanwhile.
const CREDENTIALS_CACHE_TTL: Duration = Duration::from_secs(2);
/// The error code of a challenge for a token without the required scopes.
const INSUFFICIENT_SCOPE: &str = "insufficient_scope";

/// The configured OAuth client of a server; everything else is discovered.
#[derive(Clone, Debug, Default)]
pub struct OAuthSettings {
    /// The ID of a client that was registered by hand.
    pub client_id: Option<String>,
    /// The secret of that client, if it has one.
    pub client_secret: Option<Secret>,
    /// The URL of our client ID metadata document, for authorization servers that support such documents.
    pub client_metadata_url: Option<String>,
    /// The scopes to request; if empty, those that the server asks for.
    pub scopes: Vec<String>,
}

/// Why a login failed, or cannot be renewed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(String);

impl LoginError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// The login that a server requires from the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LoginRequirement {
    /// A first login, or a new one.
    Login,
    /// A new login that grants these scopes.
    Scopes(Vec<String>),
}

impl LoginRequirement {
    /// Why the server of this name cannot be used yet.
    pub(super) fn reason(&self, name: &Identifier) -> String {
        match self {
            Self::Login => format!("{name} needs you to log in"),
            Self::Scopes(scopes) => {
                format!("{name} needs you to log in again and to grant `{}`", scopes.join(" "))
            }
        }
    }

    /// The command that fixes it.
    pub(super) fn remedy(&self, name: &Identifier) -> String {
        format!("run `ctx upstream login {name}`")
    }

    /// Reason and remedy in one line.
    pub(super) fn describe(&self, name: &Identifier) -> String {
        format!("{}: {}", self.reason(name), self.remedy(name))
    }
}

/// How to proceed after a 403 response.
pub(super) enum ForbiddenAction {
    /// Retry with this token: the login has changed meanwhile.
    RetryWith(Secret),
    /// The user must grant more scopes.
    ScopesNeeded,
    /// Give up: the server asks for no scope, or only for scopes that were requested before.
    GiveUp,
}

/// Deletes the login at a server; returns whether there was one.
pub fn forget_login(store: &dyn CredentialStore, server: &str) -> Result<bool, LoginError> {
    let server: Url =
        server.parse().map_err(|_| LoginError::new(format!("`{server}` is not a valid URL")))?;
    store.forget(&credentials::store_key(&server)).map_err(LoginError)
}

/// Whether a login at a server is stored.
pub fn has_login(store: &dyn CredentialStore, server: &str) -> Result<bool, LoginError> {
    let server: Url =
        server.parse().map_err(|_| LoginError::new(format!("`{server}` is not a valid URL")))?;
    Ok(store.load(&credentials::store_key(&server)).map_err(LoginError)?.is_some())
}

/// The OAuth client of one server: loads, refreshes and stores the credentials.
pub(super) struct OAuthClient {
    server: Url,
    key: String,
    settings: OAuthSettings,
    store: Arc<dyn CredentialStore>,
    redactor: Redactor,
    http_client: OAuthHttpClient,
    state: Mutex<OAuthState>,
    /// Held while a token is refreshed. A task that has waited for it uses the refreshed token.
    refresh_lock: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct OAuthState {
    credentials: Option<Arc<OAuthCredentials>>,
    loaded_at: Option<Instant>,
    challenge: Challenge,
    login_requirement: Option<LoginRequirement>,
    /// The access token that the server refused last.
    refused_token: Option<Secret>,
}

impl OAuthClient {
    pub(super) fn new(
        server: &str,
        settings: OAuthSettings,
        store: Arc<dyn CredentialStore>,
        redactor: Redactor,
    ) -> Result<Self, LoginError> {
        let server: Url = server.parse().map_err(|_| LoginError::new("its URL is invalid"))?;
        let http_client = OAuthHttpClient::new(&server);
        settings.client_secret.iter().for_each(|secret| redactor.learn(secret));
        let key = credentials::store_key(&server);
        let (state, refresh_lock) = Default::default();
        Ok(Self { server, key, settings, store, redactor, http_client, state, refresh_lock })
    }

    /// Records the address that a response of the server came from; see [`OAuthHttpClient::record_peer`].
    pub(super) fn record_peer(&self, peer: Option<std::net::SocketAddr>) {
        self.http_client.record_peer(peer);
    }

    fn with_state<T>(&self, operation: impl FnOnce(&mut OAuthState) -> T) -> T {
        operation(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Clears [`Self::login_requirement`] before a new attempt to connect: the user may have logged in meanwhile.
    pub(super) fn clear_login_requirement(&self) {
        self.with_state(|state| state.login_requirement = None);
    }

    /// The login that the server requires from the user, if any.
    pub(super) fn login_requirement(&self) -> Option<LoginRequirement> {
        self.with_state(|state| state.login_requirement.clone())
    }

    /// Takes [`Self::login_requirement`]: the caller reports it, and nobody else does.
    pub(super) fn take_login_requirement(&self) -> Option<LoginRequirement> {
        self.with_state(|state| state.login_requirement.take())
    }

    /// Whether a login is stored that the server has not refused.
    pub(super) async fn has_usable_login(self: &Arc<Self>) -> bool {
        let credentials = self.load().await.ok().flatten();
        let refused_token = self.with_state(|state| state.refused_token.clone());
        credentials.is_some_and(|credentials| Some(&credentials.tokens.access) != refused_token.as_ref())
    }

    /// Runs `operation` with the store on a thread that may block.
    async fn with_store<T: Send + 'static>(
        self: &Arc<Self>,
        operation: impl FnOnce(&Self) -> Result<T, String> + Send + 'static,
    ) -> Result<T, LoginError> {
        let this = self.clone();
        let result = tokio::task::spawn_blocking(move || operation(&this)).await;
        result.unwrap_or_else(|error| Err(error.to_string())).map_err(LoginError)
    }

    /// Loads the stored credentials.
    async fn load(self: &Arc<Self>) -> Result<Option<Arc<OAuthCredentials>>, LoginError> {
        let credentials = self.with_store(|this| this.store.load(&this.key)).await?;
        let credentials = credentials.as_ref().and_then(OAuthCredentials::parse).map(Arc::new);
        self.replace_credentials(credentials.clone());
        Ok(credentials)
    }

    fn replace_credentials(&self, credentials: Option<Arc<OAuthCredentials>>) {
        let secrets_of = |login: &Option<Arc<OAuthCredentials>>| -> Vec<Secret> {
            login.iter().flat_map(|login| login.secrets().cloned()).collect()
        };
        let new_secrets = secrets_of(&credentials);
        new_secrets.iter().for_each(|secret| self.redactor.learn(secret));
        let previous = self.with_state(|state| {
            state.loaded_at = Some(Instant::now());
            std::mem::replace(&mut state.credentials, credentials)
        });
        // The redactor masks a bounded number of secrets, and tokens are replaced every hour.
        let is_replaced = |secret: &&Secret| !new_secrets.contains(secret);
        secrets_of(&previous).iter().filter(is_replaced).for_each(|secret| self.redactor.unlearn(secret));
    }

    /// Stores a login.
    async fn save(self: &Arc<Self>, login: OAuthCredentials) -> Result<Arc<OAuthCredentials>, LoginError> {
        let (login, text) = (Arc::new(login.clone()), login.serialize()?);
        self.with_store(move |this| this.store.save(&this.key, &text)).await?;
        self.replace_credentials(Some(login.clone()));
        Ok(login)
    }

    async fn current_credentials(self: &Arc<Self>) -> Result<Option<Arc<OAuthCredentials>>, LoginError> {
        let fresh = self.with_state(|state| {
            let is_fresh = state.loaded_at.is_some_and(|at| at.elapsed() < CREDENTIALS_CACHE_TTL);
            state.credentials.clone().filter(|_| is_fresh)
        });
        match fresh {
            Some(credentials) => Ok(Some(credentials)),
            None => self.load().await,
        }
    }

    /// The access token for a request, refreshed if it is about to expire; `None` without a login.
    pub(super) async fn access_token(self: &Arc<Self>) -> Result<Option<Secret>, LoginError> {
        let Some(credentials) = self.current_credentials().await? else { return Ok(None) };
        if !credentials.tokens.expires_soon() || credentials.tokens.refresh.is_none() {
            return Ok(Some(credentials.tokens.access.clone()));
        }
        let refreshed = match self.refresh_in_background(&credentials).await {
            Err(error) if credentials.tokens.has_expired() => return Err(error),
            refreshed => refreshed.unwrap_or_default(),
        };
        Ok(Some(refreshed.unwrap_or(credentials).tokens.access.clone()))
    }

    /// The access token to retry with after a 401 response; `None` if the user must log in.
    pub(super) async fn token_after_unauthorized(
        self: &Arc<Self>,
        used_token: Option<&Secret>,
        header: &str,
    ) -> Result<Option<Secret>, LoginError> {
        let newer = match self.load().await? {
            // Another process has refreshed it, or the user has just logged in.
            Some(credentials) if Some(&credentials.tokens.access) != used_token => Some(credentials),
            Some(credentials) if credentials.tokens.refresh.is_some() => {
                self.refresh_in_background(&credentials).await?
            }
            _ => None,
        };
        if newer.is_none() {
            self.require_login(used_token, header);
        }
        Ok(newer.map(|credentials| credentials.tokens.access.clone()))
    }

    /// Records that the user must log in, with the challenge of the response.
    pub(super) fn require_login(&self, used_token: Option<&Secret>, header: &str) {
        let challenge = Challenge::parse(header);
        self.with_state(|state| {
            state.challenge = challenge;
            state.login_requirement = Some(LoginRequirement::Login);
            state.refused_token = used_token.cloned();
        });
    }

    /// Handles a 403 response; records the scopes that its challenge asks for.
    pub(super) async fn handle_forbidden(
        self: &Arc<Self>,
        used_token: Option<&Secret>,
        header: &str,
    ) -> Result<ForbiddenAction, LoginError> {
        let challenge = Challenge::parse(header);
        if challenge.error.as_deref() != Some(INSUFFICIENT_SCOPE) {
            return Ok(ForbiddenAction::GiveUp);
        }
        let Some(credentials) = self.load().await? else { return Ok(ForbiddenAction::GiveUp) };
        if Some(&credentials.tokens.access) != used_token {
            return Ok(ForbiddenAction::RetryWith(credentials.tokens.access.clone()));
        }
        let is_missing = |scope: &&String| !credentials.requested_scopes.contains(scope);
        let missing: Vec<String> = challenge.scopes.iter().filter(is_missing).cloned().collect();
        if missing.is_empty() {
            return Ok(ForbiddenAction::GiveUp);
        }
        if missing.iter().any(|scope| !credentials.missing_scopes.contains(scope)) {
            let missing_scopes = missing.clone();
            self.with_store(move |this| {
                let _lock = this.store.lock(&this.key)?;
                let stored = this.store.load(&this.key)?.as_ref().and_then(OAuthCredentials::parse);
                let Some(mut stored) = stored else { return Ok(()) };
                merge_scopes(&mut stored.missing_scopes, &missing_scopes);
                this.store.save(&this.key, &stored.serialize().map_err(|error| error.to_string())?)
            })
            .await?;
        }
        self.with_state(|state| {
            state.login_requirement = Some(LoginRequirement::Scopes(missing));
            state.refused_token = used_token.cloned();
        });
        Ok(ForbiddenAction::ScopesNeeded)
    }

    /// Refreshes an expired token; `None` if that is not possible. Concurrent callers share one refresh. It
    /// runs in a task of its own and completes even if no caller waits any more: its response may hold the
    /// only valid refresh token (refresh token rotation).
    async fn refresh_in_background(
        self: &Arc<Self>,
        expired: &Arc<OAuthCredentials>,
    ) -> Result<Option<Arc<OAuthCredentials>>, LoginError> {
        let (this, expired) = (self.clone(), expired.clone());
        let refreshing = tokio::spawn(async move { this.refresh(&expired).await });
        refreshing.await.unwrap_or_else(|error| Err(LoginError(error.to_string())))
    }

    async fn refresh(
        self: &Arc<Self>,
        expired: &OAuthCredentials,
    ) -> Result<Option<Arc<OAuthCredentials>>, LoginError> {
        let _turn = self.refresh_lock.lock().await;
        let _lock = self.with_store(|this| this.store.lock(&this.key)).await?;
        let Some(credentials) = self.load().await? else { return Ok(None) };
        if credentials.tokens.access != expired.tokens.access {
            return Ok(Some(credentials));
        }
        let Some(refresh) = &credentials.tokens.refresh else { return Ok(None) };
        let endpoint = self.http_client.parse_url(&credentials.token_endpoint)?;
        credentials.responded_from.into_iter().for_each(|scope| self.http_client.record_scope(scope));
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose()),
            ("resource", &credentials.resource),
        ];
        let mut login = (*credentials).clone();
        match token::request_token(&endpoint, &credentials.registration, &fields, &self.http_client).await {
            Ok(grant) => {
                login.tokens = grant.tokens;
                // Without a new refresh token in the response, the old one stays valid.
                login.tokens.refresh = login.tokens.refresh.or_else(|| credentials.tokens.refresh.clone());
                tracing::debug!(server = self.key, "refreshed an access token");
                Ok(Some(self.save(login).await?))
            }
            Err(TokenError::Failed(error)) => Err(error),
            Err(TokenError::Rejected(error)) => {
                tracing::info!(server = self.key, "cannot refresh an access token: {error}");
                login.tokens.refresh = None;
                self.save(login).await?;
                Ok(None)
            }
        }
    }
}

fn merge_scopes(scopes: &mut Vec<String>, more: &[String]) {
    for scope in more {
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
}
