//! Terminal output as styled lines: reads ANSI colour sequences (SGR) and ignores all others. Long lines wrap between
//! words, which reads better than a terminal's wrapping at any character.

/// Distance of tab stops, in columns.
const TAB_COLUMNS: usize = 8;

/// A colour of the terminal's palette of 16, by number.
pub(super) type PaletteColor = u8;

/// How text is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextStyle {
    /// The default colour if there is none.
    pub(super) color: Option<PaletteColor>,
    pub(super) bold: bool,
    pub(super) faint: bool,
}

/// A part of a line in one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) text: String,
    pub(super) style: TextStyle,
}

/// A line of a terminal.
pub(super) type Line = Vec<Span>;

/// The lines of a program's output, each of at most `columns_max` columns.
pub(super) fn lines(output: &str, columns_max: usize) -> Vec<Line> {
    let mut screen = Screen { columns_max, ..Screen::default() };
    let mut chars = output.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => screen.read_escape(&mut chars),
            '\n' => screen.end_line(),
            '\t' => (width(&screen.line) % TAB_COLUMNS..TAB_COLUMNS).for_each(|_| screen.put(' ')),
            // Overwriting is not emulated: the next text replaces the line.
            '\r' if chars.peek() != Some(&'\n') => screen.line.clear(),
            char if char.is_control() => {}
            char => screen.put(char),
        }
    }
    if !screen.line.is_empty() {
        screen.end_line();
    }
    screen.lines
}

/// The number of columns that a text occupies.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(char_columns).sum()
}

