//! Checks the `pattern` regular expressions of schemas.
//!
//! Documents write them in the dialects of their own languages. A validator refuses a whole schema because of
//! an expression that it cannot compile, so that nothing would be checked any more.

use ctx_core::ArgumentSchema;
use serde_json::json;
use std::collections::HashMap;

/// Expressions of one description that are compiled, which takes a while for each; any further ones are left
/// out.
const COMPILED_MAX: usize = 2_000;

/// Whether each expression can be compiled; most occur in many schemas.
#[derive(Default)]
pub(super) struct PatternCache(HashMap<String, bool>);

/// The expression without the slashes around it that some languages write; `None` if it can never match as it
/// is.
pub(super) fn strip_slashes(pattern: &str) -> Option<&str> {
    let Some(inside) = pattern.strip_prefix('/').filter(|inside| inside.starts_with('^')) else {
        return Some(pattern);
    };
    let (inside, flags) = inside.rsplit_once('/')?;
    // Other flags change what is matched.
    flags.chars().all(|flag| matches!(flag, 'g' | 'u')).then_some(inside)
}

impl PatternCache {
    /// Whether an expression can be compiled.
    pub(super) fn compiles(&mut self, pattern: &str) -> bool {
        if let Some(known) = self.0.get(pattern) {
            return *known;
        }
        if self.0.len() >= COMPILED_MAX {
            return false;
        }
        let compiled = ArgumentSchema::compile(json!({"pattern": pattern}));
        if let Err(error) = &compiled {
            tracing::debug!("a pattern is ignored: {error}");
        }
        self.0.insert(pattern.to_owned(), compiled.is_ok());
        compiled.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_patterns_are_detected() {
        let mut patterns = PatternCache::default();
        for pattern in ["^a+$", "(?=a)b", "\\d{3}", "^\\p{L}+$", "[\\s\\S]*", "(a)\\1"] {
            assert!(patterns.compiles(pattern), "{pattern}");
        }
        for pattern in ["(", "[a", "a{2,1}", "(?<=a+", "*", "\\p{Nope}"] {
            assert!(!patterns.compiles(pattern), "{pattern}");
            assert!(!patterns.compiles(pattern), "{pattern} again");
        }
    }

    #[test]
    fn slashes_around_a_pattern_are_stripped() {
        for (pattern, expected) in [
            ("/^[a-z]+$/", Some("^[a-z]+$")),
            ("/^a\\/b$/g", Some("^a\\/b$")),
            ("/^a$/i", None),
            ("/^a$", None),
            ("/a/", Some("/a/")),
            ("^/a/$", Some("^/a/$")),
        ] {
            assert_eq!(strip_slashes(pattern), expected, "{pattern}");
        }
    }
}
