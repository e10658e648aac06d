//! The files of a source as of its last sync, with or without stored text.

use crate::documents::DocumentId;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A file that a source had when it was last synced.
///
/// One that a connector could not hand over, because it is too large or nobody may read it, is a warning of that sync and
/// is not remembered: the next sync tries again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceFile {
    /// The id of its document, also where no text of it is stored.
    #[schemars(with = "String", extend("format" = "uuid"))]
    pub id: DocumentId,
    /// Its name within the source. `None` for a file without a stored text that an earlier version skipped, until a sync
    /// names it again.
    pub source_id: Option<String>,
    /// When its content was last read; `None` where an earlier version did.
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub read_at: Option<Timestamp>,
    /// Whether it can be found, and why not.
    #[serde(flatten)]
    pub state: FileState,
}

/// Whether a file can be found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum FileState {
    /// Its text is stored.
    Indexed,
    /// A part of its text is stored.
    Partial {
        /// Why it is not the whole.
        reason: String,
    },
    /// It has no text.
    Empty,
    /// It could not be read, and is not tried again until it changes.
    Unreadable {
        /// Why.
        reason: String,
        /// Whether the text of an earlier version of the file is stored, and found.
        has_earlier_text: bool,
    },
}

impl FileState {
    /// The state of a file whose text is stored. `note` is its skip note: the fingerprint that it is about, and the
    /// reason.
    pub(crate) fn for_stored(fingerprint: Option<&str>, note: Option<(&str, Option<String>)>) -> Self {
        match note {
            Some((noted, Some(reason))) if fingerprint == Some(noted) => Self::Partial { reason },
            Some((_, Some(reason))) => Self::Unreadable { reason, has_earlier_text: true },
            _ => Self::Indexed,
        }
    }

    /// The state of a file without a stored text.
    pub(crate) fn for_skipped(reason: Option<String>) -> Self {
        match reason {
            Some(reason) => Self::Unreadable { reason, has_earlier_text: false },
            None => Self::Empty,
        }
    }
}

/// A place in the list of a source's files, which is behind one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilePosition {
    /// The name of the file, where it has one.
    pub source_id: Option<String>,
    /// Its id.
    #[schemars(with = "String", extend("format" = "uuid"))]
    pub id: DocumentId,
}

impl FilePosition {
    /// The sort key of the list: by name; files without a name come last, by id.
    pub(crate) fn sort_key(&self) -> (bool, Option<&str>, DocumentId) {
        (self.source_id.is_none(), self.source_id.as_deref(), self.id)
    }
}

impl SourceFile {
    /// Its position in the list.
    pub fn position(&self) -> FilePosition {
        FilePosition { source_id: self.source_id.clone(), id: self.id }
    }
}
