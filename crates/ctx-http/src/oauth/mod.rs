//! OAuth 2.1, as the server of what is protected: which access tokens let their bearers in, and where
//! clients learn how to get one (RFC 9728, RFC 6750).
//!
//! Tokens are JWTs that the issuer signed for this server (RFC 9068, RFC 8707). Nothing is asked of the
//! issuer while a request waits, unless a token is signed with a key that is not known yet.

mod issuer;
mod keys;
mod signature;
mod verify;

pub(crate) use verify::Refusal;

use axum::http::HeaderValue;
use ctx_core::{Identity, ScopePolicy};
use issuer::Issuer;
use keys::Keys;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use url::Url;

/// Where a server says what protects it; the path of the resource follows.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// The path that clients expect the resource at.
const USUAL_PATH: &str = "/mcp";
/// What the server is called where people are asked to let a client in.
const RESOURCE_NAME: &str = "Context Harness";

/// Whose tokens are taken, and what for.
#[derive(Clone, Debug)]
pub struct OAuthOptions {
    /// Who signs them, exactly as they name themselves.
    pub issuer: String,
    /// Where the issuer's keys are; found in its metadata when absent.
    pub jwks_url: Option<String>,
    /// This server as clients know it, like `https://ctx.example.com/mcp`.
    pub resource: String,
    /// Whom tokens must be meant for; the resource when absent.
    pub audience: Option<String>,
    /// Scopes without which nobody is let in.
    pub scopes: Vec<String>,
    /// Scopes that some tools need, so that clients know of them.
    pub tool_scopes: Vec<String>,
    /// Bounds on asking the issuer.
    pub limits: OAuthLimits,
}

/// Bounds on asking the issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OAuthLimits {
    /// How long it may take to get the keys, all in all.
    pub fetch_timeout: Duration,
    /// Size of each answer.
    pub answer_bytes: usize,
    /// How often keys are got when all is well.
    pub refresh: Duration,
    /// How long to wait after a failure; doubled with each, up to `refresh`.
    pub retry: Duration,
    /// How often tokens with unknown keys may make us ask.
    pub ask: Duration,
}

impl Default for OAuthLimits {
    fn default() -> Self {
        Self {
            fetch_timeout: Duration::from_secs(10),
            answer_bytes: 256 << 10,
            refresh: Duration::from_secs(600),
            retry: Duration::from_secs(1),
            ask: Duration::from_secs(10),
        }
    }
}

/// An option that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`{value}` is not {wanted}")]
pub struct InvalidOAuth {
    /// Which option.
    pub option: &'static str,
    value: String,
    wanted: &'static str,
}

/// Takes access tokens of one issuer.
#[derive(Debug)]
pub struct OAuth {
    issuer: String,
    audience: String,
    resource: Url,
    resource_text: String,
    metadata_url: String,
    scopes: BTreeSet<String>,
    supported: BTreeSet<String>,
    keys: Keys,
}

impl OAuth {
    /// Understands the options; asks nobody yet.
    pub fn new(options: OAuthOptions) -> Result<Self, InvalidOAuth> {
        let issuer = address("issuer", &options.issuer)?;
        let resource = address("resource", &options.resource)?;
        let jwks_url = options.jwks_url.as_deref().map(|url| address("jwks_url", url)).transpose()?;
        if options.audience.as_ref().is_some_and(String::is_empty) {
            let wanted = "whom tokens are meant for";
            return Err(InvalidOAuth { option: "audience", value: String::new(), wanted });
        }
        let scopes: BTreeSet<String> = options.scopes.into_iter().collect();
        for scope in &scopes {
            ScopePolicy::check_scope(scope).map_err(|_| InvalidOAuth {
                option: "scopes",
                value: scope.clone(),
                wanted: "a scope like `ctx:read`",
            })?;
        }
        let supported = scopes.iter().cloned().chain(options.tool_scopes).collect();
        let mut metadata_url = resource.clone();
        metadata_url.set_path(&format!("{METADATA_PATH}{}", resource.path().trim_end_matches('/')));
        Ok(Self {
            keys: Keys::new(Issuer::new(&options.issuer, issuer, jwks_url, options.limits), options.limits),
            issuer: options.issuer,
            audience: options.audience.unwrap_or_else(|| options.resource.clone()),
            resource,
            resource_text: options.resource,
            metadata_url: metadata_url.into(),
            scopes,
            supported,
        })
    }

