//! The names that a script defines.

use super::bindings::BindingKind;
use super::tree::TokenTree;
use std::collections::{BTreeMap, BTreeSet};

/// The name of the table of all globals.
const GLOBALS: &str = "_G";

/// The names that a script defines, and where.
#[derive(Debug, Default)]
pub struct DefinedNames {
    /// For each bound name: the line of its first binding, and whether it may be a global.
    lines: BTreeMap<String, (usize, bool)>,
    /// Fields of `_G` that the script names.
    fields: BTreeSet<String>,
    /// Whether the script may define globals of any name, through `_G`.
    pub is_open: bool,
}

impl DefinedNames {
    /// Collects the names that a script defines; `tree` has its tokens.
    pub fn collect(source: &str, tree: &TokenTree<'_>) -> Self {
        let mut names = Self::default();
        let (mut line, mut counted) = (1, 0);
        for binding in tree.bindings() {
            let at = tree.byte_offset(binding.at);
            line += source.get(counted..at).unwrap_or_default().matches('\n').count();
            counted = at;
            let (_, is_global) = names.lines.entry(binding.name.to_owned()).or_insert((line, false));
            *is_global |= binding.kind == BindingKind::Assigned;
        }
        for at in (0..tree.len()).filter(|at| tree.name(*at) == Some(GLOBALS) && !tree.is_field(*at)) {
            let indexed =
                || tree.text(at + 2).filter(|_| tree.is_symbol(at + 1, "[") && tree.is_symbol(at + 3, "]"));
            let dotted = tree.name(at + 2).filter(|_| tree.is_symbol(at + 1, "."));
            match dotted.or_else(indexed) {
                Some(field) => names.fields.extend([field.to_owned()]),
                None => names.is_open = true,
            }
        }
        names
    }

    /// Whether the script binds this name anywhere.
    pub fn defines(&self, name: &str) -> bool {
        self.lines.contains_key(name) || self.may_be_global(name)
    }

    /// Whether the script may define a global of this name.
    pub fn may_be_global(&self, name: &str) -> bool {
        self.is_open
            || self.fields.contains(name)
            || self.lines.get(name).is_some_and(|(_, is_global)| *is_global)
    }

    /// The line of the first binding of a name.
    pub fn line_of(&self, name: &str) -> Option<usize> {
        self.lines.get(name).map(|(line, _)| *line)
    }

    /// All bound names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str)
    }
}
