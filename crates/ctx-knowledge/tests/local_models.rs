//! Local models: which folders are loaded or refused, and how models are identified.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

use ctx_embed::{BertDimensions, LocalModel, Pooling, Tokenizer, vector};
use ctx_knowledge::{Effort, EmbedError, Embedder, EmbedderSettings, PROVIDERS};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const SHAPE: BertDimensions = BertDimensions {
    hidden: 32,
    layers: 2,
    heads: 2,
    intermediate: 64,
    vocabulary: 30_522,
    token_types: 2,
    positions: 64,
    tokens_max: 64,
    epsilon: 1e-12,
    pooling: Pooling::Mean,
};
const TEXTS: [&str; 2] = ["How do I rotate keys?", "The volcano erupted in the early morning"];

/// Numbers that depend on nothing but the tensor's name, and can be written in any precision.
fn tensor(name: &str, shape: &[usize]) -> Vec<f32> {
    let mut state = name.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31) ^ u32::from(byte));
    let count: usize = shape.iter().product();
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 24) as f32 - 128.0) / 512.0
        })
        .collect()
}

/// The model made of these tensors directly.
fn model(shape: BertDimensions) -> LocalModel {
    LocalModel::new(shape, |name, shape| Ok(tensor(name, shape))).unwrap()
}

/// A file of all tensors in one number format.
fn weights(prefix: &str, kind: &str) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    LocalModel::new(SHAPE, |name, shape| {
        let values = tensor(name, shape);
        let begin = data.len();
        match kind {
            "F32" => data.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            "F16" => data.extend(vector::to_half(&values)),
            _ => data.extend(values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes())),
        }
        let entry = json!({"dtype": kind, "shape": shape, "data_offsets": [begin, data.len()]});
        header.insert(format!("{prefix}{name}"), entry);
        Ok(values)
    })
    .unwrap();
    let header = Value::Object(header).to_string();
    [(header.len() as u64).to_le_bytes().as_slice(), header.as_bytes(), &data].concat()
}

fn config() -> Value {
    json!({
        "model_type": "bert", "hidden_act": "gelu", "hidden_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64,
        "vocab_size": 30_522, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
    })
}

/// A folder with a whole model.
struct ModelFolder(TempDir);

impl ModelFolder {
    fn new() -> Self {
        Self::with(&weights("", "F32"))
    }

    fn with(weights: &[u8]) -> Self {
        let folder = Self(TempDir::new().unwrap());
        let folder = folder.json("config.json", &config());
        folder
            .file("model.safetensors", weights)
            .file("vocab.txt", Tokenizer::builtin().vocabulary().join("\n"))
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("tiny")
    }

    fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn json(self, name: &str, content: &Value) -> Self {
        self.file(name, content.to_string())
    }

    /// The configuration with another value.
    fn set(self, name: &str, value: Value) -> Self {
        let mut config = config();
        config[name] = value;
        self.json("config.json", &config)
    }

    fn without(self, name: &str) -> Self {
        fs::remove_file(self.path().join(name)).unwrap();
        self
    }

    fn open(&self) -> Result<Arc<dyn Embedder>, String> {
        open(&EmbedderSettings { path: Some(self.path()), ..EmbedderSettings::default() })
    }

    fn embedder(&self) -> Arc<dyn Embedder> {
        self.open().unwrap_or_else(|problem| panic!("{problem}"))
    }

    fn problem(&self) -> String {
        normalize_error(&self.open().err().unwrap(), &self.path())
    }
}

fn open(settings: &EmbedderSettings) -> Result<Arc<dyn Embedder>, String> {
    let kind = PROVIDERS.iter().find(|kind| kind.name == "local").unwrap();
    (kind.open)(settings)
}

