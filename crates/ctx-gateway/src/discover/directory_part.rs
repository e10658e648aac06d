//! [`DirectoryPart`]: the functions of one provider as a directory shows and finds them.
//!
//! Making it means to read the schemas of all functions as types, which takes seconds for ten thousand functions. So the
//! part of an unchanged provider is used again when a catalog is replaced, and large parts are stored
//! (`directory_store`).

use super::directory_store::{DirectoryStore, part_from_bytes, part_key, part_to_bytes};
use super::text::function_line;
use ctx_core::{Catalog, CatalogEntry, Redactor, ToolName, ToolSpec};
use ctx_rank::{SmallText, SmallTextSegment};
use ctx_types::Function;
use std::borrow::Cow;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

/// Suffix for the line of a function that was seen to answer JSON text.
const JSON_TEXT_MARK: &str = " (returns JSON text: json.decode)";

/// The least number of functions of a large part. A smaller one is made in no more time than it would be loaded.
pub(super) const LARGE_PART_MIN: usize = 64;

/// The number of functions whose texts are made on one thread before another one helps.
const FUNCTIONS_PER_THREAD: usize = 256;

/// The functions of one provider, by name, and a search index over them.
pub(crate) struct DirectoryPart {
    functions: Vec<FunctionEntry>,
    texts: Arc<SmallTextSegment>,
}

/// One function of a directory.
pub(crate) struct FunctionEntry {
    pub(super) name: ToolName,
    /// `github.create_issue(title, body?) – Opens an issue.`
    pub(super) line: String,
    spec: Arc<ToolSpec>,
}

/// The texts of one function.
struct FunctionTexts {
    line: String,
    /// The words of its name.
    name: String,
    /// Title and description.
    about: String,
    /// Further search text: the names of parameters, types and fields, tags, and the descriptions of parameters.
    detail: String,
}

impl FunctionTexts {
    fn search_text(&self) -> SmallText<'_> {
        SmallText { name: &self.name, description: &self.about, detail: &self.detail }
    }
}

impl FunctionEntry {
    /// The labels by which listings can be filtered.
    pub(super) fn tags(&self) -> &[String] {
        &self.spec.tags
    }

    /// The line, with a suffix if the function was seen to answer JSON text. That is looked up for each
    /// answer, because it is learnt while the catalog is in use.
    pub(super) fn marked_line(&self, catalog: &Catalog) -> Cow<'_, str> {
        match catalog.returns_json_text(&self.name) {
            true => Cow::Owned(format!("{}{JSON_TEXT_MARK}", self.line)),
            false => Cow::Borrowed(&self.line),
        }
    }
}

impl DirectoryPart {
    /// The part of these functions, loaded if it is stored, and else made and stored. CPU-bound: call it on a thread that
    /// may block.
    pub(super) fn load_or_build(
        entries: &[&CatalogEntry],
        redactor: &Redactor,
        store: Option<&dyn DirectoryStore>,
    ) -> Self {
        let store = store.filter(|_| entries.len() >= LARGE_PART_MIN);
        let Some((store, key)) = store.and_then(|store| Some((store, part_key(entries)?))) else {
            return Self::build(entries).0;
        };
        let stored = store.load(&key).and_then(|bytes| part_from_bytes(&bytes));
        if let Some((lines, texts)) = stored.filter(|(lines, _)| lines.len() == entries.len()) {
            return Self::new(entries, lines, texts);
        }
        let (part, texts) = Self::build(entries);
        // A server may repeat secrets that it was given; terms cannot be masked one by one.
        let is_masked = |text: &String| redactor.text(text.clone()) != *text;
        if !texts.iter().any(|texts| [&texts.name, &texts.about, &texts.detail].into_iter().any(is_masked)) {
            store.save(
                &key,
                &part_to_bytes(part.functions.iter().map(|function| &*function.line), &part.texts),
            );
        }
        part
    }

    fn build(entries: &[&CatalogEntry]) -> (Self, Vec<FunctionTexts>) {
        let texts = function_texts(entries);
        let small = texts.iter().map(FunctionTexts::search_text).collect::<Vec<_>>();
        let segment = SmallTextSegment::new(&small);
        let lines = texts.iter().map(|texts| texts.line.clone()).collect();
        (Self::new(entries, lines, segment), texts)
    }

    fn new(entries: &[&CatalogEntry], lines: Vec<String>, texts: SmallTextSegment) -> Self {
        let function = |(entry, line): (&&CatalogEntry, String)| FunctionEntry {
            name: entry.name.clone(),
            line,
            spec: entry.spec.clone(),
        };
        Self { functions: entries.iter().zip(lines).map(function).collect(), texts: Arc::new(texts) }
    }

    /// Whether it is of exactly these functions, which have not changed.
    pub(super) fn is_of(&self, entries: &[&CatalogEntry]) -> bool {
        // The specs are kept alive here, so that no other one can have the same address.
        let is_same = |(function, entry): (&FunctionEntry, &&CatalogEntry)| {
            Arc::ptr_eq(&function.spec, &entry.spec) && function.name == entry.name
        };
        self.functions.len() == entries.len() && self.functions.iter().zip(entries).all(is_same)
    }

    /// The functions, by name.
    pub(super) fn functions(&self) -> &[FunctionEntry] {
        &self.functions
    }

    /// The name of the provider.
    pub(super) fn provider(&self) -> &str {
        self.functions.first().map_or("", |function| function.name.provider().as_str())
    }

    pub(super) fn texts(&self) -> &Arc<SmallTextSegment> {
        &self.texts
    }
}

/// The texts of each function, made on as many threads as the machine has cores.
fn function_texts(entries: &[&CatalogEntry]) -> Vec<FunctionTexts> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let per_thread = entries.len().div_ceil(threads).max(FUNCTIONS_PER_THREAD);
    let texts = |entries: &[&CatalogEntry]| entries.iter().map(|entry| texts_of(entry)).collect::<Vec<_>>();
    if entries.len() <= per_thread {
        return texts(entries);
    }
    thread::scope(|scope| {
        let chunks: Vec<_> = entries
            .chunks(per_thread)
            .map(|entries| (entries, scope.spawn(move || texts(entries))))
            .collect();
        // A thread that has ended early leaves its functions to this one.
        chunks
            .into_iter()
            .flat_map(|(entries, made)| made.join().unwrap_or_else(|_| texts(entries)))
            .collect()
    })
}

fn texts_of(CatalogEntry { name, spec, .. }: &CatalogEntry) -> FunctionTexts {
    let function = Function::with_nearest_types(name, spec);
    let mut detail: Vec<&str> = function.names();
    detail.extend(spec.tags.iter().map(String::as_str));
    detail.extend(function.parameters().iter().filter_map(|field| field.notes.description.as_deref()));
    FunctionTexts {
        line: function_line(&function),
        name: format!("{} {}", name.provider(), name.tool()),
        about: format!("{}\n{}", spec.title.as_deref().unwrap_or_default(), spec.description),
        detail: detail.join("\n"),
    }
}

#[cfg(test)]
mod tests;
