//! Credentials: which an operation gets, and how they are sent.

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

/// What lets us in.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// A token, sent as `Authorization: Bearer …`.
    Bearer(Secret),
    /// A name and a password.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A key, sent where the document says.
    Key(Secret),
    /// What tokens are got with.
    ClientCredentials {
        /// The client's id.
        id: String,
        /// The client's secret.
        secret: Secret,
        /// What to be granted; where there is none, what the operation asks for.
        scopes: Vec<String>,
        /// Where tokens are got, over what the document says.
        token_url: Option<String>,
    },
    /// Whatever the document's scheme takes it for: a token, a key, or `user:password`.
    Plain(Secret),
}

/// Its kind only: a name that goes without a password is a key.
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
    /// By the name of the scheme.
    pub by_scheme: BTreeMap<String, Credential>,
    /// For a scheme that has none of its own.
    pub other: Option<Credential>,
}

impl Credentials {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_scheme.is_empty() && self.other.is_none()
    }
}

/// One thing that is added to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    Bearer(Secret),
    Basic { user: String, password: Secret },
    Key { place: Place, name: String, value: Secret },
    Token(Wanted),
}

/// Whether a document asks for credentials nowhere.
pub(crate) fn is_silent(description: &Description) -> bool {
    let mut ways = description.operations.iter().flat_map(|operation| &operation.security);
    ways.all(BTreeMap::is_empty)
}

/// What to add to a request for an operation. `schemes` are all that the document has; `is_silent` where none of
/// its operations asks for any of them.
pub(crate) fn choose(
    operation: &Operation,
    schemes: &BTreeMap<String, Scheme>,
    is_silent: bool,
    credentials: &Credentials,
) -> Result<Vec<Grant>, ToolError> {
    if operation.security.is_empty() {
        // A document that asks for credentials nowhere has forgotten to, if somebody has them.
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
            // One secret is not meant for two schemes.
            let grant = credentials.other.as_ref().and_then(|other| grant(scheme, other, scopes));
            grant.filter(|_| !std::mem::replace(&mut is_other_used, true))
        });
        grants.collect::<Option<Vec<Grant>>>()
    };
    // Where anybody is let in, one who can prove more is let in further.
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

/// A credential that no operation asks for: as the first scheme has it that it fits, else as a token.
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
        // A key alone stands for the user, as services have it that take keys this way.
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
                // Where nobody says where tokens are to be got, there are none.
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
