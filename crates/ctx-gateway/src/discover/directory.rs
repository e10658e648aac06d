//! [`Directory`]: the functions of one catalog, each with a line of text, and a search index over them.
//!
//! It is composed of one [`DirectoryPart`] for each provider, which costs nothing; `directory_part` makes these.

use super::directory_part::{DirectoryPart, FunctionEntry};
use super::text::{hint, truncate};
use ctx_core::{ToolError, nearest};
use ctx_rank::SmallTextIndex;
use std::ops::Range;
use std::sync::Arc;

/// The functions of a catalog, by full name.
pub(crate) struct Directory {
    /// In the order of the names of their providers.
    parts: Vec<Arc<DirectoryPart>>,
    texts: SmallTextIndex,
}

impl Directory {
    pub(super) fn of_parts(parts: Vec<Arc<DirectoryPart>>) -> Self {
        let texts = SmallTextIndex::of_segments(parts.iter().map(|part| part.texts().clone()).collect());
        Self { parts, texts }
    }

    /// All functions, grouped by provider.
    pub(super) fn all(&self) -> Vec<&FunctionEntry> {
        self.parts.iter().flat_map(|part| part.functions()).collect()
    }

    /// The functions of one provider; an error suggests the most similar name.
    pub(super) fn provider(&self, name: &str) -> Result<Vec<&FunctionEntry>, ToolError> {
        self.part_of(name).map(|(_, part)| part.functions().iter().collect())
    }

    /// The functions that match a query, best first.
    pub(super) fn search(
        &self,
        query: &str,
        provider: Option<&str>,
        limit: usize,
    ) -> Result<Vec<&FunctionEntry>, ToolError> {
        let indices = match provider {
            Some(provider) => self.part_of(provider)?.0,
            None => 0..self.parts.iter().map(|part| part.functions().len()).sum(),
        };
        let found = self.texts.best(query, limit, |index| indices.contains(&index));
        Ok(found.into_iter().filter_map(|index| self.function(index)).collect())
    }

    /// A function by its index in the search index.
    fn function(&self, mut index: usize) -> Option<&FunctionEntry> {
        for part in &self.parts {
            match part.functions().get(index) {
                Some(function) => return Some(function),
                None => index -= part.functions().len(),
            }
        }
        None
    }

    /// The part of a provider, and the range of its functions in the search index.
    fn part_of(&self, provider: &str) -> Result<(Range<usize>, &DirectoryPart), ToolError> {
        let mut start = 0;
        for part in &self.parts {
            let end = start + part.functions().len();
            if part.provider() == provider {
                return Ok((start..end, part));
            }
            start = end;
        }
        let similar = nearest(provider, self.parts.iter().map(|part| part.provider()));
        Err(ToolError::not_found(format!("no provider is called {}{}", truncate(provider), hint(similar))))
    }
}
