//! The text of a PDF page: runs the text operators, and joins their text to lines by position.

use super::super::ExtractError;
use super::super::bounds::Bounds;
use super::font::Font;
use lopdf::content::{Content, Operation};
use lopdf::{Dictionary, Document, Error, Object, ObjectId, Stream};
use std::collections::HashMap;
use std::rc::Rc;

/// Maximum unpacked bytes of one page.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// Operations between two checks of the deadline.
const OPERATIONS_PER_CHECK: usize = 1_024;
/// Maximum nesting depth of form XObjects.
const FORM_DEPTH_MAX: usize = 8;
/// Maximum number of saved graphics states.
const SAVED_STATES_MAX: usize = 256;
/// Distances, in font sizes, that separate words, lines and paragraphs.
const WORD_GAP: f32 = 0.2;
const LINE_GAP: f32 = 0.5;
const PARAGRAPH_GAP: f32 = 1.7;
/// Cosine of the largest angle between texts of one line.
const PARALLEL_COSINE_MIN: f32 = 0.99;

/// Reads the pages of a document in order.
pub(super) struct PageReader<'a> {
    document: &'a Document,
    bounds: &'a Bounds,
    /// Fonts by the address of their dictionary, because pages share them.
    fonts: HashMap<usize, Rc<Font<'a>>>,
    /// Remaining budget of unpacked bytes.
    bytes_left: usize,
    is_truncated: bool,
}

impl<'a> PageReader<'a> {
    pub(super) fn new(document: &'a Document, bounds: &'a Bounds) -> Self {
        Self {
            document,
            bounds,
            fonts: HashMap::new(),
            bytes_left: bounds.limits.unpacked_bytes,
            is_truncated: false,
        }
    }

    /// Whether content was left out because of the limit on unpacked bytes.
    pub(super) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// The paragraphs of a page; none if it cannot be read.
    pub(super) fn read(&mut self, page: ObjectId) -> Result<Vec<String>, ExtractError> {
        let content = self.document.get_page_content_with_limit(page, PAGE_BYTES_MAX.min(self.bytes_left));
        let Ok(content) = content else {
            self.is_truncated = true;
            return Ok(Vec::new());
        };
        let mut resources = Vec::new();
        if let Ok((own, inherited)) = self.document.get_page_resources(page) {
            resources.extend(own);
            resources.extend(inherited.into_iter().filter_map(|id| self.document.get_dictionary(id).ok()));
        }
        let mut lines = LineBuilder::default();
        self.run_content(&content, &resources, Matrix::IDENTITY, 0, &mut lines)?;
        Ok(lines.finish())
    }

