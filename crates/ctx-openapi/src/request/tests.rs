//! Operations and arguments become requests.

use super::*;
use crate::operation::{Answer, Body, Media, MediaKind, Part};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;

/// An operation without anything.
pub(crate) fn operation(method: &str, path: &str) -> Operation {
    Operation {
        name: "operation".to_owned(),
        method: method.to_owned(),
        path: path.to_owned(),
        servers: Vec::new(),
        title: None,
        description: String::new(),
        tags: Vec::new(),
        deprecated: false,
        parameters: Vec::new(),
        body: None,
        answer: Answer::default(),
        security: Vec::new(),
        input_schema: json!({ "type": "object" }),
        output_schema: None,
    }
}

/// A parameter in the usual style of its place.
pub(crate) fn parameter(place: Place, name: &str) -> Parameter {
    let (style, explode) = match place {
        Place::Path | Place::Header => (Style::Simple, false),
        Place::Query | Place::Cookie => (Style::Form, true),
    };
    let format = Format::Style { style, explode, allow_reserved: false };
    let required = place == Place::Path;
    Parameter { argument: name.to_owned(), name: name.to_owned(), place, required, format }
}

/// A body of these kinds.
pub(crate) fn body(fields: &[&str], media: Vec<(&str, MediaKind)>) -> Body {
    let media =
        media.into_iter().map(|(content_type, kind)| Media { content_type: content_type.to_owned(), kind });
    Body {
        argument: "body".to_owned(),
        required: true,
        fields: fields.iter().map(ToString::to_string).collect(),
        media: media.collect(),
    }
}

fn made(operation: &Operation, arguments: Value) -> Result<Request, RequestError> {
    let base = Url::parse("https://api.example/v1/").unwrap();
    Request::new(operation, arguments.as_object().unwrap(), &base)
}

/// What is sent of a body: its kind of content, and its text.
fn sent(body: Body, arguments: Value) -> Result<(String, String), RequestError> {
    let request = made(&Operation { body: Some(body), ..operation("POST", "/pets") }, arguments)?;
    let content_type = request.headers[CONTENT_TYPE].to_str().unwrap().to_owned();
    Ok((content_type, String::from_utf8(request.body.unwrap().to_vec()).unwrap()))
}

#[test]
fn every_parameter_goes_to_its_place() {
    let mut operation = operation("GET", "/owners/{owner}/pets/{id}?fixed=1#apart");
    operation.parameters = vec![
        parameter(Place::Path, "id"),
        parameter(Place::Path, "owner"),
        parameter(Place::Query, "tag"),
        Parameter {
            format: Format::Content("application/json".to_owned()),
            ..parameter(Place::Query, "filter")
        },
        parameter(Place::Header, "X-Trace"),
        parameter(Place::Cookie, "session"),
        parameter(Place::Cookie, "theme"),
        Parameter { argument: "id_2".to_owned(), ..parameter(Place::Query, "id") },
        parameter(Place::Query, "unused"),
        parameter(Place::Header, "Content-Length"),
    ];
    let request = made(
        &operation,
        json!({
            "id": 7.0, "owner": "a b", "tag": ["x", "y"], "filter": { "a": [1] }, "X-Trace": true,
            "session": "s", "theme": "t", "id_2": "q", "unused": null, "Content-Length": 3, "unknown": 1,
        }),
    )
    .unwrap();
    assert_eq!(
        request.url.as_str(),
        "https://api.example/v1/owners/a%20b/pets/7?fixed=1&tag=x&tag=y&filter=%7B%22a%22%3A%5B1%5D%7D&id=q"
    );
    assert_eq!(request.headers["x-trace"], "true");
    assert_eq!(request.headers[COOKIE], "session=s; theme=t");
    assert!(!request.headers.contains_key("content-length"));
    assert_eq!(request.headers[ACCEPT], "application/json, */*;q=0.5");
    assert_eq!((request.method, request.body), (Method::GET, None));
}

#[test]
fn the_path_and_the_query_of_the_base_stay() {
    for (base, path, expected) in [
        ("https://api.example", "/pets", "https://api.example/pets"),
        ("https://api.example/v1", "/pets", "https://api.example/v1/pets"),
        ("https://api.example/v1/", "pets", "https://api.example/v1/pets"),
        ("https://api.example/v1?version=2", "/pets/", "https://api.example/v1/pets/?version=2"),
        ("https://api.example/v1", "/", "https://api.example/v1/"),
    ] {
        let request = Request::new(&operation("GET", path), &Map::new(), &Url::parse(base).unwrap());
        assert_eq!(request.unwrap().url.as_str(), expected);
    }
}

