//! The arithmetic, written once for any processor and once for each kind that can do better.
//!
//! Linear layers multiply whole numbers: weights of one byte with activations of [`ACTIVATION_MAX`] steps
//! to either side, a scale for each token. Two products are added in one instruction without ever
//! overflowing, so that the result does not depend on the processor.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod lanes;
#[cfg(target_arch = "x86_64")]
mod linear;
mod portable;
#[cfg(test)]
mod tests;

/// Outputs of a linear layer that are computed together.
pub(crate) const PANEL: usize = 16;

/// Activations are rounded to whole numbers up to this.
pub(crate) const ACTIVATION_MAX: i16 = 8_191;

/// The most inputs a linear layer may have: with more, too few steps would be left for each.
pub(crate) const INPUTS_MAX: usize = 8_192;

/// The largest activation in a row of so many: sums stay within 32 bits.
pub(crate) const fn activation_max(inputs: usize) -> i16 {
    let inputs = if inputs > 0 { inputs } else { 1 };
    let most = i32::MAX as usize / (127 * inputs);
    if most < ACTIVATION_MAX as usize { most as i16 } else { ACTIVATION_MAX }
}

/// Tokens as whole numbers.
#[derive(Clone, Copy)]
pub(crate) struct Activations<'a> {
    /// A row for each token.
    pub(crate) codes: &'a [i16],
    /// What a step means, for each token.
    pub(crate) scales: &'a [f32],
}

/// A linear layer; `models/make_best.py` says how the codes lie.
#[derive(Clone, Copy)]
pub(crate) struct Linear<'a> {
    pub(crate) inputs: usize,
    pub(crate) codes: &'a [i8],
    /// What a step means, for each output.
    pub(crate) scales: &'a [f32],
    pub(crate) biases: &'a [f32],
}

/// What a row becomes: without mean, of unit deviation, times gains, plus biases.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a> {
    pub(crate) gains: &'a [f32],
    pub(crate) biases: &'a [f32],
    /// Guards a division; so small that it never shows.
    pub(crate) epsilon: f32,
}

/// A product of matrices of floats.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    /// Row-major, `left_stride` from row to row.
    pub(crate) left: &'a [f32],
    pub(crate) left_stride: usize,
    /// Panels of [`PANEL`] columns, each row after row.
    pub(crate) right: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) depth: usize,
}

/// One way to do the arithmetic.
pub(crate) struct Kernels {
    #[cfg_attr(not(test), allow(dead_code, reason = "tells in a failed test which one it was"))]
    pub(crate) name: &'static str,
    /// Tokens through a linear layer into rows of floats.
    pub(crate) linear: fn(Activations<'_>, Linear<'_>, &mut [f32]),
    /// The product, into rows that lie `stride` apart.
    pub(crate) product: fn(Product<'_>, &mut [f32], stride: usize),
    /// Rounds a row to activations; gives back their scale.
    pub(crate) activations: fn(&[f32], &mut [i16]) -> f32,
    /// Adds the second row to the first and normalises that.
    pub(crate) norm: fn(&mut [f32], &[f32], Norm<'_>),
    /// x · Φ(x), in place.
    pub(crate) gelu: fn(&mut [f32]),
    /// Exponentials of a row, in place, over their sum.
    pub(crate) softmax: fn(&mut [f32]),
    /// Adds a row of codes times a factor.
    pub(crate) add_codes: fn(&mut [f32], &[i8], f32),
    /// Dot products of a vector of codes with rows of such.
    pub(crate) dots: fn(&[i8], &[i8], &mut [i32]),
    /// Dot product of floats with as many half-precision floats, two bytes each.
    pub(crate) dot_half: fn(&[f32], &[u8]) -> f32,
}

impl Kernels {
    /// The fastest this processor can do.
    pub(crate) fn detected() -> &'static Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernels) = avx2::kernels().next() {
            return kernels;
        }
        &portable::KERNELS
    }

    /// All this processor can do.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<&'static Self> {
        let mut all = vec![&portable::KERNELS];
        #[cfg(target_arch = "x86_64")]
        all.extend(avx2::kernels());
        all
    }
}
