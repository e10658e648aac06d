//! Pagination of real services.

use super::{get, items};
use serde_json::json;

/// Each case has the path to its items and the arguments of the next page, or null.
#[test]
fn the_next_page_of_real_services_is_found() {
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
    for (service, fixture, items, next) in cases {
        let page = fixture.page();
        let found = page.as_ref().and_then(|page| page.items.clone());
        assert_eq!(json!(found), items, "{service}");
        assert_eq!(fixture.next(), next, "{service}");
        assert_eq!(page.and_then(|page| page.beyond), None, "{service}");
    }
}
