//! What tests share, and nothing else uses.
//!
//! A [`TestWorkspace`] is a folder with an environment of its own, in which the `ctx` binary runs as a
//! user would run it; what the library crates can prove by themselves is not tested through it. A
//! [`TestTool`] is a closure to fill catalogs with.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod outcome;
mod process;
mod reply;
mod server;
mod snapshot;
mod tool;
mod user;
mod workspace;

pub use outcome::Outcome;
pub use process::{DEADLINE, signal, wait_until};
pub use reply::Reply;
pub use server::TestServer;
pub use tool::{Arguments, Running, TestTool, echo, provider, tool};
pub use workspace::TestWorkspace;

#[doc(hidden)]
pub use insta;
