//! Configuration reload: when a configuration file is edited, or the user trusts another section, a running server
//! switches to the new configuration. After an invalid edit the previous configuration stays in use.

use super::ConfigLoader;
use super::background::BackgroundTasks;
use crate::cli::GlobalOptions;
use crate::commands::refresh::{RefreshTasks, SourceRefresh, SyncReporter};
use crate::config::{Replacement, TrustRequest};
use crate::error::{CommandError, CommandResult};
use crate::file_version::{FileVersion, file_version};
use crate::scripts::ScriptSet;
use crate::trust;
use crate::workspace::Workspace;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::CancellationToken;

/// How often the configuration files are polled for changes.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// Number of polls between two checks whether the user has trusted another section.
const TRUST_POLLS: u32 = 4;

/// A served workspace, with its background tasks and the task that reloads its configuration.
pub(crate) struct LiveWorkspace {
    task: JoinHandle<BackgroundTasks>,
    /// The workspace with its first configuration.
    initial_workspace: Arc<Workspace>,
}

/// How a served workspace loads its configuration again, and where messages go.
pub(crate) struct ReloadOptions {
    pub(crate) load: ConfigLoader,
    pub(crate) global: GlobalOptions,
    /// Receives the results of syncs.
    pub(crate) report_event: SyncReporter,
    /// Receives a line about each reload.
    pub(crate) report_reload: Arc<dyn Fn(&str) + Send + Sync>,
}

impl LiveWorkspace {
    /// Starts the background tasks, and reloads the configuration until `shutdown`. `sources` resolves to the sources
    /// to keep fresh: at once, or after a first sync.
    pub(crate) fn start(
        workspace: Arc<Workspace>,
        scripts: ScriptSet,
        sources: impl Future<Output = Vec<SourceRefresh>> + Send + 'static,
        options: ReloadOptions,
        shutdown: &CancellationToken,
    ) -> Self {
        let watcher = ConfigWatcher {
            seen: workspace.config.files.clone(),
            loaded: workspace.config.files.clone(),
            untrusted: workspace.config.untrusted.clone(),
            options: ReloadOptions { global: options.global.without_trust(), ..options },
            shutdown: shutdown.clone(),
        };
        let background = BackgroundTasks::start(workspace.clone(), scripts, shutdown);
        let task = tokio::spawn(watcher.run(background, sources));
        Self { task, initial_workspace: workspace }
    }

    /// Stops all background tasks; call it after `shutdown` was cancelled.
    pub(crate) async fn end(self, grace_period: Duration) {
        match tokio::time::timeout(grace_period, self.task).await {
            Ok(Ok(background)) => background.end(grace_period).await,
            // The task is in the middle of a reload, or has panicked. All configurations share their processes, so
            // ending those of the first workspace ends all of them.
            _ => {
                self.initial_workspace.end_processes().await;
                self.initial_workspace.close();
            }
        }
    }
}

/// Polls the files of a configuration, and reloads it.
struct ConfigWatcher {
    /// The file versions at the last poll (`seen`), and those that were last loaded (`loaded`).
    seen: Vec<(PathBuf, Option<FileVersion>)>,
    loaded: Vec<(PathBuf, Option<FileVersion>)>,
    /// Sections that are left out because the user has not trusted them.
    untrusted: Vec<TrustRequest>,
    options: ReloadOptions,
    shutdown: CancellationToken,
}

impl ConfigWatcher {
    async fn run(
        mut self,
        mut background: BackgroundTasks,
        sources: impl Future<Output = Vec<SourceRefresh>>,
    ) -> BackgroundTasks {
        let mut sources = std::pin::pin!(sources);
        // Stays true until the first sync is done, or until a reload, which determines the sources anew.
        let mut is_waiting_for_sources = true;
        for poll in 1_u32.. {
            tokio::select! {
                () = self.shutdown.cancelled() => break,
                sources = &mut sources, if is_waiting_for_sources => {
                    is_waiting_for_sources = false;
                    background.refresh(sources, &self.options.report_event);
                    continue;
                }
                () = tokio::time::sleep(POLL_EVERY) => {}
            }
            let is_edited = self.is_edited().await;
            if is_edited || (poll % TRUST_POLLS == 0 && self.is_trusted_now(&background).await) {
                let loaded = self.load(&background.workspace).await;
                if let Some(replacement) = self.accept(loaded, is_edited) {
                    is_waiting_for_sources = false;
                    background = self.reload(background, replacement).await;
                }
            }
        }
        background
    }

    /// Whether a file differs from the loaded version and has not changed since the last poll: an editor may be in the
    /// middle of writing it.
    async fn is_edited(&mut self) -> bool {
        let paths: Vec<PathBuf> = self.seen.iter().map(|(path, _)| path.clone()).collect();
        let poll_versions =
            || paths.into_iter().map(|path| (path.clone(), file_version(&path))).collect::<Vec<_>>();
        let Ok(now) = spawn_blocking(poll_versions).await else { return false };
        let is_stable = self.seen == now;
        self.seen = now;
        is_stable && self.seen != self.loaded
    }

