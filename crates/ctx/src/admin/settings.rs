//! The settings in effect, each with its origin.

use super::Operation;
use crate::config::{Config, EffectiveSetting, SettingsView};
use async_trait::async_trait;
use ctx_core::{Annotations, Call, ToolError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `admin.settings`
pub(crate) struct ShowSettings {
    file: Option<String>,
    root: PathBuf,
    settings: SettingsView,
}

impl ShowSettings {
    /// Takes a snapshot of this configuration's settings.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            file: config.path.as_ref().map(|path| path.display().to_string()),
            root: config.root.clone(),
            settings: config.view(),
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowSettingsRequest {}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SettingList {
    /// The workspace's configuration file, if there is one.
    pub(crate) file: Option<String>,
    /// The folder that relative paths are resolved against.
    pub(crate) root: PathBuf,
    /// Sorted by section and key; secrets are masked.
    pub(crate) settings: Vec<EffectiveSetting>,
}

#[async_trait]
impl Operation for ShowSettings {
    const NAME: &'static str = "settings";
    const DESCRIPTION: &'static str =
        "Show every setting in effect, and where it is set. Secrets are masked.";
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Request = ShowSettingsRequest;
    type Response = SettingList;

    async fn run(&self, _: ShowSettingsRequest, _: &Call) -> Result<SettingList, ToolError> {
        let (file, root) = (self.file.clone(), self.root.clone());
        Ok(SettingList { file, root, settings: self.settings.settings() })
    }
}
