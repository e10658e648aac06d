//! Pages as services really give them, and that no answer leads in a circle.

use super::*;
use crate::operation::{MediaKind, Parameter, Place};
use crate::request::tests::{body, operation, parameter};
use ctx_core::Secret;
use proptest::prelude::*;
use reqwest::header::{HeaderValue, LINK};
use serde_json::json;

/// A call to a service and its answer.
struct Played {
    operation: Operation,
    schema: Value,
    arguments: Map<String, Value>,
    url: Url,
    headers: HeaderMap,
    body: Value,
    redactor: Redactor,
}

/// A call of `GET url` with parameters like `page:integer`, `cursor` or `!needed`.
fn get(url: &str, parameters: &[&str], arguments: Value, body: Value) -> Played {
    let url = Url::parse(url).unwrap();
    let mut properties = Map::new();
    let parameters = parameters.iter().map(|text| {
        let (name, kind) = text.trim_start_matches('!').split_once(':').unwrap_or((text, "string"));
        let name = name.trim_start_matches('!');
        properties.insert(name.to_owned(), json!({ "type": kind }));
        Parameter { required: text.starts_with('!'), ..parameter(Place::Query, name) }
    });
    let operation = Operation { parameters: parameters.collect(), ..operation("GET", url.path()) };
    let schema = json!({ "type": "object", "properties": properties });
    let arguments = arguments.as_object().unwrap().clone();
    let headers = HeaderMap::new();
    Played { operation, schema, arguments, url, headers, body, redactor: Redactor::default() }
}

impl Played {
    fn link(mut self, text: &str) -> Self {
        self.headers.append(LINK, HeaderValue::from_str(text).unwrap());
        self
    }

    fn page(&self) -> Option<Page> {
        let Self { operation, schema, arguments, url, headers, body, redactor } = self;
        Exchange { operation, schema, arguments, url, headers, body, redactor }.page()
    }

    fn next(&self) -> Value {
        self.page().and_then(|page| page.next).map_or(Value::Null, Value::Object)
    }
}

/// Items that differ.
fn items(count: usize) -> Value {
    (0..count).map(|id| json!({ "id": format!("i{id}") })).collect()
}

