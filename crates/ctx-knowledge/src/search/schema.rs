//! The schema of the keyword index, with one entry per chunk, and the queries on it.

use super::{Candidate, Filters, analyzer};
use ctx_store::{ChunkPosition, IndexedDocument};
use std::collections::HashMap;
use std::ops::Bound;
use tantivy::query::{
    BooleanQuery, BoostQuery, ConstScoreQuery, EnableScoring, Occur, Query, RangeQuery, TermQuery, Weight,
};
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, STRING, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::{DocId, DocSet, Index, Searcher, SegmentReader, TERMINATED, TantivyDocument, Term};

const ANALYZER: &str = "ctx";
/// Bits of [`chunk_number`] for the position of a chunk; no document is large enough for more chunks.
const POSITION_BITS: u32 = 24;
/// Boost of identifiers against ordinary words.
const IDENTIFIER_WEIGHT: f32 = 2.0;
/// Maximum number of words that a prefix expands to, and of words per segment that they are chosen from.
const PREFIX_WORDS_MAX: usize = 32;
const PREFIX_WORDS_READ: usize = 1_000;

/// The fields of an entry.
#[derive(Clone, Copy)]
pub(super) struct IndexFields {
    document: Field,
    chunk: Field,
    place: Field,
    source: Field,
    tag: Field,
    updated_at: Field,
    text: Field,
}

impl IndexFields {
    pub(super) fn new() -> (Schema, Self) {
        let mut builder = Schema::builder();
        let text = TextOptions::default().set_indexing_options(
            TextFieldIndexing::default()
                .set_tokenizer(ANALYZER)
                .set_index_option(IndexRecordOption::WithFreqs),
        );
        let fields = Self {
            document: builder.add_u64_field("document", INDEXED | FAST),
            chunk: builder.add_u64_field("chunk", FAST),
            place: builder.add_u64_field("place", INDEXED),
            source: builder.add_text_field("source", STRING),
            tag: builder.add_text_field("tag", STRING),
            updated_at: builder.add_i64_field("updated_at", FAST),
            text: builder.add_text_field("text", text),
        };
        (builder.build(), fields)
    }

    /// Registers the analyzer that splits text into terms.
    pub(super) fn register_analyzer(index: &Index) {
        index.tokenizers().register(ANALYZER, analyzer::analyzer());
    }

    /// The term that all entries of a document share.
    pub(super) fn document_term(&self, key: u64) -> Term {
        Term::from_field_u64(self.document, key)
    }

