//! The supported MCP clients as data: the format, keys and location of their settings.

use super::edit::SettingsFormat;
use std::path::PathBuf;

/// An MCP client and the format of its settings.
#[derive(Debug)]
pub(super) struct McpClient {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// Its product name.
    pub(super) title: &'static str,
    pub(super) format: SettingsFormat,
    /// The key of its servers in the settings.
    pub(super) key: &'static str,
    /// Its user-level settings file; `None` for `generic`, whose file is unknown.
    pub(super) user: Option<SettingsLocation>,
    /// Its settings file for a project, relative to the project's folder.
    pub(super) project: Option<&'static str>,
    /// Whether the entry of a stdio server has `"type": "stdio"`.
    pub(super) typed: bool,
    /// Which environment variables a stdio server gets.
    pub(super) environment: EnvironmentPassing,
    /// The format of HTTP servers; `None` if the client supports stdio servers only.
    pub(super) http: Option<HttpEntryFormat>,
    /// Its own command that adds a server.
    pub(super) command: Option<ClientCommand>,
    /// How the user checks the connection; `@` stands for the name of the server.
    pub(super) check: &'static str,
}

/// The format of a client's entry for an HTTP server.
#[derive(Debug)]
pub(super) struct HttpEntryFormat {
    /// The key of the URL.
    pub(super) url: &'static str,
    /// Whether the entry has `"type": "http"`.
    pub(super) typed: bool,
    pub(super) token: TokenPlacement,
}

