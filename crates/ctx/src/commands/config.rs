//! `ctx config`

use crate::admin::{self, Admin, ShowSettings, ShowSettingsRequest};
use crate::cli::Global;
use crate::config::{self, Shown};
use crate::error::CommandResult;
use clap::Subcommand;
use std::sync::Arc;

/// Show the configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show every setting in effect, and where it was said. Secrets are masked.
    Show {
        /// Show the defaults as they are compiled in, with their comments.
        #[arg(long)]
        defaults: bool,
    },
}

impl Config {
    pub(crate) async fn run(self, global: &Global) -> CommandResult {
        let output = global.output();
        let Action::Show { defaults } = self.action;
        if defaults {
            return output.print(config::defaults());
        }
        let config = global.load()?;
        config.warnings.iter().for_each(|warning| output.warn(warning));
        // Without a workspace: settings are shown even where the store cannot be opened.
        let catalog = Admin::of_config(&Arc::new(config)).into_catalog();
        let shown = admin::call::<ShowSettings>(catalog, ShowSettingsRequest {}).await?;
        output.answer(&shown, || as_toml(&shown.settings))
    }
}

fn as_toml(settings: &[Shown]) -> String {
    let width = settings.iter().map(|setting| line(setting).chars().count()).max().unwrap_or(0).min(60);
    let mut text = String::new();
    let mut section = "";
    for setting in settings {
        if setting.section != section {
            section = &setting.section;
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}[{section}]\n"));
        }
        text.push_str(&format!("{:<width$}  # {}\n", line(setting), setting.origin));
    }
    text
}

fn line(setting: &Shown) -> String {
    format!("{} = {}", setting.key, setting.value)
}
