//! Calls through `Catalog::call`, a file for each part of its promise.

mod canary;
mod common;
mod door;
mod door_agents;
mod door_bounds;
mod door_hidden;
mod door_nesting;
mod door_resources;
mod door_runs;
mod door_settled;
