//! File names of stores and state. Callers choose the folders.

/// A workspace's documents and their sources.
pub const STORE_FILE: &str = "ctx.sqlite";
/// A workspace's record of runs.
pub const RUNS_FILE: &str = "state.sqlite";
/// Definitions of tools by a workspace's upstream servers, seen and accepted.
pub const DEFINITIONS_FILE: &str = "upstreams.sqlite";
/// The user's logins.
pub const CREDENTIALS_FILE: &str = "credentials.sqlite";
/// The user's trust grants.
pub const TRUST_FILE: &str = "trust.sqlite";
