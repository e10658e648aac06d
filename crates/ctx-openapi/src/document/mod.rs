//! Parses the text of a description into operations: any version, JSON or YAML, one document or several.
//!
//! `text` and `yaml` parse documents, `documents` gathers those that the root document refers to, `reference`
//! resolves `$ref`, and `read` builds the operations with the other modules. Nothing of the documents is
//! retained.

mod body;
mod documents;
mod media;
mod names;
mod parameters;
mod path;
mod read;
mod reference;
mod response;
mod schema;
mod security;
mod select;
mod servers;
mod text;
mod yaml;

pub(crate) use documents::{Fetch, RootLocation, SingleDocument};
pub use select::{InvalidPattern, Selection};
pub(crate) use text::{DescriptionError, TEXT_BYTES_MAX};

use crate::operation::Description;

/// Parses a description. Slow for a large one, and blocks while `fetch` gets other documents: not for threads
/// that run async tasks.
pub(crate) fn load(
    text: &str,
    location: RootLocation,
    fetch: &dyn Fetch,
) -> Result<Description, DescriptionError> {
    let documents = documents::Documents::gather(text, location, fetch)?;
    read::read_description(&documents)
}

#[cfg(test)]
mod luau_tests;
#[cfg(test)]
mod tests;
