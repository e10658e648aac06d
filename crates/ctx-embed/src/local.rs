//! A transformer whose weights a caller brings, one tensor after the other.
//!
//! Weights are rounded to one byte as they come, as those of the built-in model are, so that no more than
//! one tensor is ever held as floats.

use crate::bert::{self, ENDS, Pooling, Sizes, Weights};
use crate::kernel::{self, INPUTS_MAX, Kernels, PANEL};
use crate::tokenizer::VOCABULARY;
use crate::vector::quantize;

/// More layers than any model of this family has.
const LAYERS_MAX: usize = 256;
/// More places than any model of this family has.
const POSITIONS_MAX: usize = 65_536;

/// What is to be known about a model before its tensors are read.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Numbers of a vector.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Ways in which tokens look at each other in a layer.
    pub heads: usize,
    /// Numbers of a token in the middle of a layer.
    pub wide: usize,
    /// Word pieces it has weights for; those beyond the vocabulary are never used.
    pub vocabulary: usize,
    /// Kinds of text it tells apart; only the first is ever used.
    pub kinds: usize,
    /// Places in a text that it has weights for.
    pub positions: usize,
    /// How many of these places are used.
    pub places: usize,
    /// What guards its norms against a division by zero.
    pub epsilon: f32,
    /// How the tokens of a text become one vector.
    pub pooling: Pooling,
}

impl Shape {
    /// Whether there are kernels for a model like this; the error says what is wrong.
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
        sized("the intermediate size", self.wide, INPUTS_MAX)?;
        sized("the number of positions", self.positions, POSITIONS_MAX)?;
        sized("the number of token types", self.kinds, VOCABULARY)?;
        whole("the hidden size", self.hidden)?;
        whole("the intermediate size", self.wide)?;
        if !self.hidden.is_multiple_of(self.heads) {
            let Self { hidden, heads, .. } = self;
            return Err(format!("the hidden size {hidden} cannot be shared by {heads} attention heads"));
        }
        whole("the size of an attention head", self.hidden / self.heads)?;
        if self.vocabulary < VOCABULARY {
            let known = self.vocabulary;
            return Err(format!("the vocabulary must have {VOCABULARY} word pieces, not {known}"));
        }
        if !(ENDS + 1..=self.positions).contains(&self.places) {
            let Self { places, positions, .. } = self;
            return Err(format!("a text of {places} tokens has no place in {positions} positions"));
        }
        if !(0.0..1.0).contains(&self.epsilon) {
            return Err(format!("the epsilon of the norms must be between 0 and 1, not {}", self.epsilon));
        }
        Ok(())
    }
}

/// A transformer of the BERT family, in memory.
pub struct LocalModel {
    shape: Shape,
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
    /// Makes a model of its tensors. Each is asked for once, by its name in a `BertModel` and its shape.
    pub fn new(
        shape: Shape,
        tensor: impl FnMut(&str, &[usize]) -> Result<Vec<f32>, String>,
    ) -> Result<Self, String> {
        shape.check()?;
        let hidden = shape.hidden;
        let mut tensors = Tensors(tensor);
        let tokens = tensors.get("embeddings.word_embeddings.weight", &[shape.vocabulary, hidden])?;
        let (mut token_codes, mut token_scales) = (Vec::new(), Vec::new());
        token_codes.reserve_exact(VOCABULARY * hidden);
        for row in tokens.chunks_exact(hidden).take(VOCABULARY) {
            let (codes, scale) = quantize(row);
            token_codes.extend(codes);
            token_scales.push(scale);
        }
        drop(tokens);
        let mut positions =
            tensors.get("embeddings.position_embeddings.weight", &[shape.positions, hidden])?;
        positions.truncate(shape.places * hidden);
        let kinds = tensors.get("embeddings.token_type_embeddings.weight", &[shape.kinds, hidden])?;
        for row in positions.chunks_exact_mut(hidden) {
            row.iter_mut().zip(&kinds).for_each(|(position, kind)| *position += kind);
        }
        let norm = tensors.norm("embeddings.LayerNorm", &shape)?;
        let layers = (0..shape.layers).map(|number| tensors.layer(number, &shape));
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(Self { token_codes, token_scales, positions, norm, layers, shape })
    }

    /// How many numbers its vectors have.
    pub fn dimensions(&self) -> usize {
        self.shape.hidden
    }

    /// Unit-length vectors, in the order of the texts, made by up to `threads` threads.
    pub fn embed(&self, texts: &[&str], threads: usize) -> Vec<Vec<f32>> {
        self.weights().embed(Kernels::detected(), texts, threads)
    }

    fn weights(&self) -> Weights<'_> {
        let Shape { hidden, heads, wide, pooling, .. } = self.shape;
        Weights {
            sizes: Sizes { hidden, heads, wide },
            token_codes: &self.token_codes,
            token_scales: &self.token_scales,
            positions: &self.positions,
            norm: self.norm.view(),
            layers: self.layers.iter().map(Layer::view).collect(),
            pooling,
        }
    }
}

struct Tensors<Source>(Source);

impl<Source: FnMut(&str, &[usize]) -> Result<Vec<f32>, String>> Tensors<Source> {
    fn get(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let values = (self.0)(name, shape)?;
        let wanted: usize = shape.iter().product();
        if values.len() != wanted {
            return Err(format!("`{name}` has {} numbers where {wanted} are needed", values.len()));
        }
        Ok(values)
    }

    fn norm(&mut self, name: &str, shape: &Shape) -> Result<Norm, String> {
        Ok(Norm {
            gains: self.get(&format!("{name}.weight"), &[shape.hidden])?,
            biases: self.get(&format!("{name}.bias"), &[shape.hidden])?,
            epsilon: shape.epsilon,
        })
    }

    fn layer(&mut self, number: usize, shape: &Shape) -> Result<Layer, String> {
        let Shape { hidden, wide, .. } = *shape;
        let name = |part: &str| format!("encoder.layer.{number}.{part}");
        let mut attention = Linear::new(hidden);
        // The scale of attention is part of the questions' weights.
        let question = 1.0 / ((hidden / shape.heads) as f32).sqrt();
        for (part, factor) in [("query", question), ("key", 1.0), ("value", 1.0)] {
            self.extend(&mut attention, &name(&format!("attention.self.{part}")), hidden, factor)?;
        }
        let mut linear = |part: &str, inputs: usize, outputs: usize| {
            let mut linear = Linear::new(inputs);
            self.extend(&mut linear, &name(part), outputs, 1.0).map(|()| linear)
        };
        let attention_output = linear("attention.output.dense", hidden, hidden)?;
        let widening = linear("intermediate.dense", hidden, wide)?;
        let narrowing = linear("output.dense", wide, hidden)?;
        let attention_norm = self.norm(&name("attention.output.LayerNorm"), shape)?;
        let norm = self.norm(&name("output.LayerNorm"), shape)?;
        Ok(Layer { attention, attention_output, attention_norm, widening, narrowing, norm })
    }

    /// Adds the outputs of a tensor, times a factor, to a linear layer.
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

    /// Adds [`PANEL`] outputs, laid out as `models/make_best.py` says.
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
    widening: Linear,
    narrowing: Linear,
    norm: Norm,
}

impl Layer {
    fn view(&self) -> bert::Layer<'_> {
        bert::Layer {
            attention: self.attention.view(),
            attention_output: self.attention_output.view(),
            attention_norm: self.attention_norm.view(),
            widening: self.widening.view(),
            narrowing: self.narrowing.view(),
            norm: self.norm.view(),
        }
    }
}