/// How an entry contains the token.
#[derive(Debug)]
pub(super) enum TokenPlacement {
    /// As a header with a reference to an environment variable in this form; `@` stands for its name.
    Header(&'static str),
    /// As the name of the environment variable, under this key.
    VariableName(&'static str),
    /// In clear text only.
    Literal,
}

/// Which environment variables of the client a stdio server gets.
#[derive(Debug)]
pub(super) enum EnvironmentPassing {
    /// All variables.
    Inherited,
    /// A few, and those listed under this key.
    Listed(&'static str),
    /// Those that `env` repeats by references in this form; others are not guaranteed.
    Repeated(&'static str),
    /// A few, and those that `env` contains in clear text.
    Minimal,
}

/// A client's own command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientCommand {
    Claude,
    Codex,
}

/// The location of a client's settings file.
#[derive(Debug)]
pub(super) struct SettingsLocation {
    base: BaseFolder,
    path: &'static str,
    /// An environment variable that names another folder, and the path of the file in that folder.
    override_variable: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Copy, Debug)]
enum BaseFolder {
    /// The home folder.
    Home,
    /// The folder for settings of command-line programs: `~/.config`, except on Windows.
    Config,
    /// The folder for settings of desktop programs.
    Applications,
}

/// All supported clients.
pub(super) const CLIENTS: &[McpClient] = &[
    McpClient {
        name: "claude",
        title: "Claude Code",
        format: SettingsFormat::Json,
        key: "mcpServers",
        user: Some(SettingsLocation::home(".claude.json").overridden_by("CLAUDE_CONFIG_DIR", ".claude.json")),
        project: Some(".mcp.json"),
        typed: true,
        environment: EnvironmentPassing::Inherited,
        http: Some(HttpEntryFormat { url: "url", typed: true, token: TokenPlacement::Header("${@}") }),
        command: Some(ClientCommand::Claude),
        check: "`claude mcp list`, or /mcp in a session, shows `@` as connected",
    },
    McpClient {
        name: "claude-desktop",
        title: "Claude Desktop",
        format: SettingsFormat::Json,
        key: "mcpServers",
        user: Some(SettingsLocation::applications("Claude/claude_desktop_config.json")),
        project: None,
        typed: false,
        environment: EnvironmentPassing::Minimal,
        http: None,
        command: None,
        check: "quit Claude Desktop and start it again; Settings > Developer shows `@` as running",
    },
    McpClient {
        name: "cursor",
        title: "Cursor",
        format: SettingsFormat::Json,
        key: "mcpServers",
        user: Some(SettingsLocation::home(".cursor/mcp.json")),
        project: Some(".cursor/mcp.json"),
        typed: true,
        environment: EnvironmentPassing::Inherited,
        http: Some(HttpEntryFormat { url: "url", typed: false, token: TokenPlacement::Header("${env:@}") }),
        command: None,
        check: "Cursor's list of MCP servers shows `@`: switch it on there; its output panel has `MCP Logs`",
    },
    McpClient {
        name: "vscode",
        title: "VS Code",
        format: SettingsFormat::Json,
        key: "servers",
        user: Some(SettingsLocation::applications("Code/User/mcp.json")),
        project: Some(".vscode/mcp.json"),
        typed: true,
        environment: EnvironmentPassing::Inherited,
        http: Some(HttpEntryFormat { url: "url", typed: true, token: TokenPlacement::Header("${env:@}") }),
        command: None,
        check: "the command `MCP: List Servers` starts `@` and shows its output",
    },
    McpClient {
        name: "codex",
        title: "Codex",
        format: SettingsFormat::Toml,
        key: "mcp_servers",
        user: Some(SettingsLocation::home(".codex/config.toml").overridden_by("CODEX_HOME", "config.toml")),
        project: Some(".codex/config.toml"),
        typed: false,
        environment: EnvironmentPassing::Listed("env_vars"),
        http: Some(HttpEntryFormat {
            url: "url",
            typed: false,
            token: TokenPlacement::VariableName("bearer_token_env_var"),
        }),
        command: Some(ClientCommand::Codex),
        check: "`codex mcp list`, or /mcp in a session, shows `@`",
    },
    McpClient {
        name: "gemini",
        title: "Gemini CLI",
        format: SettingsFormat::Json,
        key: "mcpServers",
        user: Some(SettingsLocation::home(".gemini/settings.json")),
        project: Some(".gemini/settings.json"),
        typed: false,
        environment: EnvironmentPassing::Repeated("${@}"),
        http: Some(HttpEntryFormat { url: "httpUrl", typed: false, token: TokenPlacement::Header("${@}") }),
        command: None,
        check: "`gemini mcp list`, or /mcp in a session, shows `@` as connected, in a folder that you have trusted in Gemini",
    },
    McpClient {
        name: "zed",
        title: "Zed",
        format: SettingsFormat::Json,
        key: "context_servers",
        user: Some(SettingsLocation::config("zed/settings.json")),
        project: Some(".zed/settings.json"),
        typed: false,
        environment: EnvironmentPassing::Inherited,
        http: Some(HttpEntryFormat { url: "url", typed: false, token: TokenPlacement::Literal }),
        command: None,
        check: "Zed's settings, under AI > MCP Servers, show `@` with a green dot",
    },
    McpClient {
        name: "windsurf",
        title: "Windsurf",
        format: SettingsFormat::Json,
        key: "mcpServers",
        user: Some(SettingsLocation::home(".codeium/windsurf/mcp_config.json")),
        project: None,
        typed: false,
        environment: EnvironmentPassing::Inherited,
        http: Some(HttpEntryFormat {
            url: "serverUrl",
            typed: false,
            token: TokenPlacement::Header("${env:@}"),
        }),
        command: None,
        check: "the MCP panel of Cascade shows `@` after a refresh",
    },
    McpClient {
        name: "generic",
        title: "your client",
        format: SettingsFormat::Json,
        key: "mcpServers",
        user: None,
        project: None,
        typed: false,
        environment: EnvironmentPassing::Inherited,
        http: Some(HttpEntryFormat { url: "url", typed: true, token: TokenPlacement::Header("${@}") }),
        command: None,
        check: "the client's list of MCP servers shows `@`",
    },
];

impl SettingsLocation {
    const fn home(path: &'static str) -> Self {
        Self { base: BaseFolder::Home, path, override_variable: None }
    }

    const fn config(path: &'static str) -> Self {
        Self { base: BaseFolder::Config, path, override_variable: None }
    }

    const fn applications(path: &'static str) -> Self {
        Self { base: BaseFolder::Applications, path, override_variable: None }
    }

    const fn overridden_by(mut self, variable: &'static str, path: &'static str) -> Self {
        self.override_variable = Some((variable, path));
        self
    }

    /// The path for this user; `None` if the base folder is unknown.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.path_for(
            OperatingSystem::current(),
            &|name| std::env::var_os(name).map(PathBuf::from),
            std::env::home_dir(),
        )
    }

