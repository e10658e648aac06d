//! `ctx trust`

use crate::cli::Global;
use crate::config::Config;
use crate::error::CommandResult;
use crate::trust;
use ctx_core::escape_line;
use serde_json::{Value, json};

/// Trust what this workspace's file wants beyond reading its own folder.
///
/// That is: programs and scripts it runs, addresses it reaches, credentials and `${VAR}` it uses, folders and
/// databases outside, binds beyond loopback, web origins. None of it is used before you have said so once, section by
/// section, and again when a section, or a script that it runs, has changed and not by your own edit. Search of what
/// is inside the folder works without.
#[derive(Debug, clap::Args)]
pub(crate) struct Trust {
    /// Only show what it wants, and what of it is trusted.
    #[arg(long, conflicts_with = "forget")]
    show: bool,
    /// Trust it no longer.
    #[arg(long)]
    forget: bool,
}

impl Trust {
    pub(crate) fn run(self, global: &Global) -> CommandResult {
        let output = global.output();
        let config = global.load()?;
        let path = config.path.clone().unwrap_or_else(|| config.root.clone());
        if self.forget {
            trust::forget(&path)?;
        } else if !self.show {
            trust::remember(&path, &config.trust_requests)?;
        }
        let trusted = trust::remembered(&config);
        let state = state(&config, &trusted);
        let wants = config.trust_requests.iter().zip(&trusted).map(|(request, trusted)| -> Value {
            json!({"section": request.section, "what": escape_line(&request.what), "trusted": trusted})
        });
        let answer = json!({"config": path, "state": state, "wants": wants.collect::<Vec<_>>()});
        output.answer(&answer, || {
            let what = match config.trust_requests.is_empty() {
                true => "it wants nothing beyond its own folder".to_owned(),
                false => format!("it wants:\n{}", trust::checklist(&config.trust_requests, &trusted)),
            };
            format!("{} is {state}; {what}", path.display())
        })
    }
}

/// Summary of the recorded grants. `CTX_TRUST` does not count: it covers one command.
fn state(config: &Config, trusted: &[bool]) -> &'static str {
    let count = trusted.iter().filter(|trusted| **trusted).count();
    match (config.trust_requests.len(), count) {
        (0, _) => "trusted",
        (_, 0) => "not trusted",
        (all, some) if some == all => "trusted",
        _ => "trusted in part",
    }
}
