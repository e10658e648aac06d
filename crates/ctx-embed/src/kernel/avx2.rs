//! Kernels for x86 processors with AVX2, FMA and F16C: most that were made since 2013.
#![allow(unsafe_code, reason = "vector instructions; each function checks its lengths before it reads")]

use super::linear::{avx_vnni, avx2, avx512_vnni};
use super::{Kernels, Norm, PANEL, Product, lanes};
use crate::vector::half_to_float;
use std::arch::x86_64::{
    _MM_HINT_T0, _mm_add_epi32, _mm_cvtsi128_si32, _mm_loadu_si128, _mm_prefetch, _mm_shuffle_epi32,
    _mm256_add_epi32, _mm256_castsi256_si128, _mm256_cvtepi8_epi16, _mm256_cvtph_ps,
    _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_storeu_ps,
};

/// Rows computed together: with two registers each, they fill the register file.
const TILE: usize = 6;
/// Floats or 32-bit integers per register.
const LANES_PER_REGISTER: usize = 8;

/// The kernels that this processor supports, fastest first.
pub(super) fn kernels() -> impl Iterator<Item = &'static Kernels> {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let avx_vnni = avx2 && is_x86_feature_detected!("avxvnni");
    let avx512_vnni = avx2 && is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl");
    let all = [(avx512_vnni, &AVX512_VNNI), (avx_vnni, &AVX_VNNI), (avx2, &AVX2)];
    all.into_iter().filter_map(|(can, kernels)| can.then_some(kernels))
}

/// Wraps a function that needs CPU features as a plain function.
macro_rules! checked {
    ($function:path, $($argument:ident),*) => {
        // SAFETY: `kernels` returns these only if the processor has the features.
        |$($argument),*| unsafe { $function($($argument),*) }
    };
}

static AVX512_VNNI: Kernels =
    Kernels { name: "avx512-vnni", linear: checked!(avx512_vnni::linear, tokens, layer, out), ..AVX2 };

static AVX_VNNI: Kernels =
    Kernels { name: "avx-vnni", linear: checked!(avx_vnni::linear, tokens, layer, out), ..AVX2 };

static AVX2: Kernels = Kernels {
    name: "avx2",
    linear: checked!(avx2::linear, tokens, layer, out),
    product: checked!(product, of, out, stride),
    quantise: checked!(quantise, row, codes),
    add_norm: checked!(add_norm, row, added, parameters),
    gelu: checked!(gelu, row),
    softmax: checked!(softmax, row),
    add_codes: checked!(add_codes, sums, codes, factor),
    dots: checked!(dots, vector, rows, out),
    dot_half: checked!(dot_half, vector, half),
};

#[target_feature(enable = "avx2,fma")]
fn quantise(row: &[f32], codes: &mut [i16]) -> f32 {
    lanes::quantise(row, codes)
}

#[target_feature(enable = "avx2,fma")]
fn add_norm(row: &mut [f32], added: &[f32], parameters: Norm<'_>) {
    lanes::add_norm::<true>(row, added, parameters);
}

#[target_feature(enable = "avx2,fma")]
fn gelu(row: &mut [f32]) {
    lanes::gelu::<true>(row);
}

#[target_feature(enable = "avx2,fma")]
fn softmax(row: &mut [f32]) {
    lanes::softmax::<true>(row);
}

#[target_feature(enable = "avx2,fma")]
fn add_codes(sums: &mut [f32], codes: &[i8], factor: f32) {
    lanes::add_codes::<true>(sums, codes, factor);
}

