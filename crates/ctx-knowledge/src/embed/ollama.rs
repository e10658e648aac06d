//! Models that Ollama serves.

use super::http::{self, Failure, Patience, Service};
use super::{Effort, EmbedError, Embedder, EmbedderKind, EmbedderSettings};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

pub(super) const KIND: EmbedderKind =
    EmbedderKind { name: "ollama", summary: "a model that Ollama serves", open };

const URL: &str = "http://127.0.0.1:11434";
/// What it lets a model read unless it is told otherwise.
const MAX_TOKENS: usize = 2_048;
/// Texts at once: it works on them with this machine.
const BATCH: usize = 32;
/// How much vectors count beside words: as much as those of our own model of that kind.
const WEIGHT: f64 = 0.6;

struct Ollama {
    service: Service,
    /// What the service calls it.
    served: String,
    dimensions: Option<usize>,
    /// What we call it.
    model: String,
    batch_size: usize,
}

#[derive(Deserialize)]
struct Answer {
    embeddings: Vec<Vec<f32>>,
}

fn open(settings: &EmbedderSettings) -> Result<Arc<dyn Embedder>, String> {
    let EmbedderSettings { model, dimensions, url, api_key, batch_size, timeout, .. } = settings;
    let Some(served) = model.clone().filter(|model| !model.is_empty()) else {
        return Err("model: `ollama` needs one, like \"nomic-embed-text\"".to_owned());
    };
    let url = url.as_deref().unwrap_or(URL);
    Ok(Arc::new(Ollama {
        // It asks for no key itself, but what stands before it may.
        service: Service::new(KIND.name, url, &["api", "embed"], api_key.as_ref(), *timeout)?,
        model: http::model_id(KIND.name, &served, *dimensions),
        served,
        dimensions: *dimensions,
        batch_size: http::batch_size(*batch_size, BATCH)?,
    }))
}

impl Ollama {
    fn ask(&self, texts: &[&str], patience: Patience) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut request = json!({"model": self.served, "input": texts});
        if let Some(dimensions) = self.dimensions {
            request["dimensions"] = json!(dimensions);
        }
        let answer: Answer =
            self.service.ask(&request, patience)?.map_err(|failure| self.failed(&failure))?;
        self.service.vectors(answer.embeddings, texts.len(), self.dimensions)
    }

    fn failed(&self, failure: &Failure) -> EmbedError {
        if failure.status != StatusCode::NOT_FOUND {
            return self.service.failed(failure);
        }
        let (service, model, words) = (&self.service, &self.served, &failure.words);
        EmbedError::Refused(format!("{service} does not have `{model}`; run `ollama pull {model}` ({words})"))
    }
}

impl Embedder for Ollama {
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
        MAX_TOKENS
    }

    fn batch_size(&self) -> usize {
        self.batch_size
    }

    fn weight(&self) -> f64 {
        WEIGHT
    }
}
