//! Bodies to chunks: the pieces that are indexed.
//!
//! A chunk never crosses a Markdown heading, prefers to end where a paragraph or a list item does,
//! and never splits a sentence, a line of code or a block of code that fits. Each section is split
//! on its own, so that a change in one leaves the chunks of the others as they were. Spans are
//! offsets into the body; nothing is copied.
//!
//! What a model reads of a chunk is its title and headings, then its text; all of it together is
//! at most as long as the model reads.

use crate::extract::Structure;
use crate::store::{Span, TextHash, slice};
use ctx_embed::Tokenizer;
use std::ops::Range;

/// How much of a heading counts.
const HEADING_BYTES_MAX: usize = 300;
/// What a model adds to a text: where it begins and where it ends.
pub(crate) const SPECIAL_TOKENS: usize = 2;
/// A token counts as at least this many bytes, so that a chunk of unknown words has an end.
const TOKEN_BYTES_MAX: usize = 16;

/// Sizes in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// The most a chunk holds, title and headings included.
    pub max_tokens: usize,
    /// How much of a chunk's end is repeated in the next one of the same section.
    pub overlap_tokens: usize,
}

impl Chunking {
    /// The most that title and headings may take of a chunk.
    fn prefix_max(self) -> usize {
        self.max_tokens / 2
    }

    /// What is left for the text of a chunk with this prefix.
    fn text_max(self, prefix: &str) -> usize {
        self.max_tokens.saturating_sub(cost(prefix) + SPECIAL_TOKENS).max(1)
    }
}

/// What stands before a chunk's text when a model reads it: its title and the headings above it.
fn prefix(title: Option<&str>, heading: &str, chunking: Chunking) -> String {
    let title = title.unwrap_or_default();
    // The first heading often is the title.
    let prefix = if heading.starts_with(title) { heading.to_owned() } else { format!("{title}\n{heading}") };
    let kept = prefix_of(&prefix, chunking.prefix_max());
    prefix[..kept].trim().to_owned()
}

/// A chunk's text as a model reads it, and what tells it from others.
pub(crate) fn embedded_text(
    title: Option<&str>,
    body: &str,
    span: &Span,
    chunking: Chunking,
) -> (String, TextHash) {
    let prefix = prefix(title, &span.heading, chunking);
    let text = format!("{prefix}\n{}", slice(body, span).trim());
    let mut hash = TextHash::default();
    hash.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..size_of::<TextHash>()]);
    (text, hash)
}

/// A sentence or a line: what is not split unless it must be.
#[derive(Clone, Debug)]
struct Unit {
    start: usize,
    end: usize,
    tokens: usize,
    /// How good a place its end is to end a chunk.
    ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    Sentence,
    ListItem,
    Paragraph,
}

