//! The HTTP client for one configured server, and for the hosts that it refers to.

use ctx_core::{AddressPolicy, NetworkScope};
use ctx_net::{Client, ClientOptions, NetError, Proxy, Request, Response};
use std::time::Duration;
use url::Url;

/// Redirects that are followed, within the server's own origin.
const REDIRECTS_MAX: usize = 10;

/// How long an idle connection is kept. Many servers close theirs after five seconds, and a request on a
/// connection that is being closed is lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// The read timeout. Event streams stay open while there are no events; one that is silent for longer is
/// reopened.
const SILENCE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Sends requests to a configured server. Redirects are followed within its origin only, since headers hold
/// credentials.
#[derive(Clone, Debug)]
pub(super) struct ServerClient {
    client: Client,
    /// The SSRF policy for the configured server.
    own: AddressPolicy,
}

impl ServerClient {
    pub(super) fn new(url: &str) -> Self {
        let url = Url::parse(url).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let client = Client::new(ClientOptions {
            proxy: Proxy::Environment,
            read_timeout: SILENCE_MAX,
            idle_timeout: IDLE_TIMEOUT,
            ..ClientOptions::default()
        });
        Self { client, own: AddressPolicy::for_configured_host(host) }
    }

    /// Sends a request to the configured server.
    pub(super) async fn send(&self, request: Request) -> Result<Response, NetError> {
        self.send_within(request, self.own).await
    }

    /// Sends a request to a host that a server of this scope has named.
    pub(super) async fn send_to_referred(
        &self,
        request: Request,
        scope: NetworkScope,
    ) -> Result<Response, NetError> {
        self.send_within(request, AddressPolicy::for_referrer(scope)).await
    }

    async fn send_within(&self, request: Request, reach: AddressPolicy) -> Result<Response, NetError> {
        let origin = request.url.origin();
        let may_follow = move |response: &Response, to: &Url| {
            let keeps_body = matches!(response.status().as_u16(), 307 | 308);
            keeps_body && to.origin() == origin
        };
        self.client.send_following(request, reach, REDIRECTS_MAX, may_follow).await
    }
}
