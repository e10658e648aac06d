//! The `fast` model: the sum of one static vector per word piece.

use crate::kernel::Kernels;
use crate::tokenizer::{Tokenizer, VOCABULARY};
use crate::{parallel, vector};

pub(crate) const DIMENSIONS: usize = 256;

/// A bound on the work, not a limit of the model: beyond this, more word pieces hardly change the sum.
pub(crate) const MAX_TOKENS: usize = 8_192;

/// Texts per job of a thread.
const TEXTS_AT_ONCE: usize = 16;

/// The memory layout of the model file, which is embedded in the binary and used in place.
#[repr(C)]
struct Weights {
    codes: [[i8; DIMENSIONS]; VOCABULARY],
    factors: [f32; VOCABULARY],
}

#[allow(unsafe_code, reason = "read in place")]
// SAFETY: `Weights` consists of numbers without padding, so every sequence of bytes of its size is valid.
static WEIGHTS: Weights = unsafe { std::mem::transmute(*include_bytes!("../models/fast.bin")) };

pub(crate) fn embed(kernels: &Kernels, texts: &[&str], threads: usize) -> Vec<Vec<f32>> {
    let jobs: Vec<&[&str]> = texts.chunks(TEXTS_AT_ONCE).collect();
    let vectors = parallel::run(
        jobs.len(),
        threads,
        || (),
        |(), number| -> Vec<Vec<f32>> { jobs[number].iter().map(|text| embed_text(kernels, text)).collect() },
    );
    vectors.into_iter().flatten().collect()
}

fn embed_text(kernels: &Kernels, text: &str) -> Vec<f32> {
    let mut sums = vec![0.0; DIMENSIONS];
    for id in Tokenizer::builtin().encode(text, MAX_TOKENS) {
        let id = id as usize;
        (kernels.add_codes)(&mut sums, &WEIGHTS.codes[id], WEIGHTS.factors[id]);
    }
    vector::normalise(&mut sums);
    sums
}
