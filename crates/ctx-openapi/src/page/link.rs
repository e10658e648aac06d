//! Links to the next page: in the header `Link` (RFC 8288), or anywhere else.
//!
//! A link is never followed. What it says of the query is taken for the next call of the same operation, as far as
//! that declares it.

use super::target::{Kind, kind, property, same, typed};
use super::{Exchange, Next};
use crate::header::parameters;
use crate::operation::Place;
use http::header::LINK;
use serde_json::Value;
use std::borrow::Cow;
use url::Url;

/// Relations between pages: a service that says one of them would say `next`, too.
const RELATIONS: [&str; 5] = ["next", "prev", "previous", "first", "last"];

/// Steps from one schema to the next.
const REFERENCES_MAX: usize = 8;

/// The next page as the headers tell it.
pub(super) fn in_headers(exchange: &Exchange<'_>) -> Next {
    let mut is_told = false;
    for header in exchange.headers.get_all(LINK) {
        for (target, relations) in links(&String::from_utf8_lossy(header.as_bytes())) {
            if relations.iter().any(|relation| relation == "next") {
                return to(exchange, &target);
            }
            is_told |= relations.iter().any(|relation| RELATIONS.contains(&relation.as_str()));
        }
    }
    if is_told { Next::Last } else { Next::Unknown }
}

/// The next page as a link tells it.
pub(super) fn to(exchange: &Exchange<'_>, target: &str) -> Next {
    let Some(url) = exchange.url.join(target).ok().filter(|url| is_near(exchange.url, url)) else {
        return Next::Beyond("its next page is at another address".to_owned());
    };
    let pairs: Vec<_> = url.query_pairs().collect();
    let operation = exchange.operation;
    let query = || operation.parameters.iter().filter(|one| one.place == Place::Query);
    let mut next = exchange.arguments.clone();
    let mut is_other = false;
    for parameter in query().filter(|one| !operation.frozen.contains_key(&one.argument)) {
        let argument = &parameter.argument;
        let schema = property(exchange.schema, argument);
        let kind = schema.map_or(Kind::Unknown, |schema| kind(exchange.schema, schema, REFERENCES_MAX));
        let sent = exchange.arguments.get(argument);
        let is_many = kind == Kind::Many || sent.is_some_and(|sent| sent.is_array() || sent.is_object());
        let is_named =
            |name: &str| name == parameter.name || name.starts_with(&format!("{}[", parameter.name));
        match pairs.iter().find(|(name, _)| *name == parameter.name) {
            // What let us in, which some services repeat.
            Some((_, text))
                if exchange.redactor.text(text.clone().into_owned()) != *text || text.contains("***") => {}
            Some((_, text)) if !is_many => {
                let value = typed(text, kind, sent);
                is_other |= !sent.is_some_and(|sent| same(sent, &value));
                next.insert(argument.clone(), value);
            }
            // Lists and tables are written in many ways; they stay as they were sent.
            Some(_) => {}
            None if parameter.required || pairs.iter().any(|(name, _)| is_named(name)) => {}
            None => {
                next.remove(argument);
            }
        }
    }
    let is_declared = |name: &str| query().any(|one| one.name == name);
    let is_new = |pair: &(Cow<'_, str>, Cow<'_, str>)| exchange.url.query_pairs().all(|sent| sent != *pair);
    let undeclared = pairs.iter().find(|pair| !is_declared(&pair.0) && is_new(pair));
    match (is_other, undeclared) {
        (true, _) => Next::Arguments(next),
        (false, Some((name, _))) => {
            Next::Beyond(format!("its next page needs `{name}`, which it does not declare"))
        }
        (false, None) => Next::Last,
    }
}

/// The URL that a value is, or that an object holds.
pub(super) fn url_in(value: &Value) -> Option<&str> {
    let text =
        value.as_str().or_else(|| ["href", "url"].into_iter().find_map(|name| value.get(name)?.as_str()))?;
    ["http://", "https://", "/", "?"].into_iter().any(|start| text.starts_with(start)).then_some(text)
}

/// Whether a link leads to the same list. Some services name it otherwise there (by an id instead of a name), so it
/// is enough that the path ends alike.
fn is_near(here: &Url, there: &Url) -> bool {
    let end = |url: &Url| url.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    here.host_str() == there.host_str() && end(here) == end(there)
}

/// The links of a header, each with its relations in small letters.
fn links(header: &str) -> Vec<(String, Vec<String>)> {
    let mut links = Vec::new();
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let Some((target, after)) = after.split_once('>') else { break };
        let (parameters, after) = parameters(after);
        // Only the first counts.
        let relations = parameters.iter().find(|(name, _)| name == "rel").map_or("", |(_, value)| value);
        let relations = relations.split_whitespace().map(str::to_ascii_lowercase).collect();
        links.push((target.trim().to_owned(), relations));
        rest = after;
    }
    links
}
