//! The program: the only crate that reads configuration and environment, prints, and wires the other crates.
//!
//! It is also a library: a [`Harness`] is the whole program with tools, connectors and agents of your own.
//! The types for writing these are re-exported here, so that no other crate of the project is needed.
#![allow(
    clippy::disallowed_methods,
    reason = "this crate is where the environment and the working directory are read"
)]

mod admin;
mod cli;
mod commands;
mod config;
mod definitions;
mod directory_files;
mod error;
mod file_version;
mod harness;
mod log;
mod logins;
mod masks;
mod memory;
mod output;
mod progress;
mod scripts;
mod server_record;
mod signals;
mod style;
mod trust;
mod upstreams;
mod workspace;

pub use ctx_core::{
    Agent, AgentArgument, AgentSource, AgentSpec, Annotations, Call, Caller, Catalog, Change,
    CompletionRequest, CompletionTarget, Completions, Connector, ContentBlock, Cursor, Document,
    DocumentContent, ErrorKind, Identifier, Listing, LogLine, Message, Output, Peer, Progress, Prompt,
    Provider, PullResult, Question, QuestionError, QuestionKind, RateLimit, Resource, ResourceChange,
    ResourceContent, ResourcePage, ResourceSubscription, ResourceTemplate, Resources, Role, Signal, Sink,
    SinkClosed, SourceError, Tool, ToolError, ToolSpec, Watcher, json_schema,
};
pub use harness::{Harness, SourceOptions, worker_if_asked};
pub use jiff::Timestamp;
pub use tracing::Level;

/// Runs `ctx` without additions.
pub fn main() -> std::process::ExitCode {
    Harness::builder().main()
}
