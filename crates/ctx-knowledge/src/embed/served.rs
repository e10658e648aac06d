//! A model that is served over HTTP: all that its interfaces have in common.

use super::http::{Failure, Patience, Service};
use super::{Effort, EmbedError, Embedder, EmbedderSettings};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::marker::PhantomData;
use std::sync::Arc;

/// Texts that one request may have.
const BATCH_MAX: usize = 2_048;
/// How much vectors count beside words: as much as those of our own model of that kind.
const WEIGHT: f64 = 0.6;

/// How a kind of service wants to be asked.
pub(super) trait Interface: Send + Sync + 'static {
    /// The provider's name.
    const NAME: &'static str;
    /// Where it is served unless the settings say.
    const URL: &'static str;
    /// Where requests go below that.
    const PATH: &'static [&'static str];
    /// A model that it serves.
    const EXAMPLE: &'static str;
    /// What its models read at once.
    const MAX_TOKENS: usize;
    /// Texts at once unless the settings say.
    const BATCH: usize;
    /// What it answers.
    type Answer: DeserializeOwned;

    /// Adds what it wants to know besides model, texts and dimensions.
    fn prepare(_request: &mut Value) {}

    /// The vectors in the order of their texts; the error says what the service did wrong.
    fn vectors(answer: Self::Answer) -> Result<Vec<Vec<f32>>, String>;

    /// What a failure means for whoever asked for this model.
    fn failed(service: &Service, _model: &str, failure: &Failure) -> EmbedError {
        service.failed(failure)
    }
}

struct Served<I> {
    service: Service,
    /// What the service calls it.
    served: String,
    dimensions: Option<usize>,
    /// What we call it.
    model: String,
    batch_size: usize,
    interface: PhantomData<I>,
}

/// Makes an embedder of settings; the error says which are wrong.
pub(super) fn open<I: Interface>(settings: &EmbedderSettings) -> Result<Arc<dyn Embedder>, String> {
    let EmbedderSettings { model, dimensions, url, api_key, batch_size, timeout, .. } = settings;
    let Some(served) = model.clone().filter(|model| !model.is_empty()) else {
        return Err(format!("model: `{}` needs one, like \"{}\"", I::NAME, I::EXAMPLE));
    };
    let url = url.as_deref().unwrap_or(I::URL);
    let batch_size = batch_size.unwrap_or(I::BATCH);
    if batch_size > BATCH_MAX {
        return Err(format!("batch_size: must be at most {BATCH_MAX}"));
    }
    Ok(Arc::new(Served::<I> {
        service: Service::new(I::NAME, url, I::PATH, api_key.as_ref(), *timeout)?,
        model: model_id(I::NAME, &served, *dimensions),
        served,
        dimensions: *dimensions,
        batch_size,
        interface: PhantomData,
    }))
}

/// What tells the vectors of a served model from others. Where it is served is no part of it: a
/// service that moves makes the same vectors.
fn model_id(provider: &str, model: &str, dimensions: Option<usize>) -> String {
    let size = dimensions.map_or_else(String::new, |dimensions| format!("@{dimensions}"));
    format!("{provider}:{model}{size}")
}

impl<I: Interface> Served<I> {
    fn ask(&self, texts: &[&str], patience: Patience) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut request = json!({"model": self.served, "input": texts});
        if let Some(dimensions) = self.dimensions {
            // Models that make only one size refuse to be told.
            request["dimensions"] = json!(dimensions);
        }
        I::prepare(&mut request);
        let answer: I::Answer = self
            .service
            .ask(&request, patience)?
            .map_err(|failure| I::failed(&self.service, &self.served, &failure))?;
        let vectors = I::vectors(answer)
            .map_err(|problem| EmbedError::Refused(format!("{} {problem}", self.service)))?;
        self.service.vectors(vectors, texts.len(), self.dimensions)
    }
}

impl<I: Interface> Embedder for Served<I> {
    fn model(&self) -> &str {
        &self.model
    }

    fn embed(&self, texts: &[&str], _: Effort) -> Result<Vec<Vec<f32>>, EmbedError> {
        let parts = texts.chunks(self.batch_size).map(|part| self.ask(part, Patience::Batch));
        Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        Ok(self.ask(&[text], Patience::Query)?.pop().unwrap_or_default())
    }

    fn max_tokens(&self) -> usize {
        I::MAX_TOKENS
    }

    fn batch_size(&self) -> usize {
        self.batch_size
    }

    fn weight(&self) -> f64 {
        WEIGHT
    }
}
