//! Building requests from operations and arguments.

mod bodies;
mod properties;

use super::*;
use crate::operation::{Body, BodyEncoding, MediaType, SuccessResponse};
use serde_json::json;

/// An operation without parameters and body.
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
        response: SuccessResponse::default(),
        security: Vec::new(),
        input_schema: json!({ "type": "object" }).into(),
        output_schema: None,
        frozen: std::collections::BTreeMap::new(),
    }
}

/// A parameter with the default style of its location.
pub(crate) fn parameter(location: ParameterLocation, name: &str) -> Parameter {
    let (style, explode) = match location {
        ParameterLocation::Path | ParameterLocation::Header => (ParameterStyle::Simple, false),
        ParameterLocation::Query | ParameterLocation::Cookie => (ParameterStyle::Form, true),
    };
    let format = Format::Style { style, explode, allow_reserved: false };
    let required = location == ParameterLocation::Path;
    Parameter { argument: name.to_owned(), name: name.to_owned(), location, required, format }
}

/// A body with these fields and media types.
pub(crate) fn body(fields: &[&str], media: Vec<(&str, BodyEncoding)>) -> Body {
    let media = media
        .into_iter()
        .map(|(content_type, encoding)| MediaType { content_type: content_type.to_owned(), encoding });
    Body {
        argument: "body".to_owned(),
        required: true,
        has_fields: !fields.is_empty(),
        fields: fields.iter().map(ToString::to_string).collect(),
        media: media.collect(),
    }
}

fn build(operation: &Operation, arguments: Value) -> Result<Request, RequestError> {
    let base = Url::parse("https://api.example/v1/").unwrap();
    operation_request(operation, arguments.as_object().unwrap(), &base, None)
}

