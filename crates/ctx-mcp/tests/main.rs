//! The MCP server without a socket, a file for each behaviour. Upstream servers are in `upstreams`.

mod common;
mod credentials;
mod lists;
mod newer_clients;
mod parked_calls;
mod refusals;
mod sessions;
