//! The first frame to a worker: which protocol the parent speaks, and how much memory the process may map.

use serde::{Deserialize, Serialize};

/// The version of the protocol; goes up with every change of a frame.
pub(crate) const VERSION: u32 = 2;

/// The greeting of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// The protocol of the parent. A program that was replaced while it runs may start workers of another.
    pub(crate) version: u32,
    /// Address space of the process at most, its program included.
    pub(crate) address_space_bytes: u64,
}
