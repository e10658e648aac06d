//! `[server.oauth]`: whose access tokens let callers in, and what they may do with them.

use ctx_core::{InvalidScopes, ScopePolicy};
use ctx_http::{InvalidOAuth, OAuth, OAuthLimits, OAuthOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Stands in for the server's own address while that is not known.
const SOME_RESOURCE: &str = "http://127.0.0.1/mcp";

/// `[server.oauth]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OAuthSettings {
    /// The authorization server, exactly as it names itself in its tokens, like
    /// `https://login.example.com/realms/team`; plain http is for loopback only.
    issuer: String,
    /// The server's own address as clients know it, like `https://ctx.example.com/mcp`; where the server
    /// is bound to loopback, that address when absent.
    resource: Option<String>,
    /// What the `aud` of tokens must name; `resource` when absent.
    audience: Option<String>,
    /// Where the issuer's keys are; found in its metadata when absent.
    jwks_url: Option<String>,
    /// Scopes without which a token opens nothing.
    #[serde(default)]
    scopes: Vec<String>,
    /// Scopes that calls of tools need besides, by patterns over their names:
    /// `{ search = ["ctx:read"], "tools.*" = ["ctx:write"] }`. All scopes of every pattern that fits are
    /// needed, for calls inside calls too.
    #[serde(default)]
    tool_scopes: BTreeMap<String, Vec<String>>,
}

impl OAuthSettings {
    /// Whether it says how clients reach the server.
    pub(crate) fn has_resource(&self) -> bool {
        self.resource.is_some()
    }

    /// What takes access tokens, for a server that is at `own` where nothing else is said.
    pub(crate) fn oauth(&self, own: &str) -> Result<OAuth, InvalidOAuth> {
        OAuth::new(OAuthOptions {
            issuer: self.issuer.clone(),
            jwks_url: self.jwks_url.clone(),
            resource: self.resource.clone().unwrap_or_else(|| own.to_owned()),
            audience: self.audience.clone(),
            scopes: self.scopes.clone(),
            tool_scopes: self.tool_scopes.values().flatten().cloned().collect(),
            limits: OAuthLimits::default(),
        })
    }

    /// Which tools need which scopes.
    pub(crate) fn policy(&self) -> Result<ScopePolicy, InvalidScopes> {
        ScopePolicy::new(self.tool_scopes.iter().map(|(pattern, scopes)| (&**pattern, &**scopes)))
    }

    /// What is wrong with them, each with its key.
    pub(super) fn problems(&self) -> Vec<(String, String)> {
        let oauth = self.oauth(SOME_RESOURCE).err();
        let oauth = oauth.map(|error| (format!("server.oauth.{}", error.option), error.to_string()));
        let policy = self.policy().err();
        let policy = policy.map(|error| ("server.oauth.tool_scopes".to_owned(), error.to_string()));
        oauth.into_iter().chain(policy).collect()
    }
}
