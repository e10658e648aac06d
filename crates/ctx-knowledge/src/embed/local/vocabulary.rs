//! Checks that a model's vocabulary is that of the built-in tokenizer.

use super::model_config::{read_bytes, read_json};
use ctx_embed::Tokenizer;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

/// File with one word piece per line.
const VOCABULARY_FILE: &str = "vocab.txt";
/// File with the word pieces and all settings of a tokenizer.
const TOKENIZER_FILE: &str = "tokenizer.json";

#[derive(Deserialize)]
#[serde(expecting = "struct Whole")]
struct TokenizerFile {
    normalizer: Option<Normalizer>,
    model: Model,
}

#[derive(Deserialize)]
struct Normalizer {
    #[serde(default)]
    lowercase: bool,
    strip_accents: Option<bool>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    vocab: serde_json::Value,
}

/// Compares every word piece with the built-in vocabulary; the error names the file.
pub(super) fn check(folder: &Path) -> Result<(), String> {
    let wrong = |name: &str, problem: String| Err(format!("{}: {problem}", folder.join(name).display()));
    let (name, pieces) = if let Some(bytes) = read_bytes(folder, VOCABULARY_FILE)? {
        let text = String::from_utf8_lossy(&bytes);
        (VOCABULARY_FILE, text.lines().map(str::to_owned).collect())
    } else if let Some(tokenizer) = read_json::<TokenizerFile>(folder, TOKENIZER_FILE)? {
        if tokenizer.model.kind.as_deref() != Some("WordPiece") {
            return wrong(TOKENIZER_FILE, "the tokenizer is not a WordPiece tokenizer".to_owned());
        }
        if !tokenizer
            .normalizer
            .is_some_and(|normalizer| normalizer.lowercase && normalizer.strip_accents != Some(false))
        {
            return wrong(TOKENIZER_FILE, "the model is case-sensitive or accent-sensitive".to_owned());
        }
        let Ok(ids) = serde_json::from_value::<HashMap<String, u32>>(tokenizer.model.vocab) else {
            return wrong(TOKENIZER_FILE, "the vocabulary has no token ids".to_owned());
        };
        (TOKENIZER_FILE, order_by_id(ids))
    } else {
        return Err(format!("{} has neither `{VOCABULARY_FILE}` nor `{TOKENIZER_FILE}`", folder.display()));
    };
    let builtin = Tokenizer::builtin().vocabulary();
    if pieces.len() != builtin.len() {
        return wrong(name, format!("has {} word pieces, not {}", pieces.len(), builtin.len()));
    }
    match pieces.iter().zip(&builtin).position(|(piece, builtin)| piece != builtin) {
        None => Ok(()),
        Some(id) => {
            let (piece, builtin) = (&pieces[id], &builtin[id]);
            wrong(name, format!("word piece {id} is `{piece}`, not `{builtin}`"))
        }
    }
}

/// The word pieces in the order of their numbers; one whose number is out of range leaves a gap.
fn order_by_id(ids: HashMap<String, u32>) -> Vec<String> {
    let mut pieces = vec![String::new(); ids.len()];
    for (piece, id) in ids {
        if let Some(slot) = pieces.get_mut(id as usize) {
            *slot = piece;
        }
    }
    pieces
}
