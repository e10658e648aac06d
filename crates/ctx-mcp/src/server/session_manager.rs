//! HTTP sessions of clients of older revisions. Their number is bounded; the least recently used session is
//! evicted.

use futures::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionConfig,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Sessions at once.
const SESSIONS_MAX: usize = 1024;
/// Idle timeout of a session.
const IDLE_MAX: Duration = Duration::from_secs(3600);

/// How long a response can be resumed after a lost connection: longer than the three seconds after which
/// clients reconnect, but short, since abandoned sessions hold their last responses.
const RESUME_WINDOW: Duration = Duration::from_secs(5);

/// A session manager in memory with bounded sessions.
pub(super) struct BoundedSessionManager {
    inner: Arc<LocalSessionManager>,
    last_used: Mutex<HashMap<SessionId, Instant>>,
}

impl Default for BoundedSessionManager {
    fn default() -> Self {
        let mut config = SessionConfig::default();
        config.keep_alive = Some(IDLE_MAX);
        config.completed_cache_ttl = RESUME_WINDOW;
        let mut inner = LocalSessionManager::default();
        inner.session_config = config;
        Self { inner: Arc::new(inner), last_used: Mutex::default() }
    }
}

impl BoundedSessionManager {
    fn last_used(&self) -> MutexGuard<'_, HashMap<SessionId, Instant>> {
        self.last_used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a session as used.
    fn touch(&self, id: &SessionId) {
        if let Some(last) = self.last_used().get_mut(id) {
            *last = Instant::now();
        }
    }

    /// Registers a new session; returns the sessions to evict for it.
    fn admit(&self, id: &SessionId) -> Vec<SessionId> {
        let mut last_used = self.last_used();
        last_used.insert(id.clone(), Instant::now());
        last_used.retain(|_, last| last.elapsed() < IDLE_MAX);
        let mut evicted = Vec::new();
        while last_used.len() > SESSIONS_MAX
            && let Some(idle) = last_used.iter().min_by_key(|(_, last)| **last).map(|(id, _)| id.clone())
        {
            last_used.remove(&idle);
            evicted.push(idle);
        }
        evicted
    }
}

impl SessionManager for BoundedSessionManager {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.inner.create_session().await?;
        for idle in self.admit(&id) {
            tracing::warn!("more than {SESSIONS_MAX} MCP sessions; the one idle longest is closed");
            let inner = self.inner.clone();
            // Closing a session whose client does not read takes a while; the new session does not wait for
            // it.
            tokio::spawn(async move { inner.close_session(&idle).await });
        }
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.inner.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.touch(id);
        self.inner.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.last_used().remove(id);
        self.inner.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.inner.create_stream(id, message).await
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.inner.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.inner.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.inner.resume(id, last_event_id).await
    }
}
