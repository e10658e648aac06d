//! The configuration of a model in the sentence-transformers format: architecture, pooling, tokenizer, prompts.

use super::vocabulary;
use ctx_embed::{BertDimensions, Pooling};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Maximum size of a file other than the weights: several times that of a usual tokenizer.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Appended to errors about unsupported models.
const SUPPORTED: &str = "supported are BERT models with the uncased English vocabulary, like \
                         all-MiniLM-L6-v2, bge-small-en-v1.5 or gte-small";

const CONFIG: &str = "config.json";
const MODULES: &str = "modules.json";
const POOLING: &str = "1_Pooling/config.json";
const LENGTH: &str = "sentence_bert_config.json";
const TOKENIZER: &str = "tokenizer_config.json";
const PROMPTS: &str = "config_sentence_transformers.json";

/// Supported modules of a sentence-transformers model.
const MODULE_KINDS: [&str; 3] = ["Transformer", "Pooling", "Normalize"];
/// Names of the prompt for documents; the first that exists is used.
const DOCUMENT_PROMPTS: [&str; 3] = ["document", "passage", "corpus"];
const QUERY_PROMPTS: [&str; 1] = ["query"];

/// The configuration of a model.
pub(super) struct ModelConfig {
    pub(super) shape: BertDimensions,
    /// Prefix of each document.
    pub(super) document_prompt: String,
    /// Prefix of each query.
    pub(super) query_prompt: String,
}

#[derive(Deserialize)]
struct BertConfig {
    #[serde(default)]
    is_decoder: bool,
    hidden_act: String,
    position_embedding_type: Option<String>,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    max_position_embeddings: usize,
    vocab_size: usize,
    #[serde(default = "default_type_vocab_size")]
    type_vocab_size: usize,
    #[serde(default = "default_layer_norm_eps")]
    layer_norm_eps: f32,
}

fn default_type_vocab_size() -> usize {
    2
}

fn default_layer_norm_eps() -> f32 {
    1e-12
}

#[derive(Deserialize)]
struct Module {
    #[serde(rename = "type")]
    kind: String,
}

/// Floats, since huge floats stand for `unlimited`.
#[derive(Default, Deserialize)]
struct Length {
    max_seq_length: Option<f64>,
}

#[derive(Default, Deserialize)]
struct TokenizerConfig {
    model_max_length: Option<f64>,
    do_lower_case: Option<bool>,
    strip_accents: Option<bool>,
}

#[derive(Default, Deserialize)]
struct Prompts {
    #[serde(default)]
    prompts: BTreeMap<String, String>,
    default_prompt_name: Option<String>,
}

impl Prompts {
    fn first_of(&self, names: &[&str]) -> String {
        let named = names.iter().copied().chain(self.default_prompt_name.as_deref());
        named.filter_map(|name| self.prompts.get(name)).next().cloned().unwrap_or_default()
    }
}

impl ModelConfig {
    /// Reads and checks the files; the error names the file.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let wrong = |name: &str, problem: String| format!("{}: {problem}", folder.join(name).display());
        let config = read_bert_config(folder)?;
        let pooling = read_pooling(folder)?;
        let tokenizer: TokenizerConfig = read_json(folder, TOKENIZER)?.unwrap_or_default();
        if tokenizer.do_lower_case == Some(false) || tokenizer.strip_accents == Some(false) {
            return Err(wrong(
                TOKENIZER,
                format!("the model is case-sensitive or accent-sensitive; {SUPPORTED}"),
            ));
        }
        vocabulary::check(folder).map_err(|problem| format!("{problem}; {SUPPORTED}"))?;
        let length: Length = read_json(folder, LENGTH)?.unwrap_or_default();
        let lengths = [length.max_seq_length, tokenizer.model_max_length];
        // The cast saturates: a huge length becomes the largest integer.
        let places = lengths.into_iter().flatten().map(|length| length as usize);
        let places = places.fold(config.max_position_embeddings, usize::min);
        let shape = BertDimensions {
            hidden: config.hidden_size,
            layers: config.num_hidden_layers,
            heads: config.num_attention_heads,
            intermediate: config.intermediate_size,
            vocabulary: config.vocab_size,
            token_types: config.type_vocab_size,
            positions: config.max_position_embeddings,
            tokens_max: places,
            epsilon: config.layer_norm_eps,
            pooling,
        };
        shape.check().map_err(|problem| wrong(CONFIG, problem))?;
        let prompts: Prompts = read_json(folder, PROMPTS)?.unwrap_or_default();
        Ok(Self {
            shape,
            document_prompt: prompts.first_of(&DOCUMENT_PROMPTS),
            query_prompt: prompts.first_of(&QUERY_PROMPTS),
        })
    }
}

