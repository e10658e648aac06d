//! Access to a bucket: lists keys page by page, reads objects, and turns errors into messages for users.

use super::connect::CheckedConnector;
use super::credentials::{Environment, Keys};
use crate::connectors::names;
use ctx_core::{Redactor, Secret, chain};
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
const RETRY_MAX: Duration = Duration::from_secs(60);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Maximum time without data from the server.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Timeout of reading one object.
const REQUEST_MAX: Duration = Duration::from_secs(600);
/// Keys per page: the maximum of the service.
const PAGE: usize = 1000;
/// Maximum size of a listing or an error: a page has at most a thousand keys of a kilobyte each, several times over
/// when escaped.
const LISTING_BYTES_MAX: u64 = 16 << 20;
/// Maximum characters of an error in a message.
const SHOWN_CHARS_MAX: usize = 300;

/// Location and credentials of a bucket.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) bucket: String,
    pub(super) region: Option<String>,
    pub(super) endpoint_url: Option<String>,
    /// Credentials of the settings, which take precedence over all others.
    pub(super) keys: Option<Keys>,
    pub(super) environment: Environment,
}

/// An opened bucket.
pub(super) struct Bucket {
    store: AmazonS3,
    name: String,
    endpoint_url: Option<String>,
    redactor: Redactor,
    connector: CheckedConnector,
}

/// An object with its content.
pub(super) struct Object {
    pub(super) bytes: Vec<u8>,
    pub(super) meta: ObjectMeta,
    pub(super) content_type: Option<String>,
}

/// Why an object could not be read.
pub(super) enum NotRead {
    /// A reason that concerns this object only.
    Object(String),
    /// A reason that concerns other objects too; the sync fails.
    Service(String),
}

/// One page of a listing.
#[derive(Default)]
pub(super) struct Page {
    pub(super) objects: Vec<ObjectMeta>,
    /// A key that the store's client cannot represent, and so cannot read.
    pub(super) unnameable: Option<String>,
    pub(super) next: Option<Next>,
}

/// Where a listing continues.
pub(super) enum Next {
    Token(String),
    After(String),
}

