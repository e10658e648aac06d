//! Whoever is at the other end of a call: told how it goes, and asked what only they know.

use crate::Catalog;
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Whoever is at the other end of a call.
#[async_trait]
pub trait Peer: Send + Sync + 'static {
    /// Tells that the outermost call is admitted: policy, schema and rate limit let it pass, and its tool runs now.
    fn admitted(&self) {}

    /// Tells how far the work has come.
    fn progress(&self, _progress: Progress) {}

    /// Passes on what a program at the other end can read of the work: an event in the tool's own shape.
    fn event(&self, _event: &Value) {}

    /// Passes on a line that the tool logged.
    fn log(&self, _level: tracing::Level, _message: &str) {}

    /// Asks a question and waits for its answer.
    async fn ask(&self, _question: Question) -> Result<Value, Unanswered> {
        Err(Unanswered::Unable)
    }
}

/// How far a call has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Units done.
    pub done: f64,
    /// Units in all, where known.
    pub total: Option<f64>,
    /// What is being done.
    pub message: Option<String>,
}

/// What a call asks its other end.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Its name among the questions of one call, where whoever asks has one for it.
    pub key: Option<String>,
    /// What is wanted.
    pub want: Want,
}

/// What a question wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    /// A value from the person; the answer fits the schema.
    Person {
        /// What they are asked.
        message: String,
        /// JSON Schema of the answer, an object.
        schema: Value,
    },
    /// A message from the client's model, as `sampling/createMessage` of MCP has it.
    Model(Map<String, Value>),
    /// The folders that the client works in, a list.
    Roots,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The other end has no way to answer.
    #[error("this client cannot be asked")]
    Unable,
    /// A person said no.
    #[error("the person declined")]
    Declined,
    /// A person closed the question without saying anything.
    #[error("the person dismissed the question")]
    Dismissed,
    /// The time for answers is over.
    #[error("nobody answered in time")]
    TooLate,
    /// Clients have no form for such a question.
    #[error("clients can be asked for text, numbers, booleans and choices only")]
    Unaskable,
    /// What came back does not fit what was asked.
    #[error("the answer does not fit the question")]
    Unfit,
}

impl Unanswered {
    const ALL: [Self; 6] =
        [Self::Unable, Self::Declined, Self::Dismissed, Self::TooLate, Self::Unaskable, Self::Unfit];

    /// Its code where only text can pass, as out of a script.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unable => "cannot_be_asked",
            Self::Declined => "declined",
            Self::Dismissed => "dismissed",
            Self::TooLate => "unanswered",
            Self::Unaskable => "unaskable",
            Self::Unfit => "unfit_answer",
        }
    }

    /// The reason with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.code() == code)
    }
}

/// Nobody to ask, nobody to tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPeer;

impl Peer for NoPeer {}

/// A peer that is told no secret of the catalog's.
pub(crate) struct Masking {
    pub(crate) peer: Arc<dyn Peer>,
    pub(crate) catalog: Arc<Catalog>,
}

#[async_trait]
impl Peer for Masking {
    fn admitted(&self) {
        self.peer.admitted();
    }

    fn progress(&self, progress: Progress) {
        let message = progress.message.map(|message| self.catalog.masked(message));
        self.peer.progress(Progress { message, ..progress });
    }

    fn event(&self, event: &Value) {
        self.peer.event(&self.catalog.redactor().json(event));
    }

    fn log(&self, level: tracing::Level, message: &str) {
        self.peer.log(level, &self.catalog.masked(message.to_owned()));
    }

    async fn ask(&self, question: Question) -> Result<Value, Unanswered> {
        let want = match question.want {
            Want::Person { message, schema } => {
                Want::Person { message: self.catalog.masked(message), schema }
            }
            Want::Model(request) => {
                let masked = self.catalog.redactor().json(&Value::Object(request));
                Want::Model(match masked {
                    Value::Object(request) => request,
                    _ => Map::new(),
                })
            }
            Want::Roots => Want::Roots,
        };
        self.peer.ask(Question { want, ..question }).await
    }
}
