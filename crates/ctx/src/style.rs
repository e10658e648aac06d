//! Terminal colour: whether to use it, and the styles.
//!
//! Precedence: `--color`, then `NO_COLOR`, `CLICOLOR_FORCE` and `CLICOLOR`, then whether the stream is a
//! terminal. JSON is never coloured.

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use std::borrow::Cow;
use std::ffi::OsString;
use std::io;
use std::ops::Range;

pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const HINT: Style = AnsiColor::Cyan.on_default();
pub(crate) const OK: Style = AnsiColor::Green.on_default();
pub(crate) const TITLE: Style = Style::new().bold();
pub(crate) const MATCH: Style = AnsiColor::Yellow.on_default().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Reads `--color` before the arguments are parsed, so that it also applies to clap's own output. An invalid
/// value is left for clap to report.
pub(crate) fn apply_color_option(arguments: &[OsString]) {
    let mut arguments = arguments.iter().map_while(|argument| argument.to_str().filter(|text| *text != "--"));
    let mut choice = None;
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--color") {
            Some("") => arguments.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        choice = value.or(choice);
    }
    match choice {
        Some("always") => ColorChoice::Always.write_global(),
        Some("never") => ColorChoice::Never.write_global(),
        _ => {}
    }
}

/// Whether the log on stderr has colour.
pub(crate) fn stderr_has_color() -> bool {
    Painter::stderr().color
}

/// Applies styles if colour is enabled. All text that is printed beside styled text must go through it: text
/// of documents is untrusted, and its escape sequences must not control the terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Painter {
    color: bool,
    /// Whether to remove control characters: the stream is a terminal, or has colour like one.
    strips_control: bool,
}

impl Painter {
    pub(crate) fn stdout() -> Self {
        Self::of(&io::stdout())
    }

    /// For JSON, which is never coloured.
    pub(crate) fn colorless_stdout() -> Self {
        Self { color: false, strips_control: io::IsTerminal::is_terminal(&io::stdout()) }
    }

    pub(crate) fn stderr() -> Self {
        // Programs do not parse stderr, so it is always guarded.
        Self { strips_control: true, ..Self::of(&io::stderr()) }
    }

    fn of(stream: &impl RawStream) -> Self {
        let color = AutoStream::choice(stream) != ColorChoice::Never;
        Self { color, strips_control: color || stream.is_terminal() }
    }

    /// The text without control characters.
    pub(crate) fn plain(self, text: &str) -> Cow<'_, str> {
        if self.strips_control { replace_control_characters(text) } else { Cow::Borrowed(text) }
    }

    /// The text in a style, without control characters.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        let text = self.plain(text);
        if self.color && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.into_owned() }
    }

    /// The text in a style, with these parts highlighted.
    pub(crate) fn highlight(self, style: Style, text: &str, parts: &[Range<usize>]) -> String {
        let mut shown = String::new();
        let mut end = 0;
        for part in parts {
            shown.push_str(&self.paint(style, &text[end..part.start]));
            shown.push_str(&self.paint(MATCH, &text[part.clone()]));
            end = part.end;
        }
        shown + &self.paint(style, &text[end..])
    }
}

/// Replaces control characters, which could control the terminal.
fn replace_control_characters(text: &str) -> Cow<'_, str> {
    let is_unsafe = |char: char| char.is_control() && char != '\n' && char != '\t';
    if text.contains(is_unsafe) {
        Cow::Owned(text.replace(is_unsafe, "\u{FFFD}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLOURED: Painter = Painter { color: true, strips_control: true };

    #[test]
    fn control_characters_of_documents_are_replaced() {
        assert_eq!(
            replace_control_characters("a\u{1b}]0;title\u{7}b\n\tc"),
            "a\u{FFFD}]0;title\u{FFFD}b\n\tc"
        );
        assert!(matches!(replace_control_characters("plain\ntext"), Cow::Borrowed(_)));
        assert_eq!(COLOURED.paint(TITLE, "\u{1b}[2J"), "\u{1b}[1m\u{FFFD}[2J\u{1b}[0m");
    }

    #[test]
    fn parts_are_highlighted_and_nothing_else_changes() {
        let shown = COLOURED.highlight(Style::new(), "push the button", &[0..4, 9..15]);
        assert_eq!(shown, "\u{1b}[1m\u{1b}[33mpush\u{1b}[0m the \u{1b}[1m\u{1b}[33mbutton\u{1b}[0m");
        let plain = Painter { color: false, strips_control: false };
        assert_eq!(plain.highlight(TITLE, "push the button", &[0..4, 9..15]), "push the button");
    }
}
