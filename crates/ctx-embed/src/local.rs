//! A BERT model with weights that the caller supplies, one tensor at a time.
//!
//! Weights are quantised to one byte as they arrive, like those of the built-in model, so that at most one tensor is
//! held as floats.

use crate::bert::{self, Pooling, SPECIAL_TOKENS, TransformerSizes, Weights};
use crate::kernel::{self, INPUTS_MAX, Kernels, PANEL};
use crate::tokenizer::VOCABULARY;
use crate::vector::quantize;

/// Maximum number of layers, more than any model of this family has.
const LAYERS_MAX: usize = 256;
/// Maximum number of positions, more than any model of this family has.
const POSITIONS_MAX: usize = 65_536;

/// The dimensions and parameters of a BERT model, needed before its tensors are read.
#[derive(Clone, Debug, PartialEq)]
pub struct BertDimensions {
    /// Hidden size: dimensions of a token's vector and of the result.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of attention heads per layer.
    pub heads: usize,
    /// Intermediate size: width of the feed-forward part of a layer.
    pub intermediate: usize,
    /// Number of word pieces with weights; those beyond the tokenizer's vocabulary are not used.
    pub vocabulary: usize,
    /// Number of token types (segments); only the first is used.
    pub token_types: usize,
    /// Number of position embeddings in the weights.
    pub positions: usize,
    /// Maximum number of tokens of a text: how many of the positions are used.
    pub tokens_max: usize,
    /// Epsilon of the LayerNorms, which prevents a division by zero.
    pub epsilon: f32,
    /// How token vectors are pooled into one vector.
    pub pooling: Pooling,
}

impl BertDimensions {
    /// Checks that the kernels support this model; the error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let sized = |name: &str, size: usize, max: usize| match size {
            size if size == 0 || size > max => Err(format!("{name} must be between 1 and {max}, not {size}")),
            _ => Ok(()),
        };
        let whole = |name: &str, size: usize| match size.is_multiple_of(PANEL) {
            true => Ok(()),
            false => Err(format!("{name} must be a multiple of {PANEL}, not {size}")),
        };
        sized("the hidden size", self.hidden, INPUTS_MAX)?;
        sized("the number of layers", self.layers, LAYERS_MAX)?;
        sized("the number of attention heads", self.heads, self.hidden)?;
        sized("the intermediate size", self.intermediate, INPUTS_MAX)?;
        sized("the number of positions", self.positions, POSITIONS_MAX)?;
        sized("the number of token types", self.token_types, VOCABULARY)?;
        whole("the hidden size", self.hidden)?;
        whole("the intermediate size", self.intermediate)?;
        if !self.hidden.is_multiple_of(self.heads) {
            let Self { hidden, heads, .. } = self;
            return Err(format!("the hidden size {hidden} is not divisible by the {heads} attention heads"));
        }
        whole("the size of an attention head", self.hidden / self.heads)?;
        if self.vocabulary < VOCABULARY {
            let known = self.vocabulary;
            return Err(format!("the vocabulary must have {VOCABULARY} word pieces, not {known}"));
        }
        if !(SPECIAL_TOKENS + 1..=self.positions).contains(&self.tokens_max) {
            let Self { tokens_max: places, positions, .. } = self;
            return Err(format!(
                "the maximum length must be between {} and {positions} tokens, not {places}",
                SPECIAL_TOKENS + 1
            ));
        }
        if !(0.0..1.0).contains(&self.epsilon) {
            return Err(format!("the epsilon of the norms must be between 0 and 1, not {}", self.epsilon));
        }
        Ok(())
    }
}

/// A model of the BERT family with its quantised weights in memory.
pub struct LocalModel {
    shape: BertDimensions,
    token_codes: Vec<i8>,
    token_scales: Vec<f32>,
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

impl std::fmt::Debug for LocalModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalModel").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl LocalModel {
    /// Builds a model from its tensors. `tensor` is called once per tensor, with its name in a `BertModel` and its
    /// shape.
    pub fn new(
        shape: BertDimensions,
        tensor: impl FnMut(&str, &[usize]) -> Result<Vec<f32>, String>,
    ) -> Result<Self, String> {
        shape.check()?;
        let hidden = shape.hidden;
        let mut reader = TensorReader(tensor);
        let tokens = reader.get("embeddings.word_embeddings.weight", &[shape.vocabulary, hidden])?;
        let (mut token_codes, mut token_scales) = (Vec::new(), Vec::new());
        token_codes.reserve_exact(VOCABULARY * hidden);
        for row in tokens.chunks_exact(hidden).take(VOCABULARY) {
            let (codes, scale) = quantize(row);
            token_codes.extend(codes);
            token_scales.push(scale);
        }
        drop(tokens);
        let mut positions =
            reader.get("embeddings.position_embeddings.weight", &[shape.positions, hidden])?;
        positions.truncate(shape.tokens_max * hidden);
        let kinds = reader.get("embeddings.token_type_embeddings.weight", &[shape.token_types, hidden])?;
        for row in positions.chunks_exact_mut(hidden) {
            row.iter_mut().zip(&kinds).for_each(|(position, kind)| *position += kind);
        }
        let norm = reader.norm("embeddings.LayerNorm", &shape)?;
        let layers = (0..shape.layers).map(|number| reader.layer(number, &shape));
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(Self { token_codes, token_scales, positions, norm, layers, shape })
    }

