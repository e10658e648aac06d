//! What must survive a restart besides documents: the record of runs, and what the user trusts.
//!
//! SQLite files of their own, so that losing one loses no document. Recording never waits: runs go to a
//! writer thread through a bounded queue, and a full queue drops them and says so.

mod file;
mod runs;
mod trust;

pub use file::StateError;
pub use runs::{RunFilter, Runs};
pub use trust::{Trust, Trusted};
