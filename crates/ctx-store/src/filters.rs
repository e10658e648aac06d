//! Which documents a search may find.

use jiff::Timestamp;

/// What may be found at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// A source (`git:platform`) or a kind (`git`).
    pub source: Option<String>,
    /// All of these must be among the document's tags.
    pub tags: Vec<String>,
    /// Changed at this time or later.
    pub since: Option<Timestamp>,
    /// Changed at this time or earlier.
    pub until: Option<Timestamp>,
}

impl Filters {
    /// Whether documents of this source may be found.
    pub fn allows_source(&self, name: &str) -> bool {
        let Some(wanted) = &self.source else { return true };
        name == wanted || name.split_once(':').is_some_and(|(kind, _)| kind == wanted)
    }

    /// Whether everything may be found.
    pub fn are_empty(&self) -> bool {
        *self == Self::default()
    }
}
