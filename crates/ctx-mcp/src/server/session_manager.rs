//! HTTP sessions of clients of older revisions. Their number is bounded; the least recently used session is
//! evicted.

use super::open_request_ids::OpenRequestIds;
use futures::{Stream, StreamExt};
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionConfig, SessionTransport,
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
    sessions: Mutex<HashMap<SessionId, SessionEntry>>,
}

struct SessionEntry {
    last_used: Instant,
    open_ids: Arc<OpenRequestIds>,
}

/// The transport of a session, which notes the requests that are answered or cancelled.
pub(super) struct TrackedTransport {
    inner: SessionTransport,
    open_ids: Arc<OpenRequestIds>,
}

impl Transport<RoleServer> for TrackedTransport {
    type Error = <SessionTransport as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.open_ids.close_answered(&message);
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let message = self.inner.receive().await?;
        self.open_ids.note_cancelled(&message);
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

impl Default for BoundedSessionManager {
    fn default() -> Self {
        let mut config = SessionConfig::default();
        config.keep_alive = Some(IDLE_MAX);
        config.completed_cache_ttl = RESUME_WINDOW;
        let mut inner = LocalSessionManager::default();
        inner.session_config = config;
        Self { inner: Arc::new(inner), sessions: Mutex::default() }
    }
}

impl BoundedSessionManager {
    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, SessionEntry>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a session as used.
    fn touch(&self, id: &SessionId) {
        if let Some(session) = self.sessions().get_mut(id) {
            session.last_used = Instant::now();
        }
    }

    /// The IDs of a session's open requests.
    fn open_ids(&self, id: &SessionId) -> Option<Arc<OpenRequestIds>> {
        self.sessions().get(id).map(|session| session.open_ids.clone())
    }

    /// Registers a new session; returns the sessions to evict for it.
    fn admit(&self, id: &SessionId, open_ids: Arc<OpenRequestIds>) -> Vec<SessionId> {
        let mut sessions = self.sessions();
        sessions.insert(id.clone(), SessionEntry { last_used: Instant::now(), open_ids });
        sessions.retain(|_, session| session.last_used.elapsed() < IDLE_MAX);
        let mut evicted = Vec::new();
        while sessions.len() > SESSIONS_MAX
            && let Some(idle) =
                sessions.iter().min_by_key(|(_, session)| session.last_used).map(|(id, _)| id.clone())
        {
            sessions.remove(&idle);
            evicted.push(idle);
        }
        evicted
    }
}

impl SessionManager for BoundedSessionManager {
    type Error = LocalSessionManagerError;
    type Transport = TrackedTransport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, inner) = self.inner.create_session().await?;
        let open_ids = Arc::<OpenRequestIds>::default();
        for idle in self.admit(&id, open_ids.clone()) {
            tracing::warn!("more than {SESSIONS_MAX} MCP sessions; the one idle longest is closed");
            let inner = self.inner.clone();
            // Closing a session whose client does not read takes a while; the new session does not wait for
            // it.
            tokio::spawn(async move { inner.close_session(&idle).await });
        }
        Ok((id, TrackedTransport { inner, open_ids }))
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
        self.sessions().remove(id);
        self.inner.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let open_ids = self.open_ids(id);
        if let Some(refusal) = open_ids.as_ref().and_then(|ids| ids.open(&message)) {
            let refusal = ServerSseMessage::from_message(refusal);
            return Ok(futures::stream::iter([refusal]).left_stream());
        }
        let request_id = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let stream = self.inner.create_stream(id, message).await;
        if let (Err(_), Some(open_ids), Some(request_id)) = (&stream, open_ids, request_id) {
            open_ids.close(&request_id);
        }
        stream.map(StreamExt::right_stream)
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
