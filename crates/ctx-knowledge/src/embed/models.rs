//! The embedding models of a workspace, with the keys that the store gives them. Checks the vectors that they return.

use super::{Effort, EmbedError, Embedder, EmbeddingOptions, FillMode, builtin};
use ctx_embed::vector;
use ctx_store::{ModelKey, NewVector, Store, StoreError, TextHash};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time after a failed query in which the model is not asked again.
const QUERY_COOLDOWN: Duration = Duration::from_secs(30);
/// Maximum bytes of a query that are embedded: more than anybody types, less than any served model rejects.
const QUERY_BYTES_MAX: usize = 8_000;

/// The embedding models of a workspace.
pub(crate) struct EmbeddingModels {
    /// The configured model.
    pub(crate) configured: RegisteredModel,
    /// The built-in `fast` model, which embeds documents as they are stored; `None` if it is the configured model.
    pub(crate) bridge: Option<RegisteredModel>,
    pub(crate) fill: FillMode,
}

/// A chunk's position in its document, its text as a model reads it, and the hash of that text.
pub(crate) type EmbeddingInput = (usize, String, TextHash);

/// An embedder with its key in the store.
#[derive(Clone)]
pub(crate) struct RegisteredModel {
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) key: ModelKey,
    /// Dimensions of its vectors, once they are known.
    dimensions: Arc<OnceLock<usize>>,
    /// Time and error of the last query, if it failed.
    last_failure: Arc<Mutex<Option<(Instant, EmbedError)>>>,
}

impl EmbeddingModels {
    /// Registers the models in the store; `None` if the store is read-only and does not know the configured one.
    pub(crate) fn open(options: &EmbeddingOptions, store: &dyn Store) -> Result<Option<Self>, StoreError> {
        let fast = builtin::fast();
        let configured = RegisteredModel::open(options.embedder.clone(), store)?;
        let bridge = match options.embedder.model() == fast.model() {
            true => None,
            false => RegisteredModel::open(fast, store)?,
        };
        Ok(configured.map(|configured| Self { configured, bridge, fill: options.fill }))
    }

    /// The configured model, then the bridge model if there is one.
    pub(crate) fn all(&self) -> impl Iterator<Item = &RegisteredModel> {
        std::iter::once(&self.configured).chain(&self.bridge)
    }

    /// The model that embeds documents as they are stored.
    pub(crate) fn ingest_model(&self) -> &RegisteredModel {
        self.bridge.as_ref().unwrap_or(&self.configured)
    }
}

impl RegisteredModel {
    fn open(embedder: Arc<dyn Embedder>, store: &dyn Store) -> Result<Option<Self>, StoreError> {
        let key = match store.writable() {
            true => Some(store.ensure_model(embedder.model())?),
            false => store.model(embedder.model())?,
        };
        let Some(key) = key else { return Ok(None) };
        let dimensions = store.dimensions(key)?.map_or_else(OnceLock::new, OnceLock::from);
        Ok(Some(Self { embedder, key, dimensions: Arc::new(dimensions), last_failure: Arc::default() }))
    }

    /// Embeds texts, each with its position and hash, as vectors ready to be stored.
    pub(crate) fn vectors(
        &self,
        texts: &[EmbeddingInput],
        effort: Effort,
    ) -> Result<Vec<NewVector>, EmbedError> {
        let bare_texts: Vec<&str> = texts.iter().map(|(_, text, _)| text.as_str()).collect();
        let inputs_with_vectors = texts.iter().zip(self.embed(&bare_texts, effort)?);
        Ok(inputs_with_vectors
            .map(|((position, _, hash), values)| new_vector(*position, *hash, &values))
            .collect())
    }

    /// The vector of a query. Repeats a recent failure without asking the model: otherwise every search would wait
    /// for a service that is down.
    pub(crate) fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        if let Some((at, error)) = &*self.last_failure()
            && at.elapsed() < QUERY_COOLDOWN
        {
            return Err(error.clone());
        }
        let result = self.embed_query_without_cooldown(text).inspect_err(|error| {
            tracing::warn!(%error, "{} cannot embed the query", self.embedder.model());
        });
        *self.last_failure() = match &result {
            // A rejection may concern this query only.
            Ok(_) | Err(EmbedError::Refused(_) | EmbedError::Unreadable(_)) => None,
            Err(error) => Some((Instant::now(), error.clone())),
        };
        result
    }

    /// The vector of a query, even after a recent failure.
    pub(crate) fn embed_query_without_cooldown(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let text = &text[..text.floor_char_boundary(QUERY_BYTES_MAX)];
        let vectors = self.check_vectors(vec![self.embedder.embed_query(text)?])?;
        Ok(vectors.into_iter().next().unwrap_or_default())
    }

    fn last_failure(&self) -> MutexGuard<'_, Option<(Instant, EmbedError)>> {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Embeds texts, and checks the number and dimensions of the vectors.
    fn embed(&self, texts: &[&str], effort: Effort) -> Result<Vec<Vec<f32>>, EmbedError> {
        let vectors = self.embedder.embed(texts, effort)?;
        if vectors.len() != texts.len() {
            let (asked, got) = (texts.len(), vectors.len());
            return Err(EmbedError::Refused(format!("expected {asked} vectors, got {got}")));
        }
        self.check_vectors(vectors)
    }

    /// Checks that vectors are finite and have the dimensions of the earlier ones.
    fn check_vectors(&self, vectors: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, EmbedError> {
        let Some(first) = vectors.first() else { return Ok(vectors) };
        if vectors.iter().any(Vec::is_empty) {
            let model = self.embedder.model();
            return Err(EmbedError::Refused(format!("{model} returned an empty vector")));
        }
        let expected = *self.dimensions.get_or_init(|| first.len());
        if let Some(wrong) = vectors.iter().find(|vector| vector.len() != expected) {
            return Err(EmbedError::Refused(format!(
                "{} returned a vector of {} dimensions where others have {expected}; if the model has changed, \
                 run `ctx embed rebuild`",
                self.embedder.model(),
                wrong.len(),
            )));
        }
        if vectors.iter().flatten().any(|value| !value.is_finite()) {
            return Err(EmbedError::Refused(format!(
                "{} returned a vector with NaN or infinite values",
                self.embedder.model()
            )));
        }
        Ok(vectors)
    }
}

/// A vector as it is stored: quantised for scans, and in half precision for exact scores.
fn new_vector(position: usize, hash: TextHash, values: &[f32]) -> NewVector {
    let (codes, scale) = vector::quantize(values);
    let codes = codes.into_iter().map(i8::cast_unsigned).collect();
    NewVector { position, hash, scale, codes, half: vector::to_half(values) }
}
