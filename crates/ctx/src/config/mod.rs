//! Configuration: locates, reads, checks, expands and merges the files, then deserializes and validates them.
//!
//! The content of the files ([`tree`]) and the validated settings ([`Settings`]) are different types;
//! [`Config::load`] is the only way from one to the other.

mod api_arguments;
mod apis;
mod bind_options;
mod check;
mod cli_overrides;
mod expand;
mod isolate;
mod locate;
mod oauth;
mod reload;
mod schema;
mod scripts;
mod settings;
mod show;
mod sync_interval;
mod tree;
mod trust_requests;
mod upstreams;

pub(crate) use api_arguments::{ApiArgument, AuthArgument, split_name_and_spec};
pub(crate) use apis::api_section;
pub(crate) use bind_options::BindOptions;
pub(crate) use cli_overrides::{CliOverrides, ServerArgument};
pub(crate) use locate::{ConfigLocation, FILE_NAMES, locate, locate_in, root_of};
pub(crate) use reload::{Replacement, SectionChanges};
pub(crate) use schema::settings_schema;
pub(crate) use scripts::{ConnectorSection, InlineAgentSection, NamedSection};
pub(crate) use settings::{Settings, SourceSettings};
pub(crate) use show::{EffectiveSetting, SettingsView};
pub(crate) use sync_interval::SyncInterval;
pub(crate) use trust_requests::{TrustRequest, is_inside};
pub(crate) use upstreams::{check_upstream, upstream_section};

use crate::file_version::{FileVersion, file_version};
use crate::trust::FileGuard;
use ctx_core::{Redactor, Secret};
use ctx_store::STORE_FILE;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use tree::{ConfigLayer, ConfigTable};

const DEFAULTS: &str = include_str!("defaults.toml");

const NO_DATA_FOLDER: &str =
    "there is no folder for the store: set HOME or XDG_STATE_HOME, or `db.path` in your own configuration";

/// Maximum size of a configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Looks up an environment variable.
pub(crate) type VariableLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The inputs of [`Config::load`] besides the files, as functions that tests replace.
#[derive(Clone, Copy)]
pub(crate) struct LoadContext<'a> {
    /// Environment variables.
    pub(crate) variables: VariableLookup<'a>,
    /// The data folder of the workspace with this root; none if the user has no state folder.
    pub(crate) data_folder: &'a dyn Fn(&Path) -> Option<PathBuf>,
    /// Whether the user trusts each of these requests, made by the workspace file at this path.
    pub(crate) is_trusted: &'a dyn Fn(&Path, &[TrustRequest]) -> Vec<bool>,
}

/// A loaded configuration.
pub(crate) struct Config {
    /// The validated settings.
    pub(crate) settings: Settings,
    /// The folder that relative paths are resolved against.
    pub(crate) root: PathBuf,
    /// The workspace's file, if there is one.
    pub(crate) path: Option<PathBuf>,
    /// The files of the configuration, existing or not, with their versions before they were read.
    pub(crate) files: Vec<(PathBuf, Option<FileVersion>)>,
    /// Non-fatal problems.
    pub(crate) warnings: Vec<String>,
    /// Everything in the workspace's file that reaches beyond the workspace folder.
    pub(crate) trust_requests: Vec<TrustRequest>,
    /// The requests that are not trusted; their sections are left out of the settings.
    pub(crate) untrusted: Vec<TrustRequest>,
    /// Whether the workspace is opened without search: there is neither a source nor a `search` tool.
    pub(crate) without_knowledge: bool,
    store: PathBuf,
    data_folder: PathBuf,
    /// Masks the configuration's secrets. Clones share secrets that are learned later.
    pub(crate) redactor: Redactor,
    /// The merged content of the files, with origins.
    tree: ConfigTable,
}

/// An invalid configuration.
#[derive(Debug, thiserror::Error)]
#[error("{}", problems.join("\n"))]
pub(crate) struct ConfigError {
    /// The problems, each with its file and line if known.
    pub(crate) problems: Vec<String>,
}

impl ConfigError {
    fn one(problem: String) -> Self {
        Self { problems: vec![problem] }
    }
}

impl Config {
    /// Merges the files over the defaults, and the command line over the files. Drops untrusted sections of
    /// the workspace's file.
    pub(crate) fn load(
        located: &ConfigLocation,
        overrides: &CliOverrides,
        context: LoadContext<'_>,
    ) -> Result<Self, ConfigError> {
        let variables = context.variables;
        // Taken before the file is read, so that a change during the read is noticed later.
        let files = located.workspace.iter().chain(&located.user);
        let files = files.map(|path| (path.clone(), file_version(path))).collect();
        let mut warnings = Vec::new();
        let mut tree = ConfigLayer::parse("default", DEFAULTS)?.table;
        let schema = settings_schema();
        if let Some(path) = located.user.as_ref().filter(|path| path.is_file()) {
            let mut layer = read_layer(path, &located.root, &schema)?;
            expand::expand(&mut layer, variables, &mut warnings)?;
            tree.merge(layer.table);
        }
        let (mut requests, mut untrusted) = (Vec::new(), Vec::new());
        if let Some(path) = &located.workspace {
            let mut layer = read_layer(path, &located.root, &schema)?;
            requests = trust_requests::find(&layer.table, &tree, &located.root, variables);
            requests.retain(|request| !overrides.replaces(&request.section));
            untrusted = select_untrusted(&requests, &(context.is_trusted)(path, &requests));
            trust_requests::remove_untrusted(&mut layer.table, &untrusted);
            expand::expand(&mut layer, variables, &mut warnings)?;
            isolate::isolate(&mut tree, &layer.table, &mut warnings);
            tree.merge(layer.table);
        }
        overrides.apply(&mut tree, variables)?;
        apis::resolve_auth_variables(&mut tree, variables)?;
        // Before the settings are read: their error messages quote values.
        let secrets = tree.secrets().into_iter().chain(expanded_secrets(&tree, variables));
        let redactor = crate::masks::redactor(secrets.collect());
        let settings = settings::read(&tree)?;
        let (root, path) = (located.root.clone(), located.workspace.clone());
        let store = settings.db.path.as_ref().map(|path| root.join(path));
        let data_folder = (context.data_folder)(&root)
            .or_else(|| Some(store.as_ref()?.parent()?.to_owned()))
            .ok_or_else(|| ConfigError::one(NO_DATA_FOLDER.to_owned()))?;
        let store = store.unwrap_or_else(|| data_folder.join(STORE_FILE));
        Ok(Self {
            settings,
            root,
            path,
            files,
            warnings,
            trust_requests: requests,
            untrusted,
            without_knowledge: false,
            store,
            data_folder,
            redactor,
            tree,
        })
    }

