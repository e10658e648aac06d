//! One call in flight.

use crate::deadline::{Deadline, Waits};
use crate::peer::Masking;
use crate::{
    Catalog, ErrorKind, Identifier, Identity, Inside, Limits, NoPeer, Peer, Question, RunId, ToolError,
    Unanswered,
};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long the other end may take to answer, in all that one call asks.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(600);

/// One call: who makes it, until when, with which catalog, and how much it may still do.
///
/// [`Catalog::call`] consumes it, and a tool only borrows the one it runs in. So the one way for a
/// tool to call on is [`Call::nested`], which shares deadline, budget and cancellation.
pub struct Call {
    pub(crate) run: RunId,
    pub(crate) parent: Option<RunId>,
    pub(crate) depth: u32,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) cancellation: CancellationToken,
    /// A token of the caller's, besides the one that ends with the call around this one.
    outside: Option<CancellationToken>,
    pub(crate) root: Arc<Root>,
}

/// What a call shares with all calls inside it.
#[derive(Clone)]
pub(crate) struct Root {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) caller: Caller,
    pub(crate) identity: Option<Arc<Identity>>,
    /// Credentials that the caller brings. Secret, so never shown: nothing here can be printed.
    auth: Option<Arc<Map<String, Value>>>,
    peer: Arc<dyn Peer>,
    /// Shared even where the peer differs.
    calls_left: Arc<AtomicU32>,
    /// The same.
    waits: Arc<Waits>,
    /// The same.
    pub(crate) nested: Arc<Nested>,
}

/// What was called inside of an outermost call, and how much it answered.
#[derive(Default)]
pub(crate) struct Nested {
    calls: AtomicU64,
    result_bytes: AtomicU64,
}

