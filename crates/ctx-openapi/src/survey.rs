//! Inspects a description without sending anything: its operations, their schemas, and the requests that they
//! become. For measurements over many descriptions.

use crate::auth::{self, Credential, Credentials, Pass};
use crate::document::{Alone, Home, load};
use crate::operation::{Description, Operation, Scheme};
use crate::request::{base_url, operation_request};
use ctx_core::{Secret, ToolError};
use serde_json::{Map, Value};
use url::Url;

/// Placeholder for every secret.
const SECRET: &str = "secret";

/// A parsed description, with a placeholder credential for each security scheme.
#[derive(Debug, PartialEq)]
pub struct Survey {
    description: Description,
    url: Url,
    credentials: Credentials,
    is_silent: bool,
}

/// One operation of a [`Survey`].
#[derive(Clone, Copy, Debug)]
pub struct Surveyed<'a> {
    survey: &'a Survey,
    operation: &'a Operation,
}

/// A request as it would be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
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
        let description = load(text, Home::Web(url.clone()), &Alone).map_err(|error| error.to_string())?;
        Ok(Self::new(description, url))
    }

    fn new(description: Description, url: Url) -> Self {
        let by_scheme =
            description.schemes.iter().filter_map(|(name, scheme)| Some((name.clone(), credential(scheme)?)));
        let credentials = Credentials { by_scheme: by_scheme.collect(), other: None };
        let is_silent = auth::is_silent(&description);
        Self { description, url, credentials, is_silent }
    }

    /// The operations that can be called, in the document's order.
    pub fn operations(&self) -> impl ExactSizeIterator<Item = Surveyed<'_>> {
        self.description.operations.iter().map(|operation| Surveyed { survey: self, operation })
    }

    /// The operations that cannot be called, and why.
    pub fn skipped(&self) -> impl Iterator<Item = (&str, &str)> {
        self.description.skipped.iter().map(|skipped| (skipped.what.as_str(), skipped.why.as_str()))
    }
}

impl<'a> Surveyed<'a> {
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
    pub fn request(self, arguments: &Map<String, Value>) -> Result<Sent, String> {
        let survey = self.survey;
        let told = |error: ToolError| error.to_string();
        let base = base_url(None, self.operation, Some(&survey.url)).map_err(|error| error.to_string())?;
        let request =
            operation_request(self.operation, arguments, &base, None).map_err(|error| error.to_string())?;
        let schemes = &survey.description.schemes;
        let grants =
            auth::choose(self.operation, schemes, survey.is_silent, &survey.credentials).map_err(told)?;
        let (pass, _) = Pass::at_hand(grants).map_err(told)?;
        let mut request = request;
        pass.apply(&mut request).map_err(told)?;
        let headers = request
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        Ok(Sent {
            method: request.method.to_string(),
            url: request.url.to_string(),
            headers: headers.collect(),
            body: request.body.map(|body| body.to_vec()),
        })
    }
}

/// A placeholder credential for a security scheme. OAuth schemes get a token, since none can be requested
/// here.
fn credential(scheme: &Scheme) -> Option<Credential> {
    let secret = || Secret::new(SECRET);
    match scheme {
        Scheme::Bearer | Scheme::OtherToken | Scheme::ClientCredentials { .. } => {
            Some(Credential::Bearer(secret()))
        }
        Scheme::Basic => Some(Credential::Basic { user: "user".to_owned(), password: secret() }),
        Scheme::Key { .. } => Some(Credential::Key(secret())),
        Scheme::Unknown(_) => None,
    }
}