#[test]
fn content_is_asked_for_by_weight_and_an_argument_goes_before_the_document() {
    let mut operation = operation("GET", "/pets");
    operation.answer.accept = vec!["application/json".to_owned(), "text/csv".to_owned()];
    operation.parameters = vec![parameter(Place::Header, "Accept")];
    assert_eq!(made(&operation, json!({})).unwrap().headers[ACCEPT], "application/json, text/csv;q=0.8");
    let own = made(&operation, json!({ "Accept": "text/html" })).unwrap();
    assert_eq!(own.headers[ACCEPT], "text/html");
}

#[test]
fn what_is_missing_is_named() {
    let mut operation = operation("POST", "/pets/{id}");
    operation.parameters = vec![parameter(Place::Path, "id")];
    operation.body = Some(body(&["name"], vec![("application/json", MediaKind::Json)]));
    let missing = |arguments| made(&operation, arguments).unwrap_err();
    assert_eq!(missing(json!({})), RequestError::Missing("id".to_owned()));
    assert_eq!(missing(json!({ "id": null })), RequestError::Missing("id".to_owned()));
    assert_eq!(missing(json!({ "id": 1, "name": null })), RequestError::Missing("body".to_owned()));
    operation.parameters.clear();
    let error = made(&operation, json!({})).unwrap_err();
    assert!(error.to_string().contains("what `id` in the path"), "{error}");
}

#[test]
fn a_path_value_cannot_lead_elsewhere() {
    let mut operation = operation("GET", "/pets/{id}/photo");
    operation.parameters = vec![parameter(Place::Path, "id")];
    for (value, expected) in [
        ("../../admin?x#y", "..%2F..%2Fadmin%3Fx%23y"),
        ("%2e%2e", "%252e%252e"),
        ("..\\admin", "..%5Cadmin"),
        ("a\tb\r\n", "a%09b%0D%0A"),
        (";a=b@c:d", "%3Ba%3Db%40c%3Ad"),
        ("...", "..."),
    ] {
        let request = made(&operation, json!({ "id": value })).unwrap();
        assert_eq!(request.url.as_str(), format!("https://api.example/v1/pets/{expected}/photo"));
    }
    for value in [json!("."), json!(".."), json!(""), json!([]), json!([".."]), json!([""]), json!({})] {
        let error = made(&operation, json!({ "id": value })).unwrap_err();
        assert!(error.to_string().starts_with("`id` "), "{value}: {error}");
    }
    let Format::Style { style, .. } = &mut operation.parameters[0].format else { unreachable!() };
    *style = Style::Label;
    for value in [json!("."), json!(""), json!(["."])] {
        assert!(made(&operation, json!({ "id": value })).is_err(), "{value}");
    }
}

#[test]
fn two_values_of_one_segment_cannot_lead_elsewhere_together() {
    let mut operation = operation("GET", "/pets/%2e{id}");
    operation.parameters = vec![parameter(Place::Path, "id")];
    assert!(made(&operation, json!({ "id": "." })).is_err());
    assert!(made(&operation, json!({ "id": "x" })).is_ok());
}

#[test]
fn headers_cannot_be_broken_out_of() {
    let mut operation = operation("GET", "/pets");
    operation.parameters = vec![parameter(Place::Header, "X-Trace"), parameter(Place::Cookie, "theme")];
    for value in ["a\r\nX-Admin: 1", "a\nb", "a\rb", "a\0b", "\u{7f}"] {
        let error = made(&operation, json!({ "X-Trace": value })).unwrap_err();
        assert!(error.to_string().starts_with("`X-Trace` "), "{error}");
    }
    let request = made(&operation, json!({ "theme": "a\r\nX-Admin: 1; admin=1" })).unwrap();
    assert_eq!(request.headers[COOKIE], "theme=a%0D%0AX-Admin:%201%3B%20admin=1");
}

