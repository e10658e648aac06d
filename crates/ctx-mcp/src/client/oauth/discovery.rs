//! Discovery of the authorization server of an MCP server (RFC 9728) and of its endpoints (RFC 8414).

use super::LoginError;
use super::challenge::Challenge;
use super::fetch::OAuthHttpClient;
use ctx_net::display_url;
use serde::Deserialize;
use url::Url;

const RESOURCE_METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
const SERVER_METADATA_PATH: &str = "/.well-known/oauth-authorization-server";
const OPENID_METADATA_PATH: &str = "/.well-known/openid-configuration";
/// The PKCE method that authorization servers must support.
const PKCE_METHOD: &str = "S256";
/// Maximum number of authorization servers of a resource that are tried.
const ISSUERS_MAX: usize = 4;

/// The metadata that a login needs.
pub(super) struct LoginMetadata {
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
    pub(super) supported_scopes: Vec<String>,
    /// Whether authorization responses contain the issuer (`iss`, RFC 9207).
    pub(super) sends_issuer: bool,
    /// Whether a client ID may be the URL of a client ID metadata document.
    pub(super) supports_metadata_documents: bool,
    /// Supported methods of client authentication.
    pub(super) auth_methods: Option<Vec<String>>,
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
    http_client: &OAuthHttpClient,
) -> Result<LoginMetadata, LoginError> {
    // The access token is sent to the MCP server, so this URL needs HTTPS as well.
    http_client.parse_url(server.as_str())?;
    let resource_metadata = resource_metadata(server, challenge, http_client).await?;
    let (resource, servers, scopes) = match resource_metadata {
        Some(metadata) => (metadata.resource, metadata.authorization_servers, metadata.scopes_supported),
        None => (default_resource(server), Vec::new(), Vec::new()),
    };
    // Servers of revision 2025-03-26 have no resource metadata: they are their own authorization server.
    let mut login_metadata = match servers.is_empty() {
        true => {
            let issuer = server.origin().ascii_serialization();
            match server_metadata(&issuer, http_client).await? {
                Some(metadata) => validate_metadata(metadata, &issuer, http_client)?,
                None => default_metadata(&issuer, http_client)?,
            }
        }
        false => first_usable(&servers, http_client).await?,
    };
    login_metadata.resource = resource;
    login_metadata.scopes = scopes;
    Ok(login_metadata)
}

/// The metadata of the first of these authorization servers that can be used; the error of the first if none can.
async fn first_usable(
    issuers: &[String],
    http_client: &OAuthHttpClient,
) -> Result<LoginMetadata, LoginError> {
    let mut first_error = None;
    for issuer in issuers.iter().take(ISSUERS_MAX) {
        let usable = match server_metadata(issuer, http_client).await {
            Ok(Some(metadata)) => validate_metadata(metadata, issuer, http_client),
            Ok(None) => Err(LoginError::new(format!("{issuer} publishes no authorization server metadata"))),
            Err(error) => Err(error),
        };
        match usable {
            Ok(metadata) => return Ok(metadata),
            Err(error) => _ = first_error.get_or_insert(error),
        }
    }
    Err(first_error.unwrap_or_else(|| LoginError::new("the server names no authorization server".to_owned())))
}

