//! Declaration files for the Luau language server: a module for each library, and one file of definitions for all.

use crate::declare::write_doc_comments;
use crate::function::Function;
use crate::library::Library;
use crate::model::{NamedType, Type};
use crate::notes::to_single_line;
use crate::print::{multi_line, one_line_within};
use std::collections::HashSet;
use std::fmt::Write as _;

/// Approximate maximum length of one type.
const TYPE_MAX: usize = 64_000;

/// Approximate maximum length of one argument, and of a result.
const ARGUMENT_MAX: usize = 16_000;

/// Maximum characters of a title.
const TITLE_MAX: usize = 200;

/// Type of the functions that have no declaration.
const OTHERS: &str = "{ [string]: (arguments: any?, body: any?) -> any }";

impl Library {
    /// A module in strict mode, which exports every type. For the type checker, it is a table of the functions.
    pub fn module(&self) -> String {
        let mut text = String::from("--!strict\n");
        let title = to_single_line(&self.title, TITLE_MAX);
        let _ = writeln!(text, "-- Functions of `sdk.{}` and their types. {title}", self.provider);
        text.push_str("-- Written by `ctx generate`, which writes it anew: changes are lost.\n");
        self.write_types(&mut text, Self::FUNCTIONS);
        let _ = writeln!(text, "\nreturn (nil :: any) :: {}", Self::FUNCTIONS);
        text
    }

    fn write_types(&self, text: &mut String, functions: &str) {
        for named in &self.types {
            text.push('\n');
            write_type(text, named);
        }
        let _ = writeln!(text, "\nexport type {functions} = {{");
        for function in &self.functions {
            write_function(text, function);
        }
        text.push_str("}\n");
    }
}

/// Definitions of the global `sdk` for all libraries; the names of their types have the library as a prefix:
/// `petstore_Pet`. Functions of other providers accept and return `any`.
pub fn definitions(libraries: &[Library]) -> String {
    let mut text = String::new();
    let mut declared = String::from("declare sdk: {\n");
    let mut taken: HashSet<String> = HashSet::new();
    for library in libraries {
        // Type `c` of library `a_b` and type `b_c` of library `a` would have the same name.
        let mut prefix = format!("{}_", library.provider);
        let all = || library.types.iter().map(|named| named.name.as_str()).chain([Library::FUNCTIONS]);
        while all().any(|name| taken.contains(&format!("{prefix}{name}"))) {
            prefix.push('_');
        }
        let prefixed = |name: &str| format!("{prefix}{name}");
        taken.extend(all().map(prefixed));
        let functions = prefixed(Library::FUNCTIONS);
        library.with_renamed_types(&prefixed).write_types(&mut text, &functions);
        let _ = writeln!(declared, "    {}: {functions},", library.provider);
    }
    let _ = write!(text, "\n-- Everything callable: sdk.<provider>.<function>(arguments).\n{declared}");
    let _ = writeln!(text, "    [string]: {OTHERS},\n}}");
    text
}

fn write_type(text: &mut String, named: &NamedType) {
    if let Some(note) = named.notes.line() {
        let _ = writeln!(text, "--- {note}");
    }
    let block = format!("export type {} = {}", named.name, multi_line(&named.luau_type, TYPE_MAX));
    write_documented(text, "", &block);
}

fn write_function(text: &mut String, function: &Function) {
    const MARGIN: &str = "    ";
    let mut notes = String::new();
    write_doc_comments(function, &mut notes);
    write_documented(text, MARGIN, notes.trim_end());
    let _ = write!(text, "{MARGIN}{}: (", function.name.tool());
    for (index, argument) in function.arguments.iter().enumerate() {
        let between = if index == 0 { "" } else { ", " };
        let of = if argument.required { &argument.luau_type } else { &optional(&argument.luau_type) };
        let _ = write!(text, "{between}{}: {}", argument.name, one_line_within(of, ARGUMENT_MAX));
    }
    let _ = writeln!(text, ") -> {},", one_line_within(&function.result, ARGUMENT_MAX));
}

/// Writes lines, with comments in the form that editors show as documentation (`---`).
fn write_documented(text: &mut String, margin: &str, block: &str) {
    for line in block.lines() {
        let begun = line.trim_start();
        let indent = line.get(..line.len() - begun.len()).unwrap_or_default();
        let dash = if begun.starts_with("--") { "-" } else { "" };
        let _ = writeln!(text, "{margin}{indent}{dash}{begun}");
    }
}

fn optional(of: &Type) -> Type {
    crate::combine::optional(of.clone())
}
