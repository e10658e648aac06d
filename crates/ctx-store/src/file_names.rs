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

/// The files of a workspace, all in one folder.
pub fn workspace_file_names() -> [&'static str; 3] {
    [STORE_FILE, RUNS_FILE, DEFINITIONS_FILE]
}

/// The files of a user, all in one folder.
pub fn user_file_names() -> [&'static str; 2] {
    [CREDENTIALS_FILE, TRUST_FILE]
}
