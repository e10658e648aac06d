//! Splits document bodies into chunks, the unit that is indexed.
//!
//! A chunk never crosses a Markdown heading, prefers to end at a paragraph or list item, and never splits a sentence, a
//! line of code or a code block that fits. Sections are split independently, so that a change in one leaves the chunks
//! of the others unchanged. Spans are offsets into the body; nothing is copied. The title and headings that precede a
//! chunk's text for a model count towards its size.

mod packer;
#[cfg(test)]
mod reference;
mod units;

use ctx_embed::Tokenizer;
use ctx_extract::TextStructure;
pub(crate) use ctx_extract::atx_heading;
use ctx_store::{Span, TextHash};
use packer::Packer;
use std::ops::Range;

/// Special tokens that a model adds at the start and the end of a text.
pub(crate) const SPECIAL_TOKENS: usize = 2;
/// A token counts for at most this many bytes, so that a chunk of unknown words is bounded.
const TOKEN_BYTES_MAX: usize = 16;
/// Maximum number of sections per document; further headings are treated as plain text.
const SECTIONS_MAX: usize = 50_000;

/// Chunk sizes in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// Maximum size of a chunk, title and headings included.
    pub max_tokens: usize,
    /// How much of a chunk's end is repeated in the next chunk of the same section.
    pub overlap_tokens: usize,
}

impl Chunking {
    /// Maximum tokens of title and headings in a chunk.
    fn prefix_max(self) -> usize {
        self.max_tokens / 2
    }

    /// Tokens left for a chunk's text after this prefix.
    fn text_max(self, prefix: &str) -> usize {
        self.max_tokens.saturating_sub(token_cost(prefix) + SPECIAL_TOKENS).max(1)
    }
}

/// The text that precedes a chunk for a model: the document's title and the headings above the chunk.
fn embedding_prefix(title: Option<&str>, heading: &str, chunking: Chunking) -> String {
    let title = title.unwrap_or_default();
    // The first heading often repeats the title.
    let prefix = if heading.starts_with(title) { heading.to_owned() } else { format!("{title}\n{heading}") };
    let len = prefix_len(&prefix, chunking.prefix_max());
    prefix[..len].trim().to_owned()
}

/// A chunk's text as a model reads it, and the hash of that text.
pub(crate) fn embedded_text(
    title: Option<&str>,
    body: &str,
    span: &Span,
    chunking: Chunking,
) -> (String, TextHash) {
    let prefix = embedding_prefix(title, &span.heading, chunking);
    let text = format!("{prefix}\n{}", span.of(body).trim());
    let mut hash = TextHash::default();
    hash.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..size_of::<TextHash>()]);
    (text, hash)
}

