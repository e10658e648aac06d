//! What must survive a restart besides documents: the record of runs, what the user trusts, their logins, and what
//! upstream servers said of their tools.
//!
//! SQLite files of their own, so that losing one loses no document. Recording never waits: runs go to a
//! writer thread through a bounded queue, and a full queue drops them and says so.

mod credentials;
mod definitions;
mod file;
mod runs;
mod trust;

pub use credentials::{CredentialLock, Credentials};
pub use definitions::{Definitions, KeptDefinitions};
pub use file::StateError;
pub use runs::{Recorded, RunFilter, Runs};
pub use trust::{Trust, Trusted};
