//! Multi-head self-attention.

use super::TransformerSizes;
use crate::kernel::{Kernels, PANEL, Product};

/// Number of tokens whose scores are computed together, so that the working set fits the inner caches.
const ROWS: usize = 48;

/// Working buffers of one thread.
pub(super) struct Attention {
    sizes: TransformerSizes,
    keys: Vec<f32>,
    values: Vec<f32>,
    scores: Vec<f32>,
}

impl Attention {
    /// Buffers for texts of up to `tokens` tokens.
    pub(super) fn new(sizes: TransformerSizes, tokens: usize) -> Self {
        let padded = tokens.next_multiple_of(PANEL);
        Self {
            sizes,
            keys: vec![0.0; padded * sizes.head()],
            values: vec![0.0; tokens * sizes.head()],
            scores: vec![0.0; padded * ROWS],
        }
    }

    /// Computes the attention output of each token of one text. `qkv` holds query, key and value per token.
    pub(super) fn compute(&mut self, kernels: &Kernels, qkv: &[f32], out: &mut [f32]) {
        for head in 0..self.sizes.heads {
            self.compute_head(kernels, qkv, head * self.sizes.head(), out);
        }
    }

    fn compute_head(&mut self, kernels: &Kernels, qkv: &[f32], offset: usize, out: &mut [f32]) {
        let (hidden, head, qkv_width) = (self.sizes.hidden, self.sizes.head(), self.sizes.qkv());
        let tokens = qkv.len() / qkv_width;
        let padded = tokens.next_multiple_of(PANEL);
        let keys = &mut self.keys[..padded * head];
        let values = &mut self.values[..tokens * head];
        pack(self.sizes, qkv, offset, keys, values);
        for first in (0..tokens).step_by(ROWS) {
            let rows = (tokens - first).min(ROWS);
            let scores = &mut self.scores[..rows * padded];
            let query_key = Product {
                left: &qkv[first * qkv_width + offset..],
                left_stride: qkv_width,
                right: keys,
                rows,
                depth: head,
            };
            (kernels.product)(query_key, scores, padded);
            for row in scores.chunks_exact_mut(padded) {
                (kernels.softmax)(&mut row[..tokens]);
            }
            let weighted_values =
                Product { left: scores, left_stride: padded, right: values, rows, depth: tokens };
            (kernels.product)(weighted_values, &mut out[first * hidden + offset..], hidden);
        }
    }
}

/// Copies the keys and values of one head into panels.
fn pack(sizes: TransformerSizes, qkv: &[f32], offset: usize, keys: &mut [f32], values: &mut [f32]) {
    let (hidden, head, qkv_width) = (sizes.hidden, sizes.head(), sizes.qkv());
    let tokens = qkv.len() / qkv_width;
    for (number, panel) in keys.chunks_exact_mut(head * PANEL).enumerate() {
        for lane in 0..PANEL {
            let token = number * PANEL + lane;
            for dimension in 0..head {
                // Padding after the last token: results computed from it are not used.
                let key = qkv.get(token * qkv_width + hidden + offset + dimension);
                panel[dimension * PANEL + lane] = key.copied().unwrap_or_default();
            }
        }
    }
    for (number, panel) in values.chunks_exact_mut(tokens * PANEL).enumerate() {
        for (token, row) in panel.chunks_exact_mut(PANEL).enumerate() {
            let from = token * qkv_width + 2 * hidden + offset + number * PANEL;
            row.copy_from_slice(&qkv[from..][..PANEL]);
        }
    }
}
