//! The settings in effect for display, with their origins.

use super::tree::ConfigTable;
use ctx_core::Redactor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const MASK: &str = "***";

/// A setting in effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EffectiveSetting {
    /// The name of its table.
    pub(crate) section: String,
    /// The key in the table.
    pub(crate) key: String,
    /// The value; `***` for a secret.
    pub(crate) value: Value,
    /// `default`, a command line option, or file and line.
    pub(crate) origin: String,
}

/// A snapshot of a configuration's settings, for display.
pub(crate) struct SettingsView {
    tree: ConfigTable,
    redactor: Redactor,
}

impl SettingsView {
    pub(super) fn new(tree: ConfigTable, redactor: Redactor) -> Self {
        Self { tree, redactor }
    }

    /// Every setting in effect, secrets masked, with its origin.
    pub(crate) fn settings(&self) -> Vec<EffectiveSetting> {
        effective_settings(&self.tree, &self.redactor)
    }
}

fn effective_settings(tree: &ConfigTable, redactor: &Redactor) -> Vec<EffectiveSetting> {
    let mut settings: Vec<EffectiveSetting> = tree
        .leaves()
        .into_iter()
        .filter_map(|(mut path, leaf)| {
            let is_secret = tree.is_secret(&path, leaf);
            let key = path.pop()?;
            let masked = redactor.json(&json!({ &key: leaf.value }));
            let value = match is_secret {
                true => MASK.into(),
                false => masked.get(&key).cloned().unwrap_or_default(),
            };
            Some(EffectiveSetting { section: path.join("."), key, value, origin: leaf.origin.to_string() })
        })
        .collect();
    settings.sort_by(|a, b| (&a.section, &a.key).cmp(&(&b.section, &b.key)));
    settings
}