    /// Whether the user has meanwhile trusted a section that was left out.
    async fn is_trusted_now(&self, background: &BackgroundTasks) -> bool {
        let Some(path) = background.workspace.config.path.clone() else { return false };
        let untrusted = self.untrusted.clone();
        let evaluate = move || trust::evaluate(&path, &untrusted).contains(&true);
        !self.untrusted.is_empty() && spawn_blocking(evaluate).await.unwrap_or(false)
    }

    /// Loads the configuration to replace the running one.
    async fn load(&mut self, running: &Arc<Workspace>) -> CommandResult<Replacement> {
        self.loaded.clone_from(&self.seen);
        let (load, global, running) =
            (self.options.load.clone(), self.options.global.clone(), running.clone());
        let replace = move || {
            let config = load(&global)?;
            if (&config.path, &config.root) != (&running.config.path, &running.config.root) {
                return Err(CommandError::new("the file was deleted or moved"));
            }
            Ok(config.replace(&running.config)?)
        };
        spawn_blocking(replace).await.map_err(|_| CommandError::new("it cannot be loaded"))?
    }

    /// Logs the problems of a loaded configuration, and returns it if it differs from the running one.
    fn accept(&mut self, loaded: CommandResult<Replacement>, is_edited: bool) -> Option<Replacement> {
        let files = self.loaded.iter().map(|(path, _)| path.display().to_string());
        let file = files.into_iter().next().unwrap_or_default();
        let replacement = match loaded {
            Ok(replacement) => replacement,
            Err(error) => {
                let problems = error.messages.join("; ");
                tracing::warn!(
                    "{file} has changed and cannot be used: {problems}; the previous configuration stays in use"
                );
                return None;
            }
        };
        let Replacement { config, changes, needs_restart } = &replacement;
        // Untrusted sections count as a change: their tools tell callers that they are not trusted.
        let is_changed = !changes.is_empty() || self.untrusted != config.untrusted;
        self.untrusted.clone_from(&config.untrusted);
        if is_edited && !config.untrusted.is_empty() {
            let untrusted = trust::inline_list(&config.untrusted);
            tracing::warn!("{file} has changed; not trusted: {untrusted}; {}", trust::TRUST_HINT);
        }
        if !needs_restart.is_empty() {
            let settings = needs_restart.join(", ");
            tracing::warn!("{file} has changed; a restart is needed to apply {settings}");
        }
        is_changed.then_some(replacement)
    }

    /// Switches to another configuration; keeps the previous one if the new one cannot be used.
    async fn reload(&self, background: BackgroundTasks, replacement: Replacement) -> BackgroundTasks {
        let Replacement { config, changes, .. } = replacement;
        let changes = Arc::new(changes);
        let file = config.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let reconfigured = {
            let (before, changes) = (background.workspace.clone(), changes.clone());
            let additions = self.options.global.additions.clone();
            spawn_blocking(move || before.reconfigured(config, &changes, &additions)).await
        };
        let workspace = match reconfigured {
            Ok(Ok(workspace)) => Arc::new(workspace),
            Ok(Err(error)) => {
                let problems = error.messages.join("; ");
                tracing::warn!(
                    "{file} has changed and cannot be used: {problems}; the previous configuration stays in use"
                );
                return background;
            }
            Err(_) => return background,
        };
        let before = background.workspace.clone();
        let is_new = |warning: &&String| !before.warnings.contains(warning);
        workspace.warnings.iter().filter(is_new).for_each(|warning| tracing::warn!("{warning}"));
        let scripts = match background.stop().await {
            Some(scripts) => {
                let known = scripts.problems();
                let scripts = workspace.load_scripts_after(scripts).await;
                let problems = scripts.problems().into_iter().filter(|problem| !known.contains(problem));
                problems.for_each(|problem| tracing::warn!("{problem}"));
                scripts
            }
            None => workspace.load_scripts().await,
        };
        let install = {
            let (workspace, changes) = (workspace.clone(), changes.clone());
            move || {
                workspace.install(&scripts, &changes);
                scripts
            }
        };
        let scripts = match spawn_blocking(install).await {
            Ok(scripts) => scripts,
            Err(_) => workspace.load_scripts().await,
        };
        if !changes.is_empty() {
            (self.options.report_reload)(&format!("{file} was reloaded: {changes}"));
        }
        let sources = RefreshTasks::after(&workspace, &changes);
        let mut background = BackgroundTasks::start(workspace, scripts, &self.shutdown);
        background.refresh(sources, &self.options.report_event);
        background
    }
}
