//! The models there are, and the one way to use them.

use crate::kernel::Kernels;
use crate::{best, fast};

/// A model that is part of the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// A vector per word piece, summed: thousands of texts a second, knows words but not their order.
    Fast,
    /// all-MiniLM-L6-v2: a transformer, understands whole sentences, about a thousandth of the speed.
    Best,
}

impl Model {
    /// Names the vectors it makes; changes whenever they would.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Fast => "builtin-fast-1",
            Self::Best => "builtin-best-1",
        }
    }

    /// How many numbers its vectors have.
    pub const fn dimensions(self) -> usize {
        match self {
            Self::Fast => fast::DIMENSIONS,
            Self::Best => best::HIDDEN,
        }
    }

    /// How many word pieces of a text it reads; the rest is ignored.
    pub const fn max_tokens(self) -> usize {
        match self {
            Self::Fast => fast::MAX_TOKENS,
            Self::Best => best::MAX_TOKENS,
        }
    }

    /// Unit-length vectors, in the order of the texts, made by up to `threads` threads.
    ///
    /// [`Model::Fast`] knows nothing about a text without any word piece it has learnt, an empty one for
    /// instance: that vector is all zeros, and scores 0 against everything.
    pub fn embed(self, texts: &[&str], threads: usize) -> Vec<Vec<f32>> {
        let kernels = Kernels::detected();
        match self {
            Self::Fast => fast::embed(kernels, texts, threads),
            Self::Best => best::weights().embed(kernels, texts, threads),
        }
    }
}
