//! The S3 connector: objects of a bucket on AWS or a compatible service.
//!
//! The listing shows what changed: an object is read again only if its ETag or size differs.

mod bucket;
mod credentials;
mod http_client;

use super::globs::{GlobSettings, Globs, Selection};
use super::{ConnectorKind, ConnectorResult, OpenOptions, names};
use async_trait::async_trait;
use bucket::{Bucket, BucketLocation, Continuation, ListingPage, ReadError, S3Object};
use credentials::{AwsCredentials, AwsEnvironment};
use ctx_core::{
    Change, Connector, Cursor, Document, DocumentContent, Listing, PullResult, Secret, Sink, SourceError,
};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use object_store::ObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

pub(super) const KIND: ConnectorKind = ConnectorKind {
    name: "s3",
    summary: "objects of an S3 bucket",
    schema: ctx_core::json_schema::<Settings>,
    open,
};

/// Pages listed before the first object is read; for a larger bucket no total is announced.
const COUNTED_PAGES_MAX: usize = 64;
/// Objects read concurrently.
const CONCURRENT_FETCHES: usize = 8;
/// Memory budget of these objects in kilobytes; a larger object is read alone.
const FETCH_BUDGET_KILOBYTES: u32 = 64 << 10;
/// Timeout of a check; calls have 30 seconds.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Default content types of services, which say nothing about an object.
const UNKNOWN_TYPES: [&str; 2] = ["binary/octet-stream", "application/octet-stream"];

/// Settings of `[connectors.s3.<name>]`.
#[derive(Clone, Debug, Deserialize, schemars::JsonSchema)]
struct Settings {
    /// The bucket.
    bucket: String,
    /// The folder to read; the whole bucket when there is none.
    #[serde(default)]
    prefix: String,
    /// The bucket's region; where there is none, that of the environment or the profile.
    region: Option<String>,
    /// Where the service is, if it is not AWS: `https://minio.example.com`.
    endpoint_url: Option<String>,
    /// The access key; where there is none, AWS's usual places are asked: environment, profile, machine.
    access_key_id: Option<String>,
    /// The secret that goes with it.
    secret_access_key: Option<Secret>,
    /// Which objects are read, relative to `prefix`; all when there is none.
    #[serde(default)]
    include_globs: Vec<String>,
    /// Which of those are not.
    #[serde(default)]
    exclude_globs: Vec<String>,
    /// Objects that usually hold secrets (private keys, `.env` …) are never read, except those that these globs match,
    /// whatever `include_globs` says.
    #[serde(default)]
    include_sensitive_globs: Vec<String>,
}

struct S3Connector {
    location: BucketLocation,
    /// Empty, or ends with a slash.
    prefix: String,
    globs: Globs,
    document_bytes_max: u64,
    /// Hash of the location. Part of every fingerprint, since documents contain their location.
    location_stamp: String,
}

fn open(settings: &Value, options: OpenOptions<'_>) -> ConnectorResult {
    let settings: Settings = serde_json::from_value(settings.clone()).map_err(|error| error.to_string())?;
    let is_name = |char: char| char.is_ascii_alphanumeric() || "-._".contains(char);
    if settings.bucket.is_empty() || !settings.bucket.chars().all(is_name) {
        return Err("bucket: not a valid bucket name".to_owned());
    }
    let endpoint = settings.endpoint_url.as_deref();
    if endpoint
        .is_some_and(|url| !url.starts_with("https://") && !url.starts_with("http://") || url.contains('@'))
    {
        return Err("endpoint_url: write it like `https://minio.example.com`".to_owned());
    }
    let credentials = match (settings.access_key_id, settings.secret_access_key) {
        (Some(access_key_id), Some(secret_access_key)) => {
            Some(AwsCredentials { access_key_id, secret_access_key, session_token: None })
        }
        (None, None) => None,
        _ => return Err("set both access_key_id and secret_access_key, or neither".to_owned()),
    };
    let prefix = settings.prefix.trim_matches('/');
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    let location_stamp = format!("{:?}", (&settings.endpoint_url, &settings.bucket, &prefix));
    Ok(Arc::new(S3Connector {
        location: BucketLocation {
            bucket: settings.bucket,
            region: settings.region,
            endpoint_url: settings.endpoint_url,
            credentials,
            environment: AwsEnvironment::new(options.environment),
        },
        prefix,
        globs: Globs::new(GlobSettings {
            include: &settings.include_globs,
            exclude: &settings.exclude_globs,
            include_sensitive_globs: &settings.include_sensitive_globs,
        })?,
        document_bytes_max: options.document_bytes_max,
        location_stamp: blake3::hash(location_stamp.as_bytes()).to_hex()[..8].to_owned(),
    }))
}

