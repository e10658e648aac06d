//! Discovery of the authorization server of an MCP server (RFC 9728) and of its endpoints (RFC 8414).

use super::LoginError;
use super::challenge::Challenge;
use super::fetch::Fetch;
use ctx_net::display_url;
use serde::Deserialize;
use url::Url;

const RESOURCE: &str = "/.well-known/oauth-protected-resource";
const SERVER: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";
/// The PKCE method that authorization servers must support.
const PROOF: &str = "S256";

/// The metadata that a login needs.
pub(super) struct Discovered {
    /// The issuer identifier of the authorization server.
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    pub(super) registration_endpoint: Option<Url>,
    /// The resource indicator that tokens are requested for (RFC 8707), as the server writes it.
    pub(super) resource: String,
    /// Scopes that the MCP server supports.
    pub(super) scopes: Vec<String>,
    /// Scopes that the authorization server supports.
    pub(super) offered_scopes: Vec<String>,
    /// Whether authorization responses contain the issuer (`iss`, RFC 9207).
    pub(super) names_itself: bool,
    /// Whether a client ID may be the URL of a client ID metadata document.
    pub(super) knows_documents: bool,
    /// Supported methods of client authentication.
    pub(super) methods: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct ResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

#[derive(Deserialize)]
struct ServerMetadata {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
}

/// Discovers what a login at `server` needs, beginning with the challenge of its 401 response.
pub(super) async fn discover(
    server: &Url,
    challenge: &Challenge,
    fetch: &Fetch,
) -> Result<Discovered, LoginError> {
    // The access token is sent to the MCP server, so this URL needs HTTPS as well.
    fetch.address(server.as_str())?;
    let about = resource_metadata(server, challenge, fetch).await?;
    let (resource, servers, scopes) = match about {
        Some(about) => (about.resource, about.authorization_servers, about.scopes_supported),
        None => (canonical(server), Vec::new(), Vec::new()),
    };
    // Servers of revision 2025-03-26 have no resource metadata: they are their own authorization server.
    let issuer = servers.into_iter().next();
    let is_its_own = issuer.is_none();
    let issuer = issuer.unwrap_or_else(|| server.origin().ascii_serialization());
    let found = server_metadata(&issuer, fetch).await?;
    let mut discovered = match found {
        Some(metadata) => understand(metadata, &issuer, fetch)?,
        None if is_its_own => customary(&issuer, fetch)?,
        None => return Err(LoginError::new(format!("{issuer} does not say how it lets people in"))),
    };
    discovered.resource = resource;
    discovered.scopes = scopes;
    Ok(discovered)
}

/// The protected resource metadata of the server; `None` if it publishes none.
async fn resource_metadata(
    server: &Url,
    challenge: &Challenge,
    fetch: &Fetch,
) -> Result<Option<ResourceMetadata>, LoginError> {
    let mut places = Vec::new();
    if let Some(written) = &challenge.metadata {
        places.push(fetch.address(written)?);
    }
    let path = server.path().trim_end_matches('/');
    if !path.is_empty() {
        places.push(well_known(server, &format!("{RESOURCE}{path}")));
    }
    places.push(well_known(server, RESOURCE));
    for place in places {
        let answer = fetch.get(&place).await?;
        if !answer.is_success() {
            continue;
        }
        let metadata: ResourceMetadata = answer
            .json()
            .ok_or_else(|| LoginError::new(format!("{} cannot be understood", display_url(&place))))?;
        if !covers(&metadata.resource, server) {
            return Err(LoginError::new(format!(
                "{} is about another server, `{}`",
                display_url(&place),
                metadata.resource
            )));
        }
        return Ok(Some(metadata));
    }
    Ok(None)
}

/// Whether a resource is this server, or a parent path of it at the same origin.
fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = resource.parse::<Url>() else { return false };
    let whole = resource.path().trim_end_matches('/');
    let part = server.path().strip_prefix(whole);
    resource.origin() == server.origin()
        && resource.fragment().is_none()
        && part.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The resource indicator of a server without metadata: its URL without a fragment, and without the slash of
/// an empty path.
fn canonical(server: &Url) -> String {
    let mut server = server.clone();
    server.set_fragment(None);
    let text = server.to_string();
    if server.path() == "/" && server.query().is_none() {
        text.trim_end_matches('/').to_owned()
    } else {
        text
    }
}

fn well_known(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// The well-known URLs of the metadata of an issuer, in the order in which they are tried.
fn places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let paths = match path {
        "" => vec![SERVER.to_owned(), OPENID.to_owned()],
        path => vec![format!("{SERVER}{path}"), format!("{OPENID}{path}"), format!("{path}{OPENID}")],
    };
    paths.iter().map(|path| well_known(issuer, path)).collect()
}

async fn server_metadata(issuer: &str, fetch: &Fetch) -> Result<Option<ServerMetadata>, LoginError> {
    for place in places(&fetch.address(issuer)?) {
        let answer = fetch.get(&place).await?;
        if !answer.is_success() {
            continue;
        }
        let metadata: ServerMetadata = answer
            .json()
            .ok_or_else(|| LoginError::new(format!("{} cannot be understood", display_url(&place))))?;
        // The issuer must match (RFC 8414): a document at this URL could name the endpoints of somebody else.
        if metadata.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return Err(LoginError::new(format!(
                "{} is about another issuer, `{}`",
                display_url(&place),
                metadata.issuer
            )));
        }
        return Ok(Some(metadata));
    }
    Ok(None)
}

