//! The OAuth authorization code flow with PKCE: the user signs in on a page of the authorization server,
//! which redirects back to us with a code.

use super::challenge::Challenge;
use super::credentials::OAuthCredentials;
use super::discovery::{LoginMetadata, discover};
use super::registration::{ClientRegistration, register_client};
use super::token::{self, TokenError, describe_oauth_error};
use super::{LoginError, OAuthClient, OAuthSettings, merge_scopes};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ctx_core::Secret;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::sync::Arc;
use url::Url;

/// Random bytes of the `state` parameter and of the PKCE code verifier.
const RANDOM_BYTES: usize = 32;
/// The scope for which OpenID Connect servers issue a refresh token.
const OFFLINE_ACCESS: &str = "offline_access";

/// A login that waits for the user.
pub struct Login {
    oauth: Arc<OAuthClient>,
    metadata: LoginMetadata,
    registration: ClientRegistration,
    scopes: Vec<String>,
    redirect: String,
    url: Url,
    state: String,
    verifier: Secret,
}

impl Login {
    /// Discovers the authorization server, and registers our client there.
    pub(in crate::client) async fn begin(
        oauth: &Arc<OAuthClient>,
        redirect: &str,
    ) -> Result<Self, LoginError> {
        let challenge = oauth.with_state(|state| state.challenge.clone());
        let OAuthClient { settings, http_client, .. } = &**oauth;
        let metadata = discover(&oauth.server, &challenge, http_client).await?;
        // The scopes of a login at another issuer are not sent to this one.
        let earlier = oauth.load().await?.filter(|credentials| credentials.issuer == metadata.issuer);
        let scopes = choose_scopes(settings, &challenge, &metadata, earlier.as_deref());
        let registration = register_client(settings, &metadata, redirect, &scopes, http_client).await?;
        let (state, verifier) = (random_token()?, random_token()?);
        let code_challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let mut url = metadata.authorization_endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &registration.id)
            .append_pair("redirect_uri", redirect)
            .append_pair("state", &state)
            .append_pair("code_challenge", &code_challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &metadata.resource);
        if !scopes.is_empty() {
            url.query_pairs_mut().append_pair("scope", &scopes.join(" "));
        }
        if scopes.iter().any(|scope| scope == OFFLINE_ACCESS) {
            // OpenID Connect servers grant this scope only with the user's consent.
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        Ok(Self {
            oauth: oauth.clone(),
            metadata,
            registration,
            scopes,
            redirect: redirect.to_owned(),
            url,
            state,
            verifier: Secret::new(verifier),
        })
    }

    /// The URL at which the user signs in.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// The authorization server that shows the sign-in page.
    pub fn issuer(&self) -> &str {
        &self.metadata.issuer
    }

    /// Whether a request to the redirect URI with this query belongs to this login (`state` parameter).
    pub fn matches_redirect(&self, query: &str) -> bool {
        // Not compared in constant time: the value is random and valid for this login only.
        parse_query(query).get("state").is_some_and(|state| *state == self.state)
    }

    /// Exchanges the code of the authorization response for tokens, and stores the login.
    pub async fn finish(self, query: &str) -> Result<(), LoginError> {
        if !self.matches_redirect(query) {
            return Err(LoginError::new(
                "the authorization response belongs to another login: `state` does not match",
            ));
        }
        let parameters = parse_query(query);
        let parameter = |name: &str| parameters.get(name).map(String::as_str);
        let issuer = &self.metadata.issuer;
        match parameter("iss") {
            // Compared as strings, without URL normalisation (RFC 9207).
            Some(named) if named != issuer => {
                return Err(LoginError::new(format!("the authorization response is not from {issuer}")));
            }
            None if self.metadata.sends_issuer => {
                return Err(LoginError::new(format!("the authorization response of {issuer} has no `iss`")));
            }
            _ => {}
        }
        let error = describe_oauth_error(
            parameter("error").unwrap_or_default(),
            parameter("error_description").unwrap_or_default(),
        );
        if let Some(error) = error {
            return Err(LoginError::new(format!("{issuer} refused the login: {error}")));
        }
        let code =
            parameter("code").ok_or_else(|| LoginError::new("the authorization response has no `code`"))?;
        let code = Secret::new(code);
        self.oauth.redactor.learn(&code);
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", &self.redirect),
            ("code_verifier", self.verifier.expose()),
            ("resource", &self.metadata.resource),
        ];
        let result = token::request_token(
            &self.metadata.token_endpoint,
            &self.registration,
            &fields,
            &self.oauth.http_client,
        )
        .await;
        self.oauth.redactor.unlearn(&code);
        let grant = result.map_err(|error| match error {
            TokenError::Rejected(error) | TokenError::Failed(error) => error,
        })?;
        let mut requested_scopes = self.scopes;
        merge_scopes(&mut requested_scopes, &grant.scopes.unwrap_or_default());
        let login = OAuthCredentials {
            issuer: self.metadata.issuer,
            token_endpoint: self.metadata.token_endpoint.to_string(),
            resource: self.metadata.resource,
            registration: self.registration,
            requested_scopes,
            missing_scopes: Vec::new(),
            responded_from: self.oauth.http_client.responded_from(),
            tokens: grant.tokens,
        };
        let _lock = self.oauth.with_store(|oauth| oauth.store.lock(&oauth.key)).await?;
        self.oauth.save(login).await?;
        Ok(())
    }
}

