//! Workspace trust: whether the user has approved what a workspace's file requests beyond its own folder.
//!
//! Cloning a repository does not approve what its `ctx.toml` would run, read or connect to. Neither does naming the
//! file: a `git pull` can change it. The user approves each section once, and again when the section, or a script that
//! it runs, has changed. Untrusted sections are left out of the configuration ([`crate::config`]), so that no other
//! code has to check.

mod origin;
mod record;

use record::GrantRecord;
pub(crate) use record::path as record_path;

use crate::config::{Config, TrustRequest};
use crate::error::{CommandError, CommandResult};
use crate::output::CommandOutput;
use ctx_core::escape_line;
use std::path::{Path, PathBuf};

/// The environment variable that trusts everything, for one command.
const VARIABLE: &str = "CTX_TRUST";
/// The hint on how to grant trust.
pub(crate) const TRUST_HINT: &str = "`ctx trust --show` lists what it requests; `ctx trust` allows it (without a terminal: `--trust` or CTX_TRUST=1)";
/// The most characters of one section's description that are shown in a prompt, from its beginning and from its end:
/// padding must not hide either.
const SHOWN_CHARS_MAX: usize = 500;
const SHOWN_END_CHARS: usize = 150;

/// All groups of sections.
pub(crate) const ALL_GROUPS: &[&str] = &[""];
/// Groups that a search depends on.
pub(crate) const SEARCH_GROUPS: &[&str] = &["db", "embedding", "retrieval"];
/// Groups that a sync depends on.
pub(crate) const SYNC_GROUPS: &[&str] = &["db", "embedding", "chunking", "connectors."];
/// Groups that calls of functions depend on.
pub(crate) const CALL_GROUPS: &[&str] =
    &["agents.", "apis.", "db", "embedding", "frozen_params", "mcp_servers.", "tools."];

/// Whether `CTX_TRUST=1` trusts everything for this one command.
pub(crate) fn trusts_all() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "1")
}

/// Decides whether a changed file that a trusted section runs may be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileGuard {
    /// The configuration file.
    pub(crate) config: PathBuf,
    /// The section that runs the file.
    pub(crate) section: String,
}

impl FileGuard {
    /// Whether the file has the trusted content, or was edited by the user.
    pub(crate) fn allows(&self, file: &Path) -> bool {
        GrantRecord::allows(&self.config, &self.section, file)
    }

    /// The reason why a file is not loaded.
    pub(crate) fn refusal(file: &str) -> String {
        format!(
            "{file} is no longer what was trusted, and was not edited here; `ctx trust` allows the current version"
        )
    }
}

/// Whether each request is trusted; none is if the record cannot be read.
pub(crate) fn evaluate(path: &Path, requests: &[TrustRequest]) -> Vec<bool> {
    if requests.is_empty() || trusts_all() {
        return vec![true; requests.len()];
    }
    match GrantRecord::of(path) {
        Ok(record) => record.evaluate(requests),
        Err(problem) => {
            tracing::warn!("cannot read the record of trust: {problem}");
            vec![false; requests.len()]
        }
    }
}

/// Whether each request of a configuration has a recorded grant; `CTX_TRUST` does not count.
pub(crate) fn recorded_grants(config: &Config) -> Vec<bool> {
    let trusted = config
        .path
        .as_deref()
        .map(|path| GrantRecord::of(path).map(|record| record.evaluate(&config.trust_requests)));
    match trusted {
        Some(Ok(trusted)) => trusted,
        _ => vec![false; config.trust_requests.len()],
    }
}

/// Whether every request of a configuration has a recorded grant.
pub(crate) fn is_fully_granted(config: &Config) -> bool {
    recorded_grants(config).iter().all(|trusted| *trusted)
}

/// Records grants for these requests as they are now; earlier grants stay.
pub(crate) fn grant(path: &Path, requests: &[TrustRequest]) -> CommandResult {
    GrantRecord::of(path).and_then(|record| record.add(requests)).map_err(to_command_error)
}

