//! SSRF checks for git over HTTP. Host names are resolved and checked here, and git is pinned to those addresses
//! against DNS rebinding. Redirects are followed here and not by git, which checks nothing.
//!
//! Behind the user's own HTTP proxy it is the proxy that resolves host names, for git; the checks here then cover only
//! what git would resolve itself.

use super::address::{GitTransport, RepositoryAddress};
use ctx_core::{AddressPolicy, error_chain};
use ctx_net::{
    Client, ClientOptions, CrossOriginHeaders, ForbiddenHost, NetError, RedirectChain, Request, ResolveError,
    is_downgrade,
};
use http::{HeaderName, HeaderValue, Method};
use std::net::IpAddr;
use std::time::Duration;
use url::Url;

/// Timeout of a DNS lookup, and of each request that follows a redirect.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of redirects.
const REDIRECTS_MAX: usize = 5;
/// Pinned for a host that only a proxy can resolve: no TCP connection to the broadcast address succeeds, so that git
/// reaches the host through the proxy or not at all (`NO_PROXY`).
const UNREACHABLE_ADDRESS: &str = "255.255.255.255";
/// Path of the first request of the smart HTTP protocol.
const INFO_REFS: &str = "/info/refs";

/// URL of a remote repository, with its host pinned to checked addresses.
#[derive(Clone, Debug)]
pub(super) struct PinnedRemote {
    pub(super) url: String,
    /// Value of `http.curloptResolve`; `None` if there is no host name to resolve.
    pub(super) curlopt_resolve: Option<String>,
}

impl PinnedRemote {
    /// Checks and pins a configured address; the error says why it cannot be used.
    pub(super) async fn resolve(address: &RepositoryAddress, has_proxy: bool) -> Result<Self, String> {
        let url = Url::parse(&address.url).ok().filter(|_| address.transport == GitTransport::Http);
        let Some(url) = url else { return Ok(Self { url: address.url.clone(), curlopt_resolve: None }) };
        let reach = AddressPolicy::for_configured_host(url.host_str().unwrap_or_default());
        Ok(Self { url: address.url.clone(), curlopt_resolve: pin_addresses(&url, reach, has_proxy).await? })
    }

    /// Follows HTTP redirects to the new location, if there is one. Sends no credentials.
    pub(super) async fn follow_redirects(&self, has_proxy: bool) -> Result<Option<Self>, String> {
        self.follow_redirects_with(&client(), has_proxy).await
    }

    async fn follow_redirects_with(&self, client: &Client, has_proxy: bool) -> Result<Option<Self>, String> {
        let Ok(base) = Url::parse(&self.url) else { return Ok(None) };
        let reach = AddressPolicy::for_configured_host(base.host_str().unwrap_or_default());
        let mut url = base.clone();
        url.set_path(&format!("{}{INFO_REFS}", base.path().trim_end_matches('/')));
        url.query_pairs_mut().append_pair("service", "git-upload-pack");
        // The first request of a fetch.
        let version = (HeaderName::from_static("git-protocol"), HeaderValue::from_static("version=2"));
        let probe = Request::new(Method::GET, url).header(version.0, version.1);
        let mut hops = RedirectChain::new(probe, reach);
        loop {
            let response = client.send(hops.request(), hops.reach()).await.map_err(|error| {
                match error.forbidden_target() {
                    Some(forbidden) if hops.redirect_count() > 0 && !forbidden.is_resolved => {
                        format!("it redirects to {forbidden}")
                    }
                    _ => redirect_error(error),
                }
            })?;
            let to = response.redirect_target().map_err(|_| "its redirect is invalid")?;
            let Some(to) = to else {
                let reach = hops.reach();
                let mut url = hops.into_request().url;
                return Ok(match url.path().strip_suffix(INFO_REFS) {
                    Some(path) if url.path() != base.path() || url.origin() != base.origin() => {
                        let path = path.to_owned();
                        let curlopt_resolve = pin_addresses(&url, reach, has_proxy).await?;
                        url.set_path(&path);
                        url.set_query(base.query());
                        let url = url.to_string();
                        (url != self.url).then_some(Self { url, curlopt_resolve })
                    }
                    _ => None,
                });
            };
            if !matches!(to.scheme(), "http" | "https") || is_downgrade(&hops.request().url, &to) {
                return Err(format!("it redirects to {}", to.scheme()));
            }
            hops.follow(&response, to, CrossOriginHeaders::DropSecrets);
            if hops.redirect_count() > REDIRECTS_MAX {
                return Err(format!("it redirects more than {REDIRECTS_MAX} times"));
            }
        }
    }
}

/// The client that follows redirects.
fn client() -> Client {
    Client::new(ClientOptions {
        user_agent: Some(concat!("git/2 ctx/", env!("CARGO_PKG_VERSION"))),
        timeout: Some(REQUEST_TIMEOUT),
        ..ClientOptions::default()
    })
}

fn redirect_error(error: NetError) -> String {
    format!("cannot follow its redirects: {}", error_chain(&error.without_url()))
}

