//! Authorization: which caller may call which tool. The catalog enforces every decision.

use crate::{Caller, ToolName, ToolSpec};
use std::collections::BTreeSet;

/// The decision of a [`Policy`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// The call is allowed.
    Allow,
    /// The call is denied, for this reason.
    Deny(String),
    /// The call requires all of these scopes, and the caller lacks at least one.
    NeedsScopes(BTreeSet<String>),
}

/// An authenticated caller and its permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Subject, as the issuer of the credentials names it.
    pub subject: String,
    /// Granted scopes.
    pub scopes: BTreeSet<String>,
}

/// Decides whether a call is allowed; asked before each call, nested ones too.
pub trait Policy: Send + Sync + 'static {
    /// Whether `caller`, authenticated as `identity` if there is authentication, may call this tool.
    fn decide(
        &self,
        tool: &ToolName,
        spec: &ToolSpec,
        caller: &Caller,
        identity: Option<&Identity>,
    ) -> Decision;
}

/// Allows every call: the policy of a workspace that configures no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Policy for AllowAll {
    fn decide(&self, _: &ToolName, _: &ToolSpec, _: &Caller, _: Option<&Identity>) -> Decision {
        Decision::Allow
    }
}

impl<F> Policy for F
where
    F: Fn(&ToolName, &ToolSpec, &Caller, Option<&Identity>) -> Decision + Send + Sync + 'static,
{
    fn decide(
        &self,
        tool: &ToolName,
        spec: &ToolSpec,
        caller: &Caller,
        identity: Option<&Identity>,
    ) -> Decision {
        self(tool, spec, caller, identity)
    }
}
