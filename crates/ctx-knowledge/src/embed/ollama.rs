//! Embedding models served by Ollama.

use super::http::{Failure, Service};
use super::served::{self, Interface};
use super::{EmbedError, EmbedderKind};
use http::StatusCode;
use serde::Deserialize;

pub(super) const KIND: EmbedderKind =
    EmbedderKind { name: Ollama::NAME, summary: "a model that Ollama serves", open: served::open::<Ollama> };

struct Ollama;

#[derive(Deserialize)]
struct Answer {
    embeddings: Vec<Vec<f32>>,
}

impl Interface for Ollama {
    const NAME: &'static str = "ollama";
    const URL: &'static str = "http://127.0.0.1:11434";
    const PATH: &'static [&'static str] = &["api", "embed"];
    const EXAMPLE: &'static str = "nomic-embed-text";
    /// Ollama's default context length.
    const MAX_TOKENS: usize = 2_048;
    /// Small: Ollama computes on this machine.
    const BATCH: usize = 32;
    type Answer = Answer;

    fn vectors(answer: Answer) -> Result<Vec<Vec<f32>>, String> {
        Ok(answer.embeddings)
    }

    fn failed(service: &Service, model: &str, failure: &Failure) -> EmbedError {
        if failure.status != StatusCode::NOT_FOUND {
            return service.failed(failure);
        }
        let words = &failure.words;
        EmbedError::Refused(format!("{service} does not have `{model}`; run `ollama pull {model}` ({words})"))
    }
}
