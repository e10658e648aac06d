//! Pagination by cursors and links in the response body.

use super::signs::{Signs, number};
use super::target::{OFFSETS, PAGES, Targets};
use super::{Exchange, Next, items, link};
use serde_json::Value;

/// Normalised names of response fields that hold a link to the next page.
const LINKS: [&str; 10] = [
    "next",
    "nextlink",
    "odatanextlink",
    "nexturl",
    "nextpage",
    "nextpageurl",
    "nextpagelink",
    "nexthref",
    "nexturi",
    "nextpageuri",
];

/// Normalised names of response fields that hold a cursor, the most reliable first.
const CURSORS: [&str; 17] = [
    "nextcursor",
    "nextpagetoken",
    "nexttoken",
    "nextpagecursor",
    "nextcontinuationtoken",
    "continuationtoken",
    "continuation",
    "nextmarker",
    "endcursor",
    "startingafter",
    "after",
    "scrollid",
    "bookmark",
    "cursor",
    "lastid",
    "nextpage",
    "next",
];

/// Parameters that take the `id` of the last item of the current page.
const AFTER_ITEM: [&str; 4] = ["startingafter", "afterid", "after", "startafter"];

/// The next page, according to the response body.
pub(super) fn next(
    exchange: &Exchange<'_>,
    signs: &Signs<'_>,
    targets: &Targets<'_>,
    items: Option<&[String]>,
) -> Next {
    let has_more = signs.has_more();
    if has_more == Some(false) {
        return Next::Last;
    }
    let is_get = exchange.operation.method == "GET";
    let url = LINKS.iter().find_map(|name| signs.get(name).find_map(link::url_in));
    if let Some(url) = url.filter(|_| is_get) {
        return link::to(exchange, url);
    }
    let mut is_over = is_get && LINKS.iter().any(|name| signs.get(name).any(is_nothing));
    let mut beyond = None;
    for name in CURSORS {
        for value in signs.get(name) {
            // An empty cursor ends the list only if its name says `next`, or if the operation takes such a
            // cursor.
            is_over |= is_nothing(value) && (name.starts_with("next") || targets.cursor(name).is_some());
            let Some(text) = cursor_text(value) else { continue };
            let counted = number(value).and_then(|_| match name {
                "nextpage" => targets.counting(&PAGES),
                _ => None,
            });
            match counted.or_else(|| targets.cursor(name)) {
                // An unchanged cursor would repeat the page: the list ends.
                Some(target) => return targets.with(target, &text).map_or(Next::Last, Next::Arguments),
                None if name.starts_with("next") && name.len() > "next".len() => beyond = Some(name),
                None => {}
            }
        }
    }
    if let Some(next) = offset(signs, targets) {
        return next;
    }
    let last = items.and_then(|path| items::at(exchange.body, path)).and_then(<[Value]>::last);
    let id = last.and_then(|item| item.get("id")).and_then(cursor_text);
    if let (Some(true), Some(id), Some(target)) = (has_more, id, targets.any(&AFTER_ITEM)) {
        return targets.with(target, &id).map_or(Next::Last, Next::Arguments);
    }
    match beyond {
        Some(name) if targets.counting(&PAGES).or_else(|| targets.counting(&OFFSETS)).is_none() => {
            Next::Beyond(format!("it gives a cursor (`{name}`) but takes none"))
        }
        _ if is_over => Next::Last,
        _ => Next::Unknown,
    }
}

/// The next page by offset, where the response states the next offset.
fn offset(signs: &Signs<'_>, targets: &Targets<'_>) -> Option<Next> {
    let next = signs.number(&["nextoffset", "nextstart"])?;
    let target = targets.counting(&OFFSETS)?;
    Some(targets.with(target, &next.to_string()).map_or(Next::Last, Next::Arguments))
}

/// Whether a value means that there is no next page.
fn is_nothing(value: &Value) -> bool {
    let is_no_number = value.as_f64().is_some_and(|number| number <= 0.0);
    matches!(value, Value::Null | Value::Bool(false)) || value.as_str() == Some("") || is_no_number
}

fn cursor_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() && link::url_in(value).is_none() => Some(text.clone()),
        Value::Number(number) if !is_nothing(value) => Some(number.to_string()),
        _ => None,
    }
}
