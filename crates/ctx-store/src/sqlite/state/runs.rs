//! Run records, with a bound on their age and on their number.

use super::file::{connect, sqlite_error};
use crate::error::StoreError;
use crate::state::{RUN_DAYS_KEPT, RUN_TREE_MAX, RUNS_KEPT, RecordedRun, RunFilter, with_nested_totals};
use ctx_core::{NestedCallStats, Run, RunId, RunOutcome};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of runs in the queue of the writer.
const QUEUE_RUNS_MAX: usize = 4_096;
/// How long a run may wait in the queue, so that several are written in one transaction.
const BATCH_DELAY: Duration = Duration::from_millis(200);
/// Batches between two removals of old runs.
const PRUNE_INTERVAL_BATCHES: u64 = 64;
/// Migrations of the file: each leads from the format of its index to the next.
const MIGRATIONS: &[&str] = &["CREATE TABLE runs (
       id TEXT PRIMARY KEY,
       parent TEXT,
       tool TEXT NOT NULL,
       caller TEXT NOT NULL,
       started_at INTEGER NOT NULL,
       duration_us INTEGER NOT NULL,
       arguments TEXT NOT NULL,
       argument_bytes INTEGER NOT NULL,
       result_bytes INTEGER NOT NULL,
       code TEXT,
       message TEXT
     ) STRICT, WITHOUT ROWID;
     CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;
     CREATE INDEX runs_by_time ON runs (started_at);"];

/// The record of runs.
pub(super) struct RunRecords {
    path: PathBuf,
    queue: Arc<RunQueue>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// The queue of the writer thread. A channel would wake the thread for each run.
#[derive(Default)]
struct RunQueue {
    queued: Mutex<QueuedRuns>,
    first_arrived: Condvar,
    closing: Condvar,
}

#[derive(Default)]
struct QueuedRuns {
    runs: Vec<Run>,
    is_open: bool,
    overflowed: bool,
}

impl RunRecords {
    /// The record at `path`, which need not exist yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, queue: Arc::default(), writer: Mutex::default() }
    }

    /// Opens the record and starts its writer thread; creates the file if it does not exist.
    pub(super) fn start(&self) -> Result<(), StoreError> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_some() {
            return Ok(());
        }
        let connection = connect(&self.path, MIGRATIONS)?;
        // Set before the writer starts, because the writer ends when the queue is closed.
        self.queue.lock().is_open = true;
        let started = std::thread::Builder::new().name("runs".to_owned()).spawn({
            let queue = self.queue.clone();
            move || write_batches(&connection, &queue)
        });
        *writer = Some(started.map_err(|error| {
            self.queue.lock().is_open = false;
            StoreError::Writer(error.to_string())
        })?);
        Ok(())
    }

    /// The newest outermost runs.
    pub(super) fn list(&self, filter: &RunFilter) -> Result<Vec<RecordedRun>, StoreError> {
        self.read(|connection| {
            connection
                .prepare(
                    "WITH RECURSIVE listed AS (
                       SELECT * FROM runs WHERE parent IS NULL AND (?1 IS NULL OR tool = ?1) AND (NOT ?2 OR code IS NOT NULL)
                       ORDER BY id DESC LIMIT ?3
                     ), inside (outermost, id, bytes) AS (
                       SELECT listed.id, runs.id, runs.result_bytes FROM listed JOIN runs ON runs.parent = listed.id
                       UNION SELECT inside.outermost, runs.id, runs.result_bytes
                       FROM inside JOIN runs ON runs.parent = inside.id
                     )
                     SELECT listed.*, count(inside.id), coalesce(sum(inside.bytes), 0)
                     FROM listed LEFT JOIN inside ON inside.outermost = listed.id
                     GROUP BY listed.id ORDER BY listed.id DESC",
                )?
                .query_map(params![filter.tool, filter.failed, filter.limit], |row| {
                    let run = run_from_row(row)?;
                    let inside = NestedCallStats::new(row.get(11)?, row.get(12)?, run.result_bytes);
                    Ok(RecordedRun { run, inside })
                })?
                .collect()
        })
    }

    /// A run and all runs nested in it, outermost first.
    pub(super) fn tree(&self, id: RunId) -> Result<Vec<RecordedRun>, StoreError> {
        let runs: Vec<Run> = self.read(|connection| {
            connection
                .prepare(
                    "WITH RECURSIVE tree (id) AS (
                       SELECT id FROM runs WHERE id = ?1
                       UNION SELECT runs.id FROM runs JOIN tree ON runs.parent = tree.id
                     )
                     SELECT runs.* FROM runs JOIN tree USING (id) ORDER BY runs.started_at, runs.id LIMIT ?2",
                )?
                .query_map(params![id.to_string(), RUN_TREE_MAX], run_from_row)?
                .collect()
        })?;
        Ok(with_nested_totals(runs))
    }

    /// The run whose id starts with `prefix`, if exactly one does.
    pub(super) fn find(&self, prefix: &str) -> Result<Option<RunId>, StoreError> {
        // Ids are hexadecimal with dashes. Other characters cannot match, and must not become a LIKE pattern.
        if prefix.is_empty() || !prefix.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
            return Ok(None);
        }
        let found: Vec<String> = self.read(|connection| {
            connection
                .prepare("SELECT id FROM runs WHERE id LIKE ?1 || '%' LIMIT 2")?
                .query_map([prefix.to_ascii_lowercase()], |row| row.get(0))?
                .collect()
        })?;
        match found.as_slice() {
            [id] => Ok(id.parse().ok()),
            _ => Ok(None),
        }
    }

    /// Writes the queued runs and ends the writer. Runs recorded after this call are dropped.
    pub(super) fn close(&self) {
        self.queue.lock().is_open = false;
        self.queue.first_arrived.notify_one();
        self.queue.closing.notify_one();
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()
            && writer.join().is_err()
        {
            tracing::warn!("the thread that records runs panicked");
        }
    }

    fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let connection = connect(&self.path, MIGRATIONS)?;
        work(&connection).map_err(|source| sqlite_error(&self.path, source))
    }
}