    /// Dimensions of its vectors.
    pub fn dimensions(&self) -> usize {
        self.shape.hidden
    }

    /// Embeds texts on up to `threads` threads; returns unit-length vectors in the order of the texts.
    pub fn embed(&self, texts: &[&str], threads: usize) -> Vec<Vec<f32>> {
        self.weights().embed(Kernels::detect(), texts, threads)
    }

    fn weights(&self) -> Weights<'_> {
        let BertDimensions { hidden, heads, intermediate, pooling, .. } = self.shape;
        Weights {
            sizes: TransformerSizes { hidden, heads, intermediate },
            token_codes: &self.token_codes,
            token_scales: &self.token_scales,
            positions: &self.positions,
            norm: self.norm.view(),
            layers: self.layers.iter().map(Layer::view).collect(),
            pooling,
        }
    }
}

struct TensorReader<Source>(Source);

impl<Source: FnMut(&str, &[usize]) -> Result<Vec<f32>, String>> TensorReader<Source> {
    fn get(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let values = (self.0)(name, shape)?;
        let expected: usize = shape.iter().product();
        if values.len() != expected {
            return Err(format!("`{name}` has {} values, not {expected}", values.len()));
        }
        Ok(values)
    }

    fn norm(&mut self, name: &str, shape: &BertDimensions) -> Result<Norm, String> {
        Ok(Norm {
            gains: self.get(&format!("{name}.weight"), &[shape.hidden])?,
            biases: self.get(&format!("{name}.bias"), &[shape.hidden])?,
            epsilon: shape.epsilon,
        })
    }

    fn layer(&mut self, number: usize, shape: &BertDimensions) -> Result<Layer, String> {
        let BertDimensions { hidden, intermediate: wide, .. } = *shape;
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let mut attention = Linear::new(hidden);
        // The attention scale (1/√d) is folded into the weights of the queries.
        let query_scale = 1.0 / ((hidden / shape.heads) as f32).sqrt();
        for (part, factor) in [("query", query_scale), ("key", 1.0), ("value", 1.0)] {
            self.extend(&mut attention, &name(&format!("attention.self.{part}")), hidden, factor)?;
        }
        let mut linear = |part: &str, inputs: usize, outputs: usize| {
            let mut linear = Linear::new(inputs);
            self.extend(&mut linear, &name(part), outputs, 1.0).map(|()| linear)
        };
        let attention_output = linear("attention.output.dense", hidden, hidden)?;
        let intermediate = linear("intermediate.dense", hidden, wide)?;
        let output = linear("output.dense", wide, hidden)?;
        let attention_norm = self.norm(&name("attention.output.LayerNorm"), shape)?;
        let norm = self.norm(&name("output.LayerNorm"), shape)?;
        Ok(Layer { attention, attention_output, attention_norm, intermediate, output, norm })
    }

    /// Appends the outputs of a tensor, times a factor, to a linear layer.
    fn extend(&mut self, to: &mut Linear, name: &str, outputs: usize, factor: f32) -> Result<(), String> {
        let mut weights = self.get(&format!("{name}.weight"), &[outputs, to.inputs])?;
        let mut biases = self.get(&format!("{name}.bias"), &[outputs])?;
        weights.iter_mut().chain(&mut biases).for_each(|value| *value *= factor);
        for rows in weights.chunks_exact(to.inputs * PANEL) {
            to.push_panel(rows);
        }
        to.biases.extend(biases);
        Ok(())
    }
}

struct Norm {
    gains: Vec<f32>,
    biases: Vec<f32>,
    epsilon: f32,
}

impl Norm {
    fn view(&self) -> kernel::Norm<'_> {
        kernel::Norm { gains: &self.gains, biases: &self.biases, epsilon: self.epsilon }
    }
}

struct Linear {
    inputs: usize,
    codes: Vec<i8>,
    scales: Vec<f32>,
    biases: Vec<f32>,
}

impl Linear {
    fn new(inputs: usize) -> Self {
        Self { inputs, codes: Vec::new(), scales: Vec::new(), biases: Vec::new() }
    }

    /// Appends [`PANEL`] outputs, in the layout described in `models/make_best.py`.
    fn push_panel(&mut self, rows: &[f32]) {
        let begin = self.codes.len();
        self.codes.resize(begin + rows.len(), 0);
        let panel = &mut self.codes[begin..];
        for (output, row) in rows.chunks_exact(self.inputs).enumerate() {
            let (codes, scale) = quantize(row);
            self.scales.push(scale);
            for (pair, codes) in codes.as_chunks::<2>().0.iter().enumerate() {
                panel[(pair * PANEL + output) * 2..][..2].copy_from_slice(codes);
            }
        }
    }

    fn view(&self) -> kernel::Linear<'_> {
        kernel::Linear { inputs: self.inputs, codes: &self.codes, scales: &self.scales, biases: &self.biases }
    }
}

struct Layer {
    attention: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    intermediate: Linear,
    output: Linear,
    norm: Norm,
}

impl Layer {
    fn view(&self) -> bert::Layer<'_> {
        bert::Layer {
            attention: self.attention.view(),
            attention_output: self.attention_output.view(),
            attention_norm: self.attention_norm.view(),
            intermediate: self.intermediate.view(),
            output: self.output.view(),
            norm: self.norm.view(),
        }
    }
}
