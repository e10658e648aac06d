//! Retries: only idempotent methods, and only if the service sends `Retry-After`.

use crate::response::Received;
use ctx_net::Request;
use http::{Method, StatusCode};
use std::time::{Duration, Instant};

/// Maximum number of retries of one request.
const RETRIES_MAX: usize = 2;

/// The longest `Retry-After` that is waited for.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The `Retry-After` delay of a 429 or 503 response.
pub(super) fn wait(received: &Received) -> Option<Duration> {
    if !matches!(received.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    ctx_net::retry_after(&received.headers)
}

/// Whether to retry after that delay.
pub(super) fn is_worth_it(
    request: &Request,
    wait: Duration,
    retries: usize,
    deadline: Option<Instant>,
) -> bool {
    let is_safe =
        [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS].contains(&request.method);
    let is_in_time =
        deadline.is_none_or(|deadline| deadline.saturating_duration_since(Instant::now()) > wait);
    is_safe && wait <= WAIT_MAX && retries < RETRIES_MAX && is_in_time
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{HeaderMap, RETRY_AFTER};

    fn waits(status: u16, retry_after: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        let (status, scope) = (StatusCode::from_u16(status).unwrap(), ctx_core::NetworkScope::Internet);
        wait(&Received { status, headers, body: Vec::new(), scope })
    }

    #[test]
    fn a_service_says_when_to_come_back_in_seconds_or_with_a_date() {
        assert_eq!(waits(429, "7"), Some(Duration::from_secs(7)));
        assert_eq!(waits(503, " 0 "), Some(Duration::ZERO));
        assert_eq!(waits(503, "Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert!(waits(503, "Fri, 31 Dec 2399 23:59:59 GMT").unwrap() > Duration::from_secs(1 << 30));
        for (status, text) in [(429, "soon"), (429, "-1"), (500, "7"), (200, "7")] {
            assert_eq!(waits(status, text), None, "{status} {text}");
        }
    }
}
