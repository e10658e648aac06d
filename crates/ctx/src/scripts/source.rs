//! Connectors of scripts.

use super::{FileVersion, ScriptRunner, file_version};
use crate::trust::{self, FileGuard};
use async_trait::async_trait;
use ctx_core::{Connector, Cursor, PullResult, Sink, SourceError};
use ctx_luau::{ScriptProblem, ScriptSettings};
use std::sync::{Arc, Mutex, PoisonError};

/// A source with a script as its connector. Loads the script on first use, and again after it has changed.
pub(crate) struct ScriptSource {
    runner: Arc<ScriptRunner>,
    settings: ScriptSettings,
    guard: Option<FileGuard>,
    loaded: Mutex<Option<LoadedConnector>>,
}

/// The last valid connector, and the file version it was loaded for. After a failed reload that version is
/// newer than the connector.
#[derive(Clone)]
struct LoadedConnector {
    version: Option<FileVersion>,
    connector: Arc<dyn Connector>,
}

impl ScriptSource {
    pub(crate) fn new(runner: Arc<ScriptRunner>, settings: ScriptSettings, guard: Option<FileGuard>) -> Self {
        Self { runner, settings, guard, loaded: Mutex::default() }
    }

    async fn connector(&self) -> Result<Arc<dyn Connector>, SourceError> {
        let unavailable = |problem: ScriptProblem| SourceError::Unavailable(problem.message);
        let now = file_version(&self.settings.path);
        let before = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(last) = &before
            && last.version == now
        {
            return Ok(last.connector.clone());
        }
        let is_trusted = self.guard.as_ref().is_none_or(|guard| guard.allows(&self.settings.path));
        if !is_trusted {
            let reason = FileGuard::refusal(&self.settings.display_path);
            let Some(last) = before else { return Err(SourceError::Unavailable(reason)) };
            tracing::warn!("{reason}; the previous version stays in use");
            return Ok(last.connector);
        }
        let loaded = self.runner.scripts().map_err(unavailable)?.connector(&self.settings).await;
        let connector = match (loaded, before) {
            (Ok(connector), _) => connector,
            (Err(problem), Some(last)) => {
                tracing::warn!("{}; the previous version stays in use", problem.message);
                last.connector
            }
            (Err(problem), None) => return Err(unavailable(problem)),
        };
        let last = LoadedConnector { version: now, connector: connector.clone() };
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
        Ok(connector)
    }
}

#[async_trait]
impl Connector for ScriptSource {
    async fn pull(&self, cursor: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError> {
        self.connector().await?.pull(cursor, sink).await
    }

    async fn check(&self) -> Result<(), SourceError> {
        self.connector().await?.check().await
    }
}

/// Stands for a source that is not trusted; every sync fails.
pub(crate) struct UntrustedSource;

#[async_trait]
impl Connector for UntrustedSource {
    async fn pull(&self, _: Option<&Cursor>, _: &Sink) -> Result<PullResult, SourceError> {
        Err(SourceError::Unavailable(trust::refusal()))
    }

    async fn check(&self) -> Result<(), SourceError> {
        Err(SourceError::Unavailable(trust::refusal()))
    }
}
