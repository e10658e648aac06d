//! Resolves what a user typed to a document: an id, an id prefix, a name or a path.

use crate::connectors::file_url;
use crate::knowledge::Knowledge;
use ctx_core::nearest;
use ctx_store::{DocumentName, StoreError};
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use uuid::Uuid;

/// Minimum length of an id prefix, as with git.
const ID_PREFIX_MIN: usize = 4;
/// Maximum number of suggestions for an unknown name.
const SUGGESTIONS_MAX: usize = 3;

/// Names read per page.
const NAMES_PAGE: usize = 4_096;

/// A document with its unambiguous name. A `source_id` alone may exist in several sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDocument {
    /// Its id.
    pub id: Uuid,
    /// `source:source_id`, which is unique.
    pub full_name: String,
}

/// The result of resolving a typed name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Exactly this one.
    Found(Uuid),
    /// Several documents match; the name must be qualified.
    Ambiguous(Vec<NamedDocument>),
    /// No document matches; the closest names.
    Missing(Vec<String>),
}

impl Knowledge {
    /// Resolves typed text: an id or its prefix, `source:source_id`, a `source_id`, or the path of a file, relative to
    /// `working_directory`. A path takes precedence over a name, and a name over an id prefix.
    pub fn look_up(&self, typed: &str, working_directory: &Path) -> Result<Lookup, StoreError> {
        let path = absolute_path(typed, working_directory);
        let urls: Vec<String> = [path.canonicalize().ok(), Some(path)]
            .iter()
            .flatten()
            .filter_map(|path| file_url(path))
            .collect();
        let plain = typed.strip_prefix("./").unwrap_or(typed);
        let prefix = id_digits(typed);
        let (mut by_path, mut by_name, mut by_id) = (Vec::new(), Vec::new(), Vec::new());
        let mut names = Vec::new();
        self.for_each_name(|name| {
            let document = named_document(&name);
            if name.source_url.is_some_and(|url| urls.contains(&url)) {
                by_path.push(document.clone());
            }
            if [name.source_id.as_str(), &document.full_name].contains(&plain) {
                by_name.push(document.clone());
            }
            if prefix.as_ref().is_some_and(|prefix| document.id.simple().to_string().starts_with(prefix)) {
                by_id.push(document);
            }
            names.push(name.source_id);
        })?;
        // Two sources may read the same file; a path takes precedence because it is relative to the user's folder.
        let matches = [by_path, by_name, by_id].into_iter().find(|matches| !matches.is_empty());
        Ok(match matches.as_deref() {
            None => Lookup::Missing(suggest(plain, &names)),
            Some([one]) => Lookup::Found(one.id),
            Some(several) => Lookup::Ambiguous(several.to_vec()),
        })
    }

    /// The documents that each of these names refers to; names without a document are left out.
    pub fn documents_by_name(
        &self,
        names: &HashSet<&str>,
    ) -> Result<HashMap<String, Vec<NamedDocument>>, StoreError> {
        let mut matches: HashMap<String, Vec<NamedDocument>> = HashMap::new();
        self.for_each_name(|name| {
            let document = named_document(&name);
            let shown_id = document.id.to_string();
            for name in [shown_id.as_str(), &document.full_name, &name.source_id] {
                if names.contains(name) {
                    matches.entry(name.to_owned()).or_default().push(document.clone());
                }
            }
        })?;
        Ok(matches)
    }

    /// The ids of all stored documents, ordered by source.
    pub fn ids(&self) -> Result<Vec<Uuid>, StoreError> {
        let mut ids = Vec::new();
        self.for_each_name(|name| ids.push(name.id))?;
        Ok(ids)
    }

    /// Calls `visit` with the name of every document, ordered by source.
    fn for_each_name(&self, mut visit: impl FnMut(DocumentName)) -> Result<(), StoreError> {
        let mut last: Option<DocumentName> = None;
        loop {
            let page = self.store().names(last.as_ref(), NAMES_PAGE)?;
            last = page.last().cloned();
            let is_last = page.len() < NAMES_PAGE;
            page.into_iter().for_each(&mut visit);
            if is_last {
                return Ok(());
            }
        }
    }
}

fn named_document(name: &DocumentName) -> NamedDocument {
    NamedDocument { id: name.id, full_name: format!("{}:{}", name.source, name.source_id) }
}

/// The absolute path without `.` and `..`; the file need not exist.
fn absolute_path(typed: &str, working_directory: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    for part in working_directory.join(typed).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                path.pop();
            }
            part => path.push(part),
        }
    }
    path
}

/// The hexadecimal digits of a possible id prefix.
fn id_digits(typed: &str) -> Option<String> {
    let digits: String =
        typed.chars().filter(|char| *char != '-').map(|char| char.to_ascii_lowercase()).collect();
    let is_prefix = digits.len() >= ID_PREFIX_MIN && digits.chars().all(|char| char.is_ascii_hexdigit());
    is_prefix.then_some(digits)
}

/// Files with the same name in other folders, then the closest names by edit distance.
fn suggest(typed: &str, names: &[String]) -> Vec<String> {
    let file = |name: &str| name.rsplit('/').next().unwrap_or_default().to_lowercase();
    let typed_file = file(typed);
    let has_stem = |name: &&String| {
        let file = file(name);
        !typed_file.is_empty()
            && (file == typed_file || file.rsplit_once('.').is_some_and(|(stem, _)| stem == typed_file))
    };
    let mut suggestions: Vec<String> = names.iter().filter(has_stem).take(SUGGESTIONS_MAX).cloned().collect();
    let files: Vec<String> = names.iter().map(|name| file(name)).collect();
    let by_file = nearest(&typed_file, files.iter().map(String::as_str))
        .and_then(|near| names.iter().find(|name| file(name) == near));
    let by_path = nearest(typed, names.iter().map(String::as_str));
    for name in by_path.into_iter().chain(by_file.map(String::as_str)) {
        if suggestions.len() < SUGGESTIONS_MAX && !suggestions.iter().any(|known| known == name) {
            suggestions.push(name.to_owned());
        }
    }
    suggestions
}
