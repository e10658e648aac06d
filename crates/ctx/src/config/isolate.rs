//! Credential isolation: credentials in the user's own file are sent only to addresses in the user's own file.
//!
//! A workspace's section merges over the user's section of the same name. If it sets an address, the user's section
//! is dropped first; otherwise the user's credentials would be sent to the workspace's address.

use super::apis::FROZEN;
use super::tree::{Node, Table};

/// Groups of sections, each with the keys that set where a section connects to or which code it runs.
const ADDRESSES: &[(&[&str], &[&str])] = &[
    (&["mcp_servers"], &["command", "args", "cwd", "env", "url", "oauth"]),
    (&["apis"], &["spec", "base_url", "auth", "proxy"]),
    (&["connectors", "git"], &["url"]),
    (&["connectors", "s3"], &["bucket", "endpoint_url"]),
    (&["connectors", "script"], &["path"]),
    (&["tools", "script"], &["path"]),
    (&["agents", "script"], &["path"]),
];

/// Removes from `below` (the user's own settings) everything that must not be merged with the workspace's `layer`.
pub(super) fn isolate(below: &mut Table, layer: &Table, warnings: &mut Vec<String>) {
    for (group, addresses) in ADDRESSES {
        let (Some(Node::Table(over)), Some(Node::Table(under))) = (layer.at(group), below.at_mut(group))
        else {
            continue;
        };
        under.entries.retain(|name, _| match over.entries.get(name) {
            Some(Node::Table(section)) => !addresses.iter().any(|key| section.entries.contains_key(*key)),
            _ => true,
        });
    }
    let workspace_sets = |key: &str| layer.at(&["embedding", key]).is_some();
    if (workspace_sets("url") || workspace_sets("provider"))
        && let Some(Node::Table(embedding)) = below.at_mut(&["embedding"])
        && embedding.entries.remove("api_key").is_some()
        && !workspace_sets("api_key")
    {
        warnings.push(
            "your own `embedding.api_key` is not used: the workspace says where to send texts, and your key goes only \
             to an address that your own configuration names"
                .to_owned(),
        );
    }
    freeze_own_apis(below);
}

/// Moves the user's `[frozen_params]`, which may be credentials, into each of the user's own API sections, so that no
/// API of the workspace receives them.
fn freeze_own_apis(below: &mut Table) {
    let Some(Node::Table(frozen)) = below.entries.remove(FROZEN) else { return };
    let Some(Node::Table(apis)) = below.entries.get_mut("apis") else { return };
    for node in apis.entries.values_mut() {
        let Node::Table(api) = node else { continue };
        let mut own = Table { entries: frozen.entries.clone(), origin: frozen.origin.clone() };
        if let Some(Node::Table(narrower)) = api.entries.remove(FROZEN) {
            own.merge(narrower);
        }
        api.entries.insert(FROZEN.to_owned(), Node::Table(own));
    }
}
