//! Normalised unions and intersections of types.

use crate::model::{Constant, FIELDS_MAX, Field, Rest, Table, Type};

/// Maximum number of alternatives of a union.
pub(crate) const ALTERNATIVES_MAX: usize = 64;

/// Maximum number of alternatives of a union that are constants.
pub(crate) const CONSTANTS_MAX: usize = 128;

/// Union of types: flat, without duplicates, `nil` outermost.
pub(crate) fn union(alternatives: impl IntoIterator<Item = Type>) -> Type {
    let mut kept = Vec::new();
    let mut nil = false;
    let mut more = false;
    for alternative in alternatives {
        add_alternative(alternative, &mut kept, &mut nil, &mut more);
    }
    if kept.contains(&Type::Any) {
        return Type::Any;
    }
    let both = [true, false].map(|flag| Type::Exactly(Constant::Boolean(flag)));
    if both.iter().all(|flag| kept.contains(flag)) {
        kept.retain(|alternative| !both.contains(alternative));
        kept.push(Type::Boolean);
    }
    if more {
        kept.push(Type::Any);
    }
    let whole = match kept.len() {
        0 if nil => return Type::Nil,
        0 => Type::Never,
        1 => kept.remove(0),
        _ => Type::Union(kept),
    };
    if nil { optional(whole) } else { whole }
}

/// Like `union`, but any other value fits, too: the alternatives are kept for readers.
pub(crate) fn open_union(alternatives: impl IntoIterator<Item = Type>) -> Type {
    match union(alternatives) {
        Type::Any | Type::Never => Type::Any,
        Type::Union(mut kept) if kept.last() != Some(&Type::Any) => {
            kept.push(Type::Any);
            Type::Union(kept)
        }
        whole @ Type::Union(_) => whole,
        whole => Type::Union(vec![whole, Type::Any]),
    }
}

fn add_alternative(alternative: Type, kept: &mut Vec<Type>, nil: &mut bool, more: &mut bool) {
    match alternative {
        Type::Nil => *nil = true,
        Type::Never => {}
        Type::Optional(inner) => {
            *nil = true;
            add_alternative(*inner, kept, nil, more);
        }
        Type::Union(inner) => {
            for alternative in inner {
                add_alternative(alternative, kept, nil, more);
            }
        }
        other if kept.contains(&other) => {}
        other if kept.len() < ALTERNATIVES_MAX => kept.push(other),
        other if kept.len() < CONSTANTS_MAX && matches!(other, Type::Exactly(_)) => kept.push(other),
        _ => *more = true,
    }
}

/// The type or `nil`.
pub(crate) fn optional(of: Type) -> Type {
    match of {
        Type::Nil | Type::Optional(_) => of,
        Type::Never => Type::Nil,
        of => Type::Optional(Box::new(of)),
    }
}

/// Intersection of types. Tables are merged into one, except for named types.
pub(crate) fn intersection(parts: impl IntoIterator<Item = Type>) -> Type {
    let mut kept: Vec<Type> = Vec::new();
    let mut nil = true;
    for part in parts {
        add_part(part, &mut kept, &mut nil);
    }
    let mut narrowest: Vec<Type> = Vec::new();
    for (place, part) in kept.iter().enumerate() {
        let said = |(other_place, other): (usize, &Type)| {
            other_place != place && within(other, part) && (other_place < place || !within(part, other))
        };
        if !kept.iter().enumerate().any(said) {
            narrowest.push(part.clone());
        }
    }
    let whole = match narrowest.len() {
        0 => return Type::Any,
        1 => narrowest.remove(0),
        _ => Type::Intersection(narrowest),
    };
    if nil { optional(whole) } else { whole }
}

fn add_part(part: Type, kept: &mut Vec<Type>, nil: &mut bool) {
    match part {
        Type::Any => {}
        // `nil` must fit every part.
        Type::Optional(inner) => {
            let mut ignored = false;
            add_part(*inner, kept, &mut ignored);
        }
        Type::Intersection(inner) => {
            for part in inner {
                add_part(part, kept, nil);
            }
        }
        Type::Table(table) => {
            *nil = false;
            match kept
                .iter_mut()
                .find_map(|part| if let Type::Table(first) = part { Some(first) } else { None })
            {
                Some(first) => merge(first, table),
                None => kept.push(Type::Table(table)),
            }
        }
        other => {
            *nil = false;
            kept.push(other);
        }
    }
}

/// Adds the fields of one table to another; a value must then fit both tables.
fn merge(first: &mut Table, second: Table) {
    for field in second.fields {
        let is_full = first.fields.len() >= FIELDS_MAX;
        match first.fields.iter_mut().find(|known| known.name == field.name) {
            Some(known) => meet(known, field),
            None if is_full => first.left_out += 1,
            None => first.fields.push(field),
        }
    }
    first.left_out += second.left_out;
    let rest = std::mem::take(&mut first.rest);
    first.rest = both_rests(rest, second.rest);
}

/// The type of the fields that neither of two tables names.
pub(crate) fn both_rests(first: Rest, second: Rest) -> Rest {
    match (first, second) {
        (Rest::Closed, _) | (_, Rest::Closed) => Rest::Closed,
        (Rest::Unsaid, rest) | (rest, Rest::Unsaid) => rest,
        (Rest::Of(first), Rest::Of(second)) => Rest::Of(Box::new(intersection([*first, *second]))),
    }
}

/// Merges a field that both tables name.
fn meet(known: &mut Field, other: Field) {
    let first = std::mem::replace(&mut known.of, Type::Any);
    known.of = intersection([first, other.of]);
    known.notes.default = known.notes.default.take().or(other.notes.default);
    known.notes.description = known.notes.description.take().or(other.notes.description);
    known.notes.deprecated |= other.notes.deprecated;
    known.required = (known.required || other.required) && known.notes.default.is_none();
}

/// Whether every value of `narrow` certainly fits `wide`.
fn within(narrow: &Type, wide: &Type) -> bool {
    match (narrow, wide) {
        (_, Type::Any) | (Type::Never, _) => true,
        (Type::Union(alternatives), _) => alternatives.iter().all(|alternative| within(alternative, wide)),
        (Type::Integer, Type::Number)
        | (Type::Exactly(Constant::Text(_)), Type::String)
        | (Type::Exactly(Constant::Number(_)), Type::Number | Type::Integer)
        | (Type::Exactly(Constant::Boolean(_)), Type::Boolean) => true,
        // A table type without fields only requires the value to be a table.
        (Type::Table(_) | Type::Named(_), Type::Table(wide)) => {
            wide.fields.is_empty() && wide.rest == Rest::Unsaid
        }
        _ => narrow == wide,
    }
}