/// Each with the path to its items, and the arguments of the next page; null where there is none.
#[test]
fn the_next_page_is_found_as_the_service_tells_it() {
    let github = "https://api.github.com/repos/octo/hello/issues";
    let github_link = "<https://api.github.com/repositories/1300192/issues?per_page=2&page=2>; rel=\"next\", \
         <https://api.github.com/repositories/1300192/issues?per_page=2&page=9>; rel=\"last\"";
    let github_end = "<https://api.github.com/repositories/1300192/issues?page=1>; rel=\"first\"";
    let github_parameters = ["per_page:integer", "page:integer", "state", "labels"];
    let shopify = "https://shop.example/admin/api/products.json";
    let slack = "https://slack.com/api/conversations.list";
    let stripe = "https://api.stripe.com/v1/charges";
    let google = "https://www.googleapis.com/drive/v3/files";
    let graph = "https://graph.microsoft.com/v1.0/users";
    let jira = "https://x.atlassian.net/rest/api/3/search";
    let ocean = "https://api.digitalocean.com/v2/droplets";
    let cases = [
        (
            "GitHub names the list by its id in links",
            get(github, &github_parameters, json!({ "per_page": 2, "state": "open" }), items(2)).link(github_link),
            json!([]),
            json!({ "per_page": 2, "page": 2 }),
        ),
        (
            "GitHub's last page has links, but none to a next",
            get(github, &github_parameters, json!({ "per_page": 2, "page": 9 }), items(2)).link(github_end),
            json!([]),
            json!(null),
        ),
        (
            "GitHub's only page has no links and is not full",
            get(github, &github_parameters, json!({ "per_page": 30 }), items(7)),
            json!([]),
            json!(null),
        ),
        (
            "GitLab's keyset pages",
            get(
                "https://gitlab.com/api/v4/projects",
                &["pagination", "per_page:integer", "order_by", "id_after:integer"],
                json!({ "pagination": "keyset", "per_page": 2, "order_by": "id" }),
                items(2),
            )
            .link("<https://gitlab.com/api/v4/projects?id_after=42&order_by=id&pagination=keyset&per_page=2>; rel=next"),
            json!([]),
            json!({ "pagination": "keyset", "per_page": 2, "order_by": "id", "id_after": 42 }),
        ),
        (
            "Shopify takes nothing but the cursor and the limit",
            get(
                shopify,
                &["limit:integer", "page_info", "status"],
                json!({ "limit": 50, "status": "active" }),
                json!({ "products": items(50) }),
            )
            .link(
                "<https://shop.example/admin/api/products.json?limit=50&page_info=prev>; rel=\"previous\", \
                 <https://shop.example/admin/api/products.json?limit=50&page_info=abc>; rel=\"next\"",
            ),
            json!(["products"]),
            json!({ "limit": 50, "page_info": "abc" }),
        ),
        (
            "Slack",
            get(
                slack,
                &["token", "cursor", "limit:integer"],
                json!({ "limit": 2 }),
                json!({ "ok": true, "channels": items(2), "response_metadata": { "next_cursor": "dGVhbQ==" } }),
            ),
            json!(["channels"]),
            json!({ "limit": 2, "cursor": "dGVhbQ==" }),
        ),
        (
            "Slack's last page has an empty cursor",
            get(
                slack,
                &["token", "cursor", "limit:integer"],
                json!({ "limit": 2, "cursor": "dGVhbQ==" }),
                json!({ "ok": true, "channels": items(2), "response_metadata": { "next_cursor": "" } }),
            ),
            json!(["channels"]),
            json!(null),
        ),
        (
            "Stripe goes on after the last item",
            get(
                stripe,
                &["limit:integer", "starting_after", "ending_before"],
                json!({ "limit": 3 }),
                json!({ "object": "list", "url": "/v1/charges", "has_more": true, "data": items(3) }),
            ),
            json!(["data"]),
            json!({ "limit": 3, "starting_after": "i2" }),
        ),
        (
            "Stripe's last page says that there is no more",
            get(stripe, &["starting_after"], json!({}), json!({ "has_more": false, "data": items(3) })),
            json!(["data"]),
            json!(null),
        ),
        (
            "Google",
            get(
                google,
                &["pageToken", "pageSize:integer", "q"],
                json!({ "q": "x" }),
                json!({ "kind": "drive#fileList", "nextPageToken": "~!!~", "files": items(2) }),
            ),
            json!(["files"]),
            json!({ "q": "x", "pageToken": "~!!~" }),
        ),
        (
            "Google may leave out an empty list, and go on",
            get(google, &["pageToken"], json!({}), json!({ "nextPageToken": "b" })),
            json!(null),
            json!({ "pageToken": "b" }),
        ),
        (
            "Microsoft Graph",
            get(
                graph,
                &["$top:integer", "$skiptoken", "$filter"],
                json!({ "$top": 5 }),
                json!({
                    "@odata.nextLink": "https://graph.microsoft.com/v1.0/users?$top=5&$skiptoken=RFNwdA",
                    "value": items(5),
                }),
            ),
            json!(["value"]),
            json!({ "$top": 5, "$skiptoken": "RFNwdA" }),
        ),
        (
            "Jira counts items",
            get(
                jira,
                &["jql", "startAt:integer", "maxResults:integer"],
                json!({ "jql": "x", "startAt": 50, "maxResults": 50 }),
                json!({ "startAt": 50, "maxResults": 50, "total": 120, "issues": items(50), "warningMessages": [] }),
            ),
            json!(["issues"]),
            json!({ "jql": "x", "startAt": 100, "maxResults": 50 }),
        ),
        (
            "Jira's agile boards",
            get(
                "https://x.atlassian.net/rest/agile/1.0/board",
                &["startAt:integer", "maxResults:integer"],
                json!({}),
                json!({ "startAt": 0, "maxResults": 2, "isLast": false, "values": items(2) }),
            ),
            json!(["values"]),
            json!({ "startAt": 2 }),
        ),
        (
            "Jira's last issues",
            get(
                jira,
                &["startAt:integer", "maxResults:integer"],
                json!({ "startAt": 100 }),
                json!({ "startAt": 100, "maxResults": 50, "total": 120, "issues": items(20) }),
            ),
            json!(["issues"]),
            json!(null),
        ),
        (
            "DigitalOcean",
            get(
                ocean,
                &["page:integer", "per_page:integer"],
                json!({ "per_page": 1 }),
                json!({
                    "droplets": items(1),
                    "links": { "pages": {
                        "next": "https://api.digitalocean.com/v2/droplets?page=2&per_page=1",
                        "last": "https://api.digitalocean.com/v2/droplets?page=3&per_page=1",
                    } },
                    "meta": { "total": 3 },
                }),
            ),
            json!(["droplets"]),
            json!({ "per_page": 1, "page": 2 }),
        ),
        (
            "DigitalOcean's last page",
            get(
                ocean,
                &["page:integer", "per_page:integer"],
                json!({ "page": 3, "per_page": 1 }),
                json!({ "droplets": items(1), "links": { "pages": {} }, "meta": { "total": 3 } }),
            ),
            json!(["droplets"]),
            json!(null),
        ),
        (
            "HubSpot",
            get(
                "https://api.hubapi.com/crm/v3/objects/contacts",
                &["after", "limit:integer"],
                json!({}),
                json!({ "results": items(2), "paging": { "next": { "after": "NTI1", "link": "?after=NTI1" } } }),
            ),
            json!(["results"]),
            json!({ "after": "NTI1" }),
        ),
        (
            "PayPal",
            get(
                "https://api.paypal.com/v1/things",
                &["page:integer", "page_size:integer"],
                json!({ "page": 1 }),
                json!({ "items": items(2), "links": [
                    { "rel": "self", "href": "https://api.paypal.com/v1/things?page=1" },
                    { "rel": "next", "href": "https://api.paypal.com/v1/things?page=2" },
                ] }),
            ),
            json!(["items"]),
            json!({ "page": 2 }),
        ),
        (
            "Django counts pages and says null at the end",
            get(
                "https://api.example/things/",
                &["page:integer"],
                json!({ "page": 4 }),
                json!({ "count": 40, "next": null, "previous": "https://api.example/things/?page=3", "results": items(10) }),
            ),
            json!(["results"]),
            json!(null),
        ),
        (
            "Spring begins at zero",
            get(
                "https://api.example/things",
                &["page:integer", "size:integer"],
                json!({}),
                json!({ "content": items(20), "number": 0, "size": 20, "totalPages": 3, "last": false }),
            ),
            json!(["content"]),
            json!({ "page": 1 }),
        ),
        (
            "a service with a bound of its own gives less than was asked for",
            get(github, &github_parameters, json!({ "per_page": 1000, "page": 2 }), items(100)),
            json!([]),
            json!({ "per_page": 1000, "page": 3 }),
        ),
        (
            "the number of the next page",
            get(
                "https://api.example/things",
                &["page:integer"],
                json!({}),
                json!({ "data": items(2), "meta": { "pagination": { "next_page": 2, "total_pages": 9 } } }),
            ),
            json!(["data"]),
            json!({ "page": 2 }),
        ),
        ("no list at all", get("https://api.example/me", &["verbose"], json!({}), json!({ "id": 1 })), json!(null), json!(null)),
    ];
    for (service, played, items, next) in cases {
        let page = played.page();
        let found = page.as_ref().and_then(|page| page.items.clone());
        assert_eq!(json!(found), items, "{service}");
        assert_eq!(played.next(), next, "{service}");
        assert_eq!(page.and_then(|page| page.beyond), None, "{service}");
    }
}

