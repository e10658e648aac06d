//! Loads descriptions from files and from the web, and caches the parsed operations.
//!
//! `files` and `web` fetch texts; those from the web are cached, and revalidated with conditional requests.
//! `cache` caches parsed descriptions, keyed by a hash of their text, in the files of a `file_cache`.

mod cache;
mod file_cache;
mod files;
mod web;

pub(crate) use cache::{DescriptionCache, Fingerprint};
pub use file_cache::FileCache;
pub(crate) use web::CachedFetcher;

use crate::document::{self, DescriptionError, Fetch, RootLocation};
use crate::operation::Description;
use crate::settings::Spec;
use cache::{DocumentFingerprint, RecordingFetch};
use ctx_core::NetworkScope;
use files::DescriptionFolder;
use std::time::Instant;
use url::Url;
use web::TOTAL_TIME_MAX;

/// A loaded description.
#[derive(Debug)]
pub(crate) struct LoadedDescription {
    pub(crate) description: Description,
    /// Where it was fetched from, if from the web.
    pub(crate) address: Option<WebAddress>,
    /// Identifies the texts that the description was made of.
    pub(crate) fingerprint: Fingerprint,
    /// Addresses of the other documents, besides the root document.
    pub(crate) other_documents: Vec<String>,
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
    Description(#[from] DescriptionError),
}

/// Whether to ask the web, or to use the cache alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachePolicy {
    /// Cached texts are revalidated with conditional requests.
    Revalidate,
    /// Nothing is requested.
    CacheOnly,
}

/// Whether a description is accepted without some of the documents that it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MissingDocuments {
    Accepted,
    /// The documents exist but are not cached: a description without them would be incomplete.
    Rejected,
}

/// Loads a description. Blocks on files and on the web: not for threads that run async tasks.
pub(crate) fn load_description(
    spec: &Spec,
    cache: Option<&DescriptionCache>,
    fetcher: &CachedFetcher,
    policy: CachePolicy,
) -> Result<LoadedDescription, LoadError> {
    match spec {
        Spec::File(path) => {
            let (folder, name) = DescriptionFolder::of_file(path).map_err(LoadError::Text)?;
            let text = folder.fetch(&name).map_err(LoadError::Text)?;
            read_or_parse(
                &text,
                RootLocation::Directory(name),
                &folder,
                cache,
                None,
                MissingDocuments::Accepted,
            )
        }
        Spec::Web(url) => {
            let deadline = Instant::now() + TOTAL_TIME_MAX;
            let root = fetcher.fetch_root(url, policy, deadline).map_err(LoadError::Text)?;
            let location = RootLocation::Web(root.address.clone());
            let address = WebAddress { url: root.address, scope: root.scope };
            let others = fetcher.same_origin(&address, policy, deadline);
            let missing_documents = match policy {
                CachePolicy::Revalidate => MissingDocuments::Accepted,
                CachePolicy::CacheOnly => MissingDocuments::Rejected,
            };
            read_or_parse(&root.text, location, &others, cache, Some(address.clone()), missing_documents)
        }
    }
}

/// The cached description of this text, if the other documents are unchanged; else the text is parsed.
fn read_or_parse(
    text: &str,
    location: RootLocation,
    fetch: &dyn Fetch,
    cache: Option<&DescriptionCache>,
    address: Option<WebAddress>,
    missing_documents: MissingDocuments,
) -> Result<LoadedDescription, LoadError> {
    let root = Fingerprint::of_root(&location, text);
    let addresses =
        |others: Vec<DocumentFingerprint>| others.into_iter().map(|(address, _)| address).collect();
    if let Some((description, others)) = cache.and_then(|cache| cache.get(&root, fetch)) {
        let fingerprint = root.with_documents(&others);
        return Ok(LoadedDescription {
            description,
            address,
            fingerprint,
            other_documents: addresses(others),
        });
    }
    let recording = RecordingFetch::new(fetch);
    let description = document::load(text, location, &recording)?;
    let others = recording.into_fingerprints();
    if missing_documents == MissingDocuments::Rejected
        && others.iter().any(|(_, fingerprint)| fingerprint.is_none())
    {
        return Err(LoadError::Text("a document that it refers to is not in the cache".to_owned()));
    }
    if let Some(cache) = cache {
        cache.put(&root, &others, &description);
    }
    let fingerprint = root.with_documents(&others);
    Ok(LoadedDescription { description, address, fingerprint, other_documents: addresses(others) })
}

#[cfg(test)]
mod tests;
