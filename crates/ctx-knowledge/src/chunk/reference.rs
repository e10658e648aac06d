//! Reference implementation of chunking for tests: simple, and quadratic in the length of a line.
//! [`super::split`] must give the same chunks, or every stored document would have to be chunked and embedded again.

use super::units::is_list_item;
use super::{Chunking, TOKEN_BYTES_MAX, atx_heading, embedding_prefix, token_cost};
use ctx_embed::Tokenizer;
use ctx_extract::TextStructure;
use ctx_store::Span;
use std::ops::Range;

/// A sentence or line, split only if it alone exceeds a chunk.
#[derive(Clone, Debug)]
struct Unit {
    start: usize,
    end: usize,
    tokens: usize,
    /// How well a chunk can end after this unit.
    boundary: UnitBoundary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UnitBoundary {
    Sentence,
    ListItem,
    Paragraph,
}

pub(super) fn split(
    body: &str,
    title: Option<&str>,
    structure: TextStructure,
    chunking: Chunking,
) -> Vec<Span> {
    let mut spans = Vec::new();
    for section in sections(body, structure) {
        let text_max = chunking.text_max(&embedding_prefix(title, &section.heading, chunking));
        let units = units(body, &section, text_max);
        pack(&units, &section.heading, text_max, chunking.overlap_tokens, &mut spans);
    }
    if spans.is_empty() {
        spans.push(Span { start: 0, end: 0, heading: String::new() });
    }
    spans
}

struct Section {
    start: usize,
    end: usize,
    heading: String,
    /// Whether the section is code, which is split at lines instead of sentences.
    is_code: bool,
    /// Byte ranges of its fenced code blocks.
    fences: Vec<Range<usize>>,
}

/// Splits a body at its headings; each section has the path of the headings above it.
fn sections(body: &str, structure: TextStructure) -> Vec<Section> {
    let section = |start: usize, heading: String| Section {
        start,
        end: body.len(),
        heading,
        is_code: structure == TextStructure::Code,
        fences: Vec::new(),
    };
    let mut sections = vec![section(0, String::new())];
    if structure != TextStructure::Markdown {
        return sections;
    }
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut fence: Option<(&str, usize)> = None;
    let mut offset = 0;
    for line in body.split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let text = line.trim();
        if let Some((marker, fence_start)) = fence {
            if text.starts_with(marker) && text.trim_start_matches(&marker[..1]).is_empty() {
                fence = None;
                if let Some(section) = sections.last_mut() {
                    section.fences.push(fence_start..offset);
                }
            }
            continue;
        }
        if let Some(marker) = ["```", "~~~"].into_iter().find(|marker| text.starts_with(marker)) {
            fence = Some((marker, start));
            continue;
        }
        if let Some((level, title)) = atx_heading(line) {
            path.retain(|(above, _)| *above < level);
            path.push((level, title));
            if let Some(section) = sections.last_mut() {
                section.end = start;
            }
            let heading = path.iter().map(|(_, title)| *title).collect::<Vec<_>>().join(" › ");
            sections.push(section(start, heading));
        }
    }
    sections
}

fn units(body: &str, section: &Section, max_tokens: usize) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut offset = section.start;
    for line in body[section.start..section.end].split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let fences_started = section.fences.partition_point(|fence| fence.start <= start);
        let fence = fences_started
            .checked_sub(1)
            .map(|last| &section.fences[last])
            .filter(|fence| fence.contains(&start));
        let inside_fence = fence.is_some_and(|fence| fence.start < start);
        let boundary = match line.trim() {
            // An empty line inside a code fence is no paragraph break.
            _ if inside_fence => UnitBoundary::Sentence,
            "" => UnitBoundary::Paragraph,
            _ if fence.is_some() => UnitBoundary::Paragraph,
            text if is_list_item(text) => UnitBoundary::ListItem,
            _ => UnitBoundary::Sentence,
        };
        if let Some(before) = units.last_mut() {
            before.boundary = before.boundary.max(boundary);
        }
        if line.trim().is_empty() {
            continue;
        }
        let mut piece_start = start;
        let ends = if fence.is_some() || section.is_code { Vec::new() } else { sentence_ends(line) };
        for end in ends.into_iter().map(|end| start + end).chain([offset]) {
            push_bounded(body, piece_start, end, max_tokens, &mut units);
            piece_start = end;
        }
        if let Some(last) = units.last_mut()
            && fence.is_some_and(|fence| fence.end == offset)
        {
            last.boundary = UnitBoundary::Paragraph;
        }
    }
    units
}

