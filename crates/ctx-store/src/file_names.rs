//! What the files are called. Where they lie is for the caller to say.

/// A workspace's documents and their sources.
pub const STORE_FILE: &str = "ctx.sqlite";
/// A workspace's record of runs.
pub const RUNS_FILE: &str = "state.sqlite";
/// What a workspace's upstream servers said of their tools.
pub const DEFINITIONS_FILE: &str = "upstreams.sqlite";
/// The user's logins.
pub const CREDENTIALS_FILE: &str = "credentials.sqlite";
/// What the user trusts.
pub const TRUST_FILE: &str = "trust.sqlite";
