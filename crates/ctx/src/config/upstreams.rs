//! `[mcp_servers.<name>]`: upstream MCP servers.

use super::settings::{LimitSettings, seconds};
use super::{Config, VariableLookup, expand_variables};
use ctx_core::{BuiltinProvider, Identifier, Secret};
use ctx_mcp::{
    DefinitionChangePolicy, Headers, HttpTransportKind, OAuthSettings, ServerCommand, StartMode, ToolFilter,
    Transport, UpstreamLimits, UpstreamSettings,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// Environment variables that a stdio server inherits, besides those in its section. The guide lists them
/// (`docs/guide/upstreams.md`). Without those for certificates, proxies and registries, `npx` and `uvx` start
/// nothing in a company network. `NODE_OPTIONS` is not among them: it makes a server run code that its
/// section does not name.
const INHERITED_VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "APPDATA",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROGRAMDATA",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERPROFILE",
    "WINDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_SYSTEM_CA",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NPM_CONFIG_CA",
    "NPM_CONFIG_CACHE",
    "NPM_CONFIG_CAFILE",
    "NPM_CONFIG_HTTPS_PROXY",
    "NPM_CONFIG_NOPROXY",
    "NPM_CONFIG_PROXY",
    "NPM_CONFIG_REGISTRY",
    "NPM_CONFIG_USERCONFIG",
    "npm_config_ca",
    "npm_config_cache",
    "npm_config_cafile",
    "npm_config_https_proxy",
    "npm_config_noproxy",
    "npm_config_proxy",
    "npm_config_registry",
    "npm_config_userconfig",
    "PIP_CERT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_INDEX_URL",
    "UV_CACHE_DIR",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_INSECURE_HOST",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
];

/// `[mcp_servers.<name>]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSection {
    /// The program to start, such as `npx`; either this or `url`.
    command: Option<String>,
    /// Its arguments.
    args: Option<Vec<String>>,
    /// Environment variables, besides the inherited ones (`PATH`, `HOME`, …).
    env: Option<BTreeMap<String, String>>,
    /// The working directory, relative to the workspace; the workspace itself when absent.
    cwd: Option<PathBuf>,
    /// The URL of the server, such as `https://example.com/mcp`; either this or `command`.
    url: Option<String>,
    /// The transport of the server at `url`: `streamable-http`, which is the default, or `sse`, which only
    /// old servers need.
    transport: Option<HttpTransport>,
    /// Headers to send to the server at `url`, such as `{ Authorization = "Bearer ${TOKEN}" }`.
    headers: Option<BTreeMap<String, String>>,
    /// OAuth settings for `ctx upstream login` at the server at `url`; most servers need none.
    oauth: Option<LoginSection>,
    /// `eager` keeps the server running; `lazy` starts it on the first call, and stops it after five minutes
    /// without a call. Before the first use, a lazy server is started once to list its tools, which are
    /// stored.
    #[serde(default)]
    start: StartSetting,
    /// Whether its tools are listed to clients one by one, as `<name>__<tool>`; scripts can call them either
    /// way.
    #[serde(default)]
    expose: bool,
    /// The tools to include, as patterns such as `read_*`; all when absent.
    #[serde(default)]
    allowed_tools: Vec<String>,
    /// The tools to exclude, even if `allowed_tools` matches them.
    #[serde(default)]
    denied_tools: Vec<String>,
    /// How to handle tools whose definitions are new or changed since they were accepted: `tell` warns; `ask`
    /// also refuses calls until `ctx upstream accept <name>`. When absent, read-only tools (`readOnlyHint`,
    /// as accepted and now) only cause a warning, and all others need to be accepted.
    changes: Option<ChangePolicy>,
    /// Seconds one call may take; `limits.upstream_timeout` when absent.
    timeout: Option<NonZeroU32>,
}

