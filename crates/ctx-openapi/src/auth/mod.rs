//! Credentials: which ones an operation's security requirements select, and how they are sent.

mod pass;
mod read;
mod token;

pub(crate) use pass::Pass;
pub use read::InvalidCredentials;
pub(crate) use read::of_call;
pub(crate) use token::{Tokens, Wanted};

use crate::operation::{Description, Operation, Place, Scheme};
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
pub(crate) enum Grant {
    Bearer(Secret),
    Basic { user: String, password: Secret },
    Key { place: Place, name: String, value: Secret },
    Token(Wanted),
}

/// Whether no operation of a description names a security scheme.
pub(crate) fn is_silent(description: &Description) -> bool {
    let mut ways = description.operations.iter().flat_map(|operation| &operation.security);
    ways.all(BTreeMap::is_empty)
}

/// Selects the credentials that a request for an operation needs. `schemes` are the security schemes of the
/// description; `is_silent` is true if none of its operations names any of them.
pub(crate) fn choose(
    operation: &Operation,
    schemes: &BTreeMap<String, Scheme>,
    is_silent: bool,
    credentials: &Credentials,
) -> Result<Vec<Grant>, ToolError> {
    if operation.security.is_empty() {
        // A description that names no security scheme anywhere has probably forgotten to: credentials that
        // are configured are sent nevertheless.
        let forgotten = is_silent.then(|| unasked(schemes, credentials)).flatten();
        return Ok(forgotten.into_iter().collect());
    }
    let satisfied = |alternative: &BTreeMap<String, Vec<String>>| {
        let mut is_other_used = false;
        let grants = alternative.iter().map(|(name, scopes)| {
            let scheme = schemes.get(name)?;
            if let Some(own) = credentials.by_scheme.get(name) {
                return grant(scheme, own, scopes);
            }
            // `other` serves one scheme only: the same secret is never sent for two.
            let grant = credentials.other.as_ref().and_then(|other| grant(scheme, other, scopes));
            grant.filter(|_| !std::mem::replace(&mut is_other_used, true))
        });
        grants.collect::<Option<Vec<Grant>>>()
    };
    // Where credentials are optional, they are sent if available: the service may return more.
    let named = operation.security.iter().filter(|alternative| !alternative.is_empty());
    if let Some(grants) = named.clone().find_map(satisfied) {
        return Ok(grants);
    }
    if operation.security.iter().any(BTreeMap::is_empty) {
        return Ok(Vec::new());
    }
    let ways: Vec<String> = named.map(|alternative| described(alternative, schemes)).collect();
    let message = format!(
        "`{}` needs credentials that are not configured: {}; set `auth` or `auth_env` of the API, by the name \
         of the scheme where there is more than one",
        operation.name,
        ways.join("; or ")
    );
    Err(ToolError::new(ErrorKind::NotConfigured, message))
}

/// The credential for an API that asks for none: in the form of the first security scheme that it fits, else
/// as a bearer token.
fn unasked(schemes: &BTreeMap<String, Scheme>, credentials: &Credentials) -> Option<Grant> {
    let fitting = schemes.iter().find_map(|(name, scheme)| {
        let credential = credentials.by_scheme.get(name).or(credentials.other.as_ref())?;
        grant(scheme, credential, &[])
    });
    fitting.or_else(|| match credentials.other.as_ref()? {
        basic @ Credential::Basic { .. } => grant(&Scheme::Basic, basic, &[]),
        Credential::Bearer(token) | Credential::Key(token) | Credential::Plain(token) => {
            Some(Grant::Bearer(token.clone()))
        }
        client @ Credential::ClientCredentials { .. } => grant(&Scheme::Bearer, client, &[]),
    })
}

fn grant(scheme: &Scheme, credential: &Credential, scopes: &[String]) -> Option<Grant> {
    match (scheme, credential) {
        (
            Scheme::Bearer | Scheme::OtherToken | Scheme::ClientCredentials { .. },
            Credential::Bearer(token) | Credential::Plain(token),
        ) => Some(Grant::Bearer(token.clone())),
        (Scheme::Basic, Credential::Basic { user, password }) => {
            Some(Grant::Basic { user: user.clone(), password: password.clone() })
        }
        // A value without `:` is the user name: services that take API keys by HTTP Basic expect it there.
        (Scheme::Basic, Credential::Plain(both)) => {
            let (user, password) = both.expose().split_once(':').unwrap_or((both.expose(), ""));
            Some(Grant::Basic { user: user.to_owned(), password: Secret::new(password) })
        }
        (Scheme::Key { place: Place::Path, .. }, _) => None,
        (Scheme::Key { place, name }, Credential::Key(value) | Credential::Plain(value)) => {
            Some(Grant::Key { place: *place, name: name.clone(), value: value.clone() })
        }
        (
            Scheme::Bearer | Scheme::OtherToken | Scheme::ClientCredentials { .. },
            Credential::ClientCredentials { id, secret, scopes: own, token_url },
        ) => {
            let described = match scheme {
                Scheme::ClientCredentials { token_url, .. } => Some(token_url),
                _ => None,
            };
            Some(Grant::Token(Wanted {
                // Without a token endpoint, no token can be requested.
                token_url: token_url.as_ref().or(described)?.clone(),
                is_described: token_url.is_none(),
                id: id.clone(),
                secret: secret.clone(),
                scopes: if own.is_empty() { scopes.to_vec() } else { own.clone() },
            }))
        }
        _ => None,
    }
}

fn described(alternative: &BTreeMap<String, Vec<String>>, schemes: &BTreeMap<String, Scheme>) -> String {
    let described: Vec<String> = alternative
        .keys()
        .map(|name| {
            let what = match schemes.get(name) {
                Some(Scheme::Bearer | Scheme::OtherToken) => "a bearer token".to_owned(),
                Some(Scheme::Basic) => "a user and a password".to_owned(),
                Some(Scheme::Key { place, name }) => {
                    let place = match place {
                        Place::Query => "the query",
                        Place::Cookie => "the cookie",
                        _ => "the header",
                    };
                    format!("a key for {place} `{name}`")
                }
                Some(Scheme::ClientCredentials { .. }) => {
                    "a client's id and secret, or a bearer token".to_owned()
                }
                Some(Scheme::Unknown(kind)) => format!("of the kind `{kind}`, which is not supported"),
                None => "which the document does not describe".to_owned(),
            };
            format!("`{name}` ({what})")
        })
        .collect();
    described.join(" and ")
}

#[cfg(test)]
mod tests;