impl Bucket {
    /// Looks up credentials; sends no request yet.
    pub(super) fn open(place: &Place, object_bytes_max: u64) -> Result<Self, String> {
        let environment = &place.environment;
        let keys = match &place.keys {
            Some(keys) => Some(keys.clone()),
            None => environment.keys()?,
        };
        let endpoint_url = place.endpoint_url.as_deref().or_else(|| environment.endpoint_url());
        let is_plain = endpoint_url.is_some_and(|url| url.starts_with("http://"));
        let options = ClientOptions::new()
            .with_allow_http(is_plain)
            .with_connect_timeout(CONNECT_MAX)
            .with_read_timeout(SILENCE_MAX)
            .with_timeout(REQUEST_MAX);
        let retry =
            RetryConfig { backoff: BackoffConfig::default(), max_retries: RETRIES, retry_timeout: RETRY_MAX };
        // Above the limit of an object, so that [`Bucket::read`] reports one that is larger than announced as too
        // large.
        let connector = CheckedConnector::new(object_bytes_max.saturating_add(LISTING_BYTES_MAX));
        let region = place.region.clone().or_else(|| environment.region());
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&place.bucket)
            .with_region(region.unwrap_or_else(|| "us-east-1".to_owned()))
            .with_client_options(options)
            .with_http_connector(connector.clone())
            .with_retry(retry)
            // A bucket with a dot does not match the wildcard certificate; other services rarely have a host name per
            // bucket.
            .with_virtual_hosted_style_request(endpoint_url.is_none() && !place.bucket.contains('.'));
        if let Some(url) = endpoint_url {
            builder = builder.with_endpoint(url);
        }
        let mut secrets = Vec::new();
        match keys {
            Some(keys) => {
                builder = builder
                    .with_access_key_id(&keys.access_key_id)
                    .with_secret_access_key(keys.secret_access_key.expose());
                if let Some(token) = &keys.session_token {
                    builder = builder.with_token(token.expose());
                }
                secrets.extend([Secret::new(keys.access_key_id), keys.secret_access_key]);
                secrets.extend(keys.session_token);
            }
            None => builder = environment.machine(builder),
        }
        let redactor = Redactor::new(secrets);
        let store = builder.build().map_err(|error| redactor.text(chain(&error)))?;
        Ok(Self {
            store,
            name: place.bucket.clone(),
            endpoint_url: endpoint_url.map(str::to_owned),
            redactor,
            connector,
        })
    }

    /// Lists one key, to check access.
    pub(super) async fn check(&self, prefix: &str) -> Result<(), String> {
        match self.request(prefix, 1, None).await {
            Ok(_) | Err(Error::InvalidPath { .. }) => Ok(()),
            Err(error) => Err(self.reason(&error)),
        }
    }

    /// The next page of keys below a prefix.
    pub(super) async fn page(&self, prefix: &str, next: Option<&Next>) -> Result<Page, String> {
        let mut size = PAGE;
        loop {
            match self.request(prefix, size, next).await {
                Ok(page) => return Ok(page),
                // One key that cannot be represented fails its whole page: halve the page until the key is alone.
                Err(Error::InvalidPath { .. }) if size > 1 => size /= 2,
                Err(Error::InvalidPath {
                    source: PathError::EmptySegment { path } | PathError::BadSegment { path, .. },
                }) => {
                    let next = Some(Next::After(path.clone()));
                    return Ok(Page { unnameable: Some(path), next, objects: Vec::new() });
                }
                Err(error) => return Err(self.reason(&error)),
            }
        }
    }

    async fn request(&self, prefix: &str, size: usize, next: Option<&Next>) -> Result<Page, Error> {
        let mut options = PaginatedListOptions { max_keys: Some(size), ..PaginatedListOptions::default() };
        match next {
            Some(Next::Token(token)) => options.page_token = Some(token.clone()),
            Some(Next::After(key)) => options.offset = Some(key.clone()),
            None => {}
        }
        let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        let listed = self.store.list_paginated(prefix, options).await?;
        let next = listed.page_token.map(Next::Token);
        Ok(Page { objects: listed.result.objects, unnameable: None, next })
    }

    /// Reads an object, unless it is too large.
    pub(super) async fn read(&self, location: &Path, bytes_max: u64) -> Result<Object, NotRead> {
        let got = self.store.get(location).await.map_err(|error| self.not_read(&error))?;
        let meta = got.meta.clone();
        let content_type = got.attributes.get(&Attribute::ContentType).map(|kind| kind.as_ref().to_owned());
        let too_large = |bytes| NotRead::Object(names::too_large(bytes, bytes_max));
        if meta.size > bytes_max {
            return Err(too_large(meta.size));
        }
        let mut bytes = names::room(meta.size).map_err(NotRead::Object)?;
        let mut stream = got.into_stream();
        while let Some(part) = stream.next().await {
            bytes.extend_from_slice(&part.map_err(|error| self.not_read(&error))?);
            let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            if read > bytes_max {
                return Err(too_large(read));
            }
        }
        Ok(Object { bytes, meta, content_type })
    }

    fn not_read(&self, error: &Error) -> NotRead {
        match error {
            Error::NotFound { .. } => NotRead::Object(
                "it was listed but is not there; names that begin or end with `/` cannot be read".to_owned(),
            ),
            Error::PermissionDenied { .. } => {
                let text = chain(error);
                NotRead::Object(format!("it may not be read ({})", code(&text).unwrap_or("denied")))
            }
            error => NotRead::Service(self.reason(error)),
        }
    }

    /// The error as a message that a user can act on.
    fn reason(&self, error: &Error) -> String {
        let text = self.redactor.text(chain(error));
        let name = &self.name;
        match code(&text) {
            Some("NoSuchBucket") => format!("there is no bucket `{name}`"),
            Some("AccessDenied" | "AllAccessDisabled") => format!("access to the bucket `{name}` is denied"),
            Some("InvalidAccessKeyId") => "the access key is not known".to_owned(),
            Some("SignatureDoesNotMatch") => "the secret key does not fit the access key".to_owned(),
            Some("ExpiredToken" | "InvalidToken") => "the session has expired; get new credentials".to_owned(),
            Some("PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") => {
                format!("the bucket `{name}` is in another region; set `region`")
            }
            Some("RequestTimeTooSkewed") => "the clock of this machine is wrong".to_owned(),
            Some(code) => format!("the service answered {code}"),
            None if text.contains("redirect without LOCATION") => {
                format!("the bucket `{name}` is in another region; set `region`")
            }
            None if self.connector.lacks_credentials() => {
                "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or `access_key_id` and `secret_access_key`".to_owned()
            }
            None => match unreached(error) {
                Some(cause) => {
                    let place = self.endpoint_url.as_deref().unwrap_or("the service");
                    let cause = cause.split(" (os error").next().unwrap_or_default();
                    format!("{place} cannot be reached: {cause}")
                }
                None => text.chars().take(SHOWN_CHARS_MAX).collect(),
            },
        }
    }
}

/// The innermost cause, if the service could not be reached.
fn unreached(error: &Error) -> Option<String> {
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
fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    code.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(code)
}
