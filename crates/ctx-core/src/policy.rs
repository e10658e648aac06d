//! Who may call what. The catalog asks; nobody else decides.

use crate::{Caller, ToolName, ToolSpec};

/// The answer of a [`Policy`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Go ahead.
    Allow,
    /// No, and this is why.
    Deny(String),
}

/// Decides before each call, nested ones too.
pub trait Policy: Send + Sync + 'static {
    /// Whether `caller` may call this tool.
    fn decide(&self, tool: &ToolName, spec: &ToolSpec, caller: &Caller) -> Decision;
}

/// Everyone may call everything: the policy of a workspace that names no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

impl Policy for AllowAll {
    fn decide(&self, _: &ToolName, _: &ToolSpec, _: &Caller) -> Decision {
        Decision::Allow
    }
}

impl<F> Policy for F
where
    F: Fn(&ToolName, &ToolSpec, &Caller) -> Decision + Send + Sync + 'static,
{
    fn decide(&self, tool: &ToolName, spec: &ToolSpec, caller: &Caller) -> Decision {
        self(tool, spec, caller)
    }
}