/// Splits a body; `structure` says whether its headings and fences count, and whether sentences
/// do. Never empty, so that every document can be found by its title.
pub(crate) fn split(body: &str, title: Option<&str>, structure: Structure, chunking: Chunking) -> Vec<Span> {
    let mut spans = Vec::new();
    for section in sections(body, structure) {
        let text_max = chunking.text_max(&prefix(title, &section.heading, chunking));
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
    /// Whether it is code, which has lines and no sentences.
    code: bool,
    /// Byte ranges of fenced code inside it.
    fences: Vec<Range<usize>>,
}

/// Cuts a body at its headings; each section knows the headings above it.
fn sections(body: &str, structure: Structure) -> Vec<Section> {
    let section = |start: usize, heading: String| Section {
        start,
        end: body.len(),
        heading,
        code: structure == Structure::Code,
        fences: Vec::new(),
    };
    let mut sections = vec![section(0, String::new())];
    if structure != Structure::Markdown {
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
        if let Some((level, title)) = heading(line) {
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

/// Level and text of an ATX heading.
pub(crate) fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let rest = line.get(level..)?;
    if !(1..=6).contains(&level) || !rest.starts_with([' ', '\t']) {
        return None;
    }
    let title = rest.trim().trim_end_matches('#').trim_end();
    // It is repeated in every chunk below it.
    let title = &title[..title.floor_char_boundary(HEADING_BYTES_MAX)];
    (!title.is_empty()).then_some((level, title))
}

fn units(body: &str, section: &Section, max_tokens: usize) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut offset = section.start;
    for line in body[section.start..section.end].split_inclusive('\n') {
        let start = offset;
        offset += line.len();
        let begun = section.fences.partition_point(|fence| fence.start <= start);
        let fence =
            begun.checked_sub(1).map(|last| &section.fences[last]).filter(|fence| fence.contains(&start));
        let inside_fence = fence.is_some_and(|fence| fence.start < start);
        let ending = match line.trim() {
            // A block of code is kept together, whatever lines are empty in it.
            _ if inside_fence => Ending::Sentence,
            "" => Ending::Paragraph,
            _ if fence.is_some() => Ending::Paragraph,
            text if is_list_item(text) => Ending::ListItem,
            _ => Ending::Sentence,
        };
        if let Some(before) = units.last_mut() {
            before.ending = before.ending.max(ending);
        }
        if line.trim().is_empty() {
            continue;
        }
        let mut piece_start = start;
        let ends = if fence.is_some() || section.code { Vec::new() } else { sentence_ends(line) };
        for end in ends.into_iter().map(|end| start + end).chain([offset]) {
            push_bounded(body, piece_start, end, max_tokens, &mut units);
            piece_start = end;
        }
        if let Some(last) = units.last_mut()
            && fence.is_some_and(|fence| fence.end == offset)
        {
            last.ending = Ending::Paragraph;
        }
    }
    units
}

fn is_list_item(line: &str) -> bool {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = match digits {
        0 => line.strip_prefix(['-', '*', '+', '•']),
        1..=9 => line[digits..].strip_prefix(['.', ')']),
        _ => None,
    };
    rest.is_some_and(|rest| rest.starts_with(' '))
}

/// Adds a unit, cut into several where it alone is more than a chunk holds.
fn push_bounded(body: &str, start: usize, end: usize, max_tokens: usize, units: &mut Vec<Unit>) {
    let mut from = start;
    while from < end {
        let text = &body[from..end];
        if text.trim().is_empty() {
            return;
        }
        let tokens = cost(text);
        let taken = if tokens <= max_tokens { text.len() } else { prefix_of(text, max_tokens) };
        let tokens = if taken == text.len() { tokens } else { cost(&text[..taken]) };
        units.push(Unit { start: from, end: from + taken, tokens, ending: Ending::Sentence });
        from += taken;
    }
}

/// Byte length of a long beginning that costs at most `max_tokens`, at a space where there is one.
fn prefix_of(text: &str, max_tokens: usize) -> usize {
    let mut window = &text[..text.floor_char_boundary(max_tokens.saturating_mul(TOKEN_BYTES_MAX))];
    if let Some(too_much) = Tokenizer::builtin().pieces(window).get(max_tokens) {
        window = &window[..too_much.start];
    }
    if window.len() == text.len() {
        return text.len();
    }
    let mut taken = match window.rfind(char::is_whitespace) {
        Some(space) => space + window[space..].chars().next().map_or(0, char::len_utf8),
        None => window.len(),
    };
    // Half a word may cost more than the whole, which the tokenizer did not know.
    while taken > 0 && cost(&text[..taken]) > max_tokens {
        taken = text.floor_char_boundary(taken / 2);
    }
    taken.max(text.chars().next().map_or(0, char::len_utf8))
}

/// Offsets behind each sentence of a line but the last.
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
            last = good_end(units, first, last).unwrap_or(last);
        }
        spans.push(Span { start: units[first].start, end: units[last - 1].end, heading: heading.to_owned() });
        if last == units.len() {
            return;
        }
        first = overlap_start(units, first, last, overlap_tokens);
    }
}

/// The end of the last paragraph, or else list item, in the second half of `units[first..last]`.
fn good_end(units: &[Unit], first: usize, last: usize) -> Option<usize> {
    let half = first + (last - first) / 2;
    let last_with = |ending: Ending| (half..last).rev().find(|index| units[*index].ending >= ending);
    last_with(Ending::Paragraph).or_else(|| last_with(Ending::ListItem)).map(|index| index + 1)
}

