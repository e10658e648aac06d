//! The forward pass: from tokens to vectors, layer by layer.

use super::attention::Attention;
use super::{Layer, Pooling, Weights};
use crate::kernel::{Activations, Kernels, Linear, Norm};
use crate::vector;

/// Number of tokens in the feed-forward part at once, so that the working set fits the inner caches.
const ROWS: usize = 48;

/// The working buffers of one thread.
pub(super) struct ForwardPass<'a> {
    kernels: &'a Kernels,
    weights: &'a Weights<'a>,
    attention: Attention,
    hidden: Vec<f32>,
    codes: Vec<i16>,
    scales: Vec<f32>,
    qkv: Vec<f32>,
    attended: Vec<f32>,
    wide: Vec<f32>,
    wide_codes: Vec<i16>,
    wide_scales: Vec<f32>,
}

impl<'a> ForwardPass<'a> {
    /// Buffers for packs of up to `tokens` tokens.
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
            wide: vec![0.0; ROWS * sizes.wide],
            wide_codes: vec![0; ROWS * sizes.wide],
            wide_scales: vec![0.0; ROWS],
        }
    }

    /// Embeds a pack of texts.
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
                let (text, after) = rest.split_at(length * hidden);
                rest = after;
                match self.weights.pooling {
                    Pooling::Mean => mean_pooled(text, hidden),
                    Pooling::First => mean_pooled(&text[..hidden], hidden),
                }
            })
            .collect()
    }

    /// Computes the input of the first layer: token embeddings plus position embeddings, normalised.
    fn embed_tokens(&mut self, pack: &[(usize, Vec<u32>)]) {
        let Weights { token_codes, token_scales, positions, norm, .. } = self.weights;
        let hidden = self.weights.sizes.hidden;
        let tokens = pack.iter().flat_map(|(_, tokens)| tokens.iter().zip(positions.chunks_exact(hidden)));
        let rows = self.hidden.chunks_exact_mut(hidden);
        for ((token, position), row) in tokens.zip(rows) {
            let token = *token as usize;
            row.fill(0.0);
            (self.kernels.add_codes)(row, &token_codes[token * hidden..][..hidden], token_scales[token]);
            (self.kernels.norm)(row, position, *norm);
        }
    }

    /// The attention part of a layer, within each text.
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
            let (text, after) = qkv_rest.split_at(length * qkv_width);
            let (out, out_after) = attended_rest.split_at_mut(length * width);
            self.attention.compute(self.kernels, text, out);
            (qkv_rest, attended_rest) = (after, out_after);
        }
        // Queries, keys and values are no longer needed; their buffer is reused.
        let added = &mut qkv[..tokens * width];
        apply_linear(self.kernels, attended, layer.attention_output, codes, scales, added);
        add_and_normalise(self.kernels, hidden, added, layer.attention_norm);
    }

    /// The feed-forward part of a layer, for each token on its own.
    fn feed_forward(&mut self, layer: &Layer<'_>, tokens: usize) {
        let (width, wide_width) = (self.weights.sizes.hidden, self.weights.sizes.wide);
        let rows = self.hidden[..tokens * width].chunks_mut(ROWS * width);
        for hidden in rows {
            let tokens = hidden.len() / width;
            let codes = &mut self.codes[..tokens * width];
            let scales = &mut self.scales[..tokens];
            let wide = &mut self.wide[..tokens * wide_width];
            let wide_codes = &mut self.wide_codes[..tokens * wide_width];
            let wide_scales = &mut self.wide_scales[..tokens];
            let added = &mut self.attended[..tokens * width];
            apply_linear(self.kernels, hidden, layer.intermediate, codes, scales, wide);
            (self.kernels.gelu)(wide);
            apply_linear(self.kernels, wide, layer.output, wide_codes, wide_scales, added);
            add_and_normalise(self.kernels, hidden, added, layer.norm);
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
        *scale = (kernels.activations)(row, codes);
    }
    (kernels.linear)(Activations { codes, scales }, layer, out);
}

fn add_and_normalise(kernels: &Kernels, hidden: &mut [f32], added: &[f32], norm: Norm<'_>) {
    let width = norm.gains.len();
    for (row, added) in hidden.chunks_exact_mut(width).zip(added.chunks_exact(width)) {
        (kernels.norm)(row, added, norm);
    }
}

/// The mean of rows, normalised to unit length.
fn mean_pooled(rows: &[f32], width: usize) -> Vec<f32> {
    let mut sums = vec![0.0; width];
    for row in rows.chunks_exact(width) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    vector::normalise(&mut sums);
    sums
}
