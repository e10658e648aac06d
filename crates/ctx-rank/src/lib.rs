//! Ranking for the search of documents and of functions: text analysis, BM25 over small sets, score fusion and
//! snippets.
//!
//! No I/O, no store and no document index. An index takes its terms from [`Analyzer`], and its search fuses candidates
//! with [`fuse`].

mod analyzer;
mod folding;
mod fuse;
mod recent_stems;
mod small_texts;
mod snippet;
mod synonyms;
mod verbs;
mod words;

pub use analyzer::{Analyzer, TokenPosition, Tokens, is_identifier, query_prefix, query_terms};
pub use fuse::{ChunkPosition, FusedDocument, ScorePair, fuse};
pub use recent_stems::RecentStems;
pub use small_texts::{SmallText, SmallTextIndex, SmallTextSegment};
pub use snippet::{Highlighter, SnippetMatcher};
