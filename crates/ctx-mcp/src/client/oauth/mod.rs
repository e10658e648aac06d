//! OAuth logins at upstream HTTP servers (the client side of MCP authorization).
//!
//! `challenge` parses `WWW-Authenticate`, `discover` finds the authorization server, `register` registers a
//! client there, `login` is the authorization code flow, `token` the token endpoint, `keep` the stored
//! credentials, `fetch` the HTTP requests. rmcp's OAuth client is not used: it does not keep the client
//! secret, so a registered client could not refresh tokens after a restart.

mod challenge;
mod discover;
mod fetch;
mod keep;
mod login;
mod register;
mod token;

pub use keep::CredentialStore;
pub use login::Login;

use challenge::Challenge;
use ctx_core::{Identifier, Redactor, Secret};
use fetch::Fetch;
use keep::Credentials;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use token::Refused;
use url::Url;

/// How long loaded credentials are used before the store is read again: another process may have logged in or
/// out meanwhile.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// The error code of a challenge for a token without the required scopes.
const INSUFFICIENT: &str = "insufficient_scope";

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
pub(super) enum Need {
    /// A first login, or a new one.
    Login,
    /// A new login that grants these scopes.
    Scopes(Vec<String>),
}

impl Need {
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
pub(super) enum Forbidden {
    /// Retry with this token: the login has changed meanwhile.
    Otherwise(Secret),
    /// The user must grant more scopes.
    Needs,
    /// Give up: the server asks for no scope, or only for scopes that were requested before.
    Final,
}

/// Deletes the login at a server; returns whether there was one.
pub fn forget_login(store: &dyn CredentialStore, server: &str) -> Result<bool, LoginError> {
    let server: Url = server.parse().map_err(|_| LoginError::new(format!("`{server}` is no address")))?;
    store.forget(&keep::key(&server)).map_err(LoginError)
}

/// Whether a login at a server is stored.
pub fn has_login(store: &dyn CredentialStore, server: &str) -> Result<bool, LoginError> {
    let server: Url = server.parse().map_err(|_| LoginError::new(format!("`{server}` is no address")))?;
    Ok(store.load(&keep::key(&server)).map_err(LoginError)?.is_some())
}

/// The OAuth credentials for one server: loads, refreshes and stores them.
pub(super) struct Authority {
    server: Url,
    key: String,
    settings: OAuthSettings,
    store: Arc<dyn CredentialStore>,
    redactor: Redactor,
    fetch: Fetch,
    state: Mutex<State>,
    /// Held while a token is refreshed. A task that has waited for it uses the refreshed token.
    renewing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    kept: Option<Arc<Credentials>>,
    read_at: Option<Instant>,
    challenge: Challenge,
    need: Option<Need>,
    /// The access token that the server refused last.
    refused: Option<Secret>,
}

impl Authority {
    pub(super) fn new(
        server: &str,
        settings: OAuthSettings,
        store: Arc<dyn CredentialStore>,
        redactor: Redactor,
    ) -> Result<Self, LoginError> {
        let server: Url = server.parse().map_err(|_| LoginError::new("its address is none"))?;
        let fetch = Fetch::new(&server);
        settings.client_secret.iter().for_each(|secret| redactor.learn(secret));
        let key = keep::key(&server);
        let (state, renewing) = Default::default();
        Ok(Self { server, key, settings, store, redactor, fetch, state, renewing })
    }

    /// Records the address that a response of the server came from; see [`Fetch::note_peer`].
    pub(super) fn note_peer(&self, peer: Option<std::net::SocketAddr>) {
        self.fetch.note_peer(peer);
    }

    fn with_state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Clears [`Self::need`] before a new attempt to connect: the user may have logged in meanwhile.
    pub(super) fn begin(&self) {
        self.with_state(|state| state.need = None);
    }

    /// The login that the server requires from the user, if any.
    pub(super) fn need(&self) -> Option<Need> {
        self.with_state(|state| state.need.clone())
    }

