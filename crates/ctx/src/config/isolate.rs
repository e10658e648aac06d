//! Credential isolation: credentials in the user's own file are sent only to addresses in the user's own file.
//!
//! A workspace's section merges over the user's section of the same name. If it sets an address, the user's section
//! is dropped first; otherwise the user's credentials would be sent to the workspace's address.

use super::apis::FROZEN_PARAMETERS;
use super::tree::{ConfigNode, ConfigTable};

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

/// Removes from `user` (the user's own settings) everything that must not be merged with `workspace`.
pub(super) fn isolate(user: &mut ConfigTable, workspace: &ConfigTable, warnings: &mut Vec<String>) {
    for (group, addresses) in ADDRESSES {
        let (Some(ConfigNode::Table(overriding)), Some(ConfigNode::Table(overridden))) =
            (workspace.at(group), user.at_mut(group))
        else {
            continue;
        };
        overridden.entries.retain(|name, _| match overriding.entries.get(name) {
            Some(ConfigNode::Table(section)) => {
                !addresses.iter().any(|key| section.entries.contains_key(*key))
            }
            _ => true,
        });
    }
    let workspace_sets = |key: &str| workspace.at(&["embedding", key]).is_some();
    if (workspace_sets("url") || workspace_sets("provider"))
        && let Some(ConfigNode::Table(embedding)) = user.at_mut(&["embedding"])
        && embedding.entries.remove("api_key").is_some()
        && !workspace_sets("api_key")
    {
        warnings.push(
            "your own `embedding.api_key` is not used: the workspace sets `embedding.provider` or \
             `embedding.url`, and your key is sent only to a URL from your own configuration"
                .to_owned(),
        );
    }
    freeze_own_apis(user);
}

/// Moves the user's `[frozen_params]`, which may be credentials, into each of the user's own API sections, so that no
/// API of the workspace receives them.
fn freeze_own_apis(user: &mut ConfigTable) {
    let Some(ConfigNode::Table(frozen)) = user.entries.remove(FROZEN_PARAMETERS) else { return };
    let Some(ConfigNode::Table(apis)) = user.entries.get_mut("apis") else { return };
    for node in apis.entries.values_mut() {
        let ConfigNode::Table(api) = node else { continue };
        let mut parameters = ConfigTable { entries: frozen.entries.clone(), origin: frozen.origin.clone() };
        if let Some(ConfigNode::Table(section_parameters)) = api.entries.remove(FROZEN_PARAMETERS) {
            parameters.merge(section_parameters);
        }
        api.entries.insert(FROZEN_PARAMETERS.to_owned(), ConfigNode::Table(parameters));
    }
}
