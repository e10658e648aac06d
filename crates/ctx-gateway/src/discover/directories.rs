//! [`Directories`]: the directory of the current catalog, and the parts from which the next one is made.

use super::directory::Directory;
use super::directory_part::{DirectoryPart, LARGE_PART_MIN};
use super::directory_store::DirectoryStore;
use ctx_core::{Catalog, CatalogEntry, Redactor, ToolError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A cache of the directory of the most recently used catalog.
pub(crate) struct Directories {
    latest: Mutex<Option<(Weak<Catalog>, Arc<Directory>)>>,
    /// The parts made last, one for each provider.
    parts: Mutex<Vec<Arc<DirectoryPart>>>,
    /// Locked while a large part is made, so that concurrent first uses make it once.
    making_large_part: Mutex<()>,
    store: Option<Arc<dyn DirectoryStore>>,
}

/// The parts that are kept beside those of a catalog.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtherParts {
    /// The catalog is of a call, and may have fewer providers than the current one.
    Keep,
    /// The catalog is the current one.
    Drop,
}

impl Directories {
    /// With `store`, large parts are kept across starts.
    pub(crate) fn new(store: Option<Arc<dyn DirectoryStore>>) -> Self {
        Self { latest: Mutex::default(), parts: Mutex::default(), making_large_part: Mutex::default(), store }
    }

    /// The directory of a catalog, made on first use unless [`Directories::prepare`] has made it.
    pub(crate) async fn get_or_build(
        self: &Arc<Self>,
        catalog: &Arc<Catalog>,
    ) -> Result<Arc<Directory>, ToolError> {
        if let Some(known) = self.known(catalog) {
            return Ok(known);
        }
        let (directories, catalog) = (self.clone(), catalog.clone());
        let building = move || directories.build(&catalog, OtherParts::Keep);
        tokio::task::spawn_blocking(building)
            .await
            .map_err(|error| ToolError::internal("functions cannot be listed", error))
    }

    /// Makes the directory of the current catalog in advance, unless it is small: few functions are read in milliseconds
    /// when asked about, and until then take no memory. CPU-bound: call it on a thread that may block.
    pub(crate) fn prepare(&self, catalog: &Arc<Catalog>) {
        if catalog.functions().nth(LARGE_PART_MIN).is_some() {
            self.build(catalog, OtherParts::Drop);
        }
    }

    fn build(&self, catalog: &Arc<Catalog>, others: OtherParts) -> Arc<Directory> {
        let entries: Vec<&CatalogEntry> = catalog.functions().collect();
        let by_provider = entries.chunk_by(|one, next| one.name.provider() == next.name.provider());
        let parts: Vec<Arc<DirectoryPart>> =
            by_provider.map(|entries| self.part(entries, catalog.redactor())).collect();
        if others == OtherParts::Drop {
            *lock(&self.parts) = parts.clone();
        }
        let directory = Arc::new(Directory::of_parts(parts));
        *lock(&self.latest) = Some((Arc::downgrade(catalog), directory.clone()));
        directory
    }

    /// The part of the functions of one provider: the one made last if they are unchanged, else a new one.
    fn part(&self, entries: &[&CatalogEntry], redactor: &Redactor) -> Arc<DirectoryPart> {
        let known_part = || lock(&self.parts).iter().find(|part| part.is_of(entries)).cloned();
        if let Some(known) = known_part() {
            return known;
        }
        // A small part is not waited for: a thread with low priority might be making it.
        let _making = (entries.len() >= LARGE_PART_MIN).then(|| lock(&self.making_large_part));
        known_part().unwrap_or_else(|| {
            let part = Arc::new(DirectoryPart::load_or_build(entries, redactor, self.store.as_deref()));
            let mut parts = lock(&self.parts);
            parts.retain(|known| known.provider() != part.provider());
            parts.push(part.clone());
            part
        })
    }

    fn known(&self, catalog: &Arc<Catalog>) -> Option<Arc<Directory>> {
        let latest = lock(&self.latest);
        // The weak pointer keeps the allocation, so that no other catalog can have the same address.
        latest
            .as_ref()
            .filter(|(of, _)| of.as_ptr() == Arc::as_ptr(catalog))
            .map(|(_, directory)| directory.clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
