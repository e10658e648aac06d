//! Connectors that are scripts.
//!
//! A scan names everything there is, and then whatever it does not name is gone; or it uses a cursor and
//! names what changed, and then only `deleted` removes anything. A scan that fails, names nothing, logs
//! an error or hands over an item without a `source_id` may have missed something: it removes nothing.

use super::item::{BadItem, changes};
use super::{Script, Told};
use crate::engine::{Entry, Refusal, RunError, RunErrorKind};
use crate::scripts::{Inner, ScriptProblem};
use crate::vm::LogLevel;
use crate::world::ScriptWorld;
use async_trait::async_trait;
use ctx_core::{Change, Connector, Cursor, Listing, Pulled, Redactor, Sink, SourceError};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The code of an item that nobody takes any more.
const CLOSED: &str = "closed";

/// A script that defines `connector`.
pub(crate) struct ScriptConnector {
    script: Script,
    /// Whether a scan without a cursor names everything there is.
    complete: bool,
}

impl ScriptConnector {
    /// The connector that a script says it is.
    pub(crate) fn new(script: Script, told: &Told) -> Result<Self, ScriptProblem> {
        let complete = match told.table.get("complete") {
            None | Some(Value::Null) => true,
            Some(Value::Bool(complete)) => *complete,
            Some(_) => return Err(told.problem("connector.complete must be true or false")),
        };
        Ok(Self { script, complete })
    }

    fn bound(&self) -> Duration {
        self.script.timeout(self.script.inner.limits.connector_timeout)
    }

    fn unavailable(&self, error: RunError) -> SourceError {
        let shown = &self.script.shown;
        SourceError::Unavailable(match error.kind {
            RunErrorKind::Time => {
                format!("{shown}: the scan timed out after {} seconds", self.bound().as_secs_f64())
            }
            _ => error.message,
        })
    }
}

#[async_trait]
impl Connector for ScriptConnector {
    async fn pull(&self, cursor: Option<&Cursor>, sink: &Sink) -> Result<Pulled, SourceError> {
        // A cursor that cannot be read is not one of ours: the scan begins anew.
        let began_at = cursor.and_then(|Cursor(text)| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
        let uses_cursor = !began_at.is_null();
        let limits = &self.script.inner.limits;
        let mut run = self.script.run(Entry::Connector, vec![self.script.config(), began_at]);
        run.deadline = Instant::now() + self.bound();
        run.memory_bytes = limits.connector_memory_bytes;
        let emitter = Emitter::new(sink, &self.script.inner);
        let completed = {
            let world = ScriptWorld::of_sync(&self.script, &emitter);
            self.script.inner.engine.run(&run, &world).await
        };
        if emitter.closed.load(Ordering::Relaxed) {
            return Err(SourceError::Closed(ctx_core::SinkClosed));
        }
        let completed = completed.map_err(|mut error| {
            error.message = emitter.redactor.text(error.message);
            self.unavailable(error)
        })?;
        let cursor = completed.value.get("cursor").filter(|cursor| !cursor.is_null());
        let complete = self.complete && !uses_cursor && cursor.is_none() && emitter.named_all();
        Ok(Pulled {
            cursor: cursor.map(|cursor| Cursor(cursor.to_string())),
            listing: if complete { Listing::Complete } else { Listing::Partial },
        })
    }

    async fn check(&self) -> Result<(), SourceError> {
        let Some(settings) = &self.script.settings else { return Ok(()) };
        let script = Script::read(&self.script.inner, settings).await;
        let told = match script {
            Ok(script) => script.describe().await,
            Err(problem) => Err(problem),
        };
        told.and_then(|told| told.must_be(super::Kind::Connector, &settings.name))
            .map_err(|problem| SourceError::Unavailable(problem.message))
    }
}

/// Takes in the items of one scan.
pub(crate) struct Emitter<'a> {
    sink: &'a Sink,
    document_bytes_max: usize,
    pub(crate) redactor: Redactor,
    /// Items that were handed over.
    taken: AtomicU64,
    /// Documents that were named.
    named: AtomicU64,
    /// Something that exists may not have been named.
    doubtful: AtomicBool,
    /// Nobody takes items any more.
    closed: AtomicBool,
}

impl<'a> Emitter<'a> {
    fn new(sink: &'a Sink, scripts: &Inner) -> Self {
        Self {
            sink,
            document_bytes_max: scripts.limits.document_bytes,
            redactor: scripts.redactor.clone(),
            taken: AtomicU64::new(0),
            named: AtomicU64::new(0),
            doubtful: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// Takes one item, when there is room for it.
    pub(crate) async fn emit(&self, item: Value) -> Result<(), Refusal> {
        let position = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        let changes = changes(item, self.document_bytes_max).unwrap_or_else(|bad| self.bad(bad, position));
        for change in changes {
            if !matches!(change, Change::Delete { .. }) {
                self.named.fetch_add(1, Ordering::Relaxed);
            }
            if self.sink.send(change).await.is_err() {
                self.closed.store(true, Ordering::Relaxed);
                return Err(Refusal::new(CLOSED, "the sync has ended"));
            }
        }
        Ok(())
    }

    /// An item that is wrong is told of; the document it is about stays as it was.
    fn bad(&self, bad: BadItem, position: u64) -> Vec<Change> {
        let reason = self.redactor.text(bad.reason);
        match bad.source_id {
            Some(source_id) => vec![Change::Unreadable { source_id, reason }],
            None => {
                // Whichever it is, it must not be taken for gone.
                self.doubtful.store(true, Ordering::Relaxed);
                vec![Change::Unreadable { source_id: format!("(item {position})"), reason }]
            }
        }
    }

    /// Hears that the script logged a line.
    pub(crate) fn hear(&self, level: LogLevel) {
        if level == LogLevel::Error {
            self.doubtful.store(true, Ordering::Relaxed);
        }
    }

    fn named_all(&self) -> bool {
        self.named.load(Ordering::Relaxed) > 0 && !self.doubtful.load(Ordering::Relaxed)
    }
}
