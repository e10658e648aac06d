//! Models with a caller's weights, compared with plain float arithmetic.
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_embed::{BertDimensions, LocalModel, Pooling, Tokenizer};
use std::collections::HashMap;

const CLASS: u32 = 101;
const SEPARATOR: u32 = 102;

const SHAPE: BertDimensions = BertDimensions {
    hidden: 64,
    layers: 2,
    heads: 2,
    intermediate: 96,
    vocabulary: 30_522,
    token_types: 2,
    positions: 40,
    tokens_max: 32,
    epsilon: 1e-12,
    pooling: Pooling::Mean,
};

const TEXTS: [&str; 4] = [
    "How do I rotate keys?",
    "",
    "a text of some more words, so that tiles have rests",
    "many words, many more than there are places in this small model, go on and on and on about nothing at \
     all until nobody listens any more and the rest of what is said falls off the edge",
];

/// A tensor of pseudo-random numbers seeded by its name, with the scales of trained models.
fn tensor(name: &str, shape: &[usize]) -> Vec<f32> {
    let mut state = name
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    let count: usize = shape.iter().product();
    let center = if name.ends_with("LayerNorm.weight") { 1.0 } else { 0.0 };
    let spread = if shape.len() == 2 { 1.5 / (shape[1] as f32).sqrt() } else { 0.2 };
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            center + ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * spread
        })
        .collect()
}

fn model(shape: &BertDimensions) -> LocalModel {
    LocalModel::new(shape.clone(), |name, shape| Ok(tensor(name, shape))).unwrap()
}

/// The same model, computed directly from the definition.
struct Reference {
    shape: BertDimensions,
    tensors: HashMap<String, Vec<f32>>,
}

impl Reference {
    fn new(shape: &BertDimensions) -> Self {
        let mut tensors = HashMap::new();
        LocalModel::new(shape.clone(), |name, shape| {
            tensors.insert(name.to_owned(), tensor(name, shape));
            Ok(tensor(name, shape))
        })
        .unwrap();
        Self { shape: shape.clone(), tensors }
    }

    fn linear(&self, name: &str, rows: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let (weights, biases) =
            (&self.tensors[&format!("{name}.weight")], &self.tensors[&format!("{name}.bias")]);
        let output = |row: &[f32], (weights, bias): (&[f32], &f32)| dot(weights, row) + bias;
        let through = |row: &Vec<f32>| {
            weights.chunks_exact(row.len()).zip(biases).map(|output_of| output(row, output_of)).collect()
        };
        rows.iter().map(through).collect()
    }

    fn norm(&self, name: &str, row: &[f32]) -> Vec<f32> {
        let count = row.len() as f32;
        let mean = row.iter().sum::<f32>() / count;
        let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / count;
        let (gains, biases) =
            (&self.tensors[&format!("{name}.weight")], &self.tensors[&format!("{name}.bias")]);
        let scaled = row.iter().map(|value| (value - mean) / (variance + self.shape.epsilon).sqrt());
        scaled.zip(gains).zip(biases).map(|((value, gain), bias)| value * gain + bias).collect()
    }

    fn added(&self, name: &str, rows: &[Vec<f32>], more: &[Vec<f32>]) -> Vec<Vec<f32>> {
        rows.iter().zip(more).map(|(row, more)| self.norm(name, &sum(row, more))).collect()
    }

    fn embed(&self, text: &str) -> Vec<f32> {
        let BertDimensions { hidden, layers, tokens_max: places, .. } = self.shape;
        let mut ids = Tokenizer::builtin().encode(text, places - 2);
        ids.insert(0, CLASS);
        ids.push(SEPARATOR);
        let row = |name: &str, number: usize| &self.tensors[name][number * hidden..][..hidden];
        let mut rows: Vec<Vec<f32>> = Vec::new();
        for (place, id) in ids.iter().enumerate() {
            let word = row("embeddings.word_embeddings.weight", *id as usize);
            let placed = sum(word, row("embeddings.position_embeddings.weight", place));
            let whole = sum(&placed, row("embeddings.token_type_embeddings.weight", 0));
            rows.push(self.norm("embeddings.LayerNorm", &whole));
        }
        for layer in 0..layers {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            let gathered = self.attention(&name("attention.self"), &rows);
            let output = self.linear(&name("attention.output.dense"), &gathered);
            rows = self.added(&name("attention.output.LayerNorm"), &rows, &output);
            let mut wide = self.linear(&name("intermediate.dense"), &rows);
            wide.iter_mut().flatten().for_each(|value| *value = gelu(*value));
            let output = self.linear(&name("output.dense"), &wide);
            rows = self.added(&name("output.LayerNorm"), &rows, &output);
        }
        let pooled = match self.shape.pooling {
            Pooling::Mean => rows.iter().skip(1).fold(rows[0].clone(), |total, row| sum(&total, row)),
            Pooling::First => rows[0].clone(),
        };
        let length = dot(&pooled, &pooled).sqrt();
        pooled.iter().map(|value| value / length).collect()
    }

