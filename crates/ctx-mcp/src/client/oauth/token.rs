//! Requests to the token endpoint of an authorization server.

use super::LoginError;
use super::challenge::scopes;
use super::fetch::{Answer, Fetch};
use super::keep::{Tokens, now};
use super::register::{Client, Method};
use ctx_core::{Redactor, Secret};
use ctx_net::display_url;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

/// Form fields that hold credentials.
const SECRET_FIELDS: [&str; 4] = ["client_secret", "code", "code_verifier", "refresh_token"];
/// Characters of an error response that are shown.
const REFUSAL_MAX: usize = 300;

/// The tokens of a successful response.
pub(super) struct Granted {
    pub(super) tokens: Tokens,
    /// The granted scopes, if the response names them.
    pub(super) scopes: Option<Vec<String>>,
}

/// Why no token was issued.
pub(super) enum Refused {
    /// The server refuses the request, and would refuse it again.
    Rejected(LoginError),
    /// The request failed; a later one may succeed.
    Failed(LoginError),
}

#[derive(Deserialize)]
struct Given {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
    scope: Option<String>,
}

/// Requests tokens with these form fields.
pub(super) async fn ask(
    endpoint: &Url,
    client: &Client,
    fields: &[(&str, &str)],
    fetch: &Fetch,
) -> Result<Granted, Refused> {
    let mut fields = fields.to_vec();
    let mut user = None;
    match (client.method, &client.secret) {
        (Method::Basic, Some(secret)) => user = Some((client.id.as_str(), secret)),
        (Method::Post, Some(secret)) => {
            fields.extend([("client_id", client.id.as_str()), ("client_secret", secret.expose())]);
        }
        _ => fields.push(("client_id", &client.id)),
    }
    let answer = fetch.post_form(endpoint, &fields, user).await.map_err(Refused::Failed)?;
    if !answer.is_success() {
        // Some servers echo the request in their error.
        let secrets = fields.iter().filter(|(name, _)| SECRET_FIELDS.contains(name));
        let secrets = secrets.map(|(_, value)| Secret::new(*value)).chain(client.secret.clone());
        let refusal = refusal(&answer, &Redactor::new(secrets));
        let error = LoginError::new(format!("{} gives out no token: {refusal}", display_url(endpoint)));
        let is_final = (400..500).contains(&answer.status) && !matches!(answer.status, 408 | 429);
        return Err(if is_final { Refused::Rejected(error) } else { Refused::Failed(error) });
    }
    let wrong = |why: &str| Refused::Failed(LoginError::new(format!("{} {why}", display_url(endpoint))));
    let given: Given = answer.json().ok_or_else(|| wrong("answers without a token"))?;
    if given.token_type.as_ref().is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err(wrong("gives out a kind of token that is not known here"));
    }
    let is_sendable = |token: &String| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_sendable(&given.access_token) {
        return Err(wrong("gives out a token that cannot be sent"));
    }
    let seconds = given.expires_in.and_then(|seconds| match seconds {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    });
    Ok(Granted {
        tokens: Tokens {
            access: Secret::new(given.access_token),
            refresh: given.refresh_token.filter(|token| !token.is_empty()).map(Secret::new),
            expires_at: seconds.map(|seconds: u64| now().saturating_add(seconds)),
        },
        scopes: given.scope.map(|granted| scopes(&granted)),
    })
}

/// The reason that a server gives for a refusal, with the redactor's secrets masked.
pub(super) fn refusal(answer: &Answer, redactor: &Redactor) -> String {
    let told: Value = answer.json().unwrap_or_default();
    let text = |field: &str| redactor.text(told[field].as_str().unwrap_or_default().to_owned());
    told_refusal(&text("error"), &text("error_description"))
        .unwrap_or_else(|| format!("it answered with HTTP {}", answer.status))
}

/// [`refusal`] made of the fields `error` and `error_description`; `None` if both are empty.
pub(super) fn told_refusal(error: &str, description: &str) -> Option<String> {
    let text = match (error, description) {
        ("", "") => return None,
        (error, "") => error.to_owned(),
        ("", description) => description.to_owned(),
        (error, description) => format!("{error} ({description})"),
    };
    Some(text.chars().filter(|character| !character.is_control()).take(REFUSAL_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_testkit::{CANARIES, Web, canary_leaks, canary_text, reply};
    use serde_json::json;

    #[tokio::test]
    async fn what_a_token_endpoint_repeats_is_masked() {
        for (number, canary) in CANARIES.iter().enumerate() {
            for method in [Method::Basic, Method::Post] {
                let web = Web::serve(|asked| {
                    let line = canary_text();
                    let sent = format!("{} {}", asked.head, String::from_utf8_lossy(&asked.body));
                    let told = json!({ "error": sent.replace(['\r', '\n'], " "), "error_description": line });
                    reply(400, &told.to_string())
                });
                let endpoint: Url = web.url("/token").parse().unwrap();
                let fetch = Fetch::new(&endpoint);
                let client = Client { id: "me".to_owned(), secret: Some(Secret::new(*canary)), method };
                let asked =
                    ask(&endpoint, &client, &[("code", canary), ("refresh_token", canary)], &fetch).await;
                let Err(Refused::Rejected(error)) = asked else { panic!("it is refused") };
                let own = format!("{number} (");
                let leaks = canary_leaks(&error.to_string());
                assert!(!leaks.iter().any(|leak| leak.starts_with(&own)), "{leaks:?}: {error}");
                assert!(error.to_string().contains("***"), "{error}");
            }
        }
    }
}
