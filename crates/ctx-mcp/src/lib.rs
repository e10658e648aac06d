//! MCP: the only crate that knows rmcp.
//!
//! `server` serves the catalog's tools, agents and resources to clients of every protocol revision, over
//! Streamable HTTP and stdio. `client` connects to upstream servers and provides their tools. rmcp's types
//! are converted to and from ours in `convert` alone.

// rmcp deprecates logging, sampling and roots with the newest protocol revision; clients of older revisions
// use them.
#![expect(deprecated)]

mod client;
mod convert;
mod server;

pub use client::{
    ChangedFeature, ChangedField, ChangedPaths, ChangedTool, CredentialStore, DefinitionChangePolicy,
    DefinitionDiff, DefinitionStore, DefinitionStoreError, FieldChange, Headers, HttpTransportKind,
    InvalidHeader, InvalidPattern, Login, LoginError, OAuthSettings, ReaperProgram, ServerCommand, ServerKey,
    StartCheck, StartMode, StoredDefinitions, ToolFilter, Transport, UpstreamLimits, UpstreamOptions,
    UpstreamSettings, UpstreamState, UpstreamStatus, Upstreams, default_starts_at_once, forget_login,
    has_login, reaper_main,
};
pub use server::{McpServer, ServerSettings, StdioError};
