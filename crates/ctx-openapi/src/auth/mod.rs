//! Credentials: which ones an operation's security requirements select, and how they are sent.

mod parse;
mod request_auth;
mod token;

pub use parse::InvalidCredentials;
pub(crate) use parse::caller_credentials;
pub(crate) use request_auth::{Renewal, RequestAuth};
pub(crate) use token::{TokenCache, TokenRequest};

use crate::operation::{Description, Operation, ParameterLocation, SecurityScheme};
use ctx_core::{ErrorKind, Secret, ToolError};
use std::collections::BTreeMap;
use std::fmt;

/// One credential, as configured or as sent by a caller.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// A bearer token, sent as `Authorization: Bearer …`.
    Bearer(Secret),
    /// User name and password of HTTP Basic authentication.
    Basic {
        /// The user name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// An API key, sent where its security scheme says.
    Key(Secret),
    /// Credentials of the OAuth 2.0 client credentials grant, exchanged for access tokens.
    ClientCredentials {
        /// The client id.
        id: String,
        /// The client secret.
        secret: Secret,
        /// Scopes to request; if empty, those that the operation requires.
        scopes: Vec<String>,
        /// Token endpoint that overrides the one in the description.
        token_url: Option<String>,
    },
    /// A text of unspecified type, interpreted by the security scheme: a token, a key, or `user:password`.
    Plain(Secret),
}

/// Prints the variant only: even a user name can be secret, since it may be an API key.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bearer(_) => "Bearer",
            Self::Basic { .. } => "Basic",
            Self::Key(_) => "Key",
            Self::ClientCredentials { .. } => "ClientCredentials",
            Self::Plain(_) => "Plain",
        })
    }
}

/// Credentials for an API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// By the name of the security scheme.
    pub by_scheme: BTreeMap<String, Credential>,
    /// For a security scheme without a credential of its own.
    pub other: Option<Credential>,
}

impl Credentials {
    /// Whether there are no credentials.
    pub fn is_empty(&self) -> bool {
        self.by_scheme.is_empty() && self.other.is_none()
    }
}

/// One credential in the form that its security scheme requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SchemeCredential {
    Bearer(Secret),
    Basic { user: String, password: Secret },
    Key { location: ParameterLocation, name: String, value: Secret },
    Token(TokenRequest),
}

/// Whether no operation of a description names a security scheme.
pub(crate) fn declares_no_security(description: &Description) -> bool {
    let mut alternatives = description.operations.iter().flat_map(|operation| &operation.security);
    alternatives.all(BTreeMap::is_empty)
}

/// Selects the credentials that a request for an operation needs. `schemes` are the security schemes of the
/// description; `declares_no_security` is true if none of its operations names any of them.
pub(crate) fn choose(
    operation: &Operation,
    schemes: &BTreeMap<String, SecurityScheme>,
    declares_no_security: bool,
    credentials: &Credentials,
) -> Result<Vec<SchemeCredential>, ToolError> {
    if operation.security.is_empty() {
        // A description that names no security scheme anywhere has probably forgotten to: credentials that
        // are configured are sent nevertheless.
        let undeclared = declares_no_security.then(|| undeclared_credential(schemes, credentials)).flatten();
        return Ok(undeclared.into_iter().collect());
    }
    let satisfy = |alternative: &BTreeMap<String, Vec<String>>| {
        let mut is_other_used = false;
        let fitted = alternative.iter().map(|(name, scopes)| {
            let scheme = schemes.get(name)?;
            if let Some(own) = credentials.by_scheme.get(name) {
                return fit_to_scheme(scheme, own, scopes);
            }
            // `other` serves one scheme only: the same secret is never sent for two.
            let fitted = credentials.other.as_ref().and_then(|other| fit_to_scheme(scheme, other, scopes));
            fitted.filter(|_| !std::mem::replace(&mut is_other_used, true))
        });
        fitted.collect::<Option<Vec<SchemeCredential>>>()
    };
    // Where credentials are optional, they are sent if available: the service may return more.
    let named = operation.security.iter().filter(|alternative| !alternative.is_empty());
    if let Some(chosen) = named.clone().find_map(satisfy) {
        return Ok(chosen);
    }
    if operation.security.iter().any(BTreeMap::is_empty) {
        return Ok(Vec::new());
    }
    let alternatives: Vec<String> =
        named.map(|alternative| describe_requirement(alternative, schemes)).collect();
    let message = format!(
        "`{}` needs credentials that are not configured: {}; set `auth` or `auth_env` of the API, by the name \
         of the scheme where there is more than one",
        operation.name,
        alternatives.join("; or ")
    );
    Err(ToolError::new(ErrorKind::NotConfigured, message))
}

