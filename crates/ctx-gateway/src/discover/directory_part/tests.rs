//! Directory parts: stored, reused, and ranked like one directory of all functions.

use super::super::directory::Directory;
use super::*;
use ctx_core::{Identifier, Schema, Secret};
use ctx_testkit::{questions, real_functions};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// A store in memory.
#[derive(Default)]
struct MemoryStore(Mutex<HashMap<String, Vec<u8>>>);

impl MemoryStore {
    fn parts(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirectoryStore for MemoryStore {
    fn load(&self, key: &str) -> Option<Vec<u8>> {
        self.parts().get(key).cloned()
    }

    fn save(&self, key: &str, part: &[u8]) {
        self.parts().insert(key.to_owned(), part.to_vec());
    }
}

fn entries(count: usize, description: &str) -> Vec<CatalogEntry> {
    let provider = Identifier::sanitize("many");
    let entry = |number: usize| {
        let schema = json!({"type": "object", "properties": {"title": {"type": "string"}}});
        let name = format!("create_{number}");
        CatalogEntry {
            name: ToolName::new(provider.clone(), Identifier::sanitize(&name)),
            spec: Arc::new(ToolSpec::new(name, description, schema)),
            builtin: false,
            exposed: false,
        }
    };
    (0..count).map(entry).collect()
}

fn part_of(entries: &[CatalogEntry], store: &MemoryStore) -> DirectoryPart {
    DirectoryPart::load_or_build(&entries.iter().collect::<Vec<_>>(), &Redactor::default(), Some(store))
}

fn lines(part: &DirectoryPart) -> Vec<&str> {
    part.functions().iter().map(|function| function.line.as_str()).collect()
}

#[test]
fn a_stored_part_is_the_part_that_was_made() {
    let store = MemoryStore::default();
    let made = part_of(&entries(100, "Opens an issue."), &store);
    let (key, bytes) = store.parts().iter().map(|(key, bytes)| (key.clone(), bytes.clone())).next().unwrap();
    let loaded = part_of(&entries(100, "Opens an issue."), &store);
    assert_eq!((lines(&made), made.texts()), (lines(&loaded), loaded.texts()));
    assert_eq!(store.parts().len(), 1);

    // It is made again if the stored one is damaged or of other functions.
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    store.save(&key, &damaged);
    assert_eq!(lines(&part_of(&entries(100, "Opens an issue."), &store)), lines(&made));
    assert_eq!(store.load(&key), Some(bytes));
    assert_ne!(lines(&part_of(&entries(100, "Closes an issue."), &store)), lines(&made));
    assert_eq!(store.parts().len(), 2);
}

#[test]
fn what_is_small_or_has_no_identity_or_a_secret_is_not_stored() {
    let store = MemoryStore::default();
    part_of(&entries(LARGE_PART_MIN - 1, "Small."), &store);
    let mut generated = entries(100, "Generated.");
    generated.iter_mut().for_each(|entry| {
        Arc::make_mut(&mut entry.spec).input_schema = Schema::lazy(|_| json!({"type": "object"}));
    });
    part_of(&generated, &store);
    let redactor = Redactor::new([Secret::new("correct-horse-battery")]);
    let telling = entries(100, "The token is correct-horse-battery.");
    DirectoryPart::load_or_build(&telling.iter().collect::<Vec<_>>(), &redactor, Some(&store));
    assert!(store.parts().is_empty());

    generated.iter_mut().for_each(|entry| {
        let spec = Arc::make_mut(&mut entry.spec);
        spec.input_schema = spec.input_schema.clone().with_identity("generated".into());
    });
    part_of(&generated, &store);
    assert_eq!(store.parts().len(), 1);
}

#[test]
fn a_part_is_of_the_functions_that_it_was_made_of() {
    let (store, entries) = (MemoryStore::default(), entries(3, "Opens."));
    let part = part_of(&entries, &store);
    let mut same = entries.iter().collect::<Vec<_>>();
    assert!(part.is_of(&same));
    same.pop();
    assert!(!part.is_of(&same));
    let changed = CatalogEntry { spec: Arc::new((*entries[2].spec).clone()), ..entries[2].clone() };
    same.push(&changed);
    assert!(!part.is_of(&same));
}

/// The ranking does not depend on how the directory was made: as one part, or as parts by provider, each stored or not.
#[test]
fn a_directory_by_provider_finds_what_one_of_all_functions_finds() {
    let catalog = real_functions().into_iter().fold(Catalog::builder(), |all, one| all.provider(one)).build();
    let entries: Vec<&CatalogEntry> = catalog.functions().collect();
    assert!(entries.len() > 1_000);
    let store = MemoryStore::default();
    let by_provider = || {
        let groups = entries.chunk_by(|one, next| one.name.provider() == next.name.provider());
        let part = |entries| DirectoryPart::load_or_build(entries, &Redactor::default(), Some(&store));
        Directory::of_parts(groups.map(|entries| Arc::new(part(entries))).collect())
    };
    let whole = Directory::of_parts(vec![Arc::new(DirectoryPart::build(&entries).0)]);
    let directories = [by_provider(), by_provider()];
    assert!(!store.parts().is_empty());
    let names = ["create_issue", "read file", "graph"].map(str::to_owned);
    for query in questions().into_iter().map(|question| question.question).chain(names) {
        let found = |directory: &Directory| -> Vec<String> {
            let found = directory.search(&query, None, 50).unwrap();
            found.into_iter().map(|function| function.line.clone()).collect()
        };
        let expected = found(&whole);
        assert!(!expected.is_empty(), "{query}");
        directories.iter().for_each(|directory| assert_eq!(found(directory), expected, "{query}"));
    }
}
