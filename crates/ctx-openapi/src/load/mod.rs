//! Loads descriptions from files and from the web, and caches the parsed operations.
//!
//! `files` and `web` fetch texts; those from the web are cached, and revalidated with conditional requests.
//! `kept` caches parsed descriptions, keyed by a hash of their text.

mod files;
mod kept;
mod web;

pub(crate) use kept::{Fingerprint, Kept};
pub(crate) use web::WebTexts;

use crate::document::{self, Fetch, Home, Unreadable};
use crate::operation::Description;
use crate::settings::Spec;
use ctx_core::NetworkScope;
use files::Files;
use kept::{Part, Seen};
use std::time::Instant;
use url::Url;
use web::ALL_TIME_MAX;

/// A loaded description.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) description: Description,
    /// Where it was fetched from, if from the web.
    pub(crate) address: Option<WebAddress>,
    /// Identifies the texts that the description was made of.
    pub(crate) fingerprint: Fingerprint,
    /// Addresses of the other documents, besides the root document.
    pub(crate) others: Vec<String>,
}

/// Origin of a description that was fetched from the web.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebAddress {
    pub(crate) url: Url,
    /// Network scope of that origin; the description must not name addresses in a nearer one (SSRF).
    pub(crate) scope: NetworkScope,
}

/// Why a description cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// Its text cannot be fetched or read.
    #[error("{0}")]
    Text(String),
    /// Its text is not a description.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Whether to ask the web, or to use the cache alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    Web,
    Kept,
}

/// Whether a description is accepted without some of the documents that it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    MayBeMissing,
    /// The documents exist but are not cached: a description without them would be incomplete.
    Needed,
}

/// Loads a description. Blocks on files and on the web: not for threads that run async tasks.
pub(crate) fn load(
    spec: &Spec,
    kept: Option<&Kept>,
    web: &WebTexts,
    asking: Asking,
) -> Result<Loaded, LoadError> {
    match spec {
        Spec::File(path) => {
            let (files, name) = Files::beside(path).map_err(LoadError::Text)?;
            let text = files.fetch(&name).map_err(LoadError::Text)?;
            read(&text, Home::Directory(name), &files, kept, None, Parts::MayBeMissing)
        }
        Spec::Web(url) => {
            let until = Instant::now() + ALL_TIME_MAX;
            let first = web.first(url, asking, until).map_err(LoadError::Text)?;
            let home = Home::Web(first.address.clone());
            let address = WebAddress { url: first.address, scope: first.scope };
            let beside = web.beside(&address, asking, until);
            let parts = match asking {
                Asking::Web => Parts::MayBeMissing,
                Asking::Kept => Parts::Needed,
            };
            read(&first.text, home, &beside, kept, Some(address.clone()), parts)
        }
    }
}

/// The cached description of this text, if the other documents are unchanged; else the text is parsed.
fn read(
    text: &str,
    home: Home,
    fetch: &dyn Fetch,
    kept: Option<&Kept>,
    address: Option<WebAddress>,
    needed: Parts,
) -> Result<Loaded, LoadError> {
    let first = Fingerprint::of_text(&home, text);
    let addresses = |parts: Vec<Part>| parts.into_iter().map(|(address, _)| address).collect();
    if let Some((description, parts)) = kept.and_then(|kept| kept.get(&first, fetch)) {
        let fingerprint = first.with(&parts);
        return Ok(Loaded { description, address, fingerprint, others: addresses(parts) });
    }
    let seen = Seen::new(fetch);
    let description = document::load(text, home, &seen)?;
    let parts = seen.into_parts();
    if needed == Parts::Needed && parts.iter().any(|(_, part)| part.is_none()) {
        return Err(LoadError::Text("a text that it refers to is not kept".to_owned()));
    }
    if let Some(kept) = kept {
        kept.put(&first, &parts, &description);
    }
    let fingerprint = first.with(&parts);
    Ok(Loaded { description, address, fingerprint, others: addresses(parts) })
}

#[cfg(test)]
mod tests;