    fn run_content(
        &mut self,
        content: &[u8],
        resources: &[&'a Dictionary],
        transform: Matrix,
        depth: usize,
        lines: &mut LineBuilder,
    ) -> Result<(), ExtractError> {
        self.bytes_left = self.bytes_left.saturating_sub(content.len());
        let mut state = GraphicsState { transform, ..GraphicsState::default() };
        let mut saved_states: Vec<GraphicsState<'a>> = Vec::new();
        for (count, operation) in Content::decode_iter(content).enumerate() {
            if count % OPERATIONS_PER_CHECK == 0 && self.bounds.is_late() {
                break;
            }
            // An unreadable operation ends the page; the text before it is kept.
            let Ok(Operation { operator, operands }) = operation else { break };
            let number =
                |index: usize| operands.get(index).and_then(|operand| operand.as_float().ok()).unwrap_or(0.0);
            let matrix = || Matrix(std::array::from_fn(number));
            match operator.as_str() {
                "q" if saved_states.len() < SAVED_STATES_MAX => saved_states.push(state.clone()),
                "Q" => state = saved_states.pop().unwrap_or(state),
                "cm" => state.transform = matrix().concat(state.transform),
                "BT" => state.set_line_matrix(Matrix::IDENTITY),
                "Tf" => {
                    let name = operands.first().and_then(|name| name.as_name().ok()).unwrap_or_default();
                    state.font = self.font(name, resources);
                    state.size = number(1);
                }
                "TL" => state.leading = number(0),
                "Tc" => state.char_spacing = number(0),
                "Tw" => state.word_spacing = number(0),
                "Td" => state.move_line(number(0), number(1)),
                "TD" => {
                    state.leading = -number(1);
                    state.move_line(number(0), number(1));
                }
                "Tm" => state.set_line_matrix(matrix()),
                "T*" => state.move_line(0.0, -state.leading),
                "Tj" | "TJ" => state.show_strings(&operands, lines),
                "'" => {
                    state.move_line(0.0, -state.leading);
                    state.show_strings(&operands, lines);
                }
                "\"" => {
                    (state.word_spacing, state.char_spacing) = (number(0), number(1));
                    state.move_line(0.0, -state.leading);
                    state.show_strings(operands.get(2..).unwrap_or_default(), lines);
                }
                "Do" if depth < FORM_DEPTH_MAX => {
                    let name = operands.first().and_then(|name| name.as_name().ok()).unwrap_or_default();
                    if let Some(form) = self.form(name, resources) {
                        self.run_form(form, resources, state.transform, depth + 1, lines)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn run_form(
        &mut self,
        form: &'a Stream,
        resources: &[&'a Dictionary],
        transform: Matrix,
        depth: usize,
        lines: &mut LineBuilder,
    ) -> Result<(), ExtractError> {
        self.bounds.check_time()?;
        let content = match form.get_plain_content_with_limit(PAGE_BYTES_MAX.min(self.bytes_left)) {
            Ok(content) => content,
            Err(error) => {
                self.is_truncated |= matches!(error, Error::Decompress(_));
                return Ok(());
            }
        };
        let own = form.dict.get_deref(b"Resources", self.document).and_then(Object::as_dict).ok();
        let resources: Vec<_> =
            own.into_iter().chain(resources.iter().copied()).take(FORM_DEPTH_MAX * 2).collect();
        let matrix = form.dict.get_deref(b"Matrix", self.document).and_then(Object::as_array).ok();
        let transform = match matrix.map(Vec::as_slice) {
            Some(numbers @ [_, _, _, _, _, _]) => {
                Matrix(std::array::from_fn(|index| numbers[index].as_float().unwrap_or(0.0)))
                    .concat(transform)
            }
            _ => transform,
        };
        self.run_content(&content, &resources, transform, depth, lines)
    }

    fn resource(&self, kind: &[u8], name: &[u8], resources: &[&'a Dictionary]) -> Option<&'a Object> {
        resources.iter().find_map(|resources| {
            let named = resources.get_deref(kind, self.document).ok()?.as_dict().ok()?;
            named.get_deref(name, self.document).ok()
        })
    }

    fn form(&self, name: &[u8], resources: &[&'a Dictionary]) -> Option<&'a Stream> {
        let stream = self.resource(b"XObject", name, resources)?.as_stream().ok()?;
        let is_form = stream.dict.get(b"Subtype").and_then(Object::as_name).is_ok_and(|name| name == b"Form");
        is_form.then_some(stream)
    }

    fn font(&mut self, name: &[u8], resources: &[&'a Dictionary]) -> Option<Rc<Font<'a>>> {
        let font = self.resource(b"Font", name, resources)?.as_dict().ok()?;
        let document = self.document;
        let known = self.fonts.entry(std::ptr::from_ref(font).addr());
        Some(known.or_insert_with(|| Rc::new(Font::read(font, document))).clone())
    }
}

/// An affine transformation as six numbers, as in PDF.
#[derive(Clone, Copy)]
struct Matrix([f32; 6]);

impl Matrix {
    const IDENTITY: Self = Self([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);

    /// Concatenation: applies `self` first, then the other.
    fn concat(self, Self([a, b, c, d, e, f]): Self) -> Self {
        let [p, q, r, s, x, y] = self.0;
        Self([
            p * a + q * c,
            p * b + q * d,
            r * a + s * c,
            r * b + s * d,
            x * a + y * c + e,
            x * b + y * d + f,
        ])
    }
}

/// The graphics and text state of PDF.
#[derive(Clone)]
struct GraphicsState<'a> {
    /// The current transformation matrix.
    transform: Matrix,
    /// The text line matrix, and the text matrix.
    line: Matrix,
    text: Matrix,
    font: Option<Rc<Font<'a>>>,
    size: f32,
    leading: f32,
    /// Added after every character, and after every space.
    char_spacing: f32,
    word_spacing: f32,
}

impl Default for GraphicsState<'_> {
    fn default() -> Self {
        Self {
            transform: Matrix::IDENTITY,
            line: Matrix::IDENTITY,
            text: Matrix::IDENTITY,
            font: None,
            size: 1.0,
            leading: 0.0,
            char_spacing: 0.0,
            word_spacing: 0.0,
        }
    }
}

impl GraphicsState<'_> {
    fn set_line_matrix(&mut self, matrix: Matrix) {
        (self.line, self.text) = (matrix, matrix);
    }

    fn move_line(&mut self, x: f32, y: f32) {
        self.set_line_matrix(Matrix([1.0, 0.0, 0.0, 1.0, x, y]).concat(self.line));
    }

    /// Shows strings; numbers between them move the position back by thousandths of the font size.
    fn show_strings(&mut self, operands: &[Object], lines: &mut LineBuilder) {
        for operand in operands {
            match operand {
                Object::String(bytes, _) => self.show_text(bytes, lines),
                Object::Array(parts) => self.show_strings(parts, lines),
                other => {
                    if let Ok(adjustment) = other.as_float() {
                        self.advance(-adjustment);
                    }
                }
            }
        }
    }

    fn show_text(&mut self, bytes: &[u8], lines: &mut LineBuilder) {
        let Some(font) = self.font.clone() else { return };
        let (text, width) = font.decode(bytes);
        let matrix = self.text.concat(self.transform);
        let [_, _, c, d, ..] = matrix.0;
        let size = (self.size * c.hypot(d)).abs();
        let baseline = Baseline::of(matrix);
        lines.add(&text, baseline, size, width.is_some());
        self.advance(width.unwrap_or_else(|| Font::estimated_width(&text)));
        let count = |chars: usize, spacing: f32| chars as f32 * spacing;
        let spacing = count(text.chars().count(), self.char_spacing)
            + count(text.matches(' ').count(), self.word_spacing);
        self.text = Matrix([1.0, 0.0, 0.0, 1.0, spacing, 0.0]).concat(self.text);
        lines.set_end(baseline.along(self.text.concat(self.transform)));
    }

    fn advance(&mut self, thousandths: f32) {
        self.text = Matrix([1.0, 0.0, 0.0, 1.0, thousandths / 1000.0 * self.size, 0.0]).concat(self.text);
    }
}

/// The direction of a text on the page, and the position of its begin along and across it: rotated text has lines, too.
#[derive(Clone, Copy)]
struct Baseline {
    direction: (f32, f32),
    x: f32,
    y: f32,
}

impl Baseline {
    fn of(matrix: Matrix) -> Self {
        let [a, b, _, _, x, y] = matrix.0;
        let length = a.hypot(b);
        let (a, b) = if length.is_normal() { (a / length, b / length) } else { (1.0, 0.0) };
        Self { direction: (a, b), x: x * a + y * b, y: y * a - x * b }
    }

    /// The position of a matrix along this baseline.
    fn along(self, Matrix([_, _, _, _, x, y]): Matrix) -> f32 {
        let (a, b) = self.direction;
        x * a + y * b
    }

    fn is_parallel(self, (a, b): (f32, f32)) -> bool {
        self.direction.0 * a + self.direction.1 * b > PARALLEL_COSINE_MIN
    }
}

/// Joins texts to lines and paragraphs, by position.
#[derive(Default)]
struct LineBuilder {
    paragraphs: Vec<String>,
    paragraph: String,
    /// The end of the last text, and whether its width is known rather than estimated.
    last: Option<Baseline>,
    is_width_known: bool,
}

impl LineBuilder {
    fn add(&mut self, text: &str, baseline: Baseline, size: f32, is_width_known: bool) {
        if text.is_empty() {
            return;
        }
        let size = if size.is_finite() && size > 0.0 { size } else { 1.0 };
        if let Some(last) = self.last {
            let down = last.y - baseline.y;
            if !baseline.is_parallel(last.direction) {
                self.end_paragraph();
            } else if down.abs() < LINE_GAP * size {
                let gap = baseline.x - last.x;
                let is_apart =
                    if self.is_width_known { gap.abs() > WORD_GAP * size } else { gap.abs() > f32::EPSILON };
                if is_apart && !self.paragraph.ends_with(char::is_whitespace) && !text.starts_with(' ') {
                    self.paragraph.push(' ');
                }
            } else if down > 0.0 && down < PARAGRAPH_GAP * size {
                self.end_line(text);
            } else {
                self.end_paragraph();
            }
        }
        self.paragraph.extend(text.chars().filter(|char| !char.is_control()));
        self.last = Some(baseline);
        self.is_width_known = is_width_known;
    }

    fn set_end(&mut self, x: f32) {
        if let Some(last) = &mut self.last {
            last.x = x;
        }
    }

    /// Ends a line; joins a word that was hyphenated at its end.
    fn end_line(&mut self, next: &str) {
        let line = self.paragraph.trim_end();
        let cut = line.strip_suffix(['-', '\u{ad}', '\u{2010}']);
        match cut.filter(|word| word.ends_with(char::is_lowercase) && next.starts_with(char::is_lowercase)) {
            Some(word) => self.paragraph.truncate(word.len()),
            None => {
                self.paragraph.truncate(line.len());
                self.paragraph.push('\n');
            }
        }
    }

    fn end_paragraph(&mut self) {
        let paragraph = std::mem::take(&mut self.paragraph);
        if !paragraph.trim().is_empty() {
            self.paragraphs.push(paragraph.replace('\u{ad}', ""));
        }
    }

    fn finish(mut self) -> Vec<String> {
        self.end_paragraph();
        self.paragraphs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RawDocument, hostile, samples};
    use lopdf::dictionary;

    /// The text that these operators show, in a font of size 10 whose characters are 5 wide.
    fn page_text(operators: &str) -> String {
        let content = Stream::new(Dictionary::new(), format!("BT /F 10 Tf {operators} ET").into_bytes());
        let bytes = hostile::pdf(content, |document| {
            let font = dictionary! {
                "Type" => "Font", "Subtype" => "Type1", "BaseFont" => "Helvetica", "FirstChar" => 32,
                "LastChar" => 100, "Widths" => vec![Object::Integer(500); 69],
            };
            document.objects.insert((4, 0), font.into());
        });
        samples::extract(RawDocument::new(bytes, "a.pdf", None)).unwrap().body
    }

    #[test]
    fn rotated_text_has_words_and_lines() {
        let text = "(ab) Tj (cd) Tj 15 0 Td (a) Tj -15 -12 Td (b) Tj";
        for matrix in ["1 0 0 1", "0 1 -1 0", "0 -1 1 0", "-1 0 0 -1"] {
            assert_eq!(page_text(&format!("{matrix} 100 100 Tm {text}")), "abcd a\nb\n", "{matrix}");
        }
        assert_eq!(page_text("(a) Tj 0 1 -1 0 5 0 Tm (b) Tj"), "a\n\nb\n");
    }

    #[test]
    fn spaced_characters_are_one_word() {
        assert_eq!(page_text("5 Tc (ab) Tj 20 0 Td (cd) Tj"), "abcd\n");
        assert_eq!(page_text("5 Tc (ab) Tj 25 0 Td (cd) Tj"), "ab cd\n");
        assert_eq!(page_text("9 Tw (a b) Tj 24 0 Td (c) Tj"), "a bc\n");
    }
}