/// The error without the parts that differ from run to run, and without the ending that all have.
fn normalize_error(problem: &str, path: &Path) -> String {
    let supported = "; supported are BERT models with the uncased English vocabulary, like \
                     all-MiniLM-L6-v2, bge-small-en-v1.5 or gte-small";
    problem.replace(&path.display().to_string(), "MODEL").replace(supported, "; …")
}

fn embed(embedder: &Arc<dyn Embedder>) -> Result<Vec<Vec<f32>>, EmbedError> {
    embedder.embed(&TEXTS, Effort::Full)
}

#[test]
fn a_folder_makes_the_vectors_of_its_tensors_in_every_precision() {
    let expected = model(SHAPE).embed(&TEXTS, 1);
    for (prefix, kind) in [("", "F32"), ("bert.", "F16"), ("", "BF16")] {
        let folder = ModelFolder::with(&weights(prefix, kind));
        assert_eq!(embed(&folder.embedder()).unwrap(), expected, "{kind}");
        assert_eq!(folder.embedder().embed_query(TEXTS[0]).unwrap(), expected[0], "{kind}");
    }
}

#[test]
fn settings_of_the_model_folder_are_applied() {
    let folder = ModelFolder::new();
    assert_eq!(folder.embedder().max_tokens(), 64);
    let folder = folder
        .json(
            "1_Pooling/config.json",
            &json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}),
        )
        .json("modules.json", &json!([{"type": "sentence_transformers.models.Normalize"}]))
        .json("sentence_bert_config.json", &json!({"max_seq_length": 48, "do_lower_case": false}))
        .json("tokenizer_config.json", &json!({"model_max_length": 1e30, "do_lower_case": true}))
        .set("layer_norm_eps", json!(0.01));
    let expected = model(BertDimensions { pooling: Pooling::First, tokens_max: 48, epsilon: 0.01, ..SHAPE });
    assert_eq!(embed(&folder.embedder()).unwrap(), expected.embed(&TEXTS, 1));
    assert_eq!(folder.embedder().max_tokens(), 48);
}

#[test]
fn prompts_precede_documents_and_queries() {
    let prompts = json!({"prompts": {"query": "query: ", "passage": "passage: "}});
    let folder = ModelFolder::new().json("config_sentence_transformers.json", &prompts);
    let embedder = folder.embedder();
    let expected = model(SHAPE).embed(&["query: keys", "passage: keys"], 1);
    assert_eq!(embedder.embed_query("keys").unwrap(), expected[0]);
    assert_eq!(embedder.embed(&["keys"], Effort::Low).unwrap()[0], expected[1]);
    assert_eq!(embedder.max_tokens(), 64 - 2);
    let longest = json!({"prompts": {"query": "key ".repeat(60)}});
    let problem = folder.json("config_sentence_transformers.json", &longest).problem();
    assert_eq!(problem, "path: MODEL: its prompts leave no room for text");
}

#[test]
fn the_vocabulary_may_come_from_the_tokenizer() {
    let vocabulary = Tokenizer::builtin().vocabulary();
    let numbers: Map<String, Value> =
        vocabulary.into_iter().enumerate().map(|(number, piece)| (piece, json!(number))).collect();
    let tokenizer = |lowercase: bool, kind: &str, numbers: &Map<String, Value>| {
        json!({"normalizer": {"lowercase": lowercase, "strip_accents": null},
               "model": {"type": kind, "vocab": numbers}})
    };
    let folder = ModelFolder::new().without("vocab.txt");
    assert_eq!(folder.problem(), "path: MODEL has neither `vocab.txt` nor `tokenizer.json`; …");
    let folder = folder.json("tokenizer.json", &tokenizer(true, "WordPiece", &numbers));
    folder.embedder();
    let folder = folder.json("tokenizer.json", &tokenizer(false, "WordPiece", &numbers));
    assert_eq!(
        folder.problem(),
        "path: MODEL/tokenizer.json: the model is case-sensitive or accent-sensitive; …"
    );
    let folder = folder.json("tokenizer.json", &tokenizer(true, "BPE", &numbers));
    assert_eq!(folder.problem(), "path: MODEL/tokenizer.json: the tokenizer is not a WordPiece tokenizer; …");
    let mut shifted = numbers;
    shifted.values_mut().for_each(|number| *number = json!(number.as_u64().unwrap() + 1));
    let folder = folder.json("tokenizer.json", &tokenizer(true, "WordPiece", &shifted));
    assert_eq!(folder.problem(), "path: MODEL/tokenizer.json: word piece 0 is ``, not `[PAD]`; …");
}