#[test]
fn every_parameter_goes_to_its_location() {
    let mut operation = operation("GET", "/owners/{owner}/pets/{id}?fixed=1#apart");
    operation.parameters = vec![
        parameter(ParameterLocation::Path, "id"),
        parameter(ParameterLocation::Path, "owner"),
        parameter(ParameterLocation::Query, "tag"),
        Parameter {
            format: Format::Content("application/json".to_owned()),
            ..parameter(ParameterLocation::Query, "filter")
        },
        parameter(ParameterLocation::Header, "X-Trace"),
        parameter(ParameterLocation::Cookie, "session"),
        parameter(ParameterLocation::Cookie, "theme"),
        Parameter { argument: "id_2".to_owned(), ..parameter(ParameterLocation::Query, "id") },
        parameter(ParameterLocation::Query, "unused"),
        parameter(ParameterLocation::Header, "Content-Length"),
    ];
    let request = build(
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
fn path_and_query_of_the_base_url_are_kept() {
    for (base, path, expected) in [
        ("https://api.example", "/pets", "https://api.example/pets"),
        ("https://api.example/v1", "/pets", "https://api.example/v1/pets"),
        ("https://api.example/v1/", "pets", "https://api.example/v1/pets"),
        ("https://api.example/v1?version=2", "/pets/", "https://api.example/v1/pets/?version=2"),
        ("https://api.example/v1", "/", "https://api.example/v1/"),
    ] {
        let request =
            operation_request(&operation("GET", path), &Map::new(), &Url::parse(base).unwrap(), None);
        assert_eq!(request.unwrap().url.as_str(), expected);
    }
}

#[test]
fn accept_is_weighted_and_an_argument_overrides_it() {
    let mut operation = operation("GET", "/pets");
    operation.response.accept = vec!["application/json".to_owned(), "text/csv".to_owned()];
    operation.parameters = vec![parameter(ParameterLocation::Header, "Accept")];
    assert_eq!(build(&operation, json!({})).unwrap().headers[ACCEPT], "application/json, text/csv;q=0.8");
    let own = build(&operation, json!({ "Accept": "text/html" })).unwrap();
    assert_eq!(own.headers[ACCEPT], "text/html");
}

#[test]
fn a_missing_argument_is_named() {
    let mut operation = operation("POST", "/pets/{id}");
    operation.parameters = vec![parameter(ParameterLocation::Path, "id")];
    operation.body = Some(body(&[], vec![("application/json", BodyEncoding::Json)]));
    let missing = |arguments| build(&operation, arguments).unwrap_err();
    assert_eq!(missing(json!({})), RequestError::Missing("id".to_owned()));
    assert_eq!(missing(json!({ "id": null })), RequestError::Missing("id".to_owned()));
    assert_eq!(missing(json!({ "id": 1, "name": null })), RequestError::Missing("body".to_owned()));
    operation.parameters.clear();
    let error = build(&operation, json!({})).unwrap_err();
    assert!(error.to_string().contains("the path parameter `id` is not declared"), "{error}");
}

#[test]
fn a_path_value_stays_in_its_segment() {
    let mut operation = operation("GET", "/pets/{id}/photo");
    operation.parameters = vec![parameter(ParameterLocation::Path, "id")];
    for (value, expected) in [
        ("../../admin?x#y", "..%2F..%2Fadmin%3Fx%23y"),
        ("%2e%2e", "%252e%252e"),
        ("..\\admin", "..%5Cadmin"),
        ("a\tb\r\n", "a%09b%0D%0A"),
        (";a=b@c:d", "%3Ba%3Db%40c%3Ad"),
        ("...", "..."),
    ] {
        let request = build(&operation, json!({ "id": value })).unwrap();
        assert_eq!(request.url.as_str(), format!("https://api.example/v1/pets/{expected}/photo"));
    }
    for value in [json!("."), json!(".."), json!(""), json!([]), json!([".."]), json!([""]), json!({})] {
        let error = build(&operation, json!({ "id": value })).unwrap_err();
        assert!(error.to_string().starts_with("`id` "), "{value}: {error}");
    }
    let Format::Style { style, .. } = &mut operation.parameters[0].format else { unreachable!() };
    *style = ParameterStyle::Label;
    for value in [json!("."), json!(""), json!(["."])] {
        assert!(build(&operation, json!({ "id": value })).is_err(), "{value}");
    }
}

#[test]
fn a_value_and_its_neighbours_never_form_a_dot_segment() {
    let mut operation = operation("GET", "/pets/%2e{id}");
    operation.parameters = vec![parameter(ParameterLocation::Path, "id")];
    assert!(build(&operation, json!({ "id": "." })).unwrap_err().to_string().starts_with("`id` "));
    assert!(build(&operation, json!({ "id": "x" })).is_ok());
}

#[test]
fn header_values_cannot_inject_headers() {
    let mut operation = operation("GET", "/pets");
    operation.parameters =
        vec![parameter(ParameterLocation::Header, "X-Trace"), parameter(ParameterLocation::Cookie, "theme")];
    for value in ["a\r\nX-Admin: 1", "a\nb", "a\rb", "a\0b", "\u{7f}"] {
        let error = build(&operation, json!({ "X-Trace": value })).unwrap_err();
        assert!(error.to_string().starts_with("`X-Trace` "), "{error}");
    }
    let request = build(&operation, json!({ "theme": "a\r\nX-Admin: 1; admin=1" })).unwrap();
    assert_eq!(request.headers[COOKIE], "theme=a%0D%0AX-Admin:%201%3B%20admin=1");
}

#[test]
fn no_field_of_an_exploded_object_overrides_a_frozen_value() {
    let mut operation = operation("GET", "/pets");
    operation.parameters = vec![
        parameter(ParameterLocation::Query, "filter"),
        parameter(ParameterLocation::Query, "tenant id"),
        parameter(ParameterLocation::Query, "never"),
        parameter(ParameterLocation::Cookie, "options"),
        parameter(ParameterLocation::Cookie, "team"),
    ];
    let fixed = [("tenant id", json!("ours")), ("never", json!(null)), ("team", json!("ours"))];
    operation.frozen = fixed.map(|(name, value)| (name.to_owned(), value)).into();
    let others = json!({ "tenant id": "theirs", "never": 1, "team": "a", "size": 3 });
    let request = build(&operation, json!({ "filter": others, "options": others })).unwrap();
    assert_eq!(request.url.query(), Some("team=a&size=3&tenant%20id=ours"));
    assert_eq!(request.headers[COOKIE], "tenant%20id=theirs; never=1; size=3; team=ours");
}
