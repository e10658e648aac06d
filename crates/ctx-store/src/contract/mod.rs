//! The contract that every backend fulfils: one suite for all of them.
//!
//! A store or a state is opened by a name: a name that is new is a new one, and a second handle under the same name is
//! another process with the same one. Property tests apply random mutations and compare with a simple model; writers that run
//! at once must lose nothing and hide nothing from whoever follows the change feed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod concurrency;
mod documents;
mod follower;
mod leases;
mod properties;
mod samples;
mod state;
mod state_concurrency;
mod state_properties;
mod vectors;

use crate::state::State;
use crate::store::Store;
use std::sync::Arc;

/// Opens the store of a name.
pub type OpenStore<'a> = &'a (dyn Fn(&str) -> Arc<dyn Store> + Sync);

/// Opens the state of a name.
pub type OpenState<'a> = &'a (dyn Fn(&str) -> Box<dyn State> + Sync);

/// Checks that a store keeps the contract; panics where it does not.
pub fn store_contract(open: OpenStore<'_>) {
    documents::sync_outcomes_are_kept_by_their_rules(open);
    documents::a_document_comes_back_whole(open);
    documents::lists_and_names_come_in_pages(open);
    documents::filters_select_documents(open);
    documents::stamps_come_in_the_order_of_the_question(open);
    documents::forgotten_deletions_make_followers_start_over(open);
    vectors::vectors_of_unchanged_texts_survive_a_change(open);
    vectors::vectors_of_an_older_text_are_dropped(open);
    vectors::refused_chunks_are_not_waited_for(open);
    vectors::models_that_are_not_kept_are_gone(open);
    leases::one_at_a_time_holds_a_lease(open);
    properties::any_sequence_of_mutations_is_stored_and_followed(open);
    concurrency::writers_at_once_lose_nothing_and_hide_nothing(open);
}

/// Checks that state keeps the contract; panics where it does not.
pub fn state_contract(open: OpenState<'_>) {
    state::runs_come_back_with_what_was_called_inside(open);
    state::runs_are_recorded_only_while_recording(open);
    state::a_tree_is_cut_at_its_bound(open);
    state::definitions_are_accepted_once_and_then_by_decision(open);
    state_properties::any_sequence_of_runs_and_decisions_is_remembered(open);
    state_concurrency::two_handles_record_at_once_and_lose_nothing(open);
    state_concurrency::of_racing_extensions_none_is_lost(open);
    state_concurrency::retention_removes_the_oldest_and_no_other(open);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryState, MemoryStore};
    use crate::sqlite::{SqliteState, SqliteStore, StateFiles};
    use std::collections::HashMap;
    use std::sync::Mutex;

    #[test]
    fn sqlite_keeps_the_contract_of_a_store() {
        let folder = tempfile::tempdir().unwrap();
        store_contract(&|name| {
            Arc::new(SqliteStore::open(&folder.path().join(format!("{name}.sqlite"))).unwrap())
        });
    }

    #[test]
    fn memory_keeps_the_contract_of_a_store() {
        let stores: Mutex<HashMap<String, MemoryStore>> = Mutex::default();
        store_contract(&|name| Arc::new(stores.lock().unwrap().entry(name.to_owned()).or_default().clone()));
    }

    #[test]
    fn sqlite_keeps_the_contract_of_state() {
        let folder = tempfile::tempdir().unwrap();
        state_contract(&|name| {
            let file = |of: &str| folder.path().join(format!("{name}-{of}.sqlite"));
            Box::new(SqliteState::new(StateFiles { runs: file("runs"), definitions: file("definitions") }))
        });
    }

    #[test]
    fn memory_keeps_the_contract_of_state() {
        let states: Mutex<HashMap<String, MemoryState>> = Mutex::default();
        state_contract(&|name| {
            Box::new(states.lock().unwrap().entry(name.to_owned()).or_default().another_handle())
        });
    }
}
