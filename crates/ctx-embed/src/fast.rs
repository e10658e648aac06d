//! The fast model: a vector per word piece, summed.

use crate::kernel::Kernels;
use crate::tokenizer::{Tokenizer, VOCABULARY};
use crate::{parallel, vector};

pub(crate) const DIMENSIONS: usize = 256;

/// A bound, not a limit of the model: more words add nothing to a sum of so many.
pub(crate) const MAX_TOKENS: usize = 8_192;

/// Texts a thread takes at a time.
const TEXTS_AT_ONCE: usize = 16;

/// The file, where it lies.
#[repr(C)]
struct Weights {
    codes: [[i8; DIMENSIONS]; VOCABULARY],
    factors: [f32; VOCABULARY],
}

#[allow(unsafe_code, reason = "read where it lies")]
// SAFETY: `Weights` is made of numbers without gaps between them, so any bytes of its size are one.
static WEIGHTS: Weights = unsafe { std::mem::transmute(*include_bytes!("../models/fast.bin")) };

pub(crate) fn embed(kernels: &Kernels, texts: &[&str], threads: usize) -> Vec<Vec<f32>> {
    let jobs: Vec<&[&str]> = texts.chunks(TEXTS_AT_ONCE).collect();
    let made = parallel::run(
        jobs.len(),
        threads,
        || (),
        |(), number| -> Vec<Vec<f32>> { jobs[number].iter().map(|text| one(kernels, text)).collect() },
    );
    made.into_iter().flatten().collect()
}

fn one(kernels: &Kernels, text: &str) -> Vec<f32> {
    let mut sums = vec![0.0; DIMENSIONS];
    for id in Tokenizer::builtin().encode(text, MAX_TOKENS) {
        let id = id as usize;
        (kernels.add_codes)(&mut sums, &WEIGHTS.codes[id], WEIGHTS.factors[id]);
    }
    vector::normalise(&mut sums);
    sums
}
