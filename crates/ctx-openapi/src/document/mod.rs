//! Parses the text of a description into operations: any version, JSON or YAML, one document or several.
//!
//! `text` and `yaml` parse documents, `sources` gathers those that the root document refers to, `reference`
//! resolves `$ref`, and `read` builds the operations with the other modules. Nothing of the documents is
//! retained.

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

/// Parses a description. Slow for a large one, and blocks while `fetch` gets other documents: not for threads
/// that run async tasks.
pub(crate) fn load(text: &str, home: Home, fetch: &dyn Fetch) -> Result<Description, Unreadable> {
    let documents = sources::Documents::gather(text, home, fetch)?;
    read::read(&documents)
}

#[cfg(test)]
mod documented;
#[cfg(test)]
mod tests;
