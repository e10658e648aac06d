//! Tests that all kernels agree with the portable ones, and those with their definitions.

use super::{
    ACTIVATION_MAX, Activations, INPUTS_MAX, Kernels, Linear, Norm, PANEL, Product, activation_max, portable,
};
use proptest::prelude::*;

/// Pseudo-random numbers from a seed, for shapes that vary by the thousand.
fn numbers(seed: u64, count: usize) -> impl Iterator<Item = f32> {
    let mut state = seed | 1;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}

fn floats(seed: u64, count: usize) -> Vec<f32> {
    numbers(seed, count).collect()
}

fn codes(seed: u64, count: usize) -> Vec<i8> {
    numbers(seed, count).map(|number| (number * 127.9) as i8).collect()
}

fn assert_close(a: &[f32], b: &[f32], allowed: f32, of: &str) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= allowed * (1.0 + b.abs()), "{of}: {a} {b}");
    }
}

fn linear(
    kernels: &Kernels,
    rows: usize,
    inputs: usize,
    panels: usize,
    tokens: &[i16],
    codes: &[i8],
) -> Vec<f32> {
    let outputs = panels * PANEL;
    let (scales, biases, token_scales) = (floats(3, outputs), floats(4, outputs), floats(5, rows));
    let mut out = vec![f32::NAN; rows * outputs];
    let tokens = Activations { codes: tokens, scales: &token_scales };
    (kernels.linear)(tokens, Linear { inputs, codes, scales: &scales, biases: &biases }, &mut out);
    out
}

#[test]
fn the_largest_sums_do_not_overflow() {
    for inputs in [384, 2_064, 2_066, 3_072, INPUTS_MAX] {
        let maximum = activation_max(inputs);
        let tokens = vec![maximum; inputs];
        let weights = vec![127; inputs * PANEL];
        let (scales, biases) = ([1.0; PANEL], [0.0; PANEL]);
        for kernels in Kernels::all() {
            let mut out = [0.0; PANEL];
            let layer = Linear { inputs, codes: &weights, scales: &scales, biases: &biases };
            (kernels.linear)(Activations { codes: &tokens, scales: &[1.0] }, layer, &mut out);
            let expected = (inputs * 127 * usize::from(maximum.unsigned_abs())) as f32;
            assert_eq!(out, [expected; PANEL], "{}: {inputs}", kernels.name);
        }
    }
}

#[test]
fn a_linear_layer_is_sums_of_products() {
    let (rows, inputs) = (7, 6);
    let tokens: Vec<i16> = (0..rows * inputs).map(|number| number as i16 * 37 - 500).collect();
    let weights = codes(9, inputs * PANEL);
    let (scales, biases, token_scales) = (floats(3, PANEL), floats(4, PANEL), floats(5, rows));
    for kernels in Kernels::all() {
        let out = linear(kernels, rows, inputs, 1, &tokens, &weights);
        for row in 0..rows {
            for output in 0..PANEL {
                let sum: i32 = (0..inputs)
                    .map(|input| {
                        let weight = weights[input / 2 * 2 * PANEL + output * 2 + input % 2];
                        i32::from(tokens[row * inputs + input]) * i32::from(weight)
                    })
                    .sum();
                let expected = sum as f32 * (token_scales[row] * scales[output]) + biases[output];
                assert_eq!(out[row * PANEL + output], expected, "{}", kernels.name);
            }
        }
    }
}

#[test]
fn gelu_is_a_ten_thousandth_off_at_most() {
    // x, x · Φ(x)
    let known = [
        (-10.0, 0.0),
        (-5.0, -1.433e-6),
        (-3.0, -0.004_049_7),
        (-1.0, -0.158_655_25),
        (-0.5, -0.154_268_77),
        (0.0, 0.0),
        (0.1, 0.053_982_78),
        (1.0, 0.841_344_7),
        (2.0, 1.954_499_7),
        (4.4, 4.399_976),
        (20.0, 20.0),
    ];
    for kernels in Kernels::all() {
        let mut values = known.map(|(x, _)| x);
        (kernels.gelu)(&mut values);
        for (value, (x, expected)) in values.iter().zip(known) {
            assert!((value - expected).abs() < 2e-4, "{}: {x} {value} {expected}", kernels.name);
        }
    }
}

