//! `ctx config`: prints the settings in effect, or the defaults.

use crate::admin::{self, Admin, ShowSettings, ShowSettingsRequest};
use crate::cli::{GlobalOptions, examples};
use crate::config::{self, EffectiveSetting};
use crate::error::CommandResult;
use clap::Subcommand;
use std::sync::Arc;

/// Show the configuration in effect.
#[derive(Debug, clap::Args)]
#[command(after_help = examples(&[
    ("Show every setting and where it comes from", "ctx config show"),
    ("Show the default settings with their comments", "ctx config show --defaults"),
]))]
pub(crate) struct Config {
    #[command(subcommand)]
    action: ConfigAction,
}

#[derive(Debug, Subcommand)]
enum ConfigAction {
    /// Show every setting in effect and where it comes from. Secrets are masked.
    #[command(after_help = examples(&[
        ("Show every setting and where it comes from", "ctx config show"),
        ("Show the settings of another workspace", "ctx config show --config examples/workspace/ctx.toml"),
        ("Show the default settings with their comments", "ctx config show --defaults"),
    ]))]
    Show {
        /// Show the built-in defaults with their comments.
        #[arg(long)]
        defaults: bool,
    },
}

impl Config {
    pub(crate) async fn run(self, global: &GlobalOptions) -> CommandResult {
        let output = global.output();
        let ConfigAction::Show { defaults } = self.action;
        if defaults {
            return output.print(config::defaults());
        }
        let config = global.load()?;
        config.warnings.iter().for_each(|warning| output.warn(warning));
        // The workspace is not opened, so that settings are shown even if the store is damaged.
        let catalog = Admin::of_config(&Arc::new(config)).into_catalog();
        let answer = admin::call::<ShowSettings>(catalog, ShowSettingsRequest {}).await?;
        output.print_result(&answer, || as_toml(&answer.settings))
    }
}

fn as_toml(settings: &[EffectiveSetting]) -> String {
    let width =
        settings.iter().map(|setting| setting_line(setting).chars().count()).max().unwrap_or(0).min(60);
    let mut text = String::new();
    let mut section = "";
    for setting in settings {
        if setting.section != section {
            section = &setting.section;
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}[{section}]\n"));
        }
        text.push_str(&format!("{:<width$}  # {}\n", setting_line(setting), setting.origin));
    }
    text
}

fn setting_line(setting: &EffectiveSetting) -> String {
    format!("{} = {}", setting.key, setting.value)
}
