//! Everything callable that is somewhere else: upstream MCP servers and APIs.

use crate::cli::state_folder;
use crate::config::Config;
use crate::definitions::UpstreamMemory;
use crate::logins;
use ctx_core::{Provider, Redactor};
use ctx_mcp::{ReaperProgram, UpstreamOptions, Upstreams as Servers};
use ctx_openapi::{ApiOptions, Apis};
use std::path::PathBuf;
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
        let options = ApiOptions { cache: api_cache(), on_change: on_change.clone(), is_trusted: Arc::new(|_, _| true) };
        let apis = Apis::start(apis, &options);
        let options = UpstreamOptions {
            name: "ctx".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            reaper,
            redactor,
            memory: Some(Arc::new(UpstreamMemory::of(config))),
            credentials: logins::store(),
            on_change,
            may_start: Arc::new(|_| Ok(())),
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

/// Where descriptions of APIs are kept as operations. It is the user's, not the workspace's: a repository that brought
/// its own would say where credentials go.
fn api_cache() -> Option<PathBuf> {
    Some(state_folder()?.join("apis"))
}
