//! `ctx trust`

use crate::cli::Global;
use crate::config::Config;
use crate::error::CommandResult;
use crate::trust;
use serde_json::json;
use std::path::Path;

/// Let this workspace run its scripts, use its MCP servers and call its APIs.
///
/// A configuration that was found, and not named with `--config`, runs no scripts and no servers, and calls no
/// APIs, before you have said so once. It is asked about again when those would be others; edits of a script do
/// not matter.
#[derive(Debug, clap::Args)]
pub(crate) struct Trust {
    /// Only show what it would run, and whether it may.
    #[arg(long, conflicts_with = "forget")]
    show: bool,
    /// Let it run them no longer.
    #[arg(long)]
    forget: bool,
}

impl Trust {
    pub(crate) fn run(self, global: &Global) -> CommandResult {
        let output = global.output();
        let config = global.load()?;
        config.warnings.iter().for_each(|warning| output.warn(warning));
        let path = config.path.clone().unwrap_or_else(|| config.root.clone());
        if self.forget {
            trust::forget(&path)?;
        } else if !self.show {
            trust::remember(&config)?;
        }
        let state = state(&config, &path)?;
        let scripts: Vec<_> =
            config.uses.iter().map(|used| json!({"section": used.section, "script": used.what})).collect();
        let answer = json!({"config": path, "state": state, "scripts": scripts});
        output.answer(&answer, || {
            let what = match config.uses.is_empty() {
                true => "it runs no scripts".to_owned(),
                false => format!("it would run:\n{}", trust::listed(&config.uses)),
            };
            format!("{} is {state}; {what}", path.display())
        })
    }
}

/// What is remembered, in a word. `CTX_TRUST` and `--config` are about one command and do not count.
fn state(config: &Config, path: &Path) -> CommandResult<&'static str> {
    Ok(match trust::remembered(path)? {
        Some(trusted) if trusted.hash == trust::hash(&config.uses) => "trusted",
        Some(_) => "trusted no longer, since it would run other scripts now",
        None => "not trusted",
    })
}