#[async_trait]
impl Connector for S3Connector {
    async fn pull(&self, _cursor: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError> {
        let bucket = self.bucket()?;
        let budget = Semaphore::new(FETCH_BUDGET_KILOBYTES as usize);
        let next_page = async |next: Option<Continuation>| {
            bucket.list_page(&self.prefix, next.as_ref()).await.map_err(|reason| self.unavailable(&reason))
        };
        // Listed first, to announce the number of objects before the first is read.
        let mut pages = VecDeque::from([next_page(None).await?]);
        let mut count = self.count_selected(&pages[0]);
        let mut listing_error = None;
        while pages.len() < COUNTED_PAGES_MAX
            && let Some(next) = pages.back_mut().and_then(|page| page.next.take())
        {
            match next_page(Some(next)).await {
                Ok(page) => {
                    count += self.count_selected(&page);
                    pages.push_back(page);
                }
                // The pages before are still read.
                Err(error) => listing_error = Some(error),
            }
        }
        if listing_error.is_none() && pages.back().is_none_or(|page| page.next.is_none()) {
            sink.set_total(count as u64);
        }
        while let Some(page) = pages.pop_front() {
            if let Some(next) = self.read_page(&bucket, page, &budget, sink).await? {
                pages.push_back(next_page(Some(next)).await?);
            }
        }
        match listing_error {
            Some(error) => Err(error),
            None => Ok(PullResult { cursor: None, listing: Listing::Complete }),
        }
    }

    async fn check(&self) -> Result<(), SourceError> {
        let bucket = self.bucket()?;
        let checked = timeout(CHECK_TIMEOUT, bucket.check(&self.prefix)).await;
        checked
            .unwrap_or_else(|_| Err("no response in time, or no credentials were found".to_owned()))
            .map_err(|reason| self.unavailable(&reason))
    }

    fn admits_secret(&self, source_id: &str) -> bool {
        self.globs.admits_secret(source_id)
    }
}

/// A change with its share of the memory budget until it is sent, or an error that ends the sync.
type FetchResult<'a> = Result<(Change, Option<SemaphorePermit<'a>>), SourceError>;

async fn send(result: FetchResult<'_>, sink: &Sink) -> Result<(), SourceError> {
    let (change, _permit) = result?;
    Ok(sink.send(change).await?)
}

impl S3Connector {
    /// Opened for every sync and check, since profiles change.
    fn bucket(&self) -> Result<Bucket, SourceError> {
        Bucket::open(&self.location, self.document_bytes_max).map_err(|reason| self.unavailable(&reason))
    }

    fn unavailable(&self, reason: &str) -> SourceError {
        SourceError::Unavailable(format!(
            "cannot read s3://{}/{}: {reason}",
            self.location.bucket, self.prefix
        ))
    }

    fn source_id(&self, key: &str) -> String {
        key.strip_prefix(&self.prefix).unwrap_or(key).to_owned()
    }

    /// Reads the objects of a page that must be read; returns where the listing continues.
    async fn read_page(
        &self,
        bucket: &Bucket,
        page: ListingPage,
        budget: &Semaphore,
        sink: &Sink,
    ) -> Result<Option<Continuation>, SourceError> {
        if let Some(key) = page.unrepresentable_key {
            let reason = "its key has an empty, `.` or `..` segment and cannot be read".to_owned();
            sink.send(Change::Unreadable { source_id: self.source_id(&key), reason }).await?;
        }
        self.prefetch(&page.objects, sink);
        let mut fetches = FuturesUnordered::new();
        for meta in page.objects {
            let source_id = self.source_id(meta.location.as_ref());
            if !self.must_read(&source_id, &meta, sink) {
                continue;
            }
            if fetches.len() >= CONCURRENT_FETCHES
                && let Some(result) = fetches.next().await
            {
                send(result, sink).await?;
            }
            fetches.push(self.fetch(bucket, source_id, meta, budget));
        }
        while let Some(result) = fetches.next().await {
            send(result, sink).await?;
        }
        Ok(page.next)
    }

