//! Everything callable that is somewhere else: upstream MCP servers and APIs.

use crate::cli::state_folder;
use crate::config::{Config, api_section};
use crate::definitions::UpstreamMemory;
use crate::logins;
use crate::trust::Guard;
use ctx_core::{Identifier, Provider, Redactor};
use ctx_mcp::{ReaperProgram, UpstreamOptions, Upstreams as Servers};
use ctx_openapi::{ApiOptions, Apis};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The upstreams of a workspace that may be used.
pub(crate) struct Upstreams {
    pub(crate) servers: Servers,
    pub(crate) apis: Apis,
}

/// What upstreams need of the workspace.
pub(crate) struct Surroundings {
    /// Ends processes when the program is gone.
    pub(crate) reaper: ReaperProgram,
    pub(crate) redactor: Redactor,
    /// Called when something that can be called is there, or is not any more.
    pub(crate) on_change: Arc<dyn Fn() + Send + Sync>,
}

impl Upstreams {
    /// Begins to reach those whose sections may be used.
    pub(crate) fn start(config: &Config, may_use: &dyn Fn(&str) -> bool, around: Surroundings) -> Self {
        let Surroundings { reaper, redactor, on_change } = around;
        // What is to be known of their names was told when the workspace was opened.
        let (servers, _) = config.upstreams(may_use);
        let (apis, _) = config.apis(may_use);
        let guards: BTreeMap<Identifier, Guard> = config
            .settings
            .apis
            .keys()
            .filter_map(|name| Some((Identifier::sanitize(name), config.guard(&api_section(name))?)))
            .collect();
        let is_trusted =
            move |name: &Identifier, file: &Path| guards.get(name).is_none_or(|guard| guard.allows(file));
        let options =
            ApiOptions { cache: api_cache(), on_change: on_change.clone(), is_trusted: Arc::new(is_trusted) };
        let apis = Apis::start(apis, &options);
        let options = UpstreamOptions {
            name: "ctx".to_owned(),
            starts_at_once: ctx_mcp::default_starts_at_once(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            reaper,
            redactor,
            memory: Some(Arc::new(UpstreamMemory::of(config))),
            credentials: logins::store(),
            on_change,
            may_start: Arc::new(start_check(config)),
        };
        Self { servers: Servers::start(servers, options), apis }
    }

    /// One provider for each.
    pub(crate) fn providers(&self) -> Vec<Arc<dyn Provider>> {
        [self.servers.providers(), self.apis.providers()].concat()
    }

    /// Waits until the functions of each are known, or it has failed.
    pub(crate) async fn known(&self) {
        tokio::join!(self.servers.known(), self.apis.known());
    }

    /// Waits until each has answered, or has failed.
    pub(crate) async fn settled(&self) {
        tokio::join!(self.servers.settled(), self.apis.known());
    }

    /// Ends every connection and process.
    pub(crate) async fn shutdown(&self) {
        self.servers.shutdown().await;
    }
}

/// The check before a server is started: the workspace files that its command line names must still have the trusted
/// content.
fn start_check(config: &Config) -> impl Fn(&Identifier) -> Result<(), String> + Send + Sync + 'static {
    let guarded =
        config.trust_requests.iter().filter(|request| !request.files.is_empty()).filter_map(|request| {
            let name = request.section.strip_prefix("mcp_servers.")?;
            Some((Identifier::sanitize(name), (config.guard(&request.section)?, request.files.clone())))
        });
    let guarded: BTreeMap<Identifier, (Guard, Vec<PathBuf>)> = guarded.collect();
    move |name| {
        let Some((guard, files)) = guarded.get(name) else { return Ok(()) };
        match files.iter().find(|file| !guard.allows(file)) {
            Some(file) => Err(Guard::refusal(&file.display().to_string())),
            None => Ok(()),
        }
    }
}

/// Where descriptions of APIs are kept as operations. It is the user's, not the workspace's: a repository that brought
/// its own would say where credentials go.
fn api_cache() -> Option<PathBuf> {
    Some(state_folder()?.join("apis"))
}