/// The credential for an API that asks for none: in the form of the first security scheme that it fits, else
/// as a bearer token.
fn undeclared_credential(
    schemes: &BTreeMap<String, SecurityScheme>,
    credentials: &Credentials,
) -> Option<SchemeCredential> {
    let fitting = schemes.iter().find_map(|(name, scheme)| {
        let credential = credentials.by_scheme.get(name).or(credentials.other.as_ref())?;
        fit_to_scheme(scheme, credential, &[])
    });
    fitting.or_else(|| match credentials.other.as_ref()? {
        basic @ Credential::Basic { .. } => fit_to_scheme(&SecurityScheme::Basic, basic, &[]),
        Credential::Bearer(token) | Credential::Key(token) | Credential::Plain(token) => {
            Some(SchemeCredential::Bearer(token.clone()))
        }
        client @ Credential::ClientCredentials { .. } => fit_to_scheme(&SecurityScheme::Bearer, client, &[]),
    })
}

fn fit_to_scheme(
    scheme: &SecurityScheme,
    credential: &Credential,
    scopes: &[String],
) -> Option<SchemeCredential> {
    match (scheme, credential) {
        (
            SecurityScheme::Bearer | SecurityScheme::OtherToken | SecurityScheme::ClientCredentials { .. },
            Credential::Bearer(token) | Credential::Plain(token),
        ) => Some(SchemeCredential::Bearer(token.clone())),
        (SecurityScheme::Basic, Credential::Basic { user, password }) => {
            Some(SchemeCredential::Basic { user: user.clone(), password: password.clone() })
        }
        // A value without `:` is the user name: services that take API keys by HTTP Basic expect it there.
        (SecurityScheme::Basic, Credential::Plain(both)) => {
            let (user, password) = both.expose().split_once(':').unwrap_or((both.expose(), ""));
            Some(SchemeCredential::Basic { user: user.to_owned(), password: Secret::new(password) })
        }
        (SecurityScheme::Key { location: ParameterLocation::Path, .. }, _) => None,
        (SecurityScheme::Key { location, name }, Credential::Key(value) | Credential::Plain(value)) => {
            Some(SchemeCredential::Key { location: *location, name: name.clone(), value: value.clone() })
        }
        (
            SecurityScheme::Bearer | SecurityScheme::OtherToken | SecurityScheme::ClientCredentials { .. },
            Credential::ClientCredentials { id, secret, scopes: own, token_url },
        ) => {
            let described = match scheme {
                SecurityScheme::ClientCredentials { token_url, .. } => Some(token_url),
                _ => None,
            };
            Some(SchemeCredential::Token(TokenRequest {
                // Without a token endpoint, no token can be requested.
                token_url: token_url.as_ref().or(described)?.clone(),
                is_from_description: token_url.is_none(),
                id: id.clone(),
                secret: secret.clone(),
                scopes: if own.is_empty() { scopes.to_vec() } else { own.clone() },
            }))
        }
        _ => None,
    }
}

fn describe_requirement(
    alternative: &BTreeMap<String, Vec<String>>,
    schemes: &BTreeMap<String, SecurityScheme>,
) -> String {
    let descriptions: Vec<String> = alternative
        .keys()
        .map(|name| {
            let form = match schemes.get(name) {
                Some(SecurityScheme::Bearer | SecurityScheme::OtherToken) => "a bearer token".to_owned(),
                Some(SecurityScheme::Basic) => "a user and a password".to_owned(),
                Some(SecurityScheme::Key { location, name }) => {
                    let location = match location {
                        ParameterLocation::Query => "the query",
                        ParameterLocation::Cookie => "the cookie",
                        _ => "the header",
                    };
                    format!("a key for {location} `{name}`")
                }
                Some(SecurityScheme::ClientCredentials { .. }) => {
                    "a client's id and secret, or a bearer token".to_owned()
                }
                Some(SecurityScheme::Unknown(kind)) => {
                    format!("of the kind `{kind}`, which is not supported")
                }
                None => "which the document does not describe".to_owned(),
            };
            format!("`{name}` ({form})")
        })
        .collect();
    descriptions.join(" and ")
}

#[cfg(test)]
mod tests;
