//! The OAuth authorization code flow with PKCE: the user signs in on a page of the authorization server,
//! which redirects back to us with a code.

use super::challenge::Challenge;
use super::discover::{Discovered, discover};
use super::keep::Credentials;
use super::register::{Client, client};
use super::token::{self, Refused, told_refusal};
use super::{Authority, LoginError, OAuthSettings, union};
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
const OFFLINE: &str = "offline_access";

/// A login that waits for the user.
pub struct Login {
    authority: Arc<Authority>,
    server: Discovered,
    client: Client,
    scopes: Vec<String>,
    redirect: String,
    url: Url,
    state: String,
    verifier: Secret,
}

impl Login {
    /// Discovers the authorization server, and registers our client there.
    pub(in crate::client) async fn begin(
        authority: &Arc<Authority>,
        redirect: &str,
    ) -> Result<Self, LoginError> {
        let challenge = authority.with_state(|state| state.challenge.clone());
        let Authority { settings, fetch, .. } = &**authority;
        let server = discover(&authority.server, &challenge, fetch).await?;
        // The scopes of a login at another issuer are not sent to this one.
        let before = authority.read().await?.filter(|kept| kept.issuer == server.issuer);
        let scopes = choose_scopes(settings, &challenge, &server, before.as_deref());
        let client = client(settings, &server, redirect, &scopes, fetch).await?;
        let (state, verifier) = (random()?, random()?);
        let proof = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let mut url = server.authorization_endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", redirect)
            .append_pair("state", &state)
            .append_pair("code_challenge", &proof)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &server.resource);
        if !scopes.is_empty() {
            url.query_pairs_mut().append_pair("scope", &scopes.join(" "));
        }
        if scopes.iter().any(|scope| scope == OFFLINE) {
            // OpenID Connect servers grant this scope only with the user's consent.
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        Ok(Self {
            authority: authority.clone(),
            server,
            client,
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
        &self.server.issuer
    }

    /// Whether a request to the redirect URI with this query belongs to this login (`state` parameter).
    pub fn is_answered_by(&self, query: &str) -> bool {
        // Not compared in constant time: the value is random and valid for this login only.
        fields(query).get("state").is_some_and(|state| *state == self.state)
    }

    /// Exchanges the code of the authorization response for tokens, and stores the login.
    pub async fn finish(self, query: &str) -> Result<(), LoginError> {
        if !self.is_answered_by(query) {
            return Err(LoginError::new("the answer belongs to another login"));
        }
        let answer = fields(query);
        let field = |name: &str| answer.get(name).map(String::as_str);
        let issuer = &self.server.issuer;
        match field("iss") {
            // Compared as strings, without URL normalisation (RFC 9207).
            Some(named) if named != issuer => {
                return Err(LoginError::new(format!("the answer is not from {issuer}")));
            }
            None if self.server.names_itself => {
                return Err(LoginError::new(format!("the answer does not say that it is from {issuer}")));
            }
            _ => {}
        }
        let told =
            told_refusal(field("error").unwrap_or_default(), field("error_description").unwrap_or_default());
        if let Some(told) = told {
            return Err(LoginError::new(format!("{issuer} says no: {told}")));
        }
        let code = field("code").ok_or_else(|| LoginError::new("the answer has no code"))?;
        let code = Secret::new(code);
        self.authority.redactor.learn(&code);
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", &self.redirect),
            ("code_verifier", self.verifier.expose()),
            ("resource", &self.server.resource),
        ];
        let asked =
            token::ask(&self.server.token_endpoint, &self.client, &fields, &self.authority.fetch).await;
        self.authority.redactor.unlearn(&code);
        let granted = asked.map_err(|refused| match refused {
            Refused::Rejected(error) | Refused::Failed(error) => error,
        })?;
        let mut requested = self.scopes;
        union(&mut requested, &granted.scopes.unwrap_or_default());
        let login = Credentials {
            issuer: self.server.issuer,
            token_endpoint: self.server.token_endpoint.to_string(),
            resource: self.server.resource,
            client: self.client,
            requested,
            wanted: Vec::new(),
            responded_from: self.authority.fetch.responded_from(),
            tokens: granted.tokens,
        };
        let _lock = self.authority.with_store(|authority| authority.store.lock(&authority.key)).await?;
        self.authority.keep(login).await?;
        Ok(())
    }
}

/// The scopes to request: the configured ones, else those of the challenge, else those that the server
/// supports. Scopes that turned out to be missing are added, and without configured scopes those of an
/// earlier login.
fn choose_scopes(
    settings: &OAuthSettings,
    challenge: &Challenge,
    server: &Discovered,
    before: Option<&Credentials>,
) -> Vec<String> {
    let mut scopes = Vec::new();
    let chosen = [&settings.scopes, &challenge.scopes, &server.scopes];
    let chosen = chosen.into_iter().find(|scopes| !scopes.is_empty());
    if let Some(before) = before {
        if settings.scopes.is_empty() {
            union(&mut scopes, &before.requested);
        }
        union(&mut scopes, &before.wanted);
    }
    union(&mut scopes, chosen.map_or(&[], Vec::as_slice));
    let offered = |scope: &str| server.offered_scopes.iter().any(|known| known == scope);
    // Not as the only scope: it would replace the default scopes of a request without scopes.
    if !scopes.is_empty() && offered(OFFLINE) {
        union(&mut scopes, &[OFFLINE.to_owned()]);
    }
    scopes
}

fn random() -> Result<String, LoginError> {
    let mut bytes = [0; RANDOM_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| LoginError::new("this machine has nothing random"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The parameters of a query; of two with the same name, the first counts.
fn fields(query: &str) -> HashMap<String, String> {
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
    use super::super::keep::Tokens;
    use super::super::register::Method;
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn asked_for(configured: &str, challenged: &str, told: &str, before: Option<(&str, &str)>) -> String {
        let endpoint: Url = "https://a.example/".parse().unwrap();
        let server = Discovered {
            issuer: "https://a.example".into(),
            authorization_endpoint: endpoint.clone(),
            token_endpoint: endpoint,
            registration_endpoint: None,
            resource: "https://s.example".into(),
            scopes: words(told),
            offered_scopes: words("a offline_access"),
            names_itself: false,
            knows_documents: false,
            methods: None,
        };
        let settings = OAuthSettings { scopes: words(configured), ..OAuthSettings::default() };
        let challenge = Challenge { scopes: words(challenged), ..Challenge::default() };
        let before = before.map(|(requested, wanted)| Credentials {
            issuer: server.issuer.clone(),
            token_endpoint: String::new(),
            resource: String::new(),
            client: Client { id: "c".into(), secret: None, method: Method::None },
            requested: words(requested),
            wanted: words(wanted),
            responded_from: None,
            tokens: Tokens { access: Secret::new("t"), refresh: None, expires_at: None },
        });
        choose_scopes(&settings, &challenge, &server, before.as_ref()).join(" ")
    }

    #[test]
    fn what_is_asked_for_is_what_is_wanted_and_nothing_where_that_is_not_known() {
        assert_eq!(asked_for("", "", "", None), "");
        assert_eq!(asked_for("", "", "a b", None), "a b offline_access");
        assert_eq!(asked_for("", "c", "a b", None), "c offline_access");
        assert_eq!(asked_for("d", "c", "a b", None), "d offline_access");
    }

    #[test]
    fn what_was_granted_before_is_asked_for_again_with_what_is_missing() {
        assert_eq!(asked_for("", "c", "", Some(("a", "b"))), "a b c offline_access");
        assert_eq!(asked_for("d", "c", "", Some(("a", "b"))), "b d offline_access");
    }

    #[test]
    fn what_nobody_can_guess_is_never_twice_the_same() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.len(), 43);
    }

    #[test]
    fn of_two_fields_by_one_name_the_first_counts() {
        let read = fields("state=a%20b&code=1&state=other&iss=https%3A%2F%2Fa");
        assert_eq!((&*read["state"], &*read["code"], &*read["iss"]), ("a b", "1", "https://a"));
    }
}
