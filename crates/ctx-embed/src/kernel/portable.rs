//! The portable kernels, which are also the reference for the others in tests.
//!
//! Written so that the compiler vectorises with the baseline instructions of an architecture: NEON multiplies 16-bit
//! integers and adds the products in one instruction.

use super::lanes::{self, multiply_add};
use super::{Activations, Kernels, Linear, PANEL, Product};
use crate::vector::half_to_float;

/// Multiply-add is a single instruction on every processor of this architecture.
const FUSED: bool = cfg!(target_arch = "aarch64");
/// Rows computed together, so that the right operand is read once for all of them.
const TILE: usize = 4;

pub(super) static KERNELS: Kernels = Kernels {
    name: "portable",
    linear,
    product,
    quantise: lanes::quantise,
    add_norm: lanes::add_norm::<FUSED>,
    gelu: lanes::gelu::<FUSED>,
    softmax: lanes::softmax::<FUSED>,
    add_codes: lanes::add_codes::<FUSED>,
    dots,
    dot_half,
};

/// Weights of one pair of inputs: those of the first, then those of the second.
type WidePair = [[i16; PANEL]; 2];

fn linear(tokens: Activations<'_>, layer: Linear<'_>, out: &mut [f32]) {
    let outputs = layer.scales.len();
    let mut wide: Vec<WidePair> = vec![[[0; PANEL]; 2]; layer.inputs / 2];
    for (number, panel) in layer.codes.chunks_exact(layer.inputs * PANEL).enumerate() {
        for (wide, pair) in wide.iter_mut().zip(panel.as_chunks::<2>().0.as_chunks::<PANEL>().0) {
            for lane in 0..PANEL {
                [wide[0][lane], wide[1][lane]] = pair[lane].map(i16::from);
            }
        }
        let first = number * PANEL;
        let mut finish = |row: usize, sums: [i32; PANEL]| {
            for (lane, sum) in sums.into_iter().enumerate() {
                let scale = tokens.scales[row] * layer.scales[first + lane];
                out[row * outputs + first + lane] = sum as f32 * scale + layer.biases[first + lane];
            }
        };
        let tiles = tokens.codes.chunks_exact(TILE * layer.inputs);
        let rest = tiles.remainder().chunks_exact(layer.inputs);
        let rest_from = tiles.len() * TILE;
        for (tile, rows) in tiles.enumerate() {
            for (row, sums) in linear_tile::<TILE>(rows, &wide).into_iter().enumerate() {
                finish(tile * TILE + row, sums);
            }
        }
        for (row, codes) in rest.enumerate() {
            let [sums] = linear_tile::<1>(codes, &wide);
            finish(rest_from + row, sums);
        }
    }
}

fn linear_tile<const ROWS: usize>(codes: &[i16], wide: &[WidePair]) -> [[i32; PANEL]; ROWS] {
    let (pairs, _) = codes.as_chunks::<2>();
    let rows: [&[[i16; 2]]; ROWS] = std::array::from_fn(|row| &pairs[row * wide.len()..][..wide.len()]);
    let mut sums = [[0; PANEL]; ROWS];
    for (input, weights) in wide.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(rows) {
            let [first, second] = row[input].map(i32::from);
            for lane in 0..PANEL {
                sums[lane] += first * i32::from(weights[0][lane]) + second * i32::from(weights[1][lane]);
            }
        }
    }
    sums
}

fn product(of: Product<'_>, out: &mut [f32], stride: usize) {
    for (number, panel) in of.right.chunks_exact(of.depth * PANEL).enumerate() {
        let (panel, first) = (panel.as_chunks::<PANEL>().0, number * PANEL);
        let whole = of.rows / TILE * TILE;
        for row in (0..whole).step_by(TILE) {
            for (next, sums) in product_tile::<TILE>(&of, row, panel).iter().enumerate() {
                out[(row + next) * stride + first..][..PANEL].copy_from_slice(sums);
            }
        }
        for row in whole..of.rows {
            let [sums] = product_tile::<1>(&of, row, panel);
            out[row * stride + first..][..PANEL].copy_from_slice(&sums);
        }
    }
}

fn product_tile<const ROWS: usize>(
    of: &Product<'_>,
    first: usize,
    panel: &[[f32; PANEL]],
) -> [[f32; PANEL]; ROWS] {
    let rows: [&[f32]; ROWS] =
        std::array::from_fn(|row| &of.left[(first + row) * of.left_stride..][..panel.len()]);
    let mut sums = [[0.0; PANEL]; ROWS];
    for (step, columns) in panel.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(rows) {
            for lane in 0..PANEL {
                sums[lane] = multiply_add::<FUSED>(row[step], columns[lane], sums[lane]);
            }
        }
    }
    sums
}

fn dots(vector: &[i8], rows: &[i8], out: &mut [i32]) {
    for (out, row) in out.iter_mut().zip(rows.chunks_exact(vector.len().max(1))) {
        *out = vector.iter().zip(row).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
    }
}

fn dot_half(vector: &[f32], half: &[u8]) -> f32 {
    let half = half.as_chunks::<2>().0;
    vector.iter().zip(half).map(|(value, half)| value * half_to_float(u16::from_le_bytes(*half))).sum()
}