/// Adds a unit, cut into several where it alone exceeds a chunk.
fn push_bounded(body: &str, start: usize, end: usize, max_tokens: usize, units: &mut Vec<Unit>) {
    let mut from = start;
    while from < end {
        let text = &body[from..end];
        if text.trim().is_empty() {
            return;
        }
        let tokens = token_cost(text);
        let len = if tokens <= max_tokens { text.len() } else { prefix_len(text, max_tokens) };
        let tokens = if len == text.len() { tokens } else { token_cost(&text[..len]) };
        units.push(Unit { start: from, end: from + len, tokens, boundary: UnitBoundary::Sentence });
        from += len;
    }
}

/// Byte length of a long prefix of at most `max_tokens` tokens, ending after a space where possible.
fn prefix_len(text: &str, max_tokens: usize) -> usize {
    let mut window = &text[..text.floor_char_boundary(max_tokens.saturating_mul(TOKEN_BYTES_MAX))];
    if let Some(excess_start) = Tokenizer::builtin().pieces(window).get(max_tokens) {
        window = &window[..excess_start.start];
    }
    if window.len() == text.len() {
        return text.len();
    }
    let mut len = match window.rfind(char::is_whitespace) {
        Some(space) => space + window[space..].chars().next().map_or(0, char::len_utf8),
        None => window.len(),
    };
    // A part of a word may have more tokens than the whole word.
    while len > 0 && token_cost(&text[..len]) > max_tokens {
        len = text.floor_char_boundary(len / 2);
    }
    len.max(text.chars().next().map_or(0, char::len_utf8))
}

/// End offsets of the sentences of a line, without the last.
fn sentence_ends(line: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut chars = line.char_indices().peekable();
    while let Some((index, char)) = chars.next() {
        let after = index + char.len_utf8();
        match char {
            '.' | '!' | '?' if chars.peek().is_some_and(|(_, next)| *next == ' ') => ends.push(after + 1),
            '。' | '！' | '？' => ends.push(after),
            _ => {}
        }
    }
    ends.retain(|end| *end < line.len());
    ends
}

/// Fills chunks with units, in order.
fn pack(units: &[Unit], heading: &str, max_tokens: usize, overlap_tokens: usize, spans: &mut Vec<Span>) {
    let mut first = 0;
    while first < units.len() {
        let mut tokens = 0;
        let mut last = first;
        while last < units.len() && (last == first || tokens + units[last].tokens <= max_tokens) {
            tokens += units[last].tokens;
            last += 1;
        }
        if last < units.len() {
            last = preferred_end(units, first, last).unwrap_or(last);
        }
        spans.push(Span { start: units[first].start, end: units[last - 1].end, heading: heading.to_owned() });
        if last == units.len() {
            return;
        }
        first = overlap_start(units, first, last, overlap_tokens);
    }
}

/// The end of the last paragraph, or else list item, in the second half of `units[first..last]`.
fn preferred_end(units: &[Unit], first: usize, last: usize) -> Option<usize> {
    let half = first + (last - first) / 2;
    let last_with =
        |boundary: UnitBoundary| (half..last).rev().find(|index| units[*index].boundary >= boundary);
    last_with(UnitBoundary::Paragraph).or_else(|| last_with(UnitBoundary::ListItem)).map(|index| index + 1)
}

/// Index of the first unit of the next chunk: some whole units before `last` (the overlap), never `first`.
fn overlap_start(units: &[Unit], first: usize, last: usize, overlap_tokens: usize) -> usize {
    let mut start = last;
    let mut tokens = 0;
    while start - 1 > first && tokens + units[start - 1].tokens <= overlap_tokens {
        start -= 1;
        tokens += units[start].tokens;
    }
    start
}
