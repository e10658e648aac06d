//! Documents through connectors, store and search, a file for each connector or behaviour.

mod common;
mod crashed_syncs;
mod crashes;
mod embedding;
mod files;
mod filesystem;
mod git;
mod git_environment;
mod hostile;
mod hostile_files;
mod local_models;
mod ranking;
mod recovery;
mod regressions;
mod relevance;
mod resources;
mod s3;
mod search;
mod served_models;
mod sources;
mod sync;
mod watch;
