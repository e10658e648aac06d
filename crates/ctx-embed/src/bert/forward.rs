//! The forward pass: from tokens to vectors, layer by layer.

use super::attention::Attention;
use super::{Layer, Pooling, Weights};
use crate::kernel::{Activations, Kernels, Linear, Norm};
use crate::vector;

/// Number of tokens that go through the feed-forward network together, so that its buffers stay in the CPU caches.
const BLOCK_TOKENS: usize = 48;

/// The forward pass of one thread: weights and working buffers.
pub(super) struct ForwardPass<'a> {
    kernels: &'a Kernels,
    weights: &'a Weights<'a>,
    attention: Attention,
    /// Hidden states: one row per token.
    hidden: Vec<f32>,
    /// Quantised inputs of a linear layer, with one scale per token.
    codes: Vec<i16>,
    scales: Vec<f32>,
    /// Query, key and value of each token.
    qkv: Vec<f32>,
    /// Output of the attention heads, before the output projection.
    attended: Vec<f32>,
    /// Intermediate activations of the feed-forward network, for one block of tokens.
    intermediate: Vec<f32>,
    intermediate_codes: Vec<i16>,
    intermediate_scales: Vec<f32>,
}

impl<'a> ForwardPass<'a> {
    /// Allocates buffers for packs of up to `tokens` tokens. A pack is a batch of texts without padding.
    pub(super) fn new(kernels: &'a Kernels, weights: &'a Weights<'a>, tokens: usize) -> Self {
        let sizes = weights.sizes;
        Self {
            kernels,
            weights,
            attention: Attention::new(sizes, tokens),
            hidden: vec![0.0; tokens * sizes.hidden],
            codes: vec![0; tokens * sizes.hidden],
            scales: vec![0.0; tokens],
            qkv: vec![0.0; tokens * sizes.qkv()],
            attended: vec![0.0; tokens * sizes.hidden],
            intermediate: vec![0.0; BLOCK_TOKENS * sizes.intermediate],
            intermediate_codes: vec![0; BLOCK_TOKENS * sizes.intermediate],
            intermediate_scales: vec![0.0; BLOCK_TOKENS],
        }
    }

    /// Embeds a pack of texts, each a pair of index and tokens; returns unit vectors in the order of the pack.
    pub(super) fn embed(&mut self, pack: &[(usize, Vec<u32>)]) -> Vec<Vec<f32>> {
        let lengths: Vec<usize> = pack.iter().map(|(_, tokens)| tokens.len()).collect();
        self.embed_tokens(pack);
        for layer in &self.weights.layers {
            self.attend(layer, &lengths);
            self.feed_forward(layer, lengths.iter().sum());
        }
        let hidden = self.weights.sizes.hidden;
        let mut rest = self.hidden.as_slice();
        lengths
            .iter()
            .map(|length| {
                let (rows, after) = rest.split_at(length * hidden);
                rest = after;
                match self.weights.pooling {
                    Pooling::Mean => mean_pooled(rows, hidden),
                    Pooling::First => mean_pooled(&rows[..hidden], hidden),
                }
            })
            .collect()
    }

    /// Computes the input of the first layer: LayerNorm of token plus position embeddings. The positions include the
    /// embedding of token type 0.
    fn embed_tokens(&mut self, pack: &[(usize, Vec<u32>)]) {
        let Weights { token_codes, token_scales, positions, norm, .. } = self.weights;
        let hidden = self.weights.sizes.hidden;
        let tokens = pack.iter().flat_map(|(_, tokens)| tokens.iter().zip(positions.chunks_exact(hidden)));
        let rows = self.hidden.chunks_exact_mut(hidden);
        for ((token, position), row) in tokens.zip(rows) {
            let token = *token as usize;
            row.fill(0.0);
            (self.kernels.add_codes)(row, &token_codes[token * hidden..][..hidden], token_scales[token]);
            (self.kernels.add_norm)(row, position, *norm);
        }
    }