proptest! {
    #[test]
    fn linear_layers_are_the_same_to_the_last_bit(
        rows in 1_usize..20, pairs in 1_usize..60, panels in 1_usize..4, seed in any::<u64>()
    ) {
        let inputs = pairs * 2;
        let tokens: Vec<i16> = numbers(seed, rows * inputs)
            .map(|number| (number * f32::from(ACTIVATION_MAX)) as i16).collect();
        let weights = codes(seed ^ 1, inputs * panels * PANEL);
        let expected = linear(&portable::KERNELS, rows, inputs, panels, &tokens, &weights);
        for kernels in Kernels::all() {
            let actual = linear(kernels, rows, inputs, panels, &tokens, &weights);
            prop_assert_eq!(&actual, &expected, "{}", kernels.name);
        }
    }

    #[test]
    fn products_of_matrices_are_the_same(
        rows in 1_usize..20, depth in 1_usize..70, panels in 1_usize..4,
        more_left in 0_usize..5, more in 0_usize..5, seed in any::<u64>()
    ) {
        let (left_stride, stride) = (depth + more_left, panels * PANEL + more);
        let (left, right) = (floats(seed, rows * left_stride), floats(seed ^ 1, depth * panels * PANEL));
        for kernels in Kernels::all() {
            let mut out = vec![7.0; rows * stride];
            let of = Product { left: &left, left_stride, right: &right, rows, depth };
            (kernels.product)(of, &mut out, stride);
            for row in 0..rows {
                for column in 0..stride {
                    let expected = if column >= panels * PANEL { 7.0 } else {
                        let panel = &right[column / PANEL * depth * PANEL..];
                        (0..depth).map(|step| {
                            left[row * left_stride + step] * panel[step * PANEL + column % PANEL]
                        }).sum()
                    };
                    let actual = out[row * stride + column];
                    prop_assert!((actual - expected).abs() < 1e-4, "{}: {actual} {expected}", kernels.name);
                }
            }
        }
    }

    #[test]
    fn activations_are_the_same_and_half_a_step_off_at_most(length in 0_usize..4_000, seed in any::<u64>()) {
        let row = floats(seed, length);
        let mut expected = vec![0; length];
        (portable::KERNELS.quantise)(&row, &mut expected);
        for kernels in Kernels::all() {
            let mut codes = vec![0; length];
            let scale = (kernels.quantise)(&row, &mut codes);
            prop_assert_eq!(&codes, &expected, "{}", kernels.name);
            for (value, code) in row.iter().zip(&codes) {
                prop_assert!(code.unsigned_abs() <= activation_max(length).unsigned_abs());
                prop_assert!((value - f32::from(*code) * scale).abs() <= scale * 0.51, "{}", kernels.name);
            }
        }
    }

    #[test]
    fn norms_have_no_mean_and_unit_deviation(length in 2_usize..500, seed in any::<u64>()) {
        let (row, added) = (floats(seed, length), floats(seed ^ 1, length));
        let (ones, zeros) = (vec![1.0; length], vec![0.0; length]);
        let (gains, biases) = (floats(seed ^ 2, length), floats(seed ^ 3, length));
        for kernels in Kernels::all() {
            let mut actual = row.clone();
            (kernels.add_norm)(&mut actual, &added, Norm { gains: &ones, biases: &zeros, epsilon: 1e-12 });
            let count = length as f32;
            prop_assert!((actual.iter().sum::<f32>() / count).abs() < 1e-4);
            let variance = actual.iter().map(|value| value * value).sum::<f32>() / count;
            prop_assert!((variance - 1.0).abs() < 1e-3, "{}: {variance}", kernels.name);
            let expected: Vec<f32> =
                actual.iter().zip(&gains).zip(&biases).map(|((value, gain), bias)| value * gain + bias).collect();
            let mut actual = row.clone();
            (kernels.add_norm)(&mut actual, &added, Norm { gains: &gains, biases: &biases, epsilon: 1e-12 });
            assert_close(&actual, &expected, 1e-4, kernels.name);
        }
    }

    #[test]
    fn softmax_is_exponentials_over_their_sum(length in 1_usize..300, spread in 0.1_f32..200.0, seed in any::<u64>()) {
        let row: Vec<f32> = numbers(seed, length).map(|number| number * spread).collect();
        let maximum = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|value| f64::from(value - maximum).exp()).sum();
        let expected: Vec<f32> = row.iter().map(|value| (f64::from(value - maximum).exp() / sum) as f32).collect();
        for kernels in Kernels::all() {
            let mut actual = row.clone();
            (kernels.softmax)(&mut actual);
            assert_close(&actual, &expected, 1e-5, kernels.name);
        }
    }

    #[test]
    fn dot_products_of_codes_are_exact(dimensions in 1_usize..200, rows in 0_usize..12, seed in any::<u64>()) {
        let vector: Vec<i8> = codes(seed, dimensions).iter().map(|code| code.saturating_sub(1)).collect();
        let matrix = codes(seed ^ 1, dimensions * rows);
        let expected: Vec<i32> = matrix.chunks_exact(dimensions)
            .map(|row| row.iter().zip(&vector).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()).collect();
        for kernels in Kernels::all() {
            let mut actual = vec![i32::MIN; rows];
            (kernels.dots)(&vector, &matrix, &mut actual);
            prop_assert_eq!(&actual, &expected, "{}", kernels.name);
        }
    }

    #[test]
    fn sums_of_codes_and_of_halves_are_the_same(length in 0_usize..300, factor in -2.0_f32..2.0, seed in any::<u64>()) {
        let (vector, row) = (floats(seed, length), codes(seed ^ 1, length));
        let half = crate::vector::to_half(&floats(seed ^ 2, length));
        let mut expected = vector.clone();
        (portable::KERNELS.add_codes)(&mut expected, &row, factor);
        let product = (portable::KERNELS.dot_half)(&vector, &half);
        for kernels in Kernels::all() {
            let mut actual = vector.clone();
            (kernels.add_codes)(&mut actual, &row, factor);
            assert_close(&actual, &expected, 1e-5, kernels.name);
            assert_close(&[(kernels.dot_half)(&vector, &half)], &[product], 1e-4, kernels.name);
        }
    }
}
