//! Access to a bucket: lists keys page by page, reads objects, and turns errors into messages for users.

use super::credentials::{AwsCredentials, AwsEnvironment};
use super::http_client::CheckedHttpConnector;
use crate::connectors::names;
use ctx_core::{Redactor, Secret, error_chain};
use ctx_net::{NetError, NetErrorKind};
use futures::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::{Error as PathError, Path};
use object_store::{Attribute, BackoffConfig, ClientOptions, Error, ObjectMeta, ObjectStoreExt, RetryConfig};
use std::error::Error as StdError;
use std::time::Duration;

/// Maximum retries of a request, and the time for them. The store retries by itself: only it knows which of its
/// requests may be repeated.
const RETRIES: usize = 4;
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time without data from the server.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of reading one object.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// Keys per page: the maximum of the service.
const PAGE_KEYS: usize = 1000;
/// Maximum size of a listing or an error: a page has at most a thousand keys of a kilobyte each, several times over
/// when escaped.
const LISTING_BYTES_MAX: u64 = 16 << 20;
/// Maximum characters of an error in a message.
const SHOWN_CHARS_MAX: usize = 300;

/// Location and credentials of a bucket.
#[derive(Clone)]
pub(super) struct BucketLocation {
    pub(super) bucket: String,
    pub(super) region: Option<String>,
    pub(super) endpoint_url: Option<String>,
    /// Credentials of the settings, which take precedence over all others.
    pub(super) credentials: Option<AwsCredentials>,
    pub(super) environment: AwsEnvironment,
}

/// An opened bucket.
pub(super) struct Bucket {
    store: AmazonS3,
    name: String,
    endpoint_url: Option<String>,
    redactor: Redactor,
    connector: CheckedHttpConnector,
}

/// An object with its content.
pub(super) struct S3Object {
    pub(super) bytes: Vec<u8>,
    pub(super) meta: ObjectMeta,
    pub(super) content_type: Option<String>,
}

/// Why an object could not be read.
pub(super) enum ReadError {
    /// A reason that concerns this object only.
    Object(String),
    /// A reason that concerns other objects too; the sync fails.
    Service(String),
}

/// One page of a listing.
#[derive(Default)]
pub(super) struct ListingPage {
    pub(super) objects: Vec<ObjectMeta>,
    /// A key that the store's client cannot represent, and so cannot read.
    pub(super) unrepresentable_key: Option<String>,
    pub(super) next: Option<Continuation>,
}

/// Where a listing continues.
pub(super) enum Continuation {
    Token(String),
    After(String),
}

