//! Embedding models behind OpenAI's API or a compatible one.

use super::EmbedderKind;
use super::remote::{self, EmbeddingApi};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const KIND: EmbedderKind = EmbedderKind {
    name: OpenAi::NAME,
    summary: "any service with an OpenAI-compatible API",
    open: remote::open::<OpenAi>,
};

struct OpenAi;

#[derive(Deserialize)]
#[serde(expecting = "struct Answer")]
struct EmbeddingsResponse {
    data: Vec<EmbeddingObject>,
}

#[derive(Deserialize)]
#[serde(expecting = "struct Entry")]
struct EmbeddingObject {
    /// Index of its text; some services omit it and keep the order.
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl EmbeddingApi for OpenAi {
    const NAME: &'static str = "openai";
    const URL: &'static str = "https://api.openai.com/v1";
    const PATH: &'static [&'static str] = &["embeddings"];
    const EXAMPLE: &'static str = "text-embedding-3-small";
    /// The limit of OpenAI's models. Other models behind the API may accept less, but hardly less than a chunk.
    const MAX_TOKENS: usize = 8_191;
    /// Few enough for services that limit the size of a request.
    const BATCH: usize = 64;
    type Response = EmbeddingsResponse;

    fn add_fields(request: &mut Value) {
        request["encoding_format"] = json!("float");
    }

    fn vectors(response: EmbeddingsResponse) -> Result<Vec<Vec<f32>>, String> {
        let mut entries: Vec<(usize, Vec<f32>)> = response
            .data
            .into_iter()
            .enumerate()
            .map(|(position, entry)| (entry.index.unwrap_or(position), entry.embedding))
            .collect();
        entries.sort_by_key(|(index, _)| *index);
        if entries.iter().enumerate().any(|(position, (index, _))| *index != position) {
            return Err("returned embeddings with wrong indexes".to_owned());
        }
        Ok(entries.into_iter().map(|(_, vector)| vector).collect())
    }
}
