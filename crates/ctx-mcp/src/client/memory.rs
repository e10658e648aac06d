//! What is remembered of servers while we do not run: the tools last seen, and those that were accepted.

use super::difference::Difference;
use super::settings::{ToolFilter, Transport, UpstreamSettings};
use ctx_core::{Identifier, ToolSpec};
use std::ffi::OsStr;

/// Why something cannot be remembered.
pub type MemoryError = Box<dyn std::error::Error + Send + Sync>;

/// Keeps definitions of tools. It may block.
pub trait Memory: Send + Sync + 'static {
    /// What is remembered of a server.
    fn recall(&self, server: &ServerKey) -> Result<Option<Remembered>, MemoryError>;

    /// Remembers what was seen; what is seen first is accepted with it. Tells what is remembered then.
    fn remember(&self, server: &ServerKey, seen: &str) -> Result<Remembered, MemoryError>;
}

/// A server as memories know it: another one under an old name is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerKey {
    /// Its name.
    pub name: Identifier,
    /// Stands for how it is reached, without telling: there may be secrets in it.
    pub reach: String,
}

/// Definitions of a server's tools, written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Those that were seen last.
    pub seen: String,
    /// Those that were accepted: seen first, or accepted later.
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
    /// How those that were seen differ from those that were accepted, as far as they are taken.
    pub fn difference(&self, taken: &ToolFilter) -> Difference {
        difference(&accepted(&self.accepted), &read(&self.seen).unwrap_or_default(), taken)
    }
}

pub(super) fn difference(accepted: &[ToolSpec], seen: &[ToolSpec], taken: &ToolFilter) -> Difference {
    let taken = |spec: &&ToolSpec| taken.takes(&spec.name);
    Difference::between(accepted.iter().filter(taken), seen.iter().filter(taken))
}

/// Definitions that were written down, where they still can be read.
pub(super) fn read(text: &str) -> Option<Vec<ToolSpec>> {
    serde_json::from_str(text).ok()
}

/// Those that were accepted: what cannot be read any more was not.
pub(super) fn accepted(text: &str) -> Vec<ToolSpec> {
    read(text).unwrap_or_default()
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
            changes: Changes::Tell,
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