#[test]
fn a_cursor_goes_into_the_body_of_a_search() {
    let answer = json!({ "object": "list", "results": items(2), "next_cursor": "abc", "has_more": true });
    let notion = |arguments: Value| {
        let mut played = get("https://api.notion.com/v1/search", &[], arguments, answer.clone());
        played.operation.method = "POST".to_owned();
        played.operation.body =
            Some(body(&["query", "start_cursor", "page_size"], vec![("application/json", MediaKind::Json)]));
        played
    };
    assert_eq!(notion(json!({ "query": "x" })).next(), json!({ "query": "x", "start_cursor": "abc" }));
    assert_eq!(
        notion(json!({ "body": { "query": "x" } })).next(),
        json!({ "body": { "query": "x", "start_cursor": "abc" } })
    );
    assert_eq!(notion(json!({ "start_cursor": "abc" })).next(), json!(null));
}

#[test]
fn what_changes_something_is_not_called_again() {
    for method in ["PUT", "PATCH", "DELETE", "HEAD"] {
        let mut played = get(
            "https://api.example/x",
            &["cursor"],
            json!({}),
            json!({ "items": items(2), "next_cursor": "a" }),
        );
        played.operation.method = method.to_owned();
        assert_eq!(played.page(), None, "{method}");
    }
    let mut adding =
        get("https://api.example/x", &["page:integer"], json!({}), json!({ "labels": items(2) }));
    adding.operation.method = "POST".to_owned();
    assert_eq!(adding.next(), json!(null));
}

