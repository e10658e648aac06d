//! Pagination by cursors and links in the response body.

use super::arguments::{OFFSET_PARAMETERS, PAGE_PARAMETERS, PageArguments};
use super::metadata::{PaginationMetadata, number};
use super::{CompletedCall, NextPage, items, link};
use serde_json::Value;

/// Normalised names of response fields that hold a link to the next page.
const LINK_FIELDS: [&str; 10] = [
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
const CURSOR_FIELDS: [&str; 17] = [
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
const AFTER_ITEM_PARAMETERS: [&str; 4] = ["startingafter", "afterid", "after", "startafter"];

/// The next page, according to the response body.
pub(super) fn next_page(
    call: &CompletedCall<'_>,
    metadata: &PaginationMetadata<'_>,
    page_arguments: &PageArguments<'_>,
    items: Option<&[String]>,
) -> NextPage {
    let has_more = metadata.has_more();
    if has_more == Some(false) {
        return NextPage::Last;
    }
    let is_get = call.operation.method == "GET";
    let url = LINK_FIELDS.iter().find_map(|name| metadata.get(name).find_map(link::url_in));
    if let Some(url) = url.filter(|_| is_get) {
        return link::from_url(call, url);
    }
    let mut is_over = is_get && LINK_FIELDS.iter().any(|name| metadata.get(name).any(is_end));
    let mut unused_cursor = None;
    for name in CURSOR_FIELDS {
        for value in metadata.get(name) {
            // An empty cursor ends the list only if its name says `next`, or if the operation takes such a
            // cursor.
            is_over |= is_end(value) && (name.starts_with("next") || page_arguments.cursor(name).is_some());
            let Some(text) = cursor_text(value) else { continue };
            let page_number = number(value).and_then(|_| match name {
                "nextpage" => page_arguments.find_numeric(&PAGE_PARAMETERS),
                _ => None,
            });
            match page_number.or_else(|| page_arguments.cursor(name)) {
                // An unchanged cursor would repeat the page: the list ends.
                Some(argument) => {
                    return page_arguments.with(argument, &text).map_or(NextPage::Last, NextPage::Arguments);
                }
                None if name.starts_with("next") && name.len() > "next".len() => unused_cursor = Some(name),
                None => {}
            }
        }
    }
    if let Some(next) = next_by_offset(metadata, page_arguments) {
        return next;
    }
    let last = items.and_then(|path| items::at_path(call.body, path)).and_then(<[Value]>::last);
    let id = last.and_then(|item| item.get("id")).and_then(cursor_text);
    if let (Some(true), Some(id), Some(argument)) =
        (has_more, id, page_arguments.find(&AFTER_ITEM_PARAMETERS))
    {
        return page_arguments.with(argument, &id).map_or(NextPage::Last, NextPage::Arguments);
    }
    match unused_cursor {
        Some(name)
            if page_arguments
                .find_numeric(&PAGE_PARAMETERS)
                .or_else(|| page_arguments.find_numeric(&OFFSET_PARAMETERS))
                .is_none() =>
        {
            NextPage::Unreachable(format!("it returns a cursor (`{name}`) but has no parameter for one"))
        }
        _ if is_over => NextPage::Last,
        _ => NextPage::Unknown,
    }
}

/// The next page by offset, where the response states the next offset.
fn next_by_offset(metadata: &PaginationMetadata<'_>, page_arguments: &PageArguments<'_>) -> Option<NextPage> {
    let next = metadata.number(&["nextoffset", "nextstart"])?;
    let argument = page_arguments.find_numeric(&OFFSET_PARAMETERS)?;
    Some(page_arguments.with(argument, &next.to_string()).map_or(NextPage::Last, NextPage::Arguments))
}

/// Whether a value means that there is no next page.
fn is_end(value: &Value) -> bool {
    let is_no_number = value.as_f64().is_some_and(|number| number <= 0.0);
    matches!(value, Value::Null | Value::Bool(false)) || value.as_str() == Some("") || is_no_number
}

fn cursor_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() && link::url_in(value).is_none() => Some(text.clone()),
        Value::Number(number) if !is_end(value) => Some(number.to_string()),
        _ => None,
    }
}
