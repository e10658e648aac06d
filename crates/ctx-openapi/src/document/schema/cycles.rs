//! Breaks cycles of definitions that refer to themselves in place.
//!
//! A definition that contains itself in a field is a tree or a list, and valid. One that refers to itself
//! through `allOf` or the like would send a validator into an endless loop. Such cycles come from inheritance
//! declared in both directions: a pet is one of cat and dog, a cat is all of a pet. The reference back is
//! then replaced by one to the pet's own properties.

use crate::operation::{definition_name, definition_reference};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Keywords whose subschemas apply to the same value.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SINGLE: [&str; 4] = ["not", "if", "then", "else"];

/// Breaks every cycle once; where the cycle is inheritance, at the heir.
pub(super) fn break_cycles(definitions: &mut BTreeMap<String, Value>) {
    cut_edges(definitions, inheritance_edges(definitions));
    cut_edges(definitions, back_edges(definitions));
}

/// Pairs of heir and parent: the parent has the heir in `oneOf` or `anyOf`, and the heir refers to the
/// parent.
fn inheritance_edges(definitions: &BTreeMap<String, Value>) -> Vec<(String, String)> {
    let mut edges = Vec::new();
    for (parent, definition) in definitions {
        let lists = ["oneOf", "anyOf"].into_iter().filter_map(|keyword| definition.get(keyword)?.as_array());
        for name in lists.flatten().filter_map(|one| definition_name(one.get("$ref")?.as_str()?)) {
            if name != parent && in_place_references(definitions.get(name)).contains(&parent.as_str()) {
                edges.push((name.to_owned(), parent.clone()));
            }
        }
    }
    edges
}

fn cut_edges(definitions: &mut BTreeMap<String, Value>, pairs: Vec<(String, String)>) {
    for (from, to) in pairs {
        let base = add_base_definition(definitions, &to);
        if let Some(definition) = definitions.get_mut(&from) {
            redirect_references(definition, &to, base.as_deref());
        }
    }
}

/// Pairs of definitions of which the first closes a cycle by referring to the second (depth-first search).
fn back_edges(definitions: &BTreeMap<String, Value>) -> Vec<(String, String)> {
    #[derive(PartialEq)]
    enum VisitState {
        Entered,
        Left,
    }
    let mut visits: HashMap<&str, VisitState> = HashMap::new();
    let mut back = Vec::new();
    for start in definitions.keys() {
        if visits.contains_key(start.as_str()) {
            continue;
        }
        let mut path = vec![(start.as_str(), in_place_references(definitions.get(start)))];
        visits.insert(start, VisitState::Entered);
        while let Some((from, left)) = path.last_mut() {
            let from = *from;
            let Some(to) = left.pop() else {
                visits.insert(from, VisitState::Left);
                path.pop();
                continue;
            };
            match visits.get(to) {
                Some(VisitState::Entered) => back.push((from.to_owned(), to.to_owned())),
                Some(VisitState::Left) => {}
                None => {
                    visits.insert(to, VisitState::Entered);
                    path.push((to, in_place_references(definitions.get(to))));
                }
            }
        }
    }
    back
}

/// The definitions that apply to the same value as this one; the last first.
fn in_place_references(definition: Option<&Value>) -> Vec<&str> {
    let mut references: Vec<&str> = Vec::new();
    let mut known = HashSet::new();
    let mut queue: Vec<&Value> = definition.into_iter().collect();
    while let Some(schema) = queue.pop() {
        let Value::Object(fields) = schema else { continue };
        if let Some(name) = fields.get("$ref").and_then(Value::as_str).and_then(definition_name)
            && known.insert(name)
        {
            references.push(name);
        }
        queue.extend(LISTS.iter().filter_map(|keyword| fields.get(*keyword)?.as_array()).flatten());
        queue.extend(SINGLE.iter().filter_map(|keyword| fields.get(*keyword)));
        queue.extend(
            fields.get("dependentSchemas").and_then(Value::as_object).into_iter().flat_map(Map::values),
        );
    }
    references.reverse();
    references
}

