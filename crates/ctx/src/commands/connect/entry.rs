//! The entry of a workspace's server in a client's settings: how to start the server, or the URL of a running one.

use super::clients::{ClientCommand, EnvironmentPassing, McpClient, TokenPlacement, reference};
use crate::config::Config;
use crate::error::{CommandError, CommandResult};
use ctx_core::Secret;
use serde_json::{Map, Value, json};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Prefix of our server names, to distinguish them from the names of other servers.
const PREFIX: &str = "ctx";
/// Maximum length of a server name. Clients prefix every tool name with it, and some reject names longer than 60.
const NAME_LENGTH_MAX: usize = 32;
/// The variable to take the token from if the configuration contains it in clear text.
const TOKEN_VARIABLE: &str = "CTX_TOKEN";
/// The path at which MCP is served.
const MCP_PATH: &str = "/mcp";

/// The server of a workspace, as a client connects to it.
#[derive(Debug)]
pub(super) struct WorkspaceServer {
    pub(super) name: String,
    pub(super) connection: ServerConnection,
}

/// How a client reaches the server.
#[derive(Debug)]
pub(super) enum ServerConnection {
    /// The client starts the server and speaks MCP on stdin and stdout.
    Stdio {
        command: String,
        arguments: Vec<String>,
        /// Environment variables that the workspace's configuration reads.
        variables: Vec<String>,
    },
    /// The client calls a running server.
    Http { url: String, token: Option<ServerToken> },
}

/// The token that the server requires.
#[derive(Debug)]
pub(super) struct ServerToken {
    /// The environment variable to take the token from.
    pub(super) variable: String,
    secret: Secret,
}

/// Whether an entry contains the token itself, for clients that read no variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenVisibility {
    /// The entry contains the token.
    Revealed,
    /// The entry contains a placeholder.
    Placeholder,
}

impl ServerConnection {
    pub(super) fn stdio(config: &Config) -> CommandResult<Self> {
        let command = path_text(&program_path()?)?;
        let arguments = match &config.path {
            Some(path) => vec!["--config".to_owned(), path_text(&absolute_path(path)?)?],
            None => Vec::new(),
        };
        let serve = ["serve", "mcp", "--stdio"].map(str::to_owned);
        let arguments = arguments.into_iter().chain(serve).collect();
        Ok(Self::Stdio { command, arguments, variables: config.variables(&[]) })
    }

    pub(super) fn http(config: &Config) -> CommandResult<Self> {
        let address = client_address(&config.settings.server.bind)?;
        Ok(Self::at_url(config, &format!("http://{address}")))
    }

    /// The server that runs at this URL.
    pub(super) fn at_url(config: &Config, url: &str) -> Self {
        let token = config.settings.server.token.clone();
        let token = token.map(|secret| ServerToken { variable: token_variable(config), secret });
        Self::Http { url: format!("{url}{MCP_PATH}"), token }
    }
}

/// The environment variable that the configuration takes the token from, or else the one that clients should use.
pub(super) fn token_variable(config: &Config) -> String {
    let variables = config.variables(&["server", "token"]);
    variables.into_iter().next().unwrap_or_else(|| TOKEN_VARIABLE.to_owned())
}

/// The default name of a workspace's server: `ctx-` and the name of the folder.
pub(super) fn default_name(root: &Path) -> String {
    let folder = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let folder = folder.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    // No underscores: some clients split names at them.
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let words: String = folder.chars().map(plain).collect();
    let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty() && *word != PREFIX).collect();
    let name: String = [&[PREFIX], &*words].concat().join("-");
    name.chars().take(NAME_LENGTH_MAX).collect::<String>().trim_end_matches('-').to_owned()
}

/// Checks that every client accepts this server name.
pub(super) fn check_name(name: &str) -> CommandResult {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > NAME_LENGTH_MAX || !name.chars().all(plain) || name.starts_with('-') {
        return Err(CommandError::usage(format!("`{name}` is not a valid server name"))
            .hint(format!("at most {NAME_LENGTH_MAX} letters, digits, `-` and `_`, like `handbook`")));
    }
    Ok(())
}

