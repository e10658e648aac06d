//! Automatic syncs while a command runs: when a watched source changes and on schedule, with backoff after failures.

use crate::admin::{self, PARALLEL_SYNCS_MAX, SourceOutcome, SyncSources, SyncSourcesRequest};
use crate::config::SectionChanges;
use crate::error::{CommandError, Exit};
use crate::workspace::{SourceFreshness, Workspace, time_until_due};
use ctx_core::{Call, Caller, Catalog, SourceName, Watch};
use ctx_knowledge::{SyncReport, Warning};
use jiff::Timestamp;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Backoff after a failure: the first pause, doubled each time up to the last.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_LAST: Duration = Duration::from_secs(300);
/// The pause before the next attempt while another process syncs the source.
const RETRY_BUSY: Duration = Duration::from_secs(2);
/// Maximum pause after a sync. The pause is as long as the sync took, so that a source that changes all the time
/// keeps a processor busy for at most half of the time.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A result of a sync to report to the user.
pub(in crate::commands) enum SyncEvent<'a> {
    /// A sync changed documents, or succeeded after a failure.
    Synced(&'a SyncReport),
    /// The list of unreadable documents has changed.
    Warned(&'a SyncReport),
    /// A sync failed, for another reason than the one before it.
    Failed(&'a CommandError),
}

/// Receives the results of syncs.
pub(in crate::commands) type SyncReporter = Arc<dyn Fn(SyncEvent<'_>) + Send + Sync>;

/// The result of a sync of one source.
pub(super) type SyncResult = Result<SyncReport, CommandError>;

/// A source that is kept fresh, with its schedule and the last reported problems.
pub(super) struct SourceRefresh {
    name: SourceName,
    watch: bool,
    every: Option<Duration>,
    /// Time of the next scheduled sync.
    due: Option<Instant>,
    retry: Duration,
    /// The unreadable documents and the failure that were reported last.
    warnings: Vec<Warning>,
    failure: Option<Vec<String>>,
}

impl SourceRefresh {
    /// A source that was just synced.
    pub(super) fn after_sync(freshness: &SourceFreshness, result: &SyncResult) -> Self {
        let mut source = Self::new(freshness);
        source.record_result(result, Instant::now(), &|_| ());
        source
    }

    /// A source with the time of its last sync, if any.
    pub(super) fn since_last_sync(
        freshness: &SourceFreshness,
        last_sync: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let mut source = Self::new(freshness);
        source.due = source.every.map(|every| Instant::now() + time_until_due(every, last_sync, now));
        source
    }

    /// A source whose next sync is due immediately.
    fn due_now(freshness: &SourceFreshness) -> Self {
        Self { due: Some(Instant::now()), ..Self::new(freshness) }
    }

    fn new(freshness: &SourceFreshness) -> Self {
        Self {
            name: freshness.name.clone(),
            watch: freshness.watch,
            every: freshness.every.map(|every| every.duration()),
            due: None,
            retry: RETRY_FIRST,
            warnings: Vec::new(),
            failure: None,
        }
    }

    /// Records the result of a sync, reports changes to it, and schedules the next sync.
    fn record_result(&mut self, result: &SyncResult, now: Instant, report_event: &dyn Fn(SyncEvent<'_>)) {
        match result {
            Ok(report) => {
                let recovered = self.failure.take().is_some();
                if report.warnings != self.warnings {
                    report_event(SyncEvent::Warned(report));
                    self.warnings.clone_from(&report.warnings);
                }
                if recovered || report.added + report.updated + report.deleted > 0 {
                    report_event(SyncEvent::Synced(report));
                }
                self.retry = RETRY_FIRST;
                self.due = self.every.map(|every| now + every);
            }
            Err(error) if error.exit == Exit::Busy => self.due = Some(now + RETRY_BUSY),
            Err(error) => {
                if self.failure.as_ref() != Some(&error.messages) {
                    report_event(SyncEvent::Failed(error));
                    self.failure = Some(error.messages.clone());
                }
                self.due = Some(now + self.retry);
                self.retry = (self.retry * 2).min(RETRY_LAST);
            }
        }
    }

    /// Whether the source is watched or has a schedule.
    fn has_work(&self) -> bool {
        self.watch || self.every.is_some() || self.due.is_some()
    }

    /// Syncs the source when the watch signals a change or a sync is due, one sync at a time, until `shutdown`.
    async fn run<F>(
        mut self,
        mut watch: Option<Watch>,
        sync: impl Fn(SourceName) -> F,
        report_event: SyncReporter,
        shutdown: CancellationToken,
    ) where
        F: Future<Output = SyncResult>,
    {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = sleep_until_due(self.due) => {}
                () = wait_for_change(&mut watch) => {}
            }
            let started = Instant::now();
            let result = sync(self.name.clone()).await;
            if result.is_err() && shutdown.is_cancelled() {
                // Interrupted by the shutdown: not a failure to report.
                return;
            }
            self.record_result(&result, Instant::now(), &*report_event);
            let pause = sleep(started.elapsed().min(PAUSE_MAX));
            shutdown.run_until_cancelled(pause).await;
        }
    }
}

async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn wait_for_change(watch: &mut Option<Watch>) {
    if let Some(watched) = watch
        && watched.changed().await
    {
        return;
    }
    *watch = None;
    std::future::pending().await
}

/// The running tasks that keep sources fresh, one per source.
pub(super) struct RefreshTasks {
    tasks: JoinSet<()>,
}

impl RefreshTasks {
    /// Starts a task per source. They end soon after `shutdown`, between two documents.
    pub(super) fn start(
        workspace: &Workspace,
        sources: Vec<SourceRefresh>,
        report_event: &SyncReporter,
        shutdown: &CancellationToken,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(PARALLEL_SYNCS_MAX));
        let mut tasks = JoinSet::new();
        for source in sources.into_iter().filter(SourceRefresh::has_work) {
            let watch = if source.watch { workspace.knowledge.watch(&source.name) } else { None };
            let (catalog, permits, stop) = (workspace.catalog.clone(), permits.clone(), shutdown.clone());
            let sync = move |name: SourceName| {
                let (catalog, permits, stop) = (catalog.clone(), permits.clone(), stop.clone());
                async move {
                    let _permit = permits.acquire().await;
                    sync_one(catalog.current(), &name, &stop).await
                }
            };
            tasks.spawn(source.run(watch, sync, report_event.clone(), shutdown.clone()));
        }
        Self { tasks }
    }

    /// The sources of a workspace with their schedules, for a server.
    pub(super) fn of(workspace: &Workspace) -> Vec<SourceRefresh> {
        let now = Timestamp::now();
        let source = |freshness: &SourceFreshness| {
            let last_sync = workspace.knowledge.last_sync(&freshness.name).unwrap_or_default();
            SourceRefresh::since_last_sync(freshness, last_sync, now)
        };
        workspace.freshness.iter().map(source).collect()
    }

    /// The sources of a workspace after a configuration reload. New and changed sources are due immediately, and so are
    /// watched ones, which may have changed during the reload.
    pub(super) fn after(workspace: &Workspace, changes: &SectionChanges) -> Vec<SourceRefresh> {
        let all_changed = ["chunking", "embedding", "limits"].iter().any(|section| changes.contains(section));
        let sources = Self::of(workspace).into_iter().zip(&workspace.freshness);
        let refreshed = sources.map(|(source, freshness)| {
            let is_due = all_changed || freshness.watch || changes.contains(&freshness.section());
            if is_due { SourceRefresh::due_now(freshness) } else { source }
        });
        refreshed.collect()
    }

    /// Waits for all tasks to end.
    pub(super) async fn end(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Syncs one source by a call through the catalog, without progress.
async fn sync_one(catalog: Arc<Catalog>, name: &SourceName, stop: &CancellationToken) -> SyncResult {
    let call = Call::new(catalog, Caller::Cli).with_cancellation(stop);
    let request = SyncSourcesRequest { sources: vec![name.to_string()], ..SyncSourcesRequest::default() };
    let synced = admin::call_with::<SyncSources>(call, request).await?.sources.into_iter().next();
    let missing = || CommandError::new(format!("{name}: the sync returned no result"));
    synced.map_or_else(|| Err(missing()), SourceOutcome::into_result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SyncInterval;
    use std::sync::Mutex;

    fn freshness(every: Option<&str>) -> SourceFreshness {
        let every = every.map(|text| SyncInterval::try_from(text.to_owned()).unwrap());
        SourceFreshness { name: SourceName::new("git", "platform"), every, watch: false }
    }

    fn synced_with(added: u64) -> SyncResult {
        Ok(SyncReport { added, ..SyncReport::default() })
    }

    fn failed_with(message: &str) -> SyncResult {
        Err(CommandError::new(message))
    }

    fn busy() -> SyncResult {
        Err(CommandError { exit: Exit::Busy, ..CommandError::new("busy") })
    }

    /// Records a result, and returns which reports it caused.
    fn reported_events(source: &mut SourceRefresh, result: &SyncResult) -> Vec<&'static str> {
        let reported_events = Mutex::new(Vec::new());
        source.record_result(result, Instant::now(), &|event| {
            reported_events.lock().unwrap().push(match event {
                SyncEvent::Synced(_) => "synced",
                SyncEvent::Warned(_) => "warned",
                SyncEvent::Failed(_) => "failed",
            });
        });
        reported_events.into_inner().unwrap()
    }

    /// Seconds until the next sync after a sync with this result.
    fn next(source: &mut SourceRefresh, result: &SyncResult) -> Option<u64> {
        let now = Instant::now();
        source.record_result(result, now, &|_| ());
        source.due.map(|due| (due - now).as_secs())
    }

    #[tokio::test]
    async fn a_source_is_due_when_its_time_has_passed_since_the_last_sync() {
        let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        let due_in = |every, last: Option<&str>| {
            let last = last.map(|last| last.parse().unwrap());
            let started = Instant::now();
            let due = SourceRefresh::since_last_sync(&freshness(every), last, now).due;
            // In whole minutes, since some time passes during the test.
            due.map(|due| (due - started).as_secs_f64().div_euclid(60.0) as u64)
        };
        assert_eq!(due_in(Some("15m"), Some("2026-01-31T11:50:30Z")), Some(5));
        assert_eq!(due_in(Some("15m"), Some("2026-01-31T11:00:00Z")), Some(0));
        assert_eq!(due_in(Some("15m"), None), Some(0));
        assert_eq!(due_in(Some("15m"), Some("2027-01-01T00:00:00Z")), Some(0), "a clock that was ahead");
        let (first, last) = (Timestamp::MIN.to_string(), Timestamp::MAX.to_string());
        assert_eq!(
            (due_in(Some("366d"), Some(&first)), due_in(Some("366d"), Some(&last))),
            (Some(0), Some(0))
        );
        assert_eq!(due_in(None, Some("2026-01-31T11:00:00Z")), None);
    }

    #[tokio::test]
    async fn failures_are_retried_with_backoff_and_success_returns_to_the_schedule() {
        let mut source = SourceRefresh::after_sync(&freshness(Some("15m")), &synced_with(0));
        let waits: Vec<_> = (0..8).map(|_| next(&mut source, &failed_with("no")).unwrap()).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(next(&mut source, &busy()), Some(2));
        assert_eq!(next(&mut source, &synced_with(1)), Some(900));
        assert_eq!(next(&mut source, &failed_with("no")), Some(5));
        assert_eq!(next(&mut SourceRefresh::new(&freshness(None)), &synced_with(1)), None);
    }

    #[tokio::test]
    async fn only_changes_are_reported() {
        let mut source = SourceRefresh::after_sync(&freshness(None), &synced_with(0));
        assert_eq!(reported_events(&mut source, &synced_with(0)), [""; 0]);
        assert_eq!(reported_events(&mut source, &synced_with(1)), ["synced"]);
        assert_eq!(reported_events(&mut source, &busy()), [""; 0]);
        assert_eq!(reported_events(&mut source, &failed_with("no")), ["failed"]);
        assert_eq!(reported_events(&mut source, &failed_with("no")), [""; 0]);
        assert_eq!(reported_events(&mut source, &failed_with("not at all")), ["failed"]);
        assert_eq!(reported_events(&mut source, &synced_with(0)), ["synced"], "it can be read again");
        let warning = Warning { source_id: "a".to_owned(), reason: "locked".to_owned() };
        let warned = Ok(SyncReport { warnings: vec![warning], ..SyncReport::default() });
        assert_eq!(reported_events(&mut source, &warned), ["warned"]);
        assert_eq!(reported_events(&mut source, &warned), [""; 0]);
    }

    #[tokio::test]
    async fn a_source_is_synced_on_schedule_and_on_change_until_the_end() {
        let shutdown = CancellationToken::new();
        let (signal, watch) = Watch::channel();
        let mut source = SourceRefresh::new(&freshness(None));
        source.every = Some(Duration::from_millis(1));
        source.due = Some(Instant::now());
        let syncs = Mutex::new(0);
        let sync = |_| {
            let count = {
                let mut syncs = syncs.lock().unwrap();
                *syncs += 1;
                *syncs
            };
            match count {
                // From here on only a change causes the next sync.
                3 => signal.send(),
                4 => shutdown.cancel(),
                _ => {}
            }
            std::future::ready(if count == 3 { failed_with("the schedule waits") } else { synced_with(0) })
        };
        source.run(Some(watch), sync, Arc::new(|_| ()), shutdown.clone()).await;
        assert_eq!(*syncs.lock().unwrap(), 4);
    }
}
