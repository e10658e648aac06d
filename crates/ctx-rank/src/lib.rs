//! Ranking for the search of documents and of functions: text analysis, BM25 over small sets, score fusion and
//! snippets.
//!
//! No I/O, no store and no document index. An index takes its terms from [`Analyzer`], and its search fuses candidates
//! with [`fuse`].

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