/// Whether there is a record for a configuration file, with or without grants.
pub(crate) fn has_record(path: &Path) -> bool {
    GrantRecord::exists(path)
}

/// Revokes all grants of a configuration file.
pub(crate) fn revoke(path: &Path) -> CommandResult {
    GrantRecord::forget(path).map_err(to_command_error)
}

/// Handles the untrusted requests that concern the command: prompts in a terminal, and warns of what is left out
/// elsewhere. Returns whether the user has just agreed, so that the configuration must be loaded again.
pub(crate) fn prompt_or_warn(
    config: &Config,
    groups: &[&str],
    output: &CommandOutput,
) -> CommandResult<bool> {
    let concerns = |request: &&TrustRequest| groups.iter().any(|group| request.section.starts_with(group));
    let Some(path) =
        config.path.as_ref().filter(|_| config.untrusted.iter().any(|request| concerns(&request)))
    else {
        return Ok(false);
    };
    let file = escape_line(&path.display().to_string()).into_owned();
    let question = format!(
        "{file} requests access beyond this folder, which you have not trusted:\n{}\ntrust it? [y/N] ",
        list_requests(&config.untrusted).trim_end()
    );
    if output.confirm(&question) == Some(true) {
        grant(path, &config.untrusted)?;
        return Ok(true);
    }
    let left_out = inline_list(config.untrusted.iter().filter(concerns));
    output.warn(&format!("{file} is not trusted, so this is left out: {left_out}"));
    output.hint(TRUST_HINT);
    Ok(false)
}

/// The requests on one line: sections with their descriptions, separated by commas.
pub(crate) fn inline_list<'a>(requests: impl IntoIterator<Item = &'a TrustRequest>) -> String {
    let item = |request: &TrustRequest| format!("{} ({})", escape_line(&request.section), excerpt(request));
    requests.into_iter().map(item).collect::<Vec<_>>().join(", ")
}

/// The requests as a list, one per line.
pub(crate) fn list_requests(requests: &[TrustRequest]) -> String {
    let line =
        |request: &TrustRequest| format!("  [{}]  {}\n", escape_line(&request.section), excerpt(request));
    requests.iter().map(line).collect()
}

/// The requests as a list, each marked as trusted (✓) or not (✗).
pub(crate) fn checklist(requests: &[TrustRequest], trusted: &[bool]) -> String {
    let mark = |trusted: &bool| if *trusted { '✓' } else { '✗' };
    let lines = requests.iter().zip(trusted);
    lines
        .map(|(request, trusted)| {
            format!("{}{}", mark(trusted), list_requests(std::slice::from_ref(request)))
        })
        .collect()
}

/// A request's description, escaped, and without its middle if it is long: it cannot forge further lines of a list.
fn excerpt(request: &TrustRequest) -> String {
    let escaped = escape_line(&request.description);
    let count = escaped.chars().count();
    if count <= SHOWN_CHARS_MAX {
        return escaped.into_owned();
    }
    let beginning: String = escaped.chars().take(SHOWN_CHARS_MAX - SHOWN_END_CHARS).collect();
    let end: String = escaped.chars().skip(count - SHOWN_END_CHARS).collect();
    format!("{beginning}…{end} ({count} characters, whole with `ctx trust --show --json`)")
}

/// The reason for an agent why a function is missing. It contains no text of the workspace, which is
/// untrusted.
pub(crate) fn agent_refusal(subject: &str) -> String {
    format!("{subject} configured, but the workspace is not trusted; the user can allow it with `ctx trust`")
}

/// The reason why an untrusted section is not used.
pub(crate) fn refusal() -> String {
    format!("its configuration is not trusted; {TRUST_HINT}")
}

fn to_command_error(problem: String) -> CommandError {
    CommandError::new(problem).hint("the file holds only the record of what you trust; it can be moved away")
}
