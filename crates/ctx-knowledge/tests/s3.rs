//! Which objects the S3 connector reads, against a real service that checks signatures.

use crate::common::{self, Buckets, Proxy, Workspace, hit_names, stored_names, sync_source, the_document};
use ctx_knowledge::{Knowledge, Progress, SyncOptions, SyncReport, Warning};
use ctx_net::{Client, Request};
use futures::StreamExt;
use http_body_util::BodyExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStoreExt, PutPayload};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

const SOURCE: &str = "s3:test";
/// One more object, whose key the connector's client cannot represent.
const BUCKETS: [&str; 10] = [
    "changes",
    "prefixes",
    "secrets",
    "pages",
    "totals",
    "limits",
    "denied",
    "outage",
    "names",
    "names/m//x.md",
];

/// A bucket, and a workspace that reads it through a proxy.
struct BucketFixture {
    workspace: Workspace,
    knowledge: Knowledge,
    proxy: Proxy,
    bucket: AmazonS3,
}

#[allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]
impl BucketFixture {
    fn new(bucket: &str, settings: &Value) -> Self {
        Self::of(Workspace::new(), bucket, settings)
    }

    fn of(mut workspace: Workspace, bucket: &str, more: &Value) -> Self {
        let service = Buckets::start(&BUCKETS);
        let proxy = Proxy::start(service);
        let settings = settings(bucket, &proxy, more);
        let connector =
            workspace.connector_in("s3", &settings, &environment(&service.secret_access_key)).unwrap();
        let knowledge = workspace.open_with("s3", connector);
        let bucket = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_endpoint(&proxy.url)
            .with_allow_http(true)
            .with_http_connector(TestConnector)
            .with_access_key_id(&service.access_key_id)
            .with_secret_access_key(&service.secret_access_key)
            .build()
            .unwrap();
        Self { workspace, knowledge, proxy, bucket }
    }

    async fn put(&self, key: &str, content: impl AsRef<[u8]>) {
        let payload = PutPayload::from(content.as_ref().to_vec());
        self.bucket.put(&Path::parse(key).unwrap(), payload).await.unwrap();
    }

    async fn sync(&self) -> SyncReport {
        sync_source(&self.knowledge, SOURCE).await.unwrap()
    }

    async fn error(&self) -> String {
        sync_source(&self.knowledge, SOURCE).await.unwrap_err().to_string()
    }

    /// The keys that were read since the last time.
    fn take_reads(&self) -> Vec<String> {
        let requests = self.proxy.take_requests().into_iter();
        let mut reads: Vec<String> =
            requests.filter(|line| line.starts_with("GET ") && !line.contains("list-type=2")).collect();
        reads.sort();
        reads
    }
}

/// The test's own client, which is not the connector's.
#[derive(Debug)]
struct TestClient(Client);

#[derive(Debug)]
struct TestConnector;

impl HttpConnector for TestConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(TestClient(Client::new(ctx_net::ClientOptions::default()))))
    }
}

#[async_trait::async_trait]
#[allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]
impl HttpService for TestClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let mut sent = Request::parse(parts.method, &parts.uri.to_string()).unwrap();
        sent.headers = parts.headers;
        sent.body = Some(body.collect().await?.to_bytes());
        let failed = |error| HttpError::new(HttpErrorKind::Connect, error);
        let mut response = self.0.send(&sent, ctx_core::AddressPolicy::TRUSTED).await.map_err(failed)?;
        let mut received = HttpResponse::new(response.read(1 << 30).await.unwrap().into());
        *received.status_mut() = response.status();
        *received.headers_mut() = response.headers().clone();
        Ok(received)
    }
}

/// An environment with the tester's access key and this secret.
fn environment(secret: &str) -> impl Fn(&str) -> Option<String> {
    let id = Buckets::start(&BUCKETS).access_key_id.clone();
    move |name| match name {
        "AWS_ACCESS_KEY_ID" => Some(id.clone()),
        "AWS_SECRET_ACCESS_KEY" => Some(secret.to_owned()),
        _ => None,
    }
}

fn settings(bucket: &str, proxy: &Proxy, more: &Value) -> Value {
    let mut settings = json!({"bucket": bucket, "endpoint_url": proxy.url});
    more.as_object().into_iter().flatten().for_each(|(key, value)| settings[key] = value.clone());
    settings
}

fn report() -> SyncReport {
    SyncReport { source: SOURCE.to_owned(), ..SyncReport::default() }
}

