//! Type check of a script's call: whether its literal arguments fit the types of a function.
//!
//! A value that is computed, of unknown type or beyond the limits of the check passes.

use crate::function::Function;
use crate::model::{AdditionalFields, Constant, Field, Table, Type, Types};
use crate::print::one_line;
use ctx_core::nearest;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Maximum number of values checked in one call; unions within unions would take exponential time.
const STEPS_MAX: usize = 20_000;

/// Maximum nesting depth of a value.
const DEPTH_MAX: usize = 64;

/// Maximum number of mismatches reported for one call.
const MISMATCHES_MAX: usize = 20;

/// A value, as far as the source text of a script determines it.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// An expression whose value is known only at run time.
    Unknown,
    /// `nil`.
    Nil,
    /// `true` or `false`.
    Boolean(bool),
    /// A number.
    Number(f64),
    /// A string.
    Text(String),
    /// `{ a, b }`.
    List(Vec<Literal>),
    /// `{ a = 1, ["b"] = 2 }`, or `{}`.
    Table {
        /// The fields with literal names.
        fields: Vec<(String, Literal)>,
        /// Whether these are all fields.
        whole: bool,
    },
}

/// An argument, or a part of one, that the function does not accept.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeMismatch {
    /// Index of the argument.
    pub argument: usize,
    /// Path from the argument to the value.
    pub path: Vec<PathStep>,
    /// The problem at that place.
    pub problem: MismatchKind,
}

/// One step of a path into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// A field.
    Field(String),
    /// An item, counted from 0.
    Item(usize),
}

/// A problem with a value.
#[derive(Clone, Debug, PartialEq)]
pub enum MismatchKind {
    /// It is required and missing.
    Missing,
    /// There is no such field.
    Unknown {
        /// The most similar name, if one is similar enough.
        near: Option<String>,
        /// Whether the schema forbids other fields. Otherwise, validation accepts the field.
        certain: bool,
    },
    /// It has the wrong type.
    WrongType {
        /// The expected type, in Luau.
        expected: String,
    },
    /// There are more arguments than parameters.
    TooMany,
}

impl TypeMismatch {
    /// The path as written in Luau: `filters.tags[1]`, counted from 1.
    pub fn luau_path(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            text.push_str(&match step {
                PathStep::Field(name) if text.is_empty() => name.clone(),
                PathStep::Field(name) => format!(".{name}"),
                PathStep::Item(index) => format!("[{}]", index + 1),
            });
        }
        text
    }
}

impl MismatchKind {
    /// Whether the call would certainly fail; otherwise it is only probably a mistake.
    pub fn is_certain(&self) -> bool {
        !matches!(self, Self::Unknown { certain: false, .. })
    }
}

impl fmt::Display for MismatchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is required and missing"),
            Self::Unknown { near: Some(near), .. } => write!(f, "is unknown (did you mean `{near}`?)"),
            Self::Unknown { near: None, .. } => f.write_str("is unknown"),
            Self::WrongType { expected } => write!(f, "must be {expected}"),
            Self::TooMany => f.write_str("is one argument too many"),
        }
    }
}

impl Function {
    /// The arguments that the function does not accept, in the order in which they are written.
    pub fn check_arguments(&self, arguments: &[Literal]) -> Vec<TypeMismatch> {
        let mut checker = LiteralChecker { types: &self.types, steps_left: STEPS_MAX };
        let mut mismatches = match &self.body {
            Some(body) => self.check_with_body(body, arguments, &mut checker),
            None => self.check_params(arguments, &mut checker),
        };
        mismatches.truncate(MISMATCHES_MAX);
        mismatches
    }

    fn check_params(&self, arguments: &[Literal], checker: &mut LiteralChecker<'_>) -> Vec<TypeMismatch> {
        let mut mismatches = Vec::new();
        for (argument, expected) in self.arguments.iter().enumerate() {
            let mut collector = MismatchCollector::default();
            match arguments.get(argument) {
                None | Some(Literal::Nil) if !expected.required => {}
                // A missing argument with named fields is reported by the names of its required fields.
                None | Some(Literal::Nil) => match self.types.outline(&expected.luau_type) {
                    Some(table) => checker.check_table(&table, &Literal::empty_table(), &mut collector),
                    None => collector.add(MismatchKind::Missing),
                },
                Some(literal) => checker.check_value(&expected.luau_type, literal, &mut collector),
            }
            mismatches.extend(collector.into_mismatches(argument));
        }
        let argument = self.arguments.len();
        match arguments.get(argument) {
            None | Some(Literal::Nil | Literal::Unknown) => {}
            // Arguments for a function without parameters.
            Some(Literal::Table { fields, .. }) if argument == 0 => {
                let certain =
                    self.params.as_ref().is_some_and(|table| table.rest == AdditionalFields::Forbidden);
                for (name, _) in fields.iter().filter(|(_, value)| *value != Literal::Nil) {
                    let problem = MismatchKind::Unknown { near: None, certain };
                    mismatches.push(TypeMismatch {
                        argument,
                        path: vec![PathStep::Field(name.clone())],
                        problem,
                    });
                }
            }
            Some(_) => {
                mismatches.push(TypeMismatch { argument, path: Vec::new(), problem: MismatchKind::TooMany })
            }
        }
        mismatches
    }
}

