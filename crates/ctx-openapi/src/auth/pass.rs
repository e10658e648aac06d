//! Adds credentials to a request: headers, query parameters and cookies.

use super::{Grant, Tokens, Wanted};
use crate::client::Web;
use crate::operation::Place;
use crate::request::{ApiBase, component};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ctx_core::{ErrorKind, Redactor, Secret, ToolError};
use ctx_net::Request;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// Credentials in the form in which a request carries them.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    headers: Vec<(HeaderName, HeaderValue)>,
    query: Vec<(String, Secret)>,
    cookies: Vec<(String, Secret)>,
    secrets: Vec<Secret>,
    /// An access token from a token endpoint, with its grant. The server may have revoked it.
    token: Option<(Wanted, Secret)>,
}

impl Pass {
    /// Converts grants; requests access tokens where they are needed.
    pub(crate) async fn new(
        grants: Vec<Grant>,
        tokens: &Tokens,
        web: &Web,
        base: &ApiBase,
    ) -> Result<Self, ToolError> {
        let (mut pass, wanted) = Self::at_hand(grants)?;
        for wanted in wanted {
            let token = tokens.get(&wanted, None, web, base).await?;
            pass.add_bearer(&token)?;
            pass.token = Some((wanted, token));
        }
        Ok(pass)
    }

    /// Converts grants without I/O. Also returns the access tokens that have yet to be requested.
    pub(crate) fn at_hand(grants: Vec<Grant>) -> Result<(Self, Vec<Wanted>), ToolError> {
        let mut pass = Self::default();
        let mut missing = Vec::new();
        for grant in grants {
            match grant {
                Grant::Bearer(token) => pass.add_bearer(&token)?,
                Grant::Basic { user, password } => {
                    let both = BASE64_STANDARD.encode(format!("{user}:{}", password.expose()));
                    pass.add_header(AUTHORIZATION, &format!("Basic {both}"))?;
                    // A user name without a password is an API key.
                    let secret = if password.expose().is_empty() { Secret::new(user) } else { password };
                    pass.secrets.extend([Secret::new(both), secret]);
                }
                Grant::Key { place, name, value } => pass.add_key(place, name, value)?,
                Grant::Token(wanted) => missing.push(wanted),
            }
        }
        Ok((pass, missing))
    }

    /// Requests a new access token after the API has refused the current one. `Ok(Err(self))` if there is none:
    /// the credentials do not include a token from a token endpoint.
    pub(crate) async fn renewed(
        self,
        tokens: &Tokens,
        web: &Web,
        base: &ApiBase,
    ) -> Result<Result<Self, Self>, ToolError> {
        let Some((wanted, refused)) = self.token else { return Ok(Err(self)) };
        let token = tokens.get(&wanted, Some(&refused), web, base).await?;
        let mut pass = Self { headers: Vec::new(), token: None, ..self };
        // Keys in other headers than `Authorization` stay.
        for (name, value) in self.headers {
            if name != AUTHORIZATION {
                pass.headers.push((name, value));
            }
        }
        pass.add_bearer(&token)?;
        Ok(Ok(Self { token: Some((wanted, token)), ..pass }))
    }

    fn add_bearer(&mut self, token: &Secret) -> Result<(), ToolError> {
        self.secrets.push(token.clone());
        self.add_header(AUTHORIZATION, &format!("Bearer {}", token.expose()))
    }

    fn add_key(&mut self, place: Place, name: String, value: Secret) -> Result<(), ToolError> {
        self.secrets.push(value.clone());
        match place {
            Place::Query => self.query.push((name, value)),
            Place::Cookie => self.cookies.push((name, value)),
            Place::Header | Place::Path => {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unsendable())?;
                self.add_header(name, value.expose())?;
            }
        }
        Ok(())
    }

    fn add_header(&mut self, name: HeaderName, value: &str) -> Result<(), ToolError> {
        let mut value = HeaderValue::from_str(value).map_err(|_| unsendable())?;
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
            let mut pairs = others(request.url.query().unwrap_or_default(), "&", name);
            pairs.push(format!("{}={}", component(name), component(value.expose())));
            request.url.set_query(Some(&pairs.join("&")));
        }
        for (name, value) in &self.cookies {
            let before = request.headers.get(COOKIE).and_then(|cookies| cookies.to_str().ok());
            let mut pairs = others(before.unwrap_or_default(), "; ", name);
            pairs.push(format!("{name}={}", value.expose()));
            let cookies = HeaderValue::from_str(&pairs.join("; "));
            let mut cookies =
                cookies.ok().filter(|_| !value.expose().contains(';')).ok_or_else(unsendable)?;
            cookies.set_sensitive(true);
            request.headers.insert(COOKIE, cookies);
        }
        Ok(())
    }

    /// A redactor that masks these credentials and `others`, plain and percent-encoded.
    pub(crate) fn redactor(&self, others: &[Secret]) -> Redactor {
        let secrets = self.secrets.iter().chain(others);
        Redactor::new(secrets.flat_map(|secret| [secret.clone(), Secret::new(component(secret.expose()))]))
    }
}

/// The pairs whose decoded name differs from `name`.
fn others(pairs: &str, delimiter: &str, name: &str) -> Vec<String> {
    let is_other = |pair: &&str| {
        let written = pair.split('=').next().unwrap_or_default().replace('+', " ");
        !pair.is_empty() && percent_decode_str(written.trim()).decode_utf8_lossy() != name
    };
    pairs.split(delimiter).filter(is_other).map(str::to_owned).collect()
}

fn unsendable() -> ToolError {
    ToolError::new(ErrorKind::NotConfigured, "a credential has characters in it that cannot be sent")
}
