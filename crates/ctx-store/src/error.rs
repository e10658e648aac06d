//! What can be wrong with what is stored, told apart as far as somebody can act on it.

use std::error::Error;
use std::fmt;
use std::io;

/// A store or a file of state that cannot be used, or cannot be used so. The same for every backend.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A newer version wrote it.
    #[error("{place} was written by a newer ctx (format {found}, this one knows {known})")]
    Newer {
        /// Where it is.
        place: Place,
        /// Its format.
        found: i64,
        /// The newest format we know.
        known: i64,
    },
    /// It is not a database, or a damaged one.
    #[error("{place} is damaged: {reason}")]
    Corrupt {
        /// Where it is.
        place: Place,
        /// The database's own words.
        reason: String,
    },
    /// It can be read but not written.
    #[error("{place} cannot be written")]
    ReadOnly {
        /// Where it is.
        place: Place,
    },
    /// The disk is full.
    #[error("no space left to write {place}")]
    Full {
        /// Where it is.
        place: Place,
    },
    /// Another process keeps it locked.
    #[error("{place} is locked by another process")]
    Busy {
        /// Where it is.
        place: Place,
    },
    /// It cannot be opened at all.
    #[error("cannot open {place}: {reason}")]
    Open {
        /// Where it is.
        place: Place,
        /// Why.
        reason: String,
    },
    /// Its marks or tables are those of another program.
    #[error("{} is a database of another program", place.name)]
    Foreign {
        /// Where it is.
        place: Place,
    },
    /// What the backend is made of is not good enough to keep the contract.
    #[error("{reason}")]
    Unsupported {
        /// Why, and what would be.
        reason: String,
    },
    /// Its folder, or the file itself, cannot be made.
    #[error("cannot make {}: {source}", place.name)]
    Create {
        /// Where it should be.
        place: Place,
        /// The system's own words.
        source: io::Error,
    },
    /// There is no thread for the writer of runs.
    #[error("cannot start the writer of runs: {0}")]
    Writer(String),
    /// A lease can neither be had nor be said to be somebody else's.
    #[error("{0}")]
    Lease(io::Error),
    /// Anything else that the database reports.
    #[error("{}", failure(place, source.as_ref()))]
    Failed {
        /// Where it is.
        place: Place,
        /// The database's own words.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// Where something is stored, as a person may be shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A path, or the address of a server without its credentials.
    pub name: String,
    /// The part of what is stored that lies there.
    pub part: StorePart,
}

/// A part of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePart {
    /// Documents and their sources.
    Documents,
    /// Runs, definitions, trust, logins.
    State,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            StorePart::Documents => write!(f, "the store {}", self.name),
            StorePart::State => f.write_str(&self.name),
        }
    }
}

impl StoreError {
    /// The part of what is stored that it is about.
    pub fn part(&self) -> StorePart {
        match self {
            Self::Newer { place, .. }
            | Self::Corrupt { place, .. }
            | Self::ReadOnly { place }
            | Self::Full { place }
            | Self::Busy { place }
            | Self::Open { place, .. }
            | Self::Foreign { place }
            | Self::Create { place, .. }
            | Self::Failed { place, .. } => place.part,
            Self::Unsupported { .. } | Self::Lease(_) => StorePart::Documents,
            Self::Writer(_) => StorePart::State,
        }
    }
}

fn failure(place: &Place, source: &dyn Error) -> String {
    match place.part {
        StorePart::Documents => format!("{place} failed"),
        StorePart::State => format!("cannot use {place}: {source}"),
    }
}
