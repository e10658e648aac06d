//! A call in flight, with its caller, peer, deadline, cancellation and budget of nested calls.

use crate::deadline::{AnswerWaits, Deadline};
use crate::peer::MaskedPeer;
use crate::{
    Catalog, ErrorKind, Identifier, Identity, Limits, NestedCallStats, NoPeer, Peer, Question, QuestionError,
    RunId, ToolError,
};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Total time that one call, with its nested calls, may wait for answers of the peer (elicitation, sampling).
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(600);

/// A call in flight: its caller, deadline, catalog and remaining budget.
///
/// [`Catalog::call`] consumes it, and a running tool only borrows its own. So a tool can make further calls only
/// through [`Call::nested`], which shares the deadline, the budget and the cancellation.
pub struct Call {
    pub(crate) run: RunId,
    pub(crate) parent: Option<RunId>,
    pub(crate) depth: u32,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) cancellation: CancellationToken,
    /// Cancellation token of the caller, in addition to `cancellation`, which the enclosing call cancels.
    caller_cancellation: Option<CancellationToken>,
    pub(crate) root: Arc<RootCall>,
}

/// State that a call shares with all calls nested in it.
#[derive(Clone)]
pub(crate) struct RootCall {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) caller: Caller,
    pub(crate) identity: Option<Arc<Identity>>,
    /// Credentials that the caller sends. Secret: this type has no `Debug`.
    auth: Option<Arc<Map<String, Value>>>,
    peer: Arc<dyn Peer>,
    /// Number of nested calls that are left. Shared even if a nested call has another peer.
    calls_left: Arc<AtomicU32>,
    /// Time spent waiting for answers; shared likewise.
    waits: Arc<AnswerWaits>,
    /// Count of nested calls; shared likewise.
    pub(crate) nested: Arc<NestedCallCounter>,
}

/// Number of calls nested in an outermost call, and the size of their results.
#[derive(Default)]
pub(crate) struct NestedCallCounter {
    calls: AtomicU64,
    result_bytes: AtomicU64,
}

impl NestedCallCounter {
    /// Counts a nested call that starts.
    pub(crate) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the size of a nested call's result.
    pub(crate) fn add_result(&self, bytes: usize) {
        self.result_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The statistics for an outermost call whose result has this size.
    pub(crate) fn stats(&self, result_bytes: usize) -> NestedCallStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        NestedCallStats::new(read(&self.calls), read(&self.result_bytes), result_bytes)
    }
}

/// The interface through which a call arrived.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Caller {
    /// A command in a terminal.
    Cli,
    /// The HTTP API.
    Http,
    /// An MCP client, by the name that it reports.
    Mcp(String),
    /// A program built on the library, by the name that it chooses.
    Library(String),
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cli => f.write_str("cli"),
            Self::Http => f.write_str("http"),
            Self::Mcp(client) => write!(f, "mcp:{client}"),
            Self::Library(name) => write!(f, "library:{name}"),
        }
    }
}

impl Call {
    /// An outermost call on this catalog.
    pub fn new(catalog: Arc<Catalog>, caller: Caller) -> Self {
        let calls_left = Arc::new(AtomicU32::new(catalog.limits().nested_calls));
        Self {
            run: RunId::generate(),
            parent: None,
            depth: 0,
            deadline: None,
            cancellation: CancellationToken::new(),
            caller_cancellation: None,
            root: Arc::new(RootCall {
                catalog,
                caller,
                identity: None,
                auth: None,
                peer: Arc::new(NoPeer),
                calls_left,
                waits: Arc::default(),
                nested: Arc::default(),
            }),
        }
    }

    /// Sets the peer, which gets progress and questions with secrets masked.
    #[must_use]
    pub fn with_peer(self, peer: Arc<dyn Peer>) -> Self {
        let peer = Arc::new(MaskedPeer { peer, catalog: self.root.catalog.clone() });
        self.with_root(|root| RootCall { peer, ..root })
    }

    /// Sets the authenticated identity of the caller.
    #[must_use]
    pub fn with_identity(self, identity: Arc<Identity>) -> Self {
        self.with_root(|root| RootCall { identity: Some(identity), ..root })
    }

    /// Sets credentials that the caller sends, by provider name. Nested calls can use them; the run log does not
    /// contain them.
    #[must_use]
    pub fn with_auth(self, auth: Map<String, Value>) -> Self {
        self.with_root(|root| RootCall { auth: Some(Arc::new(auth)), ..root })
    }

