//! Pagination parameters: the arguments of an operation that select a page.

use super::CompletedCall;
use super::metadata::{normalize, number};
use crate::operation::ParameterLocation;
use serde_json::{Map, Value};

/// Parameters that take a cursor, the most reliable first. `token` is not among them: it is usually a
/// credential.
const CURSOR_PARAMETERS: [&str; 24] = [
    "cursor",
    "pagecursor",
    "startcursor",
    "nextcursor",
    "aftercursor",
    "pagetoken",
    "nextpagetoken",
    "nexttoken",
    "continuationtoken",
    "continuation",
    "startingafter",
    "after",
    "pageafter",
    "afterid",
    "marker",
    "pageinfo",
    "skiptoken",
    "starttoken",
    "startingtoken",
    "scrollid",
    "bookmark",
    "next",
    "nextpage",
    "startkey",
];

/// Parameters with a page number.
pub(super) const PAGE_PARAMETERS: [&str; 7] =
    ["page", "pagenumber", "pageno", "pagenum", "pageindex", "currentpage", "p"];

/// Parameters with an offset.
pub(super) const OFFSET_PARAMETERS: [&str; 6] =
    ["offset", "skip", "startat", "startindex", "pageoffset", "start"];

/// Parameters with a page size.
pub(super) const SIZE_PARAMETERS: [&str; 11] = [
    "perpage",
    "pagesize",
    "limit",
    "size",
    "pagelimit",
    "maxresults",
    "top",
    "count",
    "rows",
    "take",
    "num",
];

/// Maximum length of a chain of `$ref`s.
const REFERENCES_MAX: usize = 8;

/// The type of an argument, as far as pagination needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentType {
    Text,
    Integer,
    Number,
    Boolean,
    /// An array or an object.
    Compound,
    Unknown,
}

/// An argument that selects a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageArgument<'a> {
    name: &'a str,
    /// The body argument that it is a field of; `None` for a parameter.
    inside: Option<&'a str>,
}

/// The arguments of an operation that may select a page, by normalised name.
pub(super) struct PageArguments<'a> {
    call: CompletedCall<'a>,
    by_name: Vec<(String, PageArgument<'a>)>,
}

impl<'a> PageArguments<'a> {
    pub(super) fn of(call: &CompletedCall<'a>) -> Self {
        let operation = call.operation;
        let is_settable = |argument: &str| !operation.frozen.contains_key(argument);
        let query = operation
            .parameters
            .iter()
            .filter(|one| one.location == ParameterLocation::Query && is_settable(&one.argument));
        let query =
            query.map(|one| (normalize(&one.name), PageArgument { name: &one.argument, inside: None }));
        let mut by_name: Vec<_> = query.collect();
        if let Some(body) = operation.body.as_ref().filter(|_| operation.method == "POST") {
            // The catalog has moved body fields into the body argument, however the caller passed them.
            let inside = Some(body.argument.as_str());
            let fields = body.fields.iter();
            by_name.extend(fields.map(|field| (normalize(field), PageArgument { name: field, inside })));
        }
        Self { call: *call, by_name }
    }

    /// Whether the operation takes a page number, an offset or a cursor.
    pub(super) fn is_paginated(&self) -> bool {
        self.find_numeric(&PAGE_PARAMETERS).or_else(|| self.find_numeric(&OFFSET_PARAMETERS)).is_some()
            || self.find(&CURSOR_PARAMETERS).is_some()
    }

