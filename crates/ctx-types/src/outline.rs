//! Outlines: the fields of a type as one table, and the names in a type.

use crate::combine::{intersect_additional, intersection, union};
use crate::model::{AdditionalFields, FIELDS_MAX, Field, Table, Type, Types};
use std::collections::HashSet;

/// Maximum depth of types that are merged into an outline.
const DEPTH_MAX: usize = 32;

/// Maximum number of names listed for one function.
const NAMES_MAX: usize = 1_000;

impl Types {
    /// The fields that a value of this type can have, merged over unions and intersections; `None` if the value need
    /// not be a table.
    pub(crate) fn outline(&self, of: &Type) -> Option<Table> {
        self.outline_within(of, DEPTH_MAX)
    }

    fn outline_within(&self, of: &Type, depth_left: usize) -> Option<Table> {
        let depth_left = depth_left.checked_sub(1)?;
        match self.resolve(of) {
            Type::Table(table) => Some(table.clone()),
            Type::Optional(inner) => self.outline_within(inner, depth_left),
            Type::Intersection(parts) => {
                let parts = parts.iter().filter_map(|part| self.outline_within(part, depth_left));
                match intersection(parts.map(Type::Table)) {
                    Type::Table(table) => Some(table),
                    _ => None,
                }
            }
            Type::Union(parts) => {
                let parts: Option<Vec<Table>> =
                    parts.iter().map(|part| self.outline_within(part, depth_left)).collect();
                merge_alternatives(parts?)
            }
            _ => None,
        }
    }
}

/// Merges alternatives into one table; a field is required only if every alternative requires it.
fn merge_alternatives(tables: Vec<Table>) -> Option<Table> {
    let count = tables.len();
    let mut whole = Table::default();
    let mut occurrences: Vec<usize> = Vec::new();
    let mut rests: Option<AdditionalFields> = None;
    for table in tables {
        whole.left_out += table.left_out;
        rests = Some(match (rests, table.rest) {
            (None, rest) => rest,
            (Some(AdditionalFields::Forbidden), rest) | (Some(rest), AdditionalFields::Forbidden) => rest,
            (Some(first), second) => intersect_additional(first, second),
        });
        for field in table.fields {
            let is_full = whole.fields.len() >= FIELDS_MAX;
            let index = whole.fields.iter().position(|known| known.name == field.name);
            match index.and_then(|index| Some((whole.fields.get_mut(index)?, occurrences.get_mut(index)?))) {
                Some((known, times)) => {
                    *times += 1;
                    known.required &= field.required;
                    let first = std::mem::replace(&mut known.luau_type, Type::Any);
                    known.luau_type = union([first, field.luau_type]);
                }
                None if is_full => whole.left_out += 1,
                None => {
                    whole.fields.push(field);
                    occurrences.push(1);
                }
            }
        }
    }
    for (field, times) in whole.fields.iter_mut().zip(occurrences) {
        field.required &= times == count;
    }
    whole.rest = rests?;
    Some(whole)
}

/// Collects the names of fields, without duplicates.
pub(crate) struct FieldNames<'a> {
    pub(crate) all: Vec<&'a str>,
    seen: HashSet<&'a str>,
}

impl<'a> FieldNames<'a> {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new(), seen: HashSet::new() }
    }

    pub(crate) fn add(&mut self, name: &'a str) {
        if self.all.len() < NAMES_MAX && self.seen.insert(name) {
            self.all.push(name);
        }
    }

    pub(crate) fn add_fields(&mut self, of: &'a Type) {
        match of {
            Type::Table(table) => {
                for Field { name, luau_type: of, .. } in &table.fields {
                    self.add(name);
                    self.add_fields(of);
                }
                if let AdditionalFields::Of(rest) = &table.rest {
                    self.add_fields(rest);
                }
            }
            Type::List(inner) | Type::Optional(inner) => self.add_fields(inner),
            Type::Tuple(parts, _) | Type::Union(parts) | Type::Intersection(parts) => {
                parts.iter().for_each(|part| self.add_fields(part));
            }
            _ => {}
        }
    }
}
