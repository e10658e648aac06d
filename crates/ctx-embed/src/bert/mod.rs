//! Transformers of the BERT family: from texts to vectors, with whatever weights.
//!
//! Texts are packed: tokens of several texts go through the linear layers together, so that short texts
//! cost what they are long, and no padding is ever computed.

mod attention;
mod forward;

use crate::kernel::{Kernels, Linear, Norm};
use crate::parallel;
use crate::tokenizer::{CLASS, SEPARATOR, Tokenizer};
use forward::Bench;

/// Word pieces that stand around a text.
pub(crate) const ENDS: usize = 2;
/// Tokens that go through a layer together, at most, unless one text has more.
const PACK_MAX: usize = 256;
/// Tokens that are worth a pack of their own, so that no thread is without work.
const PACK_MIN: usize = 48;

/// How wide a transformer is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Numbers of a token between layers.
    pub(crate) hidden: usize,
    /// Ways in which tokens look at each other.
    pub(crate) heads: usize,
    /// Numbers of a token in the middle of a layer.
    pub(crate) wide: usize,
}

impl Sizes {
    /// Numbers of a token that one head looks at.
    const fn head(self) -> usize {
        self.hidden / self.heads
    }

    /// Numbers of a token's question, key and value.
    const fn triple(self) -> usize {
        3 * self.hidden
    }
}

/// How the tokens of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean.
    Mean,
    /// The first stands for all.
    First,
}

/// The weights of a transformer, wherever they lie.
pub(crate) struct Weights<'a> {
    pub(crate) sizes: Sizes,
    /// A row for each word piece.
    pub(crate) token_codes: &'a [i8],
    pub(crate) token_scales: &'a [f32],
    /// A row for each place in a text.
    pub(crate) positions: &'a [f32],
    pub(crate) norm: Norm<'a>,
    pub(crate) layers: Vec<Layer<'a>>,
    pub(crate) pooling: Pooling,
}

/// One layer.
pub(crate) struct Layer<'a> {
    pub(crate) attention: Linear<'a>,
    pub(crate) attention_output: Linear<'a>,
    pub(crate) attention_norm: Norm<'a>,
    pub(crate) widening: Linear<'a>,
    pub(crate) narrowing: Linear<'a>,
    pub(crate) norm: Norm<'a>,
}

impl Weights<'_> {
    /// Word pieces of a text, with those around it.
    fn places(&self) -> usize {
        self.positions.len() / self.sizes.hidden
    }

    /// Unit-length vectors, in the order of the texts.
    pub(crate) fn embed(&self, kernels: &Kernels, texts: &[&str], threads: usize) -> Vec<Vec<f32>> {
        let tokenizer = Tokenizer::builtin();
        let max = self.places().saturating_sub(ENDS);
        let mut tokens: Vec<(usize, Vec<u32>)> =
            texts.iter().map(|text| with_ends(tokenizer.encode(text, max))).enumerate().collect();
        // Long ones first: the last jobs are then the small ones, and threads end together.
        tokens.sort_by_key(|(_, tokens)| std::cmp::Reverse(tokens.len()));
        let all: usize = tokens.iter().map(|(_, tokens)| tokens.len()).sum();
        let packs = packs(&tokens, (all / threads.max(1)).clamp(PACK_MIN, PACK_MAX));
        let largest = packs.iter().map(|pack| length(pack)).max().unwrap_or_default();
        let made = parallel::run(
            packs.len(),
            threads,
            || Bench::new(kernels, self, largest),
            |bench, number| bench.embed(packs[number]),
        );
        let mut vectors = vec![Vec::new(); texts.len()];
        for ((index, _), vector) in tokens.iter().zip(made.into_iter().flatten()) {
            vectors[*index] = vector;
        }
        vectors
    }
}

fn with_ends(mut tokens: Vec<u32>) -> Vec<u32> {
    tokens.insert(0, CLASS);
    tokens.push(SEPARATOR);
    tokens
}

fn length(pack: &[(usize, Vec<u32>)]) -> usize {
    pack.iter().map(|(_, tokens)| tokens.len()).sum()
}

/// Cuts texts into packs of up to so many tokens, or of one text that is longer.
fn packs(mut texts: &[(usize, Vec<u32>)], max: usize) -> Vec<&[(usize, Vec<u32>)]> {
    let mut packs = Vec::new();
    while !texts.is_empty() {
        let mut tokens = 0;
        let fit = texts.iter().take_while(|(_, text)| {
            tokens += text.len();
            tokens <= max
        });
        let (pack, rest) = texts.split_at(fit.count().max(1));
        packs.push(pack);
        texts = rest;
    }
    packs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_makes_the_same_vectors() {
        let weights = crate::best::weights();
        let texts = ["How do I rotate keys?", "", "a text of some more words, so that tiles have rests"];
        let mut all = Kernels::all().into_iter().map(|kernels| weights.embed(kernels, &texts, 1));
        let first = all.next().unwrap();
        for other in all {
            for (a, b) in first.iter().flatten().zip(other.iter().flatten()) {
                assert!((a - b).abs() < 1e-3, "{a} {b}");
            }
        }
    }

    #[test]
    fn packs_hold_every_text_once_and_are_not_too_long() {
        let texts: Vec<(usize, Vec<u32>)> =
            [300, 200, 56, 50, 50, 1].iter().map(|length| vec![0; *length]).enumerate().collect();
        let packs = packs(&texts, 256);
        let lengths: Vec<usize> = packs.iter().map(|pack| length(pack)).collect();
        assert_eq!(lengths, [300, 256, 101]);
        assert_eq!(packs.concat(), texts);
    }
}
