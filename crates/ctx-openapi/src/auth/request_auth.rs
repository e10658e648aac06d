//! Adds credentials to a request: headers, query parameters and cookies.

use super::{SchemeCredential, TokenCache, TokenRequest};
use crate::client::HttpClient;
use crate::operation::ParameterLocation;
use crate::request::{ApiBase, encode_component};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ctx_core::{ErrorKind, Redactor, Secret, ToolError};
use ctx_net::Request;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// Credentials in the form in which a request carries them.
#[derive(Debug, Default)]
pub(crate) struct RequestAuth {
    headers: Vec<(HeaderName, HeaderValue)>,
    query: Vec<(String, Secret)>,
    cookies: Vec<(String, Secret)>,
    secrets: Vec<Secret>,
    /// An access token from a token endpoint, with its request. The server may have revoked it.
    token: Option<(TokenRequest, Secret)>,
}

/// Outcome of [`RequestAuth::renew`].
pub(crate) enum Renewal {
    /// The credentials with a new access token.
    Renewed(RequestAuth),
    /// The credentials unchanged: they do not include a token from a token endpoint.
    NotPossible(RequestAuth),
}

impl RequestAuth {
    /// Converts credentials; requests access tokens where they are needed.
    pub(crate) async fn new(
        credentials: Vec<SchemeCredential>,
        tokens: &TokenCache,
        http_client: &HttpClient,
        base: &ApiBase,
    ) -> Result<Self, ToolError> {
        let (mut auth, token_requests) = Self::static_credentials(credentials)?;
        for token_request in token_requests {
            let token = tokens.get(&token_request, None, http_client, base).await?;
            auth.add_bearer(&token)?;
            auth.token = Some((token_request, token));
        }
        Ok(auth)
    }

    /// Converts credentials without I/O. Also returns the access tokens that have yet to be requested.
    pub(crate) fn static_credentials(
        credentials: Vec<SchemeCredential>,
    ) -> Result<(Self, Vec<TokenRequest>), ToolError> {
        let mut auth = Self::default();
        let mut token_requests = Vec::new();
        for credential in credentials {
            match credential {
                SchemeCredential::Bearer(token) => auth.add_bearer(&token)?,
                SchemeCredential::Basic { user, password } => {
                    let both = BASE64_STANDARD.encode(format!("{user}:{}", password.expose()));
                    auth.add_header(AUTHORIZATION, &format!("Basic {both}"))?;
                    // A user name without a password is an API key.
                    let secret = if password.expose().is_empty() { Secret::new(user) } else { password };
                    auth.secrets.extend([Secret::new(both), secret]);
                }
                SchemeCredential::Key { location, name, value } => auth.add_key(location, name, value)?,
                SchemeCredential::Token(token_request) => token_requests.push(token_request),
            }
        }
        Ok((auth, token_requests))
    }

    /// Requests a new access token after the API has refused the current one.
    pub(crate) async fn renew(
        self,
        tokens: &TokenCache,
        http_client: &HttpClient,
        base: &ApiBase,
    ) -> Result<Renewal, ToolError> {
        let Some((token_request, refused)) = self.token else { return Ok(Renewal::NotPossible(self)) };
        let token = tokens.get(&token_request, Some(&refused), http_client, base).await?;
        let mut auth = Self { headers: Vec::new(), token: None, ..self };
        // Keys in other headers than `Authorization` stay.
        for (name, value) in self.headers {
            if name != AUTHORIZATION {
                auth.headers.push((name, value));
            }
        }
        auth.add_bearer(&token)?;
        Ok(Renewal::Renewed(Self { token: Some((token_request, token)), ..auth }))
    }

    fn add_bearer(&mut self, token: &Secret) -> Result<(), ToolError> {
        self.secrets.push(token.clone());
        self.add_header(AUTHORIZATION, &format!("Bearer {}", token.expose()))
    }

    fn add_key(&mut self, location: ParameterLocation, name: String, value: Secret) -> Result<(), ToolError> {
        self.secrets.push(value.clone());
        match location {
            ParameterLocation::Query => self.query.push((name, value)),
            ParameterLocation::Cookie => self.cookies.push((name, value)),
            ParameterLocation::Header | ParameterLocation::Path => {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unsendable_credential())?;
                self.add_header(name, value.expose())?;
            }
        }
        Ok(())
    }

    fn add_header(&mut self, name: HeaderName, value: &str) -> Result<(), ToolError> {
        let mut value = HeaderValue::from_str(value).map_err(|_| unsendable_credential())?;
        value.set_sensitive(true);
        self.headers.push((name, value));
        Ok(())
    }

    /// Adds the credentials to a request, replacing headers, parameters and cookies of the same name.
    pub(crate) fn apply(&self, request: &mut Request) -> Result<(), ToolError> {
        for (name, value) in &self.headers {
            request.headers.insert(name, value.clone());
        }
        for (name, value) in &self.query {
            let mut pairs = other_pairs(request.url.query().unwrap_or_default(), "&", name);
            pairs.push(format!("{}={}", encode_component(name), encode_component(value.expose())));
            request.url.set_query(Some(&pairs.join("&")));
        }
        for (name, value) in &self.cookies {
            let before = request.headers.get(COOKIE).and_then(|cookies| cookies.to_str().ok());
            let mut pairs = other_pairs(before.unwrap_or_default(), "; ", name);
            pairs.push(format!("{name}={}", value.expose()));
            let cookies = HeaderValue::from_str(&pairs.join("; "));
            let mut cookies =
                cookies.ok().filter(|_| !value.expose().contains(';')).ok_or_else(unsendable_credential)?;
            cookies.set_sensitive(true);
            request.headers.insert(COOKIE, cookies);
        }
        Ok(())
    }

    /// A redactor that masks these credentials and `others`, plain and percent-encoded.
    pub(crate) fn redactor(&self, others: &[Secret]) -> Redactor {
        let secrets = self.secrets.iter().chain(others);
        Redactor::new(
            secrets.flat_map(|secret| [secret.clone(), Secret::new(encode_component(secret.expose()))]),
        )
    }
}

/// The pairs whose decoded name differs from `name`.
fn other_pairs(pairs: &str, delimiter: &str, name: &str) -> Vec<String> {
    let is_other = |pair: &&str| {
        let name_in_pair = pair.split('=').next().unwrap_or_default().replace('+', " ");
        !pair.is_empty() && percent_decode_str(name_in_pair.trim()).decode_utf8_lossy() != name
    };
    pairs.split(delimiter).filter(is_other).map(str::to_owned).collect()
}

fn unsendable_credential() -> ToolError {
    ToolError::new(ErrorKind::NotConfigured, "a credential has characters that are not valid in a header")
}
