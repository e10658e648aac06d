//! Prints types as Luau text, on one line or several, up to a maximum length.

use crate::model::{Constant, Field, Rest, Table, Type};
use crate::notes::is_invisible;
use ctx_core::Identifier;
use std::fmt::Write as _;

/// Maximum length of a type on one line.
const ONE_LINE_MAX: usize = 2_000;

/// A table with a longer text is written over several lines if possible.
const WIDTH_MAX: usize = 100;

const INDENT: &str = "    ";

/// Prints a type on one line.
pub(crate) fn on_one_line(of: &Type) -> String {
    one_line_within(of, ONE_LINE_MAX)
}

/// Prints a type on one line of about this many bytes at most; omitted parts are `any`.
pub(crate) fn one_line_within(of: &Type, bytes_max: usize) -> String {
    let mut printer = Printer { text: String::new(), bytes_max };
    printer.write(of, true, None);
    printer.text
}

/// Prints a type over several lines, with the notes of each field above it.
pub(crate) fn in_a_block(of: &Type, bytes_max: usize) -> String {
    let mut printer = Printer { text: String::new(), bytes_max };
    printer.write(of, true, Some(Lines { indent: 0, forced: true }));
    printer.text
}

struct Printer {
    text: String,
    /// Beyond this length nothing new is started; open brackets are closed.
    bytes_max: usize,
}

/// Layout of a table over several lines.
#[derive(Clone, Copy)]
struct Lines {
    indent: usize,
    /// Uses several lines even if the table is short.
    forced: bool,
}

impl Printer {
    fn is_full(&self) -> bool {
        self.text.len() >= self.bytes_max
    }

    /// Writes a type. `bare`: a union or an intersection needs no parentheses here.
    fn write(&mut self, of: &Type, bare: bool, lines: Option<Lines>) {
        if self.is_full() {
            self.text.push_str("any");
            return;
        }
        match of {
            Type::Any => self.text.push_str("any"),
            Type::Never => self.text.push_str("never"),
            Type::Nil => self.text.push_str("nil"),
            Type::Boolean => self.text.push_str("boolean"),
            Type::Number | Type::Integer | Type::Exactly(Constant::Number(_)) => self.text.push_str("number"),
            Type::String => self.text.push_str("string"),
            Type::Exactly(Constant::Text(text)) => quote(text, &mut self.text),
            Type::Exactly(Constant::Boolean(flag)) => {
                self.text.push_str(if *flag { "true" } else { "false" })
            }
            Type::Named(name) => self.text.push_str(name),
            Type::List(item) => self.list(item, lines),
            Type::Tuple(items, rest) => {
                let items =
                    items.iter().chain((**rest != Type::Any && **rest != Type::Never).then_some(&**rest));
                self.list(&crate::combine::union(items.cloned()), lines);
            }
            Type::Table(table) => self.table(table, lines),
            Type::Union(parts) => {
                // A union of constants always has parentheses.
                let constants = parts.iter().all(|part| matches!(part, Type::Exactly(_)));
                self.joined(parts, " | ", bare && !constants, lines);
            }
            Type::Intersection(parts) => self.joined(parts, " & ", bare, lines),
            Type::Optional(inner) => {
                let start = self.text.len();
                if !bare {
                    self.text.push('(');
                }
                self.write(inner, false, lines);
                if !self.text.ends_with('?') && self.text.get(start..) != Some("nil") {
                    self.text.push('?');
                }
                if !bare {
                    self.text.push(')');
                }
            }
        }
    }

    fn list(&mut self, item: &Type, lines: Option<Lines>) {
        self.text.push('{');
        self.write(item, true, lines.map(|lines| Lines { forced: false, ..lines }));
        self.text.push('}');
    }

    /// Writes parts without those that look the same: Luau has only `number` for many number types.
    fn joined(&mut self, parts: &[Type], between: &str, bare: bool, lines: Option<Lines>) {
        let start = self.text.len();
        self.text.push('(');
        let mut written: Vec<std::ops::Range<usize>> = Vec::new();
        for part in parts {
            let before = self.text.len();
            let full = self.is_full();
            if !written.is_empty() {
                self.text.push_str(between);
            }
            let begin = self.text.len();
            self.write(part, false, lines.map(|lines| Lines { forced: false, ..lines }));
            let text = self.text.get(begin..).unwrap_or_default();
            if written.iter().any(|range| self.text.get(range.clone()) == Some(text)) {
                self.text.truncate(before);
            } else {
                written.push(begin..self.text.len());
            }
            if full {
                break;
            }
        }
        if written.len() < 2 || bare {
            self.text.remove(start);
        } else {
            self.text.push(')');
        }
    }

