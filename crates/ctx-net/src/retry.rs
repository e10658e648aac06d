//! The `Retry-After` header.

use http::HeaderMap;
use http::header::RETRY_AFTER;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use std::time::Duration;

/// The delay that `Retry-After` asks for, in seconds or as an HTTP date; zero for a date in the past.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_time_to_wait_is_read_as_seconds_or_as_a_time() {
        let after = |text: &'static str| {
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]))
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after(" 0 "), Some(Duration::ZERO));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert!(after("Tue, 31 Dec 2999 23:59:59 GMT").unwrap() > Duration::from_secs(1 << 20));
        for text in ["soon", "-1", ""] {
            assert_eq!(after(text), None, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
