//! The text of a description as operations: any version, JSON or YAML, in one document or several.
//!
//! `text` and `yaml` give values, `sources` the documents beside the first, `reference` what refers to what, and
//! `read` the operations with the rest. Nothing of the documents stays.

mod answer;
mod body;
mod media;
mod names;
mod parameters;
mod path;
mod read;
mod reference;
mod schema;
mod security;
mod select;
mod servers;
mod sources;
mod text;
mod yaml;

pub use select::{InvalidPattern, Selection};
pub(crate) use sources::{Alone, Fetch, Home};
pub(crate) use text::{TEXT_BYTES_MAX, Unreadable};

use crate::operation::Description;

/// Reads a description. It takes a moment for a large one, and waits for other documents: not for a thread that
/// others wait for.
pub(crate) fn load(text: &str, home: Home, fetch: &dyn Fetch) -> Result<Description, Unreadable> {
    let documents = sources::Documents::gather(text, home, fetch)?;
    read::read(&documents)
}

#[cfg(test)]
mod documented;
#[cfg(test)]
mod tests;