fn read_bert_config(folder: &Path) -> Result<BertConfig, String> {
    let wrong = |problem: &str| format!("{}: {problem}; {SUPPORTED}", folder.join(CONFIG).display());
    let Some(read) = read_json::<Map<String, Value>>(folder, CONFIG)? else {
        return Err(format!("{} has no `{CONFIG}`", folder.display()));
    };
    // First, since other model types have other fields.
    let kind = read.get("model_type").and_then(Value::as_str).unwrap_or("none");
    if kind != "bert" {
        return Err(wrong(&format!("the model type is `{kind}`, not `bert`")));
    }
    let config: BertConfig =
        serde_json::from_value(Value::Object(read)).map_err(|error| wrong(&error.to_string()))?;
    let BertConfig { hidden_act, position_embedding_type, .. } = &config;
    if hidden_act != "gelu" {
        return Err(wrong(&format!("the activation is `{hidden_act}`, not `gelu`")));
    }
    if let Some(other) = position_embedding_type.as_ref().filter(|kind| *kind != "absolute") {
        return Err(wrong(&format!("positions are `{other}`, not `absolute`")));
    }
    if config.is_decoder {
        return Err(wrong("the model is a decoder"));
    }
    Ok(config)
}

fn read_pooling(folder: &Path) -> Result<Pooling, String> {
    let wrong = |name: &str, problem: String| {
        Err(format!(
            "{}: {problem}; supported pooling: the mean of the tokens, or the first token (CLS)",
            folder.join(name).display()
        ))
    };
    let modules: Vec<Module> = read_json(folder, MODULES)?.unwrap_or_default();
    let kinds = modules.iter().filter_map(|module| module.kind.rsplit('.').next());
    if let Some(other) = kinds.into_iter().find(|kind| !MODULE_KINDS.contains(kind)) {
        return wrong(MODULES, format!("the module `{other}` is not supported"));
    }
    let Some(settings) = read_json::<Map<String, Value>>(folder, POOLING)? else { return Ok(Pooling::Mean) };
    if settings.get("include_prompt") == Some(&Value::Bool(false)) {
        return wrong(POOLING, "prompts are excluded from pooling".to_owned());
    }
    let modes = settings.iter().filter(|(name, on)| name.starts_with("pooling_mode_") && **on == true);
    let modes: Vec<&str> = modes.map(|(name, _)| name.as_str()).collect();
    match modes.as_slice() {
        ["pooling_mode_mean_tokens"] => Ok(Pooling::Mean),
        ["pooling_mode_cls_token"] => Ok(Pooling::First),
        [] => wrong(POOLING, "no pooling mode is enabled".to_owned()),
        others => wrong(POOLING, format!("`{}` is enabled", others.join("` and `"))),
    }
}

/// The content of a file; `None` if it does not exist.
pub(super) fn read_bytes(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, String> {
    let path = folder.join(name);
    let wrong = |problem: String| format!("{}: {problem}", path.display());
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(format!("has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(Some(bytes))
}

/// The content of a JSON file; `None` if it does not exist.
pub(super) fn read_json<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Option<T>, String> {
    let Some(bytes) = read_bytes(folder, name)? else { return Ok(None) };
    let read = serde_json::from_slice(&bytes);
    read.map(Some).map_err(|error| format!("{}: {error}", folder.join(name).display()))
}
