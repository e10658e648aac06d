//! Requests to a server on a real port, one file per behaviour.

mod agents;
mod common;
mod drain;
mod errors;
mod guard;
mod limits;
mod oauth;
mod shapes;
mod stream;
mod wire;
