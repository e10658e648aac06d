//! Pagination parameters: the arguments of an operation that select a page.

use super::Exchange;
use super::signs::{number, plain};
use crate::operation::Place;
use serde_json::{Map, Value};

/// Parameters that take a cursor, the most reliable first. `token` is not among them: it is usually a
/// credential.
const CURSORS: [&str; 24] = [
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
pub(super) const PAGES: [&str; 7] =
    ["page", "pagenumber", "pageno", "pagenum", "pageindex", "currentpage", "p"];

/// Parameters with an offset.
pub(super) const OFFSETS: [&str; 6] = ["offset", "skip", "startat", "startindex", "pageoffset", "start"];

/// Parameters with a page size.
pub(super) const SIZES: [&str; 11] = [
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
pub(super) enum Kind {
    Text,
    Whole,
    Number,
    Boolean,
    /// An array or an object.
    Many,
    Unknown,
}

/// An argument that selects a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    argument: &'a str,
    /// The body argument that it is a field of; `None` for a parameter.
    inside: Option<&'a str>,
}

/// The arguments of an operation that may select a page, by normalised name.
pub(super) struct Targets<'a> {
    exchange: Exchange<'a>,
    named: Vec<(String, Target<'a>)>,
}

impl<'a> Targets<'a> {
    pub(super) fn of(exchange: &Exchange<'a>) -> Self {
        let operation = exchange.operation;
        let is_free = |argument: &str| !operation.frozen.contains_key(argument);
        let query =
            operation.parameters.iter().filter(|one| one.place == Place::Query && is_free(&one.argument));
        let query = query.map(|one| (plain(&one.name), Target { argument: &one.argument, inside: None }));
        let mut named: Vec<_> = query.collect();
        if let Some(body) = operation.body.as_ref().filter(|_| operation.method == "POST") {
            // The catalog has moved body fields into the body argument, however the caller passed them.
            let inside = Some(body.argument.as_str());
            let fields = body.fields.iter();
            named.extend(fields.map(|field| (plain(field), Target { argument: field, inside })));
        }
        Self { exchange: *exchange, named }
    }

    /// Whether the operation takes a page number, an offset or a cursor.
    pub(super) fn has_pages(&self) -> bool {
        self.counting(&PAGES).or_else(|| self.counting(&OFFSETS)).is_some() || self.any(&CURSORS).is_some()
    }

    /// The argument that takes a cursor of this name.
    pub(super) fn cursor(&self, name: &str) -> Option<Target<'a>> {
        let short = name.strip_prefix("next").filter(|short| !short.is_empty() && *short != "token");
        let same = [Some(name), short].into_iter().flatten().find_map(|name| self.any(&[name]));
        // An array or object cannot take a cursor.
        let fits = |target: &Target<'a>| self.kind(*target) != Kind::Many;
        same.or_else(|| self.any(&CURSORS)).filter(fits)
    }

    /// The first argument with one of these names.
    pub(super) fn any(&self, names: &[&str]) -> Option<Target<'a>> {
        let find =
            |name: &&str| self.named.iter().find(|(found, _)| found == name).map(|(_, target)| *target);
        names.iter().find_map(find)
    }

    /// The first numeric argument with one of these names, preferably one that the caller set.
    pub(super) fn counting(&self, names: &[&str]) -> Option<Target<'a>> {
        let count = |name: &&str| {
            let target = self.any(&[name])?;
            matches!(self.kind(target), Kind::Whole | Kind::Number | Kind::Unknown).then_some(target)
        };
        let given = |target: &Target<'a>| self.value(*target).is_some();
        names.iter().filter_map(count).find(given).or_else(|| names.iter().find_map(count))
    }

    /// The value that was sent.
    pub(super) fn value(&self, target: Target<'_>) -> Option<&'a Value> {
        let arguments = self.exchange.arguments;
        let inside = target.inside.map(|body| arguments.get(body).and_then(Value::as_object));
        inside.unwrap_or(Some(arguments))?.get(target.argument).filter(|value| !value.is_null())
    }

    /// The number that was sent, else the schema's default.
    pub(super) fn number(&self, target: Target<'_>) -> Option<u64> {
        let said = |word: &str| self.schema(target)?.get(word).and_then(number);
        self.value(target).and_then(number).or_else(|| said("default"))
    }

    /// The schema's `minimum`.
    pub(super) fn minimum(&self, target: Target<'_>) -> Option<u64> {
        self.schema(target)?.get("minimum").and_then(number)
    }

    /// The arguments with `target` set to `text`, converted to its type; `None` if it has that value already.
    pub(super) fn with(&self, target: Target<'_>, text: &str) -> Option<Map<String, Value>> {
        let value = typed(text, self.kind(target), self.value(target));
        if self.value(target).is_some_and(|sent| same(sent, &value)) {
            return None;
        }
        let mut arguments = self.exchange.arguments.clone();
        let fields = match target.inside {
            Some(body) => arguments.entry(body).or_insert_with(|| Map::new().into()).as_object_mut()?,
            None => &mut arguments,
        };
        fields.insert(target.argument.to_owned(), value);
        Some(arguments)
    }

    fn kind(&self, target: Target<'_>) -> Kind {
        self.schema(target).map_or(Kind::Unknown, |schema| kind(self.exchange.schema, schema, REFERENCES_MAX))
    }

    fn schema(&self, target: Target<'_>) -> Option<&'a Value> {
        let whole = self.exchange.schema;
        match target.inside {
            Some(body) => field(whole, property(whole, body)?, target.argument),
            None => property(whole, target.argument),
        }
    }
}

/// The schema of an argument, with a `$ref` at its top resolved.
pub(super) fn property<'a>(whole: &'a Value, argument: &str) -> Option<&'a Value> {
    field(whole, whole, argument)
}

