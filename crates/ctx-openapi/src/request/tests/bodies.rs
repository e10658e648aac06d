//! Encoding of request bodies.

use super::*;
use crate::operation::PartEncoding;
use std::collections::BTreeMap;

/// The media type and the text of a request body.
pub(super) fn encoded_body(body: Body, arguments: Value) -> Result<(String, String), RequestError> {
    let request = build(&Operation { body: Some(body), ..operation("POST", "/pets") }, arguments)?;
    let content_type = request.headers[CONTENT_TYPE].to_str().unwrap().to_owned();
    Ok((content_type, String::from_utf8(request.body.unwrap().to_vec()).unwrap()))
}

#[test]
fn a_body_is_its_argument() {
    let json_body = || body(&["name", "age"], vec![("application/json", BodyEncoding::Json)]);
    for (arguments, expected) in [
        (json!({ "body": { "name": "Rex", "age": null } }), r#"{"name":"Rex","age":null}"#),
        (json!({ "body": { "name": "Rex" }, "name": "Tom" }), r#"{"name":"Rex"}"#),
        (json!({ "body": [1, "a"] }), r#"[1,"a"]"#),
        (json!({ "body": "text" }), r#""text""#),
        (json!({ "name": null }), "{}"),
    ] {
        let (content_type, text) = encoded_body(json_body(), arguments).unwrap();
        assert_eq!((content_type.as_str(), text.as_str()), ("application/json", expected));
    }
    let optional = Body { required: false, ..json_body() };
    let request =
        build(&Operation { body: Some(optional), ..operation("POST", "/pets") }, json!({})).unwrap();
    assert!(request.body.is_none() && !request.headers.contains_key(CONTENT_TYPE));
}

#[test]
fn the_first_fitting_media_type_is_sent() {
    let both = || {
        body(
            &[],
            vec![
                ("application/x-www-form-urlencoded", BodyEncoding::Form(BTreeMap::new())),
                ("text/plain; charset=utf-8", BodyEncoding::Text),
                ("application/merge-patch+json", BodyEncoding::Json),
            ],
        )
    };
    for (value, content_type, text) in [
        (json!({ "a": 1 }), "application/x-www-form-urlencoded", "a=1"),
        (json!("hé"), "text/plain; charset=utf-8", "hé"),
        (json!([1]), "application/merge-patch+json", "[1]"),
    ] {
        let body = encoded_body(both(), json!({ "body": value })).unwrap();
        assert_eq!((body.0.as_str(), body.1.as_str()), (content_type, text));
    }
    let only_form = body(&[], vec![("multipart/form-data", BodyEncoding::Multipart(BTreeMap::new()))]);
    let error = encoded_body(only_form, json!({ "body": "text" })).unwrap_err();
    assert_eq!(error.to_string(), "`body` cannot be sent as multipart/form-data");
}

#[test]
fn a_form_is_encoded_field_by_field() {
    let deep = Format::Style { style: ParameterStyle::DeepObject, explode: true, allow_reserved: false };
    let comma = Format::Style { style: ParameterStyle::Form, explode: false, allow_reserved: false };
    let parts = BTreeMap::from([
        ("deep".to_owned(), PartEncoding { format: Some(deep), ..PartEncoding::default() }),
        ("comma".to_owned(), PartEncoding { format: Some(comma), ..PartEncoding::default() }),
        (
            "json".to_owned(),
            PartEncoding { content_type: Some("application/json".to_owned()), ..PartEncoding::default() },
        ),
    ]);
    let form = body(&[], vec![("application/x-www-form-urlencoded", BodyEncoding::Form(parts))]);
    let value = json!({
        "plain": "a b&c=d+é", "list": [1, 2], "object": { "a": 1 }, "deep": { "a": { "b": 1 } },
        "comma": [1, 2], "json": [1, 2], "none": null, "yes": true,
    });
    let (_, text) = encoded_body(form, json!({ "body": value })).unwrap();
    assert_eq!(
        text,
        "plain=a%20b%26c%3Dd%2B%C3%A9&list=1&list=2&object=%7B%22a%22%3A1%7D&deep%5Ba%5D%5Bb%5D=1&comma=1,2\
         &json=%5B1%2C2%5D&yes=true"
    );
}

#[test]
fn bytes_are_sent_as_they_are() {
    let binary = |content_type| body(&[], vec![(content_type, BodyEncoding::Binary)]);
    for (content_type, value, expected) in [
        ("image/png", json!("text"), "image/png"),
        ("image/png", json!({ "base64": "dGV4dA==", "content_type": "image/gif" }), "image/png"),
        ("image/*", json!({ "base64": "dGV4dA", "content_type": "image/gif" }), "image/gif"),
        ("*/*", json!({ "base64": "dGV4dA" }), "application/octet-stream"),
    ] {
        assert_eq!(
            encoded_body(binary(content_type), json!({ "body": value })).unwrap(),
            (expected.to_owned(), "text".to_owned())
        );
    }
    let error = encoded_body(binary("image/png"), json!({ "body": { "base64": "!" } })).unwrap_err();
    assert_eq!(error.to_string(), "`body` has an invalid `base64`");
    let injected = json!({ "body": { "base64": "", "content_type": "a/b\r\nX-Admin: 1" } });
    assert!(encoded_body(binary("*/*"), injected).is_err());
}

/// The parts of a body as a server reads them: head and content.
pub(super) fn parts(content_type: &str, body: &str) -> Vec<(String, String)> {
    let boundary = content_type.strip_prefix("multipart/form-data; boundary=").unwrap();
    let body = body.strip_suffix(&format!("--{boundary}--\r\n")).unwrap();
    let delimiter = format!("--{boundary}\r\n");
    let parts = body.split(&delimiter).skip(1).map(|part| {
        let (head, content) = part.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), content.strip_suffix("\r\n").unwrap().to_owned())
    });
    parts.collect()
}

#[test]
fn parts_are_text_json_or_files() {
    let file = PartEncoding { is_file: true, ..PartEncoding::default() };
    let image = PartEncoding {
        is_file: true,
        content_type: Some("image/png, image/gif".to_owned()),
        ..PartEncoding::default()
    };
    let declared = BTreeMap::from([
        ("file".to_owned(), file.clone()),
        ("files".to_owned(), file),
        ("image".to_owned(), image),
        (
            "list".to_owned(),
            PartEncoding { content_type: Some("application/json".to_owned()), ..PartEncoding::default() },
        ),
        (
            "xml".to_owned(),
            PartEncoding { content_type: Some("text/xml".to_owned()), ..PartEncoding::default() },
        ),
    ]);
    let value = json!({
        "text": "a\r\nb", "number": 3.0, "object": { "a": 1 }, "list": [1, 2], "repeated": [1, "x"], "none": null,
        "file": "bytes", "files": ["one", { "base64": "dHdv", "name": "2.txt" }],
        "image": { "base64": "aGk=" }, "xml": "<a/>",
        "evident": { "base64": "aGk=", "filename": "a\"b\r\nc", "content_type": "text/x" },
    });
    let kinds = body(&[], vec![("multipart/form-data", BodyEncoding::Multipart(declared))]);
    let (content_type, text) = encoded_body(kinds, json!({ "body": value })).unwrap();
    let heads: Vec<String> = parts(&content_type, &text)
        .into_iter()
        .map(|(head, content)| {
            let head = head.replace("Content-Disposition: form-data; ", "").replace("\r\n", " | ");
            format!("{} => {content}", head.replace("Content-Type: ", ""))
        })
        .collect();
    assert_eq!(
        heads,
        [
            "name=\"text\" => a\r\nb",
            "name=\"number\" => 3",
            "name=\"object\" | application/json => {\"a\":1}",
            "name=\"list\" | application/json => [1,2]",
            "name=\"repeated\" => 1",
            "name=\"repeated\" => x",
            "name=\"file\"; filename=\"file\" | application/octet-stream => bytes",
            "name=\"files\"; filename=\"files\" | application/octet-stream => one",
            "name=\"files\"; filename=\"2.txt\" | application/octet-stream => two",
            "name=\"image\"; filename=\"image\" | image/png => hi",
            "name=\"xml\" | text/xml => <a/>",
            "name=\"evident\"; filename=\"a%22b%0D%0Ac\" | text/x => hi",
        ]
    );
}

#[test]
fn parts_follow_the_declared_style() {
    let styled = |style, explode| PartEncoding {
        content_type: Some("application/json".to_owned()),
        format: Some(Format::Style { style, explode, allow_reserved: false }),
        ..PartEncoding::default()
    };
    let declared = BTreeMap::from([
        ("comma".to_owned(), styled(ParameterStyle::Form, false)),
        ("pipe".to_owned(), styled(ParameterStyle::PipeDelimited, false)),
        ("multi".to_owned(), styled(ParameterStyle::Form, true)),
        ("deep".to_owned(), styled(ParameterStyle::DeepObject, true)),
    ]);
    let value = json!({
        "comma": ["a b", 2], "pipe": ["a", "b"], "multi": ["a", "b"], "deep": { "x": { "y": 1 } },
    });
    let kinds = body(&[], vec![("multipart/form-data", BodyEncoding::Multipart(declared))]);
    let (content_type, text) = encoded_body(kinds, json!({ "body": value })).unwrap();
    let named = |name: &str| format!("Content-Disposition: form-data; name=\"{name}\"");
    let expected = [("comma", "a b,2"), ("pipe", "a|b"), ("multi", "a"), ("multi", "b"), ("deep[x][y]", "1")];
    let expected = expected.map(|(name, text)| (named(name), text.to_owned()));
    assert_eq!(parts(&content_type, &text), expected);
}
