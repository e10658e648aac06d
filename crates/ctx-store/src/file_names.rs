//! File names of stores and state. Callers choose the folders.

/// The document store of a workspace.
pub const STORE_FILE: &str = "ctx.sqlite";
/// The run records of a workspace.
pub const RUNS_FILE: &str = "state.sqlite";
/// The tool definitions of a workspace's upstream servers, seen and accepted.
pub const DEFINITIONS_FILE: &str = "upstreams.sqlite";
/// The user's OAuth logins at upstream servers.
pub const CREDENTIALS_FILE: &str = "credentials.sqlite";
/// The user's trust grants.
pub const TRUST_FILE: &str = "trust.sqlite";
