//! Properties that hold for any value.

use super::bodies::{encoded_body, parts};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Arbitrary values of a parameter.
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

fn any_style() -> impl Strategy<Value = ParameterStyle> {
    prop::sample::select(vec![
        ParameterStyle::Simple,
        ParameterStyle::Label,
        ParameterStyle::Matrix,
        ParameterStyle::Form,
        ParameterStyle::SpaceDelimited,
        ParameterStyle::PipeDelimited,
        ParameterStyle::DeepObject,
        ParameterStyle::TabDelimited,
    ])
}

proptest! {
    #[test]
    fn a_path_value_never_changes_the_number_of_segments(
        value in any_value(), style in any_style(), explode: bool, allow_reserved: bool,
    ) {
        let mut operation = operation("GET", "/a/{x}/b");
        let format = Format::Style { style, explode, allow_reserved };
        operation.parameters = vec![Parameter { format, ..parameter(ParameterLocation::Path, "x") }];
        if let Ok(request) = build(&operation, json!({ "x": value })) {
            let segments: Vec<&str> = request.url.path().split('/').collect();
            prop_assert_eq!(segments.len(), 5, "{}", request.url);
            prop_assert_eq!((segments[1], segments[2], segments[4]), ("v1", "a", "b"));
            prop_assert_eq!((request.url.host_str(), request.url.query()), (Some("api.example"), None));
        }
    }

    #[test]
    fn a_query_is_read_back_as_it_was_given(pairs in prop::collection::vec((".{1,8}", any::<String>()), 0..5)) {
        let mut operation = operation("GET", "/a");
        let names: BTreeMap<String, String> = pairs.into_iter().collect();
        operation.parameters = names.keys().map(|name| parameter(ParameterLocation::Query, name)).collect();
        let request = build(&operation, json!(names)).unwrap();
        let read: BTreeMap<String, String> = request.url.query_pairs().into_owned().collect();
        prop_assert_eq!(read, names);
    }

    #[test]
    fn reserved_characters_never_make_another_parameter(value: String) {
        let mut operation = operation("GET", "/a");
        let format = Format::Style { style: ParameterStyle::Form, explode: true, allow_reserved: true };
        operation.parameters = vec![Parameter { format, ..parameter(ParameterLocation::Query, "q") }];
        let request = build(&operation, json!({ "q": value })).unwrap();
        prop_assert_eq!(request.url.query_pairs().count(), 1);
        prop_assert_eq!(request.url.fragment(), None);
    }

    #[test]
    fn parts_are_read_back_as_they_were_given(
        fields in prop::collection::btree_map("[a-z]{1,8}", any::<String>(), 1..5)
    ) {
        let kinds = body(&[], vec![("multipart/form-data", BodyEncoding::Multipart(BTreeMap::new()))]);
        let (content_type, text) = encoded_body(kinds, json!({ "body": fields })).unwrap();
        let expected: Vec<_> = fields
            .iter()
            .map(|(name, value)| (format!("Content-Disposition: form-data; name=\"{name}\""), value.clone()))
            .collect();
        prop_assert_eq!(parts(&content_type, &text), expected);
    }

    #[test]
    fn no_value_can_inject_a_header(value in any_value(), location in prop::sample::select(vec![ParameterLocation::Header, ParameterLocation::Cookie])) {
        let mut operation = operation("GET", "/a");
        operation.parameters = vec![parameter(location, "x")];
        if let Ok(request) = build(&operation, json!({ "x": value })) {
            for value in request.headers.values() {
                prop_assert!(!value.as_bytes().iter().any(|byte| b"\r\n\0".contains(byte)));
            }
        }
    }
}
