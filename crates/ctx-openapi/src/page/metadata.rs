//! Pagination metadata in a response body: totals, cursors, links.

use serde_json::Value;

/// Normalised names of objects that hold pagination metadata.
const METADATA_OBJECTS: [&str; 16] = [
    "cursors",
    "data",
    "info",
    "links",
    "meta",
    "metadata",
    "next",
    "page",
    "pageinfo",
    "pages",
    "pagination",
    "paging",
    "responsemetadata",
    "result",
    "searchmetadata",
    "pager",
];

/// Nesting depth of these objects, as in `meta.pagination.links.next`.
const DEPTH_MAX: usize = 4;

/// Fields examined per nesting level.
const FIELDS_MAX: usize = 1_000;

/// The fields that may be pagination metadata, by normalised name, outermost first.
pub(super) struct PaginationMetadata<'a>(Vec<(String, &'a Value)>);

impl<'a> PaginationMetadata<'a> {
    pub(super) fn of(body: &'a Value) -> Self {
        let mut metadata = Vec::new();
        let mut level = vec![body];
        for _ in 0..DEPTH_MAX {
            let mut nested = Vec::new();
            for (name, value) in level.iter().filter_map(|value| value.as_object()).flatten().take(FIELDS_MAX)
            {
                let name = normalize(name);
                match value {
                    Value::Object(_) if METADATA_OBJECTS.contains(&name.as_str()) => nested.push(value),
                    Value::Array(links) if name == "links" => metadata.extend(next_link(links)),
                    _ => {}
                }
                metadata.push((name, value));
            }
            level = nested;
        }
        Self(metadata)
    }

    /// The values of a field.
    pub(super) fn get(&self, name: &str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| *value)
    }

    /// The first number in one of these fields.
    pub(super) fn number(&self, names: &[&str]) -> Option<u64> {
        names.iter().find_map(|name| self.get(name).find_map(number))
    }

    /// Whether there are more pages, according to the first field that says so.
    pub(super) fn has_more(&self) -> Option<bool> {
        const MORE: [&str; 8] = [
            "hasmore",
            "hasnextpage",
            "hasnext",
            "hasmoreitems",
            "hasmoreresults",
            "hasmorepages",
            "morepages",
            "more",
        ];
        const LAST: [&str; 3] = ["islast", "islastpage", "last"];
        let first_flag =
            |names: &[&str]| names.iter().find_map(|name| self.get(name).find_map(Value::as_bool));
        first_flag(&MORE).or_else(|| first_flag(&LAST).map(|is_last| !is_last))
    }
}

/// The next link in a list of links with relations, such as `[{ "rel": "next", "href": "…" }]`.
fn next_link(links: &[Value]) -> Option<(String, &Value)> {
    let next = links.iter().find(|link| link.get("rel").and_then(Value::as_str) == Some("next"))?;
    Some(("next".to_owned(), next))
}

/// A non-negative integer, or a text that is one.
pub(super) fn number(value: &Value) -> Option<u64> {
    let integer =
        |number: f64| (number >= 0.0 && number.fract() == 0.0 && number < 2e15).then_some(number as u64);
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(integer)),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A normalised name: ASCII letters and digits in lower case, so that `next_page_token`, `nextPageToken` and
/// `next-page-token` are equal.
pub(super) fn normalize(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}
