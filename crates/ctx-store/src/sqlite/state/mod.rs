//! The SQLite backend for state, in files apart from the documents, so that losing one loses no document.
//!
//! Recording never waits: runs go to a writer thread through a bounded queue. A full queue drops runs and logs a
//! warning.

mod definitions;
mod file;
mod runs;

pub(crate) use file::{
    connect as connect_state, create as create_state, place as state_place, sqlite_error as state_error,
};

use crate::error::StoreError;
use crate::state::{DefinitionKey, RecordedRun, RunFilter, ServerDefinitions, State};
use ctx_core::{Run, RunId, RunLog};
use definitions::DefinitionRecords;
use runs::RunRecords;
use std::path::PathBuf;

/// Paths of the state files, which need not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFiles {
    /// The record of runs.
    pub runs: PathBuf,
    /// Definitions of upstream servers' tools.
    pub definitions: PathBuf,
}

/// State in SQLite files. No file is opened before it is needed.
pub struct SqliteState {
    runs: RunRecords,
    definitions: DefinitionRecords,
}

impl SqliteState {
    /// The state in these files.
    pub fn new(files: StateFiles) -> Self {
        Self { runs: RunRecords::new(files.runs), definitions: DefinitionRecords::new(files.definitions) }
    }
}

impl RunLog for SqliteState {
    fn record(&self, run: Run) {
        self.runs.record(run);
    }
}

impl State for SqliteState {
    fn start_recording(&self) -> Result<(), StoreError> {
        self.runs.start()
    }

    fn stop_recording(&self) {
        self.runs.close();
    }

    fn runs(&self, filter: &RunFilter) -> Result<Vec<RecordedRun>, StoreError> {
        self.runs.list(filter)
    }

    fn run_tree(&self, id: RunId) -> Result<Vec<RecordedRun>, StoreError> {
        self.runs.tree(id)
    }

    fn find_run(&self, prefix: &str) -> Result<Option<RunId>, StoreError> {
        self.runs.find(prefix)
    }

    fn definitions(&self, server: &DefinitionKey<'_>) -> Result<Option<ServerDefinitions>, StoreError> {
        self.definitions.get(server.name, server.address)
    }

    fn record_definitions(
        &self,
        server: &DefinitionKey<'_>,
        seen: &str,
    ) -> Result<ServerDefinitions, StoreError> {
        self.definitions.record_seen(server.name, server.address, seen)
    }

    fn accept_definitions(&self, server: &DefinitionKey<'_>, accepted: &str) -> Result<bool, StoreError> {
        self.definitions.accept(server.name, server.address, accepted)
    }

    fn replace_accepted_if(
        &self,
        server: &DefinitionKey<'_>,
        before: &str,
        accepted: &str,
    ) -> Result<bool, StoreError> {
        self.definitions.extend(server.name, server.address, before, accepted)
    }
}
