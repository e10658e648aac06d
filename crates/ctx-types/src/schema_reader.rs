//! Reads a schema into types: the target of every reference becomes a named type, read once, nearest first.

use crate::combine::{
    ALTERNATIVES_MAX, CONSTANTS_MAX, intersect_additional, intersection, open_union, optional, union,
};
use crate::constant::{constants, is_writable};
use crate::model::{AdditionalFields, FIELDS_MAX, Field, NamedType, Notes, Table, Type};
use crate::reference::{ReferenceResolver, reference_name};
use ctx_core::Identifier;
use serde_json::{Map, Value};
use std::collections::{HashMap, VecDeque};

/// Maximum number of schemas read from one document.
const SCHEMAS_MAX: usize = 10_000;

/// Maximum nesting depth of schemas, from one named type to the next.
const DEPTH_MAX: usize = 24;

/// Maximum number of named types read from one document.
pub(crate) const NAMED_TYPES_MAX: usize = 256;

/// Maximum characters of a type name.
pub(crate) const TYPE_NAME_MAX: usize = 80;

/// Maximum length of a field name that is kept.
const FIELD_NAME_MAX: usize = 200;

/// Maximum number of types with the same base name that are compared with a new one before it gets a name of its own.
const SAME_NAME_MAX: usize = 8;

/// Maximum number of references that are followed to find a default.
const DEFAULT_STEPS_MAX: usize = 16;

/// Names that Luau reserves in types.
const LUAU_TYPES: [&str; 13] = [
    "any", "boolean", "buffer", "never", "nil", "number", "string", "table", "thread", "typeof", "unknown",
    "userdata", "vector",
];

/// The types of a document.
pub(crate) struct SchemaTypes {
    pub(crate) of: Type,
    pub(crate) types: Vec<NamedType>,
    /// Number of schemas that were omitted, because they are too many or too deep.
    pub(crate) left_out: usize,
}

/// Reads a document with at most `named_max` named types. `name` is the name of the root, if it refers to itself.
pub(crate) fn read_schema(root: &Value, name: &str, named_max: usize) -> SchemaTypes {
    let mut reader = SchemaReader {
        root,
        root_name: name,
        resolver: ReferenceResolver::new(root),
        schemas_left: SCHEMAS_MAX,
        named_max,
        names_by_address: HashMap::new(),
        schemas_by_name: HashMap::new(),
        pending: VecDeque::new(),
        left_out: 0,
    };
    let of = reader.read(root, 0);
    let mut types = Vec::new();
    while let Some((name, schema)) = reader.pending.pop_front() {
        let of = reader.read(schema, 0);
        let notes = schema.as_object().map(|fields| Notes::of(fields, None)).unwrap_or_default();
        types.push(NamedType { name, luau_type: of, notes });
    }
    SchemaTypes { of, types, left_out: reader.left_out }
}

struct SchemaReader<'a> {
    root: &'a Value,
    root_name: &'a str,
    resolver: ReferenceResolver<'a>,
    schemas_left: usize,
    named_max: usize,
    /// Type name of each schema that was referred to, by address: two ways to write a reference may mean one schema.
    names_by_address: HashMap<*const Value, String>,
    /// The schema of each type name.
    schemas_by_name: HashMap<String, &'a Value>,
    pending: VecDeque<(String, &'a Value)>,
    left_out: usize,
}

/// The constraints of one schema, with those of its `allOf`.
#[derive(Default)]
struct Constraints<'a> {
    is_table: bool,
    fields: Vec<(&'a str, Vec<Type>, Notes)>,
    field_indexes: HashMap<&'a str, usize>,
    required: Vec<&'a str>,
    rest: AdditionalFields,
    fields_left_out: usize,
    other_types: Vec<Type>,
    nullable: bool,
}

impl<'a> SchemaReader<'a> {
    fn read(&mut self, schema: &'a Value, depth: usize) -> Type {
        match schema {
            Value::Bool(false) => Type::Never,
            Value::Object(_) if depth > DEPTH_MAX || self.schemas_left == 0 => {
                self.left_out += 1;
                Type::Any
            }
            Value::Object(fields) => {
                let mut constraints = Constraints::default();
                self.add_schema(fields, depth, &mut constraints);
                constraints.into_type()
            }
            _ => Type::Any,
        }
    }

