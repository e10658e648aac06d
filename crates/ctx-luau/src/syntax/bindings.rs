//! The bindings of a script: where names are declared or assigned.

use super::tree::{KEYWORDS, TokenTree};

/// Maximum number of tokens in a list of names or of assigned variables.
const LIST_TOKENS_MAX: usize = 64;

/// How a name is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingKind {
    /// `local name`, `local function name`
    Local,
    /// `for name in …`
    Loop,
    /// `function (name)`
    Parameter,
    /// `name = …`, `function name()`: assignment to a global, or to a local variable that is declared
    /// elsewhere.
    Assigned,
}

/// A declaration of a name or an assignment to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    /// The name.
    pub name: &'a str,
    /// The index of the name's token.
    pub at: usize,
    /// How the name is bound.
    pub kind: BindingKind,
}

/// A declaration of local variables: `local a, b = …`.
#[derive(Debug, PartialEq, Eq)]
pub struct LocalDeclaration {
    /// The indices of the names.
    pub names: Vec<usize>,
    /// The index where the first value begins.
    pub value: Option<usize>,
}

impl<'a> TokenTree<'a> {
    /// All bindings, in source order.
    pub fn bindings(&self) -> Vec<Binding<'a>> {
        let mut bindings = Vec::new();
        for at in 0..self.len() {
            match self.name(at) {
                Some("local" | "const") if self.name(at + 1) == Some("function") => {
                    bindings.extend(self.binding(at + 2, BindingKind::Local));
                }
                Some("function") => self.bind_function(at, &mut bindings),
                Some("for") => {
                    let names = self.names(at + 1);
                    bindings.extend(names.iter().filter_map(|at| self.binding(*at, BindingKind::Loop)));
                }
                Some(_) if self.is_field(at) => {}
                Some("local" | "const") => {
                    let names = self.local_declaration(at).map_or_else(Vec::new, |local| local.names);
                    bindings.extend(names.iter().filter_map(|at| self.binding(*at, BindingKind::Local)));
                }
                Some(_) if self.is_assigned(at) => bindings.extend(self.binding(at, BindingKind::Assigned)),
                _ => {}
            }
        }
        bindings.sort_by_key(|binding| binding.at);
        // A declared name with a value may also look like an assignment: it counts once, as a declaration.
        bindings.dedup_by_key(|binding| binding.at);
        bindings
    }

    fn binding(&self, at: usize, kind: BindingKind) -> Option<Binding<'a>> {
        Some(Binding { name: self.name(at).filter(|name| !KEYWORDS.contains(name))?, at, kind })
    }

    /// The declaration of local variables that begins at `at`.
    pub fn local_declaration(&self, at: usize) -> Option<LocalDeclaration> {
        if !matches!(self.name(at), Some("local" | "const")) || self.is_field(at) {
            return None;
        }
        let names = self.names(at + 1);
        let after = names.last()? + 1;
        Some(LocalDeclaration { names, value: self.is_symbol(after, "=").then_some(after + 1) })
    }

    /// The indices of the variables of the `for` loop whose `in` is at `at`.
    pub fn loop_names(&self, at: usize) -> Vec<usize> {
        let mut first = at;
        while first > 0
            && (self.is_name(first - 1) || self.is_symbol(first - 1, ","))
            && at - first < LIST_TOKENS_MAX
        {
            first -= 1;
        }
        if first > 0 && self.name(first - 1) == Some("for") { self.names(first) } else { Vec::new() }
    }

    /// The indices of the names in the list that begins at `at`.
    pub fn names(&self, mut at: usize) -> Vec<usize> {
        let mut names = Vec::new();
        while self.is_name(at) && names.len() < LIST_TOKENS_MAX {
            names.push(at);
            if !self.is_symbol(at + 1, ",") {
                break;
            }
            at += 2;
        }
        names
    }

    fn is_name(&self, at: usize) -> bool {
        self.name(at).is_some_and(|name| !KEYWORDS.contains(&name))
    }

    fn bind_function(&self, at: usize, bindings: &mut Vec<Binding<'a>>) {
        let is_local = at > 0 && matches!(self.name(at - 1), Some("local" | "const"));
        if !is_local && self.is_symbol(at + 2, "(") {
            bindings.extend(self.binding(at + 1, BindingKind::Assigned));
        }
        if let Some(open) = self.parameters_of(at) {
            let names = self.names(open + 1);
            bindings.extend(names.iter().filter_map(|at| self.binding(*at, BindingKind::Parameter)));
        }
    }

    /// Whether the variable at `at` is the target of an assignment: `a = …`, `a, b.c = …`.
    fn is_assigned(&self, at: usize) -> bool {
        // Within brackets, only the body of a function can assign.
        if self.is_within_brackets(at) {
            return false;
        }
        if self.is_symbol(at + 1, "=") {
            return true;
        }
        if !self.is_symbol(at + 1, ",") {
            return false;
        }
        let mut next = at + 2;
        while next < at + LIST_TOKENS_MAX && self.is_name(next) {
            next += 1;
            loop {
                next = match self.kind(next) {
                    Some(super::TokenKind::Symbol(".")) if self.name(next + 1).is_some() => next + 2,
                    Some(super::TokenKind::Symbol("[" | "(")) => match self.closing_bracket(next) {
                        Some(close) => close + 1,
                        None => return false,
                    },
                    _ => break,
                };
            }
            if !self.is_symbol(next, ",") {
                return self.is_symbol(next, "=");
            }
            next += 1;
        }
        false
    }
}
