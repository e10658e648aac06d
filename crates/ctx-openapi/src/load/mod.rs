//! Descriptions are read from where they are, and kept as operations, so that they are read once.
//!
//! `files` and `web` give texts: the web's are kept too, and asked for again only to learn whether they have
//! changed. `kept` holds what was made of a text, found by what the text is.

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

/// A description that was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) description: Description,
    /// Where it came from, if that is on the web.
    pub(crate) address: Option<WebAddress>,
    /// The texts that it was made of: others give another.
    pub(crate) fingerprint: Fingerprint,
    /// Where the others of them are, beside the first.
    pub(crate) others: Vec<String>,
}

/// Origin of a description that was fetched from the web.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebAddress {
    pub(crate) url: Url,
    /// Network scope of that origin; the description must not name addresses in a nearer one (SSRF).
    pub(crate) scope: NetworkScope,
}

/// Why a description cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// Its text cannot be had.
    #[error("{0}")]
    Text(String),
    /// Its text is not one.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Whether the web is asked, or what is kept of it has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    Web,
    Kept,
}

/// Whether something is made of a text where others that it refers to cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    MayBeMissing,
    /// They are somewhere, only not here: what is made without them is less than what there is.
    Needed,
}

/// Reads a description. Waits for files and for the web: not for a thread that others wait for.
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

/// What is kept of this text and of those that it refers to, else what is made of them now.
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
