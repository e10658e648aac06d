//! The program: the only crate that reads configuration and the environment, prints, and wires.
#![allow(
    clippy::disallowed_methods,
    reason = "this crate is where the environment and the working directory are read"
)]

mod cli;
mod commands;
mod config;
mod error;
mod output;
mod signals;
mod workspace;

pub use cli::main;
