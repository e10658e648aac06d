//! MCP: the only crate that knows rmcp.
//!
//! The server half: the catalog's tools, agents and resources for clients of every revision, over
//! Streamable HTTP and stdio. rmcp's types meet ours in `convert` alone.

// The newest revision is done with logging, sampling and roots; clients of the others are not.
#![expect(deprecated)]

mod convert;
mod server;

pub use server::{McpServer, ServerSettings, StdioError};
