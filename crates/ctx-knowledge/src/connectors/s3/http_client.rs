//! HTTP client of the object store, with SSRF checks: resolved addresses are checked, and redirects stay on one host.
//! The instance metadata service still works: its address is literal, and named by the store's own settings.

use async_trait::async_trait;
use bytes::Bytes;
use ctx_core::AddressPolicy;
use ctx_net::{
    BodyError, Client, ClientOptions as NetOptions, NetError, NetErrorKind, Proxy, Request, Response,
    is_downgrade,
};
use futures::TryStreamExt;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use url::Url;

/// Maximum number of redirects.
const REDIRECTS_MAX: usize = 5;

/// Builds the object store's HTTP clients.
#[derive(Clone, Debug)]
pub(super) struct CheckedHttpConnector {
    /// Bytes of the largest response.
    response_bytes_max: u64,
    /// Whether the last request to the instance metadata service failed: then there are no credentials.
    has_metadata_failed: Arc<AtomicBool>,
}

impl CheckedHttpConnector {
    pub(super) fn new(response_bytes_max: u64) -> Self {
        Self { response_bytes_max, has_metadata_failed: Arc::default() }
    }

    /// Whether the instance metadata service was asked for credentials and gave none.
    pub(super) fn lacks_credentials(&self) -> bool {
        self.has_metadata_failed.load(Ordering::Relaxed)
    }
}

/// Sends the object store's requests.
#[derive(Debug)]
struct CheckedHttpService {
    client: Client,
    connector: CheckedHttpConnector,
}

impl HttpConnector for CheckedHttpConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let defaults = NetOptions::default();
        // The store and each source of credentials have their own timeouts.
        let client = Client::new(NetOptions {
            user_agent: Some(concat!("ctx/", env!("CARGO_PKG_VERSION"))),
            proxy: Proxy::Environment,
            connect_timeout: duration(options, &ClientConfigKey::ConnectTimeout)
                .unwrap_or(defaults.connect_timeout),
            read_timeout: duration(options, &ClientConfigKey::ReadTimeout).unwrap_or(defaults.read_timeout),
            timeout: duration(options, &ClientConfigKey::Timeout),
            is_https_only: options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() != Some("true"),
            ..defaults
        });
        Ok(HttpClient::new(CheckedHttpService { client, connector: self.clone() }))
    }
}

#[async_trait]
impl HttpService for CheckedHttpService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let mut sent = Request::parse(parts.method, &parts.uri.to_string()).map_err(http_error)?;
        sent.headers = parts.headers;
        let body: Bytes = body.collect().await?.to_bytes();
        sent.body = Some(body).filter(|body| !body.is_empty());
        // The store's settings name the host of every request before redirects.
        let host = sent.url.host_str().unwrap_or_default();
        let reach = AddressPolicy::for_configured_host(host);
        // Buckets are never at such an address, but the instance metadata service is.
        let is_metadata = AddressPolicy::TRUSTED.check_host(host).is_err();
        // A request signature is valid for one host only, so a redirect to another host is not followed.
        let is_same_host = |response: &Response, to: &Url| {
            response.url().host() == to.host() && !is_downgrade(response.url(), to)
        };
        let response = self.client.send_following(sent, reach, REDIRECTS_MAX, is_same_host).await;
        if is_metadata {
            let is_success = response.as_ref().is_ok_and(|response| response.status().is_success());
            self.connector.has_metadata_failed.store(!is_success, Ordering::Relaxed);
        }
        let response = response.map_err(http_error)?;
        let (mut parts, ()) = http::Response::new(()).into_parts();
        parts.status = response.status();
        parts.headers = response.headers().clone();
        let body = response.into_stream(self.connector.response_bytes_max);
        let body = StreamBody::new(body.map_ok(Frame::data).map_err(body_error));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// The store's view of an error, by which it decides whether to try again. The store adds the URL by itself.
