//! Persistent definitions of servers: the one seen last, and the accepted one.

use super::definition::ServerDefinition;
use super::difference::DefinitionDiff;
use super::settings::{ToolFilter, Transport, UpstreamSettings};
use ctx_core::Identifier;
use std::ffi::OsStr;

/// Why a definition cannot be stored or loaded.
pub type DefinitionStoreError = Box<dyn std::error::Error + Send + Sync>;

/// Persistent storage of server definitions. It may block.
pub trait DefinitionStore: Send + Sync + 'static {
    /// Loads the definitions of a server.
    fn load(&self, server: &ServerKey) -> Result<Option<StoredDefinitions>, DefinitionStoreError>;

    /// Stores the definition that was seen; the first one is also accepted. Returns what is stored then.
    fn record_seen(&self, server: &ServerKey, seen: &str) -> Result<StoredDefinitions, DefinitionStoreError>;

    /// Replaces the accepted definition by `accepted`, which adds parts that were seen for the first time, if
    /// it still is `before` (compare and swap). Returns whether it was; if not, the user has accepted another
    /// one meanwhile.
    fn replace_accepted(
        &self,
        server: &ServerKey,
        before: &str,
        accepted: &str,
    ) -> Result<bool, DefinitionStoreError>;
}

/// The key of a server's definitions. A server that is reached in another way has another key, even under the
/// same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerKey {
    /// Its name.
    pub name: Identifier,
    /// A hash of its command line and directory, or of its URL: these may contain secrets.
    pub address_hash: String,
}

/// The stored definitions of a server, serialized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDefinitions {
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
            // Length-prefixed, so that different lists do not hash alike.
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
        Self { name: settings.name.clone(), address_hash: hasher.finalize().to_hex().to_string() }
    }
}

impl StoredDefinitions {
    /// How the definition seen last differs from the accepted one; only tools that pass `filter` count.
    pub fn difference(&self, filter: &ToolFilter) -> DefinitionDiff {
        DefinitionDiff::of(
            &parse_accepted(&self.accepted),
            &ServerDefinition::parse(&self.seen).unwrap_or_default(),
            filter,
        )
    }
}

/// Parses the accepted definition; one that is unreadable counts as empty, so that nothing is accepted.
pub(super) fn parse_accepted(text: &str) -> ServerDefinition {
    ServerDefinition::parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::DefinitionChangePolicy;
    use super::super::oauth::OAuthSettings;
    use super::super::settings::{Headers, HttpTransportKind, ServerCommand, StartMode, UpstreamLimits};
    use super::*;

    fn settings(transport: Transport) -> UpstreamSettings {
        UpstreamSettings {
            name: Identifier::sanitize("up"),
            transport,
            start: StartMode::Eager,
            exposed: false,
            tools: ToolFilter::default(),
            changes: DefinitionChangePolicy::default(),
            limits: UpstreamLimits::default(),
        }
    }

    fn stdio_key(program: &str, arguments: &[&str], directory: &str, variable: &str) -> String {
        let command = ServerCommand {
            program: program.into(),
            arguments: arguments.iter().map(Into::into).collect(),
            environment: vec![("TOKEN".into(), variable.into())],
            directory: directory.into(),
        };
        ServerKey::of(&settings(Transport::Stdio(command))).address_hash
    }

    fn http_key(url: &str, token: &str) -> String {
        let headers = Headers::new([("Authorization", token)]).unwrap();
        let kind = HttpTransportKind::Streamable;
        ServerKey::of(&settings(Transport::Http {
            url: url.to_owned(),
            headers,
            kind,
            oauth: OAuthSettings::default(),
        }))
        .address_hash
    }

    #[test]
    fn the_key_depends_on_the_address_and_not_on_the_token() {
        let one = stdio_key("npx", &["a", "b"], "/w", "x");
        assert_eq!(one, stdio_key("npx", &["a", "b"], "/w", "y"));
        for other in [
            stdio_key("npx", &["ab"], "/w", "x"),
            stdio_key("npx", &["a", "b"], "/v", "x"),
            stdio_key("uvx", &["a", "b"], "/w", "x"),
            http_key("npx", "x"),
        ] {
            assert_ne!(one, other);
        }
        assert_eq!(http_key("https://a/mcp", "x"), http_key("https://a/mcp", "y"));
        assert_ne!(http_key("https://a/mcp", "x"), http_key("https://b/mcp", "x"));
    }
}
