//! Sends the requests of an API: rate limit, concurrency limit, credentials, token renewal and retries.
//! Redirects and SSRF checks are left to `web`.

mod retry;
mod web;

pub(crate) use web::{Web, configured_reach, origin_reach};

use crate::auth::{Grant, Pass, Tokens};
use crate::request::ApiBase;
use crate::response::Received;
use crate::settings::ApiSettings;
use ctx_core::{ErrorKind, Meter, Redactor, ToolError};
use ctx_net::Request;
use http::StatusCode;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Sends the requests of one API.
#[derive(Debug)]
pub(crate) struct Client {
    web: Web,
    tokens: Tokens,
    meter: Option<Meter>,
    in_flight: Semaphore,
    response_bytes: usize,
}

/// The credentials of one request.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) grants: Vec<Grant>,
    /// Whether they came from the caller: then secret headers of the configuration are not sent.
    pub(crate) is_brought: bool,
}

/// A response, and the redactor that masks the secrets of its request.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) received: Received,
    pub(crate) redactor: Redactor,
    /// When to try again, if the service says so (`Retry-After`).
    pub(crate) wait: Option<Duration>,
}

impl Client {
    pub(crate) fn new(settings: &ApiSettings) -> Result<Self, crate::ApiError> {
        Ok(Self {
            web: Web::new(settings)?,
            tokens: Tokens::default(),
            meter: settings.rate_limit.map(Meter::new),
            in_flight: Semaphore::new(settings.limits.in_flight.max(1)),
            response_bytes: settings.limits.response_bytes,
        })
    }

    /// Treats every peer as an internet host, so that loopback servers stand in for public ones.
    #[cfg(test)]
    pub(crate) fn with_public_peers(self) -> Self {
        Self { web: self.web.with_public_peers(), ..self }
    }

    /// Sends a request with these credentials, within `time_left`. Dropping the future cancels it.
    pub(crate) async fn send(
        &self,
        request: Request,
        grants: Granted,
        base: &ApiBase,
        time_left: Duration,
    ) -> Result<Answered, ToolError> {
        // Masked: a frozen parameter may be a secret, and stand in the path.
        let shown = request.shown();
        let shown = || Pass::default().redactor(self.web.secrets()).text(shown.clone());
        if let Some(Err(wait)) = self.meter.as_ref().map(Meter::take) {
            let message = format!("{}: the rate limit that is set for this API is used up", shown());
            return Err(ToolError::new(ErrorKind::RateLimited, message).retry_after(wait));
        }
        let deadline = Instant::now().checked_add(time_left);
        let sent = self.sent(request, grants, base, deadline);
        tokio::time::timeout(time_left, sent).await.unwrap_or_else(|_| {
            let message = format!("{}: no answer within {} seconds", shown(), time_left.as_secs_f64());
            Err(ToolError::new(ErrorKind::Timeout, message))
        })
    }

    async fn sent(
        &self,
        request: Request,
        Granted { grants, is_brought }: Granted,
        base: &ApiBase,
        deadline: Option<Instant>,
    ) -> Result<Answered, ToolError> {
        let closed = |error| ToolError::internal("requests are not sent any more", error);
        let _permit = self.in_flight.acquire().await.map_err(closed)?;
        let mut pass = Pass::new(grants, &self.tokens, &self.web, base).await?;
        let (mut retries, mut renewed) = (0, false);
        loop {
            let received =
                self.web.receive(request.clone(), &pass, is_brought, self.response_bytes, base.reach).await;
            let received = received.map_err(|error| masked(error, &pass.redactor(self.web.secrets())))?;
            if received.status == StatusCode::UNAUTHORIZED && !renewed {
                renewed = true;
                match pass.renewed(&self.tokens, &self.web, base).await? {
                    Ok(other) => {
                        pass = other;
                        continue;
                    }
                    Err(same) => pass = same,
                }
            }
            let wait = retry::wait(&received);
            if let Some(wait) = wait.filter(|wait| retry::is_worth_it(&request, *wait, retries, deadline)) {
                retries += 1;
                tokio::time::sleep(wait).await;
                continue;
            }
            return Ok(Answered { received, redactor: pass.redactor(self.web.secrets()), wait });
        }
    }
}

/// Masks secrets in an error message: the URL in it may come from a redirect.
fn masked(error: ToolError, redactor: &Redactor) -> ToolError {
    let message = redactor.text(error.message().to_owned());
    if message == error.message() { error } else { ToolError::new(error.kind(), message) }
}