    /// One entry for each chunk; title and headings are part of its text.
    pub(super) fn entries<'a>(
        &'a self,
        document: &'a IndexedDocument,
    ) -> impl Iterator<Item = TantivyDocument> + 'a {
        document.chunks.iter().zip(0u64..).map(move |(span, position)| {
            let mut entry = TantivyDocument::default();
            entry.add_u64(self.document, document.key);
            entry.add_u64(self.chunk, position);
            entry.add_u64(self.place, chunk_number((document.key, position)));
            entry.add_i64(self.updated_at, document.updated_at);
            entry.add_text(self.source, &document.source);
            if let Some((kind, _)) = document.source.split_once(':') {
                entry.add_text(self.source, kind);
            }
            for tag in &document.tags {
                entry.add_text(self.tag, tag);
            }
            let title = document.title.as_deref().unwrap_or_default();
            let text = span.of(&document.body);
            entry.add_text(self.text, format!("{title}\n{}\n{text}", span.heading));
            entry
        })
    }

    /// Indexed words with this prefix, the most common first.
    pub(super) fn words_with_prefix(
        &self,
        searcher: &Searcher,
        prefix: &str,
    ) -> tantivy::Result<Vec<String>> {
        let mut counts: HashMap<String, u32> = HashMap::new();
        for segment in searcher.segment_readers() {
            let index = segment.inverted_index(self.text)?;
            let mut words = index.terms().range().ge(prefix.as_bytes()).into_stream()?;
            for _ in 0..PREFIX_WORDS_READ {
                if !words.advance() || !words.key().starts_with(prefix.as_bytes()) {
                    break;
                }
                if let Ok(word) = std::str::from_utf8(words.key()) {
                    *counts.entry(word.to_owned()).or_default() += words.value().doc_freq;
                }
            }
        }
        let mut counts: Vec<(String, u32)> = counts.into_iter().collect();
        counts.sort_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then(a.cmp(b)));
        Ok(counts.into_iter().map(|(word, _)| word).take(PREFIX_WORDS_MAX).collect())
    }

    /// The BM25 scores of these chunks, in any order; chunks without any of the terms are left out.
    pub(super) fn chunk_scores(
        &self,
        searcher: &Searcher,
        terms: &[String],
        places: &[ChunkPosition],
    ) -> tantivy::Result<Vec<Candidate>> {
        // Each term by itself: a query for any of them would score all chunks around those that are looked for.
        let scoring = EnableScoring::enabled_from_searcher(searcher);
        let weights = terms.iter().map(|term| self.term_query(term).weight(scoring));
        let weights: Vec<Box<dyn Weight>> = weights.collect::<tantivy::Result<_>>()?;
        let mut places: Vec<ChunkPosition> = places.to_vec();
        places.sort_unstable();
        places.dedup();
        let mut scored = Vec::with_capacity(places.len());
        for segment in searcher.segment_readers() {
            let entries = self.entries_of(segment, &places)?;
            let mut scores = vec![0.0; entries.len()];
            for weight in weights.iter().filter(|_| !entries.is_empty()) {
                let mut scorer = weight.scorer(segment, 1.0)?;
                for ((entry, _), score) in entries.iter().zip(&mut scores) {
                    if scorer.doc() < *entry {
                        scorer.seek(*entry);
                    }
                    if scorer.doc() == *entry {
                        *score += scorer.score();
                    }
                }
            }
            let candidates = entries.into_iter().zip(scores).filter(|(_, score)| *score > 0.0);
            scored.extend(candidates.map(|((_, place), score)| Candidate { place, score }));
        }
        Ok(scored)
    }

    /// The entries of those of these chunks that are in a segment, ordered.
    fn entries_of(
        &self,
        segment: &SegmentReader,
        places: &[ChunkPosition],
    ) -> tantivy::Result<Vec<(DocId, ChunkPosition)>> {
        let index = segment.inverted_index(self.place)?;
        let mut entries = Vec::with_capacity(places.len());
        for place in places {
            let term = Term::from_field_u64(self.place, chunk_number(*place));
            let Some(mut found) = index.read_postings(&term, IndexRecordOption::Basic)? else { continue };
            // Earlier entries of the chunk may be there still, deleted.
            while found.doc() != TERMINATED && segment.is_deleted(found.doc()) {
                found.advance();
            }
            if found.doc() != TERMINATED {
                entries.push((found.doc(), *place));
            }
        }
        entries.sort_unstable();
        Ok(entries)
    }

    /// Query for any of the terms, restricted by the filters.
    pub(super) fn query(&self, terms: &[String], filters: &Filters) -> Box<dyn Query> {
        let any_term = self.any_term_query(terms);
        let exact = |field: Field, text: &str| -> Box<dyn Query> {
            Box::new(TermQuery::new(Term::from_field_text(field, text), IndexRecordOption::Basic))
        };
        let mut conditions: Vec<Box<dyn Query>> = Vec::new();
        conditions.extend(filters.source.iter().map(|source| exact(self.source, source)));
        conditions.extend(filters.tags.iter().map(|tag| exact(self.tag, tag)));
        if filters.since.is_some() || filters.until.is_some() {
            let bound = |time: Option<jiff::Timestamp>| {
                time.map_or(Bound::Unbounded, |time| {
                    Bound::Included(Term::from_field_i64(self.updated_at, time.as_millisecond()))
                })
            };
            conditions.push(Box::new(RangeQuery::new(bound(filters.since), bound(filters.until))));
        }
        if conditions.is_empty() {
            return any_term;
        }
        let unscored = |query| -> Box<dyn Query> { Box::new(ConstScoreQuery::new(query, 0.0)) };
        let mut all = vec![(Occur::Must, any_term)];
        all.extend(conditions.into_iter().map(|condition| (Occur::Must, unscored(condition))));
        Box::new(BooleanQuery::new(all))
    }

    fn any_term_query(&self, terms: &[String]) -> Box<dyn Query> {
        // Not nested, so that tantivy can skip chunks that cannot be among the best.
        let any_term = terms.iter().map(|term| (Occur::Should, self.term_query(term)));
        Box::new(BooleanQuery::new(any_term.collect()))
    }

    fn term_query(&self, term: &str) -> Box<dyn Query> {
        let indexed = Term::from_field_text(self.text, term);
        let query = Box::new(TermQuery::new(indexed, IndexRecordOption::WithFreqs));
        match analyzer::is_identifier(term) {
            true => Box::new(BoostQuery::new(query, IDENTIFIER_WEIGHT)),
            false => query,
        }
    }
}

/// A chunk's document and position as one number.
fn chunk_number((document, position): ChunkPosition) -> u64 {
    document << POSITION_BITS | position & ((1 << POSITION_BITS) - 1)
}
