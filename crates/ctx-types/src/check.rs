//! Type check of a script's call: whether its literal arguments fit the types of a function.
//!
//! A value that is computed, of unknown type or beyond the limits of the check passes.

use crate::function::Function;
use crate::model::{Constant, Field, Rest, Table, Type, Types};
use crate::print::on_one_line;
use ctx_core::nearest;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Maximum number of values checked in one call; unions within unions would take exponential time.
const STEPS_MAX: usize = 20_000;

/// Maximum nesting depth of a value.
const DEPTH_MAX: usize = 64;

/// Maximum number of misfits reported for one call.
const MISFITS_MAX: usize = 20;

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
pub struct Misfit {
    /// Index of the argument.
    pub argument: usize,
    /// Path from the argument to the value.
    pub path: Vec<Step>,
    /// The problem at that place.
    pub problem: Problem,
}

/// One step of a path into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A field.
    Field(String),
    /// An item, counted from 0.
    Item(usize),
}

/// A problem with a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
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
    Wrong {
        /// The expected type, in Luau.
        expected: String,
    },
    /// There are more arguments than parameters.
    TooMany,
}

impl Misfit {
    /// The path as written in Luau: `filters.tags[1]`, counted from 1.
    pub fn place(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            text.push_str(&match step {
                Step::Field(name) if text.is_empty() => name.clone(),
                Step::Field(name) => format!(".{name}"),
                Step::Item(place) => format!("[{}]", place + 1),
            });
        }
        text
    }
}

impl Problem {
    /// Whether the call would certainly fail; otherwise it is only probably a mistake.
    pub fn is_certain(&self) -> bool {
        !matches!(self, Self::Unknown { certain: false, .. })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is required and missing"),
            Self::Unknown { near: Some(near), .. } => write!(f, "is unknown (did you mean `{near}`?)"),
            Self::Unknown { near: None, .. } => f.write_str("is unknown"),
            Self::Wrong { expected } => write!(f, "must be {expected}"),
            Self::TooMany => f.write_str("is one argument too many"),
        }
    }
}

impl Function {
    /// The arguments that the function does not accept, in the order in which they are written.
    pub fn misfits(&self, given: &[Literal]) -> Vec<Misfit> {
        let mut check = Check { types: &self.types, steps_left: STEPS_MAX };
        let mut misfits = match &self.body {
            Some(body) => self.misfits_beside(body, given, &mut check),
            None => self.misfits_of_params(given, &mut check),
        };
        misfits.truncate(MISFITS_MAX);
        misfits
    }

    fn misfits_of_params(&self, given: &[Literal], check: &mut Check<'_>) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        for (argument, expected) in self.arguments.iter().enumerate() {
            let mut found = Found::default();
            match given.get(argument) {
                None | Some(Literal::Nil) if !expected.required => {}
                // A missing argument with named fields is reported by the names of its required fields.
                None | Some(Literal::Nil) => match self.types.outline(&expected.of) {
                    Some(table) => check.table(&table, &Literal::nothing(), &mut found),
                    None => found.add(Problem::Missing),
                },
                Some(literal) => check.value(&expected.of, literal, &mut found),
            }
            misfits.extend(found.of(argument));
        }
        let argument = self.arguments.len();
        match given.get(argument) {
            None | Some(Literal::Nil | Literal::Unknown) => {}
            // Arguments for a function without parameters.
            Some(Literal::Table { fields, .. }) if argument == 0 => {
                let certain = self.params.as_ref().is_some_and(|table| table.rest == Rest::Closed);
                for (name, _) in fields.iter().filter(|(_, value)| *value != Literal::Nil) {
                    let problem = Problem::Unknown { near: None, certain };
                    misfits.push(Misfit { argument, path: vec![Step::Field(name.clone())], problem });
                }
            }
            Some(_) => misfits.push(Misfit { argument, path: Vec::new(), problem: Problem::TooMany }),
        }
        misfits
    }
}

impl Literal {
    /// The empty table, `{}`.
    pub(crate) fn nothing() -> Self {
        Self::Table { fields: Vec::new(), whole: true }
    }
}

/// Collects misfits, each with its path.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) at: Vec<Step>,
    pub(crate) all: Vec<(Vec<Step>, Problem)>,
}

impl Found {
    /// All misfits, as those of one argument.
    pub(crate) fn of(self, argument: usize) -> impl Iterator<Item = Misfit> {
        self.all.into_iter().map(move |(path, problem)| Misfit { argument, path, problem })
    }

    pub(crate) fn add(&mut self, problem: Problem) {
        if self.all.len() < MISFITS_MAX {
            self.all.push((self.at.clone(), problem));
        }
    }

    pub(crate) fn add_at(&mut self, step: Step, problem: Problem) {
        self.at.push(step);
        self.add(problem);
        self.at.pop();
    }

    /// An empty collection at the same path.
    fn beside(&self) -> Self {
        Self { at: self.at.clone(), all: Vec::new() }
    }
}

pub(crate) struct Check<'a> {
    types: &'a Types,
    steps_left: usize,
}

