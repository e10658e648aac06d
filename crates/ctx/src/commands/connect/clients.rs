//! The programs that can be connected: what each calls things, and where it keeps them.

use super::edit::Format;
use std::path::PathBuf;

/// A program that speaks MCP, as a plain description.
#[derive(Debug)]
pub(super) struct Client {
    /// What it is called on the command line.
    pub(super) name: &'static str,
    /// What people call it.
    pub(super) title: &'static str,
    pub(super) format: Format,
    /// The key its servers are under.
    pub(super) key: &'static str,
    /// Its file for all that a user does; none where anybody's file may be meant.
    pub(super) user: Option<Place>,
    /// Its file for one project, from the project's folder.
    pub(super) project: Option<&'static str>,
    /// Whether a server it starts says `"type": "stdio"`.
    pub(super) typed: bool,
    /// What a server it starts sees of its environment.
    pub(super) environment: Environment,
    /// How a server is named that runs by itself; none where it starts every server.
    pub(super) http: Option<Http>,
    /// Its own command that adds a server.
    pub(super) own: Option<Own>,
    /// How to see whether it works, where `@` is the name of the server.
    pub(super) check: &'static str,
}

/// A server that runs by itself.
#[derive(Debug)]
pub(super) struct Http {
    /// The key of its address.
    pub(super) url: &'static str,
    /// Whether it says `"type": "http"`.
    pub(super) typed: bool,
    pub(super) token: TokenWay,
}

/// How a token is told.
#[derive(Debug)]
pub(super) enum TokenWay {
    /// In a header that names a variable like this.
    Header(&'static str),
    /// By the variable's name, under this key.
    Named(&'static str),
    /// Only as it is.
    Literal,
}

/// What a server sees of the environment of the client that starts it.
#[derive(Debug)]
pub(super) enum Environment {
    /// All of it.
    Whole,
    /// A little, and what is listed under this key.
    Listed(&'static str),
    /// What `env` repeats in this way for sure; of the rest, nothing is promised.
    Repeated(&'static str),
    /// A little, and what `env` has in clear text.
    Little,
}

/// A client's own command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Claude,
    Codex,
}

/// Where a client keeps its file.
#[derive(Debug)]
pub(super) struct Place {
    base: Base,
    path: &'static str,
    /// A variable that names another folder, and the file there.
    moved: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Copy, Debug)]
enum Base {
    /// The user's folder.
    Home,
    /// Where command-line programs keep settings: `~/.config`, except on Windows.
    Config,
    /// Where desktop programs keep settings.
    Applications,
}

/// Everything that can be connected.
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

    /// Where that is for this user; none where they have no folder.
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

/// Systems that keep settings in different places.
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

/// How a client writes a variable.
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