impl Literal {
    /// The empty table, `{}`.
    pub(crate) fn empty_table() -> Self {
        Self::Table { fields: Vec::new(), whole: true }
    }
}

/// Collects mismatches, each with its path.
#[derive(Default)]
pub(crate) struct MismatchCollector {
    pub(crate) path: Vec<PathStep>,
    pub(crate) mismatches: Vec<(Vec<PathStep>, MismatchKind)>,
}

impl MismatchCollector {
    /// All mismatches, as those of one argument.
    pub(crate) fn into_mismatches(self, argument: usize) -> impl Iterator<Item = TypeMismatch> {
        self.mismatches.into_iter().map(move |(path, problem)| TypeMismatch { argument, path, problem })
    }

    pub(crate) fn add(&mut self, problem: MismatchKind) {
        if self.mismatches.len() < MISMATCHES_MAX {
            self.mismatches.push((self.path.clone(), problem));
        }
    }

    pub(crate) fn add_at(&mut self, step: PathStep, problem: MismatchKind) {
        self.path.push(step);
        self.add(problem);
        self.path.pop();
    }

    /// An empty collection at the same path.
    fn nested(&self) -> Self {
        Self { path: self.path.clone(), mismatches: Vec::new() }
    }
}

pub(crate) struct LiteralChecker<'a> {
    types: &'a Types,
    steps_left: usize,
}