/// The scopes to request: the configured ones, else those of the challenge, else those that the server
/// supports. Scopes that turned out to be missing are added, and without configured scopes those of an
/// earlier login.
fn choose_scopes(
    settings: &OAuthSettings,
    challenge: &Challenge,
    metadata: &LoginMetadata,
    earlier: Option<&OAuthCredentials>,
) -> Vec<String> {
    let mut scopes = Vec::new();
    let chosen = [&settings.scopes, &challenge.scopes, &metadata.scopes];
    let chosen = chosen.into_iter().find(|scopes| !scopes.is_empty());
    if let Some(earlier) = earlier {
        if settings.scopes.is_empty() {
            merge_scopes(&mut scopes, &earlier.requested_scopes);
        }
        merge_scopes(&mut scopes, &earlier.missing_scopes);
    }
    merge_scopes(&mut scopes, chosen.map_or(&[], Vec::as_slice));
    let is_supported = |scope: &str| metadata.supported_scopes.iter().any(|known| known == scope);
    // Not as the only scope: it would replace the default scopes of a request without scopes.
    if !scopes.is_empty() && is_supported(OFFLINE_ACCESS) {
        merge_scopes(&mut scopes, &[OFFLINE_ACCESS.to_owned()]);
    }
    scopes
}

fn random_token() -> Result<String, LoginError> {
    let mut bytes = [0; RANDOM_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| LoginError::new("the operating system provides no random bytes"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The parameters of a query; of two with the same name, the first counts.
fn parse_query(query: &str) -> HashMap<String, String> {
    let mut fields = HashMap::new();
    let mut url = match Url::parse("http://localhost/") {
        Ok(url) => url,
        Err(_) => return fields,
    };
    url.set_query(Some(query));
    for (name, value) in url.query_pairs() {
        fields.entry(name.into_owned()).or_insert_with(|| value.into_owned());
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::super::credentials::OAuthTokens;
    use super::super::registration::ClientAuthMethod;
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn scopes_for(
        configured: &str,
        challenged: &str,
        supported: &str,
        earlier: Option<(&str, &str)>,
    ) -> String {
        let endpoint: Url = "https://a.example/".parse().unwrap();
        let metadata = LoginMetadata {
            issuer: "https://a.example".into(),
            authorization_endpoint: endpoint.clone(),
            token_endpoint: endpoint,
            registration_endpoint: None,
            resource: "https://s.example".into(),
            scopes: words(supported),
            supported_scopes: words("a offline_access"),
            sends_issuer: false,
            supports_metadata_documents: false,
            auth_methods: None,
        };
        let settings = OAuthSettings { scopes: words(configured), ..OAuthSettings::default() };
        let challenge = Challenge { scopes: words(challenged), ..Challenge::default() };
        let earlier = earlier.map(|(requested, missing)| OAuthCredentials {
            issuer: metadata.issuer.clone(),
            token_endpoint: String::new(),
            resource: String::new(),
            registration: ClientRegistration {
                id: "c".into(),
                secret: None,
                auth_method: ClientAuthMethod::None,
            },
            requested_scopes: words(requested),
            missing_scopes: words(missing),
            responded_from: None,
            tokens: OAuthTokens { access: Secret::new("t"), refresh: None, expires_at: None },
        });
        choose_scopes(&settings, &challenge, &metadata, earlier.as_ref()).join(" ")
    }

    #[test]
    fn configured_scopes_go_before_challenged_and_supported_ones() {
        assert_eq!(scopes_for("", "", "", None), "");
        assert_eq!(scopes_for("", "", "a b", None), "a b offline_access");
        assert_eq!(scopes_for("", "c", "a b", None), "c offline_access");
        assert_eq!(scopes_for("d", "c", "a b", None), "d offline_access");
    }

    #[test]
    fn scopes_of_an_earlier_login_are_requested_again_with_the_missing_ones() {
        assert_eq!(scopes_for("", "c", "", Some(("a", "b"))), "a b c offline_access");
        assert_eq!(scopes_for("d", "c", "", Some(("a", "b"))), "b d offline_access");
    }

    #[test]
    fn random_tokens_differ() {
        let (one, other) = (random_token().unwrap(), random_token().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 43);
    }

    #[test]
    fn the_first_of_duplicate_query_parameters_counts() {
        let read = parse_query("state=a%20b&code=1&state=other&iss=https%3A%2F%2Fa");
        assert_eq!((&*read["state"], &*read["code"], &*read["iss"]), ("a b", "1", "https://a"));
    }
}
