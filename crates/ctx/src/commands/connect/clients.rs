//! The supported MCP clients as data: the format, keys and location of their settings.

use super::edit::Format;
use std::path::PathBuf;

/// An MCP client and the format of its settings.
#[derive(Debug)]
pub(super) struct Client {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// Its product name.
    pub(super) title: &'static str,
    pub(super) format: Format,
    /// The key of its servers in the settings.
    pub(super) key: &'static str,
    /// Its user-level settings file; `None` for `generic`, whose file is unknown.
    pub(super) user: Option<Place>,
    /// Its settings file for a project, relative to the project's folder.
    pub(super) project: Option<&'static str>,
    /// Whether the entry of a stdio server has `"type": "stdio"`.
    pub(super) typed: bool,
    /// Which environment variables a stdio server gets.
    pub(super) environment: Environment,
    /// The format of HTTP servers; `None` if the client supports stdio servers only.
    pub(super) http: Option<Http>,
    /// Its own command that adds a server.
    pub(super) own: Option<Own>,
    /// How the user checks the connection; `@` stands for the name of the server.
    pub(super) check: &'static str,
}

/// The format of a client's entry for an HTTP server.
#[derive(Debug)]
pub(super) struct Http {
    /// The key of the URL.
    pub(super) url: &'static str,
    /// Whether the entry has `"type": "http"`.
    pub(super) typed: bool,
    pub(super) token: TokenWay,
}

/// How an entry contains the token.
#[derive(Debug)]
pub(super) enum TokenWay {
    /// As a header with a reference to an environment variable in this form; `@` stands for its name.
    Header(&'static str),
    /// As the name of the environment variable, under this key.
    Named(&'static str),
    /// In clear text only.
    Literal,
}

/// Which environment variables of the client a stdio server gets.
#[derive(Debug)]
pub(super) enum Environment {
    /// All variables.
    Whole,
    /// A few, and those listed under this key.
    Listed(&'static str),
    /// Those that `env` repeats by references in this form; others are not guaranteed.
    Repeated(&'static str),
    /// A few, and those that `env` contains in clear text.
    Little,
}

/// A client's own command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Claude,
    Codex,
}

/// The location of a client's settings file.
#[derive(Debug)]
pub(super) struct Place {
    base: Base,
    path: &'static str,
    /// An environment variable that names another folder, and the path of the file in that folder.
    moved: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Copy, Debug)]
enum Base {
    /// The home folder.
    Home,
    /// The folder for settings of command-line programs: `~/.config`, except on Windows.
    Config,
    /// The folder for settings of desktop programs.
    Applications,
}

/// All supported clients.
pub(super) const CLIENTS: &[Client] = &[
    Client {
        name: "claude",
        title: "Claude Code",
        format: Format::Json,
        key: "mcpServers",
        user: Some(Place::home(".claude.json").moved_by("CLAUDE_CONFIG_DIR", ".claude.json")),
        project: Some(".mcp.json"),
        typed: true,
        environment: Environment::Whole,
        http: Some(Http { url: "url", typed: true, token: TokenWay::Header("${@}") }),
        own: Some(Own::Claude),
        check: "`claude mcp list`, or /mcp in a session, shows `@` as connected",
    },
    Client {
        name: "claude-desktop",
        title: "Claude Desktop",
        format: Format::Json,
        key: "mcpServers",
        user: Some(Place::applications("Claude/claude_desktop_config.json")),
        project: None,
        typed: false,
        environment: Environment::Little,
        http: None,
        own: None,
        check: "quit Claude Desktop and start it again; Settings > Developer shows `@` as running",
    },
    Client {
        name: "cursor",
        title: "Cursor",
        format: Format::Json,
        key: "mcpServers",
        user: Some(Place::home(".cursor/mcp.json")),
        project: Some(".cursor/mcp.json"),
        typed: true,
        environment: Environment::Whole,
        http: Some(Http { url: "url", typed: false, token: TokenWay::Header("${env:@}") }),
        own: None,
        check: "Cursor's list of MCP servers shows `@`: switch it on there; its output panel has `MCP Logs`",
    },
    Client {
        name: "vscode",
        title: "VS Code",
        format: Format::Json,
        key: "servers",
        user: Some(Place::applications("Code/User/mcp.json")),
        project: Some(".vscode/mcp.json"),
        typed: true,
        environment: Environment::Whole,
        http: Some(Http { url: "url", typed: true, token: TokenWay::Header("${env:@}") }),
        own: None,
        check: "the command `MCP: List Servers` starts `@` and shows its output",
    },
    Client {
        name: "codex",
        title: "Codex",
        format: Format::Toml,
        key: "mcp_servers",
        user: Some(Place::home(".codex/config.toml").moved_by("CODEX_HOME", "config.toml")),
        project: Some(".codex/config.toml"),
        typed: false,
        environment: Environment::Listed("env_vars"),
        http: Some(Http { url: "url", typed: false, token: TokenWay::Named("bearer_token_env_var") }),
        own: Some(Own::Codex),
        check: "`codex mcp list`, or /mcp in a session, shows `@`",
    },
    Client {
        name: "gemini",
        title: "Gemini CLI",
        format: Format::Json,
        key: "mcpServers",
        user: Some(Place::home(".gemini/settings.json")),
        project: Some(".gemini/settings.json"),
        typed: false,
        environment: Environment::Repeated("${@}"),
        http: Some(Http { url: "httpUrl", typed: false, token: TokenWay::Header("${@}") }),
        own: None,
        check: "`gemini mcp list`, or /mcp in a session, shows `@` as connected, in a folder that you have trusted in Gemini",
    },
    Client {
        name: "zed",
        title: "Zed",
        format: Format::Json,
        key: "context_servers",
        user: Some(Place::config("zed/settings.json")),
        project: Some(".zed/settings.json"),
        typed: false,
        environment: Environment::Whole,
        http: Some(Http { url: "url", typed: false, token: TokenWay::Literal }),
        own: None,
        check: "Zed's settings, under AI > MCP Servers, show `@` with a green dot",
    },
    Client {
        name: "windsurf",
        title: "Windsurf",
        format: Format::Json,
        key: "mcpServers",
        user: Some(Place::home(".codeium/windsurf/mcp_config.json")),
        project: None,
        typed: false,
        environment: Environment::Whole,
        http: Some(Http { url: "serverUrl", typed: false, token: TokenWay::Header("${env:@}") }),
        own: None,
        check: "the MCP panel of Cascade shows `@` after a refresh",
    },
    Client {
        name: "generic",
        title: "your client",
        format: Format::Json,
        key: "mcpServers",
        user: None,
        project: None,
        typed: false,
        environment: Environment::Whole,
        http: Some(Http { url: "url", typed: true, token: TokenWay::Header("${@}") }),
        own: None,
        check: "the client's list of MCP servers shows `@`",
    },
];

impl Place {
    const fn home(path: &'static str) -> Self {
        Self { base: Base::Home, path, moved: None }
    }

    const fn config(path: &'static str) -> Self {
        Self { base: Base::Config, path, moved: None }
    }

    const fn applications(path: &'static str) -> Self {
        Self { base: Base::Applications, path, moved: None }
    }

    const fn moved_by(mut self, variable: &'static str, path: &'static str) -> Self {
        self.moved = Some((variable, path));
        self
    }

    /// The path for this user; `None` if the base folder is unknown.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.path_on(System::here(), &|name| std::env::var_os(name).map(PathBuf::from), std::env::home_dir())
    }

    fn path_on(
        &self,
        system: System,
        variable: &dyn Fn(&str) -> Option<PathBuf>,
        home: Option<PathBuf>,
    ) -> Option<PathBuf> {
        let folder = |name| variable(name).filter(|folder| folder.is_absolute());
        if let Some((name, path)) = self.moved
            && let Some(folder) = folder(name)
        {
            return Some(folder.join(path));
        }
        let in_home = |path: &str| home.as_ref().map(|home| home.join(path));
        let base = match (self.base, system) {
            (Base::Home, _) => home,
            (Base::Config | Base::Applications, System::Windows) => {
                folder("APPDATA").or_else(|| in_home("AppData/Roaming"))
            }
            (Base::Applications, System::Mac) => in_home("Library/Application Support"),
            (Base::Config, System::Mac) => in_home(".config"),
            (Base::Config | Base::Applications, System::Other) => {
                folder("XDG_CONFIG_HOME").or_else(|| in_home(".config"))
            }
        };
        Some(base?.join(self.path))
    }
}

/// Operating systems with different locations of settings.
#[derive(Clone, Copy, Debug)]
enum System {
    Mac,
    Windows,
    Other,
}

impl System {
    fn here() -> Self {
        match std::env::consts::OS {
            "macos" => Self::Mac,
            "windows" => Self::Windows,
            _ => Self::Other,
        }
    }
}

/// The client of this name.
pub(super) fn client(name: &str) -> Option<&'static Client> {
    CLIENTS.iter().find(|client| client.name == name)
}

