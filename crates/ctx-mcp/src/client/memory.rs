//! Definitions of servers that outlive the program: the one seen last, and the one that was accepted.

use super::definition::ServerDefinition;
use super::difference::Difference;
use super::settings::{ToolFilter, Transport, UpstreamSettings};
use ctx_core::Identifier;
use std::ffi::OsStr;

/// Why something cannot be remembered.
pub type MemoryError = Box<dyn std::error::Error + Send + Sync>;

/// Persistent storage of server definitions. It may block.
pub trait Memory: Send + Sync + 'static {
    /// What is remembered of a server.
    fn recall(&self, server: &ServerKey) -> Result<Option<Remembered>, MemoryError>;

    /// Remembers what was seen; what is seen first is accepted with it. Tells what is remembered then.
    fn remember(&self, server: &ServerKey, seen: &str) -> Result<Remembered, MemoryError>;

    /// Adds parts that were seen for the first time to the accepted definition: replaces it by this one if it still is
    /// `before`. Returns whether it was; if not, the user has accepted another one meanwhile.
    fn extend(&self, server: &ServerKey, before: &str, accepted: &str) -> Result<bool, MemoryError>;
}

/// A server as memories know it: another one under an old name is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerKey {
    /// Its name.
    pub name: Identifier,
    /// Stands for how it is reached, without telling: there may be secrets in it.
    pub reach: String,
}

/// The stored definitions of a server, serialized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The one seen last.
    pub seen: String,
    /// The accepted one: seen first, or accepted later.
    pub accepted: String,
}

impl ServerKey {
    /// The key of a server.
    pub fn of(settings: &UpstreamSettings) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut add = |part: &OsStr| {
            // With its length: no two lists read alike.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_encoded_bytes());
        };
        match &settings.transport {
            Transport::Stdio(command) => {
                add("stdio".as_ref());
                add(command.directory.as_os_str());
                add(&command.program);
                command.arguments.iter().for_each(|argument| add(argument));
            }
            Transport::Http { url, .. } => {
                add("http".as_ref());
                add(url.as_ref());
            }
        }
        Self { name: settings.name.clone(), reach: hasher.finalize().to_hex().to_string() }
    }
}

impl Remembered {
    /// How the definition seen last differs from the accepted one; only tools that are `taken` count.
    pub fn difference(&self, taken: &ToolFilter) -> Difference {
        Difference::of(
            &accepted(&self.accepted),
            &ServerDefinition::read(&self.seen).unwrap_or_default(),
            taken,
        )
    }
}

/// Parses the accepted definition; one that is unreadable counts as empty, so that nothing is accepted.
pub(super) fn accepted(text: &str) -> ServerDefinition {
    ServerDefinition::read(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::Changes;
    use super::super::oauth::OAuthSettings;
    use super::super::settings::{Command, Headers, HttpKind, Start, UpstreamLimits};
    use super::*;

    fn settings(transport: Transport) -> UpstreamSettings {
        UpstreamSettings {
            name: Identifier::sanitize("up"),
            transport,
            start: Start::Eager,
            exposed: false,
            tools: ToolFilter::default(),
            changes: Changes::default(),
            limits: UpstreamLimits::default(),
        }
    }

    fn process(program: &str, arguments: &[&str], directory: &str, variable: &str) -> String {
        let command = Command {
            program: program.into(),
            arguments: arguments.iter().map(Into::into).collect(),
            environment: vec![("TOKEN".into(), variable.into())],
            directory: directory.into(),
        };
        ServerKey::of(&settings(Transport::Stdio(command))).reach
    }

    fn site(url: &str, token: &str) -> String {
        let headers = Headers::new([("Authorization", token)]).unwrap();
        let kind = HttpKind::Streamable;
        ServerKey::of(&settings(Transport::Http {
            url: url.to_owned(),
            headers,
            kind,
            oauth: OAuthSettings::default(),
        }))
        .reach
    }

    #[test]
    fn a_server_that_is_reached_otherwise_is_another_and_one_with_a_new_token_is_not() {
        let one = process("npx", &["a", "b"], "/w", "x");
        assert_eq!(one, process("npx", &["a", "b"], "/w", "y"));
        for other in [
            process("npx", &["ab"], "/w", "x"),
            process("npx", &["a", "b"], "/v", "x"),
            process("uvx", &["a", "b"], "/w", "x"),
            site("npx", "x"),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(site("https://a/mcp", "x"), site("https://a/mcp", "y"));
        assert_ne!(site("https://a/mcp", "x"), site("https://b/mcp", "x"));
    }
}
