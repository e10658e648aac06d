//! Transformers of the BERT family: from texts to vectors, with any weights.
//!
//! Texts are packed: tokens of several texts go through the linear layers together. Short texts cost in proportion to
//! their length, and no padding is computed.

mod attention;
mod forward;

use crate::kernel::{Kernels, Linear, Norm};
use crate::parallel;
use crate::tokenizer::{CLASS, SEPARATOR, Tokenizer};
use forward::ForwardPass;

/// Number of special tokens around a text: `[CLS]` and `[SEP]`.
pub(crate) const SPECIAL_TOKENS: usize = 2;
/// Maximum number of tokens in a pack, unless a single text has more.
const PACK_TOKENS_MAX: usize = 256;
/// Minimum size of packs when texts are divided among threads.
const PACK_TOKENS_MIN: usize = 48;

/// The dimensions of a transformer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransformerSizes {
    /// Hidden size: dimensions of a token's vector between layers.
    pub(crate) hidden: usize,
    /// Number of attention heads.
    pub(crate) heads: usize,
    /// Intermediate size: width of the feed-forward part.
    pub(crate) intermediate: usize,
}

impl TransformerSizes {
    /// Dimensions per attention head.
    const fn head(self) -> usize {
        self.hidden / self.heads
    }

    /// Length of a token's query, key and value together.
    const fn qkv(self) -> usize {
        3 * self.hidden
    }
}

/// How token vectors are pooled into one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of all tokens.
    Mean,
    /// The vector of the first token, `[CLS]`.
    First,
}

/// The weights of a transformer, borrowed from the binary or from a [`LocalModel`](crate::LocalModel).
pub(crate) struct Weights<'a> {
    pub(crate) sizes: TransformerSizes,
    /// One row per word piece.
    pub(crate) token_codes: &'a [i8],
    pub(crate) token_scales: &'a [f32],
    /// One row per position.
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
    pub(crate) intermediate: Linear<'a>,
    pub(crate) output: Linear<'a>,
    pub(crate) norm: Norm<'a>,
}

impl Weights<'_> {
    /// Maximum number of tokens of a text, including `[CLS]` and `[SEP]`.
    fn tokens_max(&self) -> usize {
        self.positions.len() / self.sizes.hidden
    }

    /// Embeds texts; returns unit-length vectors in the order of the texts.
    pub(crate) fn embed(&self, kernels: &Kernels, texts: &[&str], threads: usize) -> Vec<Vec<f32>> {
        let tokenizer = Tokenizer::builtin();
        let max = self.tokens_max().saturating_sub(SPECIAL_TOKENS);
        let mut tokens: Vec<(usize, Vec<u32>)> =
            texts.iter().map(|text| with_special_tokens(tokenizer.encode(text, max))).enumerate().collect();
        // Longest first: the last jobs are then small, and the threads finish together.
        tokens.sort_by_key(|(_, tokens)| std::cmp::Reverse(tokens.len()));
        let total: usize = tokens.iter().map(|(_, tokens)| tokens.len()).sum();
        let packs = packs(&tokens, (total / threads.max(1)).clamp(PACK_TOKENS_MIN, PACK_TOKENS_MAX));
        let largest = packs.iter().map(|pack| token_count(pack)).max().unwrap_or_default();
        let vectors_by_pack = parallel::run(
            packs.len(),
            threads,
            || ForwardPass::new(kernels, self, largest),
            |pass, number| pass.embed(packs[number]),
        );
        let mut vectors = vec![Vec::new(); texts.len()];
        for ((index, _), vector) in tokens.iter().zip(vectors_by_pack.into_iter().flatten()) {
            vectors[*index] = vector;
        }
        vectors
    }
}

fn with_special_tokens(mut tokens: Vec<u32>) -> Vec<u32> {
    tokens.insert(0, CLASS);
    tokens.push(SEPARATOR);
    tokens
}

fn token_count(pack: &[(usize, Vec<u32>)]) -> usize {
    pack.iter().map(|(_, tokens)| tokens.len()).sum()
}

/// Divides texts into packs of up to `max` tokens; a longer text is a pack of its own.
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
        let lengths: Vec<usize> = packs.iter().map(|pack| token_count(pack)).collect();
        assert_eq!(lengths, [300, 256, 101]);
        assert_eq!(packs.concat(), texts);
    }
}