/// A reference to an environment variable in a client's form, such as `${env:NAME}` for the form `${env:@}`.
pub(super) fn reference(form: &str, variable: &str) -> String {
    form.replace('@', variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, system: System, variables: &[(&str, &str)]) -> String {
        let variable = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| PathBuf::from(value))
        };
        let place = client(name).unwrap().user.as_ref().unwrap();
        place.path_on(system, &variable, Some("/u".into())).unwrap().display().to_string()
    }

    #[test]
    fn every_system_has_its_own_places() {
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
            assert_eq!(place(name, System::Mac, &appdata), mac);
            assert_eq!(place(name, System::Windows, &appdata), windows);
            assert_eq!(place(name, System::Other, &appdata), other);
        }
    }

    #[test]
    fn folders_that_the_user_has_moved_are_found() {
        assert_eq!(place("codex", System::Mac, &[("CODEX_HOME", "/c")]), "/c/config.toml");
        assert_eq!(place("claude", System::Other, &[("CLAUDE_CONFIG_DIR", "/c")]), "/c/.claude.json");
        assert_eq!(place("zed", System::Other, &[("XDG_CONFIG_HOME", "/x")]), "/x/zed/settings.json");
        assert_eq!(place("zed", System::Mac, &[("XDG_CONFIG_HOME", "/x")]), "/u/.config/zed/settings.json");
        assert_eq!(place("zed", System::Other, &[("XDG_CONFIG_HOME", "x")]), "/u/.config/zed/settings.json");
    }
}
