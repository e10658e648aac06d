//! Who may call what. The catalog asks; nobody else decides.

use crate::{Caller, ToolName, ToolSpec};
use std::collections::BTreeSet;

/// The answer of a [`Policy`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Go ahead.
    Allow,
    /// No, and this is why.
    Deny(String),
    /// Only for those who were granted all of these scopes, and this caller was not.
    NeedsScopes(BTreeSet<String>),
}

/// Whom a caller has proved to be, and what for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Who it is, as whoever vouches for it names them.
    pub subject: String,
    /// What it was granted.
    pub scopes: BTreeSet<String>,
}

/// Decides before each call, nested ones too.
pub trait Policy: Send + Sync + 'static {
    /// Whether `caller`, who has proved to be `identity` where that was asked, may call this tool.
    fn decide(
        &self,
        tool: &ToolName,
        spec: &ToolSpec,
        caller: &Caller,
        identity: Option<&Identity>,
    ) -> Decision;
}

/// Everyone may call everything: the policy of a workspace that names no other.
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
