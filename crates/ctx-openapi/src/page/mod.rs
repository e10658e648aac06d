//! Pagination: finds the items of a response, and the arguments that request the next page.
//!
//! Services paginate by links, cursors, page numbers or offsets. Whatever a response says, only the same
//! operation is called again, with other values for parameters that it declares.

mod cursor;
mod items;
mod link;
mod number;
mod signs;
mod target;

use crate::operation::Operation;
use ctx_core::{Page, Redactor};
use http::header::HeaderMap;
use serde_json::{Map, Value};
use signs::Signs;
use target::Targets;
use url::Url;

/// A call and its response.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) operation: &'a Operation,
    /// JSON Schema of the arguments.
    pub(crate) schema: &'a Value,
    pub(crate) arguments: &'a Map<String, Value>,
    /// The URL of the request.
    pub(crate) url: &'a Url,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Value,
    /// Masks credentials: a credential that the service repeats is never taken for an argument.
    pub(crate) redactor: &'a Redactor,
}

/// Whether there is a next page, and how to request it.
#[derive(Debug, PartialEq)]
enum Next {
    /// The response does not say.
    Unknown,
    /// This page is the last.
    Last,
    /// These arguments request the next page.
    Arguments(Map<String, Value>),
    /// There is a next page, but the operation cannot request it, for this reason.
    Beyond(String),
}

impl Next {
    fn or_else(self, other: impl FnOnce() -> Self) -> Self {
        if self == Self::Unknown { other() } else { self }
    }
}

impl Exchange<'_> {
    /// The response as a page; `None` if it is not a list. Only operations that read are paginated: `GET`,
    /// and `POST` where the response has a cursor.
    pub(crate) fn page(&self) -> Option<Page> {
        let is_get = self.operation.method == "GET";
        if !is_get && self.operation.method != "POST" {
            return None;
        }
        let items = items::path(self.body, &self.operation.path);
        let count = items.as_deref().and_then(|path| items::at(self.body, path)).map_or(0, <[_]>::len);
        let signs = Signs::of(self.body);
        let targets = Targets::of(self);
        let linked = if is_get { link::in_headers(self) } else { Next::Unknown };
        let next =
            linked.or_else(|| cursor::next(self, &signs, &targets, items.as_deref())).or_else(
                || match is_get {
                    true => number::next(&signs, &targets, count),
                    false => Next::Unknown,
                },
            );
        let is_list = items.is_some() && is_get || targets.has_pages();
        let page = Page { items, ..Page::default() };
        match next {
            Next::Unknown => is_list.then_some(page),
            Next::Last => Some(page),
            Next::Arguments(next) => Some(Page { next: Some(next), ..page }),
            Next::Beyond(why) => Some(Page { beyond: Some(why), ..page }),
        }
    }
}

#[cfg(test)]
mod tests;