    /// The store's file: `db.path` if it is set, else in the data folder.
    pub(crate) fn store_path(&self) -> &Path {
        &self.store
    }

    /// The guard that decides whether a changed file of this section may be loaded; none if it needs no trust.
    pub(crate) fn guard(&self, section: &str) -> Option<FileGuard> {
        let needs_trust = self.trust_requests.iter().any(|request| request.section == section);
        let config = self.path.clone().filter(|_| needs_trust)?;
        Some(FileGuard { config, section: section.to_owned() })
    }

    /// The base of cache paths: the store's default path. `db.path` moves the store, not the caches.
    pub(crate) fn cache_base(&self) -> PathBuf {
        self.data_folder.join(STORE_FILE)
    }

    /// The user's folder for this workspace. It holds git mirrors and everything else that a repository must not be
    /// able to plant.
    pub(crate) fn data_folder(&self) -> &Path {
        &self.data_folder
    }

    /// The position of a section as the prefix of a message, such as `ctx.toml:3: `.
    pub(crate) fn message_prefix(&self, path: &[&str]) -> String {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        self.tree.origin_of(&path).map_or_else(String::new, |origin| format!("{origin}: "))
    }

    /// The name of the bind address for messages: the setting, or the command line option that overrides it.
    pub(crate) fn bind_key(&self) -> &'static str {
        let origin = self.tree.origin_of(&["server".to_owned(), "bind".to_owned()]);
        let options = [cli_overrides::BIND_OPTION, cli_overrides::HTTP_OPTION].into_iter();
        options
            .into_iter()
            .find(|option| origin.is_some_and(|origin| origin.file == *option))
            .unwrap_or("server.bind")
    }

    /// Whether there is a section of this name.
    pub(crate) fn has_section(&self, path: &[&str]) -> bool {
        self.tree.has_table(path)
    }

    /// The names of environment variables that are used below this path, without duplicates.
    pub(crate) fn variables(&self, path: &[&str]) -> Vec<String> {
        let leaves = self.tree.leaves();
        let below =
            leaves.iter().filter(|(keys, _)| keys.iter().zip(path).all(|(key, expected)| key == expected));
        let names: BTreeSet<String> = below.flat_map(|(_, leaf)| leaf.variables.clone()).collect();
        names.into_iter().collect()
    }

    /// A snapshot of the settings in effect, for display.
    pub(crate) fn view(&self) -> SettingsView {
        SettingsView::new(self.tree.clone(), self.redactor.clone())
    }

    #[cfg(test)]
    fn shown_settings(&self) -> Vec<EffectiveSetting> {
        self.view().settings()
    }
}

/// Reads one file and checks its keys.
fn read_layer(path: &Path, root: &Path, schema: &Value) -> Result<ConfigLayer, ConfigError> {
    let failed =
        |error: &dyn std::fmt::Display| ConfigError::one(format!("cannot read {}: {error}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(&format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    let layer = ConfigLayer::parse(&display_path(path, root), &text)?;
    check::unknown_keys(&layer.table, schema)?;
    Ok(layer)
}

/// Selects the untrusted requests. If `[frozen_params]` is untrusted, so is every API: without the frozen values,
/// callers could choose them.
fn select_untrusted(requests: &[TrustRequest], trusted: &[bool]) -> Vec<TrustRequest> {
    let decisions = || requests.iter().zip(trusted.iter().copied().chain(std::iter::repeat(false)));
    let is_frozen_untrusted =
        decisions().any(|(request, trusted)| request.section == apis::FROZEN_PARAMETERS && !trusted);
    let is_api = |request: &TrustRequest| request.section.starts_with("apis.");
    let untrusted =
        decisions().filter(|(request, trusted)| !trusted || (is_frozen_untrusted && is_api(request)));
    untrusted.map(|(request, _)| request.clone()).collect()
}

/// Expands `${VAR}` in a value; the error is the name of a variable that is not set.
pub(crate) fn expand_variables(mut value: Value, variables: VariableLookup<'_>) -> Result<Value, String> {
    expand::expand_value(&mut value, variables, &mut Vec::new())?;
    Ok(value)
}

/// The secrets among the values of all expanded variables.
fn expanded_secrets(tree: &ConfigTable, variables: VariableLookup<'_>) -> Vec<Secret> {
    let leaves = tree.leaves();
    let names = leaves.iter().flat_map(|(_, leaf)| &leaf.variables);
    let expanded: BTreeMap<String, String> =
        names.filter_map(|name| Some((name.clone(), variables(name)?))).collect();
    crate::masks::secret_variables(&expanded)
}

/// The built-in defaults, as TOML.
pub(crate) fn defaults() -> &'static str {
    DEFAULTS
}

/// A path as messages show it: relative to the workspace if it is inside.
fn display_path(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests;
