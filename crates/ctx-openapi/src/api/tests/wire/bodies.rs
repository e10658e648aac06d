//! Every kind of request body.

use super::*;
use url::Url;

/// A case: versions, operation, arguments, expected media type and expected body.
type Row = (&'static [Version], &'static str, Value, &'static str, &'static str);

const ALL_VERSIONS: &[Version] = &ALL;
const OPENAPI3: &[Version] = &SINCE_OPENAPI3;

/// Media type and body, with `BOUNDARY` for the multipart boundary and `|` for line breaks.
fn media_type_and_body(request: &RecordedRequest) -> (String, String) {
    let content_type = request.header("content-type").unwrap_or_default();
    let length = request.header("content-length").map(|length| length.parse().unwrap());
    assert_eq!(length, Some(request.body.len()));
    assert_eq!(request.header("transfer-encoding"), None);
    let body = String::from_utf8(request.body.clone()).unwrap();
    match content_type.split_once("; boundary=") {
        Some((kind, boundary)) => (kind.to_owned(), body.replace(boundary, "BOUNDARY").replace("\r\n", "|")),
        None => (content_type.to_owned(), body),
    }
}

async fn check(rows: Vec<Row>) {
    let web = recording_service();
    for version in ALL {
        let catalog = catalog_for(version, &web, |_| ());
        for (versions, operation, arguments, content_type, body) in &rows {
            if versions.contains(&version) {
                let request = sent_request(&catalog, &web, operation, arguments.clone()).await.unwrap();
                let case = format!("{version:?} {operation} {arguments}");
                assert_eq!(
                    media_type_and_body(&request),
                    ((*content_type).to_owned(), (*body).to_owned()),
                    "{case}"
                );
            }
        }
    }
}