fn understand(metadata: ServerMetadata, issuer: &str, fetch: &Fetch) -> Result<Discovered, LoginError> {
    if !metadata.code_challenge_methods_supported.iter().any(|method| method == PROOF) {
        return Err(LoginError::new(format!(
            "{issuer} does not protect codes against who overhears them (PKCE with {PROOF}), so nobody logs in there"
        )));
    }
    let endpoint = |written: Option<String>, what: &str| match written {
        Some(written) => fetch.address(&written),
        None => Err(LoginError::new(format!("{issuer} does not say where {what}"))),
    };
    Ok(Discovered {
        authorization_endpoint: endpoint(metadata.authorization_endpoint, "people log in")?,
        token_endpoint: endpoint(metadata.token_endpoint, "tokens are given out")?,
        registration_endpoint: metadata.registration_endpoint.map(|at| fetch.address(&at)).transpose()?,
        issuer: metadata.issuer,
        resource: String::new(),
        scopes: Vec::new(),
        offered_scopes: metadata.scopes_supported,
        names_itself: metadata.authorization_response_iss_parameter_supported,
        knows_documents: metadata.client_id_metadata_document_supported,
        methods: metadata.token_endpoint_auth_methods_supported,
    })
}

/// The default endpoints of revision 2025-03-26, for servers without metadata.
fn customary(issuer: &str, fetch: &Fetch) -> Result<Discovered, LoginError> {
    let base = fetch.address(issuer)?;
    Ok(Discovered {
        issuer: issuer.to_owned(),
        authorization_endpoint: well_known(&base, "/authorize"),
        token_endpoint: well_known(&base, "/token"),
        registration_endpoint: Some(well_known(&base, "/register")),
        resource: String::new(),
        scopes: Vec::new(),
        offered_scopes: Vec::new(),
        names_itself: false,
        knows_documents: false,
        methods: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn an_issuer_with_a_path_is_looked_for_in_three_places() {
        let shown = |issuer: &str| places(&url(issuer)).iter().map(Url::to_string).collect::<Vec<_>>();
        assert_eq!(
            shown("https://a.example"),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            shown("https://a.example/tenant/"),
            [
                "https://a.example/.well-known/oauth-authorization-server/tenant",
                "https://a.example/.well-known/openid-configuration/tenant",
                "https://a.example/tenant/.well-known/openid-configuration",
            ]
        );
    }

    fn understood(change: impl FnOnce(&mut Value)) -> Result<Discovered, LoginError> {
        let mut metadata = json!({
            "issuer": "https://a.example",
            "authorization_endpoint": "https://a.example/authorize",
            "token_endpoint": "https://a.example/token",
            "code_challenge_methods_supported": ["plain", "S256"],
        });
        change(&mut metadata);
        let fetch = Fetch::new(&url("https://s.example/mcp"));
        understand(serde_json::from_value(metadata).unwrap(), "https://a.example", &fetch)
    }

    #[test]
    fn nobody_logs_in_where_codes_can_be_overheard() {
        assert!(understood(|_| {}).is_ok());
        let methods = "code_challenge_methods_supported";
        for (field, value) in [
            (methods, json!(["plain"])),
            (methods, json!([])),
            ("authorization_endpoint", json!("http://a.example/authorize")),
            ("token_endpoint", json!("http://127.0.0.1/token")),
            ("token_endpoint", json!(null)),
            ("registration_endpoint", json!("ftp://a.example")),
        ] {
            assert!(understood(|metadata| metadata[field] = value.clone()).is_err(), "{field}: {value}");
        }
        let without = |metadata: &mut Value| drop(metadata.as_object_mut().unwrap().remove(methods));
        assert!(understood(without).is_err());
    }

    #[test]
    fn what_is_said_of_another_server_is_not_believed() {
        let server = url("https://s.example/v1/mcp");
        for resource in ["https://s.example/v1/mcp", "https://s.example", "https://s.example/v1/"] {
            assert!(covers(resource, &server), "{resource}");
        }
        for resource in
            ["https://evil.example/v1/mcp", "http://s.example/v1/mcp", "https://s.example/v1/mc", "mcp"]
        {
            assert!(!covers(resource, &server), "{resource}");
        }
    }
}
