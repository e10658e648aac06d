//! The built-in models and their interface.

use crate::kernel::Kernels;
use crate::{best, fast};

/// A model that is embedded in the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Sums one static vector per word piece: thousands of texts per second, but no notion of word order.
    Fast,
    /// all-MiniLM-L6-v2, a transformer that reads whole sentences; about a thousandth of the speed.
    Best,
}

impl Model {
    /// The id of the vectors that it computes; changes whenever the vectors would.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Fast => "builtin-fast-1",
            Self::Best => "builtin-best-1",
        }
    }

    /// Dimensions of its vectors.
    pub const fn dimensions(self) -> usize {
        match self {
            Self::Fast => fast::DIMENSIONS,
            Self::Best => best::HIDDEN,
        }
    }

    /// Maximum number of word pieces of a text; the rest is ignored.
    pub const fn max_tokens(self) -> usize {
        match self {
            Self::Fast => fast::MAX_TOKENS,
            Self::Best => best::MAX_TOKENS,
        }
    }

    /// Embeds texts on up to `threads` threads; returns unit-length vectors in the order of the texts.
    ///
    /// A text without known word pieces, such as an empty one, gets a vector of zeros from [`Model::Fast`]. It scores 0
    /// against everything.
    pub fn embed(self, texts: &[&str], threads: usize) -> Vec<Vec<f32>> {
        let kernels = Kernels::detect();
        match self {
            Self::Fast => fast::embed(kernels, texts, threads),
            Self::Best => best::weights().embed(kernels, texts, threads),
        }
    }
}