    fn add_schema(
        &mut self,
        schema: &'a Map<String, Value>,
        depth: usize,
        constraints: &mut Constraints<'a>,
    ) {
        if depth > DEPTH_MAX || self.schemas_left == 0 {
            self.left_out += 1;
            return;
        }
        self.schemas_left -= 1;
        for key in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(reference) = schema.get(key).and_then(Value::as_str) {
                constraints.other_types.push(self.resolve_reference(reference));
            }
        }
        constraints.nullable |= schema.get("nullable").and_then(Value::as_bool).unwrap_or(false);
        if let Some(constants) = constants(schema) {
            constraints.other_types.push(constants);
        } else {
            self.add_types(schema, depth, constraints);
        }
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            match part {
                Value::Object(part) => self.add_schema(part, depth + 1, constraints),
                other => constraints.other_types.push(self.read(other, depth + 1)),
            }
        }
        for key in ["oneOf", "anyOf"] {
            if let Some(alternatives) = schema.get(key).and_then(Value::as_array)
                && !alternatives.is_empty()
            {
                // One more than is kept, so that `union` notices the omission.
                let alternatives = alternatives.iter().take(CONSTANTS_MAX + 1);
                let alternatives: Vec<Type> = alternatives.map(|one| self.read(one, depth + 1)).collect();
                constraints.other_types.push(union(alternatives));
            }
        }
    }

    /// Adds the constraint of `type`, or of the type that other keywords imply.
    fn add_types(&mut self, schema: &'a Map<String, Value>, depth: usize, constraints: &mut Constraints<'a>) {
        let mut kinds: Vec<&str> = match schema.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => {
                kinds.iter().take(ALTERNATIVES_MAX).filter_map(Value::as_str).collect()
            }
            _ => infer_type(schema).into_iter().collect(),
        };
        if kinds.len() > 1 {
            let before = kinds.len();
            kinds.retain(|kind| *kind != "null");
            constraints.nullable |= kinds.len() < before;
        }
        match kinds.as_slice() {
            ["object"] => self.add_table(schema, depth, constraints),
            [] => constraints.required.extend(required_names(schema)),
            kinds => {
                let kinds: Vec<Type> = kinds.iter().map(|kind| self.read_type(kind, schema, depth)).collect();
                constraints.other_types.push(union(kinds));
            }
        }
    }

    fn read_type(&mut self, kind: &str, schema: &'a Map<String, Value>, depth: usize) -> Type {
        match kind {
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            "null" => Type::Nil,
            "array" => self.read_list(schema, depth),
            "object" => {
                let mut constraints = Constraints::default();
                self.add_table(schema, depth, &mut constraints);
                constraints.into_type()
            }
            _ => Type::Any,
        }
    }

    fn read_list(&mut self, schema: &'a Map<String, Value>, depth: usize) -> Type {
        let items = schema.get("items");
        let (tuple, rest) = match (schema.get("prefixItems"), items) {
            (Some(Value::Array(tuple)), rest) => (tuple.as_slice(), rest),
            (_, Some(Value::Array(tuple))) => (tuple.as_slice(), schema.get("additionalItems")),
            (_, rest) => (&[][..], rest),
        };
        let rest = rest.map_or(Type::Any, |rest| self.read(rest, depth + 1));
        if tuple.is_empty() {
            return Type::List(Box::new(rest));
        }
        if tuple.len() > ALTERNATIVES_MAX {
            self.left_out += tuple.len();
            return Type::List(Box::new(Type::Any));
        }
        let tuple = tuple.iter().map(|item| self.read(item, depth + 1)).collect();
        Type::Tuple(tuple, Box::new(rest))
    }

    fn add_table(&mut self, schema: &'a Map<String, Value>, depth: usize, constraints: &mut Constraints<'a>) {
        constraints.is_table = true;
        constraints.required.extend(required_names(schema));
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let is_new = !constraints.field_indexes.contains_key(name.as_str());
            if is_new && (constraints.fields.len() >= FIELDS_MAX || !is_writable(name, FIELD_NAME_MAX)) {
                constraints.fields_left_out += 1;
                continue;
            }
            let of = self.read(property, depth + 1);
            let default = self.find_default(property);
            let mut notes = property.as_object().map(|fields| Notes::of(fields, default)).unwrap_or_default();
            notes.add_tuple_order(&of, crate::print::one_line);
            constraints.add_field(name, of, notes);
        }
        let rest = self.read_additional(schema, depth);
        constraints.rest = intersect_additional(std::mem::take(&mut constraints.rest), rest);
    }

    fn read_additional(&mut self, schema: &'a Map<String, Value>, depth: usize) -> AdditionalFields {
        let others = schema.get("additionalProperties").or_else(|| schema.get("unevaluatedProperties"));
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let mut types = Vec::new();
        for pattern in patterns.into_iter().flat_map(|patterns| patterns.values()).take(ALTERNATIVES_MAX + 1)
        {
            types.push(self.read(pattern, depth + 1));
        }
        match others {
            Some(Value::Bool(false)) if types.is_empty() => return AdditionalFields::Forbidden,
            Some(Value::Bool(false)) => {}
            Some(others) => types.push(self.read(others, depth + 1)),
            None if types.is_empty() => return AdditionalFields::Unspecified,
            // Fields that match no pattern can be anything; the types of the others are kept for readers.
            None => return AdditionalFields::Of(Box::new(open_union(types))),
        }
        AdditionalFields::Of(Box::new(union(types)))
    }

    /// The default of a property, which may be behind a reference.
    fn find_default(&mut self, property: &'a Value) -> Option<&'a Value> {
        let mut schema = property;
        for _ in 0..DEFAULT_STEPS_MAX {
            if let Some(default) = schema.get("default") {
                return Some(default);
            }
            schema = self.resolver.find(schema.get("$ref")?.as_str()?)?;
        }
        None
    }

    /// The named type of a reference's target; `any` if the target does not exist or is in another document.
    fn resolve_reference(&mut self, reference: &str) -> Type {
        let Some(target) = self.resolver.find(reference) else { return Type::Any };
        if !target.is_object() {
            return self.read(target, 0);
        }
        if let Some(name) = self.names_by_address.get(&std::ptr::from_ref(target)) {
            return Type::Named(name.clone());
        }
        let is_root = std::ptr::eq(target, self.root);
        let title = || self.root.get("title").and_then(Value::as_str).map(str::to_owned);
        let segment = if is_root { title() } else { reference_name(reference) };
        let base = type_name(segment.as_deref().unwrap_or(self.root_name));
        if self.schemas_by_name.len() >= self.named_max {
            self.left_out += 1;
            return Type::Any;
        }
        let mut name = base.clone();
        let mut ordinal = 2;
        while let Some(other) = self.schemas_by_name.get(&name) {
            if ordinal <= SAME_NAME_MAX && *other == target {
                self.names_by_address.insert(std::ptr::from_ref(target), name.clone());
                return Type::Named(name);
            }
            name = format!("{base}_{ordinal}");
            ordinal += 1;
        }
        self.schemas_by_name.insert(name.clone(), target);
        self.names_by_address.insert(std::ptr::from_ref(target), name.clone());
        self.pending.push_back((name.clone(), target));
        Type::Named(name)
    }
}

