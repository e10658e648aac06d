//! Trust requests: everything in a workspace's file that reaches beyond the workspace folder, and so needs the user's
//! trust. That is programs, scripts, outbound addresses, credentials, `${VAR}`, paths outside, bind addresses beyond
//! loopback, and web origins.
//!
//! This module finds the requests, and removes untrusted ones from the tree before anything is expanded or merged, so
//! that the rest of the program never sees them. Whether a request is trusted is decided by [`crate::trust`].

use super::apis::mask_secrets;
use super::expand::{droppable_section, expand_value, remove};
use super::tree::{ConfigNode, ConfigTable};
use super::{VariableLookup, expand_variables};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};

/// Maximum number of files per section whose content is covered by trust.
const FILES_MAX: usize = 64;
/// Embedding providers that open no connection and load no model file.
const BUILT_IN_PROVIDERS: [&str; 2] = ["builtin", "disabled"];

/// A section or key that reaches beyond the workspace folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrustRequest {
    /// A section or a key: `mcp_servers.files`, `server.bind`.
    pub(crate) section: String,
    /// Its content as written, secrets masked. The text is untrusted: escape it before it is shown.
    pub(crate) description: String,
    /// Hash of its content as written, with `${VAR}` unexpanded: the values are the user's own.
    pub(crate) hash: String,
    /// Files that it runs or reads addresses from. Trust covers their content.
    pub(crate) files: Vec<PathBuf>,
    keys: Vec<String>,
}

impl TrustRequest {
    /// The path of keys to the section.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }
}

/// The trust requests of a workspace's file; `base` holds the defaults and the user's own file.
pub(super) fn find(
    layer: &ConfigTable,
    base: &ConfigTable,
    root: &Path,
    variables: VariableLookup<'_>,
) -> Vec<TrustRequest> {
    let mut finder = RequestFinder { layer, base, root, variables, requests: Vec::new() };
    for (key, node) in &layer.entries {
        finder.visit(key, node);
    }
    finder.find_variables();
    let mut requests = finder.requests;
    requests.sort_by(|one, other| one.section.cmp(&other.section));
    requests
}

/// Removes untrusted sections and keys from the layer.
pub(super) fn remove_untrusted(layer: &mut ConfigTable, untrusted: &[TrustRequest]) {
    untrusted.iter().for_each(|request| remove(layer, &request.keys));
}

/// Whether a path of the configuration stays in the workspace, with symlinks resolved.
pub(crate) fn is_inside(root: &Path, path: &Path) -> bool {
    match (resolve(root), resolve(&root.join(path))) {
        (Some(root), Some(path)) => path.starts_with(root),
        _ => false,
    }
}

/// Canonicalises the part of a path that exists, and appends the rest. None if the rest contains `..`, or if
/// the path has a dangling symlink.
fn resolve(path: &Path) -> Option<PathBuf> {
    for existing in path.ancestors() {
        if let Ok(canonical) = existing.canonicalize() {
            let rest = path.strip_prefix(existing).ok()?;
            let is_downward = rest.components().all(|part| matches!(part, Component::Normal(_)));
            return is_downward.then(|| canonical.join(rest));
        }
        // The target of a dangling symlink may be created later, anywhere.
        if existing.is_symlink() {
            return None;
        }
    }
    None
}

struct RequestFinder<'a> {
    layer: &'a ConfigTable,
    base: &'a ConfigTable,
    root: &'a Path,
    variables: VariableLookup<'a>,
    requests: Vec<TrustRequest>,
}

