//! Pages and items that are counted: the next is the one after this, while there are items.

use super::Next;
use super::signs::Signs;
use super::target::{OFFSETS, PAGES, SIZES, Target, Targets};

/// Where a service says which page this is.
const THIS_PAGE: [&str; 5] = ["currentpage", "pagenumber", "pageindex", "page", "number"];

/// Where it says with which item this page begins.
const THIS_OFFSET: [&str; 4] = ["offset", "startat", "startindex", "skip"];

/// Where it says how many pages there are.
const PAGES_TOTAL: [&str; 7] =
    ["totalpages", "pagecount", "pagestotal", "lastpage", "numpages", "numberofpages", "pages"];

/// Where it says how many items there are.
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

/// Where it says how many items a page has.
const THIS_SIZE: [&str; 6] = ["perpage", "pagesize", "limit", "size", "pagelimit", "maxresults"];

/// The next page by its number, where the operation takes one.
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
    // Services have bounds of their own, and those are round: a page of that size may be a full one after all.
    let is_round = count.is_multiple_of(10) || count.is_multiple_of(25);
    let is_full = told_size.or_else(asked_size).is_none_or(|size| count >= size || is_round);
    if by_offset.is_some() {
        let seen = here.saturating_add(count);
        // Whoever begins at 1 has one less behind.
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