#[tokio::test]
async fn json_arrives_as_it_was_given() {
    const JSON: &str = "application/json";
    check(vec![
        (
            ALL_VERSIONS,
            "json_body",
            json!({ "name": "Rex", "tag": "ü" }),
            JSON,
            r#"{"name":"Rex","tag":"ü"}"#,
        ),
        (
            ALL_VERSIONS,
            "json_body",
            json!({ "body": { "name": "Rex", "tag": null } }),
            JSON,
            r#"{"name":"Rex","tag":null}"#,
        ),
        (ALL_VERSIONS, "any_body", json!({ "body": [1, 2.5, "x", null] }), JSON, r#"[1,2.5,"x",null]"#),
        (ALL_VERSIONS, "any_body", json!({ "body": "x" }), JSON, r#""x""#),
        (ALL_VERSIONS, "any_body", json!({ "body": false }), JSON, "false"),
        (ALL_VERSIONS, "any_body", json!({}), "", ""),
        (
            ALL_VERSIONS,
            "patch_body",
            json!({ "body": { "name": null } }),
            "application/merge-patch+json",
            r#"{"name":null}"#,
        ),
        (ALL_VERSIONS, "choice_body", json!({ "name": "Rex" }), JSON, r#"{"name":"Rex"}"#),
    ])
    .await;
}

#[tokio::test]
async fn read_only_fields_are_not_required() {
    let web = recording_service();
    for version in ALL {
        let description = read(&text(version, &web));
        let post_operation = description.operations.iter().find(|one| one.name == "json_body").unwrap();
        let schema = description.input_schema(post_operation);
        assert_eq!(schema["$defs"]["Pet"]["required"], json!(["name"]), "{version:?}");
        assert_eq!(schema["$defs"]["Pet"]["properties"]["id"], Value::Null);
        let catalog = catalog_of(description, |_| ());
        let request =
            sent_request(&catalog, &web, "json_body", json!({ "body": { "name": "Rex" } })).await.unwrap();
        assert_eq!(request.json(), json!({ "name": "Rex" }), "{version:?}");
    }
}

#[tokio::test]
async fn forms_arrive_field_by_field() {
    const FORM: &str = "application/x-www-form-urlencoded";
    let lists = json!({ "body": {
        "name": "a b&c=ü+", "age": 3, "csv": ["a", "b,c"], "pipes": ["a", "b"], "multi": ["a", "b"],
    } });
    let more = json!({ "body": {
        "name": "", "deep": { "a": { "b": 1 }, "c": [2] }, "about": { "a": 1 }, "link": "a/b?c=d&e", "new": [1, 2],
    } });
    check(vec![
        (
            ALL_VERSIONS,
            "form_body",
            lists,
            FORM,
            "name=a%20b%26c%3D%C3%BC%2B&age=3&csv=a,b%2Cc&pipes=a%7Cb&multi=a&multi=b",
        ),
        (ALL_VERSIONS, "form_body", json!({ "name": "Rex" }), FORM, "name=Rex"),
        (
            OPENAPI3,
            "form_body",
            more,
            FORM,
            "name=&deep%5Ba%5D%5Bb%5D=1&deep%5Bc%5D%5B%5D=2&about=%7B%22a%22%3A1%7D&link=a/b?c=d%26e&new=1&new=2",
        ),
    ])
    .await;
}

#[tokio::test]
async fn parts_arrive_with_names_and_kinds() {
    const PARTS: &str = "multipart/form-data";
    let file = json!({ "base64": "aGk=", "name": "a \"ü\".txt", "content_type": "text/plain" });
    let common = json!({ "body": {
        "note": "a\r\nb", "age": 3, "file": file, "csv": ["a", "b"], "multi": ["a", "b"],
    } });
    let more = json!({ "body": {
        "file": "plain", "files": ["one", { "base64": "dHdv", "filename": "2" }],
        "image": { "base64": "aW1hZ2U=", "name": "i.png" }, "about": { "a": [1] }, "table": "a,b",
    } });
    check(vec![
        (
            ALL_VERSIONS,
            "parts_body",
            common,
            PARTS,
            "--BOUNDARY|Content-Disposition: form-data; name=\"note\"||a|b|\
             --BOUNDARY|Content-Disposition: form-data; name=\"age\"||3|\
             --BOUNDARY|Content-Disposition: form-data; name=\"file\"; filename=\"a %22ü%22.txt\"|\
             Content-Type: text/plain||hi|\
             --BOUNDARY|Content-Disposition: form-data; name=\"csv\"||a,b|\
             --BOUNDARY|Content-Disposition: form-data; name=\"multi\"||a|\
             --BOUNDARY|Content-Disposition: form-data; name=\"multi\"||b|\
             --BOUNDARY--|",
        ),
        (
            OPENAPI3,
            "parts_body",
            more,
            PARTS,
            "--BOUNDARY|Content-Disposition: form-data; name=\"file\"; filename=\"file\"|\
             Content-Type: application/octet-stream||plain|\
             --BOUNDARY|Content-Disposition: form-data; name=\"files\"; filename=\"files\"|\
             Content-Type: application/octet-stream||one|\
             --BOUNDARY|Content-Disposition: form-data; name=\"files\"; filename=\"2\"|\
             Content-Type: application/octet-stream||two|\
             --BOUNDARY|Content-Disposition: form-data; name=\"image\"; filename=\"i.png\"|\
             Content-Type: image/png||image|\
             --BOUNDARY|Content-Disposition: form-data; name=\"about\"|Content-Type: application/json||{\"a\":[1]}|\
             --BOUNDARY|Content-Disposition: form-data; name=\"table\"|Content-Type: text/csv||a,b|\
             --BOUNDARY--|",
        ),
    ])
    .await;
}

#[tokio::test]
async fn text_and_bytes_arrive_as_they_are() {
    let file = json!({ "base64": "aGk=", "content_type": "image/gif" });
    check(vec![
        (ALL_VERSIONS, "text_body", json!({ "body": "hé\n{}" }), "text/plain", "hé\n{}"),
        (ALL_VERSIONS, "xml_body", json!({ "body": "<a/>" }), "application/xml", "<a/>"),
        (ALL_VERSIONS, "bytes_body", json!({ "body": "text" }), "application/octet-stream", "text"),
        (ALL_VERSIONS, "bytes_body", json!({ "body": file }), "image/gif", "hi"),
        (ALL_VERSIONS, "image_body", json!({ "body": file }), "image/png", "hi"),
    ])
    .await;
}

#[tokio::test]
async fn binary_bodies_arrive_unchanged() {
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let web = MockWebServer::serve(|request| {
        let mut reply = b"HTTP/1.1 200 x\r\nContent-Type: image/png\r\nConnection: close\r\n\r\n".to_vec();
        reply.extend(&request.body);
        reply
    });
    for version in ALL {
        let catalog = catalog_for(version, &web, |_| ());
        let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &bytes);
        let arguments = json!({ "body": { "base64": encoded } });
        let response = call_named(&catalog, "bytes_body", arguments).await.unwrap().value;
        assert!(web.requests().pop().unwrap().body == bytes);
        // A binary response is a file that can be sent on, as a body and as a part.
        call_named(&catalog, "image_body", json!({ "body": response })).await.unwrap();
        assert!(web.requests().pop().unwrap().body == bytes);
        call_named(&catalog, "parts_body", json!({ "file": response })).await.unwrap();
        let part = web.requests().pop().unwrap().body;
        let head = b"name=\"file\"; filename=\"file\"\r\nContent-Type: image/png\r\n\r\n";
        let start = part.windows(head.len()).position(|window| window == head).unwrap() + head.len();
        assert!(part[start..].starts_with(&bytes));
    }
}

#[tokio::test]
async fn the_schema_of_a_file_admits_what_can_be_sent_and_nothing_else() {
    let web = recording_service();
    for version in ALL {
        let description = read(&text(version, &web));
        let operations = description.operations.clone();
        let base = Url::parse("https://api.example").unwrap();
        for (operation, field) in [("bytes_body", None), ("parts_body", Some("file"))] {
            let operation = operations.iter().find(|one| one.name == operation).unwrap();
            let schema = ctx_core::ArgumentSchema::compile(description.input_schema(operation)).unwrap();
            for file in [
                json!("text"),
                json!({ "base64": "" }),
                json!({ "base64": "aGk", "name": "a", "content_type": "a/b", "bytes": 2, "kept": { "id": 1 } }),
                json!({ "base64": "aGk", "filename": "a" }),
                json!({}),
                json!({ "name": "a" }),
                json!({ "text": "a" }),
                json!({ "base64": 1 }),
                json!({ "base64": "", "name": 1 }),
                json!({ "base64": "", "content_type": [] }),
                json!(1),
                json!(true),
                json!([]),
            ] {
                let arguments = match field {
                    Some(field) => json!({ "body": { field: file } }),
                    None => json!({ "body": file }),
                };
                let is_sent =
                    operation_request(operation, arguments.as_object().unwrap(), &base, None).is_ok();
                let is_admitted = schema.prepare(arguments.clone()).is_ok();
                // A list becomes one part per item, and no part if it is empty.
                let is_list = field.is_some() && file.is_array();
                assert_eq!(is_sent && !is_list, is_admitted, "{version:?} {arguments}");
            }
        }
    }
}