impl RequestFinder<'_> {
    fn visit(&mut self, key: &str, node: &ConfigNode) {
        match (key, node) {
            ("mcp_servers" | "apis", ConfigNode::Table(sections)) => {
                sections.entries.iter().for_each(|(name, section)| self.push(&[key, name], section));
            }
            ("tools" | "agents" | "connectors", ConfigNode::Table(kinds)) => {
                for (kind, node) in &kinds.entries {
                    let ConfigNode::Table(sections) = node else { continue };
                    for (name, section) in &sections.entries {
                        if !self.stays_inside(key, kind, name, section) {
                            self.push(&[key, kind, name], section);
                        }
                    }
                }
            }
            ("embedding", ConfigNode::Table(section)) if !is_built_in(section) => self.push(&[key], node),
            ("server", ConfigNode::Table(section)) => {
                let exposing = section.entries.iter().filter(|(key, node)| !keeps_access_local(key, node));
                exposing.for_each(|(name, node)| self.push(&[key, name], node));
            }
            ("db" | "frozen_params", _) => self.push(&[key], node),
            _ => {}
        }
    }

    /// Whether a section of a script, agent or source only reads what is inside the workspace.
    fn stays_inside(&self, group: &str, kind: &str, name: &str, section: &ConfigNode) -> bool {
        match (group, kind) {
            ("agents", "inline") => true,
            ("connectors", "filesystem") => {
                let path = ["connectors", "filesystem", name, "root"];
                let configured_root = |table: &ConfigTable| match table.at(&path) {
                    Some(ConfigNode::Leaf(leaf)) => leaf.value.as_str().map(str::to_owned),
                    _ => None,
                };
                // The user's own secrets may lie in a clone: only the user lifts their protection.
                let secret_files = ["connectors", "filesystem", name, "include_sensitive_globs"];
                if self.layer.at(&secret_files).is_some() {
                    return false;
                }
                // The walker stats the targets of symlinks even if it then skips them.
                let follow_symlinks = ["connectors", "filesystem", name, "follow_symlinks"];
                if matches!(self.layer.at(&follow_symlinks), Some(ConfigNode::Leaf(leaf)) if leaf.value != Value::Bool(false))
                {
                    return false;
                }
                // Without a `root` of its own it merges over the user's section, and could widen its globs.
                let root =
                    configured_root(self.layer).or_else(|| configured_root(self.base)).unwrap_or_default();
                matches!(section, ConfigNode::Table(_)) && is_inside(self.root, Path::new(&root))
            }
            _ => false,
        }
    }

    /// Adds a request for each remaining `${VAR}`: no text of an untrusted file is expanded.
    fn find_variables(&mut self) {
        let layer = self.layer;
        for (path, leaf) in layer.leaves() {
            let is_found = self.requests.iter().any(|request| path.starts_with(&request.keys));
            if is_found || !has_variables(&leaf.value) {
                continue;
            }
            let section_path = droppable_section(&path);
            let keys: Vec<&str> = match section_path.len() {
                1 => path.iter().map(String::as_str).collect(),
                _ => section_path.iter().map(String::as_str).collect(),
            };
            if let Some(node) = layer.at(&keys) {
                self.push(&keys, node);
            }
        }
    }

    fn push(&mut self, keys: &[&str], node: &ConfigNode) {
        let value = match node {
            ConfigNode::Table(table) => table.to_json(),
            ConfigNode::Leaf(leaf) => leaf.value.clone(),
        };
        self.requests.push(TrustRequest {
            section: keys.join("."),
            description: describe(keys, &value),
            hash: hash(keys, &value),
            files: self.files(keys, &value),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        });
    }

    /// The files that a section runs or reads addresses from, as far as they can be determined. Paths are expanded, to
    /// cover the files that will be used; their values leave this function only as paths to hash.
    fn files(&self, keys: &[&str], section: &Value) -> Vec<PathBuf> {
        let section = &expand_variables(section.clone(), self.variables).unwrap_or_else(|_| section.clone());
        let text = |key: &str| section[key].as_str();
        let mut files: Vec<PathBuf> = match keys.first() {
            Some(&("tools" | "agents" | "connectors")) if keys.get(1) == Some(&"script") => {
                text("path").map(|path| self.root.join(path)).into_iter().collect()
            }
            Some(&"apis") => {
                let spec = text("spec").filter(|spec| !spec.contains("://"));
                spec.map(|spec| self.root.join(spec)).into_iter().collect()
            }
            // An argument counts as a file if one exists at that path. Programs outside the workspace are not
            // covered.
            Some(&"mcp_servers") => {
                let folder = text("cwd").map_or_else(|| self.root.to_owned(), |cwd| self.root.join(cwd));
                let arguments = section["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let words =
                    text("command").filter(|command| command.contains('/')).into_iter().chain(arguments);
                words
                    .map(|word| folder.join(word))
                    .filter(|path| path.is_file() && is_inside(self.root, path))
                    .collect()
            }
            _ => Vec::new(),
        };
        files.truncate(FILES_MAX);
        files
    }
}

