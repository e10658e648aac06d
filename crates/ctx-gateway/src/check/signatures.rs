//! The signatures that checks have read, kept across scripts and catalogs: reading a large schema as types takes a
//! thousand times longer than checking a call.

use ctx_core::{CatalogEntry, ToolName, ToolSpec};
use ctx_types::{Function, Literal, TypeMismatch};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Signatures that are kept; beyond, the least recently used is dropped.
const SIGNATURES_MAX: usize = 256;

/// The signatures of functions, read on first use. A function keeps its signature for as long as its definition is the
/// same, in whatever catalog.
#[derive(Default)]
pub(crate) struct SignatureCache(Mutex<Signatures>);

#[derive(Default)]
struct Signatures {
    /// By the address of the definition. The weak pointer keeps the allocation, so that no other definition can have the
    /// same address.
    by_spec: HashMap<usize, CachedSignature>,
    /// Counts uses.
    clock: u64,
}

struct CachedSignature {
    spec: Weak<ToolSpec>,
    name: ToolName,
    /// Without the result, which no check looks at.
    function: Arc<Function>,
    used: u64,
}

impl SignatureCache {
    /// The arguments that a function does not accept, with its signature.
    pub(super) fn check(&self, entry: &CatalogEntry, arguments: &[Literal]) -> (Vec<TypeMismatch>, String) {
        if self.get(entry).check_arguments(arguments).is_empty() {
            return (Vec::new(), String::new());
        }
        // Types are named with regard to those of the result.
        let function = Function::with_nearest_types(&entry.name, &entry.spec);
        (function.check_arguments(arguments), function.signature())
    }

    fn get(&self, entry: &CatalogEntry) -> Arc<Function> {
        let address = Arc::as_ptr(&entry.spec).addr();
        if let Some(known) = self.signatures().get(address, &entry.name) {
            return known;
        }
        // Read without the lock: concurrent first uses may read it twice.
        let function = Arc::new(Function::with_nearest_parameters(&entry.name, &entry.spec));
        self.signatures().insert(address, entry, function.clone());
        function
    }

    fn signatures(&self) -> MutexGuard<'_, Signatures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Signatures {
    fn get(&mut self, address: usize, name: &ToolName) -> Option<Arc<Function>> {
        self.clock += 1;
        let known = self.by_spec.get_mut(&address).filter(|known| known.name == *name)?;
        known.used = self.clock;
        Some(known.function.clone())
    }

    fn insert(&mut self, address: usize, entry: &CatalogEntry, function: Arc<Function>) {
        if self.by_spec.len() >= SIGNATURES_MAX {
            self.by_spec.retain(|_, known| known.spec.strong_count() > 0);
        }
        if self.by_spec.len() >= SIGNATURES_MAX
            && let Some(oldest) =
                self.by_spec.iter().min_by_key(|(_, known)| known.used).map(|(address, _)| *address)
        {
            self.by_spec.remove(&oldest);
        }
        let spec = Arc::downgrade(&entry.spec);
        let signature = CachedSignature { spec, name: entry.name.clone(), function, used: self.clock };
        self.by_spec.insert(address, signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_core::{Catalog, Identifier, Schema};
    use ctx_testkit::{echo, provider};
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_signature_is_read_once_across_catalogs_and_again_for_another_definition() {
        let reads = Arc::new(AtomicUsize::new(0));
        let entry = |reads: &Arc<AtomicUsize>| {
            let reads = reads.clone();
            let schema = Schema::lazy(move |_| {
                reads.fetch_add(1, Ordering::Relaxed);
                json!({"type": "object", "properties": {"a": {"type": "string"}}})
            });
            CatalogEntry {
                name: ToolName::new(Identifier::sanitize("pets"), Identifier::sanitize("get")),
                spec: Arc::new(ToolSpec::new("get", "", schema)),
                builtin: false,
                exposed: true,
            }
        };
        let cache = SignatureCache::default();
        let one = entry(&reads);
        let text =
            [Literal::Table { fields: vec![("a".to_owned(), Literal::Text("b".to_owned()))], whole: true }];
        for _ in 0..3 {
            assert!(cache.check(&one.clone(), &text).0.is_empty());
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        let another = entry(&reads);
        assert!(cache.check(&another, &text).0.is_empty());
        assert_eq!(reads.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn only_so_many_signatures_are_kept() {
        let cache = SignatureCache::default();
        let tools = (0..=SIGNATURES_MAX).map(|number| echo(&format!("f{number}")));
        let catalog = Catalog::builder().provider(provider("many", tools)).build();
        for entry in catalog.functions() {
            cache.get(entry);
        }
        assert_eq!(cache.signatures().by_spec.len(), SIGNATURES_MAX);
    }
}
