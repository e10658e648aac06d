//! The issuer on the network: where its keys are, and fetching them. Every answer is bounded, and what
//! is not from where the settings say is not taken.

use super::keys::KeySet;
use super::{OAuthLimits, is_trusted};
use ctx_core::chain;
use reqwest::{Client, StatusCode, Url, redirect};
use serde::Deserialize;
use std::sync::OnceLock;

/// How metadata is named: OAuth's own name (RFC 8414), then OpenID Connect's.
const METADATA_NAMES: [&str; 2] = ["oauth-authorization-server", "openid-configuration"];

/// Who signs tokens.
#[derive(Debug)]
pub(super) struct Issuer {
    /// Exactly as it names itself.
    name: String,
    url: Url,
    jwks_url: Option<Url>,
    limits: OAuthLimits,
    /// For this machine, where no certificates are needed, and for elsewhere.
    clients: [OnceLock<Client>; 2],
}

#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: Option<String>,
}

impl Issuer {
    pub(super) fn new(name: &str, url: Url, jwks_url: Option<Url>, limits: OAuthLimits) -> Self {
        Self { name: name.to_owned(), url, jwks_url, limits, clients: Default::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The keys as they are published now.
    pub(super) async fn fetch(&self) -> Result<KeySet, String> {
        let fetched = tokio::time::timeout(self.limits.fetch_timeout, async {
            let url = match &self.jwks_url {
                Some(url) => url.clone(),
                None => self.discover().await?,
            };
            let keys = self.get(&url).await?.ok_or_else(|| format!("{url}: there is nothing"))?;
            KeySet::parse(&keys).map_err(|problem| format!("{url}: {problem}"))
        });
        let late = |_| format!("no answer within {} s", self.limits.fetch_timeout.as_secs_f64());
        fetched.await.map_err(late)?
    }

    /// Where its metadata says that the keys are.
    async fn discover(&self) -> Result<Url, String> {
        for url in self.metadata_urls() {
            let Some(answer) = self.get(&url).await? else { continue };
            let metadata: Metadata = serde_json::from_slice(&answer)
                .map_err(|error| format!("{url}: this is no metadata: {error}"))?;
            if metadata.issuer != self.name {
                // Whoever can have us read their metadata must not get to name the keys.
                return Err(format!("{url}: this is the metadata of the issuer `{}`", metadata.issuer));
            }
            let jwks_url = metadata.jwks_uri.and_then(|text| Url::parse(&text).ok()).filter(is_trusted);
            return jwks_url.ok_or_else(|| format!("{url}: there is no `jwks_uri` that is secure"));
        }
        Err("there is no metadata; set `server.oauth.jwks_url`".to_owned())
    }

    /// Where metadata may be: its name before the issuer's path, or as OpenID Connect has it behind.
    fn metadata_urls(&self) -> Vec<Url> {
        let path = self.url.path().trim_end_matches('/');
        let before = METADATA_NAMES.map(|name| format!("/.well-known/{name}{path}"));
        let behind = (!path.is_empty()).then(|| format!("{path}/.well-known/{}", METADATA_NAMES[1]));
        let at = |path: String| {
            let mut url = self.url.clone();
            url.set_path(&path);
            url
        };
        before.into_iter().chain(behind).map(at).collect()
    }

    /// What is there; `None` when nothing is.
    async fn get(&self, url: &Url) -> Result<Option<Vec<u8>>, String> {
        let failed = |error: reqwest::Error| format!("{url}: {}", chain(&error.without_url()));
        let request = self.client(url)?.get(url.clone()).header("accept", "application/json");
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status();
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(None);
        }
        if status != StatusCode::OK {
            return Err(format!("{url}: the answer is {status}"));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            if body.len() + piece.len() > self.limits.answer_bytes {
                return Err(format!("{url}: the answer is larger than {} bytes", self.limits.answer_bytes));
            }
            body.extend_from_slice(&piece);
        }
        Ok(Some(body))
    }

    fn client(&self, url: &Url) -> Result<&Client, String> {
        let is_secure = url.scheme() == "https";
        let made = &self.clients[usize::from(is_secure)];
        if let Some(client) = made.get() {
            return Ok(client);
        }
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            // Somebody else was first, and theirs is as good.
        }
        let mut builder = Client::builder()
            .user_agent(concat!("ctx/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.limits.fetch_timeout)
            // Keys come from where the settings say, and from nowhere else.
            .redirect(redirect::Policy::none())
            .no_proxy();
        if !is_secure {
            // Reading the system's certificates takes time, and fails where there are none.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|error| chain(&error))?;
        Ok(made.get_or_init(|| client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_looked_for_in_every_usual_place() {
        let places = |issuer: &str| {
            let issuer = Issuer::new(issuer, Url::parse(issuer).unwrap(), None, OAuthLimits::default());
            issuer.metadata_urls().into_iter().map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(
            places("https://login.example/"),
            [
                "https://login.example/.well-known/oauth-authorization-server",
                "https://login.example/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            places("https://login.example/realms/team"),
            [
                "https://login.example/.well-known/oauth-authorization-server/realms/team",
                "https://login.example/.well-known/openid-configuration/realms/team",
                "https://login.example/realms/team/.well-known/openid-configuration",
            ]
        );
    }
}
