//! Whole sessions with the `ctx` binary, for tests only.
//!
//! A [`TestWorkspace`] is a folder with an environment of its own, in which `ctx` runs as a user would
//! run it. What the library crates can prove by themselves is not tested through here.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod outcome;
mod process;
mod reply;
mod server;
mod snapshot;
mod user;
mod workspace;

pub use outcome::Outcome;
pub use process::{DEADLINE, signal, wait_until};
pub use reply::Reply;
pub use server::TestServer;
pub use workspace::TestWorkspace;

#[doc(hidden)]
pub use insta;