#[tokio::test]
async fn new_changed_and_deleted_objects_are_followed_and_nothing_is_read_twice() {
    let fixture = BucketFixture::new("changes", &json!({}));
    fixture.put("a.md", "harbour").await;
    fixture.put("deep/b c.md", "lighthouse").await;
    fixture.put("image.png", b"\x89PNG\r\n\x1a\n\0\0\0").await;
    fixture.put("empty.md", "").await;
    assert_eq!(fixture.sync().await, SyncReport { added: 2, skipped: 1, ..report() });
    assert_eq!(
        fixture.take_reads(),
        ["GET /changes/a.md", "GET /changes/deep/b%20c.md", "GET /changes/image.png"]
    );
    assert_eq!(fixture.sync().await, SyncReport { unchanged: 3, ..report() });
    assert_eq!(fixture.take_reads(), [""; 0]);

    let document = the_document(&fixture.knowledge, "lighthouse");
    assert_eq!(document.source_id, "deep/b c.md");
    assert_eq!(document.source_url.as_deref(), Some("s3://changes/deep/b c.md"));
    assert_eq!(document.metadata["bucket"], "changes");
    assert_eq!(document.metadata["etag"].as_str().map(str::len), Some(32));

    fixture.put("a.md", "compass").await;
    fixture.bucket.delete(&Path::from("deep/b c.md")).await.unwrap();
    assert_eq!(fixture.sync().await, SyncReport { updated: 1, unchanged: 1, deleted: 1, ..report() });
    assert_eq!(fixture.take_reads(), ["GET /changes/a.md"]);
    assert_eq!(
        (hit_names(&fixture.knowledge, "compass"), stored_names(&fixture.knowledge)),
        (vec!["a.md".to_owned()], vec!["a.md".to_owned()])
    );
}

#[tokio::test]
async fn a_prefix_is_a_folder_and_globs_are_relative_to_it() {
    let globs =
        json!({"prefix": "/runbooks", "include_globs": ["*.md", "deep/**"], "exclude_globs": ["**/x.md"]});
    let fixture = BucketFixture::new("prefixes", &globs);
    for key in [
        "runbooks/a.md",
        "runbooks/b.txt",
        "runbooks/deep/c.txt",
        "runbooks/deep/x.md",
        "runbooks-old/d.md",
        "e.md",
        "runbooks/.hidden.md",
    ] {
        fixture.put(key, format!("harbour {key}")).await;
    }
    assert_eq!(fixture.sync().await, SyncReport { added: 2, ..report() });
    assert_eq!(stored_names(&fixture.knowledge), ["a.md", "deep/c.txt"]);
    assert_eq!(fixture.take_reads(), ["GET /prefixes/runbooks/a.md", "GET /prefixes/runbooks/deep/c.txt"]);
}

#[tokio::test]
async fn secret_files_of_a_bucket_are_left_out_unless_they_are_named() {
    let fixture = BucketFixture::new("secrets", &json!({"include_sensitive_globs": ["ca/*.pem"]}));
    for key in ["notes.md", "app/.env", "app/.env.example", "ca/root.pem", "server.pem", ".aws/credentials"] {
        fixture.put(key, "zebra").await;
    }
    fixture.put("deploy.txt", common::private_key()).await;
    let expected = SyncReport { secret_files: 4, ..report() };
    assert_eq!(fixture.sync().await, SyncReport { added: 3, ..expected.clone() });
    assert_eq!(
        fixture.take_reads(),
        [
            "GET /secrets/app/.env.example",
            "GET /secrets/ca/root.pem",
            "GET /secrets/deploy.txt",
            "GET /secrets/notes.md"
        ]
    );
    assert_eq!(fixture.sync().await, SyncReport { unchanged: 3, ..expected });
    assert_eq!(fixture.take_reads(), [""; 0]);
}

#[tokio::test]
async fn a_bucket_of_many_pages_is_listed_to_its_end() {
    let fixture = BucketFixture::new("pages", &json!({"include_globs": ["a.md", "z.md"]}));
    let puts = (0..2100).map(|number| fixture.put_owned(format!("n/{number}.txt")));
    futures::stream::iter(puts).buffer_unordered(16).collect::<Vec<()>>().await;
    fixture.put("a.md", "harbour").await;
    fixture.put("z.md", "lighthouse").await;
    fixture.proxy.take_requests();
    assert_eq!(fixture.sync().await, SyncReport { added: 2, ..report() });
    let requests = fixture.proxy.take_requests();
    assert_eq!(requests.iter().filter(|line| line.contains("list-type=2")).count(), 3, "{requests:?}");

    // The second page fails: objects on the third must not be deleted.
    fixture.proxy.stop_after(Some(1));
    let error = fixture.error().await;
    assert!(error.starts_with("s3:test: cannot read s3://pages/: "), "{error}");
    assert_eq!(stored_names(&fixture.knowledge), ["a.md", "z.md"]);
    fixture.proxy.stop_after(None);
    assert_eq!(fixture.sync().await, SyncReport { unchanged: 2, ..report() });
}

#[tokio::test]
async fn the_progress_of_a_bucket_has_a_total_from_the_first_object() {
    let fixture = BucketFixture::new("totals", &json!({"exclude_globs": ["*.txt"]}));
    for key in ["a.md", "b.md", "c.md", "d.txt", ".env"] {
        fixture.put(key, "harbour").await;
    }
    let progress = Arc::new(Mutex::new(Vec::new()));
    let totals = progress.clone();
    let record = move |progress: Progress| totals.lock().unwrap().push((progress.seen, progress.total));
    let source = common::source_name(SOURCE);
    let (options, cancellation) = (SyncOptions::default(), CancellationToken::new());
    fixture.knowledge.sync(&source, options, Arc::new(record), cancellation).await.unwrap();
    assert_eq!(*progress.lock().unwrap(), [(1, Some(3)), (2, Some(3)), (3, Some(3))]);
}

