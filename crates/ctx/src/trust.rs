//! Whether a configuration that was merely found may run scripts, use upstream servers and call APIs.
//!
//! Whoever clones a repository has not agreed to what its `ctx.toml` would run. One that was named on the
//! command line is as good as agreed to; any other is asked about once, and again when what it runs is
//! something else. Edits of a script that is trusted are the user's own affair.

use crate::cli::state_folder;
use crate::config::{Config, ScriptUse};
use crate::error::{CommandError, CommandResult};
use crate::output::Output;
use ctx_core::chain;
use ctx_state::{StateError, Trust, Trusted};
use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

/// Says that whatever is found may run, where nobody can answer.
const VARIABLE: &str = "CTX_TRUST";
/// How to agree.
pub(crate) const HOW: &str =
    "look at them, then let them run with `ctx trust` (or CTX_TRUST=1 where nobody can answer)";

/// Where scripts, servers and APIs are named in a configuration.
pub(crate) const ALL_GROUPS: &[&str] =
    &["agents.", "apis.", "connectors.", "frozen_params", "mcp_servers.", "tools."];

/// Whether the scripts of this configuration may run; the error tells why it cannot be known.
pub(crate) fn is_trusted(config: &Config) -> Result<bool, String> {
    if config.uses.is_empty() || config.named || std::env::var_os(VARIABLE).is_some_and(|value| value == "1")
    {
        return Ok(true);
    }
    is_remembered(config)
}

/// Whether the user has agreed to all that this configuration runs, whoever named it.
pub(crate) fn is_remembered(config: &Config) -> Result<bool, String> {
    let Some(path) = &config.path else { return Ok(true) };
    let remembered = remembered(path).map_err(|error| chain(&error))?;
    Ok(config.uses.is_empty() || remembered.is_some_and(|trusted| trusted.hash == hash(&config.uses)))
}

/// What is remembered of a configuration's file.
pub(crate) fn remembered(path: &Path) -> Result<Option<Trusted>, StateError> {
    match store() {
        Some(store) => store.of(&canonical(path)),
        None => Ok(None),
    }
}

/// Trusts the configuration as it is now.
pub(crate) fn remember(config: &Config) -> CommandResult {
    let Some(path) = &config.path else { return Ok(()) };
    let nowhere =
        || CommandError::new("there is no place to remember it in").hint("set HOME or XDG_STATE_HOME");
    store().ok_or_else(nowhere)?.remember(&canonical(path), &hash(&config.uses)).map_err(failed)
}

/// Trusts a configuration's file no longer; tells whether it was.
pub(crate) fn forget(path: &Path) -> CommandResult<bool> {
    store().map_or(Ok(false), |store| store.forget(&canonical(path))).map_err(failed)
}

/// Makes sure that the user knows of scripts that may not run yet: asks in a terminal, tells elsewhere.
/// Not where the command would run none of them anyway.
pub(crate) fn settle(config: &Config, groups: &[&str], output: &Output) -> CommandResult {
    let concerns = |used: &ScriptUse| groups.iter().any(|group| used.section.starts_with(group));
    if !config.uses.iter().any(concerns) {
        return Ok(());
    }
    let trusted = is_trusted(config).unwrap_or_else(|problem| {
        output.warn(&format!("what is trusted cannot be known: {problem}"));
        false
    });
    if trusted {
        return Ok(());
    }
    let file = config.path.as_deref().unwrap_or(&config.root).display();
    if !output.quiet && io::stdin().is_terminal() && io::stderr().is_terminal() {
        output.say(&format!(
            "{file} would run these {}, and you have not trusted it so far:",
            kinds(&config.uses)
        ));
        output.say(listed(&config.uses).trim_end());
        output.ask("let it run them? [y/N] ");
        let mut answer = String::new();
        let heard = io::stdin().lock().read_line(&mut answer).is_ok();
        if heard && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            return remember(config);
        }
    }
    let sections: Vec<String> =
        config.uses.iter().map(|used| format!("{} ({})", used.section, used.what)).collect();
    let kinds = kinds(&config.uses);
    output.warn(&format!("{file} is not trusted, so its {kinds} are left out: {}", sections.join(", ")));
    output.hint(HOW);
    Ok(())
}

/// What they are, in a word or two.
pub(crate) fn kinds(uses: &[ScriptUse]) -> String {
    let kind = |used: &ScriptUse| match used.section.split('.').next() {
        Some("mcp_servers") => "servers",
        Some("apis" | "frozen_params") => "APIs",
        _ => "scripts",
    };
    let known = ["scripts", "servers", "APIs"].into_iter();
    let there: Vec<&str> = known.filter(|name| uses.iter().any(|used| kind(used) == *name)).collect();
    match there.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "scripts".to_owned(),
    }
}

/// One script, server or API a line.
pub(crate) fn listed(uses: &[ScriptUse]) -> String {
    uses.iter().map(|used| format!("  [{}]  {}\n", used.section, used.what)).collect()
}

/// Why a script of a configuration that is not trusted does not run.
pub(crate) fn refusal() -> String {
    format!("its configuration is not trusted; {HOW}")
}

/// Stands for what would run.
pub(crate) fn hash(uses: &[ScriptUse]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in uses.iter().flat_map(|used| [&used.section, &used.what]) {
        // With its length: no two lists read alike.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

fn store() -> Option<Trust> {
    Some(Trust::new(state_folder()?.join("trust.sqlite")))
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn failed(error: StateError) -> CommandError {
    CommandError::new(chain(&error)).hint("the file holds only what you trust; it can be moved away")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_script_or_another_path_is_another_hash() {
        let used = |section: &str, what: &str| ScriptUse { section: section.into(), what: what.into() };
        let hashes = [
            hash(&[]),
            hash(&[used("tools.script.a", "a.lua")]),
            hash(&[used("tools.script.a", "b.lua")]),
            hash(&[used("tools.script.aa", ".lua")]),
            hash(&[used("tools.script.a", "a.lua"), used("tools.script.b", "b.lua")]),
        ];
        for (index, one) in hashes.iter().enumerate() {
            assert!(hashes[index + 1..].iter().all(|other| other != one), "{index}");
        }
    }
}
