//! Embeddings: one file per provider, one line in [`PROVIDERS`].
//!
//! Documents get vectors of the built-in `fast` model when they are stored, so that semantic search finds them at
//! once. Vectors of the workspace's own model are filled in later, and replace them source by source once a source
//! has all of them. Vectors of two models are never compared.

mod builtin;
mod fill;
mod local;
mod models;
mod ollama;
mod openai;
mod remote;
mod service;

pub use fill::{FillError, FillProgress, FillReport, sleep_cancellable};

pub(crate) use fill::{FillJob, acquire_lease};
pub(crate) use models::{EmbeddingInput, EmbeddingModels, RegisteredModel};

use crate::work_queue;
use ctx_core::Secret;
use std::path::PathBuf;
use std::sync::Arc;

use std::time::Duration;

/// An embedding provider, as named in the configuration.
pub struct EmbedderKind {
    /// `builtin` in `provider = "builtin"`.
    pub name: &'static str,
    /// A description for users.
    pub summary: &'static str,
    /// Creates an embedder from settings; the error names the wrong setting.
    pub open: fn(&EmbedderSettings) -> Result<Arc<dyn Embedder>, String>,
}

/// All embedding providers.
pub const PROVIDERS: &[EmbedderKind] = &[builtin::KIND, local::KIND, openai::KIND, ollama::KIND];

/// Settings of an embedder; each provider uses some of them.
#[derive(Clone, Debug, Default)]
pub struct EmbedderSettings {
    /// Name of the model.
    pub model: Option<String>,
    /// Dimensions of a vector, for models that support several.
    pub dimensions: Option<usize>,
    /// Base URL of the service.
    pub url: Option<String>,
    /// API key of the service.
    pub api_key: Option<Secret>,
    /// Folder of a local model.
    pub path: Option<PathBuf>,
    /// Texts per request.
    pub batch_size: Option<usize>,
    /// Timeout of a request.
    pub timeout: Duration,
}

/// Computes embeddings. Blocks: must not be called from an async task.
pub trait Embedder: Send + Sync + 'static {
    /// Identifies its vectors: provider, model, size.
    fn model(&self) -> &str;

    /// Unit vectors of these texts, in the same order.
    fn embed(&self, texts: &[&str], effort: Effort) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// The unit vector of a query. Fails fast: a user waits, and another model can take over.
    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        Ok(self.embed(&[text], Effort::Full)?.pop().unwrap_or_default())
    }

    /// Maximum tokens of a text, special tokens included.
    fn max_tokens(&self) -> usize;

    /// Texts per call.
    fn batch_size(&self) -> usize;

    /// Whether embedding a query waits for a service instead of computing.
    fn is_remote(&self) -> bool {
        false
    }

    /// Weight of its cosines against BM25 in hybrid search, in [0, 1].
    fn weight(&self) -> f64;

    /// The relevance floor: a cosine that texts unrelated to a query hardly ever reach. `None` if it was not
    /// measured.
    fn relevance_floor(&self) -> Option<f64> {
        None
    }
}

/// Share of the CPU to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// All cores: a user waits.
    Full,
    /// One thread: background work.
    Low,
}

impl Effort {
    /// Number of threads that compute.
    fn threads(self) -> usize {
        match self {
            Self::Full => work_queue::cores(),
            Self::Low => 1,
        }
    }
}

/// A failure to compute embeddings.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmbedError {
    /// Temporary: a retry may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// Temporary: a retry may succeed, but not before this time has passed.
    #[error("{reason}")]
    Later {
        /// Description of the failure.
        reason: String,
        /// Time to wait.
        after: Duration,
    },
    /// Permanent: no retry succeeds.
    #[error("{0}")]
    Refused(String),
    /// The model rejects these texts; others may succeed.
    #[error("{0}")]
    Unreadable(String),
}

/// The embedding configuration of a workspace.
#[derive(Clone)]
pub struct EmbeddingOptions {
    /// The workspace's model.
    pub embedder: Arc<dyn Embedder>,
    /// When its vectors are computed.
    pub fill: FillMode,
}

/// When vectors of the workspace's model are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum FillMode {
    /// In the background of a server; until then, `fast` vectors are used.
    Behind,
    /// Before a sync ends.
    Wait,
}

/// Scales a vector to unit length; one without a positive, finite length stays unchanged.
fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 && length.is_finite() {
        vector.iter_mut().for_each(|value| *value /= length);
    }
}
