//! OAuth 2.1 resource server: which access tokens are accepted, and where clients learn how to get one (RFC
//! 9728, RFC 6750).
//!
//! Tokens are JWTs that the issuer signed for this server (RFC 9068, RFC 8707). Their verification is local:
//! a request only waits for the issuer if its token is signed with an unknown key.

mod issuer;
mod keys;
mod signature;
mod verify;

pub(crate) use verify::TokenError;

use axum::http::HeaderValue;
use ctx_core::{Identity, ScopePolicy};
use issuer::Issuer;
use keys::IssuerKeys;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use url::Url;

/// Well-known path of the protected resource metadata; the path of the resource follows.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// The path of the resource that clients expect.
const DEFAULT_RESOURCE_PATH: &str = "/mcp";
/// Name of the server on the consent screen.
const RESOURCE_NAME: &str = "Context Harness";

/// The settings of OAuth: the issuer whose access tokens are accepted, and the scopes they need.
#[derive(Clone, Debug)]
pub struct OAuthOptions {
    /// The issuer identifier, exactly as the issuer states it.
    pub issuer: String,
    /// URL of the issuer's keys (JWKS); taken from its metadata when absent.
    pub jwks_url: Option<String>,
    /// Resource identifier: the URL of this server as clients know it, like `https://ctx.example.com/mcp`.
    pub resource: String,
    /// Audience that tokens must have; the resource when absent.
    pub audience: Option<String>,
    /// Scopes that every request needs.
    pub scopes: Vec<String>,
    /// Scopes that some tools need; listed in the metadata so that clients can request them.
    pub tool_scopes: Vec<String>,
    /// Bounds on requests to the issuer.
    pub limits: OAuthLimits,
}

/// Bounds on requests to the issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OAuthLimits {
    /// Time limit for fetching the keys, metadata included.
    pub fetch_timeout: Duration,
    /// Maximum size of a response, in bytes.
    pub response_bytes: usize,
    /// Interval between refreshes of the keys.
    pub refresh_interval: Duration,
    /// Delay after a failed refresh; doubled with each failure, up to `refresh_interval`.
    pub retry_delay: Duration,
    /// Shortest interval between refreshes that tokens with unknown keys trigger.
    pub forced_refresh_interval: Duration,
}

impl Default for OAuthLimits {
    fn default() -> Self {
        Self {
            fetch_timeout: Duration::from_secs(10),
            response_bytes: 256 << 10,
            refresh_interval: Duration::from_secs(600),
            retry_delay: Duration::from_secs(1),
            forced_refresh_interval: Duration::from_secs(10),
        }
    }
}

/// An option that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`{value}` is not {expected}")]
pub struct InvalidOAuthOption {
    /// Name of the option.
    pub option: &'static str,
    value: String,
    expected: &'static str,
}

/// Verifies the access tokens of one issuer.
#[derive(Debug)]
pub struct OAuth {
    issuer: String,
    audience: String,
    resource: Url,
    resource_text: String,
    metadata_url: String,
    scopes: BTreeSet<String>,
    supported_scopes: BTreeSet<String>,
    keys: IssuerKeys,
}

impl OAuth {
    /// Checks the options, without I/O.
    pub fn new(options: OAuthOptions) -> Result<Self, InvalidOAuthOption> {
        let issuer = trusted_url("issuer", &options.issuer)?;
        let resource = trusted_url("resource", &options.resource)?;
        let jwks_url = options.jwks_url.as_deref().map(|url| trusted_url("jwks_url", url)).transpose()?;
        if options.audience.as_ref().is_some_and(String::is_empty) {
            let expected = "the audience of the tokens";
            return Err(InvalidOAuthOption { option: "audience", value: String::new(), expected });
        }
        let scopes: BTreeSet<String> = options.scopes.into_iter().collect();
        for scope in &scopes {
            ScopePolicy::check_scope(scope).map_err(|_| InvalidOAuthOption {
                option: "scopes",
                value: scope.clone(),
                expected: "a scope like `ctx:read`",
            })?;
        }
        let supported_scopes = scopes.iter().cloned().chain(options.tool_scopes).collect();
        let mut metadata_url = resource.clone();
        metadata_url.set_path(&format!("{METADATA_PATH}{}", resource.path().trim_end_matches('/')));
        Ok(Self {
            keys: IssuerKeys::new(
                Issuer::new(&options.issuer, issuer, jwks_url, options.limits),
                options.limits,
            ),
            issuer: options.issuer,
            audience: options.audience.unwrap_or_else(|| options.resource.clone()),
            resource,
            resource_text: options.resource,
            metadata_url: metadata_url.into(),
            scopes,
            supported_scopes,
        })
    }

    /// The host of the resource: a host name that the server is reached by.
    pub fn host(&self) -> &str {
        self.resource.host_str().unwrap_or_default()
    }

    /// An identity with all scopes that this server knows.
    pub(crate) fn identity_with_all_scopes(&self, subject: &str) -> Identity {
        Identity { subject: subject.to_owned(), scopes: self.supported_scopes.clone() }
    }

    /// The scopes that every request needs, if this identity lacks one of them.
    pub(crate) fn missing_scopes(&self, identity: &Identity) -> Option<&BTreeSet<String>> {
        (!self.scopes.is_subset(&identity.scopes)).then_some(&self.scopes)
    }

    /// Whether a path is that of the protected resource metadata.
    pub(crate) fn is_metadata_path(&self, path: &str) -> bool {
        path.strip_prefix(METADATA_PATH).is_some_and(|rest| {
            ["", DEFAULT_RESOURCE_PATH, self.resource.path().trim_end_matches('/')].contains(&rest)
        })
    }

