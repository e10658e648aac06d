//! Text to vectors: one file for each provider, one line in [`PROVIDERS`].
//!
//! Documents get vectors of the built-in `fast` model as they are stored, so that they can be found
//! by meaning at once. Vectors of the workspace's own model are filled in behind, and take over
//! source by source when a source has all of them. Vectors of two models are never compared.

mod builtin;
mod fill;
mod http;
mod local;
mod numbered;
mod ollama;
mod openai;
mod served;

pub use fill::{FillError, FillProgress, Filled, rest};

pub(crate) use fill::{FillJob, lease};
pub(crate) use numbered::{Models, Numbered};

use ctx_core::Secret;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A kind of embedder, as the configuration knows it.
pub struct EmbedderKind {
    /// `builtin` in `provider = "builtin"`.
    pub name: &'static str,
    /// What it is, for people.
    pub summary: &'static str,
    /// Makes an embedder of settings; the error says which are wrong.
    pub open: fn(&EmbedderSettings) -> Result<Arc<dyn Embedder>, String>,
}

/// Every kind there is.
pub const PROVIDERS: &[EmbedderKind] = &[builtin::KIND, local::KIND, openai::KIND, ollama::KIND];

/// What an embedder may be told; each kind uses its own part.
#[derive(Clone, Debug, Default)]
pub struct EmbedderSettings {
    /// Which model.
    pub model: Option<String>,
    /// How many numbers a vector has, where the model can make several sizes.
    pub dimensions: Option<usize>,
    /// Where the model is served.
    pub url: Option<String>,
    /// What to show at that place.
    pub api_key: Option<Secret>,
    /// The folder of a model.
    pub path: Option<PathBuf>,
    /// Texts in one request.
    pub batch_size: Option<usize>,
    /// How long one request may take.
    pub timeout: Duration,
}

/// Makes vectors of texts. Blocks; never called from an asynchronous task.
pub trait Embedder: Send + Sync + 'static {
    /// Tells its vectors from all others: provider, model, size.
    fn model(&self) -> &str;

    /// Unit vectors of these texts, in their order.
    fn embed(&self, texts: &[&str], effort: Effort) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// The unit vector of a query: somebody waits for it, and something else can answer.
    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        Ok(self.embed(&[text], Effort::Full)?.pop().unwrap_or_default())
    }

    /// How many tokens it reads at once, those that it adds included.
    fn max_tokens(&self) -> usize;

    /// How many texts to hand it at once.
    fn batch_size(&self) -> usize;

    /// How much its scores count beside those of words, in [0, 1].
    fn weight(&self) -> f64;

    /// The relevance floor: the cosine that hardly any text reaches that has nothing to do with a query. `None` where
    /// it was not measured.
    fn relevance_floor(&self) -> Option<f64> {
        None
    }
}

/// How much of the machine to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// As much as there is: somebody waits.
    Full,
    /// Little, with low priority: work behind others.
    Low,
}

impl Effort {
    /// How many threads may compute.
    fn threads(self) -> usize {
        match self {
            Self::Full => thread::available_parallelism().map_or(1, usize::from),
            Self::Low => 1,
        }
    }
}

/// Vectors that could not be made.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EmbedError {
    /// Another try may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// Another try may succeed, but not before this time has passed.
    #[error("{reason}")]
    Later {
        /// What is wrong.
        reason: String,
        /// How long to wait.
        after: Duration,
    },
    /// No try will.
    #[error("{0}")]
    Refused(String),
    /// No try with these texts will; one with others may.
    #[error("{0}")]
    Unreadable(String),
}

/// How vectors are made in a workspace.
#[derive(Clone)]
pub struct EmbeddingOptions {
    /// The workspace's model.
    pub embedder: Arc<dyn Embedder>,
    /// When its vectors are made.
    pub fill: Fill,
}

/// When vectors of the workspace's model are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Fill {
    /// Behind, while serving; until then `fast` vectors are used.
    Behind,
    /// Before a sync ends.
    Wait,
}

/// Makes a vector's length one; what has no length stays as it is.
fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 && length.is_finite() {
        vector.iter_mut().for_each(|value| *value /= length);
    }
}