impl LiteralChecker<'_> {
    pub(crate) fn check_value(&mut self, of: &Type, literal: &Literal, collector: &mut MismatchCollector) {
        if *literal == Literal::Unknown || self.steps_left == 0 || collector.path.len() > DEPTH_MAX {
            return;
        }
        self.steps_left -= 1;
        match (self.types.resolve(of), literal) {
            (Type::Optional(_), Literal::Nil) => {}
            (Type::Optional(inner), _) => self.check_value(inner, literal, collector),
            (Type::Union(parts), _) => self.check_union(of, parts, literal, collector),
            (Type::Intersection(parts), _) => self.check_intersection(of, parts, literal, collector),
            (Type::Table(table), Literal::Table { .. }) => self.check_table(table, literal, collector),
            (Type::List(item), Literal::List(items)) => self.check_items(&[], item, items, collector),
            (Type::Tuple(first, rest), Literal::List(items)) => {
                self.check_items(first, rest, items, collector)
            }
            (resolved, _) if literal_fits(resolved, literal) => {}
            _ => collector.add(MismatchKind::WrongType { expected: self.describe_expected(of) }),
        }
    }

    /// The type in Luau, with details about numbers that Luau types cannot express.
    pub(crate) fn describe_expected(&self, of: &Type) -> String {
        let resolved = match self.types.resolve(of) {
            Type::Optional(inner) => self.types.resolve(inner),
            resolved => resolved,
        };
        let parts = if let Type::Union(parts) = resolved { parts } else { std::slice::from_ref(resolved) };
        let number = |part: &Type| match part {
            Type::Exactly(Constant::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let numbers: Vec<String> = parts.iter().filter_map(number).collect();
        let text = one_line(of);
        match numbers.as_slice() {
            [] if parts.contains(&Type::Integer) && !parts.contains(&Type::Number) => {
                format!("{text} (whole)")
            }
            [] => text,
            numbers => format!("{text} ({})", numbers.join(", ")),
        }
    }

    fn check_items(
        &mut self,
        first: &[Type],
        rest: &Type,
        items: &[Literal],
        collector: &mut MismatchCollector,
    ) {
        for (index, item) in items.iter().enumerate() {
            if *item == Literal::Nil {
                continue;
            }
            collector.path.push(PathStep::Item(index));
            self.check_value(first.get(index).unwrap_or(rest), item, collector);
            collector.path.pop();
        }
    }

    fn check_union(
        &mut self,
        of: &Type,
        parts: &[Type],
        literal: &Literal,
        collector: &mut MismatchCollector,
    ) {
        let mut tables = Vec::new();
        let mut uncertain: Option<MismatchCollector> = None;
        for part in parts {
            let mut nested = collector.nested();
            self.check_value(part, literal, &mut nested);
            if nested.mismatches.is_empty() {
                return;
            }
            if nested.mismatches.iter().all(|(_, problem)| !problem.is_certain()) {
                uncertain.get_or_insert(nested);
                continue;
            }
            if matches!(self.types.resolve(part), Type::Table(_)) {
                tables.push(nested);
            }
        }
        if let Some(mut uncertain) = uncertain {
            collector.mismatches.append(&mut uncertain.mismatches);
            return;
        }
        // If only one alternative is a table, its own mismatches are more helpful.
        match (literal, tables.pop()) {
            (Literal::Table { .. }, Some(only_table)) if tables.is_empty() => {
                only_table.mismatches.into_iter().for_each(|misfit| collector.mismatches.push(misfit));
            }
            _ => collector.add(MismatchKind::WrongType { expected: self.describe_expected(of) }),
        }
    }

    fn check_intersection(
        &mut self,
        of: &Type,
        parts: &[Type],
        literal: &Literal,
        collector: &mut MismatchCollector,
    ) {
        let all_tables = parts.iter().all(|part| matches!(self.types.resolve(part), Type::Table(_)));
        match self.types.outline(of) {
            // A field that one part does not name may belong to another part.
            Some(table) if all_tables && matches!(literal, Literal::Table { .. }) => {
                self.check_table(&table, literal, collector);
            }
            _ => {
                for part in parts {
                    let mut nested = collector.nested();
                    self.check_value(part, literal, &mut nested);
                    nested.mismatches.retain(|(_, problem)| {
                        !matches!(problem, MismatchKind::Unknown { certain: false, .. })
                    });
                    collector.mismatches.append(&mut nested.mismatches);
                }
            }
        }
    }

    pub(crate) fn check_table(
        &mut self,
        table: &Table,
        literal: &Literal,
        collector: &mut MismatchCollector,
    ) {
        let Literal::Table { fields, whole } = literal else { return };
        let known_fields: HashMap<&str, &Field> =
            table.fields.iter().rev().map(|field| (field.name.as_str(), field)).collect();
        for (name, value) in fields.iter().filter(|(_, value)| *value != Literal::Nil) {
            if collector.mismatches.len() >= MISMATCHES_MAX {
                return;
            }
            let known = known_fields.get(name.as_str());
            let of = match (known, &table.rest) {
                (Some(Field { luau_type: of, .. }), _) => of,
                (None, AdditionalFields::Of(of)) => of,
                (None, _) if table.left_out > 0 => continue,
                // The schema describes no fields at all.
                (None, AdditionalFields::Unspecified) if table.fields.is_empty() => continue,
                (None, rest) => {
                    let names = table.fields.iter().map(|field| field.name.as_str());
                    let near = nearest(name, names).map(|near| near.to_owned());
                    let certain = *rest == AdditionalFields::Forbidden;
                    collector.add_at(PathStep::Field(name.clone()), MismatchKind::Unknown { near, certain });
                    continue;
                }
            };
            collector.path.push(PathStep::Field(name.clone()));
            self.check_value(of, value, collector);
            collector.path.pop();
        }
        if !whole {
            return;
        }
        // A field set to `nil` counts as missing.
        let is_set = |(_, value): &&(String, Literal)| *value != Literal::Nil;
        let set_names: HashSet<&str> = fields.iter().filter(is_set).map(|(name, _)| name.as_str()).collect();
        for field in table.fields.iter().filter(|field| field.required) {
            if !set_names.contains(field.name.as_str()) {
                collector.add_at(PathStep::Field(field.name.clone()), MismatchKind::Missing);
            }
        }
    }
}

/// Whether a value without parts fits a type without parts.
fn literal_fits(of: &Type, literal: &Literal) -> bool {
    match (of, literal) {
        (Type::Any, _) => true,
        (Type::Nil, Literal::Nil) | (Type::Boolean, Literal::Boolean(_)) => true,
        (Type::Number, Literal::Number(_)) | (Type::String, Literal::Text(_)) => true,
        (Type::Integer, Literal::Number(number)) => number.fract() == 0.0,
        (Type::Exactly(Constant::Text(one)), Literal::Text(text)) => one == text,
        (Type::Exactly(Constant::Number(one)), Literal::Number(number)) => one == number,
        (Type::Exactly(Constant::Boolean(one)), Literal::Boolean(flag)) => one == flag,
        // `{}` is both an empty list and an empty table.
        (Type::List(_) | Type::Tuple(..), Literal::Table { fields, whole }) => fields.is_empty() || !whole,
        (Type::Table(table), Literal::List(items)) => {
            items.is_empty() && !table.fields.iter().any(|field| field.required)
        }
        _ => false,
    }
}
