//! Which document a person means: by id, by the beginning of one, by name or by path.

use crate::connectors::file_url;
use crate::knowledge::Knowledge;
use ctx_core::nearest;
use ctx_store::{DocumentName, StoreError};
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use uuid::Uuid;

/// The fewest digits that are taken as the beginning of an id, as with git.
const ID_PREFIX_MIN: usize = 4;
/// Names suggested in the place of one that nothing has.
const SUGGESTIONS_MAX: usize = 3;

/// Names that are read at once.
const NAMES_PAGE: usize = 4_096;

/// A document as people name it: by its id, by `source:source_id`, or by its `source_id` alone, which
/// other sources may have too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDocument {
    /// Its id.
    pub id: Uuid,
    /// `source:source_id`, which no other document has.
    pub full_name: String,
}

/// The documents that a typed name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Exactly this one.
    Found(Uuid),
    /// Several; whoever asked must say more.
    Ambiguous(Vec<NamedDocument>),
    /// None, and the names that are nearest to it.
    Missing(Vec<String>),
}

impl Knowledge {
    /// Looks a document up by what a person typed: an id or its beginning, `source:source_id`, a `source_id`, or the
    /// path of a file, relative paths being relative to `working_directory`. A name goes before the beginning of an id.
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
        self.each_name(|name| {
            let document = named(&name);
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
        // Two sources may read one file, and the nearest folder is the one that the user is in.
        let meant = [by_path, by_name, by_id].into_iter().find(|found| !found.is_empty());
        Ok(match meant.as_deref() {
            None => Lookup::Missing(suggestions(plain, &names)),
            Some([one]) => Lookup::Found(one.id),
            Some(several) => Lookup::Ambiguous(several.to_vec()),
        })
    }

    /// Which documents are meant by each of these names; a name that means none is left out.
    pub fn named(&self, names: &HashSet<&str>) -> Result<HashMap<String, Vec<NamedDocument>>, StoreError> {
        let mut meant: HashMap<String, Vec<NamedDocument>> = HashMap::new();
        self.each_name(|name| {
            let document = named(&name);
            let shown_id = document.id.to_string();
            for name in [shown_id.as_str(), &document.full_name, &name.source_id] {
                if names.contains(name) {
                    meant.entry(name.to_owned()).or_default().push(document.clone());
                }
            }
        })?;
        Ok(meant)
    }

    /// Every stored document's id, by source.
    pub fn ids(&self) -> Result<Vec<Uuid>, StoreError> {
        let mut ids = Vec::new();
        self.each_name(|name| ids.push(name.id))?;
        Ok(ids)
    }

    /// Walks the names of all documents, by source.
    fn each_name(&self, mut visit: impl FnMut(DocumentName)) -> Result<(), StoreError> {
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

fn named(name: &DocumentName) -> NamedDocument {
    NamedDocument { id: name.id, full_name: format!("{}:{}", name.source, name.source_id) }
}

/// The path from the root, without `.` and `..`; the file need not exist.
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

/// The digits of what may be the beginning of an id.
fn id_digits(typed: &str) -> Option<String> {
    let digits: String =
        typed.chars().filter(|char| *char != '-').map(|char| char.to_ascii_lowercase()).collect();
    let is_prefix = digits.len() >= ID_PREFIX_MIN && digits.chars().all(|char| char.is_ascii_hexdigit());
    is_prefix.then_some(digits)
}

/// Files of that name in other folders, then the nearest by spelling.
fn suggestions(typed: &str, names: &[String]) -> Vec<String> {
    let file = |name: &str| name.rsplit('/').next().unwrap_or_default().to_lowercase();
    let wanted = file(typed);
    let has_stem = |name: &&String| {
        let file = file(name);
        !wanted.is_empty()
            && (file == wanted || file.rsplit_once('.').is_some_and(|(stem, _)| stem == wanted))
    };
    let mut found: Vec<String> = names.iter().filter(has_stem).take(SUGGESTIONS_MAX).cloned().collect();
    let files: Vec<String> = names.iter().map(|name| file(name)).collect();
    let by_file = nearest(&wanted, files.iter().map(String::as_str))
        .and_then(|near| names.iter().find(|name| file(name) == near));
    let by_path = nearest(typed, names.iter().map(String::as_str));
    for name in by_path.into_iter().chain(by_file.map(String::as_str)) {
        if found.len() < SUGGESTIONS_MAX && !found.iter().any(|known| known == name) {
            found.push(name.to_owned());
        }
    }
    found
}
