//! The models of one workspace: what makes its vectors, by the numbers that the store gives them.

use super::{Effort, EmbedError, Embedder, EmbeddingOptions, Fill, builtin};
use ctx_embed::vector;
use ctx_store::{ModelKey, NewVector, Store, StoreError, TextHash};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a model that could not answer a query is left in peace.
const QUERY_REST: Duration = Duration::from_secs(30);
/// How much of a query a model reads: more than anybody types, less than any served model refuses.
const QUERY_BYTES_MAX: usize = 8_000;

/// The models of a workspace, as its store numbers them.
pub(crate) struct Models {
    /// The workspace's own.
    pub(crate) own: Numbered,
    /// What documents get at once, unless it is the workspace's own.
    pub(crate) bridge: Option<Numbered>,
    pub(crate) fill: Fill,
}

/// An embedder, and its number in the store.
#[derive(Clone)]
pub(crate) struct Numbered {
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) key: ModelKey,
    /// How many numbers its vectors have, once there are any.
    dimensions: Arc<OnceLock<usize>>,
    /// When it last could not answer a query, and why.
    failure: Arc<Mutex<Option<(Instant, EmbedError)>>>,
}

impl Models {
    /// Numbers the models; `None` where the store knows none and cannot learn any.
    pub(crate) fn open(options: &EmbeddingOptions, store: &dyn Store) -> Result<Option<Self>, StoreError> {
        let fast = builtin::fast();
        let own = Numbered::open(options.embedder.clone(), store)?;
        let bridge = match options.embedder.model() == fast.model() {
            true => None,
            false => Numbered::open(fast, store)?,
        };
        Ok(own.map(|own| Self { own, bridge, fill: options.fill }))
    }

    /// Both.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Numbered> {
        std::iter::once(&self.own).chain(&self.bridge)
    }

    /// The one that documents get vectors of as they are stored.
    pub(crate) fn instant(&self) -> &Numbered {
        self.bridge.as_ref().unwrap_or(&self.own)
    }
}

impl Numbered {
    fn open(embedder: Arc<dyn Embedder>, store: &dyn Store) -> Result<Option<Self>, StoreError> {
        let key = match store.writable() {
            true => Some(store.ensure_model(embedder.model())?),
            false => store.model(embedder.model())?,
        };
        let Some(key) = key else { return Ok(None) };
        let dimensions = store.dimensions(key)?.map_or_else(OnceLock::new, OnceLock::from);
        Ok(Some(Self { embedder, key, dimensions: Arc::new(dimensions), failure: Arc::default() }))
    }

    /// Vectors of texts, ready to be stored; each text has its position and hash.
    pub(crate) fn vectors(
        &self,
        texts: &[(usize, String, TextHash)],
        effort: Effort,
    ) -> Result<Vec<NewVector>, EmbedError> {
        let only: Vec<&str> = texts.iter().map(|(_, text, _)| text.as_str()).collect();
        let made = texts.iter().zip(self.embed(&only, effort)?);
        Ok(made.map(|((position, _, hash), values)| new_vector(*position, *hash, &values)).collect())
    }

    /// The vector of a query. A model that just failed is not asked again at once: otherwise every
    /// search would wait for one that is down.
    pub(crate) fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        if let Some((at, error)) = &*self.failure()
            && at.elapsed() < QUERY_REST
        {
            return Err(error.clone());
        }
        let made = self.ask_query(text).inspect_err(|error| {
            tracing::warn!(%error, "{} does not know what the query means", self.embedder.model());
        });
        *self.failure() = match &made {
            // What is refused may be this query only.
            Ok(_) | Err(EmbedError::Refused(_) | EmbedError::Unreadable(_)) => None,
            Err(error) => Some((Instant::now(), error.clone())),
        };
        made
    }

    /// The vector of a query, whatever happened before.
    pub(crate) fn ask_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let text = &text[..text.floor_char_boundary(QUERY_BYTES_MAX)];
        let vectors = self.checked(vec![self.embedder.embed_query(text)?])?;
        Ok(vectors.into_iter().next().unwrap_or_default())
    }

    fn failure(&self) -> MutexGuard<'_, Option<(Instant, EmbedError)>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Vectors of texts: as many as there are texts, all of one size.
    fn embed(&self, texts: &[&str], effort: Effort) -> Result<Vec<Vec<f32>>, EmbedError> {
        let vectors = self.embedder.embed(texts, effort)?;
        if vectors.len() != texts.len() {
            let (asked, got) = (texts.len(), vectors.len());
            return Err(EmbedError::Refused(format!("asked for {asked} vectors, got {got}")));
        }
        self.checked(vectors)
    }

    /// Vectors that can be compared with the others.
    fn checked(&self, vectors: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>, EmbedError> {
        let Some(first) = vectors.first() else { return Ok(vectors) };
        if vectors.iter().any(Vec::is_empty) {
            let model = self.embedder.model();
            return Err(EmbedError::Refused(format!("{model} made a vector without numbers")));
        }
        let expected = *self.dimensions.get_or_init(|| first.len());
        if let Some(wrong) = vectors.iter().find(|vector| vector.len() != expected) {
            return Err(EmbedError::Refused(format!(
                "{} made a vector of {} numbers where others have {expected}; if the model has changed, \
                 `ctx embed rebuild` makes all of them anew",
                self.embedder.model(),
                wrong.len(),
            )));
        }
        if vectors.iter().flatten().any(|value| !value.is_finite()) {
            return Err(EmbedError::Refused(format!(
                "{} made a vector that is no number",
                self.embedder.model()
            )));
        }
        Ok(vectors)
    }
}

/// A vector as it is stored: bytes to scan, and its exact values.
fn new_vector(position: usize, hash: TextHash, values: &[f32]) -> NewVector {
    let (codes, scale) = vector::quantize(values);
    let codes = codes.into_iter().map(i8::cast_unsigned).collect();
    NewVector { position, hash, scale, codes, half: vector::to_half(values) }
}
