//! Quantised vectors (int8 and half precision) and their dot products.

use crate::kernel::Kernels;

/// Largest magnitude of an int8 code.
const CODE_MAX: f32 = 127.0;

/// Quantises a vector to int8 codes and a scale: a value is approximately its code times the scale.
pub fn quantize(vector: &[f32]) -> (Vec<i8>, f32) {
    let maximum = vector.iter().fold(0.0_f32, |maximum, value| maximum.max(value.abs()));
    let factor = if maximum > 0.0 { CODE_MAX / maximum } else { 0.0 };
    (vector.iter().map(|value| (value * factor).round() as i8).collect(), maximum / CODE_MAX)
}

/// The dot product of two vectors of codes, over the shorter length.
pub fn dot(a: &[i8], b: &[i8]) -> i32 {
    let length = a.len().min(b.len());
    let mut out = [0];
    dots(&a[..length], &b[..length], &mut out);
    out[0]
}

/// The dot products of `query` with the rows of a row-major matrix.
///
/// Writes one result per complete row, up to the length of `out`; an empty query sets all of `out` to zero.
pub fn dots(query: &[i8], rows: &[i8], out: &mut [i32]) {
    if query.is_empty() {
        out.fill(0);
    }
    (Kernels::detect().dots)(query, rows, out);
}

/// The codes of stored vectors: signed integers, kept as bytes.
#[allow(unsafe_code, reason = "a view of the same bytes")]
pub fn codes(bytes: &[u8]) -> &[i8] {
    // SAFETY: `i8` has the size, alignment and valid values of `u8`; the slice covers the same memory for as long.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

/// A vector as half-precision floats, little endian.
pub fn to_half(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| float_to_half(*value).to_le_bytes()).collect()
}

/// The dot product with a half-precision vector; `None` if the lengths differ.
pub fn dot_half(query: &[f32], half: &[u8]) -> Option<f32> {
    (half.len() == query.len() * 2).then(|| (Kernels::detect().dot_half)(query, half))
}

/// Normalises a vector to unit length; a vector of zeros is unchanged.
pub(crate) fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    }
}

const HALF_SIGN: u16 = 0x8000;
/// The difference between the exponent biases of single and half precision (127 − 15), shifted to the exponent field of
/// an `f32`.
const BIAS_DIFFERENCE: u32 = 112 << 23;
const HALF_INFINITY: u16 = 0x7C00;
const HALF_QUIET_NAN_BIT: u16 = 0x0200;

/// Rounds to the nearest half-precision float, ties to even.
fn float_to_half(value: f32) -> u16 {
    let sign = (value.to_bits() >> 16) as u16 & HALF_SIGN;
    let magnitude = value.abs();
    let bits = magnitude.to_bits();
    let half = if value.is_nan() {
        HALF_INFINITY | HALF_QUIET_NAN_BIT
    } else if magnitude >= 65_520.0 {
        HALF_INFINITY
    } else if magnitude < 6.103_515_6e-5 {
        // Subnormal halves are multiples of 2⁻²⁴, which is the ulp of an `f32` in [0.5, 1): adding 0.5 rounds to a multiple
        // n · 2⁻²⁴, and subtracting the bits of 0.5 leaves n, which is the bit pattern of the half.
        ((magnitude + 0.5).to_bits() - 0.5_f32.to_bits()) as u16
    } else {
        let odd = (bits >> 13) & 1;
        ((bits - BIAS_DIFFERENCE + 0xFFF + odd) >> 13) as u16
    };
    sign | half
}

/// Converts a half-precision float.
pub fn half_to_float(half: u16) -> f32 {
    let sign = u32::from(half & HALF_SIGN) << 16;
    let bits = u32::from(half & !HALF_SIGN);
    let value = match bits >> 10 {
        0 => bits as f32 * 2.0_f32.powi(-24),
        31 => f32::from_bits((0xFF << 23) | ((bits & 0x3FF) << 13)),
        _ => f32::from_bits((bits << 13) + BIAS_DIFFERENCE),
    };
    f32::from_bits(value.to_bits() | sign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_half_survives_a_round_trip() {
        for half in 0..=u16::MAX {
            let value = half_to_float(half);
            if value.is_nan() {
                assert!(half_to_float(float_to_half(value)).is_nan());
            } else {
                assert_eq!(float_to_half(value), half, "{value}");
            }
        }
    }

    #[test]
    fn known_values_have_their_ieee_754_half_encoding() {
        assert_eq!(to_half(&[1.0, -2.0, 65_504.0, 0.0]), [0x00, 0x3C, 0x00, 0xC0, 0xFF, 0x7B, 0, 0]);
        assert_eq!(float_to_half(1e9), HALF_INFINITY);
        assert_eq!(float_to_half(2.0_f32.powi(-24)), 1);
        assert_eq!(float_to_half(2.0_f32.powi(-26)), 0);
        // Ties round to even.
        assert_eq!(float_to_half(1.0 + 2.0_f32.powi(-11)), 0x3C00);
        assert_eq!(float_to_half(1.0 + 3.0 * 2.0_f32.powi(-11)), 0x3C02);
    }

    #[test]
    fn half_vectors_of_different_lengths_have_no_dot_product() {
        assert_eq!(dot_half(&[1.0, 2.0], &[0, 0]), None);
        assert_eq!(dot_half(&[], &[]), Some(0.0));
    }

    #[test]
    fn an_empty_query_has_products_of_zero() {
        let mut out = [7; 3];
        dots(&[], &[], &mut out);
        assert_eq!(out, [0; 3]);
    }

    #[test]
    fn only_whole_rows_are_multiplied() {
        let mut out = [7; 3];
        dots(&[1, 2], &[3, 4, 5, 6, 7], &mut out);
        assert_eq!(out, [11, 17, 7]);
    }

    #[test]
    fn zero_and_empty_vectors_have_a_scale_of_zero() {
        assert_eq!(quantize(&[0.0, 0.0]), (vec![0, 0], 0.0));
        assert_eq!(quantize(&[]), (vec![], 0.0));
    }

    proptest! {
        #[test]
        fn codes_are_half_a_step_off_at_most(vector in prop::collection::vec(-1.0_f32..1.0, 1..600)) {
            let (codes, scale) = quantize(&vector);
            for (value, code) in vector.iter().zip(codes) {
                prop_assert!((value - f32::from(code) * scale).abs() <= scale * 0.501);
            }
        }

        #[test]
        fn rounding_to_half_precision_errs_by_half_an_ulp_at_most(value in -65_000.0_f32..65_000.0) {
            let back = half_to_float(float_to_half(value));
            prop_assert!((back - value).abs() <= (value.abs() / 2048.0).max(2.0_f32.powi(-25)));
        }

        #[test]
        fn the_dot_product_is_that_of_the_shorter_length(
            a in prop::collection::vec(any::<i8>(), 0..100), b in prop::collection::vec(any::<i8>(), 0..100)
        ) {
            let expected: i32 = a.iter().zip(&b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
            prop_assert_eq!(dot(&a, &b), expected);
        }
    }
}
