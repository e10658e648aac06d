//! OAuth client registration: the client ID and the client authentication method at an authorization server.

use super::discover::Discovered;
use super::fetch::Fetch;
use super::token::refusal;
use super::{LoginError, OAuthSettings};
use ctx_core::{Redactor, Secret};
use ctx_net::display_url;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The client name on the consent page of an authorization server.
const NAME: &str = "ctx (Context Harness)";

/// Our client at an authorization server.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
    pub(super) method: Method,
}

/// Client authentication at the token endpoint (`token_endpoint_auth_method`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Method {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
}

impl Method {
    const ALL: [(&str, Self); 3] =
        [("none", Self::None), ("client_secret_basic", Self::Basic), ("client_secret_post", Self::Post)];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, method)| *method)
    }

    /// The method for a client with or without a secret, of those that the server offers. A server that names
    /// none offers `client_secret_basic`, the default of RFC 8414.
    fn choose(has_secret: bool, offered: Option<&[String]>) -> Self {
        let offers = |name: &str| offered.is_none_or(|offered| offered.iter().any(|known| known == name));
        match has_secret {
            false => Self::None,
            true if offers("client_secret_basic") => Self::Basic,
            true if offers("client_secret_post") => Self::Post,
            // The server issues a secret, but does not want it sent.
            true if offers("none") => Self::None,
            true => Self::Basic,
        }
    }
}

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

/// The configured client, else our client ID metadata document, else a client from dynamic registration (RFC
/// 7591).
pub(super) async fn client(
    settings: &OAuthSettings,
    server: &Discovered,
    redirect: &str,
    scopes: &[String],
    fetch: &Fetch,
) -> Result<Client, LoginError> {
    let offered = server.methods.as_deref();
    if let Some(id) = &settings.client_id {
        let method = Method::choose(settings.client_secret.is_some(), offered);
        return Ok(Client { id: id.clone(), secret: settings.client_secret.clone(), method });
    }
    if let Some(url) = settings.client_metadata_url.as_ref().filter(|_| server.knows_documents) {
        return Ok(Client { id: url.clone(), secret: None, method: Method::None });
    }
    let Some(endpoint) = &server.registration_endpoint else {
        return Err(LoginError::new(format!(
            "{} registers nobody by itself: register a client there, and name it by `oauth = {{ client_id = … }}`",
            server.issuer
        )));
    };
    let offers = |name: &str| offered.is_some_and(|offered| offered.iter().any(|known| known == name));
    let wanted = Method::ALL.iter().find(|(name, _)| offers(name)).map_or("none", |(name, _)| *name);
    let mut request = json!({
        "client_name": NAME,
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
        "application_type": "native",
    });
    if !scopes.is_empty() {
        request["scope"] = json!(scopes.join(" "));
    }
    let answer = fetch.post_json(endpoint, &request).await?;
    if !answer.is_success() {
        return Err(LoginError::new(format!(
            "{} does not register us: {}",
            display_url(endpoint),
            refusal(&answer, &Redactor::default())
        )));
    }
    let registered: Registered = answer
        .json()
        .ok_or_else(|| LoginError::new(format!("{} does not say who we are", display_url(endpoint))))?;
    let secret = registered.client_secret.filter(|secret| !secret.is_empty()).map(Secret::new);
    let told = registered.token_endpoint_auth_method.as_deref().and_then(Method::named);
    let method = match told {
        Some(Method::Basic | Method::Post) if secret.is_none() => Method::None,
        Some(method) => method,
        None => Method::choose(secret.is_some(), offered),
    };
    Ok(Client { id: registered.client_id, secret, method })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_as_the_server_wants_it() {
        let offered = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let choose = |names: &[&str]| Method::choose(true, Some(&offered(names)));
        assert_eq!(Method::choose(true, None), Method::Basic);
        assert_eq!(choose(&["client_secret_post", "client_secret_basic"]), Method::Basic);
        assert_eq!(choose(&["client_secret_post", "none"]), Method::Post);
        assert_eq!(choose(&["none"]), Method::None);
        assert_eq!(choose(&["private_key_jwt"]), Method::Basic);
        assert_eq!(Method::choose(false, Some(&offered(&["client_secret_basic"]))), Method::None);
    }
}
