//! Storage errors: a variant for each case that a caller can act on.

use std::error::Error;
use std::fmt;
use std::io;

/// A failure of a store or of a state file, the same for every backend.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file was written by a newer version.
    #[error("{place} was written by a newer ctx (format {found}, this version supports {known})")]
    Newer {
        /// The location of the data.
        place: StoreLocation,
        /// The format of the file.
        found: i64,
        /// The newest format that this version knows.
        known: i64,
    },
    /// The file is not a database, or it is damaged.
    #[error("{place} is damaged: {reason}")]
    Corrupt {
        /// The location of the data.
        place: StoreLocation,
        /// The error message of the database.
        reason: String,
    },
    /// The file can be read but not written.
    #[error("{place} cannot be written")]
    ReadOnly {
        /// The location of the data.
        place: StoreLocation,
    },
    /// The disk is full.
    #[error("no space left to write {place}")]
    Full {
        /// The location of the data.
        place: StoreLocation,
    },
    /// Another process holds a lock on the file.
    #[error("{place} is locked by another process")]
    Busy {
        /// The location of the data.
        place: StoreLocation,
    },
    /// The file cannot be opened.
    #[error("cannot open {place}: {reason}")]
    Open {
        /// The location of the data.
        place: StoreLocation,
        /// Why it cannot be opened.
        reason: String,
    },
    /// The `application_id` or the tables are those of another program.
    #[error("{} is a database of another program", place.name)]
    Foreign {
        /// The location of the data.
        place: StoreLocation,
    },
    /// The database library does not meet the requirements of the contract: SQLite is too old.
    #[error("{reason}")]
    Unsupported {
        /// Why, and the version that would do.
        reason: String,
    },
    /// The file or its folder cannot be created.
    #[error("cannot create {}: {source}", place.name)]
    Create {
        /// The location of the file.
        place: StoreLocation,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The thread that writes runs cannot be started.
    #[error("cannot start the thread that records runs: {0}")]
    Writer(String),
    /// An I/O error while acquiring a lease. A lease that another holder has is not an error.
    #[error("{0}")]
    Lease(io::Error),
    /// Any other error of the database.
    #[error("{}", failure(place, source.as_ref()))]
    Failed {
        /// The location of the data.
        place: StoreLocation,
        /// The error of the database.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// The location of stored data, for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLocation {
    /// A path, or the address of a database server without its credentials.
    pub name: String,
    /// Which part of the stored data is there.
    pub part: StorePart,
}

/// A part of the stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePart {
    /// Documents and the sync state of their sources.
    Documents,
    /// Runs, tool definitions, trust records, logins.
    State,
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            StorePart::Documents => write!(f, "the store {}", self.name),
            StorePart::State => f.write_str(&self.name),
        }
    }
}

impl StoreError {
    /// The part of the stored data that the error is about.
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

fn failure(place: &StoreLocation, source: &dyn Error) -> String {
    match place.part {
        StorePart::Documents => format!("{place} failed"),
        StorePart::State => format!("cannot use {place}: {source}"),
    }
}
