//! MCP: the only crate that knows rmcp.
//!
//! The server half: the catalog's tools, agents and resources for clients of every revision, over
//! Streamable HTTP and stdio. The client half: upstream servers as providers of tools. rmcp's types meet
//! ours in `convert` alone.

// The newest revision is done with logging, sampling and roots; clients of the others are not.
#![expect(deprecated)]

mod client;
mod convert;
mod server;

pub use client::{
    ChangedField, ChangedOffer, ChangedPlaces, ChangedTool, Changes, Command, CredentialStore, Difference,
    FieldChange, Headers, HttpKind, InvalidHeader, InvalidPattern, Login, LoginError, Memory, MemoryError,
    OAuthSettings, ReaperProgram, Remembered, ServerKey, Start, StartCheck, ToolFilter, Transport,
    UpstreamLimits, UpstreamOptions, UpstreamSettings, UpstreamState, UpstreamStatus, Upstreams,
    default_starts_at_once, forget_login, has_login, reaper_main,
};
pub use server::{McpServer, ServerSettings, StdioError};