impl RunRecords {
    pub(super) fn record(&self, run: Run) {
        let mut queued = self.queue.lock();
        if !queued.is_open {
            return;
        }
        if queued.runs.len() >= QUEUE_RUNS_MAX {
            if !std::mem::replace(&mut queued.overflowed, true) {
                tracing::warn!("the queue of runs to record is full; some runs are not recorded");
            }
            return;
        }
        queued.runs.push(run);
        if queued.runs.len() == 1 {
            self.queue.first_arrived.notify_one();
        }
    }
}

impl RunQueue {
    fn lock(&self) -> MutexGuard<'_, QueuedRuns> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch: the first run, and those that arrive within [`BATCH_DELAY`], since one transaction for many costs
    /// hardly more than for one. `None` when the queue is closed and empty.
    fn next_batch(&self) -> Option<Vec<Run>> {
        let idle = |queued: &mut QueuedRuns| queued.runs.is_empty() && queued.is_open;
        let queued = self.first_arrived.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        let open = |queued: &mut QueuedRuns| queued.is_open;
        let waited = self.closing.wait_timeout_while(queued, BATCH_DELAY, open);
        let (mut queued, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let runs = std::mem::take(&mut queued.runs);
        (!runs.is_empty()).then_some(runs)
    }
}

impl Drop for RunRecords {
    fn drop(&mut self) {
        self.close();
    }
}

fn write_batches(connection: &Connection, queue: &RunQueue) {
    let mut batches = 0u64;
    while let Some(runs) = queue.next_batch() {
        if let Err(error) =
            write_batch(connection, runs.into_iter(), batches.is_multiple_of(PRUNE_INTERVAL_BATCHES))
        {
            tracing::warn!(%error, "cannot record runs");
        }
        batches += 1;
    }
}

fn write_batch(
    connection: &Connection,
    batch: impl Iterator<Item = Run>,
    prune: bool,
) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    let mut insert = transaction.prepare_cached(
        "INSERT OR REPLACE INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    for run in batch {
        let (code, message) = match run.outcome {
            RunOutcome::Ok => (None, None),
            RunOutcome::Failed { code, message } => (Some(code), Some(message)),
        };
        insert.execute(params![
            run.id.to_string(),
            run.parent.map(|parent| parent.to_string()),
            run.tool,
            run.caller,
            run.started_at.as_millisecond(),
            i64::try_from(run.duration.as_micros()).unwrap_or(i64::MAX),
            run.arguments.to_string(),
            run.argument_bytes,
            run.result_bytes,
            code,
            message,
        ])?;
    }
    drop(insert);
    if prune {
        self::prune(&transaction)?;
    }
    transaction.commit()
}

