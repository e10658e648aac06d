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
const TOKEN_TYPES: [&str; 2] = ["at+jwt", "jwt"];

/// Why an access token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// The token is not valid, for this reason.
    Invalid(&'static str),
    /// The token cannot be checked: the keys of the issuer are not available.
    KeysUnavailable,
}

#[derive(Deserialize)]
struct AccessTokenClaims {
    /// Validated by `decode`; declared as a string, so that an array of issuers is refused.
    #[serde(rename = "iss")]
    _issuer: String,
    sub: Option<String>,
    client_id: Option<String>,
    azp: Option<String>,
    scope: Option<ScopeClaim>,
    scp: Option<ScopeClaim>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ScopeClaim {
    Text(String),
    List(Vec<String>),
}

impl ScopeClaim {
    fn names(&self) -> impl Iterator<Item = String> {
        let texts = match self {
            Self::Text(text) => std::slice::from_ref(text),
            Self::List(texts) => texts,
        };
        texts.iter().flat_map(|text| text.split_ascii_whitespace()).map(str::to_owned)
    }
}

impl OAuth {
    /// Verifies an access token and returns the identity that it proves.
    pub(crate) async fn verify(&self, token: &[u8]) -> Result<Identity, TokenError> {
        signature::install_provider();
        let header = decode_header(token).map_err(|_| {
            TokenError::Invalid("the token is not a JWT with a supported signature algorithm")
        })?;
        check_header(&header)?;
        if let Some(keys) = self.keys.current()
            && let Some(checked) = self.check(token, &header, &keys)
        {
            return checked;
        }
        self.keys.wait_for_refresh().await;
        let keys = self.keys.current().ok_or(TokenError::KeysUnavailable)?;
        let unknown = TokenError::Invalid("the token is not signed with a key of the issuer");
        self.check(token, &header, &keys).unwrap_or(Err(unknown))
    }

    /// Verifies a token with the keys that fit its header; `None` if none of them can have signed it.
    fn check(&self, token: &[u8], header: &Header, keys: &KeySet) -> Option<Result<Identity, TokenError>> {
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        for key in keys.candidates(header) {
            match decode::<AccessTokenClaims>(token, key, &validation) {
                Ok(token) => return Some(identity_of(&token.claims)),
                // Without a key id, another key may have signed it.
                Err(error) if header.kid.is_none() && matches!(error.kind(), ErrorKind::InvalidSignature) => {
                }
                Err(error) => return Some(Err(TokenError::Invalid(error_text(error.kind())))),
            }
        }
        None
    }
}

fn check_header(header: &Header) -> Result<(), TokenError> {
    if !ALGORITHMS.contains(&header.alg) {
        return Err(TokenError::Invalid("the token's signature algorithm is not supported"));
    }
    // RFC 7515: a critical header that is not understood must be refused, and none is understood here.
    if header.crit.is_some() {
        return Err(TokenError::Invalid("the token has unsupported critical headers (`crit`)"));
    }
    let is_other_type = |name: &String| {
        let name = name.to_ascii_lowercase();
        !TOKEN_TYPES.contains(&name.strip_prefix("application/").unwrap_or(&name))
    };
    if header.typ.as_ref().is_some_and(is_other_type) {
        return Err(TokenError::Invalid("the token is not an access token"));
    }
    Ok(())
}

fn identity_of(claims: &AccessTokenClaims) -> Result<Identity, TokenError> {
    // A service account may have a client id only.
    let subjects = [&claims.sub, &claims.client_id, &claims.azp].into_iter().flatten();
    let subject = subjects.into_iter().find(|name| !name.is_empty()).cloned();
    let subject = subject.ok_or(TokenError::Invalid("the token has no subject (`sub`)"))?;
    let granted = [&claims.scope, &claims.scp].into_iter().flatten();
    Ok(Identity { subject, scopes: granted.flat_map(ScopeClaim::names).collect() })
}

fn error_text(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "the token has another issuer (`iss`)",
        ErrorKind::InvalidAudience => "the token has another audience (`aud`)",
        ErrorKind::InvalidSignature => "the token's signature is invalid",
        ErrorKind::MissingRequiredClaim(claim) => match claim.as_str() {
            "exp" => "the token has no expiry (`exp`)",
            "aud" => "the token has no audience (`aud`)",
            _ => "the token has no issuer (`iss`)",
        },
        _ => "the token is malformed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn accepted_identity(mut claims: Value) -> Option<Identity> {
        claims["iss"] = json!("https://login.example");
        identity_of(&serde_json::from_value(claims).unwrap()).ok()
    }

    #[test]
    fn scopes_are_a_string_or_a_list_in_either_claim() {
        for claims in [
            json!({"sub": "ada", "scope": "a b"}),
            json!({"sub": "ada", "scope": " b  a "}),
            json!({"sub": "ada", "scp": ["a", "b"]}),
            json!({"sub": "ada", "scp": "a b"}),
            json!({"sub": "ada", "scope": "a", "scp": ["b"]}),
        ] {
            let identity = accepted_identity(claims).unwrap();
            assert_eq!((identity.subject.as_str(), identity.scopes.len()), ("ada", 2), "{identity:?}");
        }
        assert!(accepted_identity(json!({"sub": "ada"})).unwrap().scopes.is_empty());
    }

    #[test]
    fn the_subject_is_a_user_or_else_a_client() {
        assert_eq!(accepted_identity(json!({"sub": "ada", "client_id": "robot"})).unwrap().subject, "ada");
        assert_eq!(accepted_identity(json!({"sub": "", "client_id": "robot"})).unwrap().subject, "robot");
        assert_eq!(accepted_identity(json!({"azp": "robot"})).unwrap().subject, "robot");
        assert_eq!(accepted_identity(json!({})), None);
    }

    #[test]
    fn only_access_tokens_are_accepted() {
        let header = |fields: Value| serde_json::from_value::<Header>(fields).unwrap();
        for accepted in [
            json!({"alg": "ES256"}),
            json!({"alg": "EdDSA", "typ": "JWT"}),
            json!({"alg": "PS384", "typ": "at+jwt"}),
            json!({"alg": "RS256", "typ": "application/at+JWT"}),
        ] {
            assert_eq!(check_header(&header(accepted.clone())), Ok(()), "{accepted}");
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