/// Where the next chunk begins: some whole units before `last`, never back to `first`.
fn overlap_start(units: &[Unit], first: usize, last: usize, overlap_tokens: usize) -> usize {
    let mut start = last;
    let mut tokens = 0;
    while start - 1 > first && tokens + units[start - 1].tokens <= overlap_tokens {
        start -= 1;
        tokens += units[start].tokens;
    }
    start
}

/// What a text takes of a chunk: its word pieces.
pub(crate) fn cost(text: &str) -> usize {
    Tokenizer::builtin().count(text).max(text.len() / TOKEN_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Chunking = Chunking { max_tokens: 20, overlap_tokens: 6 };

    fn texts(body: &str) -> Vec<(String, String)> {
        split(body, None, Structure::Markdown, SMALL)
            .iter()
            .map(|span| (span.heading.clone(), slice(body, span).trim().to_owned()))
            .collect()
    }

    #[test]
    fn a_chunk_knows_the_headings_it_stands_under() {
        let body = "# Guide\nIntro.\n## Deploy\nPush it.\n### Staging\nTry it.\n## Roll back\nPull it.\n";
        let headings: Vec<_> = texts(body).into_iter().map(|(heading, _)| heading).collect();
        assert_eq!(headings, ["Guide", "Guide › Deploy", "Guide › Deploy › Staging", "Guide › Roll back"]);
    }

    #[test]
    fn a_comment_in_code_is_not_a_heading() {
        let body = "# Guide\n```sh\n# not a heading\nls\n```\nafter\n";
        assert_eq!(texts(body).len(), 1);
    }

    #[test]
    fn chunks_end_at_sentences_and_overlap() {
        let body = "One two three four five six. Seven eight nine ten eleven. Twelve thirteen fourteen. More is here now.";
        let chunks = texts(body);
        assert_eq!(
            chunks[0].1,
            "One two three four five six. Seven eight nine ten eleven. Twelve thirteen fourteen."
        );
        assert_eq!(chunks[1].1, "Twelve thirteen fourteen. More is here now.");
    }

    #[test]
    fn code_is_cut_between_lines_and_not_at_sentences() {
        let body = "let a = first. second. third. fourth.\nlet b = fifth. sixth. seventh. eighth.\n";
        let spans = split(body, None, Structure::Code, SMALL);
        let lines: Vec<_> = spans.iter().map(|span| slice(body, span)).collect();
        assert_eq!(lines, body.split_inclusive('\n').collect::<Vec<_>>());
    }

    #[test]
    fn a_text_without_spaces_is_cut_all_the_same() {
        let body = "x".repeat(2_000);
        let spans = split(&body, None, Structure::Plain, SMALL);
        assert!(spans.len() > 5);
        assert!(spans.iter().all(|span| cost(slice(&body, span)) <= SMALL.max_tokens));
    }

    #[test]
    fn an_empty_body_has_one_empty_chunk() {
        assert_eq!(
            split(" \n\n", None, Structure::Markdown, SMALL),
            [Span { start: 0, end: 0, heading: String::new() }]
        );
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_too_large(
            body in "([a-zé漢 .\n#`-]|word |\n# H\n|```\n){0,400}",
            structure in prop_oneof![
                Just(Structure::Markdown), Just(Structure::Plain), Just(Structure::Code)
            ],
        ) {
            let spans = split(&body, None, structure, SMALL);
            let mut covered = vec![false; body.len()];
            for span in &spans {
                let text = body.get(span.start..span.end);
                prop_assert!(text.is_some());
                prop_assert!(cost(text.unwrap_or_default()) <= SMALL.max_tokens);
                covered[span.start..span.end].fill(true);
            }
            for (index, char) in body.char_indices() {
                prop_assert!(covered[index] || char.is_whitespace(), "lost {char:?} at {index}");
            }
            prop_assert!(spans.windows(2).all(|pair| pair[0].start < pair[1].start || pair[1].start == 0));
        }
    }
}
