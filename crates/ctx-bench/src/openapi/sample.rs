//! Generates sample arguments that are valid for a JSON Schema.

use ctx_core::ArgumentSchema;
use serde_json::{Map, Value, json};

/// Depth to which optional properties are generated; below it, only required ones.
const FULL_DEPTH: usize = 3;
/// Maximum depth of a value.
const DEPTH_MAX: usize = 24;
/// Maximum number of schemas visited for one value.
const STEPS_MAX: usize = 20_000;
/// Numbers of repetitions to try for the quantifiers of a pattern.
const REPEATS: [u32; 8] = [0, 1, 2, 4, 8, 16, 32, 64];

/// Which properties of a sample are present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PropertySelection {
    /// Required properties only.
    Required,
    /// All declared properties, down to [`FULL_DEPTH`].
    Full,
}

/// A value that is probably valid for a schema; `None` if none was found.
pub(super) fn sample(schema: &Value, selection: PropertySelection) -> Option<Value> {
    let mut sampler = Sampler { root: schema, selection, steps_left: STEPS_MAX };
    sampler.value(schema, 0)
}

struct Sampler<'a> {
    root: &'a Value,
    selection: PropertySelection,
    steps_left: usize,
}

impl Sampler<'_> {
    fn value(&mut self, schema: &Value, depth: usize) -> Option<Value> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        if depth > DEPTH_MAX {
            return None;
        }
        let fields = match schema {
            Value::Object(_) => self.merge(schema, depth)?,
            Value::Bool(false) => return None,
            _ => return Some(json!("x")),
        };
        for keyword in ["anyOf", "oneOf"] {
            let Some(Value::Array(alternatives)) = fields.get(keyword) else { continue };
            let mut rest = fields.clone();
            rest.shift_remove(keyword);
            return alternatives.iter().find_map(|one| {
                let both = if rest.is_empty() { one.clone() } else { json!({"allOf": [rest, one]}) };
                self.value(&both, depth + 1)
            });
        }
        if fields.get("type").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            return None;
        }
        if let Some(constant) = fields.get("const") {
            return Some(constant.clone());
        }
        if let Some(Value::Array(constants)) = fields.get("enum") {
            let fits = |constant: &&Value| fields.get("type").is_none_or(|kind| has_type(constant, kind));
            let fitting = || constants.iter().filter(fits);
            let chosen =
                fitting().find(|one| !one.is_null() && **one != json!("")).or_else(|| fitting().next());
            return chosen.cloned();
        }
        match schema_type(&fields) {
            "object" => self.object(&fields, depth),
            "array" => self.array(&fields, depth),
            "string" => text(&fields).map(Value::String),
            "integer" => number(&fields, true),
            "number" => number(&fields, false),
            "boolean" => Some(Value::Bool(true)),
            _ => Some(Value::Null),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>, depth: usize) -> Option<Value> {
        let empty = Map::new();
        let properties = fields.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required: Vec<&str> = fields
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let others = fields.get("additionalProperties").or_else(|| fields.get("unevaluatedProperties"));
        let mut object = Map::new();
        for name in &required {
            let anything = Value::Bool(true);
            let schema = properties.get(*name).or(others).unwrap_or(&anything);
            object.insert((*name).to_owned(), self.value(schema, depth + 1)?);
        }
        let least = fields.get("minProperties").and_then(Value::as_u64).unwrap_or(0) as usize;
        for (name, schema) in properties {
            let is_included = self.selection == PropertySelection::Full && depth < FULL_DEPTH
                || object.len() < least
                || (depth == 1 && object.is_empty());
            if is_included && !object.contains_key(name) {
                // An optional property without a valid value is left out.
                let steps_left = self.steps_left;
                if let Some(value) = self.value(schema, depth + 1) {
                    object.insert(name.clone(), value);
                } else {
                    self.steps_left = self.steps_left.max(steps_left / 2);
                }
            }
        }
        // An argument that is serialized as its fields needs at least one field.
        let is_closed = others == Some(&Value::Bool(false));
        let least = least.max(usize::from(depth == 1 && properties.is_empty() && !is_closed));
        for ordinal in 0..least.saturating_sub(object.len()) {
            let schema = others.cloned().unwrap_or(Value::Bool(true));
            object.insert(format!("x{ordinal}"), self.value(&schema, depth + 1)?);
        }
        Some(Value::Object(object))
    }

    fn array(&mut self, fields: &Map<String, Value>, depth: usize) -> Option<Value> {
        let bound = |keyword: &str| fields.get(keyword).and_then(Value::as_u64).map(|bound| bound as usize);
        let least = bound("minItems").unwrap_or(0);
        let fixed = fields.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let most = bound("maxItems").unwrap_or(usize::MAX);
        let count = least.max(fixed.len()).max(usize::from(depth < FULL_DEPTH)).min(most);
        let anything = Value::Bool(true);
        let mut items = Vec::new();
        for index in 0..count {
            let schema = fixed.get(index).or_else(|| fields.get("items")).unwrap_or(&anything);
            match self.value(schema, depth + 1) {
                Some(item) => items.push(item),
                None if items.len() >= least => break,
                None => return None,
            }
        }
        if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
            self.make_distinct(&mut items, fields.get("items"));
        }
        Some(Value::Array(items))
    }

    /// Makes items distinct, as far as that is simple.
    fn make_distinct(&self, items: &mut [Value], schema: Option<&Value>) {
        let resolved = schema.and_then(|schema| self.resolve(schema));
        let constants = resolved.and_then(|schema| schema.get("enum")).and_then(Value::as_array);
        for (index, item) in items.iter_mut().enumerate().skip(1) {
            if let Some(constant) = constants.and_then(|constants| constants.get(index)) {
                *item = constant.clone();
            } else if let Value::String(text) = item {
                text.push_str(&index.to_string());
            } else if let Some(number) = item.as_i64() {
                *item = json!(number + index as i64);
            }
        }
    }

    fn resolve<'s>(&'s self, schema: &'s Value) -> Option<&'s Value> {
        match schema.get("$ref").and_then(Value::as_str) {
            Some(reference) => self.root.pointer(reference.strip_prefix('#')?),
            None => Some(schema),
        }
    }

    /// A schema merged with the target of its `$ref` and the parts of its `allOf`.
    fn merge(&mut self, schema: &Value, depth: usize) -> Option<Map<String, Value>> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        if depth > DEPTH_MAX {
            return None;
        }
        let Value::Object(fields) = schema else {
            return if *schema == Value::Bool(false) { None } else { Some(Map::new()) };
        };
        let mut combined = fields.clone();
        combined.shift_remove("$defs");
        let reference = combined.shift_remove("$ref");
        let parts = combined.shift_remove("allOf");
        let target = match reference.as_ref().and_then(Value::as_str) {
            Some(reference) => Some(self.root.pointer(reference.strip_prefix('#')?)?.clone()),
            None => None,
        };
        let parts = parts.and_then(|parts| parts.as_array().cloned()).unwrap_or_default();
        for part in target.into_iter().chain(parts) {
            let part = self.merge(&part, depth + 1)?;
            for (keyword, value) in part {
                merge_keyword(&mut combined, keyword, value);
            }
        }
        Some(combined)
    }
}

