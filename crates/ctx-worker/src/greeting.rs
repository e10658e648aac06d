//! The first frame to a worker: the protocol version of the parent, and the memory limit of the process.

use serde::{Deserialize, Serialize};

/// The protocol version; increases with every change of a frame.
pub(crate) const VERSION: u32 = 2;

/// The greeting of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// The protocol version of the parent. After an update, a running parent may start workers of another version.
    pub(crate) version: u32,
    /// Maximum address space of the process, including its program.
    pub(crate) address_space_bytes: u64,
}
