//! Ranking, shared by the search of documents and the search of functions: texts to terms, BM25 over small sets, fusion of
//! two scores, and snippets.
//!
//! No I/O, no store and no index: whoever has an index makes its terms by [`Analyzer`], and fuses what it finds by
//! [`fuse`].

mod analyzer;
mod everyday;
mod folding;
mod fuse;
mod snippet;
mod texts;
mod verbs;
mod words;

pub use analyzer::{Analyzer, TokenPlace, Tokens, is_identifier, query_prefix, query_terms};
pub use fuse::{ChunkPlace, Fused, ScorePair, fuse};
pub use snippet::{Highlighter, SnippetMatcher};
pub use texts::{SmallText, SmallTexts};
