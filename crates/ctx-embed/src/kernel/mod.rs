//! The compute kernels: a portable version, and faster ones for some processors.
//!
//! Linear layers use integers: int8 weights, and activations of up to ±[`ACTIVATION_MAX`] with a scale for each token.
//! Two products are added in one instruction without overflow, so the result does not depend on the processor.

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

/// Activations are quantised to integers up to ±this.
pub(crate) const ACTIVATION_MAX: i16 = 8_191;

/// Maximum number of inputs of a linear layer: with more, [`activation_max`] would be too coarse.
pub(crate) const INPUTS_MAX: usize = 8_192;

/// The largest quantised activation for rows of this length, so that sums fit 32 bits.
pub(crate) const fn activation_max(inputs: usize) -> i16 {
    let inputs = if inputs > 0 { inputs } else { 1 };
    let maximum = i32::MAX as usize / (127 * inputs);
    if maximum < ACTIVATION_MAX as usize { maximum as i16 } else { ACTIVATION_MAX }
}

/// Quantised token vectors.
#[derive(Clone, Copy)]
pub(crate) struct Activations<'a> {
    /// One row per token.
    pub(crate) codes: &'a [i16],
    /// One scale per token.
    pub(crate) scales: &'a [f32],
}

/// A quantised linear layer; `models/make_best.py` documents the layout of the codes.
#[derive(Clone, Copy)]
pub(crate) struct Linear<'a> {
    pub(crate) inputs: usize,
    pub(crate) codes: &'a [i8],
    /// One scale per output.
    pub(crate) scales: &'a [f32],
    pub(crate) biases: &'a [f32],
}

/// The parameters of a LayerNorm: subtracts the mean, divides by the deviation, multiplies by gains, adds biases.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a> {
    pub(crate) gains: &'a [f32],
    pub(crate) biases: &'a [f32],
    /// Prevents a division by zero.
    pub(crate) epsilon: f32,
}

/// The operands of a float matrix product.
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

/// A set of kernels for one kind of processor.
pub(crate) struct Kernels {
    #[cfg_attr(not(test), allow(dead_code, reason = "identifies the kernel in a failed test"))]
    pub(crate) name: &'static str,
    /// Applies a linear layer to tokens.
    pub(crate) linear: fn(Activations<'_>, Linear<'_>, &mut [f32]),
    /// Computes a matrix product, into rows that are `stride` apart.
    pub(crate) product: fn(Product<'_>, &mut [f32], stride: usize),
    /// Quantises a row to activations; returns their scale.
    pub(crate) quantise: fn(&[f32], &mut [i16]) -> f32,
    /// Adds the second row to the first and applies LayerNorm.
    pub(crate) add_norm: fn(&mut [f32], &[f32], Norm<'_>),
    /// GELU, x · Φ(x), in place.
    pub(crate) gelu: fn(&mut [f32]),
    /// Softmax of a row, in place.
    pub(crate) softmax: fn(&mut [f32]),
    /// Adds a row of codes times a factor.
    pub(crate) add_codes: fn(&mut [f32], &[i8], f32),
    /// Dot products of a vector of codes with the rows of a matrix.
    pub(crate) dots: fn(&[i8], &[i8], &mut [i32]),
    /// Dot product of floats with half-precision floats of two bytes each.
    pub(crate) dot_half: fn(&[f32], &[u8]) -> f32,
}

impl Kernels {
    /// The fastest kernels that this processor supports.
    pub(crate) fn detect() -> &'static Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernels) = avx2::kernels().next() {
            return kernels;
        }
        &portable::KERNELS
    }

    /// All kernels that this processor supports.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<&'static Self> {
        let mut all = vec![&portable::KERNELS];
        #[cfg(target_arch = "x86_64")]
        all.extend(avx2::kernels());
        all
    }
}
