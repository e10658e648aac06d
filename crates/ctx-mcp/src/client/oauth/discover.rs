//! Who lets people in at a server, and how.

use super::LoginError;
use super::challenge::Challenge;
use super::fetch::Fetch;
use ctx_net::display_url;
use serde::Deserialize;
use url::Url;

const RESOURCE: &str = "/.well-known/oauth-protected-resource";
const SERVER: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";
/// How a code is kept from whoever overhears it.
const PROOF: &str = "S256";

/// All that a login needs to know.
pub(super) struct Discovered {
    /// What the authorization server names itself.
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    pub(super) registration_endpoint: Option<Url>,
    /// What tokens are for, as it was written.
    pub(super) resource: String,
    /// What the server says can be asked for.
    pub(super) scopes: Vec<String>,
    /// The same of the authorization server.
    pub(super) offered_scopes: Vec<String>,
    /// Whether answers name who gave them.
    pub(super) names_itself: bool,
    /// Whether a client may be the address of a document about it.
    pub(super) knows_documents: bool,
    /// How clients show who they are.
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

/// Finds out what a login at `server` needs, beginning with what the server said when it refused.
pub(super) async fn discover(
    server: &Url,
    challenge: &Challenge,
    fetch: &Fetch,
) -> Result<Discovered, LoginError> {
    // A token for a server must not be sent in the clear either.
    fetch.address(server.as_str())?;
    let about = resource_metadata(server, challenge, fetch).await?;
    let (resource, servers, scopes) = match about {
        Some(about) => (about.resource, about.authorization_servers, about.scopes_supported),
        None => (canonical(server), Vec::new(), Vec::new()),
    };
    // Servers of 2025-03-26 say nothing of that: they let people in themselves.
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

/// What the server says of itself; nothing where it says nothing.
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

/// Whether what is said of a resource is said of this server: it, or what it is a part of.
fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = resource.parse::<Url>() else { return false };
    let whole = resource.path().trim_end_matches('/');
    let part = server.path().strip_prefix(whole);
    resource.origin() == server.origin()
        && resource.fragment().is_none()
        && part.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A server's address as tokens for it name it.
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

/// Where an issuer may describe itself, in the order in which it is looked for.
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
        // Whoever can put a document there could name another's endpoints in it.
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

/// Where everything is with a server of 2025-03-26 that describes nothing.
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
