//! A terminal session as an SVG: a window in which commands are typed and answered.
//!
//! The picture itself shows the last screen. Where motion is welcome, CSS first plays the session once: each line
//! appears in its turn, commands letter by letter, and the text scrolls.

use super::ansi::{Line, Span, TextStyle, columns};
use super::svg::{escaped, number};

/// Size of the screen, in characters.
pub(super) const COLUMNS: usize = 100;
const ROWS: usize = 33;

/// Width of a character and height of a line, in pixels, at the size of the font.
const ADVANCE: f64 = 8.4;
const LINE_HEIGHT: f64 = 20.0;
const FONT_SIZE: f64 = 14.0;
/// From the top of a line to its baseline.
const BASELINE: f64 = 14.5;
const PADDING: f64 = 20.0;
const TITLE_BAR: f64 = 38.0;

/// Seconds: before a command is typed, for each of its characters, between a command and its output, and to read the
/// output, for each line and in all.
const BEFORE_COMMAND: f64 = 0.5;
const TYPED_CHARACTER: f64 = 0.03;
const BEFORE_OUTPUT: f64 = 0.4;
const READ_LINE: f64 = 0.18;
const READ_MIN: f64 = 1.0;
const READ_MAX: f64 = 3.5;

/// The colours of the palette, legible on the window's background.
const PALETTE: [&str; 16] = [
    "#6e7681", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#d1d7e0", "#8b949e",
    "#ffa198", "#aff5b4", "#f2cc60", "#a5d6ff", "#e2c5ff", "#b3f0ff", "#ffffff",
];

const PROMPT_STYLE: TextStyle = TextStyle { color: None, bold: false, faint: true };
const COMMAND_STYLE: TextStyle = TextStyle { color: Some(10), bold: true, faint: false };

/// A command and its output.
pub(super) struct Exchange {
    pub(super) command: String,
    pub(super) output: Vec<Line>,
}

/// The picture of a session.
pub(super) fn draw(title: &str, description: &str, session: &[Exchange]) -> String {
    let lines = timed_lines(session);
    let hidden = lines.len().saturating_sub(ROWS);
    let rows = lines.len().min(ROWS);
    let (width, height) =
        (COLUMNS as f64 * ADVANCE + 2.0 * PADDING, TITLE_BAR + rows as f64 * LINE_HEIGHT + 2.0 * PADDING);
    let screen = number(rows as f64 * LINE_HEIGHT + PADDING);
    let (w, h) = (number(width), number(height));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" role=\"img\" \
         aria-labelledby=\"t d\">\n<title id=\"t\">{}</title>\n<desc id=\"d\">{}</desc>\n<style>\n{}</style>\n",
        escaped(title),
        escaped(description),
        style(&lines, hidden),
    );
    svg.push_str(&format!(
        "<clipPath id=\"screen\"><rect y=\"{}\" width=\"{w}\" height=\"{screen}\"/></clipPath>\n\
         <rect x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"10\" fill=\"#161b22\" stroke=\"#444c56\"/>\n\
         <circle cx=\"22\" cy=\"20\" r=\"6\" fill=\"#ff5f56\"/><circle cx=\"42\" cy=\"20\" r=\"6\" fill=\"#ffbd2e\"/>\
         <circle cx=\"62\" cy=\"20\" r=\"6\" fill=\"#27c93f\"/>\n\
         <text class=\"f\" x=\"{}\" y=\"25\" text-anchor=\"middle\">{}</text>\n\
         <g clip-path=\"url(#screen)\"><g class=\"s\" transform=\"translate({} {})\">\n",
        number(top()),
        number(width - 1.0),
        number(height - 1.0),
        number(width / 2.0),
        escaped(title),
        number(PADDING),
        number(top() - hidden as f64 * LINE_HEIGHT),
    ));
    for (row, line) in lines.iter().enumerate() {
        svg.push_str(&draw_line(row, line));
    }
    svg.push_str("</g></g>\n</svg>\n");
    svg
}

fn top() -> f64 {
    TITLE_BAR + PADDING
}

/// A line of the session, and when it appears.
struct TimedLine {
    line: Line,
    at: f64,
    /// Absent for a line of output.
    typing: Option<Typing>,
}

