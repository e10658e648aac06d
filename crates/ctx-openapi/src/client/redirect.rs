//! Redirects: each is a request of its own.

use crate::request::Request;
use crate::response::Received;
use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use reqwest::{Method, StatusCode, Url};

/// Headers that are meant for whoever answers. All others are arguments or fixed values, and whether one is a secret
/// is known to nobody: many documents describe their key as a parameter.
const FOR_ANYBODY: [HeaderName; 3] = [ACCEPT, CONTENT_TYPE, CONTENT_ENCODING];

/// Where an answer sends us on to; nothing where it does not, or cannot be read.
pub(super) fn target(request: &Request, status: StatusCode, received: &Received) -> Option<Url> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = received.headers.get(LOCATION)?;
    let mut url = request.url.join(std::str::from_utf8(location.as_bytes()).ok()?).ok()?;
    // Nobody else gives us a name and a password to use.
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    url.set_fragment(None);
    Some(url)
}

/// Whether a redirect leads from where nobody reads along to where anybody can. What was sent would be sent again there:
/// its body, and what stands in the path.
pub(super) fn is_downgrade(from: &Url, to: &Url) -> bool {
    from.scheme() == "https" && to.scheme() != "https"
}

/// Makes the request that a redirect asks for. Whether it is for the same origin.
pub(super) fn follow(request: &mut Request, status: StatusCode, to: Url) -> bool {
    let becomes_get = match status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => request.method == Method::POST,
        StatusCode::SEE_OTHER => request.method != Method::HEAD,
        _ => false,
    };
    if becomes_get {
        request.method = Method::GET;
        request.body = None;
        request.headers.remove(CONTENT_TYPE);
        request.headers.remove(CONTENT_ENCODING);
    }
    let stays = to.origin() == request.url.origin();
    if !stays {
        let kept =
            FOR_ANYBODY.into_iter().filter_map(|name| Some((name.clone(), request.headers.remove(name)?)));
        request.headers = kept.collect::<HeaderMap>();
    }
    request.url = to;
    stays
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_in_secret_is_not_sent_again_in_the_open() {
        let is_downgrade =
            |from: &str, to: &str| is_downgrade(&Url::parse(from).unwrap(), &Url::parse(to).unwrap());
        assert!(is_downgrade("https://api.example/a", "http://api.example/a"));
        assert!(is_downgrade("https://api.example/a", "ftp://api.example/a"));
        assert!(!is_downgrade("https://api.example/a", "https://other.example/a"));
        assert!(!is_downgrade("http://api.example/a", "https://api.example/a"));
        assert!(!is_downgrade("http://api.example/a", "http://other.example/a"));
    }
}
