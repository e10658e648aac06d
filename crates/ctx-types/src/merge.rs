//! Merges the named types of two documents: no type is only itself, no name means two types, nearest first.

use crate::combine::{intersection, open_union, optional, union};
use crate::model::{AdditionalFields, NamedType, Table, Type, Types};
use std::collections::{HashMap, HashSet, VecDeque};

/// Position of a name in a type.
#[derive(Clone, Copy, PartialEq)]
enum NamePosition {
    /// The name is the type itself, or one of its alternatives or parts.
    Head,
    /// The name is the type of a field or item.
    Inside,
}

/// Merges the named types of two documents into one set. If both use a name for different types, the second's gets a
/// number. Returns the roots of both, and the set.
pub(crate) fn merge_types(
    first: (Type, Vec<NamedType>),
    second: (Type, Vec<NamedType>),
) -> (Type, Type, Types) {
    let (first_root, mut all) = first;
    let (second_root, others) = second;
    let renamed = conflicting_names(&all, &others);
    let known: HashSet<String> = all.iter().map(|named| named.name.clone()).collect();
    let rename = |of| {
        map_names(of, NamePosition::Head, &|name, _| Type::Named(renamed.get(&name).cloned().unwrap_or(name)))
    };
    for named in others {
        let name = renamed.get(&named.name).cloned().unwrap_or(named.name);
        if !known.contains(&name) {
            all.push(NamedType { name, luau_type: rename(named.luau_type), notes: named.notes });
        }
    }
    let second_root = rename(second_root);
    break_cycles(&mut all);
    let all = in_breadth_first_order([&first_root, &second_root], all);
    (first_root, second_root, Types::new(all))
}

/// New names for those of `others` whose names mean another type in `known`.
fn conflicting_names(known: &[NamedType], others: &[NamedType]) -> HashMap<String, String> {
    let by_name: HashMap<&str, &NamedType> = known.iter().map(|named| (named.name.as_str(), named)).collect();
    let mut same: HashSet<&str> = HashSet::new();
    for other in others {
        if by_name.get(other.name.as_str()) == Some(&other) {
            same.insert(&other.name);
        }
    }
    // Two types are the same only if all types to which they refer are.
    loop {
        let before = same.len();
        for other in others {
            let mut mentions_another = false;
            visit_names(&other.luau_type, NamePosition::Head, &mut |name, _| {
                mentions_another |= !same.contains(name)
            });
            if mentions_another {
                same.remove(other.name.as_str());
            }
        }
        if same.len() == before {
            break;
        }
    }
    let mut taken: HashSet<String> = known.iter().chain(others).map(|named| named.name.clone()).collect();
    let mut renamed = HashMap::new();
    for other in others {
        if same.contains(other.name.as_str()) || !by_name.contains_key(other.name.as_str()) {
            continue;
        }
        let mut ordinal = 2;
        let mut name = format!("{}_{ordinal}", other.name);
        while !taken.insert(name.clone()) {
            ordinal += 1;
            name = format!("{}_{ordinal}", other.name);
        }
        renamed.insert(other.name.clone(), name);
    }
    renamed
}

/// Replaces a type that is only itself, directly or in a cycle, by `any` at that place: it says nothing.
pub(crate) fn break_cycles(all: &mut [NamedType]) {
    let mut heads: HashMap<String, Vec<String>> = HashMap::new();
    for named in all.iter() {
        heads.insert(named.name.clone(), head_names(&named.luau_type));
    }
    for named in all {
        let circular: HashSet<String> = head_names(&named.luau_type)
            .into_iter()
            .filter(|head| reaches(head, &named.name, &heads))
            .collect();
        if circular.is_empty() {
            continue;
        }
        let of = std::mem::replace(&mut named.luau_type, Type::Any);
        named.luau_type = map_names(of, NamePosition::Head, &|name, position| {
            if position == NamePosition::Head && circular.contains(&name) {
                Type::Any
            } else {
                Type::Named(name)
            }
        });
        heads.insert(named.name.clone(), head_names(&named.luau_type));
    }
}