#[test]
fn another_vocabulary_is_rejected() {
    let mut pieces = Tokenizer::builtin().vocabulary();
    pieces.swap(2_000, 2_001);
    let (first, second) = (pieces[2_001].clone(), pieces[2_000].clone());
    let folder = ModelFolder::new().file("vocab.txt", pieces.join("\r\n"));
    assert_eq!(
        folder.problem(),
        format!("path: MODEL/vocab.txt: word piece 2000 is `{second}`, not `{first}`; …")
    );
    let folder = folder.file("vocab.txt", "one\ntwo\n");
    assert_eq!(folder.problem(), "path: MODEL/vocab.txt: has 2 word pieces, not 30522; …");
}

#[test]
fn an_unsupported_model_type_is_rejected() {
    let cases = [
        ("model_type", json!("roberta"), "the model type is `roberta`, not `bert`; …"),
        ("model_type", json!(null), "the model type is `none`, not `bert`; …"),
        ("hidden_act", json!("relu"), "the activation is `relu`, not `gelu`; …"),
        ("position_embedding_type", json!("relative_key"), "positions are `relative_key`, not `absolute`; …"),
        ("is_decoder", json!(true), "the model is a decoder; …"),
        ("vocab_size", json!(28_996), "the vocabulary must have 30522 word pieces, not 28996"),
        ("hidden_size", json!(40), "the hidden size must be a multiple of 16, not 40"),
        ("num_attention_heads", json!(4), "the size of an attention head must be a multiple of 16, not 8"),
        ("intermediate_size", json!(70), "the intermediate size must be a multiple of 16, not 70"),
        ("num_hidden_layers", json!(0), "the number of layers must be between 1 and 256, not 0"),
    ];
    let mut folder = ModelFolder::new();
    for (name, value, expected) in cases {
        folder = folder.set(name, value);
        assert_eq!(folder.problem(), format!("path: MODEL/config.json: {expected}"));
    }
    let folder = folder.set("hidden_size", json!("wide"));
    assert!(folder.problem().starts_with("path: MODEL/config.json: invalid type: string \"wide\""));
    let folder = folder.file("config.json", "{");
    assert!(folder.problem().starts_with("path: MODEL/config.json: EOF while parsing"));
    let folder =
        folder.set("hidden_size", json!(32)).json("tokenizer_config.json", &json!({"do_lower_case": false}));
    assert_eq!(
        folder.problem(),
        "path: MODEL/tokenizer_config.json: the model is case-sensitive or accent-sensitive; …"
    );
}

#[test]
fn an_unsupported_pooling_is_rejected() {
    let ways = "supported pooling: the mean of the tokens, or the first token (CLS)";
    let pooling = |settings: Value| ModelFolder::new().json("1_Pooling/config.json", &settings).problem();
    let expected = |problem: &str| format!("path: MODEL/1_Pooling/config.json: {problem}; {ways}");
    assert_eq!(
        pooling(json!({"pooling_mode_max_tokens": true})),
        expected("`pooling_mode_max_tokens` is enabled")
    );
    assert_eq!(
        pooling(json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})),
        expected("`pooling_mode_cls_token` and `pooling_mode_mean_tokens` is enabled")
    );
    assert_eq!(pooling(json!({})), expected("no pooling mode is enabled"));
    let dense =
        ModelFolder::new().json("modules.json", &json!([{"type": "sentence_transformers.models.Dense"}]));
    assert_eq!(
        dense.problem(),
        format!("path: MODEL/modules.json: the module `Dense` is not supported; {ways}")
    );
}

