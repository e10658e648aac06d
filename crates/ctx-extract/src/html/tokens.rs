//! HTML tokenizer with bounded stack and memory, whatever the page holds.
//!
//! html5gum recurses once per double-quoted attribute, so that a tag with thousands of them overflows the
//! stack. Each recursion reads a single byte after the closing quote, with its state saved: there the reader
//! returns the error [`InterruptSignal`], which ends the recursion, and [`HtmlTokens`] resumes the tokenizer.
//! Only the attributes in [`KEPT_ATTRIBUTES`] are kept.

use html5gum::emitters::callback::{Callback, CallbackEmitter, CallbackEvent};
use html5gum::{Readable, Reader, Span, StringReader, Tokenizer, naive_next_state};
use std::convert::Infallible;

/// Attributes that the extractor uses; all others are dropped.
const KEPT_ATTRIBUTES: &[&str] =
    &["alt", "aria-hidden", "class", "content", "hidden", "name", "property", "role"];
/// Maximum bytes of an attribute's value; the rest is cut off.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// A start tag.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) name: String,
    pub(super) self_closing: bool,
    attributes: Vec<(&'static str, String)>,
}

impl Tag {
    /// Value of one of the [`KEPT_ATTRIBUTES`].
    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        self.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }
}

/// A token of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HtmlToken {
    StartTag(Tag),
    EndTag(String),
    Text(String),
    /// No token yet: the tokenizer was interrupted inside a tag.
    Pending,
}

/// Iterator over the tokens of a page.
pub(super) struct HtmlTokens<'a> {
    tokenizer: Tokenizer<InterruptingReader<'a>, CallbackEmitter<Collector, HtmlToken>>,
    xml: bool,
}

impl<'a> HtmlTokens<'a> {
    /// `xml`: `<script/>` is an empty element. In HTML it is a start tag.
    pub(super) fn new(page: &'a str, xml: bool) -> Self {
        let mut emitter = CallbackEmitter::new(Collector::default());
        emitter.naively_switch_states(!xml);
        let reader = InterruptingReader { reader: page.to_reader(), is_after_quote: false };
        Self { tokenizer: Tokenizer::new_with_emitter(reader, emitter), xml }
    }
}

impl Iterator for HtmlTokens<'_> {
    type Item = HtmlToken;

    fn next(&mut self) -> Option<HtmlToken> {
        let Ok(token) = self.tokenizer.next()? else { return Some(HtmlToken::Pending) };
        if let HtmlToken::StartTag(tag) = &token
            && self.xml
            && !tag.self_closing
            && let Some(state) = naive_next_state(tag.name.as_bytes())
        {
            self.tokenizer.set_state(state);
        }
        Some(token)
    }
}

/// Reader error that makes the tokenizer return to its caller; the next call resumes where it stopped.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct InterruptSignal;

/// Reader that interrupts the tokenizer once after each double quote that is followed by a single-byte read.
/// Text and attribute values are read in longer runs and are not interrupted.
struct InterruptingReader<'a> {
    reader: StringReader<'a>,
    is_after_quote: bool,
}

impl Reader for InterruptingReader<'_> {
    type Error = InterruptSignal;

    fn read_byte(&mut self) -> Result<Option<u8>, InterruptSignal> {
        if std::mem::take(&mut self.is_after_quote) {
            return Err(InterruptSignal);
        }
        let byte = unwrap_infallible(self.reader.read_byte());
        self.is_after_quote = byte == Some(b'"');
        Ok(byte)
    }

    fn try_read_string(&mut self, needle: &[u8], case_sensitive: bool) -> Result<bool, InterruptSignal> {
        let found = unwrap_infallible(self.reader.try_read_string(needle, case_sensitive));
        self.is_after_quote &= !found;
        Ok(found)
    }

    fn read_until<'b>(
        &'b mut self,
        needle: &[u8],
        buffer: &'b mut [u8; 4],
    ) -> Result<Option<&'b [u8]>, InterruptSignal> {
        let run = unwrap_infallible(self.reader.read_until(needle, buffer));
        self.is_after_quote = run == Some(b"\"");
        Ok(run)
    }
}

fn unwrap_infallible<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
    }
}

/// Assembles tokenizer events into tokens.
#[derive(Default)]
struct Collector {
    tag: Tag,
    /// Whether the current attribute is kept: its value goes to the last of `tag.attributes`.
    keeps_value: bool,
}

