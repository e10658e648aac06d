//! OAuth client registration: the client ID and the client authentication method at an authorization server.

use super::discovery::LoginMetadata;
use super::fetch::OAuthHttpClient;
use super::token::describe_refusal;
use super::{LoginError, OAuthSettings};
use ctx_core::{Redactor, Secret};
use ctx_net::display_url;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The client name on the consent page of an authorization server.
const CLIENT_NAME: &str = "ctx (Context Harness)";

/// Our client at an authorization server.
#[derive(Clone, Debug)]
pub(super) struct ClientRegistration {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
    pub(super) auth_method: ClientAuthMethod,
}

/// Client authentication at the token endpoint (`token_endpoint_auth_method`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ClientAuthMethod {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
}

impl ClientAuthMethod {
    const ALL: [(&str, Self); 3] =
        [("none", Self::None), ("client_secret_basic", Self::Basic), ("client_secret_post", Self::Post)];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, method)| *method)
    }

    /// The method for a client with or without a secret, of those that the server offers. A server that names
    /// none offers `client_secret_basic`, the default of RFC 8414.
    fn choose(has_secret: bool, supported: Option<&[String]>) -> Self {
        let supports =
            |name: &str| supported.is_none_or(|supported| supported.iter().any(|known| known == name));
        match has_secret {
            false => Self::None,
            true if supports("client_secret_basic") => Self::Basic,
            true if supports("client_secret_post") => Self::Post,
            // The server issues a secret, but does not want it sent.
            true if supports("none") => Self::None,
            true => Self::Basic,
        }
    }
}

#[derive(Deserialize)]
struct RegistrationResponse {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

/// The configured client, else our client ID metadata document, else a client from dynamic registration (RFC
/// 7591).
pub(super) async fn register_client(
    settings: &OAuthSettings,
    metadata: &LoginMetadata,
    redirect: &str,
    scopes: &[String],
    http_client: &OAuthHttpClient,
) -> Result<ClientRegistration, LoginError> {
    let supported = metadata.auth_methods.as_deref();
    if let Some(id) = &settings.client_id {
        let auth_method = ClientAuthMethod::choose(settings.client_secret.is_some(), supported);
        return Ok(ClientRegistration {
            id: id.clone(),
            secret: settings.client_secret.clone(),
            auth_method,
        });
    }
    if let Some(url) = settings.client_metadata_url.as_ref().filter(|_| metadata.supports_metadata_documents)
    {
        return Ok(ClientRegistration { id: url.clone(), secret: None, auth_method: ClientAuthMethod::None });
    }
    let Some(endpoint) = &metadata.registration_endpoint else {
        return Err(LoginError::new(format!(
            "{} does not support dynamic client registration: register a client there, and set `oauth = {{ client_id = … }}`",
            metadata.issuer
        )));
    };
    let supports =
        |name: &str| supported.is_some_and(|supported| supported.iter().any(|known| known == name));
    let requested_method =
        ClientAuthMethod::ALL.iter().find(|(name, _)| supports(name)).map_or("none", |(name, _)| *name);
    let mut request = json!({
        "client_name": CLIENT_NAME,
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": requested_method,
        "application_type": "native",
    });
    if !scopes.is_empty() {
        request["scope"] = json!(scopes.join(" "));
    }
    let response = http_client.post_json(endpoint, &request).await?;
    if !response.is_success() {
        return Err(LoginError::new(format!(
            "{} refused dynamic client registration: {}",
            display_url(endpoint),
            describe_refusal(&response, &Redactor::default())
        )));
    }
    let registration: RegistrationResponse = response.json().ok_or_else(|| {
        LoginError::new(format!("{} sent no valid registration response", display_url(endpoint)))
    })?;
    let secret = registration.client_secret.filter(|secret| !secret.is_empty()).map(Secret::new);
    let response_method =
        registration.token_endpoint_auth_method.as_deref().and_then(ClientAuthMethod::from_name);
    let auth_method = match response_method {
        Some(ClientAuthMethod::Basic | ClientAuthMethod::Post) if secret.is_none() => ClientAuthMethod::None,
        Some(method) => method,
        None => ClientAuthMethod::choose(secret.is_some(), supported),
    };
    Ok(ClientRegistration { id: registration.client_id, secret, auth_method })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_auth_method_is_one_that_the_server_supports() {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let choose = |names: &[&str]| ClientAuthMethod::choose(true, Some(&owned(names)));
        assert_eq!(ClientAuthMethod::choose(true, None), ClientAuthMethod::Basic);
        assert_eq!(choose(&["client_secret_post", "client_secret_basic"]), ClientAuthMethod::Basic);
        assert_eq!(choose(&["client_secret_post", "none"]), ClientAuthMethod::Post);
        assert_eq!(choose(&["none"]), ClientAuthMethod::None);
        assert_eq!(choose(&["private_key_jwt"]), ClientAuthMethod::Basic);
        assert_eq!(
            ClientAuthMethod::choose(false, Some(&owned(&["client_secret_basic"]))),
            ClientAuthMethod::None
        );
    }
}
