//! `[server.oauth]`: requires callers to sign in with access tokens of an OAuth authorization server.

use ctx_core::{InvalidScopes, ScopePolicy};
use ctx_http::{InvalidOAuthOption, OAuth, OAuthLimits, OAuthOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Placeholder for the server's own URL while settings are validated.
const PLACEHOLDER_RESOURCE: &str = "http://127.0.0.1/mcp";

/// `[server.oauth]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OAuthSettings {
    /// The issuer: the authorization server's URL, exactly as in the `iss` claim of its tokens, such as
    /// `https://login.example.com/realms/team`; plain http for loopback only.
    issuer: String,
    /// The server's own URL as clients know it, such as `https://ctx.example.com/mcp`; when absent, the
    /// loopback address that the server is bound to.
    resource: Option<String>,
    /// The audience that the `aud` claim of tokens must name; `resource` when absent.
    audience: Option<String>,
    /// The URL of the issuer's keys (JWKS); discovered from its metadata when absent.
    jwks_url: Option<String>,
    /// Scopes that every token needs.
    #[serde(default)]
    scopes: Vec<String>,
    /// Further scopes that calls of tools need, by patterns over tool names: `{ search = ["ctx:read"],
    /// "tools.*" = ["ctx:write"] }`. A call needs the scopes of all patterns that match, and so do nested
    /// calls.
    #[serde(default)]
    tool_scopes: BTreeMap<String, Vec<String>>,
}

impl OAuthSettings {
    /// Whether the server's public URL is configured.
    pub(crate) fn has_resource(&self) -> bool {
        self.resource.is_some()
    }

    /// The validator of access tokens; `server_url` is the server's URL if none is configured.
    pub(crate) fn token_validator(&self, server_url: &str) -> Result<OAuth, InvalidOAuthOption> {
        OAuth::new(OAuthOptions {
            issuer: self.issuer.clone(),
            jwks_url: self.jwks_url.clone(),
            resource: self.resource.clone().unwrap_or_else(|| server_url.to_owned()),
            audience: self.audience.clone(),
            scopes: self.scopes.clone(),
            tool_scopes: self.tool_scopes.values().flatten().cloned().collect(),
            limits: OAuthLimits::default(),
        })
    }

    /// The scopes that tools require.
    pub(crate) fn policy(&self) -> Result<ScopePolicy, InvalidScopes> {
        ScopePolicy::new(self.tool_scopes.iter().map(|(pattern, scopes)| (&**pattern, &**scopes)))
    }

    /// Invalid keys and their problems.
    pub(super) fn problems(&self) -> Vec<(String, String)> {
        let oauth = self.token_validator(PLACEHOLDER_RESOURCE).err();
        let oauth = oauth.map(|error| (format!("server.oauth.{}", error.option), error.to_string()));
        let policy = self.policy().err();
        let policy = policy.map(|error| ("server.oauth.tool_scopes".to_owned(), error.to_string()));
        oauth.into_iter().chain(policy).collect()
    }
}