#[test]
fn a_body_is_its_argument_or_the_fields_beside_the_parameters() {
    let json_body = || body(&["name", "age"], vec![("application/json", MediaKind::Json)]);
    for (arguments, expected) in [
        (json!({ "body": { "name": "Rex", "age": null } }), r#"{"name":"Rex","age":null}"#),
        (json!({ "name": "Rex", "age": 3 }), r#"{"name":"Rex","age":3}"#),
        (json!({ "name": "Rex", "age": null, "other": 1 }), r#"{"name":"Rex"}"#),
        (json!({ "body": { "name": "Rex" }, "name": "Tom", "age": 3 }), r#"{"name":"Rex","age":3}"#),
        (json!({ "body": [1, "a"] }), r#"[1,"a"]"#),
        (json!({ "body": "text" }), r#""text""#),
    ] {
        let (content_type, text) = sent(json_body(), arguments).unwrap();
        assert_eq!((content_type.as_str(), text.as_str()), ("application/json", expected));
    }
    let optional = Body { required: false, ..json_body() };
    let request = made(&Operation { body: Some(optional), ..operation("POST", "/pets") }, json!({})).unwrap();
    assert!(request.body.is_none() && !request.headers.contains_key(CONTENT_TYPE));
}

#[test]
fn the_first_kind_of_content_that_fits_is_sent() {
    let both = || {
        body(
            &[],
            vec![
                ("application/x-www-form-urlencoded", MediaKind::Form(BTreeMap::new())),
                ("text/plain; charset=utf-8", MediaKind::Text),
                ("application/merge-patch+json", MediaKind::Json),
            ],
        )
    };
    for (value, content_type, text) in [
        (json!({ "a": 1 }), "application/x-www-form-urlencoded", "a=1"),
        (json!("hé"), "text/plain; charset=utf-8", "hé"),
        (json!([1]), "application/merge-patch+json", "[1]"),
    ] {
        let sent = sent(both(), json!({ "body": value })).unwrap();
        assert_eq!((sent.0.as_str(), sent.1.as_str()), (content_type, text));
    }
    let only_form = body(&[], vec![("multipart/form-data", MediaKind::Multipart(BTreeMap::new()))]);
    let error = sent(only_form, json!({ "body": "text" })).unwrap_err();
    assert_eq!(error.to_string(), "`body` cannot be sent as multipart/form-data");
}

#[test]
fn a_form_is_written_field_by_field() {
    let deep = Format::Style { style: Style::DeepObject, explode: true, allow_reserved: false };
    let comma = Format::Style { style: Style::Form, explode: false, allow_reserved: false };
    let parts = BTreeMap::from([
        ("deep".to_owned(), Part { format: Some(deep), ..Part::default() }),
        ("comma".to_owned(), Part { format: Some(comma), ..Part::default() }),
        ("json".to_owned(), Part { content_type: Some("application/json".to_owned()), ..Part::default() }),
    ]);
    let form = body(&[], vec![("application/x-www-form-urlencoded", MediaKind::Form(parts))]);
    let value = json!({
        "plain": "a b&c=d+é", "list": [1, 2], "object": { "a": 1 }, "deep": { "a": { "b": 1 } },
        "comma": [1, 2], "json": [1, 2], "none": null, "yes": true,
    });
    let (_, text) = sent(form, json!({ "body": value })).unwrap();
    assert_eq!(
        text,
        "plain=a%20b%26c%3Dd%2B%C3%A9&list=1&list=2&object=%7B%22a%22%3A1%7D&deep%5Ba%5D%5Bb%5D=1&comma=1,2\
         &json=%5B1%2C2%5D&yes=true"
    );
}

#[test]
fn bytes_are_sent_as_they_are() {
    let binary = |content_type| body(&[], vec![(content_type, MediaKind::Binary)]);
    for (content_type, value, expected) in [
        ("image/png", json!("text"), "image/png"),
        ("image/png", json!({ "base64": "dGV4dA==", "content_type": "image/gif" }), "image/png"),
        ("image/*", json!({ "base64": "dGV4dA", "content_type": "image/gif" }), "image/gif"),
        ("*/*", json!({ "text": "text" }), "application/octet-stream"),
    ] {
        assert_eq!(
            sent(binary(content_type), json!({ "body": value })).unwrap(),
            (expected.to_owned(), "text".to_owned())
        );
    }
    let error = sent(binary("image/png"), json!({ "body": { "base64": "!" } })).unwrap_err();
    assert_eq!(error.to_string(), "`body` has a `base64` that is none");
    let injected = json!({ "body": { "text": "", "content_type": "a/b\r\nX-Admin: 1" } });
    assert!(sent(binary("*/*"), injected).is_err());
}

/// The parts of a body as a server reads them: head and content.
fn parts(content_type: &str, body: &str) -> Vec<(String, String)> {
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
    let file = Part { is_file: true, ..Part::default() };
    let image =
        Part { is_file: true, content_type: Some("image/png, image/gif".to_owned()), ..Part::default() };
    let declared = BTreeMap::from([
        ("file".to_owned(), file.clone()),
        ("files".to_owned(), file),
        ("image".to_owned(), image),
        ("list".to_owned(), Part { content_type: Some("application/json".to_owned()), ..Part::default() }),
        ("xml".to_owned(), Part { content_type: Some("text/xml".to_owned()), ..Part::default() }),
    ]);
    let value = json!({
        "text": "a\r\nb", "number": 3.0, "object": { "a": 1 }, "list": [1, 2], "repeated": [1, "x"], "none": null,
        "file": "bytes", "files": ["one", { "text": "two", "filename": "2.txt" }],
        "image": { "base64": "aGk=" }, "xml": "<a/>",
        "evident": { "base64": "aGk=", "filename": "a\"b\r\nc", "content_type": "text/x" },
    });
    let kinds = body(&[], vec![("multipart/form-data", MediaKind::Multipart(declared))]);
    let (content_type, text) = sent(kinds, json!({ "body": value })).unwrap();
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

/// Any value that a parameter may have.
fn any_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![any::<String>(), "[./%?#\\\\;,a ]{0,6}"];
    let one = prop_oneof![
        text.clone().prop_map(Value::String),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ];
    prop_oneof![
        one.clone(),
        prop::collection::vec(one.clone(), 0..4).prop_map(Value::Array),
        prop::collection::vec((text, one), 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect())),
    ]
}

fn any_style() -> impl Strategy<Value = Style> {
    prop::sample::select(vec![
        Style::Simple,
        Style::Label,
        Style::Matrix,
        Style::Form,
        Style::SpaceDelimited,
        Style::PipeDelimited,
        Style::DeepObject,
        Style::TabDelimited,
    ])
}

proptest! {
    #[test]
    fn a_path_value_never_changes_the_number_of_segments(
        value in any_value(), style in any_style(), explode: bool, allow_reserved: bool,
    ) {
        let mut operation = operation("GET", "/a/{x}/b");
        let format = Format::Style { style, explode, allow_reserved };
        operation.parameters = vec![Parameter { format, ..parameter(Place::Path, "x") }];
        if let Ok(request) = made(&operation, json!({ "x": value })) {
            let segments: Vec<&str> = request.url.path().split('/').collect();
            prop_assert_eq!(segments.len(), 5, "{}", request.url);
            prop_assert_eq!((segments[1], segments[2], segments[4]), ("v1", "a", "b"));
            prop_assert_eq!((request.url.host_str(), request.url.query()), (Some("api.example"), None));
        }
    }

    #[test]
    fn a_query_is_read_back_as_it_was_given(pairs in prop::collection::vec((".{1,8}", any::<String>()), 0..5)) {
        let mut operation = operation("GET", "/a");
        let names: std::collections::BTreeMap<String, String> = pairs.into_iter().collect();
        operation.parameters = names.keys().map(|name| parameter(Place::Query, name)).collect();
        let request = made(&operation, json!(names)).unwrap();
        let read: std::collections::BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
        prop_assert_eq!(read, names);
    }

    #[test]
    fn reserved_characters_never_make_another_parameter(value: String) {
        let mut operation = operation("GET", "/a");
        let format = Format::Style { style: Style::Form, explode: true, allow_reserved: true };
        operation.parameters = vec![Parameter { format, ..parameter(Place::Query, "q") }];
        let request = made(&operation, json!({ "q": value })).unwrap();
        prop_assert_eq!(request.url.query_pairs().count(), 1);
        prop_assert_eq!(request.url.fragment(), None);
    }

    #[test]
    fn parts_are_read_back_as_they_were_given(
        fields in prop::collection::btree_map("[a-z]{1,8}", any::<String>(), 1..5)
    ) {
        let kinds = body(&[], vec![("multipart/form-data", MediaKind::Multipart(BTreeMap::new()))]);
        let (content_type, text) = sent(kinds, json!({ "body": fields })).unwrap();
        let expected: Vec<_> = fields
            .iter()
            .map(|(name, value)| (format!("Content-Disposition: form-data; name=\"{name}\""), value.clone()))
            .collect();
        prop_assert_eq!(parts(&content_type, &text), expected);
    }

    #[test]
    fn no_value_can_break_out_of_the_head(value in any_value(), place in prop::sample::select(vec![Place::Header, Place::Cookie])) {
        let mut operation = operation("GET", "/a");
        operation.parameters = vec![parameter(place, "x")];
        if let Ok(request) = made(&operation, json!({ "x": value })) {
            for value in request.headers.values() {
                prop_assert!(!value.as_bytes().iter().any(|byte| b"\r\n\0".contains(byte)));
            }
        }
    }
}