impl Check<'_> {
    pub(crate) fn value(&mut self, of: &Type, literal: &Literal, found: &mut Found) {
        if *literal == Literal::Unknown || self.steps_left == 0 || found.at.len() > DEPTH_MAX {
            return;
        }
        self.steps_left -= 1;
        match (self.types.resolve(of), literal) {
            (Type::Optional(_), Literal::Nil) => {}
            (Type::Optional(inner), _) => self.value(inner, literal, found),
            (Type::Union(parts), _) => self.union(of, parts, literal, found),
            (Type::Intersection(parts), _) => self.intersection(of, parts, literal, found),
            (Type::Table(table), Literal::Table { .. }) => self.table(table, literal, found),
            (Type::List(item), Literal::List(items)) => self.items(&[], item, items, found),
            (Type::Tuple(first, rest), Literal::List(items)) => self.items(first, rest, items, found),
            (resolved, _) if fits(resolved, literal) => {}
            _ => found.add(Problem::Wrong { expected: self.expected(of) }),
        }
    }

    /// The type in Luau, with details about numbers that Luau types cannot express.
    pub(crate) fn expected(&self, of: &Type) -> String {
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
        let text = on_one_line(of);
        match numbers.as_slice() {
            [] if parts.contains(&Type::Integer) && !parts.contains(&Type::Number) => {
                format!("{text} (whole)")
            }
            [] => text,
            numbers => format!("{text} ({})", numbers.join(", ")),
        }
    }

    fn items(&mut self, first: &[Type], rest: &Type, items: &[Literal], found: &mut Found) {
        for (place, item) in items.iter().enumerate() {
            if *item == Literal::Nil {
                continue;
            }
            found.at.push(Step::Item(place));
            self.value(first.get(place).unwrap_or(rest), item, found);
            found.at.pop();
        }
    }

    fn union(&mut self, of: &Type, parts: &[Type], literal: &Literal, found: &mut Found) {
        let mut tables = Vec::new();
        let mut doubtful: Option<Found> = None;
        for part in parts {
            let mut inside = found.beside();
            self.value(part, literal, &mut inside);
            if inside.all.is_empty() {
                return;
            }
            if inside.all.iter().all(|(_, problem)| !problem.is_certain()) {
                doubtful.get_or_insert(inside);
                continue;
            }
            if matches!(self.types.resolve(part), Type::Table(_)) {
                tables.push(inside);
            }
        }
        if let Some(mut doubtful) = doubtful {
            found.all.append(&mut doubtful.all);
            return;
        }
        // If only one alternative is a table, its own misfits are more helpful.
        match (literal, tables.pop()) {
            (Literal::Table { .. }, Some(only)) if tables.is_empty() => {
                only.all.into_iter().for_each(|misfit| found.all.push(misfit));
            }
            _ => found.add(Problem::Wrong { expected: self.expected(of) }),
        }
    }

    fn intersection(&mut self, of: &Type, parts: &[Type], literal: &Literal, found: &mut Found) {
        let all_tables = parts.iter().all(|part| matches!(self.types.resolve(part), Type::Table(_)));
        match self.types.outline(of) {
            // A field that one part does not name may belong to another part.
            Some(table) if all_tables && matches!(literal, Literal::Table { .. }) => {
                self.table(&table, literal, found);
            }
            _ => {
                for part in parts {
                    let mut inside = found.beside();
                    self.value(part, literal, &mut inside);
                    inside
                        .all
                        .retain(|(_, problem)| !matches!(problem, Problem::Unknown { certain: false, .. }));
                    found.all.append(&mut inside.all);
                }
            }
        }
    }

    pub(crate) fn table(&mut self, table: &Table, literal: &Literal, found: &mut Found) {
        let Literal::Table { fields, whole } = literal else { return };
        let known_fields: HashMap<&str, &Field> =
            table.fields.iter().rev().map(|field| (field.name.as_str(), field)).collect();
        for (name, value) in fields.iter().filter(|(_, value)| *value != Literal::Nil) {
            if found.all.len() >= MISFITS_MAX {
                return;
            }
            let known = known_fields.get(name.as_str());
            let of = match (known, &table.rest) {
                (Some(Field { of, .. }), _) => of,
                (None, Rest::Of(of)) => of,
                (None, _) if table.left_out > 0 => continue,
                // The schema describes no fields at all.
                (None, Rest::Unsaid) if table.fields.is_empty() => continue,
                (None, rest) => {
                    let names = table.fields.iter().map(|field| field.name.as_str());
                    let near = nearest(name, names).map(|near| near.to_owned());
                    let certain = *rest == Rest::Closed;
                    found.add_at(Step::Field(name.clone()), Problem::Unknown { near, certain });
                    continue;
                }
            };
            found.at.push(Step::Field(name.clone()));
            self.value(of, value, found);
            found.at.pop();
        }
        if !whole {
            return;
        }
        // A field set to `nil` counts as missing.
        let is_set = |(_, value): &&(String, Literal)| *value != Literal::Nil;
        let set_names: HashSet<&str> = fields.iter().filter(is_set).map(|(name, _)| name.as_str()).collect();
        for field in table.fields.iter().filter(|field| field.required) {
            if !set_names.contains(field.name.as_str()) {
                found.add_at(Step::Field(field.name.clone()), Problem::Missing);
            }
        }
    }
}

/// Whether a value without parts fits a type without parts.
fn fits(of: &Type, literal: &Literal) -> bool {
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