/// `[mcp_servers.<name>.oauth]`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LoginSection {
    /// The ID of a client that was registered by hand, for servers without dynamic client registration.
    client_id: Option<String>,
    /// The client's secret, such as `${CLIENT_SECRET}`.
    client_secret: Option<Secret>,
    /// The scopes to request; those that the server asks for when absent.
    #[serde(default)]
    scopes: Vec<String>,
    /// The URL of a client ID metadata document, for servers that support it.
    client_metadata_url: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum HttpTransport {
    StreamableHttp,
    Sse,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum StartSetting {
    #[default]
    Eager,
    Lazy,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ChangePolicy {
    Tell,
    Ask,
}

/// The problem of a name that belongs to a built-in provider.
pub(super) fn reserved_name_problem(name: &str) -> Option<String> {
    let identifier = Identifier::sanitize(name);
    let is_taken = BuiltinProvider::from_name(identifier.as_str()).is_some();
    is_taken.then(|| format!("the name `{identifier}` is reserved for a built-in; choose another name"))
}

impl ServerSection {
    /// Invalid keys and their problems; an empty key stands for the section itself.
    pub(super) fn problems(&self, name: &str) -> Vec<(&'static str, String)> {
        let mut problems: Vec<_> =
            reserved_name_problem(name).map(|problem| ("", problem)).into_iter().collect();
        match (&self.command, &self.url) {
            (None, None) => problems.push(("", "needs a `command` to start or a `url` to reach".to_owned())),
            (Some(_), Some(_)) => {
                problems.push((
                    "url",
                    "cannot be combined with `command`: a server is either started or connected to"
                        .to_owned(),
                ));
            }
            (Some(command), None) if command.trim().is_empty() => {
                problems.push(("command", "must not be empty".to_owned()));
            }
            (None, Some(url)) if !url.starts_with("https://") && !url.starts_with("http://") => {
                problems.push(("url", "must begin with https:// or http://".to_owned()));
            }
            _ => {}
        }
        let with_command =
            [("args", self.args.is_some()), ("env", self.env.is_some()), ("cwd", self.cwd.is_some())];
        let with_url = [
            ("transport", self.transport.is_some()),
            ("headers", self.headers.is_some()),
            ("oauth", self.oauth.is_some()),
        ];
        let misplaced = |keys: &[(&'static str, bool)], other: &str| {
            let present = keys.iter().filter(|(_, present)| *present);
            present.map(|(key, _)| (*key, format!("is only valid with `{other}`"))).collect::<Vec<_>>()
        };
        if self.command.is_none() && self.url.is_some() {
            problems.extend(misplaced(&with_command, "command"));
        }
        if self.url.is_none() && self.command.is_some() {
            problems.extend(misplaced(&with_url, "url"));
        }
        if let Err(error) = self.headers() {
            problems.push(("headers", error.to_string()));
        }
        if let Some(oauth) = &self.oauth {
            if oauth.client_secret.is_some() && oauth.client_id.is_none() {
                problems.push(("oauth", "has a `client_secret` and no `client_id`".to_owned()));
            }
            if oauth.client_metadata_url.as_ref().is_some_and(|url| !url.starts_with("https://")) {
                problems.push(("oauth", "its `client_metadata_url` must begin with https://".to_owned()));
            }
        }
        for (key, allowed, denied) in
            [("allowed_tools", &*self.allowed_tools, &[][..]), ("denied_tools", &[][..], &*self.denied_tools)]
        {
            if let Err(error) = ToolFilter::new(allowed, denied) {
                problems.push((key, error.to_string()));
            }
        }
        problems
    }

    fn headers(&self) -> Result<Headers, ctx_mcp::InvalidHeader> {
        let configured = self.headers.iter().flatten();
        Headers::new(configured.map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// The command line or URL for display, without environment variables and headers.
    pub(crate) fn command_or_url(&self) -> String {
        match (&self.command, &self.url) {
            (Some(command), _) => {
                let words = std::iter::once(command).chain(self.args.iter().flatten());
                words.map(String::as_str).collect::<Vec<_>>().join(" ")
            }
            (None, Some(url)) => url.clone(),
            (None, None) => String::new(),
        }
    }

    /// The URL, if the server is remote.
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    fn transport(&self, config: &Config) -> Transport {
        let Some(program) = &self.command else {
            // Cannot fail: the headers were checked when the configuration was loaded.
            let headers = self.headers().unwrap_or_default();
            let kind = match self.transport {
                Some(HttpTransport::Sse) => HttpTransportKind::Sse,
                Some(HttpTransport::StreamableHttp) | None => HttpTransportKind::Streamable,
            };
            let url = self.url.clone().unwrap_or_default();
            let oauth = self.oauth.as_ref().map(LoginSection::settings).unwrap_or_default();
            return Transport::Http { url, headers, kind, oauth };
        };
        let mut environment: BTreeMap<OsString, OsString> = INHERITED_VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)))
            .collect();
        let named = self.env.iter().flatten();
        environment.extend(named.map(|(name, value)| (name.into(), value.into())));
        // A path is relative to the workspace; a bare name is looked up in `PATH`.
        let program = match program.contains('/') {
            true => config.root.join(program).into(),
            false => program.into(),
        };
        Transport::Stdio(ServerCommand {
            program,
            arguments: self.args.iter().flatten().map(OsString::from).collect(),
            environment: environment.into_iter().collect(),
            directory: self.cwd.as_ref().map_or_else(|| config.root.clone(), |cwd| config.root.join(cwd)),
        })
    }
}

impl LoginSection {
    fn settings(&self) -> OAuthSettings {
        OAuthSettings {
            client_id: self.client_id.clone(),
            client_secret: self.client_secret.clone(),
            client_metadata_url: self.client_metadata_url.clone(),
            scopes: self.scopes.clone(),
        }
    }
}

impl LimitSettings {
    fn upstream(&self) -> UpstreamLimits {
        UpstreamLimits {
            start: seconds(self.upstream_start_timeout),
            call: seconds(self.upstream_timeout),
            message_bytes: self.upstream_message_bytes.get() as usize,
            in_flight: self.upstream_calls.get() as usize,
            tools: self.upstream_tools.get() as usize,
            ..UpstreamLimits::default()
        }
    }
}

impl Config {
    /// The settings of the servers that `may_run` selects, and warnings about the names of all servers.
    pub(crate) fn upstreams(&self, may_run: &dyn Fn(&str) -> bool) -> (Vec<UpstreamSettings>, Vec<String>) {
        let sections = &self.settings.mcp_servers;
        let names = Identifier::sanitize_all(sections.keys().map(String::as_str));
        let mut warnings = Vec::new();
        let mut upstreams = Vec::new();
        for ((section_name, section), name) in sections.iter().zip(names) {
            if name != Identifier::sanitize(section_name) {
                let position = self.message_prefix(&["mcp_servers", section_name]);
                warnings.push(format!(
                    "{position}two servers have the same name in scripts; `{section_name}` is renamed to {name}"
                ));
            }
            if !may_run(&upstream_section(section_name)) {
                continue;
            }
            let mut limits = self.settings.limits.upstream();
            limits.call = section.timeout.map_or(limits.call, seconds);
            upstreams.push(UpstreamSettings {
                name,
                transport: section.transport(self),
                start: match section.start {
                    StartSetting::Eager => StartMode::Eager,
                    StartSetting::Lazy => StartMode::Lazy,
                },
                exposed: section.expose,
                changes: match section.changes {
                    None => DefinitionChangePolicy::RequireAcceptanceUnlessReadOnly,
                    Some(ChangePolicy::Tell) => DefinitionChangePolicy::Report,
                    Some(ChangePolicy::Ask) => DefinitionChangePolicy::RequireAcceptance,
                },
                // Cannot fail: the patterns were checked when the configuration was loaded.
                tools: ToolFilter::new(&section.allowed_tools, &section.denied_tools).unwrap_or_default(),
                limits,
            });
        }
        (upstreams, warnings)
    }
}

/// Placeholder for a variable that is not set, so that the rest can be checked.
const PLACEHOLDER: &str = "https://unset";

/// Checks a section as if a file contained it. Returns its unset variables, without which the section would
/// be dropped, or its problems.
pub(crate) fn check_upstream(
    name: &str,
    entry: &Value,
    variables: VariableLookup<'_>,
) -> Result<Vec<String>, Vec<String>> {
    let unset = RefCell::new(BTreeSet::new());
    let value = |variable: &str| {
        Some(variables(variable).unwrap_or_else(|| {
            unset.borrow_mut().insert(variable.to_owned());
            PLACEHOLDER.to_owned()
        }))
    };
    let expanded = expand_variables(entry.clone(), &value).map_err(|variable| vec![variable])?;
    let section: ServerSection = serde_path_to_error::deserialize(expanded)
        .map_err(|error| vec![format!("`{}`: {}", error.path(), error.inner())])?;
    let problem = |(key, message): (&str, String)| match key {
        "" => message,
        key => format!("`{key}` {message}"),
    };
    let problems: Vec<String> = section.problems(name).into_iter().map(problem).collect();
    if problems.is_empty() { Ok(unset.into_inner().into_iter().collect()) } else { Err(problems) }
}

/// The name of a server's section.
pub(crate) fn upstream_section(name: &str) -> String {
    format!("mcp_servers.{name}")
}

#[cfg(test)]
mod tests {
    use super::INHERITED_VARIABLES;

    #[test]
    fn the_guide_lists_every_variable_that_a_server_inherits() {
        let guide = include_str!("../../../../docs/guide/upstreams.md");
        for name in INHERITED_VARIABLES {
            assert!(guide.contains(&format!("`{name}`")), "{name}");
        }
    }
}