    /// Number of objects of a page that are selected, or reported as unreadable.
    fn count_selected(&self, page: &ListingPage) -> usize {
        let is_selected = |meta: &&ObjectMeta| {
            meta.size > 0 && self.globs.select(self.source_id(meta.location.as_ref())) == Selection::Read
        };
        page.objects.iter().filter(is_selected).count() + usize::from(page.unrepresentable_key.is_some())
    }

    /// Prefetches the stored stamps of these objects.
    fn prefetch(&self, objects: &[ObjectMeta], sink: &Sink) {
        let non_empty = objects.iter().filter(|meta| meta.size > 0);
        let names = non_empty.map(|meta| self.source_id(meta.location.as_ref()));
        let names: Vec<String> = names.filter(|name| self.globs.select(name) == Selection::Read).collect();
        sink.prefetch(&names.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Whether an object is selected and its fingerprint is not stored.
    fn must_read(&self, source_id: &str, meta: &ObjectMeta, sink: &Sink) -> bool {
        // Folders are empty objects, and an empty object has no text.
        if meta.size == 0 {
            return false;
        }
        match self.globs.select(source_id) {
            Selection::Read => sink.needs_read(source_id, &self.fingerprint(meta)),
            Selection::Secret => {
                sink.leave_out_secret_file();
                false
            }
            Selection::Skip => false,
        }
    }

    fn fingerprint(&self, meta: &ObjectMeta) -> String {
        let tag = meta.e_tag.clone().unwrap_or_else(|| meta.last_modified.timestamp_micros().to_string());
        format!("{tag}:{}:{}", meta.size, self.location_stamp)
    }

    async fn fetch<'a>(
        &self,
        bucket: &Bucket,
        source_id: String,
        meta: ObjectMeta,
        budget: &'a Semaphore,
    ) -> FetchResult<'a> {
        if meta.size > self.document_bytes_max {
            let reason = names::too_large_reason(meta.size, self.document_bytes_max);
            return Ok((Change::Unreadable { source_id, reason }, None));
        }
        let kilobytes = u32::try_from(meta.size / 1024 + 1).unwrap_or(u32::MAX).min(FETCH_BUDGET_KILOBYTES);
        let permit = budget.acquire_many(kilobytes).await.ok();
        let change = match bucket.read(&meta.location, self.document_bytes_max).await {
            Ok(object) => Change::Upsert(Box::new(self.document(source_id, object))),
            Err(ReadError::Object(reason)) => Change::Unreadable { source_id, reason },
            Err(ReadError::Service(reason)) => return Err(self.unavailable(&reason)),
        };
        Ok((change, permit))
    }

    fn document(&self, source_id: String, object: S3Object) -> Document {
        let S3Object { bytes, meta, content_type } = object;
        let content_type = content_type.filter(|kind| !UNKNOWN_TYPES.contains(&kind.as_str()));
        let mut metadata = Map::new();
        metadata.insert("bucket".to_owned(), json!(self.location.bucket));
        if let Some(tag) = &meta.e_tag {
            metadata.insert("etag".to_owned(), json!(tag.trim_matches('"')));
        }
        if let Some(content_type) = &content_type {
            metadata.insert("content_type".to_owned(), json!(content_type));
        }
        Document {
            fingerprint: Some(self.fingerprint(&meta)),
            source_id,
            source_url: Some(format!("s3://{}/{}", self.location.bucket, meta.location)),
            title: None,
            author: None,
            created_at: None,
            updated_at: Timestamp::from_millisecond(meta.last_modified.timestamp_millis()).ok(),
            content_type,
            content: DocumentContent::Bytes(bytes),
            metadata,
            tags: Vec::new(),
        }
    }
}