/// Splits a body; `structure` says whether headings, fences and sentences are recognised. Never empty, so that every
/// document can be found by its title. Takes linear time; polls `is_stopped` regularly and returns `None` once it is
/// true.
pub(crate) fn split(
    body: &str,
    title: Option<&str>,
    structure: TextStructure,
    chunking: Chunking,
    is_stopped: &dyn Fn() -> bool,
) -> Option<Vec<Span>> {
    let mut packer = Packer::new(is_stopped);
    for section in sections(body, structure, SECTIONS_MAX) {
        let text_max = chunking.text_max(&embedding_prefix(title, &section.heading, chunking));
        packer.begin_section(&section.heading, text_max, chunking);
        units::push_section(body, &section, &mut packer)?;
        packer.end_section();
        packer.check_stopped()?;
    }
    let mut spans = packer.finish();
    if spans.is_empty() {
        spans.push(Span { start: 0, end: 0, heading: String::new() });
    }
    Some(spans)
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
fn sections(body: &str, structure: TextStructure, sections_max: usize) -> Vec<Section> {
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
        if sections.len() < sections_max
            && let Some((level, title)) = atx_heading(line)
        {
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

/// Byte length of a long prefix of at most `max_tokens` tokens, ending after a space where possible.
fn prefix_len(text: &str, max_tokens: usize) -> usize {
    let mut window = &text[..text.floor_char_boundary(max_tokens.saturating_mul(TOKEN_BYTES_MAX))];
    if let Some(excess_start) = Tokenizer::builtin().start_of(window, max_tokens) {
        window = &window[..excess_start];
    }
    if window.len() == text.len() {
        return text.len();
    }
    let mut len = match window.rfind(char::is_whitespace) {
        Some(space) => space + window[space..].chars().next().map_or(0, char::len_utf8),
        None => window.len(),
    };
    // A part of a word may have more tokens than the whole word, on which the tokenizer's estimate is based.
    while len > 0 && token_cost_within(&text[..len], max_tokens).is_none() {
        len = text.floor_char_boundary(len / 2);
    }
    len.max(text.chars().next().map_or(0, char::len_utf8))
}

/// The size of a text in tokens.
pub(crate) fn token_cost(text: &str) -> usize {
    Tokenizer::builtin().count(text).max(text.len() / TOKEN_BYTES_MAX)
}

/// [`token_cost`] of a text if it is at most `max`. Stops tokenizing as soon as `max` is exceeded.
fn token_cost_within(text: &str, max: usize) -> Option<usize> {
    let least = text.len() / TOKEN_BYTES_MAX;
    if least > max {
        return None;
    }
    let count = Tokenizer::builtin().count_up_to(text, max.saturating_add(1));
    (count <= max).then(|| count.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Chunking = Chunking { max_tokens: 20, overlap_tokens: 6 };

    fn split(body: &str, title: Option<&str>, structure: TextStructure, chunking: Chunking) -> Vec<Span> {
        super::split(body, title, structure, chunking, &|| false).unwrap()
    }

    fn texts(body: &str) -> Vec<(String, String)> {
        split(body, None, TextStructure::Markdown, SMALL)
            .iter()
            .map(|span| (span.heading.clone(), span.of(body).trim().to_owned()))
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
        let spans = split(body, None, TextStructure::Code, SMALL);
        let lines: Vec<_> = spans.iter().map(|span| span.of(body)).collect();
        assert_eq!(lines, body.split_inclusive('\n').collect::<Vec<_>>());
    }

    #[test]
    fn a_text_without_spaces_is_cut_all_the_same() {
        let body = "x".repeat(2_000);
        let spans = split(&body, None, TextStructure::Plain, SMALL);
        assert!(spans.len() > 5);
        assert!(spans.iter().all(|span| token_cost(span.of(&body)) <= SMALL.max_tokens));
    }

    #[test]
    fn an_empty_body_has_one_empty_chunk() {
        assert_eq!(
            split(" \n\n", None, TextStructure::Markdown, SMALL),
            [Span { start: 0, end: 0, heading: String::new() }]
        );
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_too_large(
            body in "([a-zé漢 .\n#`-]|word |\n# H\n|```\n){0,400}",
            structure in prop_oneof![
                Just(TextStructure::Markdown), Just(TextStructure::Plain), Just(TextStructure::Code)
            ],
        ) {
            let spans = split(&body, None, structure, SMALL);
            let mut covered = vec![false; body.len()];
            for span in &spans {
                let text = body.get(span.start..span.end);
                prop_assert!(text.is_some());
                prop_assert!(token_cost(text.unwrap_or_default()) <= SMALL.max_tokens);
                covered[span.start..span.end].fill(true);
            }
            for (index, char) in body.char_indices() {
                prop_assert!(covered[index] || char.is_whitespace(), "lost {char:?} at {index}");
            }
            prop_assert!(spans.windows(2).all(|pair| pair[0].start < pair[1].start || pair[1].start == 0));
        }
    }

    /// Long lines on which the reference implementation takes quadratic time.
    fn long_line_texts() -> Vec<String> {
        let repeated = |piece: &str| piece.repeat(6_000 / piece.len());
        let mut texts: Vec<String> = [
            "x",
            " ",
            "a ",
            "word ",
            "Embedding tokenization ",
            "a.b,",
            "漢",
            "é\u{301} ",
            "\u{1}",
            "a\u{b}",
            "\u{c}",
            "\u{85}b",
            "\u{2028}",
            "\u{200b}\n",
            ". ",
            "。",
            "a. B! C? ",
            "- a\n",
            "| a | b |\n",
            "\u{fdfa} ",
            "가나다",
            "\u{1}\n",
            "zq",
            "0123456789",
            "\t\t\n",
        ]
        .iter()
        .map(|piece| repeated(piece))
        .collect();
        texts.push(format!("{}x", " ".repeat(5_000)));
        texts.push(format!("{}{}", "word ".repeat(500), " ".repeat(5_000)));
        texts.push(format!("a {} b", "x".repeat(5_000)));
        texts.push(format!("```\n{}\n```\nafter {}", "code();\n".repeat(200), "more ".repeat(300)));
        texts
    }

    #[test]
    fn long_lines_are_split_as_by_the_reference() {
        for text in long_line_texts() {
            for structure in [TextStructure::Markdown, TextStructure::Plain, TextStructure::Code] {
                for chunking in [SMALL, Chunking { max_tokens: 64, overlap_tokens: 32 }] {
                    let expected = reference::split(&text, Some("A title"), structure, chunking);
                    let shown = &text[..text.floor_char_boundary(20)];
                    assert_eq!(
                        split(&text, Some("A title"), structure, chunking),
                        expected,
                        "{shown:?} {structure:?}"
                    );
                }
            }
        }
    }

    /// Guards against quadratic time: each body takes about a second now, and took ten minutes before.
    #[test]
    fn the_time_of_a_long_line_is_linear() {
        let chunking = Chunking { max_tokens: 256, overlap_tokens: 32 };
        for piece in ["x", "word ", "a.b,", " ", "漢字"] {
            let body = format!("{}x", piece.repeat((8 << 20) / piece.len()));
            let started = std::time::Instant::now();
            let chunks = split(&body, None, TextStructure::Plain, chunking).len();
            let seconds = started.elapsed().as_secs_f64();
            assert!(chunks > 1_000 && seconds < 60.0, "{piece:?}: {chunks} chunks in {seconds} s");
        }
    }

    #[test]
    fn splitting_stops_when_polled_to() {
        let body = "word. ".repeat(100_000);
        let polls = std::cell::Cell::new(0);
        let stop = || {
            polls.set(polls.get() + 1);
            polls.get() == 3
        };
        assert_eq!(super::split(&body, None, TextStructure::Plain, SMALL, &stop), None);
        assert_eq!(polls.get(), 3);
    }

    #[test]
    fn lines_without_tokens_are_not_repeated_in_every_chunk() {
        let body = "\u{1}\u{b}\u{c}\n".repeat(100_000);
        let spans =
            split(&body, None, TextStructure::Plain, Chunking { max_tokens: 256, overlap_tokens: 32 });
        let bytes: usize = spans.iter().map(|span| span.end - span.start).sum();
        assert!(bytes < body.len() * 2, "{} chunks of {bytes} bytes", spans.len());
    }

    #[test]
    fn many_headings_are_bounded() {
        let long = |level: usize| format!("{} {}\n", "#".repeat(level), "h".repeat(300));
        let body = format!("{}{}", (1..6).map(long).collect::<String>(), "###### a\n".repeat(200_000));
        let spans =
            split(&body, None, TextStructure::Markdown, Chunking { max_tokens: 256, overlap_tokens: 32 });
        let headings: usize = spans.iter().map(|span| span.heading.len()).sum();
        assert!(spans.len() < SECTIONS_MAX + 10_000, "{}", spans.len());
        assert!(headings <= 32 << 20, "{headings}");
        assert_eq!(spans.last().unwrap().end, body.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn chunks_are_those_of_the_reference(
            body in "([a-zé漢 .!?\n#`|-]|word |[A-Z][a-z]{2,12} |\n# H\n|\n\n## [a-z ]{1,30}\n|```\n|- item\n|[0-9]\\. |\u{1}|\u{b}|\u{200b}|[a-z]{90,120}|\t|。|\\. ){0,300}",
            structure in prop_oneof![
                Just(TextStructure::Markdown), Just(TextStructure::Plain), Just(TextStructure::Code)
            ],
            title in prop_oneof![Just(None), Just(Some("Title")), Just(Some("A rather long title of a document"))],
            (max_tokens, overlap_tokens) in prop_oneof![Just((20, 6)), Just((16, 0)), Just((64, 16)), Just((256, 32))],
        ) {
            let chunking = Chunking { max_tokens, overlap_tokens };
            let expected = reference::split(&body, title, structure, chunking);
            prop_assert_eq!(split(&body, title, structure, chunking), expected);
        }

        #[test]
        fn any_text_is_split_between_characters_and_in_order(
            body in any::<String>(),
            structure in prop_oneof![
                Just(TextStructure::Markdown), Just(TextStructure::Plain), Just(TextStructure::Code)
            ],
        ) {
            let spans = split(&body, None, structure, SMALL);
            prop_assert!(spans.iter().all(|span| body.get(span.start..span.end).is_some()));
            prop_assert!(spans.windows(2).all(|pair| pair[0].start < pair[1].start && pair[0].end < pair[1].end));
            prop_assert!(spans.len() <= body.len() + 1);
        }
    }
}