/// The schema of a field of an object, with a `$ref` at its top resolved.
fn field<'a>(whole: &'a Value, of: &'a Value, name: &str) -> Option<&'a Value> {
    let mut schema = of.get("properties")?.get(name)?;
    for _ in 0..REFERENCES_MAX {
        match schema.get("$ref") {
            Some(_) => schema = referred(whole, schema)?,
            None => break,
        }
    }
    Some(schema)
}

fn referred<'a>(whole: &'a Value, schema: &Value) -> Option<&'a Value> {
    whole.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

/// The type that a schema allows; text, if that is one of several.
pub(super) fn kind(whole: &Value, schema: &Value, steps: usize) -> Kind {
    let Some(steps) = steps.checked_sub(1) else { return Kind::Unknown };
    if schema.get("$ref").is_some() {
        return referred(whole, schema).map_or(Kind::Unknown, |schema| kind(whole, schema, steps));
    }
    let one = |name: &Value| match name.as_str() {
        Some("string") => Some(Kind::Text),
        Some("integer") => Some(Kind::Whole),
        Some("number") => Some(Kind::Number),
        Some("boolean") => Some(Kind::Boolean),
        Some("array" | "object") => Some(Kind::Many),
        _ => None,
    };
    let mut kinds: Vec<Kind> = match schema.get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(one).collect(),
        Some(name) => one(name).into_iter().collect(),
        None => Vec::new(),
    };
    if kinds.is_empty() {
        let others =
            ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|word| schema.get(word)?.as_array()).flatten();
        kinds =
            others.map(|schema| kind(whole, schema, steps)).filter(|kind| *kind != Kind::Unknown).collect();
    }
    let first = kinds.first().copied().unwrap_or(Kind::Unknown);
    if kinds.contains(&Kind::Text) { Kind::Text } else { first }
}

/// Converts a text to a type; if the type is unknown, to that of the value sent before.
pub(super) fn typed(text: &str, kind: Kind, before: Option<&Value>) -> Value {
    let whole = || text.parse::<i64>().ok().map(Value::from);
    let number =
        || whole().or_else(|| text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from));
    let value = match kind {
        Kind::Whole => whole(),
        Kind::Number => number(),
        Kind::Boolean => text.parse::<bool>().ok().map(Value::from),
        Kind::Unknown if before.is_some_and(Value::is_number) => number(),
        Kind::Text | Kind::Many | Kind::Unknown => None,
    };
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Whether two values are sent in the same form.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    one == other || text(one) == text(other) || number(one).is_some_and(|one| number(other) == Some(one))
}
