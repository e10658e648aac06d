//! Stores the tool definitions of upstream servers in a file beside the workspace's store.

use crate::config::Config;
use crate::error::{CommandError, CommandResult};
use crate::workspace::workspace_state;
use ctx_core::error_chain;
use ctx_mcp::{DefinitionStore, DefinitionStoreError, ServerKey, StoredDefinitions};
use ctx_store::{DEFINITIONS_FILE, DefinitionKey, ServerDefinitions, State, StoreError};
use std::path::PathBuf;
use std::sync::Arc;

/// The stored tool definitions of a workspace's upstream servers.
pub(crate) struct StateDefinitions(Arc<dyn State>);

impl StateDefinitions {
    pub(crate) fn of(config: &Config) -> Self {
        Self(workspace_state(config))
    }

    /// The stored definitions of a server.
    pub(crate) fn stored_definitions(&self, server: &ServerKey) -> CommandResult<Option<StoredDefinitions>> {
        let stored = self.0.definitions(&store_key(server)).map_err(to_command_error)?;
        Ok(stored.map(from_stored))
    }

    /// Marks these definitions as accepted.
    pub(crate) fn accept(&self, server: &ServerKey, accepted: &str) -> CommandResult {
        self.0.accept_definitions(&store_key(server), accepted).map_err(to_command_error)?;
        Ok(())
    }
}

impl DefinitionStore for StateDefinitions {
    fn load(&self, server: &ServerKey) -> Result<Option<StoredDefinitions>, DefinitionStoreError> {
        Ok(self.0.definitions(&store_key(server))?.map(from_stored))
    }

    fn record_seen(&self, server: &ServerKey, seen: &str) -> Result<StoredDefinitions, DefinitionStoreError> {
        Ok(from_stored(self.0.record_definitions(&store_key(server), seen)?))
    }

    fn replace_accepted(
        &self,
        server: &ServerKey,
        before: &str,
        accepted: &str,
    ) -> Result<bool, DefinitionStoreError> {
        Ok(self.0.replace_accepted_if(&store_key(server), before, accepted)?)
    }
}

/// The path of the file.
pub(crate) fn path(config: &Config) -> PathBuf {
    config.store_path().with_file_name(DEFINITIONS_FILE)
}

fn store_key(server: &ServerKey) -> DefinitionKey<'_> {
    DefinitionKey { name: server.name.as_str(), address: &server.address_hash }
}

fn from_stored(stored: ServerDefinitions) -> StoredDefinitions {
    StoredDefinitions { seen: stored.seen, accepted: stored.accepted }
}

fn to_command_error(error: StoreError) -> CommandError {
    CommandError::new(error_chain(&error)).hint(
        "the file holds only tool definitions of upstream servers; if you move it away, those listed next are accepted",
    )
}
