//! `ctx doctor`

use crate::cli::{Global, state_folder};
use crate::commands::upstream;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::count;
use crate::style::{self, Painter};
use crate::workspace::Workspace;
use ctx_core::{chain, escape_line};
use ctx_mcp::UpstreamState;
use ctx_openapi::ApiState;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;

/// Check configuration, store, index, embeddings, sources, scripts and upstream servers, and say what to do.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {}

/// One thing that was checked.
#[derive(Debug, Serialize)]
struct Check {
    name: String,
    ok: bool,
    detail: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hints: Vec<String>,
}

impl Check {
    fn passed(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), ok: true, detail: detail.into(), hints: Vec::new() }
    }

    fn failed(name: &str, detail: impl Into<String>, hint: &str) -> Self {
        Self { name: name.to_owned(), ok: false, detail: detail.into(), hints: vec![hint.to_owned()] }
    }

    fn from_error(name: &str, error: CommandError) -> Self {
        Self { name: name.to_owned(), ok: false, detail: error.messages.join("; "), hints: error.hints }
    }
}

impl Doctor {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let checks = check_all(global).await;
        let failed = checks.iter().filter(|check| !check.ok).count();
        global.output().answer_painted(&json!({"ok": failed == 0, "checks": checks}), |painter| {
            checks.iter().map(|check| as_text(check, painter)).collect()
        })?;
        if failed == 0 {
            Ok(())
        } else {
            Err(CommandError::new(format!("{failed} of {} checks failed", checks.len())))
        }
    }
}

async fn check_all(global: &Global) -> Vec<Check> {
    let config = match global.load() {
        Ok(config) => config,
        Err(error) => {
            let problem = |detail| Check {
                name: "configuration".to_owned(),
                ok: false,
                detail,
                hints: error.hints.clone(),
            };
            return error.messages.into_iter().map(problem).collect();
        }
    };
    let shown = config
        .path
        .as_ref()
        .map_or_else(|| "no file, defaults only".to_owned(), |path| path.display().to_string());
    let mut checks = Vec::new();
    let workspace = match Workspace::open(config, &global.additions) {
        Ok(workspace) => workspace,
        Err(error) if error.exit == Exit::Usage => {
            checks.push(Check::from_error("configuration", error));
            return checks;
        }
        Err(error) => {
            checks.push(Check::passed("configuration", shown));
            checks.push(Check::from_error("store", error));
            return checks;
        }
    };
    if workspace.warnings.is_empty() {
        checks.push(Check::passed("configuration", shown));
    }
    for warning in &workspace.warnings {
        checks.push(Check::failed("configuration", warning, "the rest works without it"));
    }
    check_trust(&workspace, &mut checks);
    check_privacy(&workspace, &mut checks);
    check_knowledge(&workspace, &mut checks);
    check_embeddings(&workspace, &mut checks).await;
    check_sources(&workspace, &mut checks).await;
    check_scripts(&workspace, &mut checks).await;
    check_upstreams(&workspace, &mut checks).await;
    workspace.end_processes().await;
    checks
}

/// Connects to every server and reads every description, since only that shows whether it can be.
async fn check_upstreams(workspace: &Workspace, checks: &mut Vec<Check>) {
    let upstreams = workspace.connect_upstreams().await;
    for status in upstreams.apis.states() {
        let name = format!("apis.{}", status.name);
        checks.push(match &status.state {
            ApiState::Failed(reason) => Check::failed(
                &name,
                format!("{}: {reason}", status.spec),
                "check its section in ctx.toml; until its description can be read, the rest works",
            ),
            _ => Check {
                hints: upstream::apis::warnings(&status),
                ..Check::passed(&name, count(status.functions as u64, "function"))
            },
        });
    }
    for status in upstreams.servers.states() {
        let name = format!("mcp_servers.{}", status.name);
        let mut warnings = status.warnings;
        let mut check = match status.state {
            UpstreamState::LoginNeeded { told } => {
                let (detail, what) = told.split_once(": ").unwrap_or((&told, ""));
                Check::failed(&name, detail, what)
            }
            UpstreamState::Failed { reason, .. } => Check::failed(
                &name,
                reason,
                "check its section in ctx.toml; until it answers, the rest works",
            ),
            _ if !status.difference.is_empty() => Check {
                hints: vec![format!(
                    "look at them with `ctx upstream list`, accept them with `ctx upstream accept {}`",
                    status.name
                )],
                ..Check::passed(&name, format!("not the tools that were accepted: {}", status.difference))
            },
            _ => Check::passed(&name, count(status.tools as u64, "tool")),
        };
        check.hints.append(&mut warnings);
        checks.push(check);
    }
}

/// Lists the sections that are left out because they are untrusted.
fn check_trust(workspace: &Workspace, checks: &mut Vec<Check>) {
    let untrusted = &workspace.config.untrusted;
    if !untrusted.is_empty() {
        let sections: Vec<_> = untrusted.iter().map(|request| escape_line(&request.section)).collect();
        let detail = format!("not given, so these are left out: {}", sections.join(", "));
        checks.push(Check::failed(
            "trust",
            detail,
            "look at them with `ctx trust --show`, then run `ctx trust`",
        ));
    }
}

