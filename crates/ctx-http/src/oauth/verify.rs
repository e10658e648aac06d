//! Verifies access tokens: signature, issuer, audience and lifetime; returns the identity.

use super::OAuth;
use super::keys::KeySet;
use super::signature::{self, ALGORITHMS};
use ctx_core::Identity;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Header, Validation, decode, decode_header};
use serde::Deserialize;

/// Tolerated difference between the clocks of the issuer and of this server.
const LEEWAY_SECONDS: u64 = 30;
/// `typ` of access tokens: their own (RFC 9068), or that of any JWT.
const TYPES: [&str; 2] = ["at+jwt", "jwt"];

/// Why an access token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The token is not valid, for this reason.
    Invalid(&'static str),
    /// The token cannot be checked: the keys of the issuer are not available.
    NoKeys,
}

#[derive(Deserialize)]
struct Claims {
    /// Validated by `decode`; declared as a string, so that an array of issuers is refused.
    #[serde(rename = "iss")]
    _issuer: String,
    sub: Option<String>,
    client_id: Option<String>,
    azp: Option<String>,
    scope: Option<Scopes>,
    scp: Option<Scopes>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scopes {
    Text(String),
    List(Vec<String>),
}

impl Scopes {
    fn each(&self) -> impl Iterator<Item = String> {
        let texts = match self {
            Self::Text(text) => std::slice::from_ref(text),
            Self::List(texts) => texts,
        };
        texts.iter().flat_map(|text| text.split_ascii_whitespace()).map(str::to_owned)
    }
}

impl OAuth {
    /// Verifies an access token and returns the identity that it proves.
    pub(crate) async fn verify(&self, token: &[u8]) -> Result<Identity, Refusal> {
        signature::prepare();
        let header = decode_header(token)
            .map_err(|_| Refusal::Invalid("the token is no JWT that is signed in a way that is taken"))?;
        check_header(&header)?;
        if let Some(keys) = self.keys.current()
            && let Some(checked) = self.check(token, &header, &keys)
        {
            return checked;
        }
        self.keys.news().await;
        let keys = self.keys.current().ok_or(Refusal::NoKeys)?;
        let unknown = Refusal::Invalid("the token is not signed with a key of the issuer");
        self.check(token, &header, &keys).unwrap_or(Err(unknown))
    }

    /// Verifies a token with the keys that fit its header; `None` if none of them can have signed it.
    fn check(&self, token: &[u8], header: &Header, keys: &KeySet) -> Option<Result<Identity, Refusal>> {
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        for key in keys.fitting(header) {
            match decode::<Claims>(token, key, &validation) {
                Ok(token) => return Some(identity(&token.claims)),
                // Without a key id, another key may have signed it.
                Err(error) if header.kid.is_none() && matches!(error.kind(), ErrorKind::InvalidSignature) => {
                }
                Err(error) => return Some(Err(Refusal::Invalid(reason(error.kind())))),
            }
        }
        None
    }
}

fn check_header(header: &Header) -> Result<(), Refusal> {
    if !ALGORITHMS.contains(&header.alg) {
        return Err(Refusal::Invalid("the token is signed in a way that is not taken"));
    }
    // RFC 7515: a critical header that is not understood must be refused, and none is understood here.
    if header.crit.is_some() {
        return Err(Refusal::Invalid("the token has critical headers that are not understood"));
    }
    let is_other = |name: &String| {
        let name = name.to_ascii_lowercase();
        !TYPES.contains(&name.strip_prefix("application/").unwrap_or(&name))
    };
    if header.typ.as_ref().is_some_and(is_other) {
        return Err(Refusal::Invalid("the token is no access token"));
    }
    Ok(())
}

fn identity(claims: &Claims) -> Result<Identity, Refusal> {
    // A service account may have a client id only.
    let named = [&claims.sub, &claims.client_id, &claims.azp].into_iter().flatten();
    let subject = named.into_iter().find(|name| !name.is_empty()).cloned();
    let subject = subject.ok_or(Refusal::Invalid("the token speaks for nobody"))?;
    let granted = [&claims.scope, &claims.scp].into_iter().flatten();
    Ok(Identity { subject, scopes: granted.flat_map(Scopes::each).collect() })
}

fn reason(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "the token is from another issuer",
        ErrorKind::InvalidAudience => "the token is meant for somebody else",
        ErrorKind::InvalidSignature => "the token's signature is wrong",
        ErrorKind::MissingRequiredClaim(claim) => match claim.as_str() {
            "exp" => "the token does not say when it expires",
            "aud" => "the token does not say whom it is meant for",
            _ => "the token does not say whom it is from",
        },
        _ => "the token cannot be read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn speaks_for(mut claims: Value) -> Option<Identity> {
        claims["iss"] = json!("https://login.example");
        identity(&serde_json::from_value(claims).unwrap()).ok()
    }

    #[test]
    fn scopes_come_as_a_text_or_a_list_by_either_name() {
        for claims in [
            json!({"sub": "ada", "scope": "a b"}),
            json!({"sub": "ada", "scope": " b  a "}),
            json!({"sub": "ada", "scp": ["a", "b"]}),
            json!({"sub": "ada", "scp": "a b"}),
            json!({"sub": "ada", "scope": "a", "scp": ["b"]}),
        ] {
            let identity = speaks_for(claims).unwrap();
            assert_eq!((identity.subject.as_str(), identity.scopes.len()), ("ada", 2), "{identity:?}");
        }
        assert!(speaks_for(json!({"sub": "ada"})).unwrap().scopes.is_empty());
    }

    #[test]
    fn a_token_speaks_for_a_person_or_else_for_a_program() {
        assert_eq!(speaks_for(json!({"sub": "ada", "client_id": "robot"})).unwrap().subject, "ada");
        assert_eq!(speaks_for(json!({"sub": "", "client_id": "robot"})).unwrap().subject, "robot");
        assert_eq!(speaks_for(json!({"azp": "robot"})).unwrap().subject, "robot");
        assert_eq!(speaks_for(json!({})), None);
    }

    #[test]
    fn only_access_tokens_are_taken() {
        let header = |fields: Value| serde_json::from_value::<Header>(fields).unwrap();
        for taken in [
            json!({"alg": "ES256"}),
            json!({"alg": "EdDSA", "typ": "JWT"}),
            json!({"alg": "PS384", "typ": "at+jwt"}),
            json!({"alg": "RS256", "typ": "application/at+JWT"}),
        ] {
            assert_eq!(check_header(&header(taken.clone())), Ok(()), "{taken}");
        }
        for refused in [
            json!({"alg": "HS256"}),
            json!({"alg": "HS512", "typ": "JWT"}),
            json!({"alg": "ES256", "typ": "logout+jwt"}),
            json!({"alg": "ES256", "typ": "dpop+jwt"}),
            json!({"alg": "ES256", "crit": ["b64"], "b64": false}),
        ] {
            assert!(check_header(&header(refused.clone())).is_err(), "{refused}");
        }
        assert!(serde_json::from_value::<Header>(json!({"alg": "none"})).is_err());
    }
}
