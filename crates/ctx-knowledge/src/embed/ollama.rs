//! Embedding models served by Ollama.

use super::remote::{self, EmbeddingApi};
use super::service::{EmbeddingService, ErrorResponse};
use super::{EmbedError, EmbedderKind};
use http::StatusCode;
use serde::Deserialize;

pub(super) const KIND: EmbedderKind =
    EmbedderKind { name: Ollama::NAME, summary: "a model that Ollama serves", open: remote::open::<Ollama> };

struct Ollama;

#[derive(Deserialize)]
#[serde(expecting = "struct Answer")]
struct EmbeddingsResponse {
    embeddings: Vec<Vec<f32>>,
}

impl EmbeddingApi for Ollama {
    const NAME: &'static str = "ollama";
    const URL: &'static str = "http://127.0.0.1:11434";
    const PATH: &'static [&'static str] = &["api", "embed"];
    const EXAMPLE: &'static str = "nomic-embed-text";
    /// Ollama's default context length.
    const MAX_TOKENS: usize = 2_048;
    /// Small: Ollama computes on this machine.
    const BATCH: usize = 32;
    type Response = EmbeddingsResponse;

    fn vectors(response: EmbeddingsResponse) -> Result<Vec<Vec<f32>>, String> {
        Ok(response.embeddings)
    }

    fn classify_error(service: &EmbeddingService, model: &str, response: &ErrorResponse) -> EmbedError {
        if response.status != StatusCode::NOT_FOUND {
            return service.classify_error(response);
        }
        let message = &response.message;
        EmbedError::Refused(format!(
            "{service} does not have `{model}`; run `ollama pull {model}` ({message})"
        ))
    }
}
