//! Security schemes of a description, and security requirements of its operations.

use super::read::DescriptionReader;
use super::reference::DocumentNode;
use crate::operation::{ParameterLocation, SecurityScheme};
use std::collections::BTreeMap;

/// Maximum number of alternative security requirements of one operation.
const ALTERNATIVES_MAX: usize = 32;

impl<'d> DescriptionReader<'d> {
    /// All security schemes of the document.
    pub(super) fn security_schemes(&self) -> BTreeMap<String, SecurityScheme> {
        let components = self.root.get("components").and_then(|components| components.get("securitySchemes"));
        let schemes = components.or_else(|| self.root.get("securityDefinitions"));
        let named = schemes.into_iter().flat_map(DocumentNode::fields);
        named
            .map(|(name, scheme)| {
                let scheme = self.documents.follow(scheme).map_or_else(SecurityScheme::Unknown, parse_scheme);
                (name.to_owned(), scheme)
            })
            .collect()
    }

    /// The security requirements of an operation: its own, else those of the document. Schemes that are not
    /// described are added to `schemes` as unknown.
    pub(super) fn security_requirements(
        &self,
        operation: DocumentNode<'d>,
        schemes: &mut BTreeMap<String, SecurityScheme>,
    ) -> Vec<BTreeMap<String, Vec<String>>> {
        let own = operation.get("security").filter(|security| security.value.is_array());
        if own.is_some_and(|own| own.items().next().is_none()) {
            // An empty list declares that no credentials are needed.
            return vec![BTreeMap::new()];
        }
        let alternatives =
            own.or_else(|| self.root.get("security")).into_iter().flat_map(DocumentNode::items);
        let mut requirements = Vec::new();
        for alternative in
            alternatives.filter(|alternative| alternative.value.is_object()).take(ALTERNATIVES_MAX)
        {
            let mut requirement = BTreeMap::new();
            for (name, scopes) in alternative.fields() {
                let scopes =
                    scopes.items().filter_map(|scope| scope.value.as_str()).map(str::to_owned).collect();
                requirement.insert(name.to_owned(), scopes);
                if !schemes.contains_key(name) {
                    schemes.insert(name.to_owned(), SecurityScheme::Unknown("undefined".to_owned()));
                }
            }
            requirements.push(requirement);
        }
        requirements
    }
}

fn parse_scheme(scheme: DocumentNode<'_>) -> SecurityScheme {
    let unknown = |name_or_type: &str| SecurityScheme::Unknown(super::reference::shorten(name_or_type));
    let kind = scheme.text("type").unwrap_or_default();
    let http_scheme = scheme.text("scheme").unwrap_or_default().to_ascii_lowercase();
    match (kind.to_ascii_lowercase().as_str(), http_scheme.as_str()) {
        ("http", "bearer") => SecurityScheme::Bearer,
        ("http", "basic") | ("basic", _) => SecurityScheme::Basic,
        ("http", http_scheme) => unknown(&format!("http {http_scheme}")),
        ("apikey", _) => match (scheme.text("in"), scheme.text("name")) {
            (Some("header"), Some(name)) => api_key(ParameterLocation::Header, name),
            (Some("query"), Some(name)) => api_key(ParameterLocation::Query, name),
            (Some("cookie"), Some(name)) => api_key(ParameterLocation::Cookie, name),
            _ => unknown("apiKey without location or name"),
        },
        ("oauth2", _) => oauth_scheme(scheme),
        ("openidconnect", _) => SecurityScheme::OtherToken,
        _ => unknown(kind),
    }
}

fn api_key(location: ParameterLocation, name: &str) -> SecurityScheme {
    SecurityScheme::Key { location, name: name.to_owned() }
}

/// Only the client credentials flow can be run here: it involves no person.
fn oauth_scheme(scheme: DocumentNode<'_>) -> SecurityScheme {
    let openapi3 = scheme.get("flows").and_then(|flows| flows.get("clientCredentials"));
    let swagger2 = Some(scheme).filter(|scheme| scheme.text("flow") == Some("application"));
    let flow = openapi3.or(swagger2);
    match flow.and_then(|flow| Some((flow, flow.text("tokenUrl")?))) {
        Some((flow, token_url)) => {
            let scopes = flow.get("scopes").into_iter().flat_map(DocumentNode::fields);
            SecurityScheme::ClientCredentials {
                token_url: token_url.to_owned(),
                scopes: scopes
                    .map(|(name, _)| name.to_owned())
                    .filter(|name| !name.starts_with("x-"))
                    .collect(),
            }
        }
        None => SecurityScheme::OtherToken,
    }
}
