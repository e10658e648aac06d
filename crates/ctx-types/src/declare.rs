//! Declarations of functions as Luau text: the signature on one line, or everything that is known.

use crate::function::Function;
use crate::model::{Field, NamedType, Type};
use crate::notes::to_single_line;
use crate::print::{multi_line, one_line_within};
use std::fmt::Write as _;

/// Approximate maximum length of a signature.
const SIGNATURE_MAX: usize = 2_000;

/// Approximate maximum length of a function's arguments in its declaration.
const ARGUMENTS_MAX: usize = 8_000;

/// Approximate maximum length of the declaration of one type.
const TYPE_MAX: usize = 8_000;

/// Approximate maximum length of a declaration with all its types.
const DECLARATION_MAX: usize = 32_000;

/// Maximum number of lines of a function's description.
const DESCRIPTION_LINES_MAX: usize = 40;

/// Maximum characters of one such line.
const DESCRIPTION_LINE_MAX: usize = 500;

/// Maximum number of lines about parameters, and about the result.
const NOTES_MAX: usize = 100;

/// Maximum number of omitted types that are named.
const LEFT_OUT_NAMED_MAX: usize = 20;

impl Function {
    /// The signature on one line: `create_issue(params: { title: string, body: string? }): Issue`.
    pub fn signature(&self) -> String {
        self.signature_within(SIGNATURE_MAX)
    }

    fn signature_within(&self, bytes_max: usize) -> String {
        let mut text = format!("{}(", self.name.tool());
        for (index, argument) in self.arguments.iter().enumerate() {
            let between = if index == 0 { "" } else { ", " };
            let optional =
                if argument.required { &argument.luau_type } else { &optional(&argument.luau_type) };
            let _ = write!(text, "{between}{}: {}", argument.name, one_line_within(optional, bytes_max));
        }
        let _ = write!(text, "): {}", one_line_within(&self.result, bytes_max));
        text
    }

    /// The full declaration in Luau: description, parameters, signature, and each type that it refers to, once, nearest
    /// first. What exceeds the limits is named at the end.
    pub fn declaration(&self) -> String {
        let mut text = String::new();
        write_doc_comments(self, &mut text);
        let _ = writeln!(
            text,
            "function sdk.{}.{} end",
            self.name.provider(),
            self.signature_within(ARGUMENTS_MAX)
        );
        let mut left_out: Vec<&str> = Vec::new();
        for named in self.types.iter() {
            if text.len() < DECLARATION_MAX {
                text.push('\n');
                write_type(&mut text, named);
            } else {
                left_out.push(&named.name);
            }
        }
        if !left_out.is_empty() {
            let shown = left_out.iter().take(LEFT_OUT_NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
            let more = if left_out.len() > LEFT_OUT_NAMED_MAX { ", …" } else { "" };
            text.push('\n');
            comment(&mut text, &format!("{} more types are left out here: {shown}{more}", left_out.len()));
        }
        if self.left_out > 0 {
            text.push('\n');
            comment(
                &mut text,
                &format!(
                    "{} parts of its schema are too large or too deep, and typed `any` here.",
                    self.left_out
                ),
            );
        }
        text
    }

    /// The declaration of one of its types, such as one that a full declaration omits.
    pub fn type_declaration(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        write_type(&mut text, self.types.get(name)?);
        Some(text)
    }

    fn write_notes(&self, text: &mut String) {
        let mut input_notes = FieldNotes { all: Vec::new(), is_input: true };
        for argument in &self.arguments {
            if argument.is_body {
                input_notes.add(&argument.name, argument.notes.line());
                input_notes.add_fields(&argument.luau_type, &argument.name);
            } else {
                input_notes.add_fields(&argument.luau_type, "");
            }
        }
        input_notes.write(text, "@param");
        let mut output_notes = FieldNotes { all: Vec::new(), is_input: false };
        output_notes.add("", self.result_notes.line());
        output_notes.add_fields(&self.result, "");
        output_notes.write(text, "@return");
    }
}

/// Notes about fields that are not in a named type, each with the path of its field.
struct FieldNotes {
    all: Vec<(String, String)>,
    /// Whether scripts pass these fields, as opposed to receiving them.
    is_input: bool,
}

impl FieldNotes {
    fn add(&mut self, path: &str, note: Option<String>) {
        self.all.extend(note.map(|note| (path.to_owned(), note)));
    }

    fn add_fields(&mut self, of: &Type, path: &str) {
        match of {
            Type::Table(table) => {
                for Field { name, luau_type: of, required, notes } in &table.fields {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    // In Luau, a field that is nil is absent.
                    if self.is_input && *required && matches!(of, Type::Optional(_)) {
                        let mut notes = notes.clone();
                        notes.remarks.push("required: json.null for none".to_owned());
                        self.add(&path, notes.line());
                    } else {
                        self.add(&path, notes.line());
                    }
                    self.add_fields(of, &path);
                }
            }
            Type::List(item) => self.add_fields(item, &format!("{path}[]")),
            Type::Optional(inner) => self.add_fields(inner, path),
            Type::Union(parts) | Type::Intersection(parts) => {
                parts.iter().for_each(|part| self.add_fields(part, path));
            }
            _ => {}
        }
    }

    fn write(self, text: &mut String, tag: &str) {
        let more = self.all.len().saturating_sub(NOTES_MAX);
        for (path, note) in self.all.into_iter().take(NOTES_MAX) {
            let path = to_single_line(&path, DESCRIPTION_LINE_MAX);
            let space = if path.is_empty() { "" } else { " " };
            comment(text, &format!("{tag}{space}{path} - {note}"));
        }
        if more > 0 {
            comment(text, &format!("… {more} more {tag}"));
        }
    }
}

/// Writes the description of a function, its parameters and its result as comments.
pub(crate) fn write_doc_comments(function: &Function, text: &mut String) {
    let description_lines = function.description.trim().lines();
    let lines = description_lines.clone().count();
    for text_line in description_lines.take(DESCRIPTION_LINES_MAX) {
        comment(text, &to_single_line(text_line, DESCRIPTION_LINE_MAX));
    }
    if lines > DESCRIPTION_LINES_MAX {
        comment(text, &format!("… {} more lines", lines - DESCRIPTION_LINES_MAX));
    }
    function.write_notes(text);
}

fn write_type(text: &mut String, named: &NamedType) {
    if let Some(note) = named.notes.line() {
        comment(text, &note);
    }
    let _ = writeln!(text, "export type {} = {}", named.name, multi_line(&named.luau_type, TYPE_MAX));
}

fn optional(of: &Type) -> Type {
    crate::combine::optional(of.clone())
}

/// Writes a comment line; the space prevents `[[` from starting a block comment.
fn comment(text: &mut String, line: &str) {
    let _ = writeln!(text, "{}", format!("-- {line}").trim_end());
}
