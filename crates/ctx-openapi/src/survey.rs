//! Inspects a description without sending anything: its operations, their schemas, and the requests that they
//! become. For measurements over many descriptions.

use crate::auth::{self, Credential, Credentials, RequestAuth};
use crate::document::{RootLocation, SingleDocument, load};
use crate::operation::{Description, Operation, SecurityScheme};
use crate::request::{base_url, operation_request};
use ctx_core::{Secret, ToolError};
use serde_json::{Map, Value};
use url::Url;

/// Placeholder for every secret.
const PLACEHOLDER: &str = "secret";

/// A parsed description, with a placeholder credential for each security scheme.
#[derive(Debug, PartialEq)]
pub struct Survey {
    description: Description,
    url: Url,
    credentials: Credentials,
    declares_no_security: bool,
}

/// One operation of a [`Survey`].
#[derive(Clone, Copy, Debug)]
pub struct SurveyedOperation<'a> {
    survey: &'a Survey,
    operation: &'a Operation,
}

/// A request as it would be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct SurveyedRequest {
    /// The HTTP method, in upper case.
    pub method: String,
    /// The URL.
    pub url: String,
    /// Header names in lower case, and their values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Vec<u8>>,
}

impl Survey {
    /// Parses a description of one document, as if it came from this URL; the error says why it cannot be
    /// parsed.
    pub fn of(text: &str, url: &str) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        let description =
            load(text, RootLocation::Web(url.clone()), &SingleDocument).map_err(|error| error.to_string())?;
        Ok(Self::new(description, url))
    }

    fn new(description: Description, url: Url) -> Self {
        let by_scheme = description
            .schemes
            .iter()
            .filter_map(|(name, scheme)| Some((name.clone(), placeholder_credential(scheme)?)));
        let credentials = Credentials { by_scheme: by_scheme.collect(), other: None };
        let declares_no_security = auth::declares_no_security(&description);
        Self { description, url, credentials, declares_no_security }
    }

    /// The operations that can be called, in the document's order.
    pub fn operations(&self) -> impl ExactSizeIterator<Item = SurveyedOperation<'_>> {
        self.description.operations.iter().map(|operation| SurveyedOperation { survey: self, operation })
    }

    /// The operations that cannot be called, and why.
    pub fn skipped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.description.skipped.iter().map(|skipped| (skipped.name.as_str(), skipped.reason.as_str()))
    }
}

impl<'a> SurveyedOperation<'a> {
    /// The function name.
    pub fn name(self) -> &'a str {
        &self.operation.name
    }

    /// The schema of the arguments, with its definitions.
    pub fn input_schema(self) -> Value {
        self.survey.description.input_schema(self.operation)
    }

    /// The schema of the response, with its definitions, if it is known.
    pub fn output_schema(self) -> Option<Value> {
        self.survey.description.output_schema(self.operation)
    }

    /// The request that would be sent, with placeholder credentials.
    pub fn request(self, arguments: &Map<String, Value>) -> Result<SurveyedRequest, String> {
        let survey = self.survey;
        let to_text = |error: ToolError| error.to_string();
        let base = base_url(None, self.operation, Some(&survey.url)).map_err(|error| error.to_string())?;
        let request =
            operation_request(self.operation, arguments, &base, None).map_err(|error| error.to_string())?;
        let schemes = &survey.description.schemes;
        let chosen = auth::choose(self.operation, schemes, survey.declares_no_security, &survey.credentials)
            .map_err(to_text)?;
        let (request_auth, _) = RequestAuth::static_credentials(chosen).map_err(to_text)?;
        let mut request = request;
        request_auth.apply(&mut request).map_err(to_text)?;
        let headers = request
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        Ok(SurveyedRequest {
            method: request.method.to_string(),
            url: request.url.to_string(),
            headers: headers.collect(),
            body: request.body.map(|body| body.to_vec()),
        })
    }
}

/// A placeholder credential for a security scheme. OAuth schemes get a token, since none can be requested
/// here.
fn placeholder_credential(scheme: &SecurityScheme) -> Option<Credential> {
    let secret = || Secret::new(PLACEHOLDER);
    match scheme {
        SecurityScheme::Bearer | SecurityScheme::OtherToken | SecurityScheme::ClientCredentials { .. } => {
            Some(Credential::Bearer(secret()))
        }
        SecurityScheme::Basic => Some(Credential::Basic { user: "user".to_owned(), password: secret() }),
        SecurityScheme::Key { .. } => Some(Credential::Key(secret())),
        SecurityScheme::Unknown(_) => None,
    }
}