fn head_names(of: &Type) -> Vec<String> {
    let mut heads = Vec::new();
    visit_names(of, NamePosition::Head, &mut |name, position| {
        if position == NamePosition::Head {
            heads.push(name.to_owned());
        }
    });
    heads
}

fn reaches(from: &str, to: &str, heads: &HashMap<String, Vec<String>>) -> bool {
    let mut seen = HashSet::from([from]);
    let mut pending = vec![from];
    while let Some(name) = pending.pop() {
        if name == to {
            return true;
        }
        for head in heads.get(name).into_iter().flatten() {
            if seen.insert(head) {
                pending.push(head);
            }
        }
    }
    false
}

/// The types that the roots reach, in breadth-first order.
fn in_breadth_first_order(roots: [&Type; 2], all: Vec<NamedType>) -> Vec<NamedType> {
    let mut by_name: HashMap<String, NamedType> =
        all.into_iter().map(|named| (named.name.clone(), named)).collect();
    let mut pending = VecDeque::new();
    for root in roots {
        visit_names(root, NamePosition::Head, &mut |name, _| pending.push_back(name.to_owned()));
    }
    let mut ordered = Vec::new();
    while let Some(name) = pending.pop_front() {
        if let Some(named) = by_name.remove(&name) {
            visit_names(&named.luau_type, NamePosition::Head, &mut |name, _| {
                pending.push_back(name.to_owned())
            });
            ordered.push(named);
        }
    }
    ordered
}

/// The type with other names in it.
pub(crate) fn rename_types(of: Type, name: &impl Fn(&str) -> String) -> Type {
    map_names(of, NamePosition::Head, &|old, _| Type::Named(name(&old)))
}

fn visit_names<'a>(of: &'a Type, position: NamePosition, visit: &mut impl FnMut(&'a str, NamePosition)) {
    match of {
        Type::Named(name) => visit(name, position),
        Type::Optional(inner) => visit_names(inner, position, visit),
        Type::Union(parts) | Type::Intersection(parts) => {
            parts.iter().for_each(|part| visit_names(part, position, visit));
        }
        Type::List(item) => visit_names(item, NamePosition::Inside, visit),
        Type::Tuple(items, rest) => {
            items.iter().for_each(|item| visit_names(item, NamePosition::Inside, visit));
            visit_names(rest, NamePosition::Inside, visit);
        }
        Type::Table(table) => {
            table.fields.iter().for_each(|field| visit_names(&field.luau_type, NamePosition::Inside, visit));
            if let AdditionalFields::Of(rest) = &table.rest {
                visit_names(rest, NamePosition::Inside, visit);
            }
        }
        _ => {}
    }
}

fn map_names(of: Type, position: NamePosition, map: &impl Fn(String, NamePosition) -> Type) -> Type {
    let inside = |of: Type| map_names(of, NamePosition::Inside, map);
    match of {
        Type::Named(name) => map(name, position),
        Type::Optional(inner) => match map_names(*inner, position, map) {
            Type::Any => Type::Any,
            inner => optional(inner),
        },
        Type::Union(mut parts) if parts.last() == Some(&Type::Any) => {
            parts.pop();
            open_union(parts.into_iter().map(|part| map_names(part, position, map)))
        }
        Type::Union(parts) => union(parts.into_iter().map(|part| map_names(part, position, map))),
        Type::Intersection(parts) => {
            intersection(parts.into_iter().map(|part| map_names(part, position, map)))
        }
        Type::List(item) => Type::List(Box::new(inside(*item))),
        Type::Tuple(items, rest) => {
            Type::Tuple(items.into_iter().map(inside).collect(), Box::new(inside(*rest)))
        }
        Type::Table(Table { fields, rest, left_out }) => {
            let rest = match rest {
                AdditionalFields::Of(of) => AdditionalFields::Of(Box::new(inside(*of))),
                rest => rest,
            };
            let fields = fields.into_iter().map(|mut field| {
                field.luau_type = inside(field.luau_type);
                field
            });
            Type::Table(Table { fields: fields.collect(), rest, left_out })
        }
        other => other,
    }
}
