//! State in memory.

use crate::error::StoreError;
use crate::state::{
    DefinitionKey, RUN_DAYS_KEPT, RUN_TREE_MAX, RUNS_KEPT, RecordedRun, RunFilter, ServerDefinitions, State,
    with_nested_totals,
};
use ctx_core::{Run, RunId, RunLog, RunOutcome};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of records per server name, each for another way to reach it; the same as in SQLite.
const REACHES_MAX: usize = 4;

/// State that lasts until its last handle is dropped.
#[derive(Default)]
pub struct MemoryState {
    content: Arc<Mutex<StateContent>>,
    is_recording: AtomicBool,
    /// Whether recording the next run also removes old runs.
    is_pruning_due: AtomicBool,
}

#[derive(Default)]
struct StateContent {
    runs: BTreeMap<String, Run>,
    /// By name and `reach`, the most recently seen last.
    definitions: Vec<((String, String), ServerDefinitions)>,
}

impl MemoryState {
    /// Another handle to the same state, as another process would open it. It is not recording yet.
    pub fn another_handle(&self) -> Self {
        Self { content: self.content.clone(), ..Self::default() }
    }

    fn content(&self) -> MutexGuard<'_, StateContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateContent {
    fn find_definitions(&mut self, server: &DefinitionKey<'_>) -> Option<&mut ServerDefinitions> {
        let is_match = |(name, reach): &(String, String)| name == server.name && reach == server.address;
        self.definitions.iter_mut().find(|(key, _)| is_match(key)).map(|(_, record)| record)
    }

    fn tree(&self, id: RunId) -> Vec<RecordedRun> {
        let mut tree: Vec<Run> = self.runs.get(&id.to_string()).cloned().into_iter().collect();
        let mut next = 0;
        while let Some(parent) = tree.get(next).map(|run| run.id) {
            tree.extend(self.runs.values().filter(|run| run.parent == Some(parent)).cloned());
            next += 1;
        }
        tree.sort_by_key(|run| (run.started_at, run.id.to_string()));
        tree.truncate(RUN_TREE_MAX);
        with_nested_totals(tree)
    }

    fn prune(&mut self) {
        let now = Timestamp::now().as_millisecond();
        let is_kept = |run: &Run| run.started_at.as_millisecond() >= now - RUN_DAYS_KEPT * 24 * 3_600_000;
        self.runs.retain(|_, run| is_kept(run));
        while self.runs.len() > RUNS_KEPT {
            self.runs.pop_first();
        }
    }
}

impl RunLog for MemoryState {
    fn record(&self, run: Run) {
        if !self.is_recording.load(Ordering::SeqCst) {
            return;
        }
        let mut content = self.content();
        content.runs.insert(run.id.to_string(), run);
        if self.is_pruning_due.swap(false, Ordering::SeqCst) {
            content.prune();
        }
    }
}

impl State for MemoryState {
    fn start_recording(&self) -> Result<(), StoreError> {
        self.is_pruning_due.store(true, Ordering::SeqCst);
        self.is_recording.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn stop_recording(&self) {
        self.is_recording.store(false, Ordering::SeqCst);
    }

    fn runs(&self, filter: &RunFilter) -> Result<Vec<RecordedRun>, StoreError> {
        let mut newest_first = with_nested_totals(self.content().runs.values().rev().cloned().collect());
        newest_first.retain(|RecordedRun { run, .. }| {
            run.parent.is_none()
                && filter.tool.as_ref().is_none_or(|tool| *tool == run.tool)
                && (!filter.failed || run.outcome != RunOutcome::Ok)
        });
        newest_first.truncate(filter.limit);
        Ok(newest_first)
    }

    fn run_tree(&self, id: RunId) -> Result<Vec<RecordedRun>, StoreError> {
        Ok(self.content().tree(id))
    }

    fn find_run(&self, prefix: &str) -> Result<Option<RunId>, StoreError> {
        let (content, prefix) = (self.content(), prefix.to_ascii_lowercase());
        let mut found = content.runs.values().filter(|run| run.id.to_string().starts_with(&prefix));
        match (prefix.is_empty(), found.next(), found.next()) {
            (false, Some(run), None) => Ok(Some(run.id)),
            _ => Ok(None),
        }
    }

    fn definitions(&self, server: &DefinitionKey<'_>) -> Result<Option<ServerDefinitions>, StoreError> {
        Ok(self.content().find_definitions(server).cloned())
    }

    fn record_definitions(
        &self,
        server: &DefinitionKey<'_>,
        seen: &str,
    ) -> Result<ServerDefinitions, StoreError> {
        let mut content = self.content();
        let accepted = content
            .find_definitions(server)
            .map_or_else(|| seen.to_owned(), |record| record.accepted.clone());
        let record = ServerDefinitions { seen: seen.to_owned(), accepted };
        let key = (server.name.to_owned(), server.address.to_owned());
        content.definitions.retain(|(known, _)| *known != key);
        content.definitions.push((key, record.clone()));
        let reaches = content.definitions.iter().filter(|((name, _), _)| name == server.name).count();
        if reaches > REACHES_MAX
            && let Some(oldest) = content.definitions.iter().position(|((name, _), _)| name == server.name)
        {
            content.definitions.remove(oldest);
        }
        Ok(record)
    }

    fn accept_definitions(&self, server: &DefinitionKey<'_>, accepted: &str) -> Result<bool, StoreError> {
        let mut content = self.content();
        let Some(record) = content.find_definitions(server) else { return Ok(false) };
        record.accepted = accepted.to_owned();
        Ok(true)
    }

    fn replace_accepted_if(
        &self,
        server: &DefinitionKey<'_>,
        before: &str,
        accepted: &str,
    ) -> Result<bool, StoreError> {
        let mut content = self.content();
        let Some(record) = content.find_definitions(server).filter(|record| record.accepted == before) else {
            return Ok(false);
        };
        record.accepted = accepted.to_owned();
        Ok(true)
    }
}
