//! Sends the requests of an API: rate limit, concurrency limit, credentials, token renewal and retries.
//! Redirects and SSRF checks are left to `http_client`.

mod http_client;
mod retry;

pub(crate) use http_client::{HttpClient, configured_reach, origin_reach};

use crate::auth::{Renewal, RequestAuth, SchemeCredential, TokenCache};
use crate::request::ApiBase;
use crate::response::HttpResponse;
use crate::settings::ApiSettings;
use ctx_core::{ErrorKind, RateLimiter, Redactor, ToolError};
use ctx_net::Request;
use http::StatusCode;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Sends the requests of one API.
#[derive(Debug)]
pub(crate) struct ApiClient {
    http_client: HttpClient,
    tokens: TokenCache,
    meter: Option<RateLimiter>,
    in_flight: Semaphore,
    response_bytes: usize,
}

/// The credentials of one request.
#[derive(Debug)]
pub(crate) struct RequestCredentials {
    pub(crate) credentials: Vec<SchemeCredential>,
    /// Whether they came from the caller: then secret headers of the configuration are not sent.
    pub(crate) is_from_caller: bool,
}

/// A response, and the redactor that masks the secrets of its request.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) response: HttpResponse,
    pub(crate) redactor: Redactor,
    /// When to try again, if the service says so (`Retry-After`).
    pub(crate) retry_after: Option<Duration>,
}

impl ApiClient {
    pub(crate) fn new(settings: &ApiSettings) -> Result<Self, crate::ApiError> {
        Ok(Self {
            http_client: HttpClient::new(settings)?,
            tokens: TokenCache::default(),
            meter: settings.rate_limit.map(RateLimiter::new),
            in_flight: Semaphore::new(settings.limits.in_flight.max(1)),
            response_bytes: settings.limits.response_bytes,
        })
    }

    /// Treats every peer as an internet host, so that loopback servers stand in for public ones.
    #[cfg(test)]
    pub(crate) fn with_public_peers(self) -> Self {
        Self { http_client: self.http_client.with_public_peers(), ..self }
    }

    /// Sends a request with these credentials, within `time_left`. Dropping the future cancels it.
    pub(crate) async fn send(
        &self,
        request: Request,
        credentials: RequestCredentials,
        base: &ApiBase,
        time_left: Duration,
    ) -> Result<ApiResponse, ToolError> {
        // Masked: a frozen parameter may be a secret, and stand in the path.
        let shown = request.describe();
        let shown = || RequestAuth::default().redactor(self.http_client.secrets()).text(shown.clone());
        if let Some(Err(delay)) = self.meter.as_ref().map(RateLimiter::try_acquire) {
            let message = format!("{}: the configured rate limit of this API is exceeded", shown());
            return Err(ToolError::new(ErrorKind::RateLimited, message).with_retry_after(delay));
        }
        let deadline = Instant::now().checked_add(time_left);
        let sending = self.send_with_retries(request, credentials, base, deadline);
        tokio::time::timeout(time_left, sending).await.unwrap_or_else(|_| {
            let message = format!("{}: no answer within {} seconds", shown(), time_left.as_secs_f64());
            Err(ToolError::new(ErrorKind::Timeout, message))
        })
    }

    async fn send_with_retries(
        &self,
        request: Request,
        RequestCredentials { credentials, is_from_caller }: RequestCredentials,
        base: &ApiBase,
        deadline: Option<Instant>,
    ) -> Result<ApiResponse, ToolError> {
        let shut_down = |error| ToolError::internal("the client of this API was shut down", error);
        let _permit = self.in_flight.acquire().await.map_err(shut_down)?;
        let mut auth = RequestAuth::new(credentials, &self.tokens, &self.http_client, base).await?;
        let (mut retries, mut is_renewed) = (0, false);
        loop {
            let response = self
                .http_client
                .send_authorized(request.clone(), &auth, is_from_caller, self.response_bytes, base.reach)
                .await;
            let response =
                response.map_err(|error| mask_error(error, &auth.redactor(self.http_client.secrets())))?;
            if response.status == StatusCode::UNAUTHORIZED && !is_renewed {
                is_renewed = true;
                match auth.renew(&self.tokens, &self.http_client, base).await? {
                    Renewal::Renewed(renewed) => {
                        auth = renewed;
                        continue;
                    }
                    Renewal::NotPossible(unchanged) => auth = unchanged,
                }
            }
            let retry_after = retry::retry_after(&response);
            let delay = retry_after.filter(|delay| retry::should_retry(&request, *delay, retries, deadline));
            if let Some(delay) = delay {
                retries += 1;
                tokio::time::sleep(delay).await;
                continue;
            }
            return Ok(ApiResponse {
                response,
                redactor: auth.redactor(self.http_client.secrets()),
                retry_after,
            });
        }
    }
}

/// Masks secrets in an error message: the URL in it may come from a redirect.
fn mask_error(error: ToolError, redactor: &Redactor) -> ToolError {
    let message = redactor.text(error.message().to_owned());
    if message == error.message() { error } else { ToolError::new(error.kind(), message) }
}
