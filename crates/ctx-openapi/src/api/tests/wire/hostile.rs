//! Malicious values and descriptions.

use super::*;

#[tokio::test]
async fn a_value_stays_in_its_part_of_the_path() {
    let web = silent();
    for version in ALL {
        let catalog = functions(version, &web, |_| ());
        for (value, expected) in [
            ("../../admin?x#y", "..%2F..%2Fadmin%3Fx%23y"),
            ("..%2f..%2fadmin", "..%252f..%252fadmin"),
            ("%2e%2e", "%252e%252e"),
            ("..\\admin", "..%5Cadmin"),
            ("...", "..."),
            ("a b\r\nX-Admin: 1", "a%20b%0D%0AX-Admin%3A%201"),
            ("//evil.example/", "%2F%2Fevil.example%2F"),
            ("@evil.example", "%40evil.example"),
            ("{color}", "%7Bcolor%7D"),
        ] {
            let asked = arrived(&catalog, &web, "path_text", json!({ "color": value })).await.unwrap();
            assert_eq!(asked.target(), format!("GET /v1/path/text/{expected}/end"), "{version:?} {value}");
        }
        for value in ["", ".", ".."] {
            let error = arrived(&catalog, &web, "path_text", json!({ "color": value })).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadRequest, "{version:?} {value}");
            assert!(error.message().starts_with("`color` is a part of the path"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_value_stays_in_its_header_and_its_cookie() {
    let web = silent();
    for version in ALL {
        let catalog = functions(version, &web, |_| ());
        for value in ["a\r\nX-Admin: 1", "a\nX-Admin: 1", "a\rb", "\0"] {
            let error =
                arrived(&catalog, &web, "header_text", json!({ "X-Color": value })).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadRequest, "{version:?} {value:?}");
            if version != Second {
                let fields = json!({ "color": { "k\r\nX-Admin: 1; admin": value, "b; c": "d" } });
                let asked = arrived(&catalog, &web, "cookie_form_exploded", fields).await.unwrap();
                assert!(!asked.head.contains("\nX-Admin"), "{}", asked.head);
                assert_eq!(asked.header("cookie").unwrap().matches(';').count(), 1, "{}", asked.head);
            }
        }
    }
}

#[tokio::test]
async fn no_name_of_a_description_becomes_a_line_of_its_own() {
    let web = silent();
    let evil = "a\r\nX-Admin: 1\r\nb";
    let place = |place: &str| json!({ "name": format!("{place}{evil}"), "in": place, "schema": {} });
    let description = json!({
        "openapi": "3.0.0",
        "servers": [{ "url": web.url("/v1") }],
        "paths": {
            "/names": { "post": {
                "operationId": "names",
                "parameters": [place("query"), place("cookie"), place("header")],
                "requestBody": { "content": { "multipart/form-data": {
                    "schema": { "properties": { evil: { "type": "string" } } },
                    "encoding": { evil: { "contentType": "text/plain" } },
                } } },
            } },
            "/kinds": { "post": {
                "operationId": "kinds",
                "requestBody": { "content": { format!("application/x{evil}"): { "schema": {} } } },
                "responses": { "200": { "content": { format!("text/x{evil}"): {} } } },
            } },
            "/part": { "post": {
                "operationId": "part",
                "requestBody": { "content": { "multipart/form-data": {
                    "schema": { "properties": { "x": { "type": "string" } } },
                    "encoding": { "x": { "contentType": format!("text/{evil}") } },
                } } },
            } },
        },
    });
    let catalog = provided(read(&description.to_string()), |_| ());
    let named = json!({ format!("query{evil}"): "q", format!("cookie{evil}"): "c", "body": { evil: "x" } });
    let asked = arrived(&catalog, &web, "names", named.clone()).await.unwrap();
    let lines = format!("{}\n{}\n{}", asked.line, asked.head, String::from_utf8_lossy(&asked.body));
    assert!(!lines.contains("\nX-Admin"), "{lines}");
    assert!(asked.target().ends_with("?querya%0D%0AX-Admin%3A%201%0D%0Ab=q"), "{lines}");
    // A header with this name cannot be sent.
    let mut with_header = named;
    with_header[format!("header{evil}")] = json!("h");
    assert!(arrived(&catalog, &web, "names", with_header).await.is_err());
    let asked = arrived(&catalog, &web, "kinds", json!({ "body": "x" })).await.unwrap();
    assert!(!asked.head.contains("\nX-Admin"), "{}", asked.head);
    assert!(arrived(&catalog, &web, "part", json!({ "body": { "x": "x" } })).await.is_err());
}
