//! The checks of `ctx doctor` for an open workspace, in the order of the report.

use super::{Area, Finding, Verdict};
use crate::admin::upstreams::{self, ListedUpstream, UpstreamDetails, UpstreamStanding};
use crate::config::Config;
use crate::error::CommandError;
use crate::output::count;
use crate::workspace::{WorkspaceFunctions, state_path};
use crate::{cli, definitions, logins, trust};
use ctx_core::{ToolError, error_chain, escape_line};
use ctx_knowledge::Knowledge;
use ctx_store::STORE_FILE;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::spawn_blocking;

/// Runs all checks. `warnings` are those of the configuration.
pub(super) async fn run_all(
    functions: &WorkspaceFunctions,
    knowledge: &Arc<Knowledge>,
    warnings: &[String],
) -> Result<Vec<Finding>, ToolError> {
    let config = functions.config();
    let mut findings = check_configuration(functions, warnings);
    findings.extend(check_trust(config));
    findings.extend(check_privacy(config));
    findings.extend(check_store(knowledge, config).await?);
    findings.push(check_embeddings(knowledge).await);
    findings.extend(check_sources(knowledge, config).await);
    findings.extend(check_scripts(functions).await);
    // Unreachable servers and invalid API descriptions only show once they are connected and read.
    findings.extend(upstreams::connect_all(functions).await?.into_iter().map(check_upstream));
    Ok(findings)
}

fn check_configuration(functions: &WorkspaceFunctions, warnings: &[String]) -> Vec<Finding> {
    let catalog = functions.catalog_as_configured();
    let warnings = warnings.iter().chain(catalog.warnings());
    let problem =
        |warning| Finding::problem(Area::Configuration, warning, "everything else works without it");
    let findings: Vec<Finding> = warnings.map(problem).collect();
    match findings.is_empty() {
        true => vec![Finding::ok(Area::Configuration, super::configuration_file(functions.config()))],
        false => findings,
    }
}

/// Lists the sections that are left out because they are untrusted.
fn check_trust(config: &Config) -> Option<Finding> {
    let untrusted = &config.untrusted;
    let sections: Vec<_> = untrusted.iter().map(|request| escape_line(&request.section)).collect();
    (!untrusted.is_empty()).then(|| {
        Finding::problem(
            Area::Trust,
            format!("these sections are not trusted and left out: {}", sections.join(", ")),
            "review them with `ctx trust --show`, then run `ctx trust`",
        )
    })
}

/// Checks file permissions: no other user of this machine may read the store, the runs, the credentials or the grants.
fn check_privacy(config: &Config) -> Option<Finding> {
    let open: BTreeSet<String> = private_files(config)
        .into_iter()
        .filter(|path| is_open_to_others(path))
        .map(|path| path.display().to_string())
        .collect();
    let open: Vec<String> = open.into_iter().collect();
    (!open.is_empty()).then(|| {
        Finding::problem(
            Area::Privacy,
            format!("other users of this machine can access {}", open.join(", ")),
            format!("run `chmod go= {}`", open.join(" ")),
        )
    })
}

/// Files and folders that no other user may read.
fn private_files(config: &Config) -> Vec<PathBuf> {
    let store = config.store_path();
    let of_user = [cli::state_folder(), logins::path(), trust::record_path()].into_iter().flatten();
    let of_workspace = [
        config.data_folder().to_owned(),
        store.to_owned(),
        store.with_file_name(STORE_FILE),
        state_path(config),
        definitions::path(config),
    ];
    of_user.chain(of_workspace).collect()
}

#[cfg(unix)]
fn is_open_to_others(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_: &std::path::Path) -> bool {
    false
}

async fn check_store(knowledge: &Arc<Knowledge>, config: &Config) -> Result<Vec<Finding>, ToolError> {
    let (knowledge, path) = (knowledge.clone(), config.store_path().display().to_string());
    let checking = move || {
        let health = match knowledge.check() {
            Ok(health) => health,
            Err(error) => return vec![Finding::of_error(Area::Store, error.into())],
        };
        let store = if !health.store_problems.is_empty() {
            let message = health.store_problems.join("; ");
            Finding::problem(Area::Store, message, "move the file away and run `ctx sync`")
        } else if !health.writable {
            let advice = "check the permissions of its folder";
            Finding::problem(Area::Store, "it can be read but not written", advice)
        } else {
            Finding::ok(Area::Store, path)
        };
        let index = match health.keyword_index_problem {
            Some(problem) => Finding::problem(Area::KeywordIndex, problem, "run `ctx doctor` again"),
            None => match knowledge.catch_up() {
                Ok(()) => Finding::ok(Area::KeywordIndex, "intact and up to date"),
                Err(error) => Finding::problem(Area::KeywordIndex, error_chain(&error), "run `ctx sync`"),
            },
        };
        vec![store, index]
    };
    let checked = spawn_blocking(checking).await;
    checked.map_err(|error| ToolError::internal("the store cannot be checked", error))
}