/// Adds a definition with the own properties of another, without what it combines, and returns its name;
/// `None` if it has no properties.
fn add_base_definition(definitions: &mut BTreeMap<String, Value>, name: &str) -> Option<String> {
    let Value::Object(mut own) = definitions.get(name)?.clone() else { return None };
    own.retain(|keyword, _| {
        let combines = LISTS.contains(&keyword.as_str()) || SINGLE.contains(&keyword.as_str());
        !combines && !matches!(keyword.as_str(), "$ref" | "dependentSchemas" | "discriminator")
    });
    if !own.contains_key("properties") {
        return None;
    }
    let own = Value::Object(own);
    let names = (1_usize..).map(|ordinal| match ordinal {
        1 => format!("{name}_base"),
        ordinal => format!("{name}_base_{ordinal}"),
    });
    let is_free = |name: &String| definitions.get(name).is_none_or(|existing| *existing == own);
    let name = names.into_iter().find(is_free)?;
    definitions.insert(name.clone(), own);
    Some(name)
}

/// Replaces every reference in place to the definition `to` by one to `base`, or by a schema that accepts
/// anything.
fn redirect_references(schema: &mut Value, to: &str, base: Option<&str>) {
    let Value::Object(fields) = schema else { return };
    let is_back = fields.get("$ref").and_then(Value::as_str).and_then(definition_name) == Some(to);
    match base {
        Some(base) if is_back => {
            fields.insert("$ref".to_owned(), definition_reference(base).into());
        }
        None if is_back => {
            fields.shift_remove("$ref");
        }
        _ => {}
    }
    for keyword in LISTS {
        for part in fields.get_mut(keyword).and_then(Value::as_array_mut).into_iter().flatten() {
            redirect_references(part, to, base);
        }
    }
    for keyword in SINGLE {
        if let Some(part) = fields.get_mut(keyword) {
            redirect_references(part, to, base);
        }
    }
    // Beside an alternative that accepts anything, `oneOf` would refuse valid values, and `not` anything
    // would accept nothing.
    let is_anything = |part: &Value| part.as_object().is_some_and(Map::is_empty);
    if fields.get("oneOf").and_then(Value::as_array).is_some_and(|parts| parts.iter().any(is_anything)) {
        fields.shift_remove("oneOf");
    }
    if fields.get("not").is_some_and(is_anything) {
        fields.shift_remove("not");
    }
    let dependent = fields.get_mut("dependentSchemas").and_then(Value::as_object_mut);
    for part in dependent.into_iter().flat_map(Map::values_mut) {
        redirect_references(part, to, base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definitions(value: Value) -> BTreeMap<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn mutual_inheritance_ends_at_the_base() {
        let mut definitions = definitions(json!({
            "Cat": {"allOf": [{"$ref": "#/$defs/Pet"}, {"properties": {"lives": {}}}]},
            "Pet": {"type": "object", "properties": {"friend": {"$ref": "#/$defs/Pet"}},
                "oneOf": [{"$ref": "#/$defs/Cat"}]},
        }));
        break_cycles(&mut definitions);
        let friend = json!({"friend": {"$ref": "#/$defs/Pet"}});
        assert_eq!(
            definitions["Cat"],
            json!({"allOf": [{"$ref": "#/$defs/Pet_base"}, {"properties": {"lives": {}}}]})
        );
        assert_eq!(definitions["Pet"]["oneOf"], json!([{"$ref": "#/$defs/Cat"}]));
        assert_eq!(definitions["Pet"]["properties"], friend);
        assert_eq!(definitions["Pet_base"], json!({"type": "object", "properties": friend}));
    }

    #[test]
    fn no_cycle_is_left() {
        let mut definitions = definitions(json!({
            "a": {"$ref": "#/$defs/a"},
            "b": {"anyOf": [{"$ref": "#/$defs/c"}, {"not": {"$ref": "#/$defs/b"}}]},
            "c": {"if": {"$ref": "#/$defs/d"}, "then": {"$ref": "#/$defs/b"}},
            "d": {"allOf": [{"oneOf": [{"$ref": "#/$defs/b"}]}], "properties": {"x": {"$ref": "#/$defs/b"}}},
        }));
        break_cycles(&mut definitions);
        assert_eq!(back_edges(&definitions), []);
        assert_eq!(definitions["d"]["properties"]["x"], json!({"$ref": "#/$defs/b"}));
    }

    #[test]
    fn a_long_chain_is_walked_without_a_deep_stack() {
        let next = |index: usize| format!("#/$defs/x{}", index + 1);
        let mut definitions: BTreeMap<String, Value> =
            (0..100_000).map(|index| (format!("x{index}"), json!({"$ref": next(index)}))).collect();
        break_cycles(&mut definitions);
        assert_eq!(definitions.len(), 100_000);
    }
}
