//! Models behind OpenAI's interface, wherever they are served.

use super::http::{self, Patience, Service};
use super::{Effort, EmbedError, Embedder, EmbedderKind, EmbedderSettings};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

pub(super) const KIND: EmbedderKind =
    EmbedderKind { name: "openai", summary: "any service with OpenAI's interface", open };

const URL: &str = "https://api.openai.com/v1";
/// What its models read at once. Others that are served like this may read less, but hardly less
/// than a chunk.
const MAX_TOKENS: usize = 8_191;
/// Texts at once: few enough for services that limit the size of a request.
const BATCH: usize = 64;
/// How much vectors count beside words: as much as those of our own model of that kind.
const WEIGHT: f64 = 0.6;

struct OpenAi {
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
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    /// Which text it is the vector of; some services leave it out and keep the order.
    index: Option<usize>,
    embedding: Vec<f32>,
}

fn open(settings: &EmbedderSettings) -> Result<Arc<dyn Embedder>, String> {
    let EmbedderSettings { model, dimensions, url, api_key, batch_size, timeout, .. } = settings;
    let Some(served) = model.clone().filter(|model| !model.is_empty()) else {
        return Err("model: `openai` needs one, like \"text-embedding-3-small\"".to_owned());
    };
    let url = url.as_deref().unwrap_or(URL);
    Ok(Arc::new(OpenAi {
        service: Service::new(KIND.name, url, &["embeddings"], api_key.as_ref(), *timeout)?,
        model: http::model_id(KIND.name, &served, *dimensions),
        served,
        dimensions: *dimensions,
        batch_size: http::batch_size(*batch_size, BATCH)?,
    }))
}

impl OpenAi {
    fn ask(&self, texts: &[&str], patience: Patience) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut request = json!({"model": self.served, "input": texts, "encoding_format": "float"});
        if let Some(dimensions) = self.dimensions {
            // Models that make only one size refuse to be told.
            request["dimensions"] = json!(dimensions);
        }
        let answer: Answer =
            self.service.ask(&request, patience)?.map_err(|failure| self.service.failed(&failure))?;
        let mut entries: Vec<(usize, Vec<f32>)> = answer
            .data
            .into_iter()
            .enumerate()
            .map(|(place, entry)| (entry.index.unwrap_or(place), entry.embedding))
            .collect();
        entries.sort_by_key(|(index, _)| *index);
        if entries.iter().enumerate().any(|(place, (index, _))| *index != place) {
            return Err(EmbedError::Refused(format!(
                "{} made vectors of other texts than it was asked for",
                self.service
            )));
        }
        let vectors = entries.into_iter().map(|(_, vector)| vector).collect();
        self.service.vectors(vectors, texts.len(), self.dimensions)
    }
}

impl Embedder for OpenAi {
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