impl<'a> Constraints<'a> {
    fn add_field(&mut self, name: &'a str, of: Type, notes: Notes) {
        match self.field_indexes.get(name).and_then(|index| self.fields.get_mut(*index)) {
            Some((_, types, known)) => {
                types.push(of);
                known.description = known.description.take().or(notes.description);
                known.default = known.default.take().or(notes.default);
                known.deprecated |= notes.deprecated;
            }
            None => {
                self.field_indexes.insert(name, self.fields.len());
                self.fields.push((name, vec![of], notes));
            }
        }
    }

    fn into_type(mut self) -> Type {
        // Named types first: `Pet & { barks: boolean }`.
        let (mut parts, others): (Vec<Type>, Vec<Type>) = std::mem::take(&mut self.other_types)
            .into_iter()
            .partition(|other| matches!(other, Type::Named(_)));
        if self.is_table {
            // Adds fields that are required but not described.
            for name in std::mem::take(&mut self.required) {
                match self.field_indexes.get(name) {
                    Some(_) => self.required.push(name),
                    None if self.fields.len() < FIELDS_MAX && is_writable(name, FIELD_NAME_MAX) => {
                        let of = if let AdditionalFields::Of(of) = &self.rest {
                            (**of).clone()
                        } else {
                            Type::Any
                        };
                        self.add_field(name, of, Notes::default());
                        self.required.push(name);
                    }
                    None => {}
                }
            }
            let required: std::collections::HashSet<&str> = self.required.into_iter().collect();
            let field = |(name, types, notes): (&str, Vec<Type>, Notes)| Field {
                required: required.contains(name) && notes.default.is_none(),
                name: name.to_owned(),
                luau_type: intersection(types),
                notes,
            };
            let fields = self.fields.into_iter().map(field).collect();
            parts.push(Type::Table(Table { fields, rest: self.rest, left_out: self.fields_left_out }));
        }
        parts.extend(others);
        let whole = intersection(parts);
        if self.nullable && whole != Type::Any { optional(whole) } else { whole }
    }
}

fn required_names(schema: &Map<String, Value>) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The type that the keywords of a schema without `type` imply.
fn infer_type(schema: &Map<String, Value>) -> Option<&'static str> {
    let has = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
    if has(&["properties", "additionalProperties", "patternProperties"]) {
        Some("object")
    } else if has(&["items", "prefixItems"]) {
        Some("array")
    } else {
        None
    }
}

/// Turns a text into a valid type name: an identifier that Luau does not reserve.
pub(crate) fn type_name(raw: &str) -> String {
    let short: String = raw.chars().take(TYPE_NAME_MAX).collect();
    let name = Identifier::sanitize(&short);
    if LUAU_TYPES.contains(&name.as_str()) { format!("_{name}") } else { name.to_string() }
}