/// When a command is typed, after its prompt.
#[derive(Clone, Copy)]
struct Typing {
    at: f64,
    seconds: f64,
}

/// The lines of a session in their order, each with the time when it appears.
fn timed_lines(session: &[Exchange]) -> Vec<TimedLine> {
    let mut lines = Vec::new();
    let mut clock = 0.0;
    for Exchange { command, output } in session {
        if !lines.is_empty() {
            lines.push(TimedLine { line: Vec::new(), at: clock, typing: None });
        }
        let typing =
            Typing { at: clock + BEFORE_COMMAND, seconds: columns(command) as f64 * TYPED_CHARACTER };
        let prompt = Span { text: "$ ".to_owned(), style: PROMPT_STYLE };
        let command = Span { text: command.clone(), style: COMMAND_STYLE };
        lines.push(TimedLine { line: vec![prompt, command], at: clock, typing: Some(typing) });
        clock = typing.at + typing.seconds + BEFORE_OUTPUT;
        lines.extend(output.iter().map(|line| TimedLine { line: line.clone(), at: clock, typing: None }));
        clock += (output.len() as f64 * READ_LINE).clamp(READ_MIN, READ_MAX);
    }
    lines
}

/// The style sheet: colours, and the animation for those who have not asked for less motion.
fn style(lines: &[TimedLine], hidden: usize) -> String {
    let mut css = format!(
        "text{{font:{FONT_SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{}}}\n\
         .b{{font-weight:600;fill:#f0f6fc}}\n.f{{fill:#9198a1}}\n",
        PALETTE[7]
    );
    for (number, color) in PALETTE.iter().enumerate().filter(|(number, _)| uses(lines, *number)) {
        css.push_str(&format!(".c{number}{{fill:{color}}}\n"));
    }
    css.push_str(
        "@media (prefers-reduced-motion:no-preference){\n@keyframes show{from{opacity:0}}\n\
         @keyframes type{from{clip-path:inset(0 100% 0 0)}to{clip-path:inset(0)}}\n.l{animation:show 1ms both}\n",
    );
    css.push_str(&scrolling(lines, hidden));
    css.push_str("}\n");
    css
}

fn uses(lines: &[TimedLine], number: usize) -> bool {
    let mut spans = lines.iter().flat_map(|line| &line.line);
    spans.any(|span| span.style.color.map(usize::from) == Some(number))
}

/// The animation that keeps the newest line on the screen; it ends where the picture without animation is.
fn scrolling(lines: &[TimedLine], hidden: usize) -> String {
    let end = lines.last().map_or(0.0, |line| line.at);
    if hidden == 0 || end == 0.0 {
        return String::new();
    }
    let mut frames = String::new();
    let mut moved = 0;
    // Lines that appear together scroll together; `hidden + ROWS` is the number of lines.
    for group in lines.chunk_by(|line, next| line.at == next.at) {
        moved += group.len();
        let above = moved.saturating_sub(ROWS);
        let percent = number(group[0].at / end * 100.0);
        let y = number(top() - above as f64 * LINE_HEIGHT);
        frames.push_str(&format!("{percent}%{{transform:translate({}px,{y}px)}}", number(PADDING)));
    }
    let first = format!("0%{{transform:translate({}px,{}px)}}", number(PADDING), number(top()));
    format!("@keyframes scroll{{{first}{frames}}}\n.s{{animation:scroll {}s step-end both}}\n", number(end))
}

fn draw_line(row: usize, line: &TimedLine) -> String {
    let mut texts = String::new();
    let mut column = 0;
    for (place, span) in line.line.iter().enumerate() {
        let typing = line.typing.filter(|_| place > 0);
        for (start, text) in chunks(&span.text) {
            texts.push_str(&draw_text(row, column + start, text, span.style, typing));
        }
        column += columns(&span.text);
    }
    if texts.is_empty() {
        return texts;
    }
    format!("<g class=\"l\" style=\"animation-delay:{}s\">{texts}</g>\n", number(line.at))
}