    fn table(&mut self, table: &Table, lines: Option<Lines>) {
        let Some(lines) = lines.filter(|_| !table.fields.is_empty()) else {
            self.table_on_one_line(table);
            return;
        };
        if !lines.forced && !has_notes(table) {
            let start = self.text.len();
            self.table_on_one_line(table);
            if self.text.len() - start <= WIDTH_MAX {
                return;
            }
            self.text.truncate(start);
        }
        self.table_on_lines(table, lines.indent + 1);
    }

    fn table_on_one_line(&mut self, table: &Table) {
        let mut separator = "{ ";
        let mut cut = table.left_out > 0;
        for field in &table.fields {
            if self.is_full() {
                cut = true;
                break;
            }
            self.text.push_str(separator);
            separator = ", ";
            self.field(field, None);
        }
        if let Some(rest) = rest_of(table, cut) {
            self.text.push_str(separator);
            separator = ", ";
            self.text.push_str("[string]: ");
            self.write(rest, true, None);
        }
        self.text.push_str(if separator == ", " { " }" } else { "{}" });
    }

    fn table_on_lines(&mut self, table: &Table, indent: usize) {
        let margin = INDENT.repeat(indent);
        self.text.push_str("{\n");
        let mut left_out = table.left_out;
        for (place, field) in table.fields.iter().enumerate() {
            if self.is_full() {
                left_out += table.fields.len() - place;
                break;
            }
            if let Some(note) = field.notes.line() {
                let _ = writeln!(self.text, "{margin}-- {note}");
            }
            self.text.push_str(&margin);
            self.field(field, Some(Lines { indent, forced: false }));
            self.text.push_str(",\n");
        }
        if left_out > 0 {
            let _ = writeln!(self.text, "{margin}-- {left_out} more fields are left out here.");
        }
        if let Some(rest) = rest_of(table, left_out > 0) {
            let _ = write!(self.text, "{margin}[string]: ");
            self.write(rest, true, Some(Lines { indent, forced: false }));
            self.text.push_str(",\n");
        }
        let _ = write!(self.text, "{}}}", INDENT.repeat(indent - 1));
    }

    fn field(&mut self, field: &Field, lines: Option<Lines>) {
        if field.name.parse::<Identifier>().is_ok() {
            self.text.push_str(&field.name);
        } else {
            self.text.push('[');
            quote(&field.name, &mut self.text);
            self.text.push(']');
        }
        self.text.push_str(": ");
        let start = self.text.len();
        let bare = field.required || matches!(field.of, Type::Optional(_));
        self.write(&field.of, bare, lines);
        if !field.required && !self.text.ends_with('?') && self.text.get(start..) != Some("nil") {
            self.text.push('?');
        }
    }
}

/// The type that is written for fields without a name, if any.
fn rest_of(table: &Table, cut: bool) -> Option<&Type> {
    match &table.rest {
        _ if cut => Some(&Type::Any),
        Rest::Of(rest) => Some(rest),
        Rest::Unsaid if table.fields.is_empty() => Some(&Type::Any),
        Rest::Closed | Rest::Unsaid => None,
    }
}

fn has_notes(table: &Table) -> bool {
    table.fields.iter().any(|field| field.notes.line().is_some() || notes_inside(&field.of))
}

fn notes_inside(of: &Type) -> bool {
    match of {
        Type::Table(table) => has_notes(table),
        Type::List(inner) | Type::Optional(inner) => notes_inside(inner),
        Type::Union(parts) | Type::Intersection(parts) | Type::Tuple(parts, _) => {
            parts.iter().any(notes_inside)
        }
        _ => false,
    }
}

/// Writes a Luau string literal, and escapes whatever could end it or is invisible.
fn quote(text: &str, into: &mut String) {
    into.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                into.push('\\');
                into.push(character);
            }
            '\n' => into.push_str("\\n"),
            '\r' => into.push_str("\\r"),
            '\t' => into.push_str("\\t"),
            hidden if hidden.is_control() || is_invisible(hidden) => {
                let _ = write!(into, "\\u{{{:x}}}", u32::from(hidden));
            }
            plain => into.push(plain),
        }
    }
    into.push('"');
}
