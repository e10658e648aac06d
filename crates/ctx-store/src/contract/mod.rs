//! The contract suite, which every storage backend passes.
//!
//! A backend is opened by name: a new name is a new store, and a second handle with the same name stands for another
//! process with the same store. Property tests apply random steps and compare with a simple model. Concurrency tests
//! check that parallel writers lose nothing, and that followers of the change feed see everything.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod concurrency;
mod documents;
mod follower;
mod leases;
mod properties;
pub(crate) mod samples;
mod state;
mod state_concurrency;
mod state_properties;
mod vectors;

use crate::lease::Lease;
use crate::state::State;
use crate::store::Store;
use std::sync::Arc;

/// Opens the store with a name.
pub type OpenStore<'a> = &'a (dyn Fn(&str) -> Arc<dyn Store> + Sync);

/// Opens the state with a name.
pub type OpenState<'a> = &'a (dyn Fn(&str) -> Box<dyn State> + Sync);

/// Makes another process acquire a lease of the store with a name, or simulates it.
pub type HoldLease<'a> = &'a dyn Fn(&str, &Lease) -> KillHolder;

/// Kills the process that holds a lease, so that it cannot release the lease itself.
pub type KillHolder = Box<dyn FnOnce()>;

/// Checks that a store fulfils the contract; panics if it does not.
pub fn store_contract(open: OpenStore<'_>, hold: HoldLease<'_>) {
    documents::sync_outcomes_are_kept_by_their_rules(open);
    documents::a_document_comes_back_whole(open);
    documents::lists_and_names_come_in_pages(open);
    documents::filters_select_documents(open);
    documents::stamps_come_in_the_order_of_the_question(open);
    documents::files_of_a_source_come_in_pages_with_their_states(open);
    documents::forgotten_deletions_make_followers_start_over(open);
    vectors::vectors_of_unchanged_texts_survive_a_change(open);
    vectors::vectors_of_an_older_text_are_dropped(open);
    vectors::refused_chunks_are_not_waited_for(open);
    vectors::models_that_are_not_kept_are_gone(open);
    leases::one_at_a_time_holds_a_lease(open);
    leases::the_lease_of_a_killed_holder_is_free_again(open, hold);
    properties::any_sequence_of_mutations_is_stored_and_followed(open);
    concurrency::writers_at_once_lose_nothing_and_hide_nothing(open);
    concurrency::counts_equal_a_recount_after_writers_of_the_same_documents(open);
}

/// Checks that a state fulfils the contract; panics if it does not.
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
    use ctx_core::SourceName;
    use std::collections::HashMap;
    use std::env;
    use std::io::{self, BufRead, BufReader, Read, Write};
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::sync::Mutex;

    /// The line that a process prints after it has acquired its lease.
    const HELD: &str = "the lease is held";

    #[test]
    fn sqlite_keeps_the_contract_of_a_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(format!("{name}.sqlite"));
        let hold = |name: &str, lease: &Lease| hold_in_a_process(&path(name), lease);
        store_contract(&|name| Arc::new(SqliteStore::open(&path(name)).unwrap()), &hold);
    }

    #[test]
    fn memory_keeps_the_contract_of_a_store() {
        let stores: Mutex<HashMap<String, MemoryStore>> = Mutex::default();
        let open = |name: &str| stores.lock().unwrap().entry(name.to_owned()).or_default().clone();
        let hold = |name: &str, lease: &Lease| -> KillHolder {
            let (store, lease) = (open(name), lease.clone());
            // A killed process runs no destructors.
            std::mem::forget(store.lease(&lease).unwrap().unwrap());
            Box::new(move || store.free_lease(&lease))
        };
        store_contract(&|name| Arc::new(open(name)), &hold);
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

    /// Starts this test binary again, as a process that acquires a lease.
    fn hold_in_a_process(path: &Path, lease: &Lease) -> KillHolder {
        let lease = match lease {
            Lease::Sync(source) => source.to_string(),
            Lease::Embedding => "fill".to_owned(),
            Lease::Index => "index".to_owned(),
        };
        let mut holder = Command::new(env::current_exe().unwrap())
            .args(["contract::tests::a_lease_is_held_until_the_end", "--exact", "--ignored", "--nocapture"])
            // The test harness takes these for names of tests, and finds none.
            .args([path.as_os_str(), lease.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with(HELD)), "it ended");
        Box::new(move || {
            holder.kill().unwrap();
            holder.wait().unwrap();
        })
    }

    #[test]
    #[ignore = "the process that the contract starts and kills"]
    fn a_lease_is_held_until_the_end() {
        let arguments: Vec<String> = env::args().skip_while(|argument| argument != "--nocapture").collect();
        let [_, path, lease] = arguments.as_slice() else { return };
        let lease = match (lease.as_str(), lease.split_once(':')) {
            ("fill", _) => Lease::Embedding,
            ("index", _) => Lease::Index,
            (_, source) => source.map(|(kind, name)| Lease::Sync(SourceName::new(kind, name))).unwrap(),
        };
        let store = SqliteStore::open(Path::new(path)).unwrap();
        let _held = store.lease(&lease).unwrap().unwrap();
        io::stdout().write_all(format!("{HELD}\n").as_bytes()).unwrap();
        // Ends at the latest with the parent process, which holds the other end of the pipe.
        io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }
}
