//! `ctx trust`: shows, grants and revokes the trust of a workspace's sections.

use crate::cli::{GlobalOptions, examples};
use crate::config::Config;
use crate::error::CommandResult;
use crate::trust;
use ctx_core::escape_line;
use serde_json::{Value, json};

/// Trust the sections of ctx.toml that reach beyond its own folder.
///
/// Such sections run programs or scripts, contact hosts, use credentials or `${VAR}`, read folders or databases
/// outside the workspace, bind to addresses beyond loopback, or allow web origins. They have no effect until you
/// trust them. A section has to be trusted again when it, or a script that it runs, was changed by anybody but you.
/// Indexing and searching the workspace's own folder needs no trust.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Show which sections need trust", "ctx trust --show"),
    ("Trust all of them", "ctx trust"),
    ("Revoke the trust of this workspace", "ctx trust --forget"),
]))]
pub(crate) struct Trust {
    /// Show the sections that need trust, and which of them are trusted, without changing anything.
    #[arg(long, conflicts_with = "forget")]
    show: bool,
    /// Revoke the trust of this workspace.
    #[arg(long)]
    forget: bool,
}

impl Trust {
    pub(crate) fn run(self, global: &GlobalOptions) -> CommandResult {
        let output = global.output();
        let config = global.load()?;
        let path = config.path.clone().unwrap_or_else(|| config.root.clone());
        if self.forget {
            trust::revoke(&path)?;
        } else if !self.show {
            trust::grant(&path, &config.trust_requests)?;
        }
        let trusted = trust::recorded_grants(&config);
        let state = trust_state(&config, &trusted);
        let requests = config.trust_requests.iter().zip(&trusted).map(|(request, trusted)| -> Value {
            json!({"section": request.section, "what": escape_line(&request.description), "trusted": trusted})
        });
        let answer = json!({"config": path, "state": state, "wants": requests.collect::<Vec<_>>()});
        output.print_result(&answer, || {
            let description = match config.trust_requests.is_empty() {
                true => "it requests nothing beyond its own folder".to_owned(),
                false => format!("it requests:\n{}", trust::checklist(&config.trust_requests, &trusted)),
            };
            format!("{} is {state}; {description}", path.display())
        })
    }
}

/// The state of trust in words. `CTX_TRUST` does not count, since it applies to one command only.
fn trust_state(config: &Config, trusted: &[bool]) -> &'static str {
    let count = trusted.iter().filter(|trusted| **trusted).count();
    match (config.trust_requests.len(), count) {
        (0, _) => "trusted",
        (_, 0) => "not trusted",
        (all, some) if some == all => "trusted",
        _ => "trusted in part",
    }
}
