//! Validation effort: the work of validating arguments by a JSON Schema, estimated in advance.
//!
//! Schemas are untrusted, and the validator has no limits of its own: branching `$ref`s cause exponentially many visits,
//! a long `$ref` chain overflows the stack, and a pattern with counted repetitions costs its expanded size for every
//! character. So the visits are counted first, with memoised `$ref` targets, and validation that would exceed the limit
//! is not started.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Nesting of schema and value together; each level is a few stack frames of the validator.
const DEPTH_MAX: usize = 1_000;

/// Subschemas of one schema.
const SCHEMA_PARTS_MAX: usize = 100_000;

/// Size of one pattern, with counted repetitions expanded.
const PATTERN_SIZE_MAX: usize = 20_000;

/// Sum of all pattern sizes of one schema; compiling takes about a microsecond per unit.
const PATTERNS_SIZE_MAX: usize = 200_000;

/// Sum of the JSON pointers of a schema's keywords: the validator stores the pointer of each.
const POINTERS_BYTES_MAX: usize = 32 << 20;

/// Items of an array up to which the validator compares each pair for `uniqueItems`; above it hashes them.
const PAIRWISE_ITEMS_MAX: usize = 15;

/// Fixed cost of a match that needs the backtracking engine, besides its length.
const BACKTRACKING_EFFORT: u64 = 1_000;

/// Validation effort that may be spent at all: about a second.
pub(crate) const EFFORT_MAX: u64 = 20_000_000;

/// In-place applicators: keywords whose one subschema applies to the value itself.
const IN_PLACE: [&str; 5] = ["not", "if", "then", "else", "contentSchema"];

/// In-place applicators with a list of subschemas.
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Child applicators: keywords whose subschema applies to every field or item.
const CHILD_SCHEMAS: [&str; 6] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "items",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// The keyword whose subschema applies to the name of every field.
const NAME_SCHEMA: &str = "propertyNames";

/// Keywords whose subschemas are the values of an object.
const SCHEMA_MAPS: [&str; 4] = ["dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Dynamic reference keywords: their target depends on the evaluation path, not only on the document.
const UNSUPPORTED: [&str; 4] = ["$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"];

/// The validation effort is above its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffortExceeded;

/// Effort of validating `value` by a subschema of `root`, in visits of some twenty nanoseconds.
pub(crate) fn effort<'a>(
    root: &'a Value,
    part: &'a Value,
    value: &'a Value,
    effort_max: u64,
) -> Result<u64, EffortExceeded> {
    let mut counter = EffortCounter { root, memo: HashMap::new(), effort: 0, effort_max, deepest: 0 };
    counter.visit(part, value, 0)?;
    Ok(counter.effort)
}

struct EffortCounter<'a> {
    root: &'a Value,
    /// Cost of validating a value by a `$ref` target, keyed by both addresses; `None` while it is being counted.
    memo: HashMap<(*const Value, *const Value), Option<Cost>>,
    effort: u64,
    effort_max: u64,
    /// Greatest depth so far.
    deepest: usize,
}

#[derive(Clone, Copy)]
struct Cost {
    effort: u64,
    /// Depth below the `$ref` itself.
    height: usize,
}

impl<'a> EffortCounter<'a> {
    fn add(&mut self, effort: u64) -> Result<(), EffortExceeded> {
        self.effort = self.effort.saturating_add(effort);
        if self.effort > self.effort_max { Err(EffortExceeded) } else { Ok(()) }
    }

