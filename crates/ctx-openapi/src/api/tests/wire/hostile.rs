//! Malicious values and descriptions.

use super::*;

#[tokio::test]
async fn a_value_stays_in_its_path_segment() {
    let web = recording_service();
    for version in ALL {
        let catalog = catalog_for(version, &web, |_| ());
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
            let request = sent_request(&catalog, &web, "path_text", json!({ "color": value })).await.unwrap();
            assert_eq!(request.target(), format!("GET /v1/path/text/{expected}/end"), "{version:?} {value}");
        }
        for value in ["", ".", ".."] {
            let error =
                sent_request(&catalog, &web, "path_text", json!({ "color": value })).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadRequest, "{version:?} {value}");
            assert!(error.message().starts_with("`color` is a part of the path"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_value_stays_in_its_header_and_its_cookie() {
    let web = recording_service();
    for version in ALL {
        let catalog = catalog_for(version, &web, |_| ());
        for value in ["a\r\nX-Admin: 1", "a\nX-Admin: 1", "a\rb", "\0"] {
            let error =
                sent_request(&catalog, &web, "header_text", json!({ "X-Color": value })).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadRequest, "{version:?} {value:?}");
            if version != Swagger2 {
                let fields = json!({ "color": { "k\r\nX-Admin: 1; admin": value, "b; c": "d" } });
                let request = sent_request(&catalog, &web, "cookie_form_exploded", fields).await.unwrap();
                assert!(!request.head.contains("\nX-Admin"), "{}", request.head);
                assert_eq!(request.header("cookie").unwrap().matches(';').count(), 1, "{}", request.head);
            }
        }
    }
}

#[tokio::test]
async fn no_name_of_a_description_injects_a_header() {
    let web = recording_service();
    let evil = "a\r\nX-Admin: 1\r\nb";
    let location =
        |location: &str| json!({ "name": format!("{location}{evil}"), "in": location, "schema": {} });
    let description = json!({
        "openapi": "3.0.0",
        "servers": [{ "url": web.url("/v1") }],
        "paths": {
            "/names": { "post": {
                "operationId": "names",
                "parameters": [location("query"), location("cookie"), location("header")],
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
    let catalog = catalog_of(read(&description.to_string()), |_| ());
    let named = json!({ format!("query{evil}"): "q", format!("cookie{evil}"): "c", "body": { evil: "x" } });
    let request = sent_request(&catalog, &web, "names", named.clone()).await.unwrap();
    let lines = format!("{}\n{}\n{}", request.line, request.head, String::from_utf8_lossy(&request.body));
    assert!(!lines.contains("\nX-Admin"), "{lines}");
    assert!(request.target().ends_with("?querya%0D%0AX-Admin%3A%201%0D%0Ab=q"), "{lines}");
    // A header with this name cannot be sent.
    let mut with_header = named;
    with_header[format!("header{evil}")] = json!("h");
    assert!(sent_request(&catalog, &web, "names", with_header).await.is_err());
    let request = sent_request(&catalog, &web, "kinds", json!({ "body": "x" })).await.unwrap();
    assert!(!request.head.contains("\nX-Admin"), "{}", request.head);
    assert!(sent_request(&catalog, &web, "part", json!({ "body": { "x": "x" } })).await.is_err());
}