    /// The self-attention of a layer; tokens attend only to tokens of the same text.
    fn attend(&mut self, layer: &Layer<'_>, lengths: &[usize]) {
        let (width, qkv_width) = (self.weights.sizes.hidden, self.weights.sizes.qkv());
        let tokens: usize = lengths.iter().sum();
        let hidden = &mut self.hidden[..tokens * width];
        let codes = &mut self.codes[..tokens * width];
        let scales = &mut self.scales[..tokens];
        let qkv = &mut self.qkv[..tokens * qkv_width];
        let attended = &mut self.attended[..tokens * width];
        apply_linear(self.kernels, hidden, layer.attention, codes, scales, qkv);
        let (mut qkv_rest, mut attended_rest) = (&*qkv, &mut *attended);
        for length in lengths {
            let (text_qkv, after) = qkv_rest.split_at(length * qkv_width);
            let (out, out_after) = attended_rest.split_at_mut(length * width);
            self.attention.compute(self.kernels, text_qkv, out);
            (qkv_rest, attended_rest) = (after, out_after);
        }
        // Queries, keys and values are no longer needed; their buffer is reused.
        let output = &mut qkv[..tokens * width];
        apply_linear(self.kernels, attended, layer.attention_output, codes, scales, output);
        add_and_normalise(self.kernels, hidden, output, layer.attention_norm);
    }

    /// The feed-forward network of a layer, one block of tokens at a time.
    fn feed_forward(&mut self, layer: &Layer<'_>, tokens: usize) {
        let (width, intermediate_width) = (self.weights.sizes.hidden, self.weights.sizes.intermediate);
        for hidden in self.hidden[..tokens * width].chunks_mut(BLOCK_TOKENS * width) {
            let tokens = hidden.len() / width;
            let codes = &mut self.codes[..tokens * width];
            let scales = &mut self.scales[..tokens];
            let intermediate = &mut self.intermediate[..tokens * intermediate_width];
            let intermediate_codes = &mut self.intermediate_codes[..tokens * intermediate_width];
            let intermediate_scales = &mut self.intermediate_scales[..tokens];
            // The attention output is no longer needed; its buffer is reused.
            let output = &mut self.attended[..tokens * width];
            apply_linear(self.kernels, hidden, layer.intermediate, codes, scales, intermediate);
            (self.kernels.gelu)(intermediate);
            apply_linear(
                self.kernels,
                intermediate,
                layer.output,
                intermediate_codes,
                intermediate_scales,
                output,
            );
            add_and_normalise(self.kernels, hidden, output, layer.norm);
        }
    }
}

/// Quantises rows of floats and applies a linear layer to them.
fn apply_linear(
    kernels: &Kernels,
    rows: &[f32],
    layer: Linear<'_>,
    codes: &mut [i16],
    scales: &mut [f32],
    out: &mut [f32],
) {
    let to = codes.chunks_exact_mut(layer.inputs).zip(scales.iter_mut());
    for (row, (codes, scale)) in rows.chunks_exact(layer.inputs).zip(to) {
        *scale = (kernels.quantise)(row, codes);
    }
    (kernels.linear)(Activations { codes, scales }, layer, out);
}

/// Residual connection: adds the output of a sublayer to the hidden states, then applies LayerNorm.
fn add_and_normalise(kernels: &Kernels, hidden: &mut [f32], output: &[f32], norm: Norm<'_>) {
    let width = norm.gains.len();
    for (row, output_row) in hidden.chunks_exact_mut(width).zip(output.chunks_exact(width)) {
        (kernels.add_norm)(row, output_row, norm);
    }
}

/// The mean of the rows, normalised to unit length. The code does not divide by their number, since that only changes
/// the length.
fn mean_pooled(rows: &[f32], width: usize) -> Vec<f32> {
    let mut sums = vec![0.0; width];
    for row in rows.chunks_exact(width) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    vector::normalise(&mut sums);
    sums
}
