//! Access control settings of the server, and the check that they suffice for the address it listens on.

use crate::OAuth;
use ctx_core::Secret;
use ring::rand::{SecureRandom, SystemRandom};
use std::net::IpAddr;
use std::sync::Arc;

/// Characters of the shortest bearer token that is accepted on an address other than loopback.
pub const TOKEN_LENGTH_MIN: usize = 16;

/// Random bytes of a generated token.
const TOKEN_BYTES: usize = 24;

/// Authentication and origin settings.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Static bearer token. Without one, and without `oauth`, there is no authentication.
    pub token: Option<Secret>,
    /// OAuth issuer whose access tokens are accepted, too.
    pub oauth: Option<Arc<OAuth>>,
    /// Accepted `Host` names, besides loopback and the server's own address.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call (CORS), like `https://app.example.com`.
    pub allowed_origins: Vec<String>,
}

/// A server on a non-loopback address lacks authentication, or has a weak token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnprotectedServer {
    /// There is no authentication.
    #[error("can be reached from outside, and there is no token")]
    NoToken,
    /// The bearer token can be guessed.
    #[error("can be reached from outside, and `server.token` is shorter than {TOKEN_LENGTH_MIN} characters")]
    ShortToken,
}

impl UnprotectedServer {
    /// Checks that a server on this address has authentication: a bearer token or OAuth (`has_oauth`). A
    /// short token is refused even with OAuth, because it is accepted besides access tokens.
    pub fn check(address: IpAddr, token: Option<&Secret>, has_oauth: bool) -> Result<(), Self> {
        match token {
            _ if address.to_canonical().is_loopback() => Ok(()),
            None if has_oauth => Ok(()),
            None => Err(Self::NoToken),
            Some(token) if token.expose().chars().count() < TOKEN_LENGTH_MIN => Err(Self::ShortToken),
            Some(_) => Ok(()),
        }
    }
}

/// A random bearer token to suggest where none is configured; `None` if the system's random generator fails.
pub fn generate_token() -> Option<Secret> {
    let mut bytes = [0; TOKEN_BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(Secret::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, token: Option<&str>, has_oauth: bool) -> Result<(), UnprotectedServer> {
        UnprotectedServer::check(address.parse().unwrap(), token.map(Secret::new).as_ref(), has_oauth)
    }

    #[test]
    fn a_public_address_needs_a_token_that_cannot_be_guessed() {
        let (short, long) = (Some("fifteen letters"), Some("sixteen letters!"));
        for address in ["0.0.0.0", "::", "192.168.1.7", "2001:db8::1", "::ffff:10.0.0.1"] {
            assert_eq!(check(address, None, false), Err(UnprotectedServer::NoToken), "{address}");
            assert_eq!(check(address, short, false), Err(UnprotectedServer::ShortToken), "{address}");
            assert_eq!(check(address, short, true), Err(UnprotectedServer::ShortToken), "{address}");
            assert_eq!(check(address, None, true), Ok(()), "{address}");
            assert_eq!(check(address, long, false), Ok(()), "{address}");
        }
        // The length is in characters, not bytes.
        assert_eq!(check("0.0.0.0", Some("ääääääääää"), false), Err(UnprotectedServer::ShortToken));
    }

    #[test]
    fn a_loopback_address_needs_nothing() {
        for address in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(check(address, None, false), Ok(()), "{address}");
            assert_eq!(check(address, Some("short"), false), Ok(()), "{address}");
        }
    }

    #[test]
    fn generated_tokens_are_long_and_differ() {
        let (one, other) = (generate_token().unwrap(), generate_token().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.expose().len(), 2 * TOKEN_BYTES);
        assert_eq!(UnprotectedServer::check("0.0.0.0".parse().unwrap(), Some(&one), false), Ok(()));
    }
}
