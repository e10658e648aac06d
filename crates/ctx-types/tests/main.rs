//! JSON Schema as Luau types: a file for each use of a schema.

mod arbitrary_schemas;
mod bounds;
mod common;
mod declarations;
mod forms;
mod library;
mod literals;
mod references;
mod servers;
