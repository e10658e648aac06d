//! Local models: a folder in the sentence-transformers format, provided by the user.
//!
//! Opening reads the configuration, and only a sample of the weights; the weights are loaded with the first text.

mod model_config;
mod safetensors;
mod vocabulary;

use super::builtin::{BATCH_SIZE, BEST_WEIGHT};
use super::{Effort, EmbedError, Embedder, EmbedderKind, EmbedderSettings};
use ctx_embed::{LocalModel, Pooling, Tokenizer};
use model_config::ModelConfig;
use safetensors::SafetensorsFile;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const KIND: EmbedderKind =
    EmbedderKind { name: "local", summary: "a model of the BERT family in a folder", open };

const WEIGHTS: &str = "model.safetensors";
/// Version of the computation. Increment it if vectors change.
const COMPUTATION_VERSION: &str = "1";
/// Hex digits of the hash in a model's identifier.
const HASH_CHARS: usize = 16;
/// Minimum tokens that prompts must leave for a text; fewer would not represent it.
const TEXT_TOKENS_MIN: usize = 8;

struct LocalEmbedder {
    /// The model's identifier, as in [`Embedder::model`].
    id: String,
    config: ModelConfig,
    weights: PathBuf,
    max_tokens: usize,
    /// Loaded with the first text: most commands embed none.
    model: Mutex<Option<Arc<LocalModel>>>,
}

fn open(settings: &EmbedderSettings) -> Result<Arc<dyn Embedder>, String> {
    let Some(path) = settings.path.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
        return Err("path: `local` needs the folder of a model, relative to the workspace, like \
                    \"models/all-MiniLM-L6-v2\""
            .to_owned());
    };
    let wrong = |problem: String| format!("path: {problem}");
    if !path.is_dir() {
        return Err(wrong(format!("{} is not a folder", path.display())));
    }
    let weights = weights_in(path).map_err(wrong)?;
    let config = ModelConfig::read(path).map_err(wrong)?;
    let hidden = config.shape.hidden;
    if settings.dimensions.is_some_and(|dimensions| dimensions != hidden) {
        return Err(format!("dims: the model has {hidden} dimensions; remove this setting"));
    }
    let prompt =
        [&config.document_prompt, &config.query_prompt].map(|prompt| Tokenizer::builtin().count(prompt));
    let max_tokens = config.shape.tokens_max.saturating_sub(prompt[0].max(prompt[1]));
    if max_tokens < TEXT_TOKENS_MIN {
        return Err(wrong(format!("{}: its prompts leave no room for text", path.display())));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hash = hash(&config, &mut SafetensorsFile::open(&weights).map_err(wrong)?).map_err(wrong)?;
    let id = format!("{}:{name}-{hash}", KIND.name);
    Ok(Arc::new(LocalEmbedder { id, config, weights, max_tokens, model: Mutex::new(None) }))
}

/// Path of the weights; the error names weights in an unsupported format.
fn weights_in(folder: &Path) -> Result<PathBuf, String> {
    let path = folder.join(WEIGHTS);
    if path.is_file() {
        return Ok(path);
    }
    let other = ["model.safetensors.index.json", "pytorch_model.bin", "tf_model.h5", "onnx"]
        .into_iter()
        .find(|name| folder.join(name).exists());
    let other = other.map_or_else(String::new, |name| format!("; `{name}` cannot be read"));
    Err(format!("{} has no `{WEIGHTS}`{other}", folder.display()))
}

/// Hash of everything that determines the vectors of documents.
fn hash(config: &ModelConfig, tensors: &mut SafetensorsFile) -> Result<String, String> {
    let shape = &config.shape;
    let pooling = match shape.pooling {
        Pooling::Mean => "mean",
        Pooling::First => "first",
    };
    let (heads, epsilon, places) = (shape.heads, shape.epsilon, shape.tokens_max);
    let settings =
        format!("{COMPUTATION_VERSION} {heads} {epsilon} {places} {pooling} {}\0", config.document_prompt);
    let mut hasher = blake3::Hasher::new();
    hasher.update(settings.as_bytes());
    tensors.hash_identity(&mut hasher)?;
    Ok(hasher.finalize().to_hex()[..HASH_CHARS].to_owned())
}

impl LocalEmbedder {
    fn model(&self) -> Result<Arc<LocalModel>, EmbedError> {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = &*model {
            return Ok(model.clone());
        }
        let loaded = self.load().map_err(EmbedError::Refused)?;
        Ok(model.insert(Arc::new(loaded)).clone())
    }

    fn load(&self) -> Result<LocalModel, String> {
        let mut tensors = SafetensorsFile::open(&self.weights)?;
        if !self.id.ends_with(&hash(&self.config, &mut tensors)?) {
            return Err(format!("{} has changed; restart to use it", self.weights.display()));
        }
        LocalModel::new(self.config.shape.clone(), |name, shape| tensors.read_tensor(name, shape))
    }

    /// Embeds texts, each after the prompt.
    fn embed_with_prompt(
        &self,
        prompt: &str,
        texts: &[&str],
        effort: Effort,
    ) -> Result<Vec<Vec<f32>>, EmbedError> {
        let model = self.model()?;
        if prompt.is_empty() {
            return Ok(model.embed(texts, effort.threads()));
        }
        let texts: Vec<String> = texts.iter().map(|text| format!("{prompt}{text}")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        Ok(model.embed(&texts, effort.threads()))
    }
}

impl Embedder for LocalEmbedder {
    fn model(&self) -> &str {
        &self.id
    }

    fn embed(&self, texts: &[&str], effort: Effort) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.embed_with_prompt(&self.config.document_prompt, texts, effort)
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let vectors = self.embed_with_prompt(&self.config.query_prompt, &[text], Effort::Full)?;
        Ok(vectors.into_iter().next().unwrap_or_default())
    }

    fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    fn batch_size(&self) -> usize {
        BATCH_SIZE
    }

    fn weight(&self) -> f64 {
        BEST_WEIGHT
    }
}
