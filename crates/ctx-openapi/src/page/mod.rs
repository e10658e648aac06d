//! Pagination: finds the items of a response, and the arguments that request the next page.
//!
//! Services paginate by links, cursors, page numbers or offsets. Whatever a response says, only the same
//! operation is called again, with other values for parameters that it declares.

mod arguments;
mod cursor;
mod items;
mod link;
mod metadata;
mod number;

use crate::operation::Operation;
use arguments::PageArguments;
use ctx_core::{Page, Redactor};
use http::header::HeaderMap;
use metadata::PaginationMetadata;
use serde_json::{Map, Value};
use url::Url;

/// A call and its response.
#[derive(Clone, Copy)]
pub(crate) struct CompletedCall<'a> {
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
enum NextPage {
    /// The response does not say.
    Unknown,
    /// This page is the last.
    Last,
    /// These arguments request the next page.
    Arguments(Map<String, Value>),
    /// There is a next page, but the operation cannot request it, for this reason.
    Unreachable(String),
}

impl NextPage {
    fn or_else(self, other: impl FnOnce() -> Self) -> Self {
        if self == Self::Unknown { other() } else { self }
    }
}

impl CompletedCall<'_> {
    /// The response as a page; `None` if it is not a list. Only operations that read are paginated: `GET`,
    /// and `POST` where the response has a cursor.
    pub(crate) fn page(&self) -> Option<Page> {
        let is_get = self.operation.method == "GET";
        if !is_get && self.operation.method != "POST" {
            return None;
        }
        let items = items::find_path(self.body, &self.operation.path);
        let count = items.as_deref().and_then(|path| items::at_path(self.body, path)).map_or(0, <[_]>::len);
        let metadata = PaginationMetadata::of(self.body);
        let page_arguments = PageArguments::of(self);
        let by_link = if is_get { link::from_headers(self) } else { NextPage::Unknown };
        let next = by_link
            .or_else(|| cursor::next_page(self, &metadata, &page_arguments, items.as_deref()))
            .or_else(|| match is_get {
                true => number::next_page(&metadata, &page_arguments, count),
                false => NextPage::Unknown,
            });
        let is_list = items.is_some() && is_get || page_arguments.is_paginated();
        let page = Page { items, ..Page::default() };
        match next {
            NextPage::Unknown => is_list.then_some(page),
            NextPage::Last => Some(page),
            NextPage::Arguments(next) => Some(Page { next: Some(next), ..page }),
            NextPage::Unreachable(why) => Some(Page { beyond: Some(why), ..page }),
        }
    }
}

#[cfg(test)]
mod tests;