#[test]
fn links_are_read_as_they_may_be_written() {
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
        let played =
            get("https://api.example/things?page=1", &["page:integer"], json!({ "page": 1 }), items(2));
        assert_eq!(played.link(header).next().get("page").cloned().unwrap_or_default(), next, "{header}");
    }
}

#[test]
fn what_the_operation_does_not_take_is_told_to_be_beyond_reach() {
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
        Some("it gives a cursor (`nextcursor`) but takes none")
    );
}

#[test]
fn lists_and_what_is_needed_stay_and_secrets_are_never_taken() {
    let mut played = get(
        "https://api.example/x?key=hunter2!",
        &["!q", "ids:array", "key", "page:integer", "sort"],
        json!({ "q": "a b", "ids": [1, 2], "sort": "up", "page": 1 }),
        items(2),
    )
    .link("<?ids=1&ids=2&key=hunter2!&page=2>; rel=next");
    played.redactor = Redactor::new([Secret::new("hunter2!")]);
    assert_eq!(played.next(), json!({ "q": "a b", "ids": [1, 2], "page": 2 }));
}

#[test]
fn frozen_arguments_are_not_replaced() {
    let mut played =
        get("https://api.example/x", &["page:integer"], json!({}), items(2)).link("<?page=2>; rel=next");
    played.operation.frozen.insert("page".to_owned(), json!(1));
    assert_eq!(played.next(), json!(null));
}

/// Names that mean something, here or there.
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
    /// Wherever a service always answers the same, no arguments come twice. (Numbers may go up for ever; whoever
    /// walks the list ends at the first answer that he has had.)
    #[test]
    fn no_answer_leads_in_a_circle(
        answer in any_value(),
        names in prop::collection::btree_set(prop::sample::select(&NAMES[..]), 0..5),
        link in prop::option::of("<\\?[a-z_]{1,6}=[0-9]>; rel=next"),
        is_post in any::<bool>(),
    ) {
        let names: Vec<String> = names.iter().map(|name| match *name {
            "page" | "offset" | "limit" => format!("{name}:integer"),
            name => name.to_owned(),
        }).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut played = get("https://api.example/things", &names, json!({}), answer);
        if is_post {
            played.operation.method = "POST".to_owned();
        }
        if let Some(link) = link {
            played = played.link(&link);
        }
        let mut seen = vec![played.arguments.clone()];
        for _ in 0..8 {
            let Some(next) = played.page().and_then(|page| page.next) else { break };
            prop_assert!(!seen.contains(&next), "{next:?}");
            let counts = |map: &Map<String, Value>| map.get("page").or(map.get("offset")).and_then(Value::as_u64);
            let is_counted = counts(&next).unwrap_or(0) > counts(&played.arguments).unwrap_or(0);
            prop_assert!(is_counted || seen.len() <= 2, "{seen:?}");
            seen.push(next.clone());
            played.arguments = next;
        }
    }

    #[test]
    fn any_header_is_read(header in "[<>;,=\"\\\\a-z ?/&]{0,60}", answer in any_value()) {
        let played = get("https://api.example/things", &["page:integer", "a"], json!({}), answer).link(&header);
        played.page();
    }
}