    fn visit(&mut self, schema: &'a Value, value: &'a Value, depth: usize) -> Result<(), EffortExceeded> {
        let Value::Object(schema) = schema else { return self.add(1) };
        self.enter(depth)?;
        let before = self.effort;
        self.add(1 + schema.values().map(entry_count).sum::<u64>() / 8)?;
        self.add_matches(schema, value)?;
        self.add_comparisons(schema, value)?;
        for part in IN_PLACE.iter().filter_map(|keyword| schema.get(*keyword)) {
            self.visit(part, value, depth + 1)?;
        }
        for part in IN_PLACE_LISTS.iter().filter_map(|keyword| schema.get(*keyword)?.as_array()).flatten() {
            self.visit(part, value, depth + 1)?;
        }
        for keyword in ["dependentSchemas", "dependencies"] {
            for part in schema.get(keyword).and_then(Value::as_object).into_iter().flat_map(Map::values) {
                self.visit(part, value, depth + 1)?;
            }
        }
        if let Value::Object(fields) = value {
            self.add_lookups(schema, fields)?;
        }
        if let Some(reference) = schema.get("$ref") {
            // A dangling reference was refused when the schema was compiled.
            if let Some(target) = resolve_reference(self.root, reference) {
                self.visit_reference(target, value, depth + 1)?;
            }
        }
        self.visit_children(schema, value, depth)?;
        let own = self.effort - before;
        if schema.contains_key("unevaluatedProperties") || schema.contains_key("unevaluatedItems") {
            // The validator evaluates the sibling keywords again for each field or item.
            self.add(own.saturating_mul(entry_count(value) + 1))?;
        }
        Ok(())
    }

    fn visit_reference(
        &mut self,
        target: &'a Value,
        value: &'a Value,
        depth: usize,
    ) -> Result<(), EffortExceeded> {
        let key = (std::ptr::from_ref(target), std::ptr::from_ref(value));
        match self.memo.get(&key) {
            Some(Some(cost)) => {
                let Cost { effort, height } = *cost;
                self.enter(depth + height)?;
                return self.add(effort);
            }
            // Infinite recursion: the schema refers to itself without descending into the value.
            Some(None) => return Err(EffortExceeded),
            None => drop(self.memo.insert(key, None)),
        }
        let (effort_before, deepest_before) = (self.effort, std::mem::replace(&mut self.deepest, depth));
        self.visit(target, value, depth)?;
        let cost = Cost { effort: self.effort - effort_before, height: self.deepest - depth };
        self.deepest = self.deepest.max(deepest_before);
        self.memo.insert(key, Some(cost));
        Ok(())
    }

    /// Visits the name of a field as the string that the validator makes of it.
    fn visit_name(&mut self, part: &'a Value, name: &str, depth: usize) -> Result<(), EffortExceeded> {
        let name = Value::from(name);
        // A memo of its own: the next name may have the same address.
        let Self { root, effort, effort_max, deepest, .. } = *self;
        let mut counter = EffortCounter { root, memo: HashMap::new(), effort, effort_max, deepest };
        counter.visit(part, &name, depth)?;
        (self.effort, self.deepest) = (counter.effort, counter.deepest);
        Ok(())
    }

    fn enter(&mut self, depth: usize) -> Result<(), EffortExceeded> {
        self.deepest = self.deepest.max(depth);
        if depth > DEPTH_MAX { Err(EffortExceeded) } else { Ok(()) }
    }