/// The number of columns that a character occupies: 0 for combining and invisible ones, 2 for wide ones.
fn char_columns(char: char) -> usize {
    match u32::from(char) {
        0x0300..=0x036F | 0x200B..=0x200F | 0x20D0..=0x20FF | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F
        | 0x2E80..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1F64F
        | 0x1F680..=0x1F6FF
        | 0x1F900..=0x1F9FF
        | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

/// A character and its style.
type Cell = (char, TextStyle);

fn width(cells: &[Cell]) -> usize {
    cells.iter().map(|(char, _)| char_columns(*char)).sum()
}

#[derive(Default)]
struct Screen {
    columns_max: usize,
    lines: Vec<Line>,
    line: Vec<Cell>,
    style: TextStyle,
}

impl Screen {
    fn put(&mut self, char: char) {
        self.line.push((char, self.style));
    }

    fn end_line(&mut self) {
        let mut rest = std::mem::take(&mut self.line);
        let indent = rest.iter().take_while(|(char, _)| *char == ' ').count().min(self.columns_max / 2);
        while width(&rest) > self.columns_max {
            let mut next = rest.split_off(self.break_before(&rest, indent));
            next.drain(..next.iter().take_while(|(char, _)| *char == ' ').count());
            next.splice(..0, std::iter::repeat_n((' ', TextStyle::default()), indent));
            self.lines.push(spans(&rest));
            rest = next;
        }
        self.lines.push(spans(&rest));
    }

    /// Where to break a line that is too long: at its last space, else where the screen ends.
    fn break_before(&self, cells: &[Cell], indent: usize) -> usize {
        let mut column = 0;
        let fits = cells.iter().take_while(|(char, _)| {
            column += char_columns(*char);
            column <= self.columns_max
        });
        let end = fits.count().max(indent + 1);
        let space = cells.iter().take(end + 1).rposition(|(char, _)| *char == ' ');
        space.filter(|space| *space > indent).unwrap_or(end)
    }

    /// Reads an escape sequence, and applies it if it sets a style.
    fn read_escape(&mut self, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
        match chars.next() {
            Some('[') => {
                let mut parameters = String::new();
                for char in chars.by_ref() {
                    match char {
                        '\u{40}'..='\u{7e}' => {
                            if char == 'm' {
                                self.set_style(&parameters);
                            }
                            return;
                        }
                        char => parameters.push(char),
                    }
                }
            }
            // An operating system command, such as a window title or a link: until BEL or ESC \.
            Some(']') => {
                while let Some(char) = chars.next() {
                    if char == '\u{7}' || char == '\u{1b}' && chars.next_if_eq(&'\\').is_some() {
                        return;
                    }
                }
            }
            _ => {}
        }
    }

    fn set_style(&mut self, parameters: &str) {
        let mut codes = parameters.split(';').map(|code| code.parse::<u16>().unwrap_or(0));
        while let Some(code) = codes.next() {
            let style = &mut self.style;
            match code {
                0 => *style = TextStyle::default(),
                1 => style.bold = true,
                2 => style.faint = true,
                22 => (style.bold, style.faint) = (false, false),
                30..=37 => style.color = Some((code - 30) as PaletteColor),
                90..=97 => style.color = Some((code - 90 + 8) as PaletteColor),
                39 => style.color = None,
                // A colour of 256 or of 16 million; the first 16 of 256 are the palette.
                38 | 48 => {
                    let color = match codes.next() {
                        Some(5) => codes.next().filter(|number| *number < 16),
                        Some(2) => codes.nth(2).and(None),
                        _ => None,
                    };
                    if code == 38 {
                        style.color = color.map(|number| number as PaletteColor);
                    }
                }
                _ => {}
            }
        }
    }
}

/// The cells as spans, without spaces at the end.
fn spans(cells: &[Cell]) -> Line {
    let end = cells.iter().rposition(|(char, _)| *char != ' ').map_or(0, |last| last + 1);
    let spans = cells[..end].chunk_by(|(_, style), (_, next)| style == next);
    spans
        .map(|cells| Span { text: cells.iter().map(|(char, _)| *char).collect(), style: cells[0].1 })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(text: &str, style: TextStyle) -> Span {
        Span { text: text.to_owned(), style }
    }

    fn plain(text: &str) -> Span {
        span(text, TextStyle::default())
    }

    fn texts(output: &str, columns_max: usize) -> Vec<String> {
        let text = |line: Line| line.into_iter().map(|span| span.text).collect();
        lines(output, columns_max).into_iter().map(text).collect()
    }

    #[test]
    fn colours_become_spans() {
        let error = TextStyle { color: Some(1), bold: true, faint: false };
        let read = lines(
            "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m no\n\u{1b}[2mfaint\u{1b}[22m, \u{1b}[96mcyan\u{1b}[39m.",
            80,
        );
        let faint = TextStyle { faint: true, ..TextStyle::default() };
        let cyan = TextStyle { color: Some(14), ..TextStyle::default() };
        let expected = [
            vec![span("error:", error), plain(" no")],
            vec![span("faint", faint), plain(", "), span("cyan", cyan), plain(".")],
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn a_style_lasts_over_lines_and_equal_styles_are_one_span() {
        let green = TextStyle { color: Some(2), ..TextStyle::default() };
        let read = lines("\u{1b}[32ma\u{1b}[32mb\nc\u{1b}[md", 80);
        assert_eq!(read, [vec![span("ab", green)], vec![span("c", green), plain("d")]]);
    }

    #[test]
    fn extended_colours_do_not_shift_the_codes_after_them() {
        let bold = TextStyle { bold: true, ..TextStyle::default() };
        assert_eq!(lines("\u{1b}[38;2;1;2;31;1mx", 80), [[span("x", bold)]]);
        let red = TextStyle { color: Some(9), ..bold };
        assert_eq!(lines("\u{1b}[38;5;9;48;5;4;1mx", 80), [[span("x", red)]]);
    }

    #[test]
    fn other_sequences_and_control_characters_leave_nothing() {
        assert_eq!(texts("\u{1b}[2K\u{1b}]0;title\u{7}a\u{1b}]8;;x\u{1b}\\b\u{1b}7\u{8}c\u{0}", 80), ["abc"]);
        assert_eq!(texts("1 of 9\r2 of 9\rdone\r\nnext", 80), ["done", "next"]);
        assert_eq!(texts("\u{1b}[1", 80), Vec::<String>::new());
    }

    #[test]
    fn lines_wrap_between_words_and_keep_their_indent() {
        assert_eq!(texts("one two three", 8), ["one two", "three"]);
        assert_eq!(texts("one two three", 7), ["one two", "three"]);
        assert_eq!(texts("  one two three", 8), ["  one", "  two", "  three"]);
        assert_eq!(texts("a \u{1b}[1mbold word\u{1b}[0m", 7), ["a bold", "word"]);
    }

    #[test]
    fn long_words_are_broken_and_empty_lines_stay() {
        assert_eq!(texts("abcdef\n\ng \n", 4), ["abcd", "ef", "", "g"]);
        assert_eq!(texts("abcd\n", 4), ["abcd"]);
        assert_eq!(texts("      abcdef", 4), ["", "  ab", "  cd", "  ef"]);
        assert_eq!(texts("a\tb\t\tc", 80), ["a       b               c"]);
    }

    #[test]
    fn wide_characters_take_two_columns_and_combining_ones_none() {
        assert_eq!(columns("日本"), 4);
        assert_eq!(columns("e\u{301}tude ✓ …"), 9);
        assert_eq!(columns("🚀"), 2);
        assert_eq!(texts("ab日本", 5), ["ab日", "本"]);
        assert_eq!(texts("abcde\u{301}f", 5), ["abcde\u{301}", "f"]);
    }
}