/// Adds a keyword to a schema, so that both the old and the new constraint hold.
fn merge_keyword(combined: &mut Map<String, Value>, keyword: String, value: Value) {
    let Some(before) = combined.shift_remove(&keyword) else {
        combined.insert(keyword, value);
        return;
    };
    let both = match (keyword.as_str(), before, value) {
        ("properties", Value::Object(mut before), Value::Object(more)) => {
            for (name, schema) in more {
                let both = match before.shift_remove(&name) {
                    Some(known) if known != schema => json!({"allOf": [known, schema]}),
                    _ => schema,
                };
                before.insert(name, both);
            }
            Value::Object(before)
        }
        ("required", Value::Array(mut before), Value::Array(more)) => {
            let new: Vec<Value> = more.into_iter().filter(|name| !before.contains(name)).collect();
            before.extend(new);
            Value::Array(before)
        }
        ("enum", Value::Array(mut before), Value::Array(more)) => {
            before.retain(|constant| more.contains(constant));
            Value::Array(before)
        }
        ("type", Value::Array(before), kind) | ("type", kind, Value::Array(before)) => {
            let fitting = before.into_iter().filter(|one| match &kind {
                Value::Array(kinds) => kinds.contains(one),
                kind => kind == one,
            });
            Value::Array(fitting.collect())
        }
        ("minimum" | "minLength" | "minItems" | "minProperties", before, value) => {
            if value.as_f64() > before.as_f64() { value } else { before }
        }
        ("maximum" | "maxLength" | "maxItems" | "maxProperties", before, value) => {
            if value.as_f64() < before.as_f64() { value } else { before }
        }
        ("type", before, value) if before != value => match (before.as_str(), value.as_str()) {
            (Some("integer" | "number"), Some("integer" | "number")) => json!("integer"),
            _ => json!([]),
        },
        // Two lists of alternatives cannot both stay: the first alternative is combined with each of the second list.
        ("anyOf" | "oneOf", before, value) => {
            let first = before.as_array().and_then(|before| before.first()).cloned().unwrap_or_default();
            let joined = value.as_array().into_iter().flatten().map(|one| json!({"allOf": [first, one]}));
            Value::Array(joined.collect())
        }
        ("additionalProperties", Value::Bool(false), _) => Value::Bool(false),
        ("items", before, value) if before != value => json!({"allOf": [before, value]}),
        (_, _, value) => value,
    };
    combined.insert(keyword, both);
}