impl Callback<HtmlToken, ()> for Collector {
    fn handle_event(&mut self, event: CallbackEvent<'_>, _: Span<()>) -> Option<HtmlToken> {
        match event {
            CallbackEvent::OpenStartTag { name } => self.tag.name = string(name),
            CallbackEvent::AttributeName { name } => {
                let known = KEPT_ATTRIBUTES.iter().find(|known| known.as_bytes() == name);
                // Of duplicate attributes the first counts, as in the HTML standard.
                let new = known.filter(|known| self.tag.attributes.iter().all(|(name, _)| name != *known));
                self.keeps_value = new.is_some();
                self.tag.attributes.extend(new.map(|known| (*known, String::new())));
            }
            CallbackEvent::AttributeValue { value } if self.keeps_value => {
                if let Some((_, last_value)) = self.tag.attributes.last_mut() {
                    let room = VALUE_BYTES_MAX.saturating_sub(last_value.len());
                    last_value.push_str(&string(&value[..value.len().min(room)]));
                }
            }
            CallbackEvent::CloseStartTag { self_closing } => {
                self.tag.self_closing = self_closing;
                return Some(HtmlToken::StartTag(std::mem::take(&mut self.tag)));
            }
            CallbackEvent::EndTag { name } => {
                self.tag.attributes.clear();
                return Some(HtmlToken::EndTag(string(name)));
            }
            CallbackEvent::String { value } => return Some(HtmlToken::Text(string(value))),
            _ => {}
        }
        None
    }
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use html5gum::DefaultEmitter;
    use proptest::prelude::*;

    fn tokens(page: &str) -> Vec<HtmlToken> {
        HtmlTokens::new(page, false).filter(|token| *token != HtmlToken::Pending).collect()
    }

    /// Tokens of the unmodified tokenizer, as the reference; only for pages with few attributes.
    fn reference_tokens(page: &str) -> Vec<HtmlToken> {
        let mut emitter = DefaultEmitter::default();
        emitter.naively_switch_states(true);
        let parts = Tokenizer::new_with_emitter(page, emitter).map(|part| match part {
            Ok(part) => part,
        });
        parts
            .filter_map(|part| match part {
                html5gum::Token::StartTag(tag) => {
                    let attributes = KEPT_ATTRIBUTES.iter().filter_map(|known| {
                        let value = tag.attributes.get(known.as_bytes())?;
                        Some((*known, string(value)))
                    });
                    let attributes = attributes.collect();
                    Some(HtmlToken::StartTag(Tag {
                        name: string(&tag.name),
                        self_closing: tag.self_closing,
                        attributes,
                    }))
                }
                html5gum::Token::EndTag(tag) => Some(HtmlToken::EndTag(string(&tag.name))),
                html5gum::Token::String(text) => Some(HtmlToken::Text(string(&text))),
                _ => None,
            })
            .collect()
    }

    fn sorted(mut tokens: Vec<HtmlToken>) -> Vec<HtmlToken> {
        for token in &mut tokens {
            if let HtmlToken::StartTag(tag) = token {
                tag.attributes.sort();
            }
        }
        tokens
    }

    #[test]
    fn a_tag_with_any_number_of_attributes_needs_no_stack() {
        for attribute in ["a=\"1\" ", "a=\"\"", "a='1' ", "a=1 ", "a ", "a\"=\"\" ", "hidden=\"&amp;\" "] {
            let page = format!("<p {}class=\"last\">text", attribute.repeat(50_000));
            let small = std::thread::Builder::new().stack_size(128 << 10);
            let read = small.spawn(move || tokens(&page)).unwrap().join().unwrap();
            assert_eq!(read.len(), 2, "{attribute}");
            assert_eq!(read[1], HtmlToken::Text("text".to_owned()), "{attribute}");
        }
        let page = format!("</p {}>text", "a=\"1\" ".repeat(50_000));
        assert_eq!(tokens(&page), [HtmlToken::EndTag("p".to_owned()), HtmlToken::Text("text".to_owned())]);
    }

    #[test]
    fn of_a_tag_only_attributes_that_are_asked_for_are_kept() {
        let page = "<IMG src=\"x\" ALT=\"A &quot;chart&quot;\" alt=\"other\" hidden data-a=\"1\"/>";
        let tag = Tag {
            name: "img".to_owned(),
            self_closing: true,
            attributes: vec![("alt", "A \"chart\"".to_owned()), ("hidden", String::new())],
        };
        assert_eq!(tokens(page), [HtmlToken::StartTag(tag)]);
        let page = format!("<p class=\"{}\">", "x".repeat(1 << 20));
        let [HtmlToken::StartTag(tag)] = &*tokens(&page) else { panic!("one tag") };
        assert_eq!(tag.attribute("class").unwrap().len(), VALUE_BYTES_MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn interrupting_changes_nothing(
            page in "(<p|<a |</a|<!--|-->|<!DOCTYPE |PUBLIC |<script>|</script>|<title>|hidden|class|alt|=|\"|'|>|/>| |\n|\r|&quot;|&amp|&|x|é|\0|\\?){0,60}"
        ) {
            prop_assert_eq!(sorted(tokens(&page)), sorted(reference_tokens(&page)));
        }
    }
}
