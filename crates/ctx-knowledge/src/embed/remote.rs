//! Embedding models served over HTTP: what the APIs of all providers have in common.

use super::service::{EmbeddingService, ErrorResponse, RequestKind, ServiceError};
use super::{Effort, EmbedError, Embedder, EmbedderSettings};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::marker::PhantomData;
use std::sync::Arc;

/// Maximum texts per request.
const BATCH_MAX: usize = 2_048;
/// Weight of cosines against BM25 in hybrid search.
const WEIGHT: f64 = 0.6;

/// The API of a provider.
pub(super) trait EmbeddingApi: Send + Sync + 'static {
    /// The provider's name.
    const NAME: &'static str;
    /// Default base URL.
    const URL: &'static str;
    /// Path segments of the endpoint below the base URL.
    const PATH: &'static [&'static str];
    /// A model name, for error messages.
    const EXAMPLE: &'static str;
    /// Maximum tokens of a text.
    const MAX_TOKENS: usize;
    /// Default number of texts per request.
    const BATCH: usize;
    /// The body of a successful response.
    type Response: DeserializeOwned;

    /// Adds fields other than model, texts and dimensions to a request.
    fn add_fields(_request: &mut Value) {}

    /// Extracts the vectors in the order of their texts; the error describes an invalid response.
    fn vectors(response: Self::Response) -> Result<Vec<Vec<f32>>, String>;

    /// Converts an error response to a request for this model.
    fn classify_error(service: &EmbeddingService, _model: &str, response: &ErrorResponse) -> EmbedError {
        service.classify_error(response)
    }
}

struct RemoteEmbedder<I> {
    service: EmbeddingService,
    /// The model's name at the service.
    model_name: String,
    dimensions: Option<usize>,
    /// The model's identifier, as in [`Embedder::model`].
    model: String,
    batch_size: usize,
    api: PhantomData<I>,
}

/// Creates an embedder from settings; the error names the wrong setting.
pub(super) fn open<I: EmbeddingApi>(settings: &EmbedderSettings) -> Result<Arc<dyn Embedder>, String> {
    let EmbedderSettings { model, dimensions, url, api_key, batch_size, timeout, .. } = settings;
    let Some(model_name) = model.clone().filter(|model| !model.is_empty()) else {
        return Err(format!("model: `{}` needs one, like \"{}\"", I::NAME, I::EXAMPLE));
    };
    let url = url.as_deref().unwrap_or(I::URL);
    let batch_size = batch_size.unwrap_or(I::BATCH);
    if batch_size > BATCH_MAX {
        return Err(format!("batch_size: must be at most {BATCH_MAX}"));
    }
    Ok(Arc::new(RemoteEmbedder::<I> {
        service: EmbeddingService::new(I::NAME, url, I::PATH, api_key.as_ref(), *timeout)?,
        model: model_id(I::NAME, &model_name, *dimensions),
        model_name,
        dimensions: *dimensions,
        batch_size,
        api: PhantomData,
    }))
}

/// Identifier of the vectors of a served model. Does not contain the URL: a service that moves computes the same
/// vectors.
fn model_id(provider: &str, model: &str, dimensions: Option<usize>) -> String {
    let size = dimensions.map_or_else(String::new, |dimensions| format!("@{dimensions}"));
    format!("{provider}:{model}{size}")
}

impl<I: EmbeddingApi> RemoteEmbedder<I> {
    fn request_vectors(&self, texts: &[&str], kind: RequestKind) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut request = json!({"model": self.model_name, "input": texts});
        if let Some(dimensions) = self.dimensions {
            // Not sent by default: models with a single size reject the parameter.
            request["dimensions"] = json!(dimensions);
        }
        I::add_fields(&mut request);
        let response: I::Response = self.service.post(&request, kind).map_err(|error| match error {
            ServiceError::Status(response) => I::classify_error(&self.service, &self.model_name, &response),
            ServiceError::Other(error) => error,
        })?;
        let vectors = I::vectors(response)
            .map_err(|problem| EmbedError::Refused(format!("{} {problem}", self.service)))?;
        self.service.check_vectors(vectors, texts.len(), self.dimensions)
    }
}

impl<I: EmbeddingApi> Embedder for RemoteEmbedder<I> {
    fn model(&self) -> &str {
        &self.model
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn embed(&self, texts: &[&str], _: Effort) -> Result<Vec<Vec<f32>>, EmbedError> {
        let parts = texts.chunks(self.batch_size).map(|part| self.request_vectors(part, RequestKind::Batch));
        Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        Ok(self.request_vectors(&[text], RequestKind::Query)?.pop().unwrap_or_default())
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
