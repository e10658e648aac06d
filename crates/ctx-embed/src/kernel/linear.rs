//! Quantised linear layers for x86 processors, with instructions that multiply pairs of 16-bit integers.
//!
//! VNNI does in one instruction what AVX2 does in two. The VNNI variants differ only in that instruction. They were
//! written without such a processor; the tests run every variant that the processor supports.
#![allow(unsafe_code, reason = "vector instructions; each function checks its lengths before it reads")]

use super::{Activations, INPUTS_MAX, Linear, PANEL};
use std::arch::x86_64::{
    __m128i, _mm_loadu_si128, _mm256_add_epi32, _mm256_add_ps, _mm256_cvtepi8_epi16, _mm256_cvtepi32_ps,
    _mm256_dpwssd_avx_epi32, _mm256_dpwssd_epi32, _mm256_loadu_ps, _mm256_madd_epi16, _mm256_mul_ps,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_si256, _mm256_storeu_ps,
};

/// Rows computed together: with two registers each, they fill the register file.
const TILE: usize = 6;
/// 32-bit integers per register.
const LANES_PER_REGISTER: usize = 8;

/// Sixteen outputs of a layer.
#[derive(Clone, Copy)]
struct Panel<'a> {
    codes: &'a [i8],
    scales: &'a [f32],
    biases: &'a [f32],
}

/// Generates the layer for a set of CPU features; the last argument is the instruction that adds products of pairs to
/// sums.
macro_rules! linear {
    ($module:ident, $features:literal, $accumulate:expr) => {
        pub(super) mod $module {
            use super::*;

            #[target_feature(enable = $features)]
            pub(in crate::kernel) fn linear(tokens: Activations<'_>, layer: Linear<'_>, out: &mut [f32]) {
                let (inputs, outputs, rows) = (layer.inputs, layer.scales.len(), tokens.scales.len());
                assert!(inputs.is_multiple_of(2) && inputs <= INPUTS_MAX && outputs.is_multiple_of(PANEL));
                assert!(layer.codes.len() == inputs * outputs && layer.biases.len() == outputs);
                assert!(tokens.codes.len() == inputs * rows && out.len() == outputs * rows);
                for number in 0..outputs / PANEL {
                    let panel = Panel {
                        codes: &layer.codes[number * inputs * PANEL..][..inputs * PANEL],
                        scales: &layer.scales[number * PANEL..][..PANEL],
                        biases: &layer.biases[number * PANEL..][..PANEL],
                    };
                    for row in (0..rows).step_by(TILE) {
                        let tile = (rows - row).min(TILE);
                        let tokens = Activations {
                            codes: &tokens.codes[row * inputs..][..tile * inputs],
                            scales: &tokens.scales[row..][..tile],
                        };
                        let out = &mut out[row * outputs + number * PANEL..];
                        match tile {
                            6 => linear_tile::<6>(tokens, panel, out, outputs),
                            5 => linear_tile::<5>(tokens, panel, out, outputs),
                            4 => linear_tile::<4>(tokens, panel, out, outputs),
                            3 => linear_tile::<3>(tokens, panel, out, outputs),
                            2 => linear_tile::<2>(tokens, panel, out, outputs),
                            _ => linear_tile::<1>(tokens, panel, out, outputs),
                        }
                    }
                }
            }

            /// Computes `ROWS` tokens and one panel of outputs, into rows that are `stride` apart.
            #[target_feature(enable = $features)]
            fn linear_tile<const ROWS: usize>(
                tokens: Activations<'_>,
                panel: Panel<'_>,
                out: &mut [f32],
                stride: usize,
            ) {
                let inputs = panel.codes.len() / PANEL;
                assert!(panel.scales.len() == PANEL && panel.biases.len() == PANEL);
                assert!(tokens.codes.len() == ROWS * inputs && tokens.scales.len() == ROWS);
                assert!(out.len() >= (ROWS - 1) * stride + PANEL);
                let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
                let (codes, weights) = (tokens.codes.as_ptr(), panel.codes.as_ptr());
                let mut input = 0;
                while input + 1 < inputs {
                    // SAFETY: `input` and `input + 1` are below `inputs`, so the 32 bytes read from the panel and the
                    // two numbers read from each row lie within the lengths checked above.
                    unsafe {
                        let weights = weights.add(input * PANEL).cast::<__m128i>();
                        let left = _mm256_cvtepi8_epi16(_mm_loadu_si128(weights));
                        let right = _mm256_cvtepi8_epi16(_mm_loadu_si128(weights.add(1)));
                        for (row, sums) in sums.iter_mut().enumerate() {
                            let pair = codes.add(row * inputs + input).cast::<i32>().read_unaligned();
                            let pair = _mm256_set1_epi32(pair);
                            sums[0] = $accumulate(sums[0], pair, left);
                            sums[1] = $accumulate(sums[1], pair, right);
                        }
                    }
                    input += 2;
                }
                for (row, sums) in sums.iter().enumerate() {
                    for (half, sum) in sums.iter().enumerate() {
                        // SAFETY: eight floats from `half * LANES_PER_REGISTER` lie within the panel's sixteen, and the
                        // last row's end within `out`, as checked above.
                        unsafe {
                            let scale = _mm256_loadu_ps(panel.scales.as_ptr().add(half * LANES_PER_REGISTER));
                            let bias = _mm256_loadu_ps(panel.biases.as_ptr().add(half * LANES_PER_REGISTER));
                            let scale = _mm256_mul_ps(_mm256_set1_ps(tokens.scales[row]), scale);
                            // Not fused, so that the result is the same on every processor.
                            let value = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(*sum), scale), bias);
                            _mm256_storeu_ps(
                                out.as_mut_ptr().add(row * stride + half * LANES_PER_REGISTER),
                                value,
                            );
                        }
                    }
                }
            }
        }
    };
}

linear!(avx2, "avx2", |sums, pair, weights| _mm256_add_epi32(sums, _mm256_madd_epi16(pair, weights)));
linear!(avx_vnni, "avx2,avxvnni", _mm256_dpwssd_avx_epi32);
linear!(avx512_vnni, "avx2,avx512vnni,avx512vl", _mm256_dpwssd_epi32);