/// The entry of the server in the client's settings; `None` if the client does not support HTTP servers.
pub(super) fn settings_entry(
    client: &McpClient,
    server: &WorkspaceServer,
    visibility: TokenVisibility,
) -> Option<Value> {
    let mut entry = Map::new();
    let mut insert = |key: &str, value: Value| entry.insert(key.to_owned(), value);
    match &server.connection {
        ServerConnection::Stdio { command, arguments, variables } => {
            if client.typed {
                insert("type", json!("stdio"));
            }
            insert("command", json!(command));
            insert("args", json!(arguments));
            match client.environment {
                EnvironmentPassing::Listed(key) if !variables.is_empty() => {
                    insert(key, json!(variables));
                }
                EnvironmentPassing::Repeated(form) if !variables.is_empty() => {
                    let repeated = |name: &String| (name.clone(), json!(reference(form, name)));
                    insert("env", Value::Object(variables.iter().map(repeated).collect()));
                }
                _ => {}
            }
        }
        ServerConnection::Http { url, token } => {
            let http = client.http.as_ref()?;
            if http.typed {
                insert("type", json!("http"));
            }
            insert(http.url, json!(url));
            if let Some(token) = token {
                let shown = match http.token {
                    TokenPlacement::VariableName(key) => {
                        insert(key, json!(token.variable));
                        return Some(Value::Object(entry));
                    }
                    TokenPlacement::Header(form) => reference(form, &token.variable),
                    TokenPlacement::Literal if visibility == TokenVisibility::Revealed => {
                        token.secret.expose().to_owned()
                    }
                    TokenPlacement::Literal => format!("<{}>", token.variable),
                };
                insert("headers", json!({ "Authorization": format!("Bearer {shown}") }));
            }
        }
    }
    Some(Value::Object(entry))
}

/// The client's own command that adds the server; `None` if the command cannot express the whole entry.
pub(super) fn add_command(
    client_command: ClientCommand,
    server: &WorkspaceServer,
    project: bool,
) -> Option<String> {
    let words: Vec<String> = match (client_command, &server.connection) {
        (ClientCommand::Claude, ServerConnection::Stdio { command, arguments, .. }) => {
            let scope = if project { "project" } else { "user" };
            let add = ["claude", "mcp", "add", "--scope", scope, &server.name, "--", command];
            add.iter().map(|word| (*word).to_owned()).chain(arguments.iter().cloned()).collect()
        }
        (ClientCommand::Claude, ServerConnection::Http { url, token }) => {
            let scope = if project { "project" } else { "user" };
            let add = ["claude", "mcp", "add", "--scope", scope, "--transport", "http", &server.name, url];
            // After the name and URL: `--header` takes all words that follow it.
            let header = token.iter().flat_map(|token| {
                ["--header".to_owned(), format!("Authorization: Bearer ${{{}}}", token.variable)]
            });
            add.iter().map(|word| (*word).to_owned()).chain(header).collect()
        }
        (ClientCommand::Codex, _) if project => return None,
        (ClientCommand::Codex, ServerConnection::Stdio { variables, .. }) if !variables.is_empty() => {
            return None;
        }
        (ClientCommand::Codex, ServerConnection::Stdio { command, arguments, .. }) => {
            let add = ["codex", "mcp", "add", &server.name, "--", command];
            add.iter().map(|word| (*word).to_owned()).chain(arguments.iter().cloned()).collect()
        }
        (ClientCommand::Codex, ServerConnection::Http { url, token }) => {
            let add = ["codex", "mcp", "add", &server.name, "--url", url];
            let token =
                token.iter().flat_map(|token| ["--bearer-token-env-var".to_owned(), token.variable.clone()]);
            add.iter().map(|word| (*word).to_owned()).chain(token).collect()
        }
    };
    Some(words.iter().map(|word| shell_quote(word)).collect::<Vec<_>>().join(" "))
}

