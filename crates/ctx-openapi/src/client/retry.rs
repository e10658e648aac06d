//! Retries: only idempotent methods, and only if the service sends `Retry-After`.

use crate::response::HttpResponse;
use ctx_net::Request;
use http::{Method, StatusCode};
use std::time::{Duration, Instant};

/// Maximum number of retries of one request.
const RETRIES_MAX: usize = 2;

/// The longest `Retry-After` that is waited for.
const DELAY_MAX: Duration = Duration::from_secs(20);

/// The `Retry-After` delay of a 429 or 503 response.
pub(super) fn retry_after(response: &HttpResponse) -> Option<Duration> {
    if !matches!(response.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    ctx_net::retry_after(&response.headers)
}

/// Whether to retry after that delay.
pub(super) fn should_retry(
    request: &Request,
    delay: Duration,
    retries: usize,
    deadline: Option<Instant>,
) -> bool {
    let is_safe =
        [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS].contains(&request.method);
    let is_in_time =
        deadline.is_none_or(|deadline| deadline.saturating_duration_since(Instant::now()) > delay);
    is_safe && delay <= DELAY_MAX && retries < RETRIES_MAX && is_in_time
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{HeaderMap, RETRY_AFTER};

    fn delay(status: u16, header: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, header.parse().unwrap());
        let (status, scope) = (StatusCode::from_u16(status).unwrap(), ctx_core::NetworkScope::Internet);
        retry_after(&HttpResponse { status, headers, body: Vec::new(), scope })
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(delay(429, "7"), Some(Duration::from_secs(7)));
        assert_eq!(delay(503, " 0 "), Some(Duration::ZERO));
        assert_eq!(delay(503, "Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert!(delay(503, "Fri, 31 Dec 2399 23:59:59 GMT").unwrap() > Duration::from_secs(1 << 30));
        for (status, text) in [(429, "soon"), (429, "-1"), (500, "7"), (200, "7")] {
            assert_eq!(delay(status, text), None, "{status} {text}");
        }
    }
}