/// The parts of a text between two or more spaces, each with its column: a position keeps its distance to others
/// where spaces would be collapsed.
fn chunks(text: &str) -> Vec<(usize, &str)> {
    let mut chunks = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let spaces = text[start..].bytes().take_while(|byte| *byte == b' ').count();
        start += spaces;
        let end = text[start..].find("  ").map_or(text.len(), |length| start + length);
        let chunk = text[start..end].trim_end_matches(' ');
        if !chunk.is_empty() {
            chunks.push((columns(&text[..start]), chunk));
        }
        start = end;
    }
    chunks
}

/// A text with its width, so that columns are aligned whatever font there is.
fn draw_text(row: usize, column: usize, text: &str, style: TextStyle, typing: Option<Typing>) -> String {
    let mut classes = Vec::new();
    if style.bold {
        classes.push("b".to_owned());
    }
    if style.faint {
        classes.push("f".to_owned());
    }
    classes.extend(style.color.map(|color| format!("c{color}")));
    let mut attributes =
        if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) };
    let columns_wide = columns(text);
    if let Some(Typing { at, seconds }) = typing {
        let (at, seconds) = (number(at), number(seconds));
        attributes
            .push_str(&format!(" style=\"animation:type {seconds}s steps({columns_wide}) {at}s both\""));
    }
    format!(
        "<text{attributes} x=\"{}\" y=\"{}\" textLength=\"{}\">{}</text>",
        number(column as f64 * ADVANCE),
        number(row as f64 * LINE_HEIGHT + BASELINE),
        number(columns_wide as f64 * ADVANCE),
        escaped(text),
    )
}

#[cfg(test)]
mod tests {
    use super::super::ansi;
    use super::*;

    fn session(outputs: &[&str]) -> Vec<Exchange> {
        let exchange =
            |output: &&str| Exchange { command: "ctx".to_owned(), output: ansi::lines(output, COLUMNS) };
        outputs.iter().map(exchange).collect()
    }

    fn drawn(output: &str) -> String {
        draw("a & b", "c", &session(&[output]))
    }

    #[test]
    fn text_is_escaped_and_has_its_colour_and_width() {
        let svg = drawn("\u{1b}[1m\u{1b}[31m<b>&\u{1b}[0m  \u{1b}[2mx\u{1b}[0m\n");
        let red = "<text class=\"b c1\" x=\"0\" y=\"34.5\" textLength=\"33.6\">&lt;b&gt;&amp;</text>";
        let faint = "<text class=\"f\" x=\"50.4\" y=\"34.5\" textLength=\"8.4\">x</text>";
        assert!(svg.contains(&format!("{red}{faint}</g>")), "{svg}");
        assert!(svg.contains(".c1{fill:#ff7b72}") && !svg.contains(".c2{"), "only the colours in use");
        assert!(svg.contains("<title id=\"t\">a &amp; b</title>"), "{svg}");
    }

    #[test]
    fn columns_keep_their_places() {
        assert_eq!(chunks("  a b   c  "), [(2, "a b"), (8, "c")]);
        assert_eq!(chunks("日本  x"), [(0, "日本"), (6, "x")]);
        assert_eq!(chunks("   "), []);
        assert!(drawn("日本  x").contains("textLength=\"33.6\">日本</text><text x=\"50.4\""));
    }

    #[test]
    fn the_picture_shows_the_last_screen() {
        let svg = drawn(&"line\n".repeat(ROWS + 4));
        let hidden = 5.0 * LINE_HEIGHT;
        let (x, y) = (number(PADDING), number(top() - hidden));
        assert!(svg.contains(&format!("transform=\"translate({x} {y})\"")), "{svg}");
        assert!(svg.contains(&format!("100%{{transform:translate({x}px,{y}px)}}")), "ends the same");
        let short = drawn("line\n");
        assert!(!short.contains("scroll"), "{short}");
        assert!(short.contains(&format!("translate({x} {})", number(top()))), "{short}");
    }

    #[test]
    fn nothing_moves_unless_motion_is_welcome() {
        let svg = draw("a", "b", &session(&["x\n", "y\n"]));
        let (before, after) = svg.split_once("@media (prefers-reduced-motion:no-preference){").unwrap();
        assert!(!before.contains("animation"), "{before}");
        let (inside, after) = after.split_once("\n}\n").unwrap();
        assert!(inside.contains("@keyframes show") && inside.contains(".l{animation:show"), "{inside}");
        assert!(!after.contains("@keyframes"), "{after}");
    }
}
