//! Security schemes of a description, and security requirements of its operations.

use super::read::Reader;
use super::reference::Node;
use crate::operation::{Place, Scheme};
use std::collections::BTreeMap;

/// Maximum number of alternative security requirements of one operation.
const WAYS_MAX: usize = 32;

impl<'d> Reader<'d> {
    /// All security schemes of the document.
    pub(super) fn schemes(&self) -> BTreeMap<String, Scheme> {
        let components = self.root.get("components").and_then(|components| components.get("securitySchemes"));
        let schemes = components.or_else(|| self.root.get("securityDefinitions"));
        let named = schemes.into_iter().flat_map(Node::fields);
        named
            .map(|(name, scheme)| {
                let scheme = self.documents.follow(scheme).map_or_else(Scheme::Unknown, read_scheme);
                (name.to_owned(), scheme)
            })
            .collect()
    }

    /// The security requirements of an operation: its own, else those of the document. Schemes that are not
    /// described are added to `schemes` as unknown.
    pub(super) fn security(
        &self,
        operation: Node<'d>,
        schemes: &mut BTreeMap<String, Scheme>,
    ) -> Vec<BTreeMap<String, Vec<String>>> {
        let own = operation.get("security").filter(|security| security.value.is_array());
        if own.is_some_and(|own| own.items().next().is_none()) {
            // An empty list declares that no credentials are needed.
            return vec![BTreeMap::new()];
        }
        let ways = own.or_else(|| self.root.get("security")).into_iter().flat_map(Node::items);
        let mut read = Vec::new();
        for way in ways.filter(|way| way.value.is_object()).take(WAYS_MAX) {
            let mut needed = BTreeMap::new();
            for (name, scopes) in way.fields() {
                let scopes =
                    scopes.items().filter_map(|scope| scope.value.as_str()).map(str::to_owned).collect();
                needed.insert(name.to_owned(), scopes);
                if !schemes.contains_key(name) {
                    schemes.insert(name.to_owned(), Scheme::Unknown("it is not described".to_owned()));
                }
            }
            read.push(needed);
        }
        read
    }
}

fn read_scheme(scheme: Node<'_>) -> Scheme {
    let unknown = |what: &str| Scheme::Unknown(super::reference::shortened(what));
    let kind = scheme.text("type").unwrap_or_default();
    let way = scheme.text("scheme").unwrap_or_default().to_ascii_lowercase();
    match (kind.to_ascii_lowercase().as_str(), way.as_str()) {
        ("http", "bearer") => Scheme::Bearer,
        ("http", "basic") | ("basic", _) => Scheme::Basic,
        ("http", way) => unknown(&format!("http {way}")),
        ("apikey", _) => match (scheme.text("in"), scheme.text("name")) {
            (Some("header"), Some(name)) => key(Place::Header, name),
            (Some("query"), Some(name)) => key(Place::Query, name),
            (Some("cookie"), Some(name)) => key(Place::Cookie, name),
            _ => unknown("a key without a place or a name"),
        },
        ("oauth2", _) => oauth(scheme),
        ("openidconnect", _) => Scheme::OtherToken,
        _ => unknown(kind),
    }
}

fn key(place: Place, name: &str) -> Scheme {
    Scheme::Key { place, name: name.to_owned() }
}

/// Only the client credentials flow can be run here: it involves no person.
fn oauth(scheme: Node<'_>) -> Scheme {
    let third = scheme.get("flows").and_then(|flows| flows.get("clientCredentials"));
    let second = Some(scheme).filter(|scheme| scheme.text("flow") == Some("application"));
    let flow = third.or(second);
    match flow.and_then(|flow| Some((flow, flow.text("tokenUrl")?))) {
        Some((flow, token_url)) => {
            let scopes = flow.get("scopes").into_iter().flat_map(Node::fields);
            Scheme::ClientCredentials {
                token_url: token_url.to_owned(),
                scopes: scopes
                    .map(|(name, _)| name.to_owned())
                    .filter(|name| !name.starts_with("x-"))
                    .collect(),
            }
        }
        None => Scheme::OtherToken,
    }
}
