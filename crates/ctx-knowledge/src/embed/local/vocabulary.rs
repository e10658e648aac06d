//! Checks that a model's vocabulary is that of the built-in tokenizer.

use super::folder::{bytes, json};
use ctx_embed::Tokenizer;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

/// File with one word piece per line.
const LINES: &str = "vocab.txt";
/// File with the word pieces and all settings of a tokenizer.
const WHOLE: &str = "tokenizer.json";

#[derive(Deserialize)]
struct Whole {
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
    let (name, pieces) = if let Some(bytes) = bytes(folder, LINES)? {
        let text = String::from_utf8_lossy(&bytes);
        (LINES, text.lines().map(str::to_owned).collect())
    } else if let Some(whole) = json::<Whole>(folder, WHOLE)? {
        if whole.model.kind.as_deref() != Some("WordPiece") {
            return wrong(WHOLE, "the vocabulary is not made of word pieces".to_owned());
        }
        if !whole
            .normalizer
            .is_some_and(|normalizer| normalizer.lowercase && normalizer.strip_accents != Some(false))
        {
            return wrong(WHOLE, "the model tells capitals or accents apart".to_owned());
        }
        let Ok(numbers) = serde_json::from_value::<HashMap<String, u32>>(whole.model.vocab) else {
            return wrong(WHOLE, "the vocabulary does not number its word pieces".to_owned());
        };
        (WHOLE, in_order(numbers))
    } else {
        return Err(format!("{} has neither `{LINES}` nor `{WHOLE}`", folder.display()));
    };
    let known = Tokenizer::builtin().vocabulary();
    if pieces.len() != known.len() {
        return wrong(name, format!("has {} word pieces, not {}", pieces.len(), known.len()));
    }
    match pieces.iter().zip(&known).position(|(piece, known)| piece != known) {
        None => Ok(()),
        Some(number) => {
            let (piece, known) = (&pieces[number], &known[number]);
            wrong(name, format!("word piece {number} is `{piece}`, not `{known}`"))
        }
    }
}

/// The word pieces in the order of their numbers; one whose number is out of range leaves a gap.
fn in_order(numbers: HashMap<String, u32>) -> Vec<String> {
    let mut pieces = vec![String::new(); numbers.len()];
    for (piece, number) in numbers {
        if let Some(place) = pieces.get_mut(number as usize) {
            *place = piece;
        }
    }
    pieces
}
