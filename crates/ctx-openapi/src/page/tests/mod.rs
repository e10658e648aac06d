//! Pagination of real services, and protection against loops.

mod services;

use super::*;
use crate::operation::{BodyEncoding, Parameter, ParameterLocation};
use crate::request::tests::{body, operation, parameter};
use ctx_core::Secret;
use http::header::{HeaderValue, LINK};
use proptest::prelude::*;
use serde_json::json;

/// A call and its response.
struct CallFixture {
    operation: Operation,
    schema: Value,
    arguments: Map<String, Value>,
    url: Url,
    headers: HeaderMap,
    body: Value,
    redactor: Redactor,
}

/// A `GET` call with parameters like `page:integer`, `cursor` or `!needed`.
fn get(url: &str, parameters: &[&str], arguments: Value, body: Value) -> CallFixture {
    let url = Url::parse(url).unwrap();
    let mut properties = Map::new();
    let parameters = parameters.iter().map(|text| {
        let (name, kind) = text.trim_start_matches('!').split_once(':').unwrap_or((text, "string"));
        let name = name.trim_start_matches('!');
        properties.insert(name.to_owned(), json!({ "type": kind }));
        Parameter { required: text.starts_with('!'), ..parameter(ParameterLocation::Query, name) }
    });
    let operation = Operation { parameters: parameters.collect(), ..operation("GET", url.path()) };
    let schema = json!({ "type": "object", "properties": properties });
    let arguments = arguments.as_object().unwrap().clone();
    let headers = HeaderMap::new();
    CallFixture { operation, schema, arguments, url, headers, body, redactor: Redactor::default() }
}

impl CallFixture {
    fn link(mut self, text: &str) -> Self {
        self.headers.append(LINK, HeaderValue::from_str(text).unwrap());
        self
    }

    fn page(&self) -> Option<Page> {
        let Self { operation, schema, arguments, url, headers, body, redactor } = self;
        CompletedCall { operation, schema, arguments, url, headers, body, redactor }.page()
    }

    fn next(&self) -> Value {
        self.page().and_then(|page| page.next).map_or(Value::Null, Value::Object)
    }
}

/// Distinct items.
fn items(count: usize) -> Value {
    (0..count).map(|id| json!({ "id": format!("i{id}") })).collect()
}

#[test]
fn a_cursor_goes_into_the_body_of_a_search() {
    let response = json!({ "object": "list", "results": items(2), "next_cursor": "abc", "has_more": true });
    let notion = |arguments: Value| {
        let mut fixture = get("https://api.notion.com/v1/search", &[], arguments, response.clone());
        fixture.operation.method = "POST".to_owned();
        fixture.operation.body = Some(body(
            &["query", "start_cursor", "page_size"],
            vec![("application/json", BodyEncoding::Json)],
        ));
        fixture
    };
    assert_eq!(notion(json!({})).next(), json!({ "body": { "start_cursor": "abc" } }));
    assert_eq!(
        notion(json!({ "body": { "query": "x" } })).next(),
        json!({ "body": { "query": "x", "start_cursor": "abc" } })
    );
    assert_eq!(notion(json!({ "body": { "start_cursor": "abc" } })).next(), json!(null));
}

#[test]
fn only_read_methods_are_paginated() {
    for method in ["PUT", "PATCH", "DELETE", "HEAD"] {
        let mut fixture = get(
            "https://api.example/x",
            &["cursor"],
            json!({}),
            json!({ "items": items(2), "next_cursor": "a" }),
        );
        fixture.operation.method = method.to_owned();
        assert_eq!(fixture.page(), None, "{method}");
    }
    let mut post = get("https://api.example/x", &["page:integer"], json!({}), json!({ "labels": items(2) }));
    post.operation.method = "POST".to_owned();
    assert_eq!(post.next(), json!(null));
}

#[test]
fn link_headers_are_parsed_in_all_spellings() {
    for (header, next) in [
        ("<?page=2>; rel=next", json!(2)),
        ("</things?page=2>;REL=\"prefetch NEXT\"", json!(2)),
        ("<?page=9>; title=\"a, b; rel=\\\"next\\\"\"; rel=last, <?page=2> ; rel = \"next\"", json!(2)),
        ("<?page=9>; rel=last; rel=next", json!(null)),
        ("<https://api.example/things?page=2&other=1>; rel=next", json!(2)),
        ("<http://api.example/things?page=2>; rel=next", json!(2)),
        ("<https://evil.example/things?page=2>; rel=next", json!(null)),
        ("<https://api.example/admin?page=2>; rel=next", json!(null)),
        ("<?page=1>; rel=next", json!(null)),
        ("<?page=2; rel=next", json!(2)),
        ("rel=next", json!(2)),
    ] {
        let fixture =
            get("https://api.example/things?page=1", &["page:integer"], json!({ "page": 1 }), items(2));
        assert_eq!(fixture.link(header).next().get("page").cloned().unwrap_or_default(), next, "{header}");
    }
}

