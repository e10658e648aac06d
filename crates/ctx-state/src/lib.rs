//! What must survive a restart besides documents: the record of runs.
//!
//! One SQLite file of its own, so that losing it loses no document. Recording never waits: runs
//! go to a writer thread through a bounded queue, and a full queue drops them and says so.

mod runs;

pub use runs::{RunFilter, Runs, StateError};
