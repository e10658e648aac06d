//! Connectors defined by a script.
//!
//! A complete scan lists all items of the source, and documents that it does not list are deleted. A scan
//! with a cursor lists changes, and deletes only the items that it names in `deleted`. A scan that lists
//! nothing, logs an error or emits an item without a `source_id` may be incomplete: it deletes no unlisted
//! documents, like a scan that fails.

use super::item::{InvalidItem, parse_item};
use super::{Script, ScriptDefinition};
use crate::engine::{HostError, RunError, RunErrorKind, ScriptEntry};
use crate::scripts::{ScriptProblem, ScriptRuntime};
use crate::vm::LogLevel;
use crate::world::ScriptWorld;
use async_trait::async_trait;
use ctx_core::{Change, Connector, Cursor, Listing, PullResult, Redactor, Sink, SourceError};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Error code of `emit` after the sync has ended.
const CLOSED: &str = "closed";

/// A script that defines `connector`.
pub(crate) struct ScriptConnector {
    script: Script,
    /// Whether a scan without a cursor lists all items of the source.
    complete: bool,
}

impl ScriptConnector {
    /// The connector that a script defines.
    pub(crate) fn new(script: Script, definition: &ScriptDefinition) -> Result<Self, ScriptProblem> {
        let complete = match definition.table.get("complete") {
            None | Some(Value::Null) => true,
            Some(Value::Bool(complete)) => *complete,
            Some(_) => return Err(definition.problem("connector.complete must be true or false")),
        };
        Ok(Self { script, complete })
    }

    fn time_limit(&self) -> Duration {
        self.script.timeout(self.script.runtime.limits.connector_timeout)
    }

    fn unavailable(&self, error: RunError) -> SourceError {
        let display_name = &self.script.display_name;
        SourceError::Unavailable(match error.kind {
            RunErrorKind::Time => {
                format!(
                    "{display_name}: the scan timed out after {} seconds",
                    self.time_limit().as_secs_f64()
                )
            }
            _ => error.message,
        })
    }
}

#[async_trait]
impl Connector for ScriptConnector {
    async fn pull(&self, cursor: Option<&Cursor>, sink: &Sink) -> Result<PullResult, SourceError> {
        // An unreadable cursor was not issued here: the scan starts from the beginning.
        let start_cursor =
            cursor.and_then(|Cursor(text)| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
        let uses_cursor = !start_cursor.is_null();
        let limits = &self.script.runtime.limits;
        let mut run = self.script.run(ScriptEntry::Connector, vec![self.script.config(), start_cursor]);
        run.deadline = Instant::now() + self.time_limit();
        run.memory_bytes = limits.connector_memory_bytes;
        let emitter = Emitter::new(sink, &self.script.runtime);
        let completed = {
            let world = ScriptWorld::for_sync(&self.script, &emitter);
            self.script.runtime.engine.run(&run, &world).await
        };
        if emitter.closed.load(Ordering::Relaxed) {
            return Err(SourceError::Closed(ctx_core::SinkClosed));
        }
        let completed = completed.map_err(|mut error| {
            error.message = emitter.redactor.text(error.message);
            self.unavailable(error)
        })?;
        let cursor = completed.value.get("cursor").filter(|cursor| !cursor.is_null());
        let complete = self.complete && !uses_cursor && cursor.is_none() && emitter.lists_everything();
        Ok(PullResult {
            cursor: cursor.map(|cursor| Cursor(cursor.to_string())),
            listing: if complete { Listing::Complete } else { Listing::Partial },
        })
    }

    async fn check(&self) -> Result<(), SourceError> {
        let Some(settings) = &self.script.settings else { return Ok(()) };
        let script = Script::read(&self.script.runtime, settings).await;
        let definition = match script {
            Ok(script) => script.describe().await,
            Err(problem) => Err(problem),
        };
        definition
            .and_then(|definition| definition.check_contract(super::ScriptKind::Connector, &settings.name))
            .map_err(|problem| SourceError::Unavailable(problem.message))
    }
}

/// Receives the items of one scan, and sends them to the sync as changes.
pub(crate) struct Emitter<'a> {
    sink: &'a Sink,
    document_bytes_max: usize,
    pub(crate) redactor: Redactor,
    /// Number of items received.
    received: AtomicU64,
    /// Number of changes other than deletions.
    changes_sent: AtomicU64,
    /// Whether the scan may have missed an existing item.
    may_be_incomplete: AtomicBool,
    /// Whether the sync has ended and accepts no more changes.
    closed: AtomicBool,
}

impl<'a> Emitter<'a> {
    fn new(sink: &'a Sink, scripts: &ScriptRuntime) -> Self {
        Self {
            sink,
            document_bytes_max: scripts.limits.document_bytes,
            redactor: scripts.redactor.clone(),
            received: AtomicU64::new(0),
            changes_sent: AtomicU64::new(0),
            may_be_incomplete: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// Sends one item to the sync; waits while the sync's queue is full.
    pub(crate) async fn emit(&self, item: Value) -> Result<(), HostError> {
        let position = self.received.fetch_add(1, Ordering::Relaxed) + 1;
        let changes = parse_item(item, self.document_bytes_max)
            .unwrap_or_else(|invalid| self.report_invalid(invalid, position));
        for change in changes {
            if !matches!(change, Change::Delete { .. }) {
                self.changes_sent.fetch_add(1, Ordering::Relaxed);
            }
            if self.sink.send(change).await.is_err() {
                self.closed.store(true, Ordering::Relaxed);
                return Err(HostError::new(CLOSED, "the sync has ended"));
            }
        }
        Ok(())
    }

    /// Reports an invalid item as unreadable; its stored document stays unchanged.
    fn report_invalid(&self, invalid: InvalidItem, position: u64) -> Vec<Change> {
        let reason = self.redactor.text(invalid.reason);
        match invalid.source_id {
            Some(source_id) => vec![Change::Unreadable { source_id, reason }],
            None => {
                // Any stored document may be this item, so the scan must not delete unlisted ones.
                self.may_be_incomplete.store(true, Ordering::Relaxed);
                vec![Change::Unreadable { source_id: format!("(item {position})"), reason }]
            }
        }
    }

    /// Notes a log line: a scan that logs an error is not complete.
    pub(crate) fn note_log_level(&self, level: LogLevel) {
        if level == LogLevel::Error {
            self.may_be_incomplete.store(true, Ordering::Relaxed);
        }
    }

    fn lists_everything(&self) -> bool {
        self.changes_sent.load(Ordering::Relaxed) > 0 && !self.may_be_incomplete.load(Ordering::Relaxed)
    }
}
