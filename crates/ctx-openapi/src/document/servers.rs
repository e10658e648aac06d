//! The server URLs of an operation.

use super::read::DescriptionReader;
use super::reference::DocumentNode;
use serde_json::Value;

/// Maximum number of servers of one operation.
const SERVERS_MAX: usize = 16;

impl<'d> DescriptionReader<'d> {
    /// The servers of an operation: its own, else those of its path item, else those of the document.
    pub(super) fn servers(&self, item: DocumentNode<'d>, operation: DocumentNode<'d>) -> Vec<String> {
        if self.is_swagger2 {
            return self.swagger2_servers(operation);
        }
        let lists = [operation, item, self.root].into_iter().filter_map(|owner| owner.get("servers"));
        let servers = lists
            .map(|list| list.items().take(SERVERS_MAX).filter_map(substitute_variables).collect::<Vec<_>>());
        servers.into_iter().find(|servers| !servers.is_empty()).unwrap_or_default()
    }

    /// Server URLs of Swagger 2.0, from `schemes`, `host` and `basePath`; https first.
    fn swagger2_servers(&self, operation: DocumentNode<'d>) -> Vec<String> {
        let base = self.root.text("basePath").unwrap_or_default();
        let base =
            if base.is_empty() || base.starts_with('/') { base.to_owned() } else { format!("/{base}") };
        let Some(host) = self.root.text("host") else {
            return if base.is_empty() { Vec::new() } else { vec![base] };
        };
        let host = host.split_once("://").map_or(host, |(_, host)| host).trim_end_matches('/');
        let schemes = operation.get("schemes").or_else(|| self.root.get("schemes"));
        let schemes =
            schemes.into_iter().flat_map(DocumentNode::items).filter_map(|scheme| scheme.value.as_str());
        let mut schemes: Vec<&str> = schemes.filter(|scheme| matches!(*scheme, "http" | "https")).collect();
        schemes.sort_by_key(|scheme| *scheme != "https");
        schemes.dedup();
        if schemes.is_empty() {
            schemes.push("https");
        }
        schemes.into_iter().map(|scheme| format!("{scheme}://{host}{base}")).collect()
    }
}

/// A server URL with its variables replaced by their defaults; `None` if a variable has no value.
fn substitute_variables(server: DocumentNode<'_>) -> Option<String> {
    let mut url = String::new();
    let mut rest = server.text("url")?;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}')?;
        let variable = server.get("variables").and_then(|variables| variables.get(name))?;
        let first = || variable.get("enum").and_then(|values| values.items().next());
        let value = variable.get("default").or_else(first)?;
        url.push_str(before);
        match value.value {
            Value::String(text) => url.push_str(text),
            Value::Number(number) => url.push_str(&number.to_string()),
            _ => return None,
        }
        rest = after;
    }
    url.push_str(rest);
    (!url.contains(char::is_control)).then_some(url)
}