impl Bucket {
    /// Looks up credentials; sends no request yet.
    pub(super) fn open(location: &BucketLocation, object_bytes_max: u64) -> Result<Self, String> {
        let environment = &location.environment;
        let credentials = match &location.credentials {
            Some(credentials) => Some(credentials.clone()),
            None => environment.credentials()?,
        };
        let endpoint_url = location.endpoint_url.as_deref().or_else(|| environment.endpoint_url());
        let is_plain = endpoint_url.is_some_and(|url| url.starts_with("http://"));
        let options = ClientOptions::new()
            .with_allow_http(is_plain)
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(READ_TIMEOUT)
            .with_timeout(REQUEST_TIMEOUT);
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: RETRIES,
            retry_timeout: RETRY_TIMEOUT,
        };
        // Above the limit of an object, so that [`Bucket::read`] reports one that is larger than announced as too
        // large.
        let connector = CheckedHttpConnector::new(object_bytes_max.saturating_add(LISTING_BYTES_MAX));
        let region = location.region.clone().or_else(|| environment.region());
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&location.bucket)
            .with_region(region.unwrap_or_else(|| "us-east-1".to_owned()))
            .with_client_options(options)
            .with_http_connector(connector.clone())
            .with_retry(retry)
            // A bucket with a dot does not match the wildcard certificate; other services rarely have a host name per
            // bucket.
            .with_virtual_hosted_style_request(endpoint_url.is_none() && !location.bucket.contains('.'));
        if let Some(url) = endpoint_url {
            builder = builder.with_endpoint(url);
        }
        let mut secrets = Vec::new();
        match credentials {
            Some(credentials) => {
                builder = builder
                    .with_access_key_id(&credentials.access_key_id)
                    .with_secret_access_key(credentials.secret_access_key.expose());
                if let Some(token) = &credentials.session_token {
                    builder = builder.with_token(token.expose());
                }
                secrets.extend([Secret::new(credentials.access_key_id), credentials.secret_access_key]);
                secrets.extend(credentials.session_token);
            }
            None => builder = environment.with_machine_credentials(builder),
        }
        let redactor = Redactor::new(secrets);
        let store = builder.build().map_err(|error| redactor.text(error_chain(&error)))?;
        Ok(Self {
            store,
            name: location.bucket.clone(),
            endpoint_url: endpoint_url.map(str::to_owned),
            redactor,
            connector,
        })
    }

    /// Lists one key, to check access.
    pub(super) async fn check(&self, prefix: &str) -> Result<(), String> {
        match self.list(prefix, 1, None).await {
            Ok(_) | Err(Error::InvalidPath { .. }) => Ok(()),
            Err(error) => Err(self.describe_error(&error)),
        }
    }

    /// The next page of keys below a prefix.
    pub(super) async fn list_page(
        &self,
        prefix: &str,
        next: Option<&Continuation>,
    ) -> Result<ListingPage, String> {
        let mut size = PAGE_KEYS;
        loop {
            match self.list(prefix, size, next).await {
                Ok(page) => return Ok(page),
                // One key that cannot be represented fails its whole page: halve the page until the key is alone.
                Err(Error::InvalidPath { .. }) if size > 1 => size /= 2,
                Err(Error::InvalidPath {
                    source: PathError::EmptySegment { path } | PathError::BadSegment { path, .. },
                }) => {
                    let next = Some(Continuation::After(path.clone()));
                    return Ok(ListingPage { unrepresentable_key: Some(path), next, objects: Vec::new() });
                }
                Err(error) => return Err(self.describe_error(&error)),
            }
        }
    }

    async fn list(
        &self,
        prefix: &str,
        size: usize,
        next: Option<&Continuation>,
    ) -> Result<ListingPage, Error> {
        let mut options = PaginatedListOptions { max_keys: Some(size), ..PaginatedListOptions::default() };
        match next {
            Some(Continuation::Token(token)) => options.page_token = Some(token.clone()),
            Some(Continuation::After(key)) => options.offset = Some(key.clone()),
            None => {}
        }
        let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        let response = self.store.list_paginated(prefix, options).await?;
        let next = response.page_token.map(Continuation::Token);
        Ok(ListingPage { objects: response.result.objects, unrepresentable_key: None, next })
    }

    /// Reads an object, unless it is too large.
    pub(super) async fn read(&self, object: &Path, bytes_max: u64) -> Result<S3Object, ReadError> {
        let response = self.store.get(object).await.map_err(|error| self.read_error(&error))?;
        let meta = response.meta.clone();
        let content_type =
            response.attributes.get(&Attribute::ContentType).map(|kind| kind.as_ref().to_owned());
        let too_large = |bytes| ReadError::Object(names::too_large_reason(bytes, bytes_max));
        if meta.size > bytes_max {
            return Err(too_large(meta.size));
        }
        let mut bytes = names::allocate_buffer(meta.size).map_err(ReadError::Object)?;
        let mut stream = response.into_stream();
        while let Some(part) = stream.next().await {
            bytes.extend_from_slice(&part.map_err(|error| self.read_error(&error))?);
            let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            if read > bytes_max {
                return Err(too_large(read));
            }
        }
        Ok(S3Object { bytes, meta, content_type })
    }

    fn read_error(&self, error: &Error) -> ReadError {
        match error {
            Error::NotFound { .. } => ReadError::Object(
                "it was listed but does not exist; keys that begin or end with `/` cannot be read".to_owned(),
            ),
            Error::PermissionDenied { .. } => {
                let text = error_chain(error);
                ReadError::Object(format!("access denied ({})", error_code(&text).unwrap_or("denied")))
            }
            error => ReadError::Service(self.describe_error(error)),
        }
    }

    /// The error as a message that a user can act on.
    fn describe_error(&self, error: &Error) -> String {
        let text = self.redactor.text(error_chain(error));
        let name = &self.name;
        match error_code(&text) {
            Some("NoSuchBucket") => format!("there is no bucket `{name}`"),
            Some("AccessDenied" | "AllAccessDisabled") => format!("access to the bucket `{name}` is denied"),
            Some("InvalidAccessKeyId") => "the access key ID does not exist".to_owned(),
            Some("SignatureDoesNotMatch") => "the secret access key does not match the access key ID".to_owned(),
            Some("ExpiredToken" | "InvalidToken") => "the session token has expired; get new credentials".to_owned(),
            Some("PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") => {
                format!("the bucket `{name}` is in another region; set `region`")
            }
            Some("RequestTimeTooSkewed") => "the clock of this machine differs too much from the service's".to_owned(),
            Some(code) => format!("the service returned the error {code}"),
            None if text.contains("redirect without LOCATION") => {
                format!("the bucket `{name}` is in another region; set `region`")
            }
            None if self.connector.lacks_credentials() => {
                "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or `access_key_id` and `secret_access_key`".to_owned()
            }
            None => match connection_failure(error) {
                Some(cause) => {
                    let service = self.endpoint_url.as_deref().unwrap_or("the service");
                    let cause = cause.split(" (os error").next().unwrap_or_default();
                    format!("{service} cannot be reached: {cause}")
                }
                None => text.chars().take(SHOWN_CHARS_MAX).collect(),
            },
        }
    }
}

/// The innermost cause, if the service could not be reached.
fn connection_failure(error: &Error) -> Option<String> {
    let net = causes(error).find_map(|cause| cause.downcast_ref::<NetError>())?;
    if !matches!(net.kind(), NetErrorKind::Timeout | NetErrorKind::Connect | NetErrorKind::Closed) {
        return None;
    }
    causes(net).last().map(ToString::to_string)
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The error code in the service's XML response.
fn error_code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    code.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(code)
}