fn prune(connection: &Connection) -> rusqlite::Result<()> {
    let oldest = Timestamp::now().as_millisecond() - RUN_DAYS_KEPT * 24 * 3_600_000;
    connection.execute("DELETE FROM runs WHERE started_at < ?1", [oldest])?;
    let oldest_kept: Option<String> = connection
        .query_row("SELECT id FROM runs ORDER BY id DESC LIMIT 1 OFFSET ?1", [RUNS_KEPT - 1], |row| {
            row.get(0)
        })
        .optional()?;
    if let Some(id) = oldest_kept {
        connection.execute("DELETE FROM runs WHERE id < ?1", [id])?;
    }
    Ok(())
}

fn run_from_row(row: &Row<'_>) -> rusqlite::Result<Run> {
    let conversion = |index, error: Box<dyn std::error::Error + Send + Sync>| {
        rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Text, error)
    };
    let id = |index: usize| -> rusqlite::Result<Option<RunId>> {
        let text: Option<String> = row.get(index)?;
        text.map(|text| text.parse().map_err(|error: uuid::Error| conversion(index, error.into())))
            .transpose()
    };
    let code: Option<String> = row.get(9)?;
    Ok(Run {
        id: id(0)?.ok_or(rusqlite::Error::InvalidQuery)?,
        parent: id(1)?,
        tool: row.get(2)?,
        caller: row.get(3)?,
        started_at: Timestamp::from_millisecond(row.get(4)?).unwrap_or(Timestamp::UNIX_EPOCH),
        duration: Duration::from_micros(row.get(5)?),
        arguments: serde_json::from_str(&row.get::<_, String>(6)?).unwrap_or_default(),
        argument_bytes: row.get(7)?,
        result_bytes: row.get(8)?,
        outcome: match code {
            None => RunOutcome::Ok,
            Some(code) => {
                RunOutcome::Failed { code, message: row.get::<_, Option<String>>(10)?.unwrap_or_default() }
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    impl RunRecords {
        fn open(path: &Path) -> Result<Self, StoreError> {
            let runs = Self::new(path.to_owned());
            runs.start().map(|()| runs)
        }
    }

    use serde_json::json;

    fn sample(id: u128, parent: Option<u128>, code: Option<&str>) -> Run {
        let run_id = |id: u128| uuid::Uuid::from_u128(id).to_string().parse::<RunId>().unwrap();
        Run {
            id: run_id(id),
            parent: parent.map(run_id),
            tool: "context.search".to_owned(),
            caller: "cli".to_owned(),
            started_at: Timestamp::from_millisecond(Timestamp::now().as_millisecond()).unwrap(),
            duration: Duration::from_micros(1_500),
            arguments: json!({"query": "x"}),
            argument_bytes: 13,
            result_bytes: 40,
            outcome: code.map_or(RunOutcome::Ok, |code| RunOutcome::Failed {
                code: code.to_owned(),
                message: "no".to_owned(),
            }),
        }
    }

    fn list_all(runs: &RunRecords) -> Vec<Run> {
        let listed = runs.list(&RunFilter { limit: 100_000, ..RunFilter::default() }).unwrap();
        listed.into_iter().map(|recorded| recorded.run).collect()
    }

    #[test]
    fn what_was_recorded_comes_back_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.sqlite");
        let (outer, inner) = (sample(1, None, None), sample(2, Some(1), Some("timeout")));
        let runs = RunRecords::open(&path).unwrap();
        runs.record(inner.clone());
        runs.record(outer.clone());
        drop(runs);

        let runs = RunRecords::open(&path).unwrap();
        assert_eq!(list_all(&runs), std::slice::from_ref(&outer));
        assert_eq!(runs.tree(outer.id).unwrap().len(), 2);
        assert!(runs.tree(outer.id).unwrap().iter().any(|recorded| recorded.run == inner));
        assert_eq!(runs.find(&outer.id.to_string()[..36]).unwrap(), Some(outer.id));
        assert_eq!(runs.find("%").unwrap(), None);
    }

    #[test]
    fn runs_of_every_format_are_kept() {
        for format in 1..=MIGRATIONS.len() {
            let (_folder, path) = crate::fixtures::load("state", &MIGRATIONS[..format]);
            let runs = RunRecords::new(path);
            let all = list_all(&runs);
            let searched: Vec<&str> = all.iter().filter_map(|run| run.arguments["query"].as_str()).collect();
            assert_eq!(searched, ["lever", "button"]);
            assert_eq!((all[1].tool.as_str(), all[1].result_bytes), ("context.search", 254));
            assert_eq!(all[1].started_at, Timestamp::from_millisecond(1_795_034_021_434).unwrap());
            let tree = runs.tree(all[1].id).unwrap();
            assert_eq!((tree.len(), tree[0].inside.calls), (2, 1));
            assert!(matches!(&tree[1].run.outcome, RunOutcome::Failed { code, .. } if code == "not_found"));
        }
    }

    #[test]
    fn only_the_newest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.sqlite");
        let connection = connect(&path, MIGRATIONS).unwrap();
        let more = RUNS_KEPT as u128 + 50;
        write_batch(&connection, (1..=more).map(|id| sample(id, None, None)), true).unwrap();
        let runs = RunRecords::open(&path).unwrap();
        let remaining = list_all(&runs);
        assert_eq!(remaining.len(), RUNS_KEPT);
        assert_eq!(remaining[0].id, sample(more, None, None).id);
    }

    #[test]
    fn calls_inside_are_counted_at_any_depth_with_what_they_kept() {
        let folder = tempfile::tempdir().unwrap();
        let runs = RunRecords::open(&folder.path().join("state.sqlite")).unwrap();
        // Run 1 has the nested runs 2 and 3, run 3 has run 4. Run 5 has none.
        for (id, parent) in [(1, None), (2, Some(1)), (3, Some(1)), (4, Some(3)), (5, None)] {
            let bytes = usize::try_from(id).unwrap() * 100;
            runs.record(Run { result_bytes: bytes, ..sample(id, parent, None) });
        }
        runs.close();
        let inside = |calls, bytes_kept| NestedCallStats { calls, bytes_kept };
        let listed = runs.list(&RunFilter { limit: 10, ..RunFilter::default() }).unwrap();
        let totals: Vec<NestedCallStats> = listed.iter().map(|recorded| recorded.inside).collect();
        assert_eq!(totals, [inside(0, 0), inside(3, 200 + 300 + 400 - 100)]);
        let tree = runs.tree(listed[1].run.id).unwrap();
        let totals: Vec<NestedCallStats> = tree.iter().map(|recorded| recorded.inside).collect();
        assert_eq!(totals, [inside(3, 800), inside(0, 0), inside(1, 100), inside(0, 0)]);
        assert_eq!(runs.list(&RunFilter { limit: 1, ..RunFilter::default() }).unwrap(), listed[..1]);
        let json = serde_json::to_value(&listed[1]).unwrap();
        assert_eq!(
            (&json["calls"], &json["bytes_kept"], &json["tool"]),
            (&json!(3), &json!(800), &json!("context.search"))
        );
    }

    #[test]
    fn a_newer_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.sqlite");
        connect(&path, MIGRATIONS).unwrap().pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(RunRecords::open(&path), Err(StoreError::Newer { found: 99, .. })));
    }

    #[test]
    fn failures_can_be_listed_alone() {
        let folder = tempfile::tempdir().unwrap();
        let runs = RunRecords::open(&folder.path().join("state.sqlite")).unwrap();
        runs.record(sample(1, None, None));
        runs.record(sample(2, None, Some("bad_request")));
        runs.close();
        let failed = runs.list(&RunFilter { limit: 10, failed: true, ..RunFilter::default() }).unwrap();
        assert_eq!(failed.len(), 1);
    }
}
