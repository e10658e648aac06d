//! Pagination by page number or offset: the next value is computed from the current one and the number of
//! items.

use super::NextPage;
use super::arguments::{OFFSET_PARAMETERS, PAGE_PARAMETERS, PageArgument, PageArguments, SIZE_PARAMETERS};
use super::metadata::PaginationMetadata;

/// Normalised names of response fields with the current page number.
const PAGE_FIELDS: [&str; 5] = ["currentpage", "pagenumber", "pageindex", "page", "number"];

/// Response fields with the offset of the current page.
const OFFSET_FIELDS: [&str; 4] = ["offset", "startat", "startindex", "skip"];

/// Response fields with the number of pages.
const PAGE_COUNT_FIELDS: [&str; 7] =
    ["totalpages", "pagecount", "pagestotal", "lastpage", "numpages", "numberofpages", "pages"];

/// Response fields with the total number of items.
const TOTAL_FIELDS: [&str; 8] = [
    "total",
    "totalcount",
    "totalresults",
    "totalitems",
    "totalelements",
    "totalrecords",
    "totalsize",
    "totalhits",
];

/// Response fields with the page size.
const SIZE_FIELDS: [&str; 6] = ["perpage", "pagesize", "limit", "size", "pagelimit", "maxresults"];

/// The next page by number or offset, if the operation takes one.
pub(super) fn next_page(
    metadata: &PaginationMetadata<'_>,
    page_arguments: &PageArguments<'_>,
    count: usize,
) -> NextPage {
    let (page, offset) =
        (page_arguments.find_numeric(&PAGE_PARAMETERS), page_arguments.find_numeric(&OFFSET_PARAMETERS));
    let is_set = |argument: PageArgument<'_>| page_arguments.value(argument).is_some();
    let by_offset = offset.filter(|offset| page.is_none() || (is_set(*offset) && !page.is_some_and(is_set)));
    let Some(argument) = by_offset.or(page) else { return NextPage::Unknown };
    let count = count as u64;
    if count == 0 {
        return NextPage::Last;
    }
    let has_more = metadata.has_more() == Some(true);
    let (echo_fields, first) =
        if by_offset.is_some() { (&OFFSET_FIELDS[..], 0) } else { (&PAGE_FIELDS[..], 1) };
    let current = page_arguments
        .number(argument)
        .or_else(|| metadata.number(echo_fields))
        .or_else(|| page_arguments.minimum(argument));
    let current = current.unwrap_or(first);
    let total = metadata.number(&TOTAL_FIELDS);
    let response_size = metadata.number(&SIZE_FIELDS);
    let requested_size =
        || page_arguments.find_numeric(&SIZE_PARAMETERS).and_then(|size| page_arguments.number(size));
    // A service may cap the page size, usually at a round number: such a page may be full although more was
    // requested.
    let is_round = count.is_multiple_of(10) || count.is_multiple_of(25);
    let is_full = response_size.or_else(requested_size).is_none_or(|size| count >= size || is_round);
    if by_offset.is_some() {
        let seen = current.saturating_add(count);
        // Offsets that start at 1 are one ahead of the number of items seen.
        let base = u64::from(
            page_arguments.minimum(argument).is_some_and(|least| least > 0)
                || (current == 1 && total.is_some()),
        );
        let is_over = total.map_or(!is_full, |total| seen >= total.saturating_add(base));
        return match is_over && !has_more {
            true => NextPage::Last,
            false => {
                page_arguments.with(argument, &seen.to_string()).map_or(NextPage::Last, NextPage::Arguments)
            }
        };
    }
    let size = response_size.unwrap_or(count);
    let seen = current.saturating_sub(1).saturating_mul(size).saturating_add(count);
    let is_over = total.is_some_and(|total| seen >= total)
        || metadata.number(&PAGE_COUNT_FIELDS).is_some_and(|pages| current >= pages)
        || !is_full;
    match is_over && !has_more {
        true => NextPage::Last,
        false => page_arguments
            .with(argument, &current.saturating_add(1).to_string())
            .map_or(NextPage::Last, NextPage::Arguments),
    }
}
