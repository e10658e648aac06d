//! Stores the tool definitions of upstream servers in a file beside the workspace's store.

use crate::config::Config;
use crate::error::{CommandError, CommandResult};
use crate::workspace::state;
use ctx_core::chain;
use ctx_mcp::{Memory, MemoryError, Remembered, ServerKey};
use ctx_store::{DEFINITIONS_FILE, Server, ServerDefinitions, State, StoreError};
use std::path::PathBuf;
use std::sync::Arc;

/// The stored tool definitions of a workspace's upstream servers.
pub(crate) struct UpstreamMemory(Arc<dyn State>);

impl UpstreamMemory {
    pub(crate) fn of(config: &Config) -> Self {
        Self(state(config))
    }

    /// The stored definitions of a server.
    pub(crate) fn known(&self, server: &ServerKey) -> CommandResult<Option<Remembered>> {
        let kept = self.0.definitions(&named(server)).map_err(failed)?;
        Ok(kept.map(remembered))
    }

    /// Marks these definitions as accepted.
    pub(crate) fn accept(&self, server: &ServerKey, accepted: &str) -> CommandResult {
        self.0.accept_definitions(&named(server), accepted).map_err(failed)?;
        Ok(())
    }
}

impl Memory for UpstreamMemory {
    fn recall(&self, server: &ServerKey) -> Result<Option<Remembered>, MemoryError> {
        Ok(self.0.definitions(&named(server))?.map(remembered))
    }

    fn remember(&self, server: &ServerKey, seen: &str) -> Result<Remembered, MemoryError> {
        Ok(remembered(self.0.see_definitions(&named(server), seen)?))
    }

    fn extend(&self, server: &ServerKey, before: &str, accepted: &str) -> Result<bool, MemoryError> {
        Ok(self.0.extend_definitions(&named(server), before, accepted)?)
    }
}

/// The path of the file.
pub(crate) fn path(config: &Config) -> PathBuf {
    config.store_path().with_file_name(DEFINITIONS_FILE)
}

fn named(server: &ServerKey) -> Server<'_> {
    Server { name: server.name.as_str(), reach: &server.reach }
}

fn remembered(kept: ServerDefinitions) -> Remembered {
    Remembered { seen: kept.seen, accepted: kept.accepted }
}

fn failed(error: StoreError) -> CommandError {
    CommandError::new(chain(&error)).hint(
        "the file holds only what upstream servers said of their tools; moved away, what they say next is accepted",
    )
}