/// Whether `[embedding]` uses a built-in model, and so opens no connection and loads no file.
fn is_built_in(section: &ConfigTable) -> bool {
    let reaches_out = ["url", "api_key", "path"].iter().any(|key| section.entries.contains_key(*key));
    let provider = match section.entries.get("provider") {
        Some(ConfigNode::Leaf(leaf)) => {
            leaf.value.as_str().is_some_and(|name| BUILT_IN_PROVIDERS.contains(&name))
        }
        Some(ConfigNode::Table(_)) => false,
        None => true,
    };
    provider && !reaches_out
}

/// Whether a key of `[server]` leaves the server as closed as the defaults: loopback only, no further hosts or origins.
fn keeps_access_local(key: &str, node: &ConfigNode) -> bool {
    let ConfigNode::Leaf(leaf) = node else { return false };
    match (key, &leaf.value) {
        ("bind", Value::String(bind)) => is_loopback(bind),
        ("allowed_hosts" | "allowed_origins", Value::Array(names)) => names.is_empty(),
        _ => false,
    }
}

fn is_loopback(bind: &str) -> bool {
    match bind.parse::<SocketAddr>() {
        Ok(address) => address.ip().is_loopback(),
        Err(_) => match bind.rsplit_once(':') {
            Some((host, _)) => host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
            None => false,
        },
    }
}

/// Whether a value contains `${VAR}`, or a malformed one.
fn has_variables(value: &Value) -> bool {
    let mut used = Vec::new();
    expand_value(&mut value.clone(), &|_| Some("set".to_owned()), &mut used).is_err() || !used.is_empty()
}

/// The keys that [`describe`] puts first: the program, the address, the file.
fn first_keys(keys: &[&str]) -> &'static [&'static str] {
    match keys {
        ["mcp_servers", ..] => &["command", "args", "url"],
        ["apis", ..] => &["spec", "base_url"],
        ["tools" | "agents", ..] | ["connectors", "script", ..] => &["path"],
        ["connectors", "filesystem", ..] => &["root"],
        ["connectors", "git", ..] => &["url"],
        ["connectors", "s3", ..] => &["bucket", "endpoint_url"],
        ["embedding"] => &["provider", "url"],
        ["db"] => &["path"],
        _ => &[],
    }
}

/// The description of a section: its program, address or file first, then its other keys as JSON.
fn describe(keys: &[&str], value: &Value) -> String {
    let is_secret = keys.last().is_some_and(|key| ctx_core::Redactor::is_secret_key(key));
    let mut section = mask_secrets(value.clone(), is_secret && !value.is_object());
    let Some(fields) = section.as_object_mut() else { return word(&section) };
    let mut words = Vec::new();
    for key in first_keys(keys) {
        match fields.remove(*key) {
            Some(Value::Array(items)) => words.extend(items.iter().map(word)),
            Some(value) => words.push(word(&value)),
            None => {}
        }
    }
    if !fields.is_empty() {
        words.push(section.to_string());
    }
    words.join(" ")
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Hash of a section's path and content. Comments and formatting do not count.
fn hash(keys: &[&str], value: &Value) -> String {
    let mut hasher = blake3::Hasher::new();
    let value = value.to_string();
    for part in keys.iter().copied().chain([value.as_str()]) {
        // Length-prefixed, so that no two lists of parts hash the same bytes.
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}
