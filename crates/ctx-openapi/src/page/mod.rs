//! How a list goes on: where the items of an answer are, and the arguments that give the next page.
//!
//! Services tell it in their own ways: by links, by cursors, by numbers, or not at all. Whatever they say, it is only
//! ever the same operation that is called again, with other values for what it declares.

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

/// A call and what came back.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) operation: &'a Operation,
    /// JSON Schema of the arguments.
    pub(crate) schema: &'a Value,
    pub(crate) arguments: &'a Map<String, Value>,
    /// Where the request went.
    pub(crate) url: &'a Url,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Value,
    /// What let us in, which is no argument even where a service repeats it.
    pub(crate) redactor: &'a Redactor,
}

/// What is known of the next page.
#[derive(Debug, PartialEq)]
enum Next {
    /// Nothing.
    Unknown,
    /// There is none.
    Last,
    /// These arguments give it.
    Arguments(Map<String, Value>),
    /// There is one, but it cannot be had.
    Beyond(String),
}

impl Next {
    fn or_else(self, other: impl FnOnce() -> Self) -> Self {
        if self == Self::Unknown { other() } else { self }
    }
}

impl Exchange<'_> {
    /// The answer as a page; none where it is no list. Only what reads is called again: `GET`, and `POST` where the
    /// answer holds a cursor.
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
