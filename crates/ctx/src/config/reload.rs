//! Replaces the configuration of a running server: determines the sections that differ, and the settings that
//! keep their running values until a restart.

use super::tree::{ConfigNode, ConfigTable};
use super::{Config, ConfigError, settings};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Settings that only apply at start: the listener, its limits, and the store.
const RESTART_SETTINGS: &[&[&str]] = &[
    &["server"],
    &["db"],
    &["limits", "http_body_bytes"],
    &["limits", "http_header_bytes"],
    &["limits", "http_header_timeout"],
    &["limits", "http_body_timeout"],
    &["limits", "http_connections"],
    &["limits", "http_connections_per_peer"],
    &["limits", "drain_timeout"],
];

/// The names of the sections in which two configurations differ, such as `tools.script.greet` or `retrieval`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SectionChanges {
    added: BTreeSet<String>,
    changed: BTreeSet<String>,
    removed: BTreeSet<String>,
}

impl SectionChanges {
    fn between(before: &ConfigTable, after: &ConfigTable) -> Self {
        let (before, after) = (sections(before), sections(after));
        let mut changes = Self::default();
        for (name, section) in &after {
            match before.get(name) {
                None => changes.added.insert(name.clone()),
                Some(before) if before != section => changes.changed.insert(name.clone()),
                Some(_) => false,
            };
        }
        changes.removed.extend(before.into_keys().filter(|name| !after.contains_key(name)));
        changes
    }

    /// Whether there is no difference.
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }

    /// Whether the section of this name differs.
    pub(crate) fn contains(&self, section: &str) -> bool {
        [&self.added, &self.changed, &self.removed].iter().any(|names| names.contains(section))
    }
}

impl fmt::Display for SectionChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)];
        let mut separator = "";
        for (kind, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
            let names: Vec<String> = names.iter().map(|name| format!("[{name}]")).collect();
            write!(f, "{separator}{kind} {}", names.join(", "))?;
            separator = "; ";
        }
        Ok(())
    }
}

/// Every section as JSON, by name. A name is the top-level key, in some groups followed by one or two nested keys:
/// `retrieval` has none, `tools.script.greet` has two.
fn sections(tree: &ConfigTable) -> BTreeMap<String, Value> {
    let mut sections = BTreeMap::new();
    for (group, node) in &tree.entries {
        let levels = match group.as_str() {
            "mcp_servers" | "apis" => 1,
            "connectors" | "tools" | "agents" => 2,
            _ => 0,
        };
        collect_sections(group, node, levels, &mut sections);
    }
    sections
}

fn collect_sections(name: &str, node: &ConfigNode, levels: usize, sections: &mut BTreeMap<String, Value>) {
    match node {
        ConfigNode::Table(table) if levels > 0 => {
            for (key, node) in &table.entries {
                collect_sections(&format!("{name}.{key}"), node, levels - 1, sections);
            }
        }
        node => {
            sections.insert(name.to_owned(), node.to_json());
        }
    }
}

/// The result of [`Config::replace`].
pub(crate) struct Replacement {
    /// The new configuration.
    pub(crate) config: Config,
    /// The difference from the running configuration.
    pub(crate) changes: SectionChanges,
    /// Changed settings that need a restart, such as `server` or `limits.drain_timeout`.
    pub(crate) needs_restart: Vec<String>,
}

impl Config {
    /// The configuration that replaces `running`: this newly loaded one, except that settings that only apply at start
    /// keep their running values, and sections whose new content is not trusted keep their running content.
    pub(crate) fn replace(mut self, running: &Self) -> Result<Replacement, ConfigError> {
        let mut needs_restart = Vec::new();
        for path in RESTART_SETTINGS {
            let (new, kept) = (self.tree.at(path), running.tree.at(path));
            if new.map(ConfigNode::to_json) != kept.map(ConfigNode::to_json) {
                needs_restart.push(path.join("."));
            }
            self.tree.set(path, kept.cloned());
        }
        for trust_request in &self.untrusted {
            let keys: Vec<&str> = trust_request.keys().collect();
            if let Some(node) = running.tree.at(&keys) {
                self.tree.set(&keys, Some(node.clone()));
            }
        }
        let changes = SectionChanges::between(&running.tree, &self.tree);
        self.settings = settings::read(&self.tree)?;
        self.store.clone_from(&running.store);
        // One redactor for the lifetime of the process: running calls mask the new secrets, too.
        running.redactor.absorb(&self.redactor);
        self.redactor = running.redactor.clone();
        Ok(Replacement { config: self, changes, needs_restart })
    }
}
