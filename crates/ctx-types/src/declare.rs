//! Declarations of functions as Luau text: the signature on one line, or everything that is known.

use crate::function::Function;
use crate::model::{Field, NamedType, Type};
use crate::notes::line;
use crate::print::{in_a_block, one_line_within};
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
        for (place, argument) in self.arguments.iter().enumerate() {
            let between = if place == 0 { "" } else { ", " };
            let optional = if argument.required { &argument.of } else { &optional(&argument.of) };
            let _ = write!(text, "{between}{}: {}", argument.name, one_line_within(optional, bytes_max));
        }
        let _ = write!(text, "): {}", one_line_within(&self.result, bytes_max));
        text
    }

    /// The full declaration in Luau: description, parameters, signature, and each type that it refers to, once, nearest
    /// first. What exceeds the limits is named at the end.
    pub fn declaration(&self) -> String {
        let mut text = String::new();
        write_notes_of(self, &mut text);
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
                &format!("{} parts of its schema are too many or too deep: `any` here.", self.left_out),
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
        let mut given = Collected { all: Vec::new(), are_given: true };
        for argument in &self.arguments {
            if argument.is_body {
                given.add(&argument.name, argument.notes.line());
                given.add_fields(&argument.of, &argument.name);
            } else {
                given.add_fields(&argument.of, "");
            }
        }
        given.write(text, "@param");
        let mut answered = Collected { all: Vec::new(), are_given: false };
        answered.add("", self.result_notes.line());
        answered.add_fields(&self.result, "");
        answered.write(text, "@return");
    }
}

/// Notes about fields that are not in a named type, each with the path of its field.
struct Collected {
    all: Vec<(String, String)>,
    /// Whether scripts pass these fields, as opposed to receiving them.
    are_given: bool,
}

impl Collected {
    fn add(&mut self, path: &str, note: Option<String>) {
        self.all.extend(note.map(|note| (path.to_owned(), note)));
    }

    fn add_fields(&mut self, of: &Type, path: &str) {
        match of {
            Type::Table(table) => {
                for Field { name, of, required, notes } in &table.fields {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    // In Luau, a field that is nil is absent.
                    if self.are_given && *required && matches!(of, Type::Optional(_)) {
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

    fn write(self, text: &mut String, word: &str) {
        let more = self.all.len().saturating_sub(NOTES_MAX);
        for (path, note) in self.all.into_iter().take(NOTES_MAX) {
            let path = line(&path, DESCRIPTION_LINE_MAX);
            let space = if path.is_empty() { "" } else { " " };
            comment(text, &format!("{word}{space}{path} - {note}"));
        }
        if more > 0 {
            comment(text, &format!("… {more} more {word}"));
        }
    }
}

/// Writes the description of a function, its parameters and its result as comments.
pub(crate) fn write_notes_of(function: &Function, text: &mut String) {
    let described = function.description.trim().lines();
    let lines = described.clone().count();
    for described in described.take(DESCRIPTION_LINES_MAX) {
        comment(text, &line(described, DESCRIPTION_LINE_MAX));
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
    let _ = writeln!(text, "export type {} = {}", named.name, in_a_block(&named.of, TYPE_MAX));
}

fn optional(of: &Type) -> Type {
    crate::combine::optional(of.clone())
}

/// Writes a comment line; the space prevents `[[` from starting a block comment.
fn comment(text: &mut String, line: &str) {
    let _ = writeln!(text, "{}", format!("-- {line}").trim_end());
}