    /// The argument that takes a cursor of this name.
    pub(super) fn cursor(&self, name: &str) -> Option<PageArgument<'a>> {
        let short = name.strip_prefix("next").filter(|short| !short.is_empty() && *short != "token");
        let same_name = [Some(name), short].into_iter().flatten().find_map(|name| self.find(&[name]));
        // An array or object cannot take a cursor.
        let is_scalar = |argument: &PageArgument<'a>| self.argument_type(*argument) != ArgumentType::Compound;
        same_name.or_else(|| self.find(&CURSOR_PARAMETERS)).filter(is_scalar)
    }

    /// The first argument with one of these names.
    pub(super) fn find(&self, names: &[&str]) -> Option<PageArgument<'a>> {
        let find =
            |name: &&str| self.by_name.iter().find(|(found, _)| found == name).map(|(_, argument)| *argument);
        names.iter().find_map(find)
    }

    /// The first numeric argument with one of these names, preferably one that the caller set.
    pub(super) fn find_numeric(&self, names: &[&str]) -> Option<PageArgument<'a>> {
        let numeric = |name: &&str| {
            let argument = self.find(&[name])?;
            matches!(
                self.argument_type(argument),
                ArgumentType::Integer | ArgumentType::Number | ArgumentType::Unknown
            )
            .then_some(argument)
        };
        let is_set = |argument: &PageArgument<'a>| self.value(*argument).is_some();
        names.iter().filter_map(numeric).find(is_set).or_else(|| names.iter().find_map(numeric))
    }

    /// The value that was sent.
    pub(super) fn value(&self, argument: PageArgument<'_>) -> Option<&'a Value> {
        let arguments = self.call.arguments;
        let inside = argument.inside.map(|body| arguments.get(body).and_then(Value::as_object));
        inside.unwrap_or(Some(arguments))?.get(argument.name).filter(|value| !value.is_null())
    }

    /// The number that was sent, else the schema's default.
    pub(super) fn number(&self, argument: PageArgument<'_>) -> Option<u64> {
        let schema_number = |keyword: &str| self.schema(argument)?.get(keyword).and_then(number);
        self.value(argument).and_then(number).or_else(|| schema_number("default"))
    }

    /// The schema's `minimum`.
    pub(super) fn minimum(&self, argument: PageArgument<'_>) -> Option<u64> {
        self.schema(argument)?.get("minimum").and_then(number)
    }

    /// The arguments with `argument` set to `text`, converted to its type; `None` if it has that value already.
    pub(super) fn with(&self, argument: PageArgument<'_>, text: &str) -> Option<Map<String, Value>> {
        let value = parse_as(text, self.argument_type(argument), self.value(argument));
        if self.value(argument).is_some_and(|sent| is_same_value(sent, &value)) {
            return None;
        }
        let mut arguments = self.call.arguments.clone();
        let fields = match argument.inside {
            Some(body) => arguments.entry(body).or_insert_with(|| Map::new().into()).as_object_mut()?,
            None => &mut arguments,
        };
        fields.insert(argument.name.to_owned(), value);
        Some(arguments)
    }

    fn argument_type(&self, argument: PageArgument<'_>) -> ArgumentType {
        self.schema(argument)
            .map_or(ArgumentType::Unknown, |schema| argument_type(self.call.schema, schema, REFERENCES_MAX))
    }

    fn schema(&self, argument: PageArgument<'_>) -> Option<&'a Value> {
        let root_schema = self.call.schema;
        match argument.inside {
            Some(body) => property_of(root_schema, argument_schema(root_schema, body)?, argument.name),
            None => argument_schema(root_schema, argument.name),
        }
    }
}

/// The schema of an argument, with a `$ref` at its top resolved.
pub(super) fn argument_schema<'a>(root_schema: &'a Value, argument: &str) -> Option<&'a Value> {
    property_of(root_schema, root_schema, argument)
}

/// The schema of a field of an object, with a `$ref` at its top resolved.
fn property_of<'a>(root_schema: &'a Value, of: &'a Value, name: &str) -> Option<&'a Value> {
    let mut schema = of.get("properties")?.get(name)?;
    for _ in 0..REFERENCES_MAX {
        match schema.get("$ref") {
            Some(_) => schema = resolve_reference(root_schema, schema)?,
            None => break,
        }
    }
    Some(schema)
}

fn resolve_reference<'a>(root_schema: &'a Value, schema: &Value) -> Option<&'a Value> {
    root_schema.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

/// The type that a schema allows; text, if that is one of several.
pub(super) fn argument_type(root_schema: &Value, schema: &Value, steps: usize) -> ArgumentType {
    let Some(steps) = steps.checked_sub(1) else { return ArgumentType::Unknown };
    if schema.get("$ref").is_some() {
        return resolve_reference(root_schema, schema)
            .map_or(ArgumentType::Unknown, |schema| argument_type(root_schema, schema, steps));
    }
    let one = |name: &Value| match name.as_str() {
        Some("string") => Some(ArgumentType::Text),
        Some("integer") => Some(ArgumentType::Integer),
        Some("number") => Some(ArgumentType::Number),
        Some("boolean") => Some(ArgumentType::Boolean),
        Some("array" | "object") => Some(ArgumentType::Compound),
        _ => None,
    };
    let mut types: Vec<ArgumentType> = match schema.get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(one).collect(),
        Some(name) => one(name).into_iter().collect(),
        None => Vec::new(),
    };
    if types.is_empty() {
        let others = ["anyOf", "oneOf", "allOf"]
            .into_iter()
            .filter_map(|keyword| schema.get(keyword)?.as_array())
            .flatten();
        types = others
            .map(|schema| argument_type(root_schema, schema, steps))
            .filter(|argument_type| *argument_type != ArgumentType::Unknown)
            .collect();
    }
    let first = types.first().copied().unwrap_or(ArgumentType::Unknown);
    if types.contains(&ArgumentType::Text) { ArgumentType::Text } else { first }
}

/// Converts a text to a type; if the type is unknown, to that of the value sent before.
pub(super) fn parse_as(text: &str, argument_type: ArgumentType, before: Option<&Value>) -> Value {
    let integer = || text.parse::<i64>().ok().map(Value::from);
    let number = || {
        integer().or_else(|| text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from))
    };
    let value = match argument_type {
        ArgumentType::Integer => integer(),
        ArgumentType::Number => number(),
        ArgumentType::Boolean => text.parse::<bool>().ok().map(Value::from),
        ArgumentType::Unknown if before.is_some_and(Value::is_number) => number(),
        ArgumentType::Text | ArgumentType::Compound | ArgumentType::Unknown => None,
    };
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Whether two values are sent in the same form.
pub(super) fn is_same_value(one: &Value, other: &Value) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    one == other || text(one) == text(other) || number(one).is_some_and(|one| number(other) == Some(one))
}
