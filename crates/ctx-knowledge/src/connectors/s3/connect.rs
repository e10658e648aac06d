//! HTTP client of the object store, with SSRF checks: resolved addresses are checked, and redirects stay on one host.
//! The instance metadata service still works: its addresses are literal, hence never resolved.

use super::bucket::{CONNECT_MAX, REQUEST_MAX, SILENCE_MAX};
use crate::reach::CheckedResolver;
use ctx_core::Reach;
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector};
use reqwest::redirect::Policy;
use std::sync::Arc;

/// Maximum number of redirects.
const REDIRECTS_MAX: usize = 5;

/// Builds the object store's HTTP clients.
#[derive(Debug)]
pub(super) struct CheckedConnector;

impl HttpConnector for CheckedConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        // A request signature is valid for one host only, so a redirect to another host is refused.
        let redirects = Policy::custom(|attempt| {
            let is_same_host = attempt.previous().last().is_some_and(|from| {
                let is_downgrade = from.scheme() == "https" && attempt.url().scheme() != "https";
                from.host() == attempt.url().host() && !is_downgrade
            });
            match is_same_host && attempt.previous().len() <= REDIRECTS_MAX {
                true => attempt.follow(),
                false => attempt.stop(),
            }
        });
        let client = reqwest::Client::builder()
            .user_agent(concat!("ctx/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(CheckedResolver(Reach::OWN)))
            .redirect(redirects)
            .connect_timeout(CONNECT_MAX)
            .read_timeout(SILENCE_MAX)
            .timeout(REQUEST_MAX)
            .build();
        let failed = |error| object_store::Error::Generic { store: "S3", source: Box::new(error) };
        Ok(HttpClient::new(client.map_err(failed)?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::bucket::{Bucket, Place};
    use super::super::credentials::{Environment, Keys};
    use ctx_core::Secret;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    fn bucket(endpoint_url: &str) -> Bucket {
        let keys = Keys {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: Secret::new("hunter2hunter2"),
            session_token: None,
        };
        let place = Place {
            bucket: "b".to_owned(),
            region: None,
            endpoint_url: Some(endpoint_url.to_owned()),
            keys: Some(keys),
            environment: Environment::default(),
        };
        Bucket::open(&place).unwrap()
    }

    #[tokio::test]
    async fn a_bucket_is_read_at_its_endpoint_and_redirects_stay_with_its_host() {
        let (endpoint, _) = serve(|_| listing_response());
        let page = bucket(&endpoint).page("", None).await.unwrap();
        assert_eq!(page.objects.iter().map(|object| object.location.as_ref()).collect::<Vec<_>>(), ["a.md"]);

        let (elsewhere, asked) = serve(|_| listing_response());
        for to in [elsewhere.replace("127.0.0.1", "localhost"), "http://169.254.169.254/latest".to_owned()] {
            let to = format!(
                "HTTP/1.1 307 Go\r\nLocation: {to}/b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let (endpoint, first) = serve(move |_| to.clone());
            bucket(&endpoint).page("", None).await.err().unwrap();
            assert_eq!((first.load(Ordering::SeqCst), asked.load(Ordering::SeqCst)), (1, 0));
        }
        let (endpoint, count) = serve(|request| match request.contains("/again") {
            true => listing_response(),
            false => "HTTP/1.1 307 Go\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                .to_owned(),
        });
        assert!(bucket(&endpoint).page("", None).await.is_ok());
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }
}