    fn attention(&self, name: &str, rows: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let [questions, keys, values] =
            ["query", "key", "value"].map(|part| self.linear(&format!("{name}.{part}"), rows));
        let head = self.shape.hidden / self.shape.heads;
        let mut out = vec![vec![0.0; self.shape.hidden]; rows.len()];
        for from in (0..self.shape.hidden).step_by(head) {
            let part = from..from + head;
            for (question, out) in questions.iter().zip(&mut out) {
                let score = |key: &Vec<f32>| {
                    (dot(&question[part.clone()], &key[part.clone()]) / (head as f32).sqrt()).exp()
                };
                let scores: Vec<f32> = keys.iter().map(score).collect();
                let total: f32 = scores.iter().sum();
                for (score, value) in scores.iter().zip(&values) {
                    for dimension in part.clone() {
                        out[dimension] += score / total * value[dimension];
                    }
                }
            }
        }
        out
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sum(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// x · Φ(x), by numerical integration of the density of the normal distribution.
fn gelu(x: f32) -> f32 {
    const STEPS: i32 = 400;
    let x = f64::from(x);
    let step = x / f64::from(STEPS);
    let density = |at: f64| (-at * at / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let area: f64 = (0..STEPS).map(|number| density((f64::from(number) + 0.5) * step) * step).sum();
    (x * (0.5 + area)) as f32
}

#[test]
fn vectors_are_what_the_definition_says() {
    let shapes = [
        SHAPE,
        BertDimensions { pooling: Pooling::First, ..SHAPE },
        BertDimensions { hidden: 32, heads: 2, intermediate: 16, layers: 1, ..SHAPE },
        BertDimensions { hidden: 96, heads: 2, epsilon: 0.1, token_types: 1, ..SHAPE },
        // More inputs than full-range activations can be summed over in 32 bits.
        BertDimensions { intermediate: 4_096, layers: 1, ..SHAPE },
        BertDimensions { vocabulary: 30_528, tokens_max: 40, layers: 3, heads: 4, ..SHAPE },
    ];
    for shape in shapes {
        let (model, reference) = (model(&shape), Reference::new(&shape));
        for (text, vector) in TEXTS.iter().zip(model.embed(&TEXTS, 2)) {
            let alike = dot(&vector, &reference.embed(text));
            assert!(alike > 0.999, "{alike} for {text:?} by {shape:?}");
        }
    }
}

#[test]
fn what_has_no_place_changes_nothing() {
    let text = "key ".repeat(SHAPE.tokens_max);
    let longer = format!("{text} rotation of all the other things");
    let vectors = model(&SHAPE).embed(&[&text, &longer], 1);
    assert_eq!(vectors[0], vectors[1]);
}

#[test]
fn a_shape_without_kernels_is_refused() {
    let problem = |shape: BertDimensions| shape.check().unwrap_err();
    let shape = || SHAPE;
    let cases = [
        (
            BertDimensions { hidden: 72, heads: 1, ..shape() },
            "the hidden size must be a multiple of 16, not 72",
        ),
        (BertDimensions { hidden: 0, ..shape() }, "the hidden size must be between 1 and 8192, not 0"),
        (BertDimensions { layers: 0, ..shape() }, "the number of layers must be between 1 and 256, not 0"),
        (
            BertDimensions { heads: 0, ..shape() },
            "the number of attention heads must be between 1 and 64, not 0",
        ),
        (
            BertDimensions { heads: 3, ..shape() },
            "the hidden size 64 is not divisible by the 3 attention heads",
        ),
        (
            BertDimensions { heads: 8, ..shape() },
            "the size of an attention head must be a multiple of 16, not 8",
        ),
        (
            BertDimensions { intermediate: 100, ..shape() },
            "the intermediate size must be a multiple of 16, not 100",
        ),
        (
            BertDimensions { intermediate: 9_008, ..shape() },
            "the intermediate size must be between 1 and 8192, not 9008",
        ),
        (
            BertDimensions { vocabulary: 28_996, ..shape() },
            "the vocabulary must have 30522 word pieces, not 28996",
        ),
        (
            BertDimensions { tokens_max: 41, ..shape() },
            "the maximum length must be between 3 and 40 tokens, not 41",
        ),
        (
            BertDimensions { tokens_max: 2, ..shape() },
            "the maximum length must be between 3 and 40 tokens, not 2",
        ),
        (
            BertDimensions { epsilon: f32::NAN, ..shape() },
            "the epsilon of the norms must be between 0 and 1, not NaN",
        ),
    ];
    for (shape, expected) in cases {
        assert_eq!(problem(shape), expected);
    }
}

#[test]
fn a_tensor_that_cannot_be_had_or_has_another_size_is_told() {
    let none = LocalModel::new(SHAPE, |name, _| Err(format!("no {name}"))).unwrap_err();
    assert_eq!(none, "no embeddings.word_embeddings.weight");
    let short = LocalModel::new(SHAPE, |_, _| Ok(vec![0.0; 3])).unwrap_err();
    assert_eq!(short, "`embeddings.word_embeddings.weight` has 3 values, not 1953408");
}