/// Checks file permissions: no other user of this machine may read the store, the runs, the credentials or the grants.
#[cfg(unix)]
fn check_privacy(workspace: &Workspace, checks: &mut Vec<Check>) {
    use std::os::unix::fs::PermissionsExt;
    let store = workspace.config.store_path();
    let state = state_folder().into_iter().flat_map(|folder| {
        ["credentials.sqlite", "trust.sqlite"].map(|file| folder.join(file)).into_iter().chain([folder])
    });
    let own = ["ctx.sqlite", "state.sqlite", "upstreams.sqlite"].map(|file| store.with_file_name(file));
    let folder = workspace.config.data_folder().to_owned();
    let open = state.chain(own).chain([store.to_owned(), folder]).filter(|path| {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
    });
    let open: BTreeSet<String> = open.map(|path| path.display().to_string()).collect();
    if !open.is_empty() {
        let open: Vec<String> = open.into_iter().collect();
        let detail = format!("others on this machine may use {}", open.join(", "));
        checks.push(Check::failed("privacy", detail, &format!("run `chmod go= {}`", open.join(" "))));
    }
}

#[cfg(not(unix))]
fn check_privacy(_: &Workspace, _: &mut Vec<Check>) {}

/// Loads every script, since only that shows whether it can be.
async fn check_scripts(workspace: &Workspace, checks: &mut Vec<Check>) {
    let scripts = workspace.load_scripts().await;
    for script in scripts.iter() {
        let section = script.configured.section();
        checks.push(match script.problem() {
            None => Check::passed(&section, &script.configured.settings.shown),
            Some(problem) => Check::failed(&section, problem, "it is left out until its file is in order"),
        });
    }
    for warning in &scripts.warnings {
        checks.push(Check::failed("scripts", warning, "give one of them another name"));
    }
}

fn check_knowledge(workspace: &Workspace, checks: &mut Vec<Check>) {
    let health = match workspace.knowledge.check() {
        Ok(health) => health,
        Err(error) => return checks.push(Check::from_error("store", error.into())),
    };
    if !health.store_problems.is_empty() {
        let detail = health.store_problems.join("; ");
        checks.push(Check::failed("store", detail, "move the file away and run `ctx sync`"));
    } else if !health.writable {
        checks.push(Check::failed(
            "store",
            "it can be read but not written",
            "check the permissions of its folder",
        ));
    } else {
        checks.push(Check::passed("store", workspace.config.store_path().display().to_string()));
    }
    checks.push(match health.keyword_index_problem {
        Some(problem) => Check::failed("keyword index", problem, "run `ctx doctor` again"),
        None => match workspace.knowledge.tend() {
            Ok(()) => Check::passed("keyword index", "sound and up to date"),
            Err(error) => Check::failed("keyword index", chain(&error), "run `ctx sync`"),
        },
    });
}

/// Asks the model for a vector, since only that shows whether it works.
async fn check_embeddings(workspace: &Workspace, checks: &mut Vec<Check>) {
    const NAME: &str = "embeddings";
    let knowledge = workspace.knowledge.clone();
    let asked = tokio::task::spawn_blocking(move || {
        let answered = knowledge.check_model();
        knowledge.stats().map(|stats| (answered, stats.vectors))
    });
    checks.push(match asked.await {
        Ok(Ok((Some(answered), Some(vectors)))) => {
            let waiting = match vectors.pending_documents {
                0 => "every document has all of its vectors".to_owned(),
                waiting => format!("documents that wait for its vectors: {waiting}"),
            };
            match answered {
                Ok(()) => Check::passed(NAME, format!("{} answers; {waiting}", vectors.model)),
                Err(error) => Check::failed(
                    NAME,
                    format!("{error}; {waiting}"),
                    "check [embedding] in ctx.toml; until it answers, the built-in fast model does",
                ),
            }
        }
        Ok(Ok(_)) => Check::passed(NAME, "none are made; documents are found by their words"),
        Ok(Err(error)) => Check::from_error(NAME, error.into()),
        Err(error) => Check::failed(NAME, error.to_string(), "run `ctx doctor` again"),
    });
}

async fn check_sources(workspace: &Workspace, checks: &mut Vec<Check>) {
    let sources = match workspace.knowledge.sources().await {
        Ok(sources) => sources,
        Err(error) => return checks.push(Check::from_error("sources", error.into())),
    };
    let settings = &workspace.config.settings;
    // One that only acts needs none.
    let acts = !settings.mcp_servers.is_empty() || !settings.apis.is_empty() || !settings.tools.is_empty();
    // Sections that are left out for lack of trust may be all there is; the check of trust reports those.
    if sources.is_empty() && !acts && workspace.config.untrusted.is_empty() {
        checks.push(Check::failed(
            "sources",
            "none is configured",
            "add a [connectors.filesystem.<name>] section to ctx.toml",
        ));
    }
    for source in sources {
        let notes = source.notes.unwrap_or_default();
        checks.push(if !source.configured {
            Check::passed(
                &source.name,
                format!("{notes}; `ctx sources --forget {}` removes them", source.name),
            )
        } else if source.healthy {
            Check::passed(&source.name, notes)
        } else {
            let section = format!("connectors.{}", source.name.replacen(':', ".", 1));
            let is_untrusted = workspace.config.untrusted.iter().any(|request| request.section == section);
            let first = if is_untrusted { "run `ctx trust`" } else { "fix it in ctx.toml" };
            Check::failed(&source.name, notes, &format!("{first}, then run `ctx sync {}`", source.name))
        });
    }
}

fn as_text(check: &Check, painter: Painter) -> String {
    let mark = if check.ok { painter.paint(style::OK, "✓") } else { painter.paint(style::ERROR, "✗") };
    let hint = painter.paint(style::HINT, "hint:");
    let hints: String =
        check.hints.iter().map(|text| format!("    {hint} {}\n", painter.plain(text))).collect();
    format!("{mark} {}: {}\n{hints}", painter.plain(&check.name), painter.plain(&check.detail))
}
