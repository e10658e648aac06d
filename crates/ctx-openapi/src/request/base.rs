//! The base URL of an API.

use super::RequestError;
use crate::operation::Operation;
use ctx_core::AddressPolicy;
use url::Url;

/// Base URL of an API with the SSRF policy for its requests.
#[derive(Clone, Debug)]
pub(crate) struct ApiBase {
    pub(crate) url: Url,
    /// Policy for requests to the API itself.
    pub(crate) reach: AddressPolicy,
    /// Policy for other hosts that the description names, such as a token endpoint.
    pub(crate) described_reach: AddressPolicy,
}

impl ApiBase {
    /// Policy for a URL that the description names.
    pub(crate) fn reach_of(&self, url: &Url) -> AddressPolicy {
        if url.host() == self.url.host() { self.reach } else { self.described_reach }
    }
}

/// The URL that an operation's path is appended to: the configured one, else the first usable server of the
/// document, which may be relative to the document.
pub(crate) fn base_url(
    configured: Option<&str>,
    operation: &Operation,
    document: Option<&Url>,
) -> Result<Url, RequestError> {
    if let Some(configured) = configured {
        let url = Url::parse(configured)
            .map_err(|error| RequestError::Base(format!("`base_url` is not a valid URL: {error}")))?;
        return validate_base_url(url, configured);
    }
    let document = document.filter(|url| is_web(url));
    let absolute = |server: &str| match (Url::parse(server), document) {
        (Ok(url), _) => Some(url),
        (Err(_), Some(document)) => document.join(server).ok(),
        (Err(_), None) => None,
    };
    // A document without `servers` means the root of its own host.
    let root = operation.servers.is_empty().then_some("/");
    let servers = operation.servers.iter().map(String::as_str).chain(root);
    let mut first_error = None;
    for server in servers {
        let Some(url) = absolute(server) else { continue };
        match validate_base_url(url, server) {
            Ok(url) => return Ok(url),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| match operation.servers.first() {
        None => RequestError::Base("the description names no server".to_owned()),
        Some(server) => RequestError::Base(format!("the description's server `{server}` is not a valid URL")),
    }))
}

fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host()
}

fn validate_base_url(mut url: Url, shown: &str) -> Result<Url, RequestError> {
    let invalid = |why: &str| Err(RequestError::Base(why.to_owned()));
    if !is_web(&url) {
        return invalid("only http and https can be requested");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return invalid("a URL may not contain a user name or password; configure credentials instead");
    }
    if shown.contains(['{', '}']) {
        return invalid(&format!("the variables of `{shown}` have no values"));
    }
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::operation;

    fn base(configured: Option<&str>, servers: &[&str], document: Option<&str>) -> Result<String, String> {
        let mut operation = operation("GET", "/pets");
        operation.servers = servers.iter().map(ToString::to_string).collect();
        let document = document.map(|url| Url::parse(url).unwrap());
        let url = base_url(configured, &operation, document.as_ref());
        url.map(|url| url.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_configured_base_url_overrides_the_servers() {
        let document = Some("https://docs.example/specs/api.json");
        let ours = base(Some("https://own.example/v2"), &["https://api.example/v1"], document);
        assert_eq!(ours.unwrap(), "https://own.example/v2");
        assert_eq!(base(None, &["https://api.example/v1"], document).unwrap(), "https://api.example/v1");
    }

    #[test]
    fn relative_servers_are_resolved_against_the_document() {
        let document = Some("https://docs.example/specs/api.json");
        for (server, expected) in [
            ("/v1", "https://docs.example/v1"),
            ("v1", "https://docs.example/specs/v1"),
            ("../v1", "https://docs.example/v1"),
            ("//api.example/v1", "https://api.example/v1"),
        ] {
            assert_eq!(base(None, &[server], document).unwrap(), expected);
        }
        assert_eq!(base(None, &[], document).unwrap(), "https://docs.example/");
    }

    #[test]
    fn without_a_base_url_the_error_names_the_setting() {
        for (configured, servers, document) in [
            (None, &[][..], None),
            (None, &["/v1"], None),
            (None, &["/v1"], Some("file:///specs/api.json")),
            (None, &["https://{region}.example/"], None),
            (None, &["https://example/{region}"], None),
            (None, &["https://user:word@example/"], None),
            (None, &["ftp://example/"], None),
            (Some("example"), &[], None),
            (Some("javascript:1"), &[], None),
        ] {
            let error = base(configured, servers, document).unwrap_err();
            assert!(error.contains("base_url"), "{configured:?} {servers:?}: {error}");
            assert!(!error.contains("word@"), "{error}");
        }
    }

    #[test]
    fn the_first_usable_server_is_chosen() {
        let url = base(None, &["{scheme}://example/", "https://api.example"], None);
        assert_eq!(url.unwrap(), "https://api.example/");
    }
}
