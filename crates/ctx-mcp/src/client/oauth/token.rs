//! Requests to the token endpoint of an authorization server.

use super::LoginError;
use super::challenge::parse_scopes;
use super::credentials::{OAuthTokens, unix_now};
use super::fetch::{OAuthHttpClient, OAuthResponse};
use super::registration::{ClientAuthMethod, ClientRegistration};
use ctx_core::{Redactor, Secret};
use ctx_net::display_url;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

/// Form fields that hold credentials.
const SECRET_FIELDS: [&str; 4] = ["client_secret", "code", "code_verifier", "refresh_token"];
/// Characters of an error response that are shown.
const ERROR_CHARS_MAX: usize = 300;

/// The tokens of a successful response.
pub(super) struct TokenGrant {
    pub(super) tokens: OAuthTokens,
    /// The granted scopes, if the response names them.
    pub(super) scopes: Option<Vec<String>>,
}

/// Why no token was issued.
pub(super) enum TokenError {
    /// The server refuses the request, and would refuse it again.
    Rejected(LoginError),
    /// The request failed; a later one may succeed.
    Failed(LoginError),
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
    scope: Option<String>,
}

/// Requests tokens with these form fields.
pub(super) async fn request_token(
    endpoint: &Url,
    registration: &ClientRegistration,
    fields: &[(&str, &str)],
    http_client: &OAuthHttpClient,
) -> Result<TokenGrant, TokenError> {
    let mut fields = fields.to_vec();
    let mut basic_auth = None;
    match (registration.auth_method, &registration.secret) {
        (ClientAuthMethod::Basic, Some(secret)) => basic_auth = Some((registration.id.as_str(), secret)),
        (ClientAuthMethod::Post, Some(secret)) => {
            fields.extend([("client_id", registration.id.as_str()), ("client_secret", secret.expose())]);
        }
        _ => fields.push(("client_id", &registration.id)),
    }
    let http_response =
        http_client.post_form(endpoint, &fields, basic_auth).await.map_err(TokenError::Failed)?;
    if !http_response.is_success() {
        // Some servers echo the request in their error.
        let secrets = fields.iter().filter(|(name, _)| SECRET_FIELDS.contains(name));
        let secrets = secrets.map(|(_, value)| Secret::new(*value)).chain(registration.secret.clone());
        let reason = describe_refusal(&http_response, &Redactor::new(secrets));
        let error = LoginError::new(format!("{} issued no token: {reason}", display_url(endpoint)));
        let is_final =
            (400..500).contains(&http_response.status) && !matches!(http_response.status, 408 | 429);
        return Err(if is_final { TokenError::Rejected(error) } else { TokenError::Failed(error) });
    }
    let invalid = |why: &str| TokenError::Failed(LoginError::new(format!("{} {why}", display_url(endpoint))));
    let response: TokenResponse =
        http_response.json().ok_or_else(|| invalid("sent a response without an access token"))?;
    if response.token_type.as_ref().is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(invalid("issued a token of an unsupported type"));
    }
    let is_sendable = |token: &String| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_sendable(&response.access_token) {
        return Err(invalid("issued a token that is not valid in a header"));
    }
    let seconds = response.expires_in.and_then(|seconds| match seconds {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    });
    Ok(TokenGrant {
        tokens: OAuthTokens {
            access: Secret::new(response.access_token),
            refresh: response.refresh_token.filter(|token| !token.is_empty()).map(Secret::new),
            expires_at: seconds.map(|seconds: u64| unix_now().saturating_add(seconds)),
        },
        scopes: response.scope.map(|scope| parse_scopes(&scope)),
    })
}

/// The reason that a server gives for a refusal, with the redactor's secrets masked.
pub(super) fn describe_refusal(response: &OAuthResponse, redactor: &Redactor) -> String {
    let body: Value = response.json().unwrap_or_default();
    let text = |field: &str| redactor.text(body[field].as_str().unwrap_or_default().to_owned());
    describe_oauth_error(&text("error"), &text("error_description"))
        .unwrap_or_else(|| format!("it answered with HTTP {}", response.status))
}

/// [`describe_refusal`] made of the fields `error` and `error_description`; `None` if both are empty.
pub(super) fn describe_oauth_error(error: &str, description: &str) -> Option<String> {
    let text = match (error, description) {
        ("", "") => return None,
        (error, "") => error.to_owned(),
        ("", description) => description.to_owned(),
        (error, description) => format!("{error} ({description})"),
    };
    Some(text.chars().filter(|character| !character.is_control()).take(ERROR_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_testkit::{CANARIES, MockWebServer, canary_leaks, canary_text, http_response};
    use serde_json::json;

    #[tokio::test]
    async fn what_a_token_endpoint_repeats_is_masked() {
        for (number, canary) in CANARIES.iter().enumerate() {
            for method in [ClientAuthMethod::Basic, ClientAuthMethod::Post] {
                let web = MockWebServer::serve(|asked| {
                    let line = canary_text();
                    let sent = format!("{} {}", asked.head, String::from_utf8_lossy(&asked.body));
                    let body_json =
                        json!({ "error": sent.replace(['\r', '\n'], " "), "error_description": line });
                    http_response(400, &body_json.to_string())
                });
                let endpoint: Url = web.url("/token").parse().unwrap();
                let http_client = OAuthHttpClient::new(&endpoint);
                let registration = ClientRegistration {
                    id: "me".to_owned(),
                    secret: Some(Secret::new(*canary)),
                    auth_method: method,
                };
                let result = request_token(
                    &endpoint,
                    &registration,
                    &[("code", canary), ("refresh_token", canary)],
                    &http_client,
                )
                .await;
                let Err(TokenError::Rejected(error)) = result else { panic!("it is refused") };
                let own = format!("{number} (");
                let leaks = canary_leaks(&error.to_string());
                assert!(!leaks.iter().any(|leak| leak.starts_with(&own)), "{leaks:?}: {error}");
                assert!(error.to_string().contains("***"), "{error}");
            }
        }
    }
}
