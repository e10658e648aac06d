//! The units of a section: sentences and lines, split only if one alone exceeds a chunk.

use super::packer::Packer;
use super::{Section, prefix_len, token_cost, token_cost_within};

/// A sentence or line, split only if it alone exceeds a chunk.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) tokens: usize,
    /// How well a chunk can end after this unit.
    pub(super) boundary: UnitBoundary,
}

/// Kind of boundary after a unit, from the worst to the best place to end a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UnitBoundary {
    Sentence,
    ListItem,
    Paragraph,
}

/// Pushes the units of a section into the packer; `None` once it is stopped.
pub(super) fn push_section(body: &str, section: &Section, packer: &mut Packer<'_>) -> Option<()> {
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
        packer.raise_boundary(boundary);
        if line.trim().is_empty() {
            packer.check_stopped()?;
            continue;
        }
        let mut piece_start = start;
        let sentences = (fence.is_none() && !section.is_code).then(|| sentence_ends(line));
        for end in sentences.into_iter().flatten().map(|end| start + end).chain([offset]) {
            push_bounded(body, piece_start, end, packer)?;
            piece_start = end;
        }
        if fence.is_some_and(|fence| fence.end == offset) {
            packer.raise_boundary(UnitBoundary::Paragraph);
        }
    }
    Some(())
}

pub(super) fn is_list_item(line: &str) -> bool {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = match digits {
        0 => line.strip_prefix(['-', '*', '+', '•']),
        1..=9 => line[digits..].strip_prefix(['.', ')']),
        _ => None,
    };
    rest.is_some_and(|rest| rest.starts_with(' '))
}

/// Adds a unit, split into several if it alone exceeds a chunk. Each step tokenizes at most one chunk's worth of the
/// rest, which keeps the time linear.
fn push_bounded(body: &str, start: usize, end: usize, packer: &mut Packer<'_>) -> Option<()> {
    let max_tokens = packer.max_tokens();
    let mut from = start;
    let content_end = start + body[start..end].trim_end().len();
    while from < content_end {
        let text = &body[from..end];
        let (len, tokens) = match token_cost_within(text, max_tokens) {
            Some(tokens) => (text.len(), tokens),
            None => {
                let len = prefix_len(text, max_tokens);
                (len, token_cost(&text[..len]))
            }
        };
        packer.push(Unit { start: from, end: from + len, tokens, boundary: UnitBoundary::Sentence });
        packer.check_stopped()?;
        from += len;
    }
    Some(())
}

/// End offsets of the sentences of a line, without the last.
fn sentence_ends(line: &str) -> impl Iterator<Item = usize> {
    let mut chars = line.char_indices().peekable();
    let ends = std::iter::from_fn(move || {
        while let Some((index, char)) = chars.next() {
            let after = index + char.len_utf8();
            match char {
                '.' | '!' | '?' if chars.peek().is_some_and(|(_, next)| *next == ' ') => {
                    return Some(after + 1);
                }
                '。' | '！' | '？' => return Some(after),
                _ => {}
            }
        }
        None
    });
    ends.filter(|end| *end < line.len())
}
