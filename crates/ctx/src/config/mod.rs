//! The configuration: found, read, merged, expanded, checked, understood.
//!
//! What the files say ([`tree`]) and what is true ([`Settings`]) are different types; `load` is
//! the only way from one to the other.

mod apis;
mod check;
mod every;
mod expand;
mod locate;
mod oauth;
mod schema;
mod scripts;
mod settings;
mod show;
mod tree;
mod typed;
mod typed_apis;
mod upstreams;

pub(crate) use apis::{FROZEN as FROZEN_SECTION, section_of as api_section};
pub(crate) use every::Every;
pub(crate) use locate::{FILE_NAMES, Located, locate, locate_in};
pub(crate) use schema::settings_schema;
pub(crate) use scripts::{ConnectorSection, InlineAgentSection, ScriptUse, Section};
pub(crate) use settings::{Settings, SourceSettings};
pub(crate) use show::Shown;
pub(crate) use typed::{Typed, TypedServer};
pub(crate) use typed_apis::{TypedApi, TypedAuth, name_and_spec};
pub(crate) use upstreams::{check_entry as check_upstream, section_of as upstream_section};

use ctx_core::Secret;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tree::{Layer, Table};

const DEFAULTS: &str = include_str!("defaults.toml");

/// Looks a variable up.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Everything known about how to work.
pub(crate) struct Config {
    /// What is true.
    pub(crate) settings: Settings,
    /// What relative paths are relative to.
    pub(crate) root: PathBuf,
    /// The workspace's file, where there is one.
    pub(crate) path: Option<PathBuf>,
    /// What does not stop anything but should be known.
    pub(crate) warnings: Vec<String>,
    /// Whether the user named the workspace's file, or its folder, and it was not just found.
    pub(crate) named: bool,
    /// What the workspace's file would run.
    pub(crate) uses: Vec<ScriptUse>,
    /// Whether there is nothing to search, and nothing that searches.
    pub(crate) without_knowledge: bool,
    /// What the files say, merged, with origins.
    tree: Table,
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}", problems.join("\n"))]
pub(crate) struct ConfigError {
    /// Each with the place it is at.
    pub(crate) problems: Vec<String>,
}

impl ConfigError {
    fn one(problem: String) -> Self {
        Self { problems: vec![problem] }
    }
}

impl Config {
    /// Reads the located files over the defaults, and what was typed over those.
    pub(crate) fn load(
        located: &Located,
        typed: &Typed,
        variables: Variables<'_>,
    ) -> Result<Self, ConfigError> {
        let mut warnings = Vec::new();
        let mut tree = Layer::parse("default", DEFAULTS)?.table;
        let schema = settings_schema();
        let mut uses = Vec::new();
        for path in located.user.iter().chain(&located.workspace) {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError::one(format!("cannot read {}: {error}", path.display())))?;
            let mut layer = Layer::parse(&shown_path(path, &located.root), &text)?;
            check::unknown_keys(&layer.table, &schema)?;
            let written = layer.table.clone();
            expand::expand(&mut layer, variables, &mut warnings)?;
            if Some(path) == located.workspace.as_ref() {
                uses = scripts::uses(&layer.table);
                uses.extend(upstreams::uses(&layer.table, &written));
                uses.extend(apis::uses(&tree, &layer.table, &written));
                uses.sort();
            }
            tree.merge(layer.table);
        }
        typed.put_over(&mut tree, variables)?;
        apis::look_up(&mut tree, variables)?;
        uses.retain(|used| !typed.replaces(&used.section));
        let settings = settings::read(&tree)?;
        let path = located.workspace.clone();
        let (root, named) = (located.root.clone(), located.named);
        Ok(Self { settings, root, path, warnings, named, uses, without_knowledge: false, tree })
    }

    /// Where the store lies.
    pub(crate) fn store_path(&self) -> PathBuf {
        self.root.join(&self.settings.db.path)
    }

    /// Where a section is written, as messages begin with it: `ctx.toml:3: `.
    pub(crate) fn place(&self, path: &[&str]) -> String {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        self.tree.origin_of(&path).map_or_else(String::new, |origin| format!("{origin}: "))
    }

    /// Whether there is a section of this name.
    pub(crate) fn has_section(&self, path: &[&str]) -> bool {
        self.tree.has_table(path)
    }

    /// Variables of the environment that were read, below this path, each once.
    pub(crate) fn variables(&self, path: &[&str]) -> Vec<String> {
        let leaves = self.tree.leaves();
        let below =
            leaves.iter().filter(|(keys, _)| keys.iter().zip(path).all(|(key, wanted)| key == wanted));
        let names: BTreeSet<String> = below.flat_map(|(_, leaf)| leaf.variables.clone()).collect();
        names.into_iter().collect()
    }

    /// Values that must never be written anywhere.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        self.tree.secrets()
    }

    /// Every setting in effect, secrets masked, with its origin.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        show::shown(&self.tree)
    }
}

/// A value with variables in place; the error is the name of one that is not set.
pub(crate) fn expanded(
    mut value: serde_json::Value,
    variables: Variables<'_>,
) -> Result<serde_json::Value, String> {
    expand::expand_value(&mut value, variables, &mut Vec::new())?;
    Ok(value)
}

/// The defaults as they are compiled in.
pub(crate) fn defaults() -> &'static str {
    DEFAULTS
}

/// A path as messages show it: relative to the workspace where it is inside.
fn shown_path(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests;