    fn with_root(self, change: impl FnOnce(RootCall) -> RootCall) -> Self {
        Self { root: Arc::new(change((*self.root).clone())), ..self }
    }

    /// Cancels the call, and the calls nested in it, when `token` is cancelled.
    #[must_use]
    pub fn with_cancellation(self, token: &CancellationToken) -> Self {
        Self { caller_cancellation: Some(token.clone()), ..self }
    }

    /// Sets a deadline. An earlier deadline of the enclosing call, or the tool's timeout, still applies.
    #[must_use]
    pub fn with_deadline(self, deadline: std::time::Instant) -> Self {
        let deadline = self.earlier_deadline(deadline.into());
        Self { deadline: Some(deadline), ..self }
    }

    /// The earlier of the call's own deadline and `other`.
    pub(crate) fn earlier_deadline(&self, other: Instant) -> Deadline {
        match &self.deadline {
            Some(own) if own.instant() <= other => own.clone(),
            _ => Deadline::new(other, &self.root.waits),
        }
    }

    /// Creates a call nested in this one. Fails when calls nest too deep or the budget of nested calls is used up.
    pub fn nested(&self) -> Result<Self, ToolError> {
        let Limits { depth, nested_calls, .. } = *self.root.catalog.limits();
        if self.depth >= depth {
            return Err(ToolError::new(ErrorKind::Tool, format!("calls may nest at most {depth} deep")));
        }
        self.root
            .calls_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .map_err(|_| {
            ToolError::new(ErrorKind::Tool, format!("a call may make at most {nested_calls} nested calls"))
        })?;
        Ok(Self {
            run: RunId::generate(),
            parent: Some(self.run),
            depth: self.depth + 1,
            deadline: self.deadline.clone(),
            cancellation: self.cancellation.child_token(),
            caller_cancellation: None,
            root: self.root.clone(),
        })
    }

    /// Id of the run that records this call.
    pub fn run_id(&self) -> RunId {
        self.run
    }

    /// The caller of the outermost call.
    pub fn caller(&self) -> &Caller {
        &self.root.caller
    }

    /// Whether the program itself makes this call, as for a CLI command, and not a tool or script within one.
    pub fn is_administrative(&self) -> bool {
        self.root.caller == Caller::Cli && self.depth == 0
    }

    /// The authenticated identity of the caller; `None` without authentication.
    pub fn identity(&self) -> Option<&Identity> {
        self.root.identity.as_deref()
    }

    /// Credentials that the caller sent for this provider, under its identifier or its name as configured.
    pub fn auth(&self, provider: &Identifier) -> Option<&Value> {
        let credentials = self.root.auth.as_ref()?;
        let by_configured_name = || {
            let mut all = credentials.iter();
            all.find_map(|(configured_name, value)| {
                (Identifier::sanitize(configured_name) == *provider).then_some(value)
            })
        };
        credentials.get(provider.as_str()).or_else(by_configured_name)
    }

    /// Nesting depth: 0 for an outermost call.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The client of the call, which gets progress and questions.
    pub fn peer(&self) -> &dyn Peer {
        &*self.root.peer
    }

    /// The peer, for work that outlives a borrow of the call, such as on another thread.
    pub fn shared_peer(&self) -> Arc<dyn Peer> {
        self.root.peer.clone()
    }

    /// Sends a question to the peer. Deadlines are suspended until the answer arrives or [`ANSWER_TIME_MAX`] is used
    /// up.
    pub async fn ask(&self, question: Question) -> Result<Value, QuestionError> {
        let left = ANSWER_TIME_MAX.saturating_sub(self.root.waits.total());
        let _waiting = self.root.waits.start();
        tokio::time::timeout(left, self.peer().ask(question)).await.unwrap_or(Err(QuestionError::TimedOut))
    }

    /// The catalog with which this call began.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.root.catalog
    }

    /// Cancelled when the caller disconnects, the deadline passes or the server stops.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Waits until the caller or the enclosing call cancels this call.
    pub(crate) async fn cancelled(&self) {
        match &self.caller_cancellation {
            Some(caller_cancellation) => tokio::select! {
                () = caller_cancellation.cancelled() => {}
                () = self.cancellation.cancelled() => {}
            },
            None => self.cancellation.cancelled().await,
        }
    }

    /// Time left until the deadline; at most the tool's timeout while it runs.
    pub fn time_left(&self) -> Duration {
        let left = |deadline: &Deadline| deadline.instant().saturating_duration_since(Instant::now());
        self.deadline.as_ref().map_or(Duration::MAX, left)
    }
}