/// The checked addresses of a URL's host, as a value of `http.curloptResolve`. Fails closed: a host that cannot be
/// resolved here is an error, or left to the proxy.
async fn pin_addresses(url: &Url, reach: AddressPolicy, has_proxy: bool) -> Result<Option<String>, String> {
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    reach.check_host(host).map_err(|forbidden| format!("its host resolves to {forbidden}"))?;
    // A literal address needs no DNS lookup, so there is nothing to pin.
    let is_literal = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    if is_literal {
        return Ok(None);
    }
    let lookup = tokio::time::timeout(REQUEST_TIMEOUT, ctx_net::resolve(host, port, reach)).await;
    let addresses = match lookup {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(ResolveError::Forbidden(ForbiddenHost(forbidden)))) => {
            return Err(format!("its host resolves to {forbidden}"));
        }
        _ if has_proxy => return Ok(Some(format!("{host}:{port}:{UNREACHABLE_ADDRESS}"))),
        Ok(Err(ResolveError::Lookup(error))) => {
            return Err(format!("its host `{host}` cannot be resolved: {error}"));
        }
        Err(_) => {
            return Err(format!("its host `{host}` was not resolved within {} s", REQUEST_TIMEOUT.as_secs()));
        }
    };
    let texts = addresses.iter().map(|address| match address.ip() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    });
    let texts: Vec<String> = texts.collect();
    match texts.is_empty() {
        true => Err(format!("its host `{host}` has no address")),
        false => Ok(Some(format!("{host}:{port}:{}", texts.join(",")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A server that sends this response to every request, and counts the requests.
    fn serve(answer: String) -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, count) = (listener.local_addr().unwrap().port(), Arc::<AtomicUsize>::default());
        let seen = count.clone();
        // One response for each connection: without this header, a client may send its next request on a closing one.
        let answer = answer.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                seen.fetch_add(1, Ordering::SeqCst);
                if stream.read(&mut [0; 4096]).is_ok() {
                    // The client may have closed the connection.
                    stream.write_all(answer.as_bytes()).ok();
                }
            }
        });
        (port, count)
    }

    fn redirect(to: &str) -> String {
        format!("HTTP/1.1 301 Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
    }

    async fn remote_of(url: &str) -> Result<PinnedRemote, String> {
        PinnedRemote::resolve(&RepositoryAddress::parse(url, Path::new("/workspace")).unwrap(), false).await
    }

    #[tokio::test]
    async fn git_is_pinned_to_the_addresses_that_were_checked() {
        let curlopt_resolve =
            remote_of("http://localhost:8080/a.git").await.unwrap().curlopt_resolve.unwrap();
        let (host, addresses) = curlopt_resolve.split_at("localhost:8080:".len());
        assert_eq!(host, "localhost:8080:");
        for address in addresses.split(',') {
            assert!(["127.0.0.1", "[::1]"].contains(&address), "{curlopt_resolve}");
        }
        for url in ["http://127.0.0.1/a.git", "git@localhost:a", "/srv/a.git"] {
            assert_eq!(remote_of(url).await.unwrap().curlopt_resolve, None, "{url}");
        }
        // A literal link-local address is allowed in configuration; a name that resolves to one is not.
        assert!(remote_of("http://169.254.7.7/a.git").await.is_ok());
        let url = Url::parse("http://localhost/a.git").unwrap();
        let refused = super::pin_addresses(&url, AddressPolicy::INTERNET, false).await.unwrap_err();
        assert_eq!(refused, "its host resolves to a loopback address");
    }

    #[tokio::test]
    async fn a_host_that_cannot_be_resolved_is_an_error_unless_a_proxy_may_resolve_it() {
        let error = remote_of("https://nobody.invalid/a.git").await.unwrap_err();
        assert!(error.starts_with("its host `nobody.invalid` cannot be resolved: "), "{error}");
        let url = Url::parse("https://nobody.invalid/a.git").unwrap();
        let curlopt_resolve = super::pin_addresses(&url, AddressPolicy::TRUSTED, true).await.unwrap();
        assert_eq!(curlopt_resolve.as_deref(), Some("nobody.invalid:443:255.255.255.255"));
    }

    #[tokio::test]
    async fn redirects_are_followed_but_not_from_a_public_host_to_this_machine() {
        let (inner, count) = serve("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned());
        for host in ["127.0.0.1", "localhost"] {
            let to = format!("http://{host}:{inner}/new.git/info/refs?service=git-upload-pack");
            let (outer, _) = serve(redirect(&to));
            let remote =
                PinnedRemote { url: format!("http://localhost:{outer}/old.git"), curlopt_resolve: None };
            let before = count.load(Ordering::SeqCst);
            let public = client().with_public_peers();
            let refused = remote.follow_redirects_with(&public, false).await.unwrap_err();
            assert_eq!(refused, "it redirects to a loopback address");
            assert_eq!(count.load(Ordering::SeqCst), before);
            let moved = remote.follow_redirects(false).await.unwrap().unwrap();
            assert_eq!(moved.url, format!("http://{host}:{inner}/new.git"));
            assert_eq!(moved.curlopt_resolve.is_some(), host == "localhost");
        }
        for to in
            ["http://169.254.169.254/info/refs", "http://[2002:a9fe:a9fe::]/info/refs", "file:///etc/passwd"]
        {
            let (outer, _) = serve(redirect(to));
            let remote =
                PinnedRemote { url: format!("http://127.0.0.1:{outer}/old.git"), curlopt_resolve: None };
            assert!(remote.follow_redirects(false).await.is_err(), "{to}");
        }
        let (outer, count) = serve(redirect("/again"));
        let remote = PinnedRemote { url: format!("http://127.0.0.1:{outer}/old.git"), curlopt_resolve: None };
        assert_eq!(remote.follow_redirects(false).await.unwrap_err(), "it redirects more than 5 times");
        assert_eq!(count.load(Ordering::SeqCst), REDIRECTS_MAX + 1);
    }
}