/// A word quoted for the shell.
pub(super) fn shell_quote(word: &str) -> String {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || "-_./:=@+,".contains(c) || (cfg!(windows) && c == '\\');
    match (!word.is_empty() && word.chars().all(plain), cfg!(windows)) {
        (true, _) => word.to_owned(),
        (false, true) => format!("\"{}\"", word.replace('"', "\\\"")),
        (false, false) => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The path of this program, if possible as found on the `PATH`: a symlink there stays valid when its target is
/// replaced by an update.
pub(super) fn program_path() -> CommandResult<PathBuf> {
    let running = std::env::current_exe()
        .map_err(|error| CommandError::new(format!("cannot determine the path of this program: {error}")))?;
    Ok(find_on_path(&running).unwrap_or(running))
}

/// The first file of the program's name on the `PATH`, if it is the program itself.
pub(super) fn find_on_path(program: &Path) -> Option<PathBuf> {
    let name = program.file_name()?;
    let folders = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&folders).map(|folder| folder.join(name));
    let first = candidates.find(|path| path.is_absolute() && path.is_file())?;
    (first.canonicalize().ok()? == program.canonicalize().ok()?).then_some(first)
}

/// The absolute path of a file, without `..`. Symlinks are resolved in its folder only: the target of a symlinked
/// file may be in a folder that is no workspace.
pub(super) fn absolute_path(path: &Path) -> CommandResult<PathBuf> {
    let failed = |error| CommandError::new(format!("cannot resolve the path {}: {error}", path.display()));
    let absolute = std::path::absolute(path).map_err(failed)?;
    if !absolute.components().any(|part| part.as_os_str() == "..") {
        return Ok(absolute);
    }
    let (Some(folder), Some(file)) = (absolute.parent(), absolute.file_name()) else { return Ok(absolute) };
    Ok(folder.canonicalize().map_err(failed)?.join(file))
}

fn path_text(path: &Path) -> CommandResult<String> {
    let unreadable = || {
        CommandError::new(format!("{} is not valid UTF-8, and settings files are", path.display()))
            .hint("rename it so that its path is valid UTF-8")
    };
    path.to_str().map(str::to_owned).ok_or_else(unreadable)
}

/// The address at which a client on this machine reaches a server bound to `bind`.
fn client_address(bind: &str) -> CommandResult<String> {
    let any_port = || {
        CommandError::usage(format!("`server.bind` = \"{bind}\" uses another port on every start"))
            .hint("set a port in ctx.toml, like \"127.0.0.1:7331\", or connect without `--http`")
    };
    let Ok(mut address) = bind.parse::<SocketAddr>() else {
        // A host name, which is resolved only when the server binds to it.
        return if bind.ends_with(":0") { Err(any_port()) } else { Ok(bind.to_owned()) };
    };
    if address.port() == 0 {
        return Err(any_port());
    }
    if address.ip().is_unspecified() {
        match address {
            SocketAddr::V4(_) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(_) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        }
    }
    Ok(address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_server_is_named_after_its_folder() {
        for (folder, name) in [
            ("/w/handbook", "ctx-handbook"),
            ("/w/My Notes (2026)", "ctx-my-notes-2026"),
            ("/w/ctx", "ctx"),
            ("/w/ctx_docs", "ctx-docs"),
            ("/w/日本", "ctx"),
            ("/", "ctx"),
        ] {
            assert_eq!(default_name(Path::new(folder)), name);
        }
    }

    #[test]
    fn a_wildcard_address_is_called_on_loopback() {
        for (bind, url) in [
            ("127.0.0.1:7331", "127.0.0.1:7331"),
            ("0.0.0.0:7331", "127.0.0.1:7331"),
            ("[::]:80", "[::1]:80"),
            ("192.168.1.2:80", "192.168.1.2:80"),
            ("localhost:7331", "localhost:7331"),
        ] {
            assert_eq!(client_address(bind).unwrap(), url);
        }
        assert!(client_address("127.0.0.1:0").is_err() && client_address("localhost:0").is_err());
    }

    #[test]
    fn words_with_spaces_and_quotes_are_quoted() {
        assert_eq!(shell_quote("/usr/bin/ctx"), "/usr/bin/ctx");
        if cfg!(unix) {
            assert_eq!(shell_quote("My Notes"), "'My Notes'");
            assert_eq!(shell_quote("it's"), r"'it'\''s'");
            assert_eq!(shell_quote("Bearer ${CTX_TOKEN}"), "'Bearer ${CTX_TOKEN}'");
            assert_eq!(shell_quote(""), "''");
        }
    }

    proptest! {
        #[test]
        fn any_folder_gives_a_name_that_is_allowed(folder in "[^/\0]{1,80}") {
            let name = default_name(&Path::new("/w").join(folder));
            prop_assert!(check_name(&name).is_ok(), "{}", name);
        }
    }
}
