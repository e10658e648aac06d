//! Test fixtures that several crates share; only tests use this crate.
//!
//! A [`TestWorkspace`] runs the `ctx` binary in an isolated folder and environment; behaviour that a library crate
//! can test alone is not tested through it. A [`TestTool`] is a tool made of a closure, a [`MockWebServer`] a fake web service,
//! an [`AuthorizationServer`] a fake OAuth authorization server, and a [`OAuthMcpServer`] an MCP server that requires
//! sign-in.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod authority;
mod canary;
mod functions;
mod guarded;
mod hostile;
mod http_response;
mod mock_web_server;
mod outcome;
mod pdf;
mod process;
mod server;
mod snapshot;
mod tool;
mod user;
mod workspace;

pub use authority::{AuthorizationServer, SigningKey, valid_claims};
pub use canary::{CANARIES, CANARY_FORMS, CanaryForm, canary_leaks, canary_text};
pub use functions::{
    OFFICIAL_SERVERS, SearchQuestion, github_description, luau_check, official_packages, official_server,
    questions, real_functions,
};
pub use guarded::{OAUTH_SECRET, OAuthMcpServer, browse};
pub use hostile::{HostileScript, hostile_scripts};
pub use http_response::HttpResponse;
pub use mock_web_server::{MockWebServer, RecordedRequest, http_response, http_response_with};
pub use outcome::CommandOutput;
pub use pdf::{PDF_PAGES, pdf};
pub use process::{DEADLINE, signal, wait_until};
pub use server::TestServer;
pub use tool::{Arguments, TestTool, ToolFuture, echo, provider, tool};
pub use workspace::TestWorkspace;

#[doc(hidden)]
pub use insta;
