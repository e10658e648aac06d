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
        let [_, _, c, d, x, y] = self.text.concat(self.transform).0;
        let size = (self.size * c.hypot(d)).abs();
        lines.add(&text, x, y, size, width.is_some());
        self.advance(width.unwrap_or_else(|| Font::estimated_width(&text)));
        lines.set_end(self.text.concat(self.transform).0[4]);
    }

    fn advance(&mut self, thousandths: f32) {
        self.text = Matrix([1.0, 0.0, 0.0, 1.0, thousandths / 1000.0 * self.size, 0.0]).concat(self.text);
    }
}

/// Joins texts to lines and paragraphs, by position.
#[derive(Default)]
struct LineBuilder {
    paragraphs: Vec<String>,
    paragraph: String,
    /// The end of the last text, and whether its width is known rather than estimated.
    last: Option<(f32, f32)>,
    is_width_known: bool,
}

impl LineBuilder {
    fn add(&mut self, text: &str, x: f32, y: f32, size: f32, is_width_known: bool) {
        if text.is_empty() {
            return;
        }
        let size = if size.is_finite() && size > 0.0 { size } else { 1.0 };
        if let Some((last_x, last_y)) = self.last {
            let down = last_y - y;
            if down.abs() < LINE_GAP * size {
                let gap = x - last_x;
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
        self.last = Some((x, y));
        self.is_width_known = is_width_known;
    }

    fn set_end(&mut self, x: f32) {
        if let Some((last_x, _)) = &mut self.last {
            *last_x = x;
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