impl Nested {
    /// A call has begun.
    pub(crate) fn begin(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// A call has answered.
    pub(crate) fn answered(&self, bytes: usize) {
        self.result_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// All of it, inside of a call whose result has so many bytes.
    pub(crate) fn inside(&self, result_bytes: usize) -> Inside {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Inside::new(read(&self.calls), read(&self.result_bytes), result_bytes)
    }
}

/// The way a call came in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Caller {
    /// A command in a terminal.
    Cli,
    /// The HTTP API.
    Http,
    /// A client of the MCP server, by the name it gives itself.
    Mcp(String),
    /// A program built on the library, by the name it gives itself.
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
    /// A call that comes from outside, on the catalog as it is now.
    pub fn new(catalog: Arc<Catalog>, caller: Caller) -> Self {
        let calls_left = Arc::new(AtomicU32::new(catalog.limits().nested_calls));
        Self {
            run: RunId::generate(),
            parent: None,
            depth: 0,
            deadline: None,
            cancellation: CancellationToken::new(),
            outside: None,
            root: Arc::new(Root {
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

    /// Names whom to ask and to tell.
    #[must_use]
    pub fn with_peer(self, peer: Arc<dyn Peer>) -> Self {
        let peer = Arc::new(Masking { peer, catalog: self.root.catalog.clone() });
        self.with_root(|root| Root { peer, ..root })
    }

    /// Names whom the caller has proved to be.
    #[must_use]
    pub fn with_identity(self, identity: Arc<Identity>) -> Self {
        self.with_root(|root| Root { identity: Some(identity), ..root })
    }

    /// Takes credentials that the caller brings, by the name of the provider that each is for. Calls inside this
    /// one have them, too; what is recorded of it does not.
    #[must_use]
    pub fn with_auth(self, auth: Map<String, Value>) -> Self {
        self.with_root(|root| Root { auth: Some(Arc::new(auth)), ..root })
    }

    fn with_root(self, change: impl FnOnce(Root) -> Root) -> Self {
        Self { root: Arc::new(change((*self.root).clone())), ..self }
    }

    /// Ends the call, and those inside it, when `token` is cancelled.
    #[must_use]
    pub fn with_cancellation(self, token: &CancellationToken) -> Self {
        Self { outside: Some(token.clone()), ..self }
    }

    /// Sets a deadline; an earlier one of the call around it, or the tool's own bound, still applies.
    #[must_use]
    pub fn with_deadline(self, deadline: std::time::Instant) -> Self {
        let deadline = self.no_later_than(deadline.into());
        Self { deadline: Some(deadline), ..self }
    }

    /// The deadline it has, or this one if it is earlier.
    pub(crate) fn no_later_than(&self, other: Instant) -> Deadline {
        match &self.deadline {
            Some(own) if own.at() <= other => own.clone(),
            _ => Deadline::new(other, &self.root.waits),
        }
    }

    /// A call inside this one. Fails when calls nest too deep or the budget is used up.
    pub fn nested(&self) -> Result<Self, ToolError> {
        let Limits { depth, nested_calls, .. } = *self.root.catalog.limits();
        if self.depth >= depth {
            return Err(ToolError::new(ErrorKind::Tool, format!("calls may nest at most {depth} deep")));
        }
        self.root
            .calls_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .map_err(|_| {
            ToolError::new(ErrorKind::Tool, format!("at most {nested_calls} calls may be made inside one"))
        })?;
        Ok(Self {
            run: RunId::generate(),
            parent: Some(self.run),
            depth: self.depth + 1,
            deadline: self.deadline.clone(),
            cancellation: self.cancellation.child_token(),
            outside: None,
            root: self.root.clone(),
        })
    }

    /// The run this call is recorded as.
    pub fn run_id(&self) -> RunId {
        self.run
    }

    /// Who made the outermost call.
    pub fn caller(&self) -> &Caller {
        &self.root.caller
    }

    /// Whether the program itself makes this call, as a command does, and no tool or script inside of one.
    pub fn is_administrative(&self) -> bool {
        self.root.caller == Caller::Cli && self.depth == 0
    }

    /// Whom the caller has proved to be, where that was asked.
    pub fn identity(&self) -> Option<&Identity> {
        self.root.identity.as_deref()
    }

    /// What the caller brings to be let in at a provider, which goes by its name as configured, too.
    pub fn auth(&self, provider: &Identifier) -> Option<&Value> {
        let brought = self.root.auth.as_ref()?;
        let by_written = || {
            let mut all = brought.iter();
            all.find_map(|(written, value)| (Identifier::sanitize(written) == *provider).then_some(value))
        };
        brought.get(provider.as_str()).or_else(by_written)
    }

    /// How many calls this one is inside of.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Whom to ask and to tell.
    pub fn peer(&self) -> &dyn Peer {
        &*self.root.peer
    }

    /// The same for work that outlives a borrow of the call, as on a thread of its own.
    pub fn shared_peer(&self) -> Arc<dyn Peer> {
        self.root.peer.clone()
    }

    /// Asks the other end. Until it has answered, or [`ANSWER_TIME_MAX`] is used up, no deadline comes
    /// nearer.
    pub async fn ask(&self, question: Question) -> Result<Value, Unanswered> {
        let left = ANSWER_TIME_MAX.saturating_sub(self.root.waits.waited());
        let _waiting = self.root.waits.begin();
        tokio::time::timeout(left, self.peer().ask(question)).await.unwrap_or(Err(Unanswered::TooLate))
    }

    /// The catalog this call began with.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.root.catalog
    }

    /// Cancelled when the caller goes away, the deadline passes or the server stops.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Waits until the call is cancelled from either side.
    pub(crate) async fn cancelled(&self) {
        match &self.outside {
            Some(outside) => tokio::select! {
                () = outside.cancelled() => {}
                () = self.cancellation.cancelled() => {}
            },
            None => self.cancellation.cancelled().await,
        }
    }

    /// How much time is left. Never more than the tool's bound once it runs.
    pub fn time_left(&self) -> Duration {
        let left = |deadline: &Deadline| deadline.at().saturating_duration_since(Instant::now());
        self.deadline.as_ref().map_or(Duration::MAX, left)
    }
}