#[test]
fn missing_files_are_named() {
    let missing = |settings: &EmbedderSettings| open(settings).err().unwrap();
    assert_eq!(
        missing(&EmbedderSettings::default()),
        "path: `local` needs the folder of a model, relative to the workspace, like \"models/all-MiniLM-L6-v2\""
    );
    let folder = ModelFolder::new();
    let settings = EmbedderSettings { path: Some(folder.path().join("none")), ..EmbedderSettings::default() };
    assert_eq!(normalize_error(&missing(&settings), &folder.path()), "path: MODEL/none is not a folder");
    let settings =
        EmbedderSettings { path: Some(folder.path()), dimensions: Some(256), ..EmbedderSettings::default() };
    assert_eq!(missing(&settings), "dims: the model has 32 dimensions; remove this setting");
    let folder = folder.without("config.json");
    assert_eq!(folder.problem(), "path: MODEL has no `config.json`");
    let folder = folder.without("model.safetensors");
    assert_eq!(folder.problem(), "path: MODEL has no `model.safetensors`");
    let folder = folder.file("pytorch_model.bin", "");
    assert_eq!(
        folder.problem(),
        "path: MODEL has no `model.safetensors`; `pytorch_model.bin` cannot be read"
    );
}

#[test]
fn tensors_that_contradict_the_configuration_are_an_error_on_first_use() {
    let folder = ModelFolder::new().set("num_hidden_layers", json!(3));
    let Err(EmbedError::Refused(problem)) = embed(&folder.embedder()) else { panic!("not refused") };
    assert_eq!(
        normalize_error(&problem, &folder.path()),
        "MODEL/model.safetensors: has no tensor `encoder.layer.2.attention.self.query.weight`"
    );
    let folder = folder.set("intermediate_size", json!(48));
    let Err(EmbedError::Refused(problem)) = embed(&folder.embedder()) else { panic!("not refused") };
    assert_eq!(
        normalize_error(&problem, &folder.path()),
        "MODEL/model.safetensors: `encoder.layer.0.intermediate.dense.weight` has the shape [64, 32], \
         where [48, 32] is needed"
    );
}

#[test]
fn whatever_changes_vectors_changes_the_model_id() {
    let folder = ModelFolder::new();
    let name = folder.embedder().model().to_owned();
    assert!(name.starts_with("local:tiny-"), "{name}");
    assert_eq!(ModelFolder::new().embedder().model(), name);
    let mut names = vec![name];
    let mut last = weights("", "F32");
    *last.last_mut().unwrap() ^= 1;
    let pooling = json!({"pooling_mode_cls_token": true});
    let prompts = json!({"prompts": {"document": "passage: "}});
    for folder in [
        ModelFolder::with(&last),
        ModelFolder::with(&weights("", "F16")),
        ModelFolder::new().json("1_Pooling/config.json", &pooling),
        ModelFolder::new().json("config_sentence_transformers.json", &prompts),
        ModelFolder::new().set("layer_norm_eps", json!(0.1)),
        ModelFolder::new().json("sentence_bert_config.json", &json!({"max_seq_length": 20})),
    ] {
        names.push(folder.embedder().model().to_owned());
    }
    let mut different = names.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), names.len(), "{names:?}");
}

#[test]
fn weights_that_changed_since_opening_are_an_error() {
    let folder = ModelFolder::new();
    let embedder = folder.embedder();
    let folder = folder.file("model.safetensors", weights("", "BF16"));
    let Err(EmbedError::Refused(problem)) = embed(&embedder) else { panic!("not refused") };
    assert_eq!(
        normalize_error(&problem, &folder.path()),
        "MODEL/model.safetensors has changed; restart to use it"
    );
}