fn http_error(error: NetError) -> HttpError {
    let kind = match error.kind() {
        NetErrorKind::Timeout => HttpErrorKind::Timeout,
        NetErrorKind::Connect => HttpErrorKind::Connect,
        NetErrorKind::Closed => HttpErrorKind::Request,
        NetErrorKind::Interrupted => HttpErrorKind::Interrupted,
        NetErrorKind::Decode => HttpErrorKind::Decode,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error.without_url())
}

fn body_error(error: BodyError) -> HttpError {
    match error {
        BodyError::Net(error) => http_error(error),
        // Not retried: the response would be as large again.
        error @ BodyError::TooLarge(_) => HttpError::new(HttpErrorKind::Unknown, error),
    }
}

/// A duration of the options, which have it as text: `1m 30s`.
fn duration(options: &ClientOptions, key: &ClientConfigKey) -> Option<Duration> {
    options.get_config_value(key)?.parse::<jiff::SignedDuration>().ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::super::bucket::{Bucket, BucketLocation};
    use super::super::credentials::{AwsCredentials, AwsEnvironment};
    use super::*;
    use ctx_core::{Secret, error_chain};
    use object_store::client::HttpRequest;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::AtomicUsize;

    const LISTING_XML: &str = "<ListBucketResult><Name>b</Name><Prefix></Prefix><KeyCount>1</KeyCount><MaxKeys>1</MaxKeys>\
        <IsTruncated>false</IsTruncated><Contents><Key>a.md</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
        <ETag>&quot;x&quot;</ETag><Size>1</Size><StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>";

    /// A server that answers every request with this function, and counts the requests.
    fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, count) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let seen = count.clone();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                seen.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 8192];
                let length = stream.read(&mut request).unwrap_or_default();
                let answer = answer(&String::from_utf8_lossy(&request[..length]));
                // The client may have closed the connection.
                stream.write_all(answer.as_bytes()).ok();
            }
        });
        (format!("http://{address}"), count)
    }

    fn listing_response() -> String {
        let length = LISTING_XML.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{LISTING_XML}"
        )
    }

    const OBJECT_BYTES_MAX: u64 = 1 << 20;

    fn bucket(endpoint_url: &str) -> Bucket {
        let credentials = AwsCredentials {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: Secret::new("hunter2hunter2"),
            session_token: None,
        };
        let location = BucketLocation {
            bucket: "b".to_owned(),
            region: None,
            endpoint_url: Some(endpoint_url.to_owned()),
            credentials: Some(credentials),
            environment: AwsEnvironment::default(),
        };
        Bucket::open(&location, OBJECT_BYTES_MAX).unwrap()
    }

    #[test]
    fn the_timeouts_of_the_options_are_understood() {
        let options = ClientOptions::new()
            .with_connect_timeout(Duration::from_secs(1))
            .with_read_timeout(Duration::from_millis(90_500))
            .with_timeout(Duration::from_secs(600));
        let seconds = |key| duration(&options, &key).unwrap().as_secs_f64();
        assert_eq!(seconds(ClientConfigKey::ConnectTimeout), 1.0);
        assert_eq!(seconds(ClientConfigKey::ReadTimeout), 90.5);
        assert_eq!(seconds(ClientConfigKey::Timeout), 600.0);
    }

    #[tokio::test]
    async fn a_client_keeps_to_the_timeouts_and_the_scheme_of_its_options() {
        // Accepts connections and never responds.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let failure = |options: ClientOptions| {
            let client = CheckedHttpConnector::new(OBJECT_BYTES_MAX).connect(&options).unwrap();
            let mut request = HttpRequest::new(String::new().into());
            *request.uri_mut() = url.parse().unwrap();
            async move { error_chain(&client.execute(request).await.unwrap_err()) }
        };
        let options = ClientOptions::new().with_timeout(Duration::from_millis(50));
        let refused = failure(options.clone()).await;
        assert!(refused.contains("URL scheme is not allowed"), "{refused}");
        let late = failure(options.with_allow_http(true)).await;
        assert!(late.contains("timed out"), "{late}");
    }

    #[tokio::test]
    async fn a_bucket_is_read_at_its_endpoint_and_redirects_stay_with_its_host() {
        let (endpoint, _) = serve(|_| listing_response());
        let page = bucket(&endpoint).list_page("", None).await.unwrap();
        assert_eq!(page.objects.iter().map(|object| object.location.as_ref()).collect::<Vec<_>>(), ["a.md"]);

        let (elsewhere, count) = serve(|_| listing_response());
        for to in [elsewhere.replace("127.0.0.1", "localhost"), "http://169.254.169.254/latest".to_owned()] {
            let to = format!(
                "HTTP/1.1 307 Go\r\nLocation: {to}/b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let (endpoint, first) = serve(move |_| to.clone());
            bucket(&endpoint).list_page("", None).await.err().unwrap();
            assert_eq!((first.load(Ordering::SeqCst), count.load(Ordering::SeqCst)), (1, 0));
        }
        let (endpoint, count) = serve(|request| match request.contains("/again") {
            true => listing_response(),
            false => "HTTP/1.1 307 Go\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                .to_owned(),
        });
        assert!(bucket(&endpoint).list_page("", None).await.is_ok());
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn an_endpoint_whose_name_leads_to_a_metadata_address_gets_no_request() {
        let (endpoint, count) = serve(|_| listing_response());
        let call = |address: [u8; 4]| {
            let client = Client::new(NetOptions::default()).with_known_host("bucket.test", address.into());
            let service =
                CheckedHttpService { client, connector: CheckedHttpConnector::new(OBJECT_BYTES_MAX) };
            let mut request = HttpRequest::new(String::new().into());
            *request.uri_mut() = endpoint.replace("127.0.0.1", "bucket.test").parse().unwrap();
            async move { service.call(request).await }
        };
        assert!(call([127, 0, 0, 1]).await.is_ok());
        for address in [[169, 254, 169, 254], [0, 0, 0, 0], [100, 100, 100, 200]] {
            let refused = error_chain(&call(address).await.err().unwrap());
            assert!(refused.contains("not allowed to connect to"), "{refused}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_response_without_end_is_not_collected() {
        let bytes = "x".repeat(usize::try_from(OBJECT_BYTES_MAX).unwrap() + (32 << 20));
        let (endpoint, _) = serve(move |_| format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{bytes}"));
        let refused = bucket(&endpoint).list_page("", None).await.err().unwrap();
        assert!(refused.contains("the body is larger than"), "{refused}");
    }

    #[tokio::test]
    async fn missing_credentials_are_reported_whatever_the_metadata_service_answers() {
        let (metadata, _) =
            serve(|_| "HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned());
        // Like those of metadata services, this address is allowed only if a setting names it.
        let metadata = metadata.replace("127.0.0.1", "0.0.0.0");
        let environment = AwsEnvironment::new(&|name: &str| {
            (name == "AWS_EC2_METADATA_SERVICE_ENDPOINT").then(|| metadata.clone())
        });
        let location = BucketLocation {
            bucket: "b".to_owned(),
            region: None,
            endpoint_url: Some("http://127.0.0.1:1".to_owned()),
            credentials: None,
            environment,
        };
        let error =
            Bucket::open(&location, OBJECT_BYTES_MAX).unwrap().list_page("", None).await.err().unwrap();
        assert!(error.starts_with("no credentials were found: set AWS_ACCESS_KEY_ID"), "{error}");
    }

    #[tokio::test]
    async fn the_text_of_an_error_response_is_not_taken_for_a_failed_connection() {
        let (endpoint, _) = serve(|_| {
            let words = "error sending request to 169.254.169.254";
            let length = words.len();
            format!("HTTP/1.1 400 No\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{words}")
        });
        let error = bucket(&endpoint).list_page("", None).await.err().unwrap();
        assert!(error.contains("400") && !error.contains("cannot be reached"), "{error}");
        assert!(!error.contains("no credentials"), "{error}");
    }
}
