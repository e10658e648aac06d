//! Settings from the command line, such as `--mcp name=…`.

use super::api_arguments::{ApiArgument, AuthArgument, apply_auth};
use super::bind_options::BindOptions;
use super::tree::{ConfigLeaf, ConfigNode, ConfigTable, SettingOrigin};
use super::{ConfigError, VariableLookup, api_section, upstream_section};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::str::FromStr;

/// Options that set the bind address; they are the origin of `server.bind`.
pub(super) const BIND_OPTION: &str = "--bind";
pub(super) const HTTP_OPTION: &str = "--http";
const PORT_OPTION: &str = "--port";

/// Settings from the command line, which override those of the files.
#[derive(Clone, Debug, Default)]
pub(crate) struct CliOverrides {
    /// Upstream servers; each replaces a section of the same name.
    pub(crate) servers: Vec<ServerArgument>,
    /// APIs; each replaces a section of the same name.
    pub(crate) apis: Vec<ApiArgument>,
    /// Credentials for APIs of the command line or the files.
    pub(crate) auth: Vec<AuthArgument>,
    /// The path of the store.
    pub(crate) store: Option<PathBuf>,
    /// The bind address and port.
    pub(crate) bind: BindOptions,
    /// Whether the bind address came from `--http=ADDRESS`.
    pub(crate) is_http: bool,
}

/// A server in the form of the command line: `name=command argument …` or `name=https://…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerArgument {
    name: String,
    section: Value,
}

impl FromStr for ServerArgument {
    type Err = String;

    fn from_str(argument: &str) -> Result<Self, String> {
        const FORM: &str = "write name=COMMAND or name=URL";
        let (name, value) = argument.split_once('=').ok_or(FORM)?;
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || value.is_empty() {
            return Err(FORM.to_owned());
        }
        let section = if value.starts_with("http://") || value.starts_with("https://") {
            json!({ "url": value })
        } else {
            let words = shlex::split(value).ok_or("a quote in the command line is not closed")?;
            let (command, arguments) = words.split_first().ok_or(FORM)?;
            json!({ "command": command, "args": arguments })
        };
        Ok(Self { name: name.to_owned(), section })
    }
}

impl CliOverrides {
    /// Merges these settings over those of the files. A server or an API replaces the section of the same
    /// name.
    pub(super) fn apply(
        &self,
        tree: &mut ConfigTable,
        variables: VariableLookup<'_>,
    ) -> Result<(), ConfigError> {
        let mut replace = |group: &str, name: &str, origin: &str, section: &Value| {
            if let Some(ConfigNode::Table(sections)) = tree.entries.get_mut(group) {
                sections.entries.remove(name);
            }
            tree.merge(table(origin, &json!({ group: { name: section } })));
        };
        for ServerArgument { name, section } in &self.servers {
            replace("mcp_servers", name, "--mcp", section);
        }
        for (index, api) in self.apis.iter().enumerate() {
            if self.apis[..index].iter().any(|other| other.name == api.name) {
                let name = &api.name;
                return Err(ConfigError::one(format!(
                    "two APIs have the name `{name}`; write name=PATH or name=URL"
                )));
            }
            replace("apis", &api.name, "typed", &api.section());
        }
        apply_auth(&self.auth, tree, variables)?;
        if let Some(store) = &self.store {
            tree.merge(table("default", &json!({ "db": { "path": store } })));
        }
        if self.bind.is_set() {
            let configured = match tree.at(&["server", "bind"]) {
                Some(ConfigNode::Leaf(leaf)) => leaf.value.as_str().unwrap_or_default().to_owned(),
                _ => String::new(),
            };
            let bind = self.bind.resolve(&configured).map_err(ConfigError::one)?;
            let origin = match &self.bind {
                _ if self.is_http => HTTP_OPTION,
                BindOptions { bind: None, .. } => PORT_OPTION,
                _ => BIND_OPTION,
            };
            tree.merge(table(origin, &json!({ "server": { "bind": bind } })));
        }
        Ok(())
    }

    /// Whether the command line replaces this section or key.
    pub(super) fn replaces(&self, section: &str) -> bool {
        if section == "server.bind" {
            return self.bind.bind.is_some();
        }
        self.servers.iter().any(|server| upstream_section(&server.name) == section)
            || self.apis.iter().any(|api| api_section(&api.name) == section)
    }
}

/// Converts JSON to a table whose values have this origin.
fn table(origin: &str, value: &Value) -> ConfigTable {
    let origin_of = || SettingOrigin { file: origin.to_owned(), line: 0 };
    let node = |(key, value): (&String, &Value)| {
        let node = match value {
            Value::Object(_) => ConfigNode::Table(table(origin, value)),
            other => ConfigNode::Leaf(ConfigLeaf {
                value: other.clone(),
                origin: origin_of(),
                variables: Vec::new(),
            }),
        };
        (key.clone(), node)
    };
    let entries = value.as_object().into_iter().flatten().map(node).collect();
    ConfigTable { entries, origin: Some(origin_of()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(argument: &str) -> (String, Value) {
        let server: ServerArgument = argument.parse().unwrap();
        (server.name, server.section)
    }

    #[test]
    fn a_server_is_an_address_or_a_command_line() {
        let command = |command: &str, args: &[&str]| json!({ "command": command, "args": args });
        for (argument, name, section) in [
            ("fs=npx -y server /tmp", "fs", command("npx", &["-y", "server", "/tmp"])),
            ("a='my tool' \"two words\" b\\ c", "a", command("my tool", &["two words", "b c"])),
            ("a=run --flag=x=y", "a", command("run", &["--flag=x=y"])),
            ("remote=https://example.com/mcp?a=b", "remote", json!({"url": "https://example.com/mcp?a=b"})),
            ("local = http://127.0.0.1:1/mcp", "local", json!({"url": "http://127.0.0.1:1/mcp"})),
        ] {
            assert_eq!(server(argument), (name.to_owned(), section), "{argument}");
        }
    }

    #[test]
    fn invalid_servers_are_refused() {
        for argument in ["", "fs", "=npx", "fs=", "fs= ", "fs='npx"] {
            assert!(argument.parse::<ServerArgument>().is_err(), "{argument}");
        }
    }
}