#[target_feature(enable = "avx2,fma")]
fn product(of: Product<'_>, out: &mut [f32], stride: usize) {
    let (rows, depth) = (of.rows, of.depth);
    if rows == 0 || depth == 0 {
        return;
    }
    for (number, panel) in of.right.chunks_exact(depth * PANEL).enumerate() {
        for row in (0..rows).step_by(TILE) {
            let tile = (rows - row).min(TILE);
            let left = &of.left[row * of.left_stride..];
            let out = &mut out[row * stride + number * PANEL..];
            match tile {
                6 => product_tile::<6>(left, of.left_stride, panel, out, stride),
                5 => product_tile::<5>(left, of.left_stride, panel, out, stride),
                4 => product_tile::<4>(left, of.left_stride, panel, out, stride),
                3 => product_tile::<3>(left, of.left_stride, panel, out, stride),
                2 => product_tile::<2>(left, of.left_stride, panel, out, stride),
                _ => product_tile::<1>(left, of.left_stride, panel, out, stride),
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn product_tile<const ROWS: usize>(
    left: &[f32],
    left_stride: usize,
    panel: &[f32],
    out: &mut [f32],
    stride: usize,
) {
    let depth = panel.len() / PANEL;
    assert!(left.len() >= (ROWS - 1) * left_stride + depth && out.len() >= (ROWS - 1) * stride + PANEL);
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
    let (left, panel) = (left.as_ptr(), panel.as_ptr());
    for step in 0..depth {
        // SAFETY: `step` is below `depth`, so one row of the panel and one number of each row on the left lie within
        // the lengths checked above.
        unsafe {
            let first = _mm256_loadu_ps(panel.add(step * PANEL));
            let second = _mm256_loadu_ps(panel.add(step * PANEL + LANES_PER_REGISTER));
            for (row, sums) in sums.iter_mut().enumerate() {
                let value = _mm256_set1_ps(*left.add(row * left_stride + step));
                sums[0] = _mm256_fmadd_ps(value, first, sums[0]);
                sums[1] = _mm256_fmadd_ps(value, second, sums[1]);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        // SAFETY: the last row's end lies within `out`, as checked above.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr().add(row * stride), sums[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(row * stride + LANES_PER_REGISTER), sums[1]);
        }
    }
}

/// Int8 codes multiplied per step.
const CODES_PER_STEP: usize = 32;
/// Prefetch distance in bytes, so that a long matrix arrives at memory bandwidth.
const PREFETCH_BYTES: usize = 2_048;

#[target_feature(enable = "avx2,fma")]
fn dots(vector: &[i8], rows: &[i8], out: &mut [i32]) {
    let wide: Vec<i16> = vector.iter().map(|code| i16::from(*code)).collect();
    for (out, row) in out.iter_mut().zip(rows.chunks_exact(vector.len().max(1))) {
        *out = dot(&wide, row);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn dot(vector: &[i16], row: &[i8]) -> i32 {
    let (vectors, vector_rest) = vector.as_chunks::<CODES_PER_STEP>();
    let (rows, row_rest) = row.as_chunks::<CODES_PER_STEP>();
    let mut sum = _mm256_setzero_si256();
    for (vector, codes) in vectors.iter().zip(rows) {
        let (vector, codes) = (vector.as_ptr(), codes.as_ptr());
        // SAFETY: both are arrays of 32, read in two halves; a prefetch may point anywhere.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(PREFETCH_BYTES));
            let low = _mm256_cvtepi8_epi16(_mm_loadu_si128(codes.cast()));
            let high = _mm256_cvtepi8_epi16(_mm_loadu_si128(codes.add(CODES_PER_STEP / 2).cast()));
            let low = _mm256_madd_epi16(_mm256_loadu_si256(vector.cast()), low);
            let high = _mm256_madd_epi16(_mm256_loadu_si256(vector.add(CODES_PER_STEP / 2).cast()), high);
            sum = _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
        }
    }
    let half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    let quarter = _mm_add_epi32(half, _mm_shuffle_epi32::<0b01_00_11_10>(half));
    let whole = _mm_add_epi32(quarter, _mm_shuffle_epi32::<0b10_11_00_01>(quarter));
    let rest = vector_rest.iter().zip(row_rest).map(|(a, b)| i32::from(*a) * i32::from(*b));
    _mm_cvtsi128_si32(whole) + rest.sum::<i32>()
}

#[target_feature(enable = "avx2,fma,f16c")]
fn dot_half(vector: &[f32], half: &[u8]) -> f32 {
    let half = half.as_chunks::<2>().0;
    let (vectors, vector_rest) = vector.as_chunks::<LANES_PER_REGISTER>();
    let (halves, half_rest) = half.as_chunks::<LANES_PER_REGISTER>();
    let mut sum = _mm256_setzero_ps();
    for (vector, half) in vectors.iter().zip(halves) {
        // SAFETY: both are arrays of eight.
        unsafe {
            let half = _mm256_cvtph_ps(_mm_loadu_si128(half.as_ptr().cast()));
            sum = _mm256_fmadd_ps(_mm256_loadu_ps(vector.as_ptr()), half, sum);
        }
    }
    let mut parts = [0.0_f32; LANES_PER_REGISTER];
    // SAFETY: an array of eight.
    unsafe { _mm256_storeu_ps(parts.as_mut_ptr(), sum) };
    let rest = vector_rest.iter().zip(half_rest);
    parts.iter().sum::<f32>()
        + rest.map(|(value, half)| value * half_to_float(u16::from_le_bytes(*half))).sum::<f32>()
}
