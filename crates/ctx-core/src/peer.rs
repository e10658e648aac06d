//! The peer of a call: its client, which gets progress and answers questions (elicitation, sampling, roots).

use crate::Catalog;
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The client at the other end of a call.
#[async_trait]
pub trait Peer: Send + Sync + 'static {
    /// Called once the outermost call is admitted by policy, schema and rate limit, before its tool runs.
    fn admitted(&self) {}

    /// Reports progress.
    fn progress(&self, _progress: Progress) {}

    /// Forwards a machine-readable event, in the tool's own format.
    fn event(&self, _event: &Value) {}

    /// Forwards a log line of the tool.
    fn log(&self, _level: tracing::Level, _message: &str) {}

    /// Asks a question and waits for the answer.
    async fn ask(&self, _question: Question) -> Result<Value, QuestionError> {
        Err(QuestionError::Unsupported)
    }
}

/// Progress of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Units completed.
    pub done: f64,
    /// Units in total, if known.
    pub total: Option<f64>,
    /// Description of the current step.
    pub message: Option<String>,
}

/// A question of a call to its peer.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Identifies the question among those of one call, if the caller names it.
    pub key: Option<String>,
    /// The kind of question.
    pub kind: QuestionKind,
}

/// A kind of question, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum QuestionKind {
    /// Elicitation: the user enters a value that matches the schema.
    Elicitation {
        /// The question.
        message: String,
        /// JSON Schema of the answer, an object.
        schema: Value,
    },
    /// Sampling: the client's model writes a message; the parameters of MCP's `sampling/createMessage`.
    Sampling(Map<String, Value>),
    /// Roots: the client lists the folders in which it works.
    Roots,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// The client does not support such questions.
    #[error("the client does not support this kind of question")]
    Unsupported,
    /// The user declined.
    #[error("the user declined")]
    Declined,
    /// The user dismissed the question.
    #[error("the user dismissed the question")]
    Cancelled,
    /// The time for answers is over.
    #[error("the question timed out")]
    TimedOut,
    /// No client has a form for such a question.
    #[error("clients support questions for text, numbers, booleans and choices only")]
    UnsupportedSchema,
    /// The answer does not match the question.
    #[error("the answer does not match the question's schema")]
    InvalidAnswer,
}

impl QuestionError {
    const ALL: [Self; 6] = [
        Self::Unsupported,
        Self::Declined,
        Self::Cancelled,
        Self::TimedOut,
        Self::UnsupportedSchema,
        Self::InvalidAnswer,
    ];

    /// Error code, for interfaces that pass only text, such as scripts.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unsupported => "cannot_be_asked",
            Self::Declined => "declined",
            Self::Cancelled => "dismissed",
            Self::TimedOut => "unanswered",
            Self::UnsupportedSchema => "unaskable",
            Self::InvalidAnswer => "unfit_answer",
        }
    }

    /// The reason with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.code() == code)
    }
}

/// A peer that ignores progress and answers no question.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPeer;

impl Peer for NoPeer {}

/// Masks the secrets of a catalog in everything that is sent to a peer.
pub(crate) struct MaskedPeer {
    pub(crate) peer: Arc<dyn Peer>,
    pub(crate) catalog: Arc<Catalog>,
}

#[async_trait]
impl Peer for MaskedPeer {
    fn admitted(&self) {
        self.peer.admitted();
    }

    fn progress(&self, progress: Progress) {
        let message = progress.message.map(|message| self.catalog.mask_text(message));
        self.peer.progress(Progress { message, ..progress });
    }

    fn event(&self, event: &Value) {
        self.peer.event(&self.catalog.redactor().json(event));
    }

    fn log(&self, level: tracing::Level, message: &str) {
        self.peer.log(level, &self.catalog.mask_text(message.to_owned()));
    }

    async fn ask(&self, question: Question) -> Result<Value, QuestionError> {
        let want = match question.kind {
            QuestionKind::Elicitation { message, schema } => {
                QuestionKind::Elicitation { message: self.catalog.mask_text(message), schema }
            }
            QuestionKind::Sampling(request) => {
                let masked = self.catalog.redactor().json(&Value::Object(request));
                QuestionKind::Sampling(match masked {
                    Value::Object(request) => request,
                    _ => Map::new(),
                })
            }
            QuestionKind::Roots => QuestionKind::Roots,
        };
        self.peer.ask(Question { kind: want, ..question }).await
    }
}