/// Embeds a test text: only that shows whether the model works.
async fn check_embeddings(knowledge: &Arc<Knowledge>) -> Finding {
    const AREA: Area = Area::Embeddings;
    let knowledge = knowledge.clone();
    let check = spawn_blocking(move || {
        let model_check = knowledge.check_model();
        knowledge.stats().map(|stats| (model_check, stats.vectors))
    });
    match check.await {
        Ok(Ok((Some(model_check), Some(vectors)))) => {
            let waiting = match vectors.pending_documents {
                0 => "every document is embedded".to_owned(),
                waiting => format!("documents not embedded yet: {waiting}"),
            };
            match model_check {
                Ok(()) => Finding::ok(AREA, format!("{} answers; {waiting}", vectors.model)),
                Err(error) => Finding::problem(
                    AREA,
                    format!("{error}; {waiting}"),
                    "check [embedding] in ctx.toml; until the model answers, the built-in `fast` model is used",
                ),
            }
        }
        Ok(Ok(_)) => Finding::ok(AREA, "disabled; search is by keywords only"),
        Ok(Err(error)) => Finding::of_error(AREA, error.into()),
        Err(error) => Finding::problem(AREA, error.to_string(), "run `ctx doctor` again"),
    }
}

async fn check_sources(knowledge: &Knowledge, config: &Config) -> Vec<Finding> {
    const AREA: Area = Area::Sources;
    let sources = match knowledge.sources().await {
        Ok(sources) => sources,
        Err(error) => return vec![Finding::of_error(AREA, CommandError::from(error))],
    };
    let settings = &config.settings;
    // A workspace that only calls tools needs no source.
    let has_functions =
        !settings.mcp_servers.is_empty() || !settings.apis.is_empty() || !settings.tools.is_empty();
    // Sections that are left out for lack of trust may be all there is; the check of trust reports those.
    if sources.is_empty() && !has_functions && config.untrusted.is_empty() {
        let advice = "add a [connectors.filesystem.<name>] section to ctx.toml";
        return vec![Finding::problem(AREA, "none is configured", advice)];
    }
    let finding = |source: ctx_knowledge::SourceStatus| {
        let (name, notes) = (source.name, source.notes.unwrap_or_default());
        let finding = if !source.configured {
            let message = format!("{notes}; `ctx sources --forget {name}` removes them");
            Finding::new(AREA, Verdict::Warning, message)
        } else if source.healthy {
            Finding::ok(AREA, notes)
        } else {
            let section = format!("connectors.{}", name.replacen(':', ".", 1));
            let is_untrusted = config.untrusted.iter().any(|request| request.section == section);
            let first = if is_untrusted { "run `ctx trust`" } else { "fix it in ctx.toml" };
            Finding::problem(AREA, notes, format!("{first}, then run `ctx sync {name}`"))
        };
        finding.with_subject(name)
    };
    sources.into_iter().map(finding).collect()
}

/// Loads every script: only that shows whether it is valid.
async fn check_scripts(functions: &WorkspaceFunctions) -> Vec<Finding> {
    const AREA: Area = Area::Scripts;
    let scripts = functions.try_scripts().await;
    let loaded = scripts.iter().map(|script| {
        let finding = match script.problem() {
            None => Finding::ok(AREA, &script.configured.settings.display_path),
            Some(problem) => Finding::problem(AREA, problem, "it is left out until its file is fixed"),
        };
        finding.with_subject(script.configured.section())
    });
    let collisions = scripts
        .warnings
        .iter()
        .map(|warning| Finding::problem(AREA, warning, "give one of them another name"));
    loaded.chain(collisions).collect()
}

fn check_upstream(upstream: ListedUpstream) -> Finding {
    const AREA: Area = Area::Upstreams;
    let ListedUpstream { name, reach, state, last_error, remedy, function_count, warnings, details, .. } =
        upstream;
    let (group, noun) = match &details {
        UpstreamDetails::Mcp { .. } => ("mcp_servers", "tool"),
        UpstreamDetails::Openapi { .. } => ("apis", "function"),
    };
    let finding = match (state, last_error, details) {
        (UpstreamStanding::NeedsLogin, Some(error), _) => {
            Finding::problem(AREA, error, remedy.unwrap_or_default())
        }
        (UpstreamStanding::Failed, Some(error), UpstreamDetails::Openapi { .. }) => {
            let advice = "check its section in ctx.toml; everything else works without it";
            // Its functions are unknown, so there are no warnings about them.
            return Finding::problem(AREA, format!("{reach}: {error}"), advice)
                .with_subject(format!("{group}.{name}"));
        }
        (UpstreamStanding::Failed, Some(error), UpstreamDetails::Mcp { .. }) => {
            let advice = "check its section in ctx.toml; everything else works without it";
            Finding::problem(AREA, error, advice)
        }
        (_, _, UpstreamDetails::Mcp { changes, .. }) if !changes.is_empty() => {
            let message = format!("the tools have changed since they were accepted: {changes}");
            Finding::ok(AREA, message).with_advice([format!(
                "review them with `ctx upstream list`, accept them with `ctx upstream accept {name}`"
            )])
        }
        _ => Finding::ok(AREA, count(function_count, noun)),
    };
    finding.with_subject(format!("{group}.{name}")).with_advice(warnings)
}
