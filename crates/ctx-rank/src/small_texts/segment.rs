//! [`SmallTextSegment`]: the terms and embeddings of some of the texts of an index.
//!
//! It holds nothing that depends on other texts, such as the frequency of a term in all of them: segments are made
//! once, and combined at no cost ([`super::SmallTextIndex::of_segments`]).

use super::{LEAD_WEIGHT, NAME_WEIGHT, SmallText, embed, is_plain};
use crate::analyzer::{Analyzer, StemCache};
use crate::verbs;
use ctx_embed::vector::quantize;
use std::collections::HashMap;

const REST_WEIGHT: f32 = 0.5;
const DETAIL_WEIGHT: f32 = 0.3;

/// The terms and embeddings of some texts. Tables are flat, so that a segment is stored and loaded at the speed of a
/// copy.
#[derive(Debug, Default, PartialEq)]
pub struct SmallTextSegment {
    /// All terms one after the other, sorted, and the end of each.
    pub(super) terms: String,
    pub(super) term_ends: Vec<u32>,
    /// The postings of all terms one after the other, and the end of each term's.
    pub(super) postings: Vec<Posting>,
    pub(super) posting_ends: Vec<u32>,
    /// Weighted number of words of each text.
    pub(super) lengths: Vec<f32>,
    /// The action of each text, by its verbs.
    pub(super) actions: Vec<u8>,
    /// The embeddings of the texts, one after the other.
    pub(super) vectors: Vec<f32>,
    pub(super) vocabulary: TermEmbeddings,
}

/// A posting: a term's occurrences in one text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Posting {
    pub(super) text: u32,
    /// Number of occurrences, each with the weight of its part of the text.
    pub(super) weight: f32,
}

/// The terms of names and first paragraphs, each with the embedding of a word that has it as its stem.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TermEmbeddings {
    /// The numbers of the terms, ascending.
    pub(super) terms: Vec<u32>,
    /// Quantized vectors, one row for each term, and the scale of each row.
    pub(super) codes: Vec<i8>,
    pub(super) scales: Vec<f32>,
}

/// A term while a segment is built.
#[derive(Default)]
struct TermOccurrences {
    postings: Vec<Posting>,
    /// The word whose embedding the term gets: the first in a name or first paragraph.
    word: Option<String>,
}

impl SmallTextSegment {
    /// Analyses the texts. Blocks, for some milliseconds per hundred texts.
    pub fn new(texts: &[SmallText<'_>]) -> Self {
        let (words, mut stems) = (Analyzer::without_stemming(true), StemCache::default());
        let mut by_term: HashMap<String, TermOccurrences> = HashMap::new();
        let (mut lengths, mut actions) = (Vec::with_capacity(texts.len()), Vec::with_capacity(texts.len()));
        for (text, small) in (0_u32..).zip(texts) {
            let (lead, rest) = small.lead();
            let parts = [
                (small.name, NAME_WEIGHT),
                (lead, LEAD_WEIGHT),
                (rest, REST_WEIGHT),
                (small.detail, DETAIL_WEIGHT),
            ];
            let parts = parts.map(|(part, weight)| (words.tokens(part).collect::<Vec<_>>(), weight));
            let [(name, _), (lead, _), ..] = &parts;
            actions.push(verbs::function_actions(
                name.iter().map(String::as_str),
                lead.first().map(String::as_str),
            ));
            let mut length = 0.0;
            for (words, weight) in &parts {
                for word in words {
                    length += weight;
                    let term = stems.stem(word);
                    if !by_term.contains_key(term) {
                        by_term.insert(term.to_owned(), TermOccurrences::default());
                    }
                    let Some(occurrences) = by_term.get_mut(term) else { continue };
                    occurrences.add(text, *weight);
                    if *weight >= LEAD_WEIGHT && occurrences.word.is_none() && is_plain(word) {
                        occurrences.word = Some(word.clone());
                    }
                }
            }
            lengths.push(length);
        }
        let embedded_texts: Vec<String> = texts.iter().map(embedded_text).collect();
        let embedded_texts: Vec<&str> = embedded_texts.iter().map(String::as_str).collect();
        let vectors = embed(&embedded_texts).into_iter().flatten().collect();
        Self { lengths, actions, vectors, ..Self::of_terms(by_term) }
    }

    /// The tables of the terms.
    fn of_terms(by_term: HashMap<String, TermOccurrences>) -> Self {
        let mut sorted: Vec<(String, TermOccurrences)> = by_term.into_iter().collect();
        sorted.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut segment = Self::default();
        let mut words = Vec::new();
        for (number, (term, occurrences)) in (0_u32..).zip(sorted) {
            segment.terms.push_str(&term);
            segment.term_ends.push(table_end(segment.terms.len()));
            segment.postings.extend(occurrences.postings);
            segment.posting_ends.push(table_end(segment.postings.len()));
            if let Some(word) = occurrences.word {
                segment.vocabulary.terms.push(number);
                words.push(word);
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for vector in embed(&words) {
            let (codes, scale) = quantize(&vector);
            segment.vocabulary.codes.extend(codes);
            segment.vocabulary.scales.push(scale);
        }
        segment
    }

    /// The number of texts.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// A term by its number.
    pub(super) fn term(&self, number: usize) -> &str {
        self.terms.get(table_range(&self.term_ends, number)).unwrap_or_default()
    }

    /// The occurrences of a term.
    pub(super) fn postings(&self, term: &str) -> &[Posting] {
        let Some(number) = self.term_number(term) else { return &[] };
        self.postings.get(table_range(&self.posting_ends, number)).unwrap_or_default()
    }

    /// Whether the term is in a name or first paragraph, and so has an embedding.
    pub(super) fn has_embedding(&self, term: &str) -> bool {
        let number = self.term_number(term).and_then(|number| u32::try_from(number).ok());
        number.is_some_and(|number| self.vocabulary.terms.binary_search(&number).is_ok())
    }

    fn term_number(&self, term: &str) -> Option<usize> {
        let (mut low, mut high) = (0, self.term_ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.term(middle).cmp(term) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

impl TermOccurrences {
    /// Adds an occurrence in a text, which is the last one so far.
    fn add(&mut self, text: u32, weight: f32) {
        match self.postings.last_mut().filter(|last| last.text == text) {
            Some(last) => last.weight += weight,
            None => self.postings.push(Posting { text, weight }),
        }
    }
}

/// The range of a row in a table, by the ends of all rows.
fn table_range(ends: &[u32], row: usize) -> std::ops::Range<usize> {
    let end = |row: usize| ends.get(row).map_or(0, |end| *end as usize);
    row.checked_sub(1).map_or(0, end)..end(row)
}

/// A length as the end of a row; beyond 4 GiB the rest is unreachable.
fn table_end(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The text that is embedded: the name as separate words, and the first paragraph.
fn embedded_text(text: &SmallText<'_>) -> String {
    format!("{}: {}", text.name.replace(['_', '.'], " "), text.lead().0)
}