    /// Takes [`Self::need`]: the caller reports it, and nobody else does.
    pub(super) fn take_need(&self) -> Option<Need> {
        self.with_state(|state| state.need.take())
    }

    /// Whether a login is stored that the server has not refused.
    pub(super) async fn has_news(self: &Arc<Self>) -> bool {
        let kept = self.read().await.ok().flatten();
        let refused = self.with_state(|state| state.refused.clone());
        kept.is_some_and(|kept| Some(&kept.tokens.access) != refused.as_ref())
    }

    /// Runs `work` with the store on a thread that may block.
    async fn with_store<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, String> + Send + 'static,
    ) -> Result<T, LoginError> {
        let this = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&this)).await;
        done.unwrap_or_else(|error| Err(error.to_string())).map_err(LoginError)
    }

    /// Loads the stored credentials.
    async fn read(self: &Arc<Self>) -> Result<Option<Arc<Credentials>>, LoginError> {
        let kept = self.with_store(|this| this.store.load(&this.key)).await?;
        let kept = kept.as_ref().and_then(Credentials::read).map(Arc::new);
        self.take_up(kept.clone());
        Ok(kept)
    }

    fn take_up(&self, kept: Option<Arc<Credentials>>) {
        let known = |login: &Option<Arc<Credentials>>| -> Vec<Secret> {
            login.iter().flat_map(|login| login.secrets().cloned()).collect()
        };
        let after = known(&kept);
        after.iter().for_each(|secret| self.redactor.learn(secret));
        let before = self.with_state(|state| {
            state.read_at = Some(Instant::now());
            std::mem::replace(&mut state.kept, kept)
        });
        // The redactor masks a bounded number of secrets, and tokens are replaced every hour.
        let is_over = |secret: &&Secret| !after.contains(secret);
        known(&before).iter().filter(is_over).for_each(|secret| self.redactor.unlearn(secret));
    }

    /// Stores a login.
    async fn keep(self: &Arc<Self>, login: Credentials) -> Result<Arc<Credentials>, LoginError> {
        let (login, text) = (Arc::new(login.clone()), login.write()?);
        self.with_store(move |this| this.store.save(&this.key, &text)).await?;
        self.take_up(Some(login.clone()));
        Ok(login)
    }

    async fn current(self: &Arc<Self>) -> Result<Option<Arc<Credentials>>, LoginError> {
        let fresh = self.with_state(|state| {
            let is_fresh = state.read_at.is_some_and(|at| at.elapsed() < READ_AGAIN);
            state.kept.clone().filter(|_| is_fresh)
        });
        match fresh {
            Some(kept) => Ok(Some(kept)),
            None => self.read().await,
        }
    }

    /// The access token for a request, refreshed if it is about to expire; `None` without a login.
    pub(super) async fn token(self: &Arc<Self>) -> Result<Option<Secret>, LoginError> {
        let Some(kept) = self.current().await? else { return Ok(None) };
        if !kept.tokens.ends_soon() || kept.tokens.refresh.is_none() {
            return Ok(Some(kept.tokens.access.clone()));
        }
        let renewed = match self.renewed(&kept).await {
            Err(error) if kept.tokens.has_ended() => return Err(error),
            renewed => renewed.unwrap_or_default(),
        };
        Ok(Some(renewed.unwrap_or(kept).tokens.access.clone()))
    }

    /// The access token to retry with after a 401 response; `None` if the user must log in.
    pub(super) async fn after_refusal(
        self: &Arc<Self>,
        used: Option<&Secret>,
        header: &str,
    ) -> Result<Option<Secret>, LoginError> {
        let another = match self.read().await? {
            // Another process has refreshed it, or the user has just logged in.
            Some(kept) if Some(&kept.tokens.access) != used => Some(kept),
            Some(kept) if kept.tokens.refresh.is_some() => self.renewed(&kept).await?,
            _ => None,
        };
        if another.is_none() {
            self.let_nobody_in(used, header);
        }
        Ok(another.map(|kept| kept.tokens.access.clone()))
    }

    /// Records that the user must log in, with the challenge of the response.
    pub(super) fn let_nobody_in(&self, used: Option<&Secret>, header: &str) {
        let challenge = Challenge::parse(header);
        self.with_state(|state| {
            state.challenge = challenge;
            state.need = Some(Need::Login);
            state.refused = used.cloned();
        });
    }

    /// Handles a 403 response; records the scopes that its challenge asks for.
    pub(super) async fn after_forbidden(
        self: &Arc<Self>,
        used: Option<&Secret>,
        header: &str,
    ) -> Result<Forbidden, LoginError> {
        let challenge = Challenge::parse(header);
        if challenge.error.as_deref() != Some(INSUFFICIENT) {
            return Ok(Forbidden::Final);
        }
        let Some(kept) = self.read().await? else { return Ok(Forbidden::Final) };
        if Some(&kept.tokens.access) != used {
            return Ok(Forbidden::Otherwise(kept.tokens.access.clone()));
        }
        let is_missing = |scope: &&String| !kept.requested.contains(scope);
        let missing: Vec<String> = challenge.scopes.iter().filter(is_missing).cloned().collect();
        if missing.is_empty() {
            return Ok(Forbidden::Final);
        }
        if missing.iter().any(|scope| !kept.wanted.contains(scope)) {
            let wanted = missing.clone();
            self.with_store(move |this| {
                let _lock = this.store.lock(&this.key)?;
                let now = this.store.load(&this.key)?.as_ref().and_then(Credentials::read);
                let Some(mut now) = now else { return Ok(()) };
                union(&mut now.wanted, &wanted);
                this.store.save(&this.key, &now.write().map_err(|error| error.to_string())?)
            })
            .await?;
        }
        self.with_state(|state| {
            state.need = Some(Need::Scopes(missing));
            state.refused = used.cloned();
        });
        Ok(Forbidden::Needs)
    }

    /// Refreshes an expired token; `None` if that is not possible. Concurrent callers share one refresh. It
    /// runs in a task of its own and completes even if no caller waits any more: its response may hold the
    /// only valid refresh token (refresh token rotation).
    async fn renewed(
        self: &Arc<Self>,
        ended: &Arc<Credentials>,
    ) -> Result<Option<Arc<Credentials>>, LoginError> {
        let (this, ended) = (self.clone(), ended.clone());
        let renewing = tokio::spawn(async move { this.renew(&ended).await });
        renewing.await.unwrap_or_else(|error| Err(LoginError(error.to_string())))
    }

    async fn renew(self: &Arc<Self>, ended: &Credentials) -> Result<Option<Arc<Credentials>>, LoginError> {
        let _turn = self.renewing.lock().await;
        let _lock = self.with_store(|this| this.store.lock(&this.key)).await?;
        let Some(kept) = self.read().await? else { return Ok(None) };
        if kept.tokens.access != ended.tokens.access {
            return Ok(Some(kept));
        }
        let Some(refresh) = &kept.tokens.refresh else { return Ok(None) };
        let endpoint = self.fetch.address(&kept.token_endpoint)?;
        kept.responded_from.into_iter().for_each(|scope| self.fetch.note_scope(scope));
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.expose()),
            ("resource", &kept.resource),
        ];
        let mut login = (*kept).clone();
        match token::ask(&endpoint, &kept.client, &fields, &self.fetch).await {
            Ok(granted) => {
                login.tokens = granted.tokens;
                // Without a new refresh token in the response, the old one stays valid.
                login.tokens.refresh = login.tokens.refresh.or_else(|| kept.tokens.refresh.clone());
                tracing::debug!(server = self.key, "a login was renewed");
                Ok(Some(self.keep(login).await?))
            }
            Err(Refused::Failed(error)) => Err(error),
            Err(Refused::Rejected(error)) => {
                tracing::info!(server = self.key, "a login cannot be renewed: {error}");
                login.tokens.refresh = None;
                self.keep(login).await?;
                Ok(None)
            }
        }
    }
}

fn union(all: &mut Vec<String>, more: &[String]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}