    /// The host of the resource, a name to be called by.
    pub fn host(&self) -> &str {
        self.resource.host_str().unwrap_or_default()
    }

    /// Every scope there is here: what whoever may do everything was granted.
    pub(crate) fn everything(&self, subject: &str) -> Identity {
        Identity { subject: subject.to_owned(), scopes: self.supported.clone() }
    }

    /// The scopes without which nobody is let in, where this bearer lacks one.
    pub(crate) fn lacking(&self, identity: &Identity) -> Option<&BTreeSet<String>> {
        (!self.scopes.is_subset(&identity.scopes)).then_some(&self.scopes)
    }

    /// Whether a path is one at which the metadata is.
    pub(crate) fn is_metadata(&self, path: &str) -> bool {
        path.strip_prefix(METADATA_PATH)
            .is_some_and(|rest| ["", USUAL_PATH, self.resource.path().trim_end_matches('/')].contains(&rest))
    }

    /// What clients must know to get a token.
    pub(crate) fn metadata(&self) -> Value {
        json!({
            "resource": self.resource_text,
            "resource_name": RESOURCE_NAME,
            "authorization_servers": [self.issuer],
            "scopes_supported": self.supported,
            "bearer_methods_supported": ["header"],
        })
    }

    /// `WWW-Authenticate` for who showed no token.
    pub(crate) fn challenge(&self) -> HeaderValue {
        self.header(&self.scopes, None)
    }

    /// The same for who showed one that is not taken.
    pub(crate) fn invalid_token(&self, why: &str) -> HeaderValue {
        self.header(&self.scopes, Some(("invalid_token", why)))
    }

    /// The same for who may not do this with it.
    pub(crate) fn insufficient_scope<'a>(&self, needed: impl IntoIterator<Item = &'a String>) -> HeaderValue {
        self.header(needed, Some(("insufficient_scope", "more scopes are needed")))
    }

    fn header<'a>(
        &self,
        scopes: impl IntoIterator<Item = &'a String>,
        error: Option<(&str, &str)>,
    ) -> HeaderValue {
        let mut text = format!("Bearer resource_metadata=\"{}\"", self.metadata_url);
        let scopes: Vec<&str> = scopes.into_iter().map(String::as_str).collect();
        if !scopes.is_empty() {
            text.push_str(&format!(", scope=\"{}\"", scopes.join(" ")));
        }
        if let Some((error, why)) = error {
            text.push_str(&format!(", error=\"{error}\", error_description=\"{why}\""));
        }
        // All of it was checked or is ours, so this never falls back.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// Gets the issuer's keys, again and again; never ends.
    pub(crate) async fn keep_fresh(&self) {
        self.keys.keep_fresh().await;
    }
}

/// An address that can be trusted to be what it says: by TLS, or because it is this machine.
fn address(option: &'static str, text: &str) -> Result<Url, InvalidOAuth> {
    let wanted = "an address like `https://login.example.com` (http is for loopback only)";
    let url = Url::parse(text).ok().filter(is_trusted);
    let url =
        url.filter(|url| url.fragment().is_none() && url.username().is_empty() && url.password().is_none());
    url.ok_or_else(|| InvalidOAuth { option, value: text.to_owned(), wanted })
}

fn is_trusted(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    let loopback = host == "localhost" || literal.is_ok_and(|address| address.is_loopback());
    url.scheme() == "https" || (url.scheme() == "http" && loopback)
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
            assert!(oauth.is_metadata(Url::parse(url).unwrap().path()));
            assert!(oauth.is_metadata(METADATA_PATH));
            assert!(!oauth.is_metadata(&format!("{METADATA_PATH}/other")));
            assert!(!oauth.is_metadata("/health"));
            assert_eq!(oauth.metadata()["resource"], resource, "as it was written");
        }
    }

    #[test]
    fn a_challenge_names_what_is_needed() {
        let oauth = OAuth::new(options("https://login.example", "https://a.example/mcp")).unwrap();
        let place = "Bearer resource_metadata=\"https://a.example/.well-known/oauth-protected-resource/mcp\"";
        assert_eq!(oauth.challenge(), format!("{place}, scope=\"ctx:read\""));
        assert_eq!(
            oauth.insufficient_scope(&["a".to_owned(), "b".to_owned()]),
            format!(
                "{place}, scope=\"a b\", error=\"insufficient_scope\", error_description=\"more scopes are needed\""
            )
        );
    }
}
