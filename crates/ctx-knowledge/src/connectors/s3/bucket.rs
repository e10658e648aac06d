//! A bucket: listed page by page, objects read one by one, failures in plain words.

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

/// How often a request is tried again, and for how long. The store does it by itself: it alone knows which of its requests
/// may be sent twice.
const RETRIES: usize = 4;
const RETRY_MAX: Duration = Duration::from_secs(60);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a server may send nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long one object may take.
const REQUEST_MAX: Duration = Duration::from_secs(600);
/// Keys in a page; what the service gives at most.
const PAGE: usize = 1000;
/// Bytes of a listing or an error: a page has at most a thousand keys of a kilobyte each, several times over when escaped.
const LISTING_BYTES_MAX: u64 = 16 << 20;
/// How much of an error is shown.
const SHOWN_CHARS_MAX: usize = 300;

/// Where a bucket is.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) bucket: String,
    pub(super) region: Option<String>,
    pub(super) endpoint_url: Option<String>,
    /// Keys of the settings, which come before all others.
    pub(super) keys: Option<Keys>,
    pub(super) environment: Environment,
}

/// A bucket that can be asked.
pub(super) struct Bucket {
    store: AmazonS3,
    name: String,
    endpoint_url: Option<String>,
    redactor: Redactor,
    connector: CheckedConnector,
}

/// An object, whole.
pub(super) struct Object {
    pub(super) bytes: Vec<u8>,
    pub(super) meta: ObjectMeta,
    pub(super) content_type: Option<String>,
}

/// Why there is no object.
pub(super) enum NotRead {
    /// Something about this one.
    Object(String),
    /// Something that the next one would meet too.
    Service(String),
}

/// One page of a listing.
#[derive(Default)]
pub(super) struct Page {
    pub(super) objects: Vec<ObjectMeta>,
    /// A key that the store cannot name, and so cannot read.
    pub(super) unnameable: Option<String>,
    pub(super) next: Option<Next>,
}

/// Where a listing goes on.
pub(super) enum Next {
    Token(String),
    After(String),
}

impl Bucket {
    /// Looks credentials up; asks nobody yet.
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
        // More than an object: one that is larger than its head says is told of as too large.
        let connector = CheckedConnector::new(object_bytes_max.saturating_add(LISTING_BYTES_MAX));
        let region = place.region.clone().or_else(|| environment.region());
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&place.bucket)
            .with_region(region.unwrap_or_else(|| "us-east-1".to_owned()))
            .with_client_options(options)
            .with_http_connector(connector.clone())
            .with_retry(retry)
            // A dot would not fit the certificate; other services seldom have a name for each bucket.
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

    /// Asks for one key, to see whether one may.
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
                // One key spoils its whole page: ask for less, until it is alone.
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

    /// An object, unless it is too large.
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

    /// What is wrong, in words a person can act on.
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

/// Why no response came, if that is what failed: the innermost cause.
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

/// The code in the service's answer.
fn code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    code.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(code)
}
