//! The upstreams of a workspace: MCP servers and APIs.

use crate::cli::state_folder;
use crate::config::{Config, SectionChanges, api_section, upstream_section};
use crate::definitions::StateDefinitions;
use crate::logins;
use crate::trust::FileGuard;
use arc_swap::ArcSwap;
use ctx_core::{Identifier, Provider, Redactor};
use ctx_mcp::{ReaperProgram, UpstreamOptions, Upstreams as Servers, default_starts_at_once};
use ctx_openapi::{ApiOptions, Apis};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The trusted upstreams of a workspace.
pub(crate) struct Upstreams {
    pub(crate) servers: Servers,
    pub(crate) apis: Apis,
    api_options: ApiOptions,
    /// Replaced together with the configuration.
    guards: Arc<ArcSwap<UpstreamGuards>>,
}

/// The parts of the workspace that upstreams use.
pub(crate) struct UpstreamDependencies {
    /// Ends upstream processes after this process is gone.
    pub(crate) reaper: ReaperProgram,
    pub(crate) redactor: Redactor,
    /// Called when functions have been added, changed or removed.
    pub(crate) on_change: Arc<dyn Fn() + Send + Sync>,
}

impl Upstreams {
    /// Starts to connect the upstreams whose sections `is_selected` selects.
    pub(crate) fn start(
        config: &Config,
        is_selected: &dyn Fn(&str) -> bool,
        dependencies: UpstreamDependencies,
    ) -> Self {
        let UpstreamDependencies { reaper, redactor, on_change } = dependencies;
        // The warnings were reported when the workspace was opened.
        let (servers, _) = config.upstreams(is_selected);
        let (apis, _) = config.apis(is_selected);
        let guards = Arc::new(ArcSwap::from_pointee(UpstreamGuards::of(config)));
        let api_options = ApiOptions {
            cache: api_cache(),
            on_change: on_change.clone(),
            is_trusted: {
                let guards = guards.clone();
                Arc::new(move |name: &Identifier, file: &Path| guards.load().allow_spec(name, file))
            },
        };
        let apis = Apis::start(apis, &api_options);
        let options = UpstreamOptions {
            name: "ctx".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            reaper,
            redactor,
            definitions: Some(Arc::new(StateDefinitions::of(config))),
            credentials: logins::store(),
            on_change,
            may_start: {
                let guards = guards.clone();
                Arc::new(move |name: &Identifier| guards.load().allow_start(name))
            },
            starts_at_once: default_starts_at_once(),
        };
        Self { servers: Servers::start(servers, options), apis, api_options, guards }
    }

    /// Starts, ends and restarts the upstreams that the changes concern; all others keep running.
    pub(crate) fn update(&self, config: &Config, changes: &SectionChanges) {
        self.guards.store(Arc::new(UpstreamGuards::of(config)));
        let has_limits = changes.contains("limits");
        let settings = &config.settings;
        let servers: Vec<_> =
            settings.mcp_servers.keys().map(|name| with_section(name, upstream_section)).collect();
        let apis: Vec<_> = settings.apis.keys().map(|name| with_section(name, api_section)).collect();
        // Servers with colliding names are numbered, so a change of one may rename another.
        let collides = |section: &str| {
            let own_name = servers.iter().find(|(_, known)| known == section).map(|(name, _)| name);
            servers.iter().filter(|(name, _)| Some(name) == own_name).count() > 1
        };
        let servers_differ = |section: &str| has_limits || changes.contains(section) || collides(section);
        let apis_differ =
            |section: &str| has_limits || changes.contains(section) || changes.contains("frozen_params");
        let keep_server = |name: &Identifier| is_unchanged(name, &servers, &servers_differ);
        let keep_api = |name: &Identifier| is_unchanged(name, &apis, &apis_differ);
        let started = config.upstreams(&servers_differ).0;
        self.servers.update(&keep_server, started);
        let started = config.apis(&apis_differ).0;
        self.apis.update(&keep_api, started, &self.api_options);
    }

    /// The providers, one per upstream.
    pub(crate) fn providers(&self) -> Vec<Arc<dyn Provider>> {
        [self.servers.providers(), self.apis.providers()].concat()
    }

    /// Waits until the functions of each upstream are known, or it has failed.
    pub(crate) async fn wait_until_known(&self) {
        tokio::join!(self.servers.wait_for_tools(), self.apis.wait_until_loaded());
    }

    /// Waits until each upstream has answered or failed.
    pub(crate) async fn wait_until_settled(&self) {
        tokio::join!(self.servers.wait_for_first_attempts(), self.apis.wait_until_loaded());
    }

    /// Closes all connections and ends all processes.
    pub(crate) async fn shutdown(&self) {
        self.servers.shutdown().await;
    }
}

/// The name of an upstream in the catalog, and its section.
fn with_section(name: &str, section: fn(&str) -> String) -> (Identifier, String) {
    (Identifier::sanitize(name), section(name))
}

/// Whether a running upstream is still configured, without changes.
fn is_unchanged(name: &Identifier, all: &[(Identifier, String)], differs: &dyn Fn(&str) -> bool) -> bool {
    all.iter().any(|(known, section)| known == name && !differs(section))
}

/// Guards for workspace files that upstreams run or read addresses from.
struct UpstreamGuards {
    /// Guards for the files in the command lines of servers.
    servers: BTreeMap<Identifier, (FileGuard, Vec<PathBuf>)>,
    /// Guards for API descriptions.
    apis: BTreeMap<Identifier, FileGuard>,
}

impl UpstreamGuards {
    fn of(config: &Config) -> Self {
        let servers =
            config.trust_requests.iter().filter(|request| !request.files.is_empty()).filter_map(|request| {
                let name = request.section.strip_prefix("mcp_servers.")?;
                Some((Identifier::sanitize(name), (config.guard(&request.section)?, request.files.clone())))
            });
        let apis = config
            .settings
            .apis
            .keys()
            .filter_map(|name| Some((Identifier::sanitize(name), config.guard(&api_section(name))?)));
        Self { servers: servers.collect(), apis: apis.collect() }
    }

    /// Whether the files in a server's command line still have the trusted content.
    fn allow_start(&self, name: &Identifier) -> Result<(), String> {
        let Some((guard, files)) = self.servers.get(name) else { return Ok(()) };
        match files.iter().find(|file| !guard.allows(file)) {
            Some(file) => Err(FileGuard::refusal(&file.display().to_string())),
            None => Ok(()),
        }
    }

    /// Whether the description of an API still has the trusted content.
    fn allow_spec(&self, name: &Identifier, file: &Path) -> bool {
        self.apis.get(name).is_none_or(|guard| guard.allows(file))
    }
}

/// The cache of parsed API descriptions. It is the user's, not the workspace's: a repository could otherwise
/// bring a cache that sends credentials elsewhere.
fn api_cache() -> Option<PathBuf> {
    Some(state_folder()?.join("apis"))
}