#[test]
fn a_page_that_needs_an_undeclared_parameter_is_unreachable() {
    let graph = get(
        "https://graph.microsoft.com/v1.0/users",
        &["$top:integer"],
        json!({ "$top": 5 }),
        json!({ "@odata.nextLink": "https://graph.microsoft.com/v1.0/users?$top=5&$skiptoken=x", "value": items(5) }),
    );
    let page = graph.page().unwrap();
    assert_eq!(page.next, None);
    assert_eq!(page.beyond.as_deref(), Some("its next page needs `$skiptoken`, which it does not declare"));
    let cursor =
        get("https://api.example/x", &["q"], json!({}), json!({ "items": items(1), "next_cursor": "a" }));
    assert_eq!(
        cursor.page().unwrap().beyond.as_deref(),
        Some("it returns a cursor (`nextcursor`) but has no parameter for one")
    );
}

#[test]
fn response_fields_without_a_parameter_are_ignored() {
    let response = json!({ "items": items(10), "cursor": null, "after": "", "per_page": 10 });
    let counting =
        |parameters: &[&str]| get("https://api.example/x", parameters, json!({}), response.clone());
    assert_eq!(counting(&["page:integer"]).next(), json!({ "page": 2 }));
    assert_eq!(counting(&["page:integer", "cursor"]).next(), json!(null));
    let twitter = json!({ "users": items(2), "next_cursor": 0 });
    assert_eq!(
        get("https://api.example/x", &["cursor"], json!({ "cursor": 7 }), twitter).next(),
        json!(null)
    );
}

#[test]
fn lists_and_required_arguments_stay_and_secrets_are_never_copied() {
    let mut fixture = get(
        "https://api.example/x?key=hunter2!",
        &["!q", "ids:array", "key", "page:integer", "sort"],
        json!({ "q": "a b", "ids": [1, 2], "sort": "up", "page": 1 }),
        items(2),
    )
    .link("<?ids=1&ids=2&key=hunter2!&page=2>; rel=next");
    fixture.redactor = Redactor::new([Secret::new("hunter2!")]);
    assert_eq!(fixture.next(), json!({ "q": "a b", "ids": [1, 2], "page": 2 }));
}

#[test]
fn frozen_arguments_are_not_replaced() {
    let mut fixture =
        get("https://api.example/x", &["page:integer"], json!({}), items(2)).link("<?page=2>; rel=next");
    fixture.operation.frozen.insert("page".to_owned(), json!(1));
    assert_eq!(fixture.next(), json!(null));
}

/// Names that pagination recognises in parameters or responses.
const NAMES: [&str; 20] = [
    "page",
    "offset",
    "limit",
    "cursor",
    "next_cursor",
    "nextPageToken",
    "next",
    "links",
    "meta",
    "paging",
    "has_more",
    "total",
    "total_pages",
    "items",
    "data",
    "id",
    "after",
    "starting_after",
    "next_page",
    "isLast",
];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_u64..4).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
        "\\?(page|cursor|offset)=[0-9]".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(&NAMES[..]), inner), 0..6).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    /// If a service always returns the same response, no arguments are repeated. (Page numbers may grow
    /// forever; whoever walks the list stops at the first response that is repeated.)
    #[test]
    fn the_same_response_never_repeats_arguments(
        response in any_value(),
        names in prop::collection::btree_set(prop::sample::select(&NAMES[..]), 0..5),
        link in prop::option::of("<\\?[a-z_]{1,6}=[0-9]>; rel=next"),
        is_post in any::<bool>(),
    ) {
        let names: Vec<String> = names.iter().map(|name| match *name {
            "page" | "offset" | "limit" => format!("{name}:integer"),
            name => name.to_owned(),
        }).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut fixture = get("https://api.example/things", &names, json!({}), response);
        if is_post {
            fixture.operation.method = "POST".to_owned();
        }
        if let Some(link) = link {
            fixture = fixture.link(&link);
        }
        let mut seen = vec![fixture.arguments.clone()];
        for _ in 0..8 {
            let Some(next) = fixture.page().and_then(|page| page.next) else { break };
            prop_assert!(!seen.contains(&next), "{next:?}");
            let counts = |map: &Map<String, Value>| map.get("page").or(map.get("offset")).and_then(Value::as_u64);
            let is_counted = counts(&next).unwrap_or(0) > counts(&fixture.arguments).unwrap_or(0);
            prop_assert!(is_counted || seen.len() <= 2, "{seen:?}");
            seen.push(next.clone());
            fixture.arguments = next;
        }
    }

    #[test]
    fn any_link_header_is_parsed_without_panic(header in "[<>;,=\"\\\\a-z ?/&]{0,60}", response in any_value()) {
        let fixture = get("https://api.example/things", &["page:integer", "a"], json!({}), response).link(&header);
        fixture.page();
    }
}
