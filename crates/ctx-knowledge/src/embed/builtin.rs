//! The built-in models, which need no download and no API key.

use super::{Effort, EmbedError, Embedder, EmbedderKind, EmbedderSettings};
use crate::chunk::SPECIAL_TOKENS;
use ctx_embed::Model;
use std::sync::Arc;

pub(super) const KIND: EmbedderKind =
    EmbedderKind { name: "builtin", summary: "the models built into ctx: `best` or `fast`", open };

/// Texts per call: enough to sort by length, few enough to stop soon.
pub(super) const BATCH_SIZE: usize = 32;
/// Weights of cosines against BM25 in hybrid search: the best ones in our measurements.
const FAST_WEIGHT: f64 = 0.3;
pub(super) const BEST_WEIGHT: f64 = 0.5;
/// Relevance floors; how they were measured is in docs/performance.md, under Quality.
const FAST_FLOOR: f64 = 0.27;
const BEST_FLOOR: f64 = 0.29;

struct BuiltinEmbedder(Model);

fn open(settings: &EmbedderSettings) -> Result<Arc<dyn Embedder>, String> {
    match settings.model.as_deref().unwrap_or("best") {
        "best" => Ok(Arc::new(BuiltinEmbedder(Model::Best))),
        "fast" => Ok(fast()),
        other => Err(format!("model: the built-in models are `best` and `fast`, not `{other}`")),
    }
}

/// The model that is fast enough to embed documents while they are stored.
pub(super) fn fast() -> Arc<dyn Embedder> {
    Arc::new(BuiltinEmbedder(Model::Fast))
}

impl Embedder for BuiltinEmbedder {
    fn model(&self) -> &str {
        self.0.id()
    }

    fn embed(&self, texts: &[&str], effort: Effort) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(self.0.embed(texts, effort.threads()))
    }

    fn max_tokens(&self) -> usize {
        self.0.max_tokens().saturating_add(SPECIAL_TOKENS)
    }

    fn batch_size(&self) -> usize {
        BATCH_SIZE
    }

    fn weight(&self) -> f64 {
        match self.0 {
            Model::Fast => FAST_WEIGHT,
            Model::Best => BEST_WEIGHT,
        }
    }

    fn relevance_floor(&self) -> Option<f64> {
        Some(match self.0 {
            Model::Fast => FAST_FLOOR,
            Model::Best => BEST_FLOOR,
        })
    }
}
