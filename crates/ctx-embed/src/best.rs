//! The `best` model: all-MiniLM-L6-v2, a transformer of six layers.
//!
//! The weights are embedded in the binary in their memory layout and used in place, without copying;
//! `models/make_best.py` writes them.

use crate::bert::{self, Pooling, SPECIAL_TOKENS, TransformerSizes};
use crate::kernel::{self, PANEL};
use crate::tokenizer::VOCABULARY;

pub(crate) const HIDDEN: usize = 384;
pub(crate) const MAX_TOKENS: usize = POSITIONS - SPECIAL_TOKENS;
const HEADS: usize = 12;
const WIDE: usize = 1_536;
const LAYERS: usize = 6;
const EPSILON: f32 = 1e-12;
/// Maximum number of tokens of a text, including `[CLS]` and `[SEP]`.
const POSITIONS: usize = 256;
/// The scales are padded with zeros to keep the following fields aligned.
const PADDED_VOCABULARY: usize = VOCABULARY.next_multiple_of(16);

/// The memory layout of the model file. Aligned to cache lines, for vector loads.
#[repr(C, align(64))]
struct Weights {
    token_codes: [[i8; HIDDEN]; VOCABULARY],
    token_scales: [f32; PADDED_VOCABULARY],
    positions: [[f32; HIDDEN]; POSITIONS],
    norm: Norm,
    layers: [Layer; LAYERS],
}

#[repr(C)]
struct Norm {
    gains: [f32; HIDDEN],
    biases: [f32; HIDDEN],
}

impl Norm {
    fn view(&self) -> kernel::Norm<'_> {
        kernel::Norm { gains: &self.gains, biases: &self.biases, epsilon: EPSILON }
    }
}

#[repr(C)]
struct Layer {
    attention: Linear<HIDDEN, { 3 * HIDDEN }, { 3 * HIDDEN / PANEL }>,
    attention_output: Linear<HIDDEN, HIDDEN, { HIDDEN / PANEL }>,
    attention_norm: Norm,
    intermediate: Linear<HIDDEN, WIDE, { WIDE / PANEL }>,
    output: Linear<WIDE, HIDDEN, { HIDDEN / PANEL }>,
    norm: Norm,
}

#[repr(C)]
struct Linear<const INPUTS: usize, const OUTPUTS: usize, const PANELS: usize> {
    codes: [[[i8; PANEL]; INPUTS]; PANELS],
    scales: [f32; OUTPUTS],
    biases: [f32; OUTPUTS],
}

impl<const INPUTS: usize, const OUTPUTS: usize, const PANELS: usize> Linear<INPUTS, OUTPUTS, PANELS> {
    fn view(&self) -> kernel::Linear<'_> {
        kernel::Linear {
            inputs: INPUTS,
            codes: self.codes.as_flattened().as_flattened(),
            scales: &self.scales,
            biases: &self.biases,
        }
    }
}

#[allow(unsafe_code, reason = "read in place")]
// SAFETY: `Weights` consists of numbers without padding, so every sequence of bytes of its size is valid.
static WEIGHTS: Weights = unsafe { std::mem::transmute(*include_bytes!("../models/best.bin")) };

/// The weights as views for [`bert`].
pub(crate) fn weights() -> bert::Weights<'static> {
    let layers = WEIGHTS.layers.iter().map(|layer| bert::Layer {
        attention: layer.attention.view(),
        attention_output: layer.attention_output.view(),
        attention_norm: layer.attention_norm.view(),
        intermediate: layer.intermediate.view(),
        output: layer.output.view(),
        norm: layer.norm.view(),
    });
    bert::Weights {
        sizes: TransformerSizes { hidden: HIDDEN, heads: HEADS, intermediate: WIDE },
        token_codes: WEIGHTS.token_codes.as_flattened(),
        token_scales: &WEIGHTS.token_scales,
        positions: WEIGHTS.positions.as_flattened(),
        norm: WEIGHTS.norm.view(),
        layers: layers.collect(),
        pooling: Pooling::Mean,
    }
}