impl BucketFixture {
    async fn put_owned(&self, key: String) {
        self.put(&key, "x").await;
    }
}

#[tokio::test]
async fn an_object_over_the_limit_is_a_warning_and_is_not_read() {
    let fixture = BucketFixture::of(Workspace::new().document_bytes_max(16), "limits", &json!({}));
    fixture.put("a.md", "harbour").await;
    fixture.put("large.md", "x".repeat(17)).await;
    let reason = "it has 17 bytes; the limit is 16 (limits.document_bytes)".to_owned();
    let warnings = vec![Warning { source_id: "large.md".to_owned(), reason }];
    assert_eq!(fixture.sync().await, SyncReport { added: 1, warning_count: 1, warnings, ..report() });
    assert_eq!(fixture.take_reads(), ["GET /limits/a.md"]);
}

#[tokio::test]
async fn an_unrepresentable_key_is_a_warning_and_the_others_are_read() {
    let fixture = BucketFixture::new("names", &json!({}));
    fixture.put("a.md", "harbour").await;
    fixture.put("z.md", "lighthouse").await;
    let reason = "its key has an empty, `.` or `..` segment and cannot be read".to_owned();
    let warnings = vec![Warning { source_id: "m//x.md".to_owned(), reason }];
    let expected = SyncReport { warning_count: 1, warnings, ..report() };
    assert_eq!(fixture.sync().await, SyncReport { added: 2, ..expected.clone() });
    fixture.bucket.delete(&Path::from("a.md")).await.unwrap();
    assert_eq!(fixture.sync().await, SyncReport { unchanged: 1, deleted: 1, ..expected });
}

#[tokio::test]
async fn wrong_credentials_and_buckets_are_reported_without_showing_secrets() {
    let fixture = BucketFixture::new("denied", &json!({}));
    fixture.put("a.md", "harbour").await;
    fixture.sync().await;
    let service = Buckets::start(&BUCKETS);
    let good = service.secret_access_key.as_str();
    let wrong_key = json!({"access_key_id": "AKIAWRONGWRONGWRONG0", "secret_access_key": good});
    for (bucket, more, secret, expected) in [
        ("nope", json!({}), good, "cannot read s3://nope/: there is no bucket `nope`"),
        (
            "denied",
            json!({}),
            "wrongwrongwrong",
            "cannot read s3://denied/: the secret access key does not match the access key ID",
        ),
        ("denied", wrong_key, good, "cannot read s3://denied/: the access key ID does not exist"),
        (
            "denied",
            json!({"endpoint_url": "http://127.0.0.1:1"}),
            good,
            "cannot read s3://denied/: http://127.0.0.1:1 cannot be reached: Connection refused",
        ),
    ] {
        let settings = settings(bucket, &fixture.proxy, &more);
        let connector = fixture.workspace.connector_in("s3", &settings, &environment(secret)).unwrap();
        assert_eq!(connector.check().await.unwrap_err().to_string(), expected);
    }
    let mut workspace = fixture.workspace;
    drop(fixture.knowledge);
    let settings = settings("denied", &fixture.proxy, &json!({}));
    let connector = workspace.connector_in("s3", &settings, &environment("wrongwrongwrong")).unwrap();
    let knowledge = workspace.open_with("s3", connector);
    sync_source(&knowledge, SOURCE).await.unwrap_err();
    assert_eq!(stored_names(&knowledge), ["a.md"]);
    assert_eq!(common::files_with(&workspace.data(), good), [""; 0].map(std::path::PathBuf::from));
}

#[tokio::test]
async fn a_service_that_fails_half_way_deletes_nothing_and_the_next_sync_completes() {
    let fixture = BucketFixture::new("outage", &json!({}));
    for number in 0..30 {
        fixture.put(&format!("{number}.md"), format!("harbour {number}")).await;
    }
    fixture.proxy.stop_after(Some(11));
    let error = fixture.error().await;
    assert!(error.starts_with("s3:test: cannot read s3://outage/: "), "{error}");
    let kept = stored_names(&fixture.knowledge).len();
    assert!(kept <= 10, "{kept}");
    fixture.proxy.stop_after(None);
    let report = fixture.sync().await;
    assert_eq!((report.added, report.deleted), (30 - kept as u64, 0));
}

#[test]
fn wrong_settings_are_named() {
    let workspace = Workspace::new();
    for (settings, expected) in [
        (json!({}), "missing field `bucket`"),
        (json!({"bucket": "a/b"}), "bucket: not a valid bucket name"),
        (json!({"bucket": "a", "endpoint_url": "minio"}), "endpoint_url: write it like"),
        (
            json!({"bucket": "a", "access_key_id": "x"}),
            "set both access_key_id and secret_access_key, or neither",
        ),
        (json!({"bucket": "a", "exclude_globs": ["a[b"]}), "exclude_globs: "),
    ] {
        let error = workspace.connector_of("s3", &settings).err().unwrap();
        assert!(error.starts_with(expected), "{error}");
    }
}
