//! Scope policy: OAuth scopes that tools require, by patterns over tool names.

use crate::{Caller, Decision, Identity, Policy, ToolName, ToolSpec};
use globset::{Glob, GlobMatcher};
use std::collections::BTreeSet;

/// Requires, for each tool, all scopes of every pattern that matches its full or outward name.
///
/// Applies to authenticated callers, and to all callers over HTTP. Others, such as commands in a terminal, have no
/// scopes and need none.
#[derive(Clone, Debug, Default)]
pub struct ScopePolicy {
    rules: Vec<(GlobMatcher, BTreeSet<String>)>,
}

/// An invalid pattern or scope.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not {1}")]
pub struct InvalidScopes(String, &'static str);

impl ScopePolicy {
    /// Patterns such as `search` or `tools.*`, each with the scopes that it requires.
    pub fn new<'a>(rules: impl IntoIterator<Item = (&'a str, &'a [String])>) -> Result<Self, InvalidScopes> {
        let rule = |(pattern, scopes): (&str, &[String])| {
            let glob = Glob::new(pattern)
                .map_err(|_| InvalidScopes(pattern.to_owned(), "a pattern of tool names like `tools.*`"))?;
            scopes.iter().try_for_each(|scope| Self::check_scope(scope))?;
            Ok((glob.compile_matcher(), scopes.iter().cloned().collect()))
        };
        Ok(Self { rules: rules.into_iter().map(rule).collect::<Result<_, _>>()? })
    }

    /// Checks that a text is a valid scope: printable, without spaces, quotes and backslashes (RFC 6749).
    pub fn check_scope(scope: &str) -> Result<(), InvalidScopes> {
        let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        match !scope.is_empty() && scope.bytes().all(fits) {
            true => Ok(()),
            false => Err(InvalidScopes(scope.to_owned(), "a scope like `ctx:read`")),
        }
    }

    /// All scopes that any tool may require.
    pub fn scopes(&self) -> impl Iterator<Item = &String> {
        self.rules.iter().flat_map(|(_, scopes)| scopes)
    }

    fn required_scopes(&self, tool: &ToolName) -> BTreeSet<String> {
        let (full, outward) = (tool.to_string(), tool.outward());
        let fits = |glob: &GlobMatcher| glob.is_match(&full) || glob.is_match(&outward);
        self.rules.iter().filter(|(glob, _)| fits(glob)).flat_map(|(_, scopes)| scopes.clone()).collect()
    }
}

impl Policy for ScopePolicy {
    fn decide(
        &self,
        tool: &ToolName,
        _: &ToolSpec,
        caller: &Caller,
        identity: Option<&Identity>,
    ) -> Decision {
        if identity.is_none() && *caller != Caller::Http {
            return Decision::Allow;
        }
        let required_scopes = self.required_scopes(tool);
        let granted = |scope: &String| identity.is_some_and(|known| known.scopes.contains(scope));
        if required_scopes.iter().all(granted) {
            Decision::Allow
        } else {
            Decision::NeedsScopes(required_scopes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identifier;
    use proptest::prelude::*;
    use serde_json::json;

    fn policy(rules: &[(&str, &[&str])]) -> ScopePolicy {
        let rules: Vec<(&str, Vec<String>)> = rules
            .iter()
            .map(|(pattern, scopes)| (*pattern, scopes.iter().map(|scope| (*scope).to_owned()).collect()))
            .collect();
        ScopePolicy::new(rules.iter().map(|(pattern, scopes)| (*pattern, scopes.as_slice()))).unwrap()
    }

    fn decide(policy: &ScopePolicy, tool: &str, caller: &Caller, scopes: Option<&[&str]>) -> Decision {
        let (provider, tool) = tool.split_once('.').unwrap();
        let name = ToolName::new(Identifier::sanitize(provider), Identifier::sanitize(tool));
        let identity = scopes.map(|scopes| Identity {
            subject: "ada".to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        });
        policy.decide(&name, &ToolSpec::new(tool, "A tool.", json!({})), caller, identity.as_ref())
    }

    fn needs(scopes: &[&str]) -> Decision {
        Decision::NeedsScopes(scopes.iter().map(|scope| (*scope).to_owned()).collect())
    }

    #[test]
    fn a_tool_needs_all_scopes_of_every_pattern_it_fits() {
        let policy = policy(&[("*", &["all"]), ("tools.*", &["write", "audit"]), ("search", &["read"])]);
        let http = Caller::Http;
        assert_eq!(
            decide(&policy, "tools.a", &http, Some(&["write", "all"])),
            needs(&["all", "audit", "write"])
        );
        assert_eq!(decide(&policy, "tools.a", &http, Some(&["all", "audit", "write"])), Decision::Allow);
        assert_eq!(decide(&policy, "context.search", &http, Some(&["all"])), needs(&["all", "read"]));
        assert_eq!(decide(&policy, "context.search", &http, Some(&["all", "read"])), Decision::Allow);
        assert_eq!(decide(&policy, "context.get", &http, Some(&["all"])), Decision::Allow);
    }

    #[test]
    fn full_and_outward_names_are_both_names() {
        for pattern in ["jira.create", "jira__create", "jira.*", "jira__*", "*create"] {
            let policy = policy(&[(pattern, &["write"])]);
            assert_eq!(
                decide(&policy, "jira.create", &Caller::Http, Some(&[])),
                needs(&["write"]),
                "{pattern}"
            );
            assert_eq!(
                decide(&policy, "jira.list", &Caller::Http, Some(&[])) == Decision::Allow,
                !matches!(pattern, "jira.*" | "jira__*"),
                "{pattern}"
            );
        }
    }

    #[test]
    fn who_has_no_identity_needs_scopes_over_http_alone() {
        let policy = policy(&[("*", &["read"])]);
        assert_eq!(decide(&policy, "context.get", &Caller::Http, None), needs(&["read"]));
        for caller in [Caller::Cli, Caller::Mcp("a client".to_owned()), Caller::Library("mine".to_owned())] {
            assert_eq!(decide(&policy, "context.get", &caller, None), Decision::Allow);
            assert_eq!(decide(&policy, "context.get", &caller, Some(&[])), needs(&["read"]));
        }
    }

    #[test]
    fn what_cannot_be_a_pattern_or_a_scope_is_refused() {
        assert!(ScopePolicy::new([("tools.[", [].as_slice())]).is_err());
        for scope in ["", "a b", "a\"b", "a\\b", "é", "a\n"] {
            assert!(ScopePolicy::new([("*", [scope.to_owned()].as_slice())]).is_err(), "{scope:?}");
        }
    }

    proptest! {
        #[test]
        fn every_pattern_is_read_or_refused(pattern in ".{0,20}", name in "[a-z]{1,8}") {
            if let Ok(policy) = ScopePolicy::new([(pattern.as_str(), ["s".to_owned()].as_slice())]) {
                let decided = decide(&policy, &format!("tools.{name}"), &Caller::Http, Some(&["s"]));
                prop_assert_eq!(decided, Decision::Allow);
            }
        }
    }
}
