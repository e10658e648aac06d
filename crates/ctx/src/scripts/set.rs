//! The set of callable scripts: for each, the last valid version and the problem of the newest one.

use super::{
    CallableKind, ConfiguredScript, FileVersion, RESERVED_NAMES, ScriptRunner, file_version, script_problem,
};
use crate::trust::FileGuard;
use crate::workspace::{CatalogComposition, log_new_warnings};
use ctx_core::{Agent, BuiltinProvider, Identifier, Provider, Tool};
use ctx_luau::ScriptProblem;
use futures::StreamExt;
use futures::future::join_all;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Maximum number of scripts that are loaded concurrently; each occupies a worker for a moment.
const LOADING_MAX: usize = 4;

/// Interval at which a server checks the files of scripts for changes.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// Delay before an untrusted change is checked again; `ctx trust` may have allowed it meanwhile.
const REFUSAL_RETRY: Duration = Duration::from_secs(2);

/// A loaded script.
#[derive(Clone)]
enum CallableScript {
    Tool(Arc<dyn Tool>),
    Agent(Arc<dyn Agent>),
}

/// A configured script: its last valid version, and the problem of the newest one.
pub(crate) struct LoadedScript {
    pub(crate) configured: ConfiguredScript,
    /// The file versions that were last loaded, valid or not, and last seen.
    version: Option<FileVersion>,
    seen: Option<FileVersion>,
    last_valid: Option<CallableScript>,
    problem: Option<String>,
    /// When an untrusted change was last refused; it is checked again after [`REFUSAL_RETRY`].
    refused_at: Option<Instant>,
}

/// All callable scripts of a workspace.
pub(crate) struct ScriptSet {
    runner: Arc<ScriptRunner>,
    scripts: Vec<LoadedScript>,
    /// Warnings of the catalog about scripts.
    pub(crate) warnings: Vec<String>,
}

impl ScriptSet {
    /// Loads all scripts concurrently. Invalid ones stay in the set with their problem.
    pub(crate) async fn load(runner: Arc<ScriptRunner>, configured: Vec<ConfiguredScript>) -> Self {
        let before = Self { runner: runner.clone(), scripts: Vec::new(), warnings: Vec::new() };
        Self::load_after(before, runner, configured).await
    }

    /// Like [`ScriptSet::load`], but reuses scripts of `before` that have the same settings and runner.
    pub(crate) async fn load_after(
        before: Self,
        runner: Arc<ScriptRunner>,
        configured: Vec<ConfiguredScript>,
    ) -> Self {
        let same_runner = Arc::ptr_eq(&before.runner, &runner);
        let mut known: Vec<LoadedScript> = if same_runner { before.scripts } else { Vec::new() };
        let loading = configured.into_iter().map(|configured| {
            let same = known.iter().position(|script| script.configured.is_same_script(&configured));
            let reused = same.map(|index| known.swap_remove(index));
            let runner = &runner;
            async move {
                match reused {
                    Some(script) => LoadedScript { configured, ..script },
                    None => LoadedScript::load(runner, configured).await,
                }
            }
        });
        let loading: Vec<_> = loading.collect();
        let scripts = futures::stream::iter(loading).buffered(LOADING_MAX).collect().await;
        Self { runner, scripts, warnings: Vec::new() }
    }

    /// Reloads scripts whose files have changed and are stable. An invalid version leaves the last valid one
    /// in place. Returns whether a script was replaced.
    pub(crate) async fn reload(&mut self) -> bool {
        let paths: Vec<_> =
            self.scripts.iter().map(|script| script.configured.settings.path.clone()).collect();
        let poll_versions = move || paths.iter().map(|path| file_version(path)).collect::<Vec<_>>();
        let Ok(now) = tokio::task::spawn_blocking(poll_versions).await else { return false };
        let runner = &self.runner;
        let changed = self.scripts.iter_mut().zip(now).filter_map(|(script, now)| {
            // A file may be half written; it is loaded when two consecutive checks see the same version.
            let is_stable = std::mem::replace(&mut script.seen, now) == now;
            let is_waiting = script.refused_at.is_some_and(|at| at.elapsed() < REFUSAL_RETRY);
            (is_stable && now != script.version && !is_waiting).then_some(script)
        });
        let reloading = changed.map(|script| async {
            let shown = &script.configured.settings.display_path;
            if !is_trusted(&script.configured).await {
                // Logged for the first refusal only, not for each retry.
                if script.refused_at.replace(Instant::now()).is_none() {
                    let reason = FileGuard::refusal(shown);
                    tracing::warn!("{reason}; the previous version stays in use");
                    script.problem = Some(reason);
                }
                return false;
            }
            script.refused_at = None;
            script.version = script.seen;
            match load(runner, &script.configured).await {
                Ok(callable) => {
                    tracing::info!("{shown} was reloaded");
                    script.last_valid = Some(callable);
                    script.problem = None;
                    true
                }
                Err(problem) => {
                    let stays =
                        if script.last_valid.is_some() { "; the previous version stays in use" } else { "" };
                    tracing::warn!("{}{stays}", problem.message);
                    script.problem = Some(problem.message);
                    false
                }
            }
        });
        join_all(reloading).await.contains(&true)
    }