fn schema_type(fields: &Map<String, Value>) -> &str {
    let named = match fields.get("type") {
        Some(Value::String(kind)) => Some(kind.as_str()),
        Some(Value::Array(kinds)) => {
            let names = || kinds.iter().filter_map(Value::as_str);
            names().find(|kind| *kind != "null").or_else(|| names().next())
        }
        _ => None,
    };
    let has = |words: &[&str]| words.iter().any(|keyword| fields.contains_key(*keyword));
    named.unwrap_or_else(|| match () {
        () if has(&["properties", "required", "additionalProperties", "minProperties"]) => "object",
        () if has(&["items", "prefixItems", "minItems"]) => "array",
        () if has(&["minimum", "maximum", "multipleOf"]) => "number",
        () => "string",
    })
}

fn has_type(value: &Value, kind: &Value) -> bool {
    let is = |kind: &str| match kind {
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => value.is_null(),
    };
    match kind {
        Value::String(kind) => is(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}

fn text(fields: &Map<String, Value>) -> Option<String> {
    let bound = |keyword: &str| fields.get(keyword).and_then(Value::as_u64).map(|bound| bound as usize);
    let (least, most) = (bound("minLength").unwrap_or(0), bound("maxLength").unwrap_or(usize::MAX));
    let fits = |text: &String| (least..=most).contains(&text.chars().count());
    if let Some(pattern) = fields.get("pattern").and_then(Value::as_str) {
        let exact = [u32::try_from(least).unwrap_or(0), u32::try_from(most).unwrap_or(0)];
        let candidates = REPEATS
            .into_iter()
            .skip(1)
            .chain(exact)
            .chain([0])
            .map(|repeats| text_matching(pattern, repeats));
        let mut candidates: Vec<String> = candidates.flatten().collect();
        // A pattern that only excludes some texts matches common ones.
        candidates.extend(
            ["x", "abc123", "aA1!aA1!aA1!", "1", "2020-01-01", "https://example.com"].map(str::to_owned),
        );
        let schema = ArgumentSchema::compile(json!({"properties": {"x": {"pattern": pattern}}})).ok()?;
        candidates.retain(|text| fits(text) && schema.prepare(json!({"x": text})).is_ok());
        return candidates.iter().find(|text| !text.is_empty()).or(candidates.first()).cloned();
    }
    let default = match fields.get("format").and_then(Value::as_str) {
        Some("date") => "2020-01-01",
        Some("date-time") => "2020-01-01T00:00:00Z",
        Some("uuid") => "123e4567-e89b-12d3-a456-426614174000",
        Some("email") => "a@example.com",
        Some("uri" | "url") => "https://example.com/",
        _ => "x",
    };
    let mut text: String = default.chars().take(most).collect();
    let length = text.chars().count();
    text.extend(std::iter::repeat_n('x', least.saturating_sub(length)));
    Some(text)
}

/// A text that matches a pattern, with this number of repetitions for each quantifier.
fn text_matching(pattern: &str, repeats: u32) -> Option<String> {
    // Patterns have the syntax of JavaScript, which escapes `/`.
    let pattern = pattern.replace("\\/", "/");
    let parsed = regex_syntax::ParserBuilder::new().unicode(true).utf8(false).build().parse(&pattern).ok()?;
    let mut text = String::new();
    write_match(&parsed, repeats, &mut text)?;
    Some(text)
}

fn write_match(part: &regex_syntax::hir::Hir, repeats: u32, text: &mut String) -> Option<()> {
    use regex_syntax::hir::{Class, HirKind};
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(std::str::from_utf8(&literal.0).ok()?),
        HirKind::Class(Class::Unicode(class)) => {
            let has = |c: char| class.iter().any(|range| (range.start()..=range.end()).contains(&c));
            let first = || class.iter().next().map(|range| range.start());
            text.push(['a', 'A', '0', '1'].into_iter().find(|c| has(*c)).or_else(first)?);
        }
        HirKind::Class(Class::Bytes(class)) => {
            text.push(char::from(class.iter().next().map(|range| range.start())?));
        }
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(u32::MAX);
            for _ in 0..repeats.clamp(repetition.min, most) {
                write_match(&repetition.sub, repeats, text)?;
            }
        }
        HirKind::Capture(capture) => write_match(&capture.sub, repeats, text)?,
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| write_match(part, repeats, text))?,
        HirKind::Alternation(parts) => write_match(parts.first()?, repeats, text)?,
    }
    Some(())
}

