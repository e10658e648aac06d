//! The built-in models through their public interface.
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_embed::Model;

const SENTENCES: &str = include_str!("fixtures/sentences.json");
const VECTORS: &[u8] = include_bytes!("fixtures/sentences.f32");
const MODELS: [Model; 2] = [Model::Fast, Model::Best];

fn sentences() -> Vec<String> {
    serde_json::from_str(SENTENCES).unwrap()
}

fn reference() -> Vec<Vec<f32>> {
    let numbers: Vec<f32> =
        VECTORS.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    numbers.chunks_exact(Model::Best.dimensions()).map(<[f32]>::to_vec).collect()
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn as_strs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

#[test]
fn the_best_model_says_what_the_original_weights_say() {
    let sentences = sentences();
    let vectors = Model::Best.embed(&as_strs(&sentences), 2);
    let reference = reference();
    assert_eq!(vectors.len(), reference.len());
    let alike: Vec<f32> = vectors.iter().zip(&reference).map(|(made, known)| dot(made, known)).collect();
    for (text, alike) in sentences.iter().zip(&alike) {
        assert!(*alike >= 0.995, "{alike} for {text:?}");
    }
    let mean = alike.iter().sum::<f32>() / alike.len() as f32;
    assert!(mean >= 0.998, "{mean}: {alike:?}");
}

#[test]
fn vectors_are_one_unit_long_and_have_the_dimensions_they_are_said_to_have() {
    for model in MODELS {
        for vector in model.embed(&as_strs(&sentences()), 1) {
            assert_eq!(vector.len(), model.dimensions());
            assert!((dot(&vector, &vector) - 1.0).abs() < 1e-4, "{model:?}");
        }
    }
}

#[test]
fn neither_company_nor_threads_change_a_vector() {
    let sentences = sentences();
    let texts = as_strs(&sentences);
    for model in MODELS {
        let together = model.embed(&texts, 2);
        assert_eq!(together, model.embed(&texts, 1), "{model:?}");
        for (text, vector) in texts.iter().zip(&together).step_by(3) {
            assert_eq!(&model.embed(&[text], 1)[0], vector, "{model:?} {text:?}");
        }
    }
}

#[test]
fn what_is_beyond_the_last_token_changes_nothing() {
    let text = "key ".repeat(Model::Best.max_tokens());
    let longer = format!("{text} rotation of all the other things");
    let vectors = Model::Best.embed(&[&text, &longer], 1);
    assert_eq!(vectors[0], vectors[1]);
}

#[test]
fn texts_about_the_same_are_closer_than_others() {
    let texts = [
        "How do I reset my password?",
        "Instructions for changing a forgotten password",
        "The volcano erupted in the early morning",
    ];
    for model in MODELS {
        let vectors = model.embed(&texts, 1);
        let (same, other) = (dot(&vectors[0], &vectors[1]), dot(&vectors[0], &vectors[2]));
        assert!(same > other + 0.1, "{model:?}: {same} {other}");
    }
}

#[test]
fn nothing_is_embedded_as_nothing() {
    for model in MODELS {
        assert!(model.embed(&[], 2).is_empty());
    }
    assert!(Model::Fast.embed(&[""], 1)[0].iter().all(|value| *value == 0.0));
    let best = &Model::Best.embed(&[""], 1)[0];
    assert!((dot(best, best) - 1.0).abs() < 1e-4);
}
