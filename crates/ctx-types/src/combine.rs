//! Normalised unions and intersections of types.

use crate::model::{AdditionalFields, Constant, FIELDS_MAX, Field, Table, Type};

/// Maximum number of alternatives of a union.
pub(crate) const ALTERNATIVES_MAX: usize = 64;

/// Maximum number of alternatives of a union that are constants.
pub(crate) const CONSTANTS_MAX: usize = 128;

/// Union of types: flat, without duplicates, `nil` outermost.
pub(crate) fn union(alternatives: impl IntoIterator<Item = Type>) -> Type {
    let mut types = Vec::new();
    let mut is_nullable = false;
    let mut is_truncated = false;
    for alternative in alternatives {
        add_alternative(alternative, &mut types, &mut is_nullable, &mut is_truncated);
    }
    if types.contains(&Type::Any) {
        return Type::Any;
    }
    let both = [true, false].map(|flag| Type::Exactly(Constant::Boolean(flag)));
    if both.iter().all(|flag| types.contains(flag)) {
        types.retain(|alternative| !both.contains(alternative));
        types.push(Type::Boolean);
    }
    if is_truncated {
        types.push(Type::Any);
    }
    let whole = match types.len() {
        0 if is_nullable => return Type::Nil,
        0 => Type::Never,
        1 => types.remove(0),
        _ => Type::Union(types),
    };
    if is_nullable { optional(whole) } else { whole }
}

/// Like `union`, but any other value fits, too: the alternatives are kept for readers.
pub(crate) fn open_union(alternatives: impl IntoIterator<Item = Type>) -> Type {
    match union(alternatives) {
        Type::Any | Type::Never => Type::Any,
        Type::Union(mut types) if types.last() != Some(&Type::Any) => {
            types.push(Type::Any);
            Type::Union(types)
        }
        whole @ Type::Union(_) => whole,
        whole => Type::Union(vec![whole, Type::Any]),
    }
}

fn add_alternative(
    alternative: Type,
    types: &mut Vec<Type>,
    is_nullable: &mut bool,
    is_truncated: &mut bool,
) {
    match alternative {
        Type::Nil => *is_nullable = true,
        Type::Never => {}
        Type::Optional(inner) => {
            *is_nullable = true;
            add_alternative(*inner, types, is_nullable, is_truncated);
        }
        Type::Union(inner) => {
            for alternative in inner {
                add_alternative(alternative, types, is_nullable, is_truncated);
            }
        }
        other if types.contains(&other) => {}
        other if types.len() < ALTERNATIVES_MAX => types.push(other),
        other if types.len() < CONSTANTS_MAX && matches!(other, Type::Exactly(_)) => types.push(other),
        _ => *is_truncated = true,
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
    let mut types: Vec<Type> = Vec::new();
    let mut is_nullable = true;
    for part in parts {
        add_part(part, &mut types, &mut is_nullable);
    }
    let mut narrowest: Vec<Type> = Vec::new();
    for (index, part) in types.iter().enumerate() {
        let is_implied = |(other_index, other): (usize, &Type)| {
            other_index != index
                && is_subtype(other, part)
                && (other_index < index || !is_subtype(part, other))
        };
        if !types.iter().enumerate().any(is_implied) {
            narrowest.push(part.clone());
        }
    }
    let whole = match narrowest.len() {
        0 => return Type::Any,
        1 => narrowest.remove(0),
        _ => Type::Intersection(narrowest),
    };
    if is_nullable { optional(whole) } else { whole }
}

fn add_part(part: Type, types: &mut Vec<Type>, is_nullable: &mut bool) {
    match part {
        Type::Any => {}
        // `nil` must fit every part.
        Type::Optional(inner) => {
            let mut ignored = false;
            add_part(*inner, types, &mut ignored);
        }
        Type::Intersection(inner) => {
            for part in inner {
                add_part(part, types, is_nullable);
            }
        }
        Type::Table(table) => {
            *is_nullable = false;
            match types
                .iter_mut()
                .find_map(|part| if let Type::Table(first) = part { Some(first) } else { None })
            {
                Some(first) => merge_tables(first, table),
                None => types.push(Type::Table(table)),
            }
        }
        other => {
            *is_nullable = false;
            types.push(other);
        }
    }
}

/// Adds the fields of one table to another; a value must then fit both tables.
fn merge_tables(first: &mut Table, second: Table) {
    for field in second.fields {
        let is_full = first.fields.len() >= FIELDS_MAX;
        match first.fields.iter_mut().find(|known| known.name == field.name) {
            Some(known) => merge_field(known, field),
            None if is_full => first.left_out += 1,
            None => first.fields.push(field),
        }
    }
    first.left_out += second.left_out;
    let rest = std::mem::take(&mut first.rest);
    first.rest = intersect_additional(rest, second.rest);
}

/// The type of the fields that neither of two tables names.
pub(crate) fn intersect_additional(first: AdditionalFields, second: AdditionalFields) -> AdditionalFields {
    match (first, second) {
        (AdditionalFields::Forbidden, _) | (_, AdditionalFields::Forbidden) => AdditionalFields::Forbidden,
        (AdditionalFields::Unspecified, rest) | (rest, AdditionalFields::Unspecified) => rest,
        (AdditionalFields::Of(first), AdditionalFields::Of(second)) => {
            AdditionalFields::Of(Box::new(intersection([*first, *second])))
        }
    }
}

/// Merges a field that both tables name.
fn merge_field(known: &mut Field, other: Field) {
    let first = std::mem::replace(&mut known.luau_type, Type::Any);
    known.luau_type = intersection([first, other.luau_type]);
    known.notes.default = known.notes.default.take().or(other.notes.default);
    known.notes.description = known.notes.description.take().or(other.notes.description);
    known.notes.deprecated |= other.notes.deprecated;
    known.required = (known.required || other.required) && known.notes.default.is_none();
}

/// Whether every value of `narrow` certainly fits `wide`.
fn is_subtype(narrow: &Type, wide: &Type) -> bool {
    match (narrow, wide) {
        (_, Type::Any) | (Type::Never, _) => true,
        (Type::Union(alternatives), _) => {
            alternatives.iter().all(|alternative| is_subtype(alternative, wide))
        }
        (Type::Integer, Type::Number)
        | (Type::Exactly(Constant::Text(_)), Type::String)
        | (Type::Exactly(Constant::Number(_)), Type::Number | Type::Integer)
        | (Type::Exactly(Constant::Boolean(_)), Type::Boolean) => true,
        // A table type without fields only requires the value to be a table.
        (Type::Table(_) | Type::Named(_), Type::Table(wide)) => {
            wide.fields.is_empty() && wide.rest == AdditionalFields::Unspecified
        }
        _ => narrow == wide,
    }
}
