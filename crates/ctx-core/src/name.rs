//! Tool names: `provider.tool`, both valid Luau identifiers.
//!
//! Lists, search, documentation, calls and logs use the same canonical name. Only this module turns other names into
//! identifiers, and numbers names that collide.

use crate::BuiltinProvider;
use std::collections::HashMap;
use std::fmt;

/// Maximum length of an outward name; many MCP clients reject longer ones.
const OUTWARD_LENGTH_MAX: usize = 64;

/// Reserved words of Lua 5.4 and Luau; none can be a field name after a dot.
const KEYWORDS: [&str; 22] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// A name that Luau accepts as a field after a dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identifier(String);

impl Identifier {
    /// Turns any text into an identifier: `data-server` becomes `data_server`, `123service` becomes `_123service`,
    /// `while` becomes `_while`.
    pub fn sanitize(raw: &str) -> Self {
        let mut name: String =
            raw.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
        let starts_badly = name.chars().next().is_none_or(|c| c.is_ascii_digit());
        if starts_badly || KEYWORDS.contains(&name.as_str()) {
            name.insert(0, '_');
        }
        Self(name)
    }

    /// Turns each raw name into a unique identifier, in order; a second `x` becomes `x_2`.
    pub fn sanitize_all<'a>(raw_names: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        // Each name with the next number to try: thousands of raw names may collide, and must not take quadratic time.
        let mut taken: HashMap<String, usize> = HashMap::new();
        let mut names = Vec::new();
        for raw in raw_names {
            let base = Self::sanitize(raw);
            let mut name = base.clone();
            if let Some(first) = taken.get(&base.0) {
                let mut ordinal = *first;
                while taken.contains_key(&name.0) {
                    name = Self(format!("{}_{ordinal}", base.0));
                    ordinal += 1;
                }
                taken.insert(base.0, ordinal);
            }
            taken.insert(name.0.clone(), 2);
            names.push(name);
        }
        names
    }

    /// The identifier; if it is longer than 64 characters, its start and a hash of the whole.
    pub fn shortened(&self) -> Self {
        Self(cut(&self.0))
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Identifier {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let identifier = Self::sanitize(text);
        if identifier.0 == text {
            Ok(identifier)
        } else {
            Err(InvalidName { name: text.to_owned(), suggestion: identifier.0 })
        }
    }
}

/// A text that is not a valid identifier.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` is not a valid name; `{suggestion}` would be")]
pub struct InvalidName {
    name: String,
    suggestion: String,
}

/// The full name of a tool: `provider.tool`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolName {
    provider: Identifier,
    tool: Identifier,
}

impl ToolName {
    /// Joins the identifiers of a provider and of its tool.
    pub fn new(provider: Identifier, tool: Identifier) -> Self {
        Self { provider, tool }
    }

    /// Identifier of the provider.
    pub fn provider(&self) -> &Identifier {
        &self.provider
    }

    /// Identifier of the tool within its provider.
    pub fn tool(&self) -> &Identifier {
        &self.tool
    }

    /// The name that clients see, at most 64 characters: bare for built-in functions (`search`), `server__tool` for all
    /// others.
    pub fn outward(&self) -> String {
        if BuiltinProvider::from_name(self.provider.as_str()).is_some_and(BuiltinProvider::has_bare_names) {
            return cut(self.tool.as_str());
        }
        cut(&format!("{}__{}", self.provider, self.tool))
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.provider, self.tool)
    }
}

/// Shortens a long name; a hash of the whole keeps long names apart.
fn cut(name: &str) -> String {
    if name.len() <= OUTWARD_LENGTH_MAX {
        return name.to_owned();
    }
    let digest = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes());
    let suffix = &digest.simple().to_string()[..8];
    format!("{}_{suffix}", &name[..OUTWARD_LENGTH_MAX - 9])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_follow_the_documented_examples() {
        for (raw, expected) in [
            ("data-server", "data_server"),
            ("my.api", "my_api"),
            ("123service", "_123service"),
            ("while", "_while"),
            ("local", "_local"),
            ("", "_"),
            ("größe", "gr__e"),
        ] {
            assert_eq!(Identifier::sanitize(raw).as_str(), expected, "{raw}");
        }
    }

    #[test]
    fn colliding_names_are_numbered_in_order() {
        let names = Identifier::sanitize_all(["a-b", "a.b", "a_b", "a_b_2"]);
        let names: Vec<_> = names.iter().map(Identifier::as_str).collect();
        assert_eq!(names, ["a_b", "a_b_2", "a_b_3", "a_b_2_2"]);
    }

    #[test]
    fn very_many_names_that_collide_are_numbered_soon() {
        let names = Identifier::sanitize_all(std::iter::repeat_n("a", 50_000));
        assert_eq!(names[49_999].as_str(), "a_50000");
    }

    #[test]
    fn our_own_tools_are_bare_outside() {
        let name = |provider: &str, tool: &str| {
            ToolName::new(Identifier::sanitize(provider), Identifier::sanitize(tool)).outward()
        };
        assert_eq!(name("context", "search"), "search");
        assert_eq!(name("github", "create_issue"), "github__create_issue");
        assert_eq!(name("github", &"x".repeat(100)).len(), OUTWARD_LENGTH_MAX);
        assert_ne!(name("g", &"x".repeat(100)), name("g", &"x".repeat(101)));
    }

    proptest! {
        #[test]
        fn every_text_becomes_an_identifier_that_stays_itself(raw in ".{0,40}") {
            let identifier = Identifier::sanitize(&raw);
            let text = identifier.as_str();
            prop_assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
            prop_assert!(!text.starts_with(|c: char| c.is_ascii_digit()) && !text.is_empty());
            prop_assert!(!KEYWORDS.contains(&text));
            prop_assert_eq!(&Identifier::sanitize(text), &identifier);
        }

        #[test]
        fn no_two_of_a_list_share_a_name(raw in proptest::collection::vec("[a-c.-]{0,3}", 0..30)) {
            let names = Identifier::sanitize_all(raw.iter().map(String::as_str));
            let distinct: std::collections::HashSet<_> = names.iter().collect();
            prop_assert_eq!(distinct.len(), raw.len());
        }
    }
}
