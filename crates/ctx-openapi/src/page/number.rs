//! Pagination by page number or offset: the next value is computed from the current one and the number of
//! items.

use super::Next;
use super::signs::Signs;
use super::target::{OFFSETS, PAGES, SIZES, Target, Targets};

/// Normalised names of response fields with the current page number.
const THIS_PAGE: [&str; 5] = ["currentpage", "pagenumber", "pageindex", "page", "number"];

/// Response fields with the offset of the current page.
const THIS_OFFSET: [&str; 4] = ["offset", "startat", "startindex", "skip"];

/// Response fields with the number of pages.
const PAGES_TOTAL: [&str; 7] =
    ["totalpages", "pagecount", "pagestotal", "lastpage", "numpages", "numberofpages", "pages"];

/// Response fields with the total number of items.
const ITEMS_TOTAL: [&str; 8] = [
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
const THIS_SIZE: [&str; 6] = ["perpage", "pagesize", "limit", "size", "pagelimit", "maxresults"];

/// The next page by number or offset, if the operation takes one.
pub(super) fn next(signs: &Signs<'_>, targets: &Targets<'_>, count: usize) -> Next {
    let (page, offset) = (targets.counting(&PAGES), targets.counting(&OFFSETS));
    let is_given = |target: Target<'_>| targets.value(target).is_some();
    let by_offset =
        offset.filter(|offset| page.is_none() || (is_given(*offset) && !page.is_some_and(is_given)));
    let Some(target) = by_offset.or(page) else { return Next::Unknown };
    let count = count as u64;
    if count == 0 {
        return Next::Last;
    }
    let has_more = signs.has_more() == Some(true);
    let (echo, first) = if by_offset.is_some() { (&THIS_OFFSET[..], 0) } else { (&THIS_PAGE[..], 1) };
    let here = targets.number(target).or_else(|| signs.number(echo)).or_else(|| targets.minimum(target));
    let here = here.unwrap_or(first);
    let total = signs.number(&ITEMS_TOTAL);
    let told_size = signs.number(&THIS_SIZE);
    let asked_size = || targets.counting(&SIZES).and_then(|size| targets.number(size));
    // A service may cap the page size, usually at a round number: such a page may be full although more was
    // requested.
    let is_round = count.is_multiple_of(10) || count.is_multiple_of(25);
    let is_full = told_size.or_else(asked_size).is_none_or(|size| count >= size || is_round);
    if by_offset.is_some() {
        let seen = here.saturating_add(count);
        // Offsets that start at 1 are one ahead of the number of items seen.
        let base = u64::from(
            targets.minimum(target).is_some_and(|least| least > 0) || (here == 1 && total.is_some()),
        );
        let is_over = total.map_or(!is_full, |total| seen >= total.saturating_add(base));
        return match is_over && !has_more {
            true => Next::Last,
            false => targets.with(target, &seen.to_string()).map_or(Next::Last, Next::Arguments),
        };
    }
    let size = told_size.unwrap_or(count);
    let seen = here.saturating_sub(1).saturating_mul(size).saturating_add(count);
    let is_over = total.is_some_and(|total| seen >= total)
        || signs.number(&PAGES_TOTAL).is_some_and(|pages| here >= pages)
        || !is_full;
    match is_over && !has_more {
        true => Next::Last,
        false => {
            targets.with(target, &here.saturating_add(1).to_string()).map_or(Next::Last, Next::Arguments)
        }
    }
}