    fn visit_children(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &'a Value,
        depth: usize,
    ) -> Result<(), EffortExceeded> {
        let child_schemas = CHILD_SCHEMAS.iter().filter_map(|keyword| schema.get(*keyword));
        match value {
            Value::Object(fields) => {
                let of_each = child_schemas.filter(|part| part.is_object());
                let patterns = schema.get("patternProperties").and_then(Value::as_object);
                let of_each: Vec<&'a Value> =
                    of_each.chain(patterns.into_iter().flat_map(Map::values)).collect();
                if let Some(part) = schema.get(NAME_SCHEMA).filter(|part| part.is_object()) {
                    fields.keys().try_for_each(|name| self.visit_name(part, name, depth + 1))?;
                }
                for field in fields.values().filter(|_| !of_each.is_empty()) {
                    of_each.iter().try_for_each(|part| self.visit(part, field, depth + 1))?;
                }
                for (name, part) in schema.get("properties").and_then(Value::as_object).into_iter().flatten()
                {
                    self.add(text_effort(name))?;
                    if let Some(field) = fields.get(name) {
                        self.visit(part, field, depth + 1)?;
                    }
                }
            }
            Value::Array(items) => {
                let of_each: Vec<&'a Value> = child_schemas.filter(|part| part.is_object()).collect();
                let lists = ["prefixItems", "items"]
                    .into_iter()
                    .filter_map(|keyword| schema.get(keyword)?.as_array());
                let lists: Vec<&'a Vec<Value>> = lists.collect();
                self.add(items.len() as u64)?;
                for (place, item) in items.iter().enumerate() {
                    of_each.iter().try_for_each(|part| self.visit(part, item, depth + 1))?;
                    let by_place = lists.iter().filter_map(|list| list.get(place));
                    by_place.into_iter().try_for_each(|part| self.visit(part, item, depth + 1))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds the cost of matching strings and field names against `pattern`, `patternProperties` and `format`.
    fn add_matches(&mut self, schema: &Map<String, Value>, value: &Value) -> Result<(), EffortExceeded> {
        match value {
            Value::String(text) => {
                if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
                    self.add(match_effort(pattern, text))?;
                }
                match schema.get("format").and_then(Value::as_str) {
                    Some("regex") => self.add(text.len() as u64 * 64)?,
                    Some(_) => self.add(text.len() as u64)?,
                    None => {}
                }
                self.add(text_effort(text))
            }
            Value::Object(fields) => {
                let patterns = schema.get("patternProperties").and_then(Value::as_object);
                for pattern in patterns.into_iter().flat_map(Map::keys) {
                    fields.keys().try_for_each(|name| self.add(match_effort(pattern, name)))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Adds the cost of looking names up, in the value and in the schema.
    fn add_lookups(
        &mut self,
        schema: &Map<String, Value>,
        fields: &Map<String, Value>,
    ) -> Result<(), EffortExceeded> {
        if ["properties", "additionalProperties", "unevaluatedProperties"]
            .iter()
            .any(|word| schema.contains_key(*word))
        {
            fields.keys().try_for_each(|name| self.add(1 + text_effort(name)))?;
        }
        let dependent = ["dependentRequired", "dependencies"].into_iter();
        let dependent = dependent.filter_map(|keyword| schema.get(keyword)?.as_object()).flatten();
        let dependent = dependent.filter(|(name, _)| fields.contains_key(*name)).map(|(_, names)| names);
        for names in schema.get("required").into_iter().chain(dependent).filter_map(Value::as_array) {
            names.iter().try_for_each(|name| self.add(1 + name.as_str().map_or(0, text_effort)))?;
        }
        Ok(())
    }

    /// Adds the cost of comparing the value for `const`, `enum` and `uniqueItems`.
    fn add_comparisons(&mut self, schema: &Map<String, Value>, value: &Value) -> Result<(), EffortExceeded> {
        let options = schema.get("enum").and_then(Value::as_array);
        // The validator looks a string up among strings by its hash; other scalars are compared at once.
        let is_compared = match value {
            Value::String(_) => {
                options.is_some_and(|options| !options.iter().all(|one| one.is_string() || one.is_null()))
            }
            value => entry_count(value) > 0,
        };
        let options = options.into_iter().flatten().chain(schema.get("const"));
        for option in options.filter(|_| is_compared) {
            self.add_comparison(option, value)?;
        }
        match value {
            Value::Array(items) if schema.get("uniqueItems") == Some(&Value::Bool(true)) => {
                self.add_unique(items)
            }
            _ => Ok(()),
        }
    }

    /// Adds the cost of finding two values equal, whether they are or not.
    fn add_comparison(&mut self, one: &Value, other: &Value) -> Result<(), EffortExceeded> {
        match (one, other) {
            (Value::String(one), Value::String(other)) if one.len() == other.len() => {
                self.add(1 + text_effort(one))
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                self.add(1)?;
                one.iter().zip(other).try_for_each(|(one, other)| self.add_comparison(one, other))
            }
            (Value::Object(one), Value::Object(other)) if one.len() == other.len() => {
                self.add(1)?;
                one.iter().try_for_each(|(name, field)| {
                    self.add(1 + text_effort(name))?;
                    other.get(name).map_or(Ok(()), |other| self.add_comparison(field, other))
                })
            }
            _ => self.add(1),
        }
    }

    /// Adds the cost of hashing each item, and of comparing it with the items before it that have the same hash.
    fn add_unique(&mut self, items: &[Value]) -> Result<(), EffortExceeded> {
        let mut groups: HashMap<u64, (&Value, u64)> = HashMap::new();
        for (index, item) in items.iter().enumerate() {
            let before = self.effort;
            self.add_comparison(item, item)?;
            let size = self.effort - before;
            if items.len() <= PAIRWISE_ITEMS_MAX {
                self.add(size.saturating_mul(index as u64))?;
                continue;
            }
            let mut hasher = DefaultHasher::new();
            hash_like_validator(item, &mut hasher);
            let (first, count) = groups.entry(hasher.finish()).or_insert((item, 0));
            self.add(size.saturating_mul(*count))?;
            *count += 1;
            if *count > 1 && *first == item {
                // The validator stops at the first duplicate.
                break;
            }
        }
        Ok(())
    }
}

/// Hashes the parts of a value that the validator hashes for `uniqueItems`: values that it cannot tell apart by their
/// hash, such as `[[], 1]` and `[1, []]`, get the same one here.
fn hash_like_validator(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Null => 0_u8.hash(hasher),
        Value::Bool(value) => value.hash(hasher),
        Value::Number(number) => number.as_f64().map(|number| (number + 0.0).to_bits()).hash(hasher),
        Value::String(text) => text.hash(hasher),
        Value::Array(items) => items.iter().for_each(|item| hash_like_validator(item, hasher)),
        Value::Object(fields) => {
            let hashes = fields.iter().map(|(name, field)| {
                let mut hasher = DefaultHasher::new();
                name.hash(&mut hasher);
                hash_like_validator(field, &mut hasher);
                hasher.finish()
            });
            hashes.fold(0, |all, hash| all ^ hash).hash(hasher);
        }
    }
}

/// Cost of hashing or comparing a text.
fn text_effort(text: &str) -> u64 {
    text.len() as u64 / 64
}

fn entry_count(value: &Value) -> u64 {
    match value {
        Value::Object(fields) => fields.len() as u64,
        Value::Array(items) => items.len() as u64,
        _ => 0,
    }
}

fn match_effort(pattern: &str, text: &str) -> u64 {
    let length = text.len() as u64 + 16;
    let linear = length.saturating_mul(pattern_size(pattern) as u64) / 16;
    if backtracks(pattern) {
        linear.saturating_add(BACKTRACKING_EFFORT).saturating_add(length * 16)
    } else {
        linear
    }
}

/// Whether a pattern has look-around or backreferences, which need the backtracking engine.
fn backtracks(pattern: &str) -> bool {
    let refers_back = pattern
        .as_bytes()
        .windows(2)
        .any(|pair| pair[0] == b'\\' && (pair[1].is_ascii_digit() && pair[1] != b'0' || pair[1] == b'k'));
    refers_back || ["(?=", "(?!", "(?<"].iter().any(|opening| pattern.contains(opening))
}

/// Size of a pattern with its counted repetitions expanded: `(a{10}){10}` is about 100.
fn pattern_size(pattern: &str) -> usize {
    // Per open group: its size so far, and the size of its last element, which a repetition would multiply.
    let mut open: Vec<(usize, usize)> = vec![(0, 0)];
    let mut in_class = false;
    let mut letters = pattern.char_indices();
    while let Some((at, letter)) = letters.next() {
        let size = match letter {
            '\\' => {
                let escaped = letters.next();
                let named = |(at, letter): (usize, char)| {
                    let name = pattern[at + letter.len_utf8()..].strip_prefix('{')?.split_once('}')?.0;
                    matches!(letter, 'p' | 'P' | 'u' | 'x').then(|| name.chars().count())
                };
                if let Some(length) = escaped.and_then(named) {
                    letters.nth(length + 1);
                }
                // A Unicode class is hundreds of ranges.
                if matches!(escaped, Some((_, 'p' | 'P'))) { 50 } else { 1 }
            }
            ']' => {
                in_class = false;
                1
            }
            _ if in_class => 1,
            '[' => {
                in_class = true;
                1
            }
            '(' => {
                open.push((0, 0));
                continue;
            }
            ')' if open.len() > 1 => open.pop().map_or(1, |(inside, _)| inside.saturating_add(1)),
            '{' => match (repetition_max(&pattern[at + 1..]), open.last_mut()) {
                (Some((most, length)), Some((whole, last))) => {
                    letters.nth(length);
                    *whole = whole.saturating_add(last.saturating_mul(most.saturating_sub(1)));
                    *last = last.saturating_mul(most.max(1));
                    continue;
                }
                _ => 1,
            },
            _ => 1,
        };
        if let Some((whole, last)) = open.last_mut() {
            *whole = whole.saturating_add(size);
            *last = size;
        }
    }
    open.iter().fold(0, |sum: usize, (whole, _)| sum.saturating_add(*whole))
}

/// The upper bound of a counted repetition and the length of its text; `None` for a literal brace.
fn repetition_max(after: &str) -> Option<(usize, usize)> {
    let counted = after.split_once('}')?.0;
    let counts = counted.split(',').map(str::trim).filter(|count| !count.is_empty());
    let counts: Vec<usize> = counts.map(|count| count.parse().ok()).collect::<Option<_>>()?;
    counts.into_iter().max().map(|most| (most, counted.chars().count()))
}

/// Target of a `$ref` within the same document.
pub(crate) fn resolve_reference<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    let pointer = reference.as_str()?.strip_prefix('#')?;
    root.pointer(pointer).or_else(|| root.pointer(&percent_decode_str(pointer).decode_utf8().ok()?))
}

/// The addresses of all subschemas that can apply to a value: reachable from the root by keywords and `$ref`s.
pub(crate) struct Subschemas(HashMap<*const Value, Vec<*const Value>>);

impl Subschemas {
    /// Whether this part of the document is a subschema.
    pub(crate) fn contains(&self, part: &Value) -> bool {
        self.0.contains_key(&std::ptr::from_ref(part))
    }
}

/// All subschemas, or why the work of compiling the schema or validating by it cannot be bounded.
pub(crate) fn subschemas(root: &Value) -> Result<Subschemas, &'static str> {
    let is_draft_4 = root.get("$schema").and_then(Value::as_str).is_some_and(|uri| uri.contains("draft-04"));
    let mut patterns_left = PATTERNS_SIZE_MAX;
    let mut seen: HashMap<*const Value, Vec<*const Value>> = HashMap::new();
    let mut pending = vec![root];
    while let Some(part) = pending.pop() {
        let Value::Object(schema) = part else { continue };
        if seen.contains_key(&std::ptr::from_ref(part)) {
            continue;
        }
        seen.insert(
            std::ptr::from_ref(part),
            in_place_schemas(root, schema).map(std::ptr::from_ref).collect(),
        );
        if seen.len() > SCHEMA_PARTS_MAX {
            return Err("it is too large");
        }
        if UNSUPPORTED.iter().any(|keyword| schema.contains_key(*keyword)) {
            return Err("it has dynamic references");
        }
        let is_base = |id: &str| schema.get(id).is_some_and(Value::is_string);
        if !std::ptr::eq(part, root) && (is_base("$id") || is_draft_4 && is_base("id")) {
            return Err("a subschema has its own `$id`");
        }
        match schema.get("$ref").map(|reference| resolve_reference(root, reference)) {
            Some(None) => return Err("a `$ref` points outside the schema or does not resolve"),
            target => pending.extend(target.flatten()),
        }
        let by_name = schema.get("patternProperties").and_then(Value::as_object);
        let by_name = by_name.into_iter().flat_map(Map::keys).map(String::as_str);
        for pattern in schema.get("pattern").and_then(Value::as_str).into_iter().chain(by_name) {
            let size = pattern_size(pattern).saturating_add(pattern.len());
            match patterns_left.checked_sub(size).filter(|_| size <= PATTERN_SIZE_MAX) {
                Some(left) => patterns_left = left,
                None => return Err("its patterns are too large"),
            }
        }
        let by_keyword = IN_PLACE.iter().chain(&CHILD_SCHEMAS).chain([&NAME_SCHEMA]);
        let by_keyword = by_keyword.filter_map(|keyword| schema.get(*keyword));
        pending.extend(by_keyword);
        let lists = IN_PLACE_LISTS.iter().chain(&["prefixItems", "items"]);
        pending.extend(lists.filter_map(|keyword| schema.get(*keyword)?.as_array()).flatten());
        let maps = SCHEMA_MAPS.iter().filter_map(|keyword| schema.get(*keyword)?.as_object());
        pending.extend(maps.flat_map(Map::values));
    }
    if is_circular(&seen) {
        return Err("it has a circular `$ref`");
    }
    let subschemas = Subschemas(seen);
    let mut bytes_left = POINTERS_BYTES_MAX;
    match spend_pointers(&subschemas, root, 0, &mut bytes_left) {
        Some(()) => Ok(subschemas),
        None => Err("its property names are too long"),
    }
}

/// Subtracts the bytes of the JSON pointers of all keywords; `None` where there are too many.
fn spend_pointers(
    subschemas: &Subschemas,
    part: &Value,
    pointer_length: usize,
    bytes_left: &mut usize,
) -> Option<()> {
    if subschemas.contains(part) {
        let bytes = pointer_length.saturating_mul(usize::try_from(entry_count(part)).ok()?);
        *bytes_left = bytes_left.checked_sub(bytes)?;
    }
    match part {
        Value::Object(fields) => fields.iter().try_for_each(|(name, field)| {
            spend_pointers(subschemas, field, pointer_length + name.len() + 1, bytes_left)
        }),
        Value::Array(items) => {
            items.iter().try_for_each(|item| spend_pointers(subschemas, item, pointer_length + 8, bytes_left))
        }
        _ => Some(()),
    }
}

/// Subschemas that apply to the same value as `schema` does.
fn in_place_schemas<'a>(root: &'a Value, schema: &'a Map<String, Value>) -> impl Iterator<Item = &'a Value> {
    let target = schema.get("$ref").and_then(|reference| resolve_reference(root, reference));
    let by_keyword = IN_PLACE.iter().filter_map(|keyword| schema.get(*keyword));
    let lists = IN_PLACE_LISTS.iter().filter_map(|keyword| schema.get(*keyword)?.as_array()).flatten();
    let by_name = ["dependencies", "dependentSchemas"].into_iter();
    let by_name = by_name.filter_map(|keyword| schema.get(keyword)?.as_object()).flat_map(Map::values);
    target.into_iter().chain(by_keyword).chain(lists).chain(by_name)
}

/// Whether the graph of in-place subschemas has a cycle (topological sort): validation would recurse for ever on one
/// value.
fn is_circular(subschemas: &HashMap<*const Value, Vec<*const Value>>) -> bool {
    let mut counts: HashMap<*const Value, usize> = subschemas.keys().map(|part| (*part, 0)).collect();
    for target in subschemas.values().flatten() {
        if let Some(count) = counts.get_mut(target) {
            *count += 1;
        }
    }
    let mut unreferenced: Vec<*const Value> =
        counts.iter().filter(|(_, count)| **count == 0).map(|(part, _)| *part).collect();
    let mut sorted = 0;
    while let Some(part) = unreferenced.pop() {
        sorted += 1;
        for target in subschemas.get(&part).into_iter().flatten() {
            if let Some(count) = counts.get_mut(target) {
                *count -= 1;
                if *count == 0 {
                    unreferenced.push(*target);
                }
            }
        }
    }
    sorted < subschemas.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn effort_of(schema: &Value, value: &Value) -> Result<u64, EffortExceeded> {
        effort(schema, schema, value, 1_000_000)
    }

    /// A schema whose effort doubles at every level.
    fn branching(levels: usize) -> Value {
        let mut definitions = Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        definitions.insert(format!("d{levels}"), json!({"type": "object"}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    }

    #[test]
    fn references_that_branch_cost_what_they_cost_without_being_followed_each_time() {
        let few = effort_of(&branching(5), &json!({})).unwrap();
        assert!((63..300).contains(&few), "{few}");
        assert_eq!(effort_of(&branching(60), &json!({})), Err(EffortExceeded));
    }

    #[test]
    fn alternatives_that_refer_to_themselves_grow_with_the_depth_of_the_value() {
        let branch = json!({"properties": {"a": {"$ref": "#/$defs/n"}}, "not": {}});
        let schema = json!({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [branch, branch]}}});
        let nested = |depth: usize| (0..depth).fold(json!({}), |inside, _| json!({"a": inside}));
        assert!(effort_of(&schema, &nested(3)).is_ok());
        assert_eq!(effort_of(&schema, &nested(60)), Err(EffortExceeded));
    }

    #[test]
    fn a_schema_that_is_only_itself_is_too_much() {
        assert_eq!(effort_of(&json!({"$ref": "#"}), &json!({})), Err(EffortExceeded));
        let child = json!({"properties": {"a": {"$ref": "#"}}});
        assert!(effort_of(&child, &json!({"a": {"a": {"a": 1}}})).is_ok());
    }

    #[test]
    fn a_chain_of_references_is_too_deep() {
        let next = |n: usize| json!({"$ref": format!("#/$defs/d{n}")});
        let chain = |length: usize| {
            let mut definitions: Map<String, Value> =
                (0..length).map(|n| (format!("d{n}"), next(n + 1))).collect();
            definitions.insert(format!("d{length}"), json!({}));
            json!({"$ref": "#/$defs/d0", "$defs": definitions})
        };
        assert!(effort_of(&chain(400), &json!({})).is_ok());
        assert_eq!(effort_of(&chain(20_000), &json!({})), Err(EffortExceeded));
        // Memoised parts of the chain still count with their full depth.
        let mut joined = chain(3_000);
        let starts = [2_400, 1_600, 800, 0].map(next);
        joined.as_object_mut().unwrap().remove("$ref");
        joined["allOf"] = json!(starts);
        assert_eq!(effort_of(&joined, &json!({})), Err(EffortExceeded));
    }

    #[test]
    fn patterns_cost_their_size_for_every_letter() {
        for (pattern, size) in [
            ("^[a-z]+$", 7..10),
            ("(a{10}){10}", 100..130),
            ("((a{100}){100}){100}", 1_000_000..1_100_000),
            ("a{2,50}", 50..51),
            ("\\p{L}{1,20}", 1_000..1_100),
            ("{a(b{1000}){1000}", 1_000_000..1_100_000),
            ("a{1,2", 5..6),
            (")))(((", 0..20),
        ] {
            assert!(size.contains(&pattern_size(pattern)), "{pattern}: {}", pattern_size(pattern));
        }
        let schema = json!({"items": {"pattern": "^(a{100}){10}$"}});
        assert!(effort_of(&schema, &json!(["a"])).is_ok());
        assert_eq!(effort_of(&schema, &json!(["a".repeat(100_000)])), Err(EffortExceeded));
        let look_ahead = json!({"items": {"pattern": "^(?=.*[A-Z])"}});
        assert_eq!(effort_of(&look_ahead, &json!(vec!["a"; 10_000])), Err(EffortExceeded));
    }

    #[test]
    fn names_cost_what_their_schema_does_with_them() {
        let large = json!({"pattern": "^(a{100}){10}$"});
        let direct = json!({"propertyNames": large});
        let referred = json!({"propertyNames": {"$ref": "#/$defs/large"}, "$defs": {"large": large}});
        for schema in [direct, referred] {
            assert!(effort_of(&schema, &json!({"a": 1, "b": 2})).is_ok());
            assert_eq!(effort_of(&schema, &json!({"a".repeat(100_000): 1})), Err(EffortExceeded));
            let values = json!({"a": "a".repeat(100_000)});
            assert!(effort_of(&schema, &values).is_ok());
        }
        let closed = json!({"allOf": vec![json!({"properties": {}, "additionalProperties": false}); 1_000]});
        assert_eq!(effort_of(&closed, &json!({"a".repeat(1 << 20): 1})), Err(EffortExceeded));
    }

    #[test]
    fn comparisons_cost_the_size_of_what_is_compared() {
        let list = json!(vec![0; 10_000]);
        for schema in [json!({"const": list}), json!({"enum": [list, {}]}), json!({"enum": [list]})] {
            let each = json!({"items": schema});
            assert!(effort_of(&each, &json!([list])).is_ok());
            assert_eq!(effort_of(&each, &json!(vec![list.clone(); 200])), Err(EffortExceeded));
            assert!(effort_of(&each, &json!(vec![json!([0]); 200])).is_ok());
        }
        let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
        let choice = json!({"items": {"enum": names}});
        assert!(effort_of(&choice, &json!(vec!["7"; 1_000])).is_ok());
    }

    #[test]
    fn unique_items_cost_a_comparison_for_each_pair_with_the_same_hash() {
        let schema = json!({"uniqueItems": true});
        let objects: Vec<Value> = (0..20_000).map(|n| json!({ "n": n })).collect();
        assert!(effort_of(&schema, &json!(objects)).is_ok());
        assert!(effort_of(&schema, &json!(vec!["same"; 20_000])).is_ok());
        // The validator's hash of an array leaves out where its arrays begin and end.
        let digit = |n: usize, place: usize| if n >> place & 1 == 0 { json!([]) } else { json!([[]]) };
        let colliding: Vec<Value> =
            (0..4_096).map(|n| (0..12).map(|place| digit(n, place)).collect()).collect();
        assert_eq!(effort_of(&schema, &json!(colliding)), Err(EffortExceeded));
        assert!(effort_of(&json!({"uniqueItems": false}), &json!(colliding)).is_ok());
    }

    #[test]
    fn required_names_cost_a_lookup_each() {
        let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
        for schema in [
            json!({"required": names}),
            json!({"dependentRequired": {"a": names}}),
            json!({"dependencies": {"a": names}}),
            json!({"required": ["a".repeat(100_000)]}),
        ] {
            let each = json!({"items": schema});
            assert!(effort_of(&each, &json!([{"a": 1}])).is_ok(), "{schema}");
            assert_eq!(effort_of(&each, &json!(vec![json!({"a": 1}); 2_000])), Err(EffortExceeded));
        }
    }

    #[test]
    fn what_cannot_be_bounded_is_named() {
        for schema in [
            json!({"properties": {"a": {"$dynamicRef": "#x"}}}),
            json!({"$defs": {"a": {"$anchor": "b"}}, "properties": {"a": {"$ref": "#b"}}}),
            json!({"$ref": "#"}),
            json!({"type": "object", "allOf": [{"anyOf": [true, {"$ref": "#"}]}]}),
            json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}),
            json!({"properties": {"a": {"$ref": "https://example.com/x"}}}),
            json!({"allOf": [{"$id": "https://example.com/x"}]}),
            json!({"x": {"pattern": "((a{100}){100}){100}"}, "$ref": "#/x"}),
            json!({"properties": {"a": {"pattern": "((a{100}){100}){100}"}}}),
        ] {
            assert!(subschemas(&schema).is_err(), "{schema}");
        }
        for schema in [
            json!(true),
            json!({"$id": "https://example.com/x", "properties": {"$id": {"type": "string"}, "$ref": {}}}),
            json!({"const": {"$ref": "x", "$id": "y"}, "default": {"$anchor": "z"}}),
            json!({"$ref": "#/$defs/a%20b", "$defs": {"a b": {}}}),
            json!({"$ref": "#/$defs/a%20b%", "$defs": {"a b%": {}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$anchor": "b"}}}),
            json!({"properties": {"a": {"$ref": "#"}, "b": {"allOf": [{"$ref": "#"}]}}, "items": {"$ref": "#"}}),
        ] {
            assert!(subschemas(&schema).is_ok(), "{schema}");
        }
    }
}
