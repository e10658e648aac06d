//! The MCP server without a socket, a file for each behaviour. Upstream servers are in `upstreams`.

mod common;
mod credentials;
mod lists;
mod parked_calls;
mod refusals;
mod sessions;
mod stateless_clients;