    fn path_for(
        &self,
        system: OperatingSystem,
        variable: &dyn Fn(&str) -> Option<PathBuf>,
        home: Option<PathBuf>,
    ) -> Option<PathBuf> {
        let folder = |name| variable(name).filter(|folder| folder.is_absolute());
        if let Some((name, path)) = self.override_variable
            && let Some(folder) = folder(name)
        {
            return Some(folder.join(path));
        }
        let in_home = |path: &str| home.as_ref().map(|home| home.join(path));
        let base = match (self.base, system) {
            (BaseFolder::Home, _) => home,
            (BaseFolder::Config | BaseFolder::Applications, OperatingSystem::Windows) => {
                folder("APPDATA").or_else(|| in_home("AppData/Roaming"))
            }
            (BaseFolder::Applications, OperatingSystem::Mac) => in_home("Library/Application Support"),
            (BaseFolder::Config, OperatingSystem::Mac) => in_home(".config"),
            (BaseFolder::Config | BaseFolder::Applications, OperatingSystem::Other) => {
                folder("XDG_CONFIG_HOME").or_else(|| in_home(".config"))
            }
        };
        Some(base?.join(self.path))
    }
}

/// Operating systems with different locations of settings.
#[derive(Clone, Copy, Debug)]
enum OperatingSystem {
    Mac,
    Windows,
    Other,
}

impl OperatingSystem {
    fn current() -> Self {
        match std::env::consts::OS {
            "macos" => Self::Mac,
            "windows" => Self::Windows,
            _ => Self::Other,
        }
    }
}

/// The client of this name.
pub(super) fn find_client(name: &str) -> Option<&'static McpClient> {
    CLIENTS.iter().find(|client| client.name == name)
}

/// A reference to an environment variable in a client's form, such as `${env:NAME}` for the form `${env:@}`.
pub(super) fn reference(form: &str, variable: &str) -> String {
    form.replace('@', variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(name: &str, system: OperatingSystem, variables: &[(&str, &str)]) -> String {
        let variable = |requested: &str| {
            let found = variables.iter().find(|(name, _)| *name == requested);
            found.map(|(_, value)| PathBuf::from(value))
        };
        let location = find_client(name).unwrap().user.as_ref().unwrap();
        location.path_for(system, &variable, Some("/u".into())).unwrap().display().to_string()
    }

    #[test]
    fn every_system_has_its_own_locations() {
        for (name, mac, windows, other) in [
            ("claude", "/u/.claude.json", "/u/.claude.json", "/u/.claude.json"),
            (
                "claude-desktop",
                "/u/Library/Application Support/Claude/claude_desktop_config.json",
                "/roaming/Claude/claude_desktop_config.json",
                "/u/.config/Claude/claude_desktop_config.json",
            ),
            ("cursor", "/u/.cursor/mcp.json", "/u/.cursor/mcp.json", "/u/.cursor/mcp.json"),
            (
                "vscode",
                "/u/Library/Application Support/Code/User/mcp.json",
                "/roaming/Code/User/mcp.json",
                "/u/.config/Code/User/mcp.json",
            ),
            ("codex", "/u/.codex/config.toml", "/u/.codex/config.toml", "/u/.codex/config.toml"),
            ("gemini", "/u/.gemini/settings.json", "/u/.gemini/settings.json", "/u/.gemini/settings.json"),
            (
                "zed",
                "/u/.config/zed/settings.json",
                "/roaming/zed/settings.json",
                "/u/.config/zed/settings.json",
            ),
        ] {
            let appdata = [("APPDATA", "/roaming")];
            assert_eq!(location(name, OperatingSystem::Mac, &appdata), mac);
            assert_eq!(location(name, OperatingSystem::Windows, &appdata), windows);
            assert_eq!(location(name, OperatingSystem::Other, &appdata), other);
        }
    }

    #[test]
    fn overridden_folders_are_used() {
        assert_eq!(location("codex", OperatingSystem::Mac, &[("CODEX_HOME", "/c")]), "/c/config.toml");
        assert_eq!(
            location("claude", OperatingSystem::Other, &[("CLAUDE_CONFIG_DIR", "/c")]),
            "/c/.claude.json"
        );
        assert_eq!(
            location("zed", OperatingSystem::Other, &[("XDG_CONFIG_HOME", "/x")]),
            "/x/zed/settings.json"
        );
        assert_eq!(
            location("zed", OperatingSystem::Mac, &[("XDG_CONFIG_HOME", "/x")]),
            "/u/.config/zed/settings.json"
        );
        assert_eq!(
            location("zed", OperatingSystem::Other, &[("XDG_CONFIG_HOME", "x")]),
            "/u/.config/zed/settings.json"
        );
    }
}