/// The protected resource metadata of the server; `None` if it publishes none.
async fn resource_metadata(
    server: &Url,
    challenge: &Challenge,
    http_client: &OAuthHttpClient,
) -> Result<Option<ResourceMetadata>, LoginError> {
    let mut urls = Vec::new();
    let named =
        challenge.resource_metadata_url.as_deref().map(|url| http_client.parse_url(url)).transpose()?;
    urls.extend(named.clone());
    let path = server.path().trim_end_matches('/');
    if !path.is_empty() {
        urls.push(well_known(server, &format!("{RESOURCE_METADATA_PATH}{path}")));
    }
    urls.push(well_known(server, RESOURCE_METADATA_PATH));
    for url in urls {
        let response = http_client.get(&url).await?;
        if !response.is_success() {
            continue;
        }
        let Some(metadata) = response.json::<ResourceMetadata>() else {
            // A guessed URL may answer with any page, as that of a single-page application does.
            if named.as_ref() != Some(&url) {
                continue;
            }
            return Err(LoginError::new(format!("{} is not protected resource metadata", display_url(&url))));
        };
        if !covers(&metadata.resource, server) {
            return Err(LoginError::new(format!(
                "{} is the metadata of another server, `{}`",
                display_url(&url),
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
fn default_resource(server: &Url) -> String {
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
fn metadata_urls(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let paths = match path {
        "" => vec![SERVER_METADATA_PATH.to_owned(), OPENID_METADATA_PATH.to_owned()],
        path => vec![
            format!("{SERVER_METADATA_PATH}{path}"),
            format!("{OPENID_METADATA_PATH}{path}"),
            format!("{path}{OPENID_METADATA_PATH}"),
        ],
    };
    paths.iter().map(|path| well_known(issuer, path)).collect()
}

async fn server_metadata(
    issuer: &str,
    http_client: &OAuthHttpClient,
) -> Result<Option<ServerMetadata>, LoginError> {
    for url in metadata_urls(&http_client.parse_url(issuer)?) {
        let response = http_client.get(&url).await?;
        if !response.is_success() {
            continue;
        }
        // A guessed URL may answer with any page, as that of a single-page application does.
        let Some(metadata) = response.json::<ServerMetadata>() else { continue };
        // The issuer must match (RFC 8414): a document at this URL could name the endpoints of somebody else.
        if metadata.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
            return Err(LoginError::new(format!(
                "{} is the metadata of another issuer, `{}`",
                display_url(&url),
                metadata.issuer
            )));
        }
        return Ok(Some(metadata));
    }
    Ok(None)
}

fn validate_metadata(
    metadata: ServerMetadata,
    issuer: &str,
    http_client: &OAuthHttpClient,
) -> Result<LoginMetadata, LoginError> {
    if !metadata.code_challenge_methods_supported.iter().any(|method| method == PKCE_METHOD) {
        return Err(LoginError::new(format!(
            "{issuer} does not support PKCE with {PKCE_METHOD}, without which an authorization code could be stolen"
        )));
    }
    let endpoint = |written: Option<String>, field: &str| match written {
        Some(written) => http_client.parse_url(&written),
        None => Err(LoginError::new(format!("the metadata of {issuer} has no `{field}`"))),
    };
    Ok(LoginMetadata {
        authorization_endpoint: endpoint(metadata.authorization_endpoint, "authorization_endpoint")?,
        token_endpoint: endpoint(metadata.token_endpoint, "token_endpoint")?,
        registration_endpoint: metadata
            .registration_endpoint
            .map(|at| http_client.parse_url(&at))
            .transpose()?,
        issuer: metadata.issuer,
        resource: String::new(),
        scopes: Vec::new(),
        supported_scopes: metadata.scopes_supported,
        sends_issuer: metadata.authorization_response_iss_parameter_supported,
        supports_metadata_documents: metadata.client_id_metadata_document_supported,
        auth_methods: metadata.token_endpoint_auth_methods_supported,
    })
}

/// The default endpoints of revision 2025-03-26, for servers without metadata.
fn default_metadata(issuer: &str, http_client: &OAuthHttpClient) -> Result<LoginMetadata, LoginError> {
    let base = http_client.parse_url(issuer)?;
    Ok(LoginMetadata {
        issuer: issuer.to_owned(),
        authorization_endpoint: well_known(&base, "/authorize"),
        token_endpoint: well_known(&base, "/token"),
        registration_endpoint: Some(well_known(&base, "/register")),
        resource: String::new(),
        scopes: Vec::new(),
        supported_scopes: Vec::new(),
        sends_issuer: false,
        supports_metadata_documents: false,
        auth_methods: None,
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
    fn an_issuer_with_a_path_has_three_metadata_urls() {
        let shown = |issuer: &str| metadata_urls(&url(issuer)).iter().map(Url::to_string).collect::<Vec<_>>();
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

    fn validate_changed(change: impl FnOnce(&mut Value)) -> Result<LoginMetadata, LoginError> {
        let mut metadata = json!({
            "issuer": "https://a.example",
            "authorization_endpoint": "https://a.example/authorize",
            "token_endpoint": "https://a.example/token",
            "code_challenge_methods_supported": ["plain", "S256"],
        });
        change(&mut metadata);
        let http_client = OAuthHttpClient::new(&url("https://s.example/mcp"));
        validate_metadata(serde_json::from_value(metadata).unwrap(), "https://a.example", &http_client)
    }

    #[test]
    fn metadata_without_pkce_or_https_endpoints_are_refused() {
        assert!(validate_changed(|_| {}).is_ok());
        let methods = "code_challenge_methods_supported";
        for (field, value) in [
            (methods, json!(["plain"])),
            (methods, json!([])),
            ("authorization_endpoint", json!("http://a.example/authorize")),
            ("token_endpoint", json!("http://127.0.0.1/token")),
            ("token_endpoint", json!(null)),
            ("registration_endpoint", json!("ftp://a.example")),
        ] {
            assert!(
                validate_changed(|metadata| metadata[field] = value.clone()).is_err(),
                "{field}: {value}"
            );
        }
        let without = |metadata: &mut Value| drop(metadata.as_object_mut().unwrap().remove(methods));
        assert!(validate_changed(without).is_err());
    }

    #[test]
    fn metadata_about_another_resource_are_refused() {
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
