//! Bodies to chunks: the pieces that are indexed.
//!
//! A chunk never crosses a Markdown heading, prefers to end where a paragraph does, and never
//! splits a sentence or a line of code that fits. Spans are offsets into the body; nothing is
//! copied.

use crate::extract::Structure;
use crate::store::Span;

/// How much of a heading counts.
const HEADING_BYTES_MAX: usize = 300;

/// Sizes in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// The most a chunk holds.
    pub max_tokens: usize,
    /// How much of a chunk's end is repeated in the next one of the same section.
    pub overlap_tokens: usize,
}

/// A sentence or a line: what is not split unless it must be.
#[derive(Clone, Debug)]
struct Unit {
    start: usize,
    end: usize,
    tokens: usize,
    ends_paragraph: bool,
}

/// Splits a body; `structure` says whether its headings and fences count, and whether sentences
/// do. Never empty, so that every document can be found by its title.
pub(crate) fn split(body: &str, structure: Structure, chunking: Chunking) -> Vec<Span> {
    let mut spans = Vec::new();
    for section in sections(body, structure) {
        let units = units(body, &section, chunking.max_tokens);
        pack(&units, &section.heading, chunking, &mut spans);
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
    /// Byte ranges of fenced code inside it.
    fences: Vec<(usize, usize)>,
}

/// Cuts a body at its headings; each section knows the headings above it.
fn sections(body: &str, structure: Structure) -> Vec<Section> {
    let mut sections =
        vec![Section { start: 0, end: body.len(), heading: String::new(), fences: Vec::new() }];
    if structure == Structure::Code {
        sections[0].fences.push((0, body.len()));
    }
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
                    section.fences.push((fence_start, offset));
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
            sections.push(Section { start, end: body.len(), heading, fences: Vec::new() });
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
        if line.trim().is_empty() {
            if let Some(last) = units.last_mut() {
                last.ends_paragraph = true;
            }
            continue;
        }
        let begun = section.fences.partition_point(|(from, _)| *from <= start);
        let in_fence = begun > 0 && start < section.fences[begun - 1].1;
        let mut piece_start = start;
        let ends = if in_fence { Vec::new() } else { sentence_ends(line) };
        for end in ends.into_iter().map(|end| start + end).chain([offset]) {
            push_bounded(body, piece_start, end, max_tokens, &mut units);
            piece_start = end;
        }
    }
    units
}

/// Adds a unit, cut into several where it alone is more than a chunk holds.
fn push_bounded(body: &str, start: usize, end: usize, max_tokens: usize, units: &mut Vec<Unit>) {
    let text = &body[start..end];
    if text.trim().is_empty() {
        return;
    }
    let tokens = count_tokens(text);
    if tokens <= max_tokens {
        units.push(Unit { start, end, tokens, ends_paragraph: false });
        return;
    }
    let mut from = 0;
    while from < text.len() {
        let taken = prefix_of(&text[from..], max_tokens);
        let piece = &text[from..from + taken];
        units.push(Unit {
            start: start + from,
            end: start + from + taken,
            tokens: count_tokens(piece),
            ends_paragraph: false,
        });
        from += taken;
    }
}

/// Byte length of the longest beginning of at most `max_tokens`, at a space where there is one.
fn prefix_of(text: &str, max_tokens: usize) -> usize {
    let mut counter = TokenCounter::default();
    let mut last_space = 0;
    for (index, char) in text.char_indices() {
        counter.push(char);
        if counter.total() > max_tokens {
            return if last_space > 0 { last_space } else { index.max(char.len_utf8()) };
        }
        if char.is_whitespace() {
            last_space = index + char.len_utf8();
        }
    }
    text.len()
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
fn pack(units: &[Unit], heading: &str, chunking: Chunking, spans: &mut Vec<Span>) {
    let mut first = 0;
    while first < units.len() {
        let mut tokens = 0;
        let mut last = first;
        while last < units.len() && (last == first || tokens + units[last].tokens <= chunking.max_tokens) {
            tokens += units[last].tokens;
            last += 1;
        }
        if last < units.len() {
            last = paragraph_end(units, first, last).unwrap_or(last);
        }
        spans.push(Span { start: units[first].start, end: units[last - 1].end, heading: heading.to_owned() });
        if last == units.len() {
            return;
        }
        first = overlap_start(units, first, last, chunking.overlap_tokens);
    }
}

/// The end of the last paragraph in the second half of `units[first..last]`.
fn paragraph_end(units: &[Unit], first: usize, last: usize) -> Option<usize> {
    let half = first + (last - first) / 2;
    (half..last).rev().find(|index| units[*index].ends_paragraph).map(|index| index + 1)
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

/// About as many word pieces as an embedding model's tokenizer would make.
pub(crate) fn count_tokens(text: &str) -> usize {
    let mut counter = TokenCounter::default();
    text.chars().for_each(|char| counter.push(char));
    counter.total()
}

/// A word is one piece for every six letters begun, a mark or a CJK character is one.
#[derive(Default)]
struct TokenCounter {
    pieces: usize,
    word_length: usize,
}

impl TokenCounter {
    fn push(&mut self, char: char) {
        if char.is_alphanumeric() && u32::from(char) < 0x2E80 {
            self.word_length += 1;
            return;
        }
        self.pieces = self.total() + usize::from(!char.is_whitespace());
        self.word_length = 0;
    }

    fn total(&self) -> usize {
        self.pieces + self.word_length.div_ceil(6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::slice;
    use proptest::prelude::*;

    const SMALL: Chunking = Chunking { max_tokens: 20, overlap_tokens: 6 };

    fn texts(body: &str) -> Vec<(String, String)> {
        split(body, Structure::Markdown, SMALL)
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
        let spans = split(body, Structure::Code, SMALL);
        let lines: Vec<_> = spans.iter().map(|span| slice(body, span)).collect();
        assert_eq!(lines, body.split_inclusive('\n').collect::<Vec<_>>());
    }

    #[test]
    fn a_text_without_spaces_is_cut_all_the_same() {
        let body = "x".repeat(2_000);
        let spans = split(&body, Structure::Plain, SMALL);
        assert!(spans.len() > 10);
        assert!(spans.iter().all(|span| count_tokens(slice(&body, span)) <= SMALL.max_tokens));
    }

    #[test]
    fn an_empty_body_has_one_empty_chunk() {
        assert_eq!(
            split(" \n\n", Structure::Markdown, SMALL),
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
            let spans = split(&body, structure, SMALL);
            let mut covered = vec![false; body.len()];
            for span in &spans {
                let text = body.get(span.start..span.end);
                prop_assert!(text.is_some());
                prop_assert!(count_tokens(text.unwrap_or_default()) <= SMALL.max_tokens);
                covered[span.start..span.end].fill(true);
            }
            for (index, char) in body.char_indices() {
                prop_assert!(covered[index] || char.is_whitespace(), "lost {char:?} at {index}");
            }
            prop_assert!(spans.windows(2).all(|pair| pair[0].start < pair[1].start || pair[1].start == 0));
        }
    }
}