fn number(fields: &Map<String, Value>, is_whole: bool) -> Option<Value> {
    let bound = |keyword: &str| fields.get(keyword).and_then(Value::as_f64);
    let step = bound("multipleOf").unwrap_or(1.0);
    let least =
        bound("minimum").into_iter().chain(bound("exclusiveMinimum").map(|least| least + step.min(1e-3)));
    let least = least.fold(f64::NEG_INFINITY, f64::max);
    let most =
        bound("maximum").into_iter().chain(bound("exclusiveMaximum").map(|most| most - step.min(1e-3)));
    let most = most.fold(f64::INFINITY, f64::min);
    let fits = |number: f64| number >= least && number <= most;
    let stepped = if least.is_finite() { (least / step).ceil() * step } else { (most / step).floor() * step };
    let candidates = [1.0 * step.max(1.0), step, stepped, least, most, 0.0];
    let is_fit = |number: &f64| number.is_finite() && fits(*number) && (!is_whole || number.fract() == 0.0);
    let chosen = candidates.into_iter().find(is_fit)?;
    Some(if chosen.fract() == 0.0 && chosen.abs() < 9e15 { json!(chosen as i64) } else { json!(chosen) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_valid_for_its_schema() {
        let tree = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}});
        for schema in [
            json!({"type": "string", "minLength": 3, "maxLength": 4}),
            json!({"type": "string", "pattern": "^[a-z]{2}-\\d+\\/(x|y)$", "minLength": 8}),
            json!({"type": "integer", "minimum": 7, "multipleOf": 5}),
            json!({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}),
            json!({"type": ["null", "boolean"]}),
            json!({"enum": [null, "", "b"], "type": "string"}),
            json!({"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": true}),
            json!({"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "integer"}}}], "type": "object"}),
            json!({"anyOf": [false, {"$ref": "#/$defs/Tree"}]}),
            json!({"type": "array", "anyOf": [{"type": "object"}, {"type": "array"}]}),
            json!({"type": "object", "minProperties": 2, "additionalProperties": {"type": "boolean"}}),
            json!({"properties": {"b": {"type": "string"}}, "oneOf": [{"required": ["b"]}, {"required": ["c"]}]}),
        ] {
            let combined = json!({"properties": {"x": schema}, "required": ["x"], "$defs": {"Tree": tree}});
            let arguments = ArgumentSchema::compile(combined.clone()).unwrap();
            for selection in [PropertySelection::Required, PropertySelection::Full] {
                let value = sample(&combined, selection).unwrap();
                assert!(arguments.prepare(value.clone()).is_ok(), "{combined} {value}");
            }
        }
        assert_eq!(
            sample(&json!({"required": ["x"], "properties": {"x": false}}), PropertySelection::Required),
            None
        );
    }
}