    /// All scripts, valid or not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LoadedScript> {
        self.scripts.iter()
    }

    /// Reloads changed files until `stop`; then returns the set.
    pub(crate) async fn keep_fresh(
        mut self,
        composition: Arc<CatalogComposition>,
        stop: CancellationToken,
    ) -> Self {
        if self.scripts.is_empty() {
            return self;
        }
        while stop.run_until_cancelled(tokio::time::sleep(POLL_EVERY)).await.is_some() {
            if self.reload().await {
                let before = composition.live().current();
                let catalog = composition.set_scripts(&self);
                log_new_warnings(&before, &catalog);
            }
        }
        self
    }

    /// The problems, one line each.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.scripts.iter().filter_map(LoadedScript::warning).chain(self.warnings.iter().cloned()).collect()
    }

    /// The providers of `execute`, of its kept results and files, of valid scripts, and of inline agents.
    pub(crate) fn providers(&self, inline: &[Arc<dyn Agent>]) -> Vec<Arc<dyn Provider>> {
        let gateway = self.runner.gateway().ok().map(|gateway| {
            let listed: Arc<dyn Provider> = gateway.clone();
            [listed].into_iter().chain(gateway.kept_providers())
        });
        let mut provider = ScriptProvider { tools: Vec::new(), agents: inline.to_vec() };
        for script in &self.scripts {
            match &script.last_valid {
                Some(CallableScript::Tool(tool)) => provider.tools.push(tool.clone()),
                Some(CallableScript::Agent(agent)) => provider.agents.push(agent.clone()),
                None => {}
            }
        }
        let own: Arc<dyn Provider> = Arc::new(provider);
        gateway.into_iter().flatten().chain([own]).collect()
    }
}

impl LoadedScript {
    async fn load(runner: &ScriptRunner, configured: ConfiguredScript) -> Self {
        let version = file_version(&configured.settings.path);
        let (last_valid, problem) = match load(runner, &configured).await {
            Ok(callable) => (Some(callable), None),
            Err(problem) => (None, Some(problem.message)),
        };
        Self { configured, version, seen: version, last_valid, problem, refused_at: None }
    }

    /// The problem of the newest version.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The problem as a warning with the position and name of the section.
    fn warning(&self) -> Option<String> {
        let problem = self.problem.as_ref()?;
        let ConfiguredScript { message_prefix, .. } = &self.configured;
        Some(format!("{message_prefix}[{}] is left out: {problem}", self.configured.section()))
    }
}

/// Whether a script's file has the trusted content, or was edited by the user.
async fn is_trusted(configured: &ConfiguredScript) -> bool {
    let Some(guard) = configured.guard.clone() else { return true };
    let path = configured.settings.path.clone();
    tokio::task::spawn_blocking(move || guard.allows(&path)).await.unwrap_or(false)
}

async fn load(runner: &ScriptRunner, configured: &ConfiguredScript) -> Result<CallableScript, ScriptProblem> {
    let ConfiguredScript { kind, settings, .. } = configured;
    let name = Identifier::sanitize(&settings.name);
    if *kind == CallableKind::Tool && RESERVED_NAMES.contains(&name.as_str()) {
        return Err(script_problem(format!("`{name}` is reserved for a built-in; choose another name")));
    }
    let scripts = runner.scripts()?;
    Ok(match kind {
        CallableKind::Tool => CallableScript::Tool(scripts.tool(settings).await?),
        CallableKind::Agent => CallableScript::Agent(scripts.agent(settings).await?),
    })
}

/// The provider `tools`: the user's own tools, and agents.
pub(crate) struct ScriptProvider {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) agents: Vec<Arc<dyn Agent>>,
}

impl Provider for ScriptProvider {
    fn name(&self) -> Identifier {
        BuiltinProvider::Tools.identifier()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }

    fn agents(&self) -> Vec<Arc<dyn Agent>> {
        self.agents.clone()
    }
}
