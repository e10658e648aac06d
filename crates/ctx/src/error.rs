//! Errors of commands: messages and hints for the terminal, and the exit code.

use crate::config::ConfigError;
use ctx_core::{ErrorKind, ToolError, error_chain};
use ctx_knowledge::{FillError, SearchError, SyncError};
use ctx_store::{StoreError, StorePart};
use serde_json::{Value, json};

/// The error of a command.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) exit: Exit,
    /// The kind of the error, if it is more specific than the exit code.
    pub(crate) kind: Option<ErrorKind>,
    pub(crate) messages: Vec<String>,
    pub(crate) hints: Vec<String>,
}

/// Exit codes other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    Failure = 1,
    Usage = 2,
    /// `EX_TEMPFAIL`: another process holds the resource; try again.
    Busy = 75,
    /// Ended by Ctrl-C: 128 plus the number of SIGINT, as in shells.
    Interrupted = 130,
    /// Ended by SIGTERM: 128 plus its number.
    Terminated = 143,
}

pub(crate) type CommandResult<T = ()> = Result<T, CommandError>;

impl CommandError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failure, kind: None, messages: vec![message.into()], hints: Vec::new() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, ..Self::new(message) }
    }

    pub(crate) fn of_kind(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind: Some(kind), ..Self::new(message) }
    }

    /// The machine-readable error: `{"error": {"code", "message", "hint"}}`.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({"code": self.code(), "message": self.messages.join("; ")});
        if !self.hints.is_empty() {
            error["hint"] = json!(self.hints.join("; "));
        }
        json!({ "error": error })
    }

    fn code(&self) -> &'static str {
        match (self.kind, self.exit) {
            (Some(kind), _) => kind.code(),
            (None, Exit::Usage) => ErrorKind::BadRequest.code(),
            (None, Exit::Busy) => ErrorKind::Overloaded.code(),
            (None, Exit::Interrupted | Exit::Terminated) => "interrupted",
            (None, Exit::Failure) => "failed",
        }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> Self {
        Self {
            exit: Exit::Usage,
            kind: Some(ErrorKind::NotConfigured),
            messages: error.problems,
            hints: Vec::new(),
        }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        Self::from(&error)
    }
}

impl From<&StoreError> for CommandError {
    fn from(error: &StoreError) -> Self {
        let hint = match error {
            error if error.part() == StorePart::State => {
                "the file holds only the record of runs; it can be moved away"
            }
            StoreError::Newer { .. } => "install a newer ctx, or set `db.path` to another file",
            StoreError::Corrupt { .. } => {
                "move the file away and run `ctx sync`: everything in it can be read again from its sources"
            }
            StoreError::ReadOnly { .. } => "check the permissions of the file and its folder",
            StoreError::Full { .. } => "free some space and run the command again; nothing was lost",
            StoreError::Busy { .. } => "wait for the other process, then run the command again",
            StoreError::Foreign { .. } => "set `db.path` to another file, or leave it out",
            StoreError::Open { .. } => "check `db.path` and the permissions of its folder",
            _ => "run `ctx doctor`",
        };
        let exit = if matches!(error, StoreError::Busy { .. }) { Exit::Busy } else { Exit::Failure };
        Self { exit, ..Self::new(error_chain(error)) }.hint(hint)
    }
}

impl From<SearchError> for CommandError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Store(error) => error.into(),
            other => Self::new(error_chain(&other)).hint("run `ctx doctor`"),
        }
    }
}

impl From<SyncError> for CommandError {
    fn from(error: SyncError) -> Self {
        match error {
            SyncError::Store(error) => error.into(),
            SyncError::Busy { .. } => Self { exit: Exit::Busy, ..Self::new(error.to_string()) }
                .hint("wait for it to finish, then run the command again"),
            SyncError::Interrupted { .. } => Self { exit: Exit::Interrupted, ..Self::new(error.to_string()) }
                .hint("run the command again to continue"),
            other => Self::new(error_chain(&other)),
        }
    }
}

impl From<FillError> for CommandError {
    fn from(error: FillError) -> Self {
        match error {
            FillError::Store(error) => error.into(),
            FillError::Busy => Self { exit: Exit::Busy, ..Self::new(error.to_string()) }
                .hint("a running server computes them; `ctx stats` shows its progress"),
            FillError::Embedder(_) => Self::new(error_chain(&error))
                .hint("check [embedding] in ctx.toml; the embeddings computed so far are kept"),
            FillError::Lock(_) | FillError::Replaced => Self::new(error_chain(&error)),
        }
    }
}

impl From<ToolError> for CommandError {
    fn from(error: ToolError) -> Self {
        let exit = match error.kind() {
            ErrorKind::BadRequest => Exit::Usage,
            ErrorKind::RateLimited | ErrorKind::Overloaded => Exit::Busy,
            _ => Exit::Failure,
        };
        Self { exit, ..Self::of_kind(error.kind(), error_chain(&error)) }
    }
}

/// Converts a usage error of clap; keeps its wording, tips and usage line.
impl From<clap::Error> for CommandError {
    fn from(error: clap::Error) -> Self {
        use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
        if [DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand].contains(&error.kind()) {
            return Self::usage("a command is missing").hint("`--help` lists the commands");
        }
        let text = error.render().to_string();
        let (message, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let tips = rest.lines().filter_map(|line| line.trim().strip_prefix("tip: ")).map(words);
        let usage = rest.lines().filter(|line| line.starts_with("Usage: ")).map(words);
        let message = Self::usage(words(message.strip_prefix("error: ").unwrap_or(message)));
        tips.chain(usage).fold(message, Self::hint)
    }
}
