//! Kernels in plain Rust that the compiler vectorises.
//!
//! They are inlined into functions that are each compiled for one kind of processor. `FUSED` tells that multiply-add is
//! one instruction there; elsewhere `mul_add` would be a slow call.

use super::{Norm, activation_max};

/// Number of independent partial sums, so that additions need not wait for each other.
const LANES: usize = 32;

/// Adding this constant leaves the nearest integer in the low bits of a float.
const ROUNDING: f32 = 12_582_912.0;

#[inline(always)]
pub(super) fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn sum(values: &[f32], part: impl Fn(f32, f32) -> f32) -> f32 {
    let mut parts = [0.0; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            parts[lane] = part(parts[lane], chunk[lane]);
        }
    }
    let total = rest.iter().fold(0.0, |total, value| part(total, *value));
    total + parts.iter().sum::<f32>()
}

#[inline(always)]
fn maximum_of(values: &[f32], of: impl Fn(f32) -> f32, start: f32) -> f32 {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let mut parts = [start; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            parts[lane] = larger(parts[lane], of(chunk[lane]));
        }
    }
    let rest = rest.iter().fold(start, |maximum, value| larger(maximum, of(*value)));
    parts.iter().fold(rest, |maximum, value| larger(maximum, *value))
}

#[inline(always)]
pub(super) fn quantise(row: &[f32], codes: &mut [i16]) -> f32 {
    let maximum = maximum_of(row, f32::abs, 0.0);
    let steps = f32::from(activation_max(row.len()));
    let factor = if maximum > 0.0 { steps / maximum } else { 0.0 };
    for (code, value) in codes.iter_mut().zip(row) {
        *code = (value * factor + ROUNDING).to_bits() as i16;
    }
    maximum / steps
}

#[inline(always)]
pub(super) fn add_norm<const FUSED: bool>(row: &mut [f32], added: &[f32], parameters: Norm<'_>) {
    for (value, added) in row.iter_mut().zip(added) {
        *value += added;
    }
    let count = row.len() as f32;
    let mean = sum(row, |total, value| total + value) / count;
    for value in row.iter_mut() {
        *value -= mean;
    }
    let variance = sum(row, |total, value| multiply_add::<FUSED>(value, value, total)) / count;
    let factor = 1.0 / (variance + parameters.epsilon).sqrt();
    for ((value, gain), bias) in row.iter_mut().zip(parameters.gains).zip(parameters.biases) {
        *value = multiply_add::<FUSED>(*value * factor, *gain, *bias);
    }
}

/// Beyond this |x|, x · Φ(x) is x or 0 to the precision needed.
const GELU_EDGE: f32 = 4.5;
/// Polynomial of (Φ(x) − ½) / x in x², up to [`GELU_EDGE`]; the error of the product is below 0.0001.
const GELU: [f32; 9] = [
    3.987_125_2e-1,
    -6.598_452e-2,
    9.585_128e-3,
    -1.037_571_5e-3,
    8.142_223e-5,
    -4.451_476_3e-6,
    1.590_870_4e-7,
    -3.314_320_2e-9,
    3.036_039e-11,
];

#[inline(always)]
pub(super) fn gelu<const FUSED: bool>(row: &mut [f32]) {
    for value in row {
        let x = value.clamp(-GELU_EDGE, GELU_EDGE);
        let square = x * x;
        let mut polynomial = GELU[8];
        for power in (0..8).rev() {
            polynomial = multiply_add::<FUSED>(polynomial, square, GELU[power]);
        }
        *value *= multiply_add::<FUSED>(x, polynomial, 0.5);
    }
}

/// Smaller exponents give results that are negligible.
const EXPONENT_MIN: f32 = -80.0;
/// Polynomial of 2^x between −½ and ½; the error is below a ten-millionth.
const POWER_OF_TWO: [f32; 6] =
    [1.000_000_1, 6.931_469_4e-1, 2.402_212e-1, 5.550_713_5e-2, 9.675_542e-3, 1.327_646_5e-3];

/// e^x for x ≤ 0.
#[inline(always)]
fn exponential<const FUSED: bool>(x: f32) -> f32 {
    const MANTISSA_BITS: u32 = 23;
    const ONE: u32 = 1.0_f32.to_bits();
    let x = if x > EXPONENT_MIN { x } else { EXPONENT_MIN } * std::f32::consts::LOG2_E;
    let whole = x + ROUNDING;
    let part = x - (whole - ROUNDING);
    let mut polynomial = POWER_OF_TWO[5];
    for power in (0..5).rev() {
        polynomial = multiply_add::<FUSED>(polynomial, part, POWER_OF_TWO[power]);
    }
    polynomial * f32::from_bits((whole.to_bits() << MANTISSA_BITS).wrapping_add(ONE))
}

#[inline(always)]
pub(super) fn softmax<const FUSED: bool>(row: &mut [f32]) {
    let maximum = maximum_of(row, |value| value, f32::NEG_INFINITY);
    for value in row.iter_mut() {
        *value = exponential::<FUSED>(*value - maximum);
    }
    let factor = 1.0 / sum(row, |total, value| total + value);
    for value in row {
        *value *= factor;
    }
}

#[inline(always)]
pub(super) fn add_codes<const FUSED: bool>(sums: &mut [f32], codes: &[i8], factor: f32) {
    for (sum, code) in sums.iter_mut().zip(codes) {
        *sum = multiply_add::<FUSED>(f32::from(*code), factor, *sum);
    }
}