    /// The protected resource metadata (RFC 9728).
    pub(crate) fn metadata(&self) -> Value {
        json!({
            "resource": self.resource_text,
            "resource_name": RESOURCE_NAME,
            "authorization_servers": [self.issuer],
            "scopes_supported": self.supported_scopes,
            "bearer_methods_supported": ["header"],
        })
    }

    /// `WWW-Authenticate` for a request without a token.
    pub(crate) fn challenge(&self) -> HeaderValue {
        self.challenge_header(&self.scopes, None)
    }

    /// `WWW-Authenticate` for a request whose token is not valid.
    pub(crate) fn invalid_token_challenge(&self, reason: &str) -> HeaderValue {
        self.challenge_header(&self.scopes, Some(("invalid_token", reason)))
    }

    /// `WWW-Authenticate` for a request whose token lacks scopes.
    pub(crate) fn insufficient_scope_challenge<'a>(
        &self,
        required: impl IntoIterator<Item = &'a String>,
    ) -> HeaderValue {
        self.challenge_header(required, Some(("insufficient_scope", "more scopes are needed")))
    }

    fn challenge_header<'a>(
        &self,
        scopes: impl IntoIterator<Item = &'a String>,
        error: Option<(&str, &str)>,
    ) -> HeaderValue {
        let mut text = format!("Bearer resource_metadata=\"{}\"", self.metadata_url);
        let scopes: Vec<&str> = scopes.into_iter().map(String::as_str).collect();
        if !scopes.is_empty() {
            text.push_str(&format!(", scope=\"{}\"", scopes.join(" ")));
        }
        if let Some((error, reason)) = error {
            text.push_str(&format!(", error=\"{error}\", error_description=\"{reason}\""));
        }
        // Never falls back: all parts were checked or are constants.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// Refreshes the issuer's keys; never ends.
    pub(crate) async fn keep_keys_fresh(&self) {
        self.keys.keep_fresh().await;
    }
}

/// A URL that is authenticated by TLS, or is on this machine (loopback).
fn trusted_url(option: &'static str, text: &str) -> Result<Url, InvalidOAuthOption> {
    let expected = "a URL like `https://login.example.com` (http is for loopback only)";
    let url = Url::parse(text).ok().filter(is_trusted);
    let url =
        url.filter(|url| url.fragment().is_none() && url.username().is_empty() && url.password().is_none());
    url.ok_or_else(|| InvalidOAuthOption { option, value: text.to_owned(), expected })
}

fn is_trusted(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    let is_loopback = host == "localhost" || literal.is_ok_and(|address| address.is_loopback());
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(issuer: &str, resource: &str) -> OAuthOptions {
        OAuthOptions {
            issuer: issuer.to_owned(),
            jwks_url: None,
            resource: resource.to_owned(),
            audience: None,
            scopes: vec!["ctx:read".to_owned()],
            tool_scopes: vec!["ctx:write".to_owned()],
            limits: OAuthLimits::default(),
        }
    }

    #[test]
    fn an_address_is_secure_or_on_this_machine() {
        for good in ["https://a.example/x/", "http://127.0.0.1:1", "http://localhost/x", "http://[::1]:1"] {
            assert!(OAuth::new(options(good, good)).is_ok(), "{good}");
        }
        for bad in [
            "http://a.example",
            "http://127.0.0.1.example",
            "a.example",
            "",
            "file:///x",
            "https://",
            "https://a.example/#x",
            "https://me:secret@a.example",
            "http://10.0.0.1",
        ] {
            let refused = OAuth::new(options(bad, "https://a.example/mcp"));
            assert_eq!(refused.err().map(|error| error.option), Some("issuer"), "{bad}");
            let refused = OAuth::new(options("https://a.example", bad));
            assert_eq!(refused.err().map(|error| error.option), Some("resource"), "{bad}");
        }
    }

    #[test]
    fn metadata_is_where_the_resource_says() {
        for (resource, url) in [
            ("https://a.example/mcp", "https://a.example/.well-known/oauth-protected-resource/mcp"),
            ("https://a.example", "https://a.example/.well-known/oauth-protected-resource"),
            (
                "https://a.example:8443/team/mcp",
                "https://a.example:8443/.well-known/oauth-protected-resource/team/mcp",
            ),
        ] {
            let oauth = OAuth::new(options("https://login.example", resource)).unwrap();
            assert_eq!(oauth.metadata_url, url);
            assert!(oauth.is_metadata_path(Url::parse(url).unwrap().path()));
            assert!(oauth.is_metadata_path(METADATA_PATH));
            assert!(!oauth.is_metadata_path(&format!("{METADATA_PATH}/other")));
            assert!(!oauth.is_metadata_path("/health"));
            assert_eq!(oauth.metadata()["resource"], resource, "as it was written");
        }
    }

    #[test]
    fn a_challenge_names_what_is_needed() {
        let oauth = OAuth::new(options("https://login.example", "https://a.example/mcp")).unwrap();
        let prefix =
            "Bearer resource_metadata=\"https://a.example/.well-known/oauth-protected-resource/mcp\"";
        assert_eq!(oauth.challenge(), format!("{prefix}, scope=\"ctx:read\""));
        assert_eq!(
            oauth.insufficient_scope_challenge(&["a".to_owned(), "b".to_owned()]),
            format!(
                "{prefix}, scope=\"a b\", error=\"insufficient_scope\", error_description=\"more scopes are needed\""
            )
        );
    }
}
