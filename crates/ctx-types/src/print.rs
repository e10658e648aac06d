//! Prints types as Luau text, on one line or several, up to a maximum length.

use crate::model::{AdditionalFields, Constant, Field, Table, Type};
use crate::notes::is_invisible;
use ctx_core::Identifier;
use std::fmt::Write as _;

/// Maximum length of a type on one line.
const ONE_LINE_MAX: usize = 2_000;

/// A table with a longer text is written over several lines if possible.
const WIDTH_MAX: usize = 100;

const INDENT: &str = "    ";

/// Prints a type on one line.
pub(crate) fn one_line(of: &Type) -> String {
    one_line_within(of, ONE_LINE_MAX)
}

/// Prints a type on one line of about this many bytes at most; omitted parts are `any`.
pub(crate) fn one_line_within(of: &Type, bytes_max: usize) -> String {
    let mut printer = Printer { text: String::new(), bytes_max };
    printer.write(of, true, None);
    printer.text
}

/// Prints a type over several lines, with the notes of each field above it.
pub(crate) fn multi_line(of: &Type, bytes_max: usize) -> String {
    let mut printer = Printer { text: String::new(), bytes_max };
    printer.write(of, true, Some(TableLayout { indent: 0, always_multiline: true }));
    printer.text
}

struct Printer {
    text: String,
    /// Beyond this length nothing new is started; open brackets are closed.
    bytes_max: usize,
}

/// Layout of a table over several lines.
#[derive(Clone, Copy)]
struct TableLayout {
    indent: usize,
    /// Uses several lines even if the table is short.
    always_multiline: bool,
}

impl Printer {
    fn is_full(&self) -> bool {
        self.text.len() >= self.bytes_max
    }

    /// Writes a type. `bare`: a union or an intersection needs no parentheses here.
    fn write(&mut self, of: &Type, bare: bool, layout: Option<TableLayout>) {
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
            Type::List(item) => self.write_list(item, layout),
            Type::Tuple(items, rest) => {
                let items =
                    items.iter().chain((**rest != Type::Any && **rest != Type::Never).then_some(&**rest));
                self.write_list(&crate::combine::union(items.cloned()), layout);
            }
            Type::Table(table) => self.write_table(table, layout),
            Type::Union(parts) => {
                // A union of constants always has parentheses.
                let constants = parts.iter().all(|part| matches!(part, Type::Exactly(_)));
                self.write_alternatives(parts, " | ", bare && !constants, layout);
            }
            Type::Intersection(parts) => self.write_alternatives(parts, " & ", bare, layout),
            Type::Optional(inner) => {
                let start = self.text.len();
                if !bare {
                    self.text.push('(');
                }
                self.write(inner, false, layout);
                if !self.text.ends_with('?') && self.text.get(start..) != Some("nil") {
                    self.text.push('?');
                }
                if !bare {
                    self.text.push(')');
                }
            }
        }
    }

    fn write_list(&mut self, item: &Type, layout: Option<TableLayout>) {
        self.text.push('{');
        self.write(item, true, layout.map(|layout| TableLayout { always_multiline: false, ..layout }));
        self.text.push('}');
    }

    /// Writes parts without those that look the same: Luau has only `number` for many number types.
    fn write_alternatives(&mut self, parts: &[Type], between: &str, bare: bool, layout: Option<TableLayout>) {
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
            self.write(part, false, layout.map(|layout| TableLayout { always_multiline: false, ..layout }));
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

    fn write_table(&mut self, table: &Table, layout: Option<TableLayout>) {
        let Some(layout) = layout.filter(|_| !table.fields.is_empty()) else {
            self.write_table_on_one_line(table);
            return;
        };
        if !layout.always_multiline && !has_notes(table) {
            let start = self.text.len();
            self.write_table_on_one_line(table);
            if self.text.len() - start <= WIDTH_MAX {
                return;
            }
            self.text.truncate(start);
        }
        self.write_table_on_lines(table, layout.indent + 1);
    }

    fn write_table_on_one_line(&mut self, table: &Table) {
        let mut separator = "{ ";
        let mut is_truncated = table.left_out > 0;
        for field in &table.fields {
            if self.is_full() {
                is_truncated = true;
                break;
            }
            self.text.push_str(separator);
            separator = ", ";
            self.write_field(field, None);
        }
        if let Some(rest) = additional_type(table, is_truncated) {
            self.text.push_str(separator);
            separator = ", ";
            self.text.push_str("[string]: ");
            self.write(rest, true, None);
        }
        self.text.push_str(if separator == ", " { " }" } else { "{}" });
    }

    fn write_table_on_lines(&mut self, table: &Table, indent: usize) {
        let margin = INDENT.repeat(indent);
        self.text.push_str("{\n");
        let mut left_out = table.left_out;
        for (index, field) in table.fields.iter().enumerate() {
            if self.is_full() {
                left_out += table.fields.len() - index;
                break;
            }
            if let Some(note) = field.notes.line() {
                let _ = writeln!(self.text, "{margin}-- {note}");
            }
            self.text.push_str(&margin);
            self.write_field(field, Some(TableLayout { indent, always_multiline: false }));
            self.text.push_str(",\n");
        }
        if left_out > 0 {
            let _ = writeln!(self.text, "{margin}-- {left_out} more fields are left out here.");
        }
        if let Some(rest) = additional_type(table, left_out > 0) {
            let _ = write!(self.text, "{margin}[string]: ");
            self.write(rest, true, Some(TableLayout { indent, always_multiline: false }));
            self.text.push_str(",\n");
        }
        let _ = write!(self.text, "{}}}", INDENT.repeat(indent - 1));
    }

    fn write_field(&mut self, field: &Field, layout: Option<TableLayout>) {
        if field.name.parse::<Identifier>().is_ok() {
            self.text.push_str(&field.name);
        } else {
            self.text.push('[');
            quote(&field.name, &mut self.text);
            self.text.push(']');
        }
        self.text.push_str(": ");
        let start = self.text.len();
        let bare = field.required || matches!(field.luau_type, Type::Optional(_));
        self.write(&field.luau_type, bare, layout);
        if !field.required && !self.text.ends_with('?') && self.text.get(start..) != Some("nil") {
            self.text.push('?');
        }
    }
}

/// The type that is written for fields without a name, if any.
fn additional_type(table: &Table, is_truncated: bool) -> Option<&Type> {
    match &table.rest {
        _ if is_truncated => Some(&Type::Any),
        AdditionalFields::Of(rest) => Some(rest),
        AdditionalFields::Unspecified if table.fields.is_empty() => Some(&Type::Any),
        AdditionalFields::Forbidden | AdditionalFields::Unspecified => None,
    }
}

fn has_notes(table: &Table) -> bool {
    table.fields.iter().any(|field| field.notes.line().is_some() || contains_notes(&field.luau_type))
}

fn contains_notes(of: &Type) -> bool {
    match of {
        Type::Table(table) => has_notes(table),
        Type::List(inner) | Type::Optional(inner) => contains_notes(inner),
        Type::Union(parts) | Type::Intersection(parts) | Type::Tuple(parts, _) => {
            parts.iter().any(contains_notes)
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
