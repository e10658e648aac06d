//! Pagination by links: in the `Link` header (RFC 8288), or in the response body.
//!
//! A link is never followed. Its query parameters become arguments for the next call of the same operation,
//! if the operation declares them.

use super::arguments::{ArgumentType, argument_schema, argument_type, is_same_value, parse_as};
use super::{CompletedCall, NextPage};
use crate::header::parse_parameters;
use crate::operation::ParameterLocation;
use http::header::LINK;
use serde_json::Value;
use std::borrow::Cow;
use url::Url;

/// Link relations of pagination. A service that sends one of them without `next` has no next page.
const RELATIONS: [&str; 5] = ["next", "prev", "previous", "first", "last"];

/// Maximum length of a chain of `$ref`s.
const REFERENCES_MAX: usize = 8;

/// The next page, according to the `Link` header.
pub(super) fn from_headers(call: &CompletedCall<'_>) -> NextPage {
    let mut has_relation = false;
    for header in call.headers.get_all(LINK) {
        for (target, relations) in parse_links(&String::from_utf8_lossy(header.as_bytes())) {
            if relations.iter().any(|relation| relation == "next") {
                return from_url(call, &target);
            }
            has_relation |= relations.iter().any(|relation| RELATIONS.contains(&relation.as_str()));
        }
    }
    if has_relation { NextPage::Last } else { NextPage::Unknown }
}

/// The next page, according to a link.
pub(super) fn from_url(call: &CompletedCall<'_>, target: &str) -> NextPage {
    let Some(url) = call.url.join(target).ok().filter(|url| is_same_list(call.url, url)) else {
        return NextPage::Unreachable("its next page is at another URL".to_owned());
    };
    let pairs: Vec<_> = url.query_pairs().collect();
    let operation = call.operation;
    let query = || operation.parameters.iter().filter(|one| one.location == ParameterLocation::Query);
    let mut next = call.arguments.clone();
    let mut is_changed = false;
    for parameter in query().filter(|one| !operation.frozen.contains_key(&one.argument)) {
        let argument = &parameter.argument;
        let schema = argument_schema(call.schema, argument);
        let argument_type =
            schema.map_or(ArgumentType::Unknown, |schema| argument_type(call.schema, schema, REFERENCES_MAX));
        let sent_value = call.arguments.get(argument);
        let is_compound = argument_type == ArgumentType::Compound
            || sent_value.is_some_and(|sent_value| sent_value.is_array() || sent_value.is_object());
        let is_named =
            |name: &str| name == parameter.name || name.starts_with(&format!("{}[", parameter.name));
        match pairs.iter().find(|(name, _)| *name == parameter.name) {
            // A credential, which some services repeat in their links.
            Some((_, text))
                if call.redactor.text(text.clone().into_owned()) != *text || text.contains("***") => {}
            Some((_, text)) if !is_compound => {
                let value = parse_as(text, argument_type, sent_value);
                is_changed |= !sent_value.is_some_and(|sent_value| is_same_value(sent_value, &value));
                next.insert(argument.clone(), value);
            }
            // Lists and objects have many serializations; they stay as they were sent.
            Some(_) => {}
            None if parameter.required || pairs.iter().any(|(name, _)| is_named(name)) => {}
            None => {
                next.remove(argument);
            }
        }
    }
    let is_declared = |name: &str| query().any(|one| one.name == name);
    let is_new = |pair: &(Cow<'_, str>, Cow<'_, str>)| call.url.query_pairs().all(|sent| sent != *pair);
    let undeclared = pairs.iter().find(|pair| !is_declared(&pair.0) && is_new(pair));
    match (is_changed, undeclared) {
        (true, _) => NextPage::Arguments(next),
        (false, Some((name, _))) => {
            NextPage::Unreachable(format!("its next page needs `{name}`, which it does not declare"))
        }
        (false, None) => NextPage::Last,
    }
}

/// The URL in a value: the value itself, or the field `href` or `url`.
pub(super) fn url_in(value: &Value) -> Option<&str> {
    let text =
        value.as_str().or_else(|| ["href", "url"].into_iter().find_map(|name| value.get(name)?.as_str()))?;
    ["http://", "https://", "/", "?"].into_iter().any(|start| text.starts_with(start)).then_some(text)
}

/// Whether a link leads to the same list: same host, and same last path segment. The segments before may
/// differ, since some services use an id there instead of a name.
fn is_same_list(here: &Url, there: &Url) -> bool {
    let end = |url: &Url| url.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    here.host_str() == there.host_str() && end(here) == end(there)
}

/// The links of a header, each with its relations in lower case.
fn parse_links(header: &str) -> Vec<(String, Vec<String>)> {
    let mut links = Vec::new();
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let Some((target, after)) = after.split_once('>') else { break };
        let (parameters, after) = parse_parameters(after);
        // RFC 8288: only the first `rel` counts.
        let relations = parameters.iter().find(|(name, _)| name == "rel").map_or("", |(_, value)| value);
        let relations = relations.split_whitespace().map(str::to_ascii_lowercase).collect();
        links.push((target.trim().to_owned(), relations));
        rest = after;
    }
    links
}
