//! Search filters.

use jiff::Timestamp;

/// Conditions on the documents that a search may find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// A source (`git:platform`) or a kind of connector (`git`).
    pub source: Option<String>,
    /// Tags that a document must all have.
    pub tags: Vec<String>,
    /// Changed at this time or later.
    pub since: Option<Timestamp>,
    /// Changed at this time or earlier.
    pub until: Option<Timestamp>,
}

impl Filters {
    /// Whether documents of this source match the source filter.
    pub fn allows_source(&self, name: &str) -> bool {
        let Some(source) = &self.source else { return true };
        name == source || name.split_once(':').is_some_and(|(kind, _)| kind == source)
    }

    /// Whether there are no conditions.
    pub fn are_empty(&self) -> bool {
        *self == Self::default()
    }
}
