//! Parsing of whole descriptions, valid and invalid.

use super::*;
use crate::operation::{
    BodyEncoding, Format, Operation, ParameterLocation, ParameterStyle, SecurityScheme, SkippedOperation,
};
use ctx_core::{ArgumentSchema, BodyArgument};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn description(document: &Value) -> Description {
    load(&document.to_string(), RootLocation::Directory("api.json".to_owned()), &SingleDocument).unwrap()
}

fn petstore(text: &str) -> Description {
    load(text, RootLocation::Directory("petstore".to_owned()), &SingleDocument).unwrap()
}

/// A description of one operation at a path.
fn operation_at(path: &str, operation: Value) -> Operation {
    let mut paths = serde_json::Map::new();
    paths.insert(path.to_owned(), json!({"post": operation}));
    let description = description(&json!({"openapi": "3.0.0", "paths": paths}));
    assert_eq!(description.skipped, []);
    description.operations.into_iter().next().unwrap()
}

fn with_body(content: Value) -> Operation {
    operation_at("/x", json!({"requestBody": {"required": true, "content": content}}))
}

#[test]
fn all_versions_parse_to_the_same_description() {
    let openapi30 = petstore(include_str!("petstore/3.0.yaml"));
    let openapi31 = petstore(include_str!("petstore/3.1.yaml"));
    let swagger2 = petstore(include_str!("petstore/2.0.json"));
    assert_eq!(openapi30, openapi31);
    assert_eq!(openapi30, swagger2);
    assert_eq!(openapi30.skipped, []);
    insta::assert_json_snapshot!("petstore", openapi30);
}

#[test]
fn schemas_are_self_contained_and_filtered_by_direction() {
    let petstore = petstore(include_str!("petstore/3.0.yaml"));
    let create = petstore.operations.iter().find(|operation| operation.name == "create_pet").unwrap();
    let input = petstore.input_schema(create);
    assert_eq!(input["$defs"]["Pet"]["required"], json!(["name"]));
    assert_eq!(input["$defs"]["Pet"]["properties"]["id"], Value::Null);
    assert_eq!(input["$defs"]["Kind"], json!({"type": "string", "enum": ["cat", "dog"]}));
    let output = petstore.output_schema(create).unwrap();
    assert_eq!(output["$defs"]["Pet"]["required"], json!(["id", "name"]));
    let body = create.body.as_ref().unwrap();
    let body = BodyArgument { name: body.argument.clone(), has_fields: body.has_fields };
    let arguments = ArgumentSchema::compile(input).unwrap().with_body(Some(body));
    let is_valid = |value: Value| arguments.prepare(value).is_ok();
    assert!(is_valid(
        json!({"body": {"name": "Rex", "tag": null, "parent": {"name": "Rexa", "kind": "dog"}}})
    ));
    assert!(is_valid(json!({"name": "Rex"})), "fields may stand beside");
    assert!(!is_valid(json!({"body": {"name": "Rex", "kind": "cow"}})));
    assert!(!is_valid(json!({"body": {}})));
    assert!(!is_valid(json!({})));
}

#[test]
fn overlapping_alternatives_are_accepted_in_requests() {
    let either =
        json!({"oneOf": [{"type": "integer"}, {"type": "number"}, {"$ref": "#/components/schemas/Other"}]});
    let content = json!({"application/json": {"schema": either}});
    let read = description(&json!({
        "openapi": "3.0.0",
        "paths": {"/x": {"post": {"requestBody": {"required": true, "content": content},
            "responses": {"200": {"content": content}}}}},
        "components": {"schemas": {"Other": {"oneOf": [{"type": "string"}, {"enum": ["a"]}]}}},
    }));
    let arguments = ArgumentSchema::compile(read.input_schema(&read.operations[0])).unwrap();
    assert!(arguments.prepare(json!({"body": 1})).is_ok());
    assert!(arguments.prepare(json!({"body": "a"})).is_ok());
    assert!(arguments.prepare(json!({"body": true})).is_err());
    assert!(read.output_schema(&read.operations[0]).unwrap()["oneOf"].is_array());
}

#[test]
fn an_invalid_operation_does_not_affect_the_others() {
    let description = description(&json!({
        "openapi": "3.0.0",
        "paths": {
            "/ok": {"get": {}},
            "/no{": {"get": {}},
            "/text": {"get": "x"},
            "/gone": {"$ref": "#/components/pathItems/Gone"},
            "/passwd": {"$ref": "file:///etc/passwd"},
            "/list": [],
            "/there": {"$ref": "#/components/pathItems/There"},
            "/circle": {"$ref": "#/paths/~1circle"},
            "x-other": {"get": {}},
        },
        "components": {"pathItems": {"There": {"put": {}, "summary": "x"}}},
    }));
    let names: Vec<&str> = description.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert_eq!(names, ["get_ok", "put_there"]);
    let skipped =
        |name: &str, reason: &str| SkippedOperation { name: name.to_owned(), reason: reason.to_owned() };
    assert_eq!(
        description.skipped,
        [
            skipped("GET /no{", "its path has a brace that is not closed"),
            skipped("GET /text", "it is not an object"),
            skipped("/gone", "it refers to `#/components/pathItems/Gone`, which does not exist"),
            skipped(
                "/passwd",
                "it refers to `file:///etc/passwd`, which is outside of the description's directory"
            ),
            skipped("/list", "it is not an object"),
            skipped("/circle", "it refers to itself"),
        ]
    );
}

#[test]
fn errors_say_why_a_text_is_not_a_description() {
    for (text, why) in [
        ("[]", "it is not an OpenAPI description: it is not an object"),
        ("a: 1", "it is not an OpenAPI description: it has neither `openapi` nor `swagger`"),
        ("swaggerVersion: '1.2'", "it is a Swagger description of version 1; convert it to OpenAPI 3 first"),
        ("openapi: 3.0.0\npaths: [a,\n  b\n", "line 2, column 8: did not find expected ',' or ']'"),
    ] {
        let error = load(text, RootLocation::Directory("x".to_owned()), &SingleDocument).unwrap_err();
        assert!(error.to_string().starts_with(why), "{error}");
    }
    for text in ["openapi: 3.0.0", "swagger: 2.0", "paths: {}"] {
        assert!(petstore(text).operations.is_empty(), "{text}");
    }
}

#[test]
fn undeclared_path_parameters_are_required_strings() {
    let operation = operation_at(
        "/a/{x}/{+y}",
        json!({"parameters": [{"name": "unused", "in": "path"}, {"$ref": "#/nowhere"}, {"name": "q", "in": "query"}]}),
    );
    let named: Vec<_> = operation
        .parameters
        .iter()
        .map(|operation_at| (operation_at.name.as_str(), operation_at.location, operation_at.required))
        .collect();
    assert_eq!(
        named,
        [
            ("q", ParameterLocation::Query, false),
            ("x", ParameterLocation::Path, true),
            ("y", ParameterLocation::Path, true)
        ]
    );
    assert_eq!(operation.path, "/a/{x}/{y}");
    assert_eq!(operation.input_schema["required"], json!(["x", "y"]));
    assert!(matches!(operation.parameters[2].format, Format::Style { allow_reserved: true, .. }));
}

#[test]
fn parameters_of_one_name_in_two_locations_get_distinct_arguments() {
    let parameters = json!([
        {"name": "id", "in": "path"}, {"name": "id", "in": "query"}, {"name": "id", "in": "header"},
        {"name": "body", "in": "cookie"}, {"name": "Authorization", "in": "header"}, {"name": "id", "in": "query"},
    ]);
    let operation =
        operation_at("/{id}", json!({"parameters": parameters, "requestBody": {"content": {"a/json": {}}}}));
    let arguments: Vec<&str> =
        operation.parameters.iter().map(|operation_at| operation_at.argument.as_str()).collect();
    assert_eq!(arguments, ["id", "id_query", "id_header", "body"]);
    assert_eq!(operation.body.unwrap().argument, "request_body");
}

#[test]
fn a_body_that_can_be_an_object_has_fields() {
    let shape = |schema: Value| {
        let document = json!({
            "openapi": "3.1.0",
            "paths": {"/x": {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}},
            "components": {"schemas": {
                "Issue": {"type": "object", "properties": {"title": {}, "body": {"type": "string"}}},
                "Tree": {"anyOf": [{"type": "string"}, {"$ref": "#/components/schemas/Tree"}]},
                "Texts": {"type": "array", "items": {"type": "string"}},
            }},
        });
        let body = description(&document).operations.remove(0).body.unwrap();
        (body.argument, body.has_fields, body.fields.join(" "))
    };
    let named = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    for (schema, argument, has_fields, fields) in [
        (json!({}), "body", true, ""),
        (json!({"type": ["object", "null"], "properties": {"a": {}}}), "body", true, "a"),
        (json!({"additionalProperties": {"type": "string"}}), "body", true, ""),
        (json!({"type": "string"}), "body", false, ""),
        (json!({"items": {"type": "string"}}), "body", false, ""),
        (named("Texts"), "body", false, ""),
        (named("Tree"), "body", true, ""),
        // A field named `body` makes the body argument `request_body`.
        (named("Issue"), "request_body", true, "title body"),
        (json!({"oneOf": [named("Texts"), named("Issue")]}), "request_body", true, "title body"),
        (json!({"oneOf": [named("Texts"), {"type": "string"}]}), "body", false, ""),
        (json!({"allOf": [named("Issue"), {"properties": {"a": {}}}]}), "request_body", true, "title body a"),
    ] {
        assert_eq!(shape(schema.clone()), (argument.to_owned(), has_fields, fields.to_owned()), "{schema}");
    }
}

#[test]
fn styles_depend_on_the_location() {
    let style = |parameter: Value| match operation_at("/{p}", json!({"parameters": [parameter]})).parameters
        [0]
    .format
    .clone()
    {
        Format::Style { style, explode, .. } => (style, explode),
        Format::Content(content_type) => panic!("{content_type}"),
    };
    for (location, name, explode, expected) in [
        ("query", None, None, (ParameterStyle::Form, true)),
        ("query", Some("deepObject"), Some(true), (ParameterStyle::DeepObject, true)),
        ("query", Some("spaceDelimited"), None, (ParameterStyle::SpaceDelimited, false)),
        ("query", Some("matrix"), None, (ParameterStyle::Form, true)),
        ("path", None, None, (ParameterStyle::Simple, false)),
        ("path", Some("label"), Some(true), (ParameterStyle::Label, true)),
        ("header", None, Some(true), (ParameterStyle::Simple, true)),
        ("cookie", None, Some(false), (ParameterStyle::Form, false)),
    ] {
        assert_eq!(
            style(json!({"name": "p", "in": location, "style": name, "explode": explode})),
            expected,
            "{location}"
        );
    }
    let content =
        json!({"name": "f", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}});
    let operation = operation_at("/", json!({"parameters": [content]}));
    assert_eq!(operation.parameters[0].format, Format::Content("application/json".to_owned()));
    assert_eq!(operation.input_schema["properties"]["f"], json!({"type": "object"}));
}

#[test]
fn defaults_are_described_and_filled_in_only_for_required_parameters() {
    let schema = json!({"type": "integer", "default": 30});
    let parameters = json!([
        {"name": "page", "in": "query", "description": "Which page", "schema": schema},
        {"name": "size", "in": "query", "required": true, "schema": schema},
    ]);
    let operation = operation_at("/", json!({"parameters": parameters}));
    assert_eq!(
        operation.input_schema["properties"],
        json!({
            "page": {"type": "integer", "description": "Which page. Default: `30`."},
            "size": {"type": "integer", "default": 30},
        })
    );
}

#[test]
fn the_preferred_media_type_comes_first() {
    let media_types = |content: Value| {
        let media = with_body(content).body.unwrap().media;
        media.into_iter().map(|media| media.content_type).collect::<Vec<_>>()
    };
    let all = json!({"image/png": {}, "text/plain": {}, "multipart/form-data": {},
        "application/x-www-form-urlencoded": {}, "application/vnd.x+json": {}, "*/*": {}});
    assert_eq!(
        media_types(all),
        [
            "application/vnd.x+json",
            "application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/plain",
            "image/png"
        ]
    );
    let with_file = json!({"schema": {"properties": {"f": {"type": "string", "format": "binary"}}}});
    assert_eq!(
        media_types(json!({"application/json": with_file, "multipart/form-data": with_file})),
        ["multipart/form-data", "application/json"]
    );
    let form = json!({"application/x-www-form-urlencoded": {"schema": {"type": "string"}}});
    let media = with_body(form).body.unwrap().media;
    assert_eq!(media[0].encoding, BodyEncoding::Text);
    assert_eq!(media[0].content_type, "application/x-www-form-urlencoded");
    assert_eq!(media_types(json!({})), ["application/json"]);
    let bytes = with_body(json!({"*/*": {"schema": {"type": "string", "format": "binary"}}}));
    assert_eq!(bytes.body.unwrap().media[0].encoding, BodyEncoding::Binary);
}

#[test]
fn file_fields_become_file_parts() {
    let document = json!({
        "openapi": "3.1.0",
        "paths": {"/x": {"post": {"requestBody": {"content": {"multipart/form-data": {
            "schema": {"$ref": "#/components/schemas/Upload"},
            "encoding": {"about": {"contentType": "application/json"}, "ids": {"style": "form", "explode": false}},
        }}}}}},
        "components": {"schemas": {"Upload": {"type": "object", "properties": {
            "file": {"contentMediaType": "application/octet-stream"},
            "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "about": {"type": "object"}, "ids": {"type": "array"}, "plain": {"type": "string"},
        }}}},
    });
    let description = description(&document);
    let operation = &description.operations[0];
    let BodyEncoding::Multipart(parts) = &operation.body.as_ref().unwrap().media[0].encoding else {
        panic!()
    };
    let files: Vec<_> = parts.iter().map(|(name, part)| (name.as_str(), part.is_file)).collect();
    assert_eq!(files, [("about", false), ("file", true), ("files", true), ("ids", false)]);
    assert_eq!(parts["about"].content_type.as_deref(), Some("application/json"));
    assert!(matches!(parts["ids"].format, Some(Format::Style { explode: false, .. })));
    let arguments = ArgumentSchema::compile(description.input_schema(operation)).unwrap();
    let file = json!({"base64": "", "name": "a.png"});
    assert!(arguments.prepare(json!({"body": {"file": file, "files": [file, "x"], "plain": "x"}})).is_ok());
    assert!(arguments.prepare(json!({"body": {"plain": file}})).is_err());
}

#[test]
fn file_fields_are_found_through_all_of() {
    let document = json!({
        "openapi": "3.1.0",
        "paths": {"/x": {"post": {"requestBody": {"required": true, "content": {"multipart/form-data": {
            "schema": {"allOf": [{"$ref": "#/components/schemas/File"}, {"properties": {"about": {"type": "string"}}}]},
            "encoding": {"image": {"contentType": "image/png, image/jpeg"}, "about": {"contentType": "text/csv"}},
        }}}}}},
        "components": {"schemas": {"File": {"type": "object", "required": ["file"], "properties": {
            "file": {"type": "string", "format": "binary"}, "image": {}, "id": {"type": "integer"},
        }}}},
    });
    let description = description(&document);
    let operation = &description.operations[0];
    let BodyEncoding::Multipart(parts) = &operation.body.as_ref().unwrap().media[0].encoding else {
        panic!()
    };
    let files: Vec<_> = parts.iter().map(|(name, part)| (name.as_str(), part.is_file)).collect();
    assert_eq!(files, [("about", false), ("file", true), ("image", true)]);
    let arguments = ArgumentSchema::compile(description.input_schema(operation)).unwrap();
    let is_valid = |value: Value| arguments.prepare(json!({"body": value})).is_ok();
    let file = json!({"base64": "", "name": "a.png"});
    assert!(is_valid(json!({"file": file, "image": file, "about": "x", "id": 1})));
    assert!(!is_valid(json!({"file": file, "image": 1})));
    assert!(!is_valid(json!({"file": file, "about": file})));
    assert!(!is_valid(json!({"image": file})));
}

#[test]
fn servers_are_those_of_the_innermost_declaration() {
    let document = json!({
        "openapi": "3.0.0",
        "servers": [{"url": "/v1"}, {"url": "https://{a}.example.com:{port}", "variables":
            {"a": {"enum": ["x", "y"]}, "port": {"default": 8443}}}, {"url": "https://{unknown}/"}],
        "paths": {
            "/a": {"get": {}, "post": {"servers": [{"url": "https://own.example.com"}]}},
            "/b": {"servers": [{"url": "https://path.example.com"}], "get": {}, "post": {"servers": []}},
        },
    });
    let servers: Vec<Vec<String>> =
        description(&document).operations.into_iter().map(|operation| operation.servers).collect();
    assert_eq!(
        servers,
        [
            vec!["/v1", "https://x.example.com:8443"],
            vec!["https://own.example.com"],
            vec!["https://path.example.com"],
            vec!["https://path.example.com"]
        ]
    );
    let swagger2 = |fields: Value| {
        let mut document = json!({"swagger": "2.0", "paths": {"/a": {"get": {}}}});
        document.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        description(&document).operations.remove(0).servers
    };
    assert_eq!(
        swagger2(json!({"host": "a.example:80", "schemes": ["http", "https", "ws"], "basePath": "v2"})),
        ["https://a.example:80/v2", "http://a.example:80/v2"]
    );
    assert_eq!(swagger2(json!({"basePath": "/v2"})), ["/v2"]);
    assert!(swagger2(json!({})).is_empty());
}

#[test]
fn a_referenced_operation_keeps_its_own_security() {
    let description = description(&json!({
        "openapi": "3.0.0",
        "security": [{"a": []}],
        "paths": {"/a": {"get": {"$ref": "#/x-operations/read"}}},
        "x-operations": {"read": {"security": [{"b": []}]}},
    }));
    assert_eq!(description.skipped, []);
    assert_eq!(description.operations[0].security, [BTreeMap::from([("b".to_owned(), Vec::new())])]);
}

#[test]
fn security_schemes_and_requirements_are_parsed() {
    let document = json!({
        "openapi": "3.0.0",
        "security": [{"a": []}],
        "paths": {"/a": {"get": {}, "put": {"security": []}, "post": {"security": [{}, {"b": [], "z": ["s"]}]}}},
        "components": {"securitySchemes": {
            "a": {"type": "http", "scheme": "Bearer"}, "b": {"type": "http", "scheme": "basic"},
            "c": {"type": "apiKey", "in": "cookie", "name": "sid"}, "d": {"type": "openIdConnect"},
            "e": {"type": "oauth2", "flows": {"implicit": {}}}, "f": {"type": "mutualTLS"}, "g": {"$ref": "#/x"},
        }},
    });
    let description = description(&document);
    let alternatives: Vec<Vec<BTreeMap<String, Vec<String>>>> =
        description.operations.into_iter().map(|operation| operation.security).collect();
    let alternative = |names: &[(&str, &[&str])]| -> BTreeMap<String, Vec<String>> {
        let own = |scopes: &[&str]| scopes.iter().map(|scope| (*scope).to_owned()).collect();
        names.iter().map(|(name, scopes)| ((*name).to_owned(), own(scopes))).collect()
    };
    assert_eq!(
        alternatives,
        [
            vec![alternative(&[("a", &[])])],
            vec![alternative(&[])],
            vec![alternative(&[]), alternative(&[("b", &[]), ("z", &["s"])])]
        ]
    );
    let scheme = |name: &str| description.schemes[name].clone();
    assert_eq!(scheme("a"), SecurityScheme::Bearer);
    assert_eq!(scheme("b"), SecurityScheme::Basic);
    assert_eq!(
        scheme("c"),
        SecurityScheme::Key { location: ParameterLocation::Cookie, name: "sid".to_owned() }
    );
    assert_eq!(scheme("d"), SecurityScheme::OtherToken);
    assert_eq!(scheme("e"), SecurityScheme::OtherToken);
    for unknown in ["f", "g", "z"] {
        assert!(matches!(scheme(unknown), SecurityScheme::Unknown(_)), "{unknown}");
    }
}

#[test]
fn names_are_unique_in_the_document_s_order() {
    let document = json!({
        "openapi": "3.0.0",
        "paths": {
            "/pets/{id}": {"get": {"operationId": "getPet"}, "put": {"operationId": "getPet"}},
            "/pets/{name}": {"get": {"operationId": "get_pet"}, "post": {}},
            "/pets/{name}/": {"post": {}},
        },
    });
    let names: Vec<String> =
        description(&document).operations.into_iter().map(|operation| operation.name).collect();
    assert_eq!(names, ["get_pet", "get_pet_2", "get_pet_3", "post_pets_name", "post_pets_name_2"]);
}

#[test]
fn only_successful_responses_are_described() {
    let response = |responses: Value| {
        let operation = operation_at("/", json!({"responses": responses}));
        (operation.response.accept, operation.output_schema.as_deref().cloned())
    };
    let json_of = |kind: &str| json!({"content": {"application/json": {"schema": {"type": kind}}}});
    let accept = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(response(Value::Null), (vec![], None));
    let nothing = Some(json!({"type": "null"}));
    assert_eq!(response(json!({"204": {}, "400": json_of("string")})), (vec![], nothing));
    assert_eq!(response(json!({"200": {}, "204": {}})), (vec![], None));
    assert_eq!(
        response(json!({"default": json_of("object")})),
        (accept(&["application/json"]), Some(json!({"type": "object"})))
    );
    assert_eq!(
        response(
            json!({"201": json_of("object"), "200": json_of("array"), "202": json_of("array"), "404": {}})
        )
        .1,
        Some(json!({"anyOf": [{"type": "array"}, {"type": "object"}]}))
    );
    let several =
        json!({"2XX": {"content": {"text/csv": {}, "image/png": {}, "application/json; charset=utf-8": {}}}});
    assert_eq!(response(several), (accept(&["application/json", "text/csv", "image/png"]), None));
    assert_eq!(response(json!({"200": {"content": {"text/csv": {}}}})).1, Some(json!({"type": "string"})));
    assert_eq!(response(json!({"200": {"$ref": "#/gone"}})), (vec![], None));
}

#[test]
fn a_query_in_the_path_is_frozen() {
    let operation =
        operation_at("/x?action=run&id={id}#y", json!({"parameters": [{"name": "id", "in": "path"}]}));
    assert_eq!(operation.path, "/x");
    assert_eq!(operation.frozen, BTreeMap::from([("action".to_owned(), json!("run"))]));
    let named: Vec<_> = operation
        .parameters
        .iter()
        .map(|operation_at| (operation_at.name.as_str(), operation_at.location))
        .collect();
    assert_eq!(named, [("id", ParameterLocation::Query), ("action", ParameterLocation::Query)]);
    assert_eq!(operation.input_schema["properties"], json!({"id": {}}));
}

struct PartDocuments;

impl Fetch for PartDocuments {
    fn fetch(&self, address: &str) -> Result<String, String> {
        match address {
            "paths/pets.yaml" => {
                Ok("get:\n  operationId: listPets\n  parameters: [{$ref: '../common.yaml#/Limit'}]\n  \
                 responses: {200: {content: {application/json: {schema: {$ref: '../schemas/pet.yaml'}}}}}"
                    .to_owned())
            }
            "common.yaml" => {
                Ok("Limit: {name: limit, in: query, schema: {$ref: '#/Number'}}\nNumber: {type: integer}"
                    .to_owned())
            }
            "schemas/pet.yaml" => {
                Ok("{type: object, properties: {parent: {$ref: pet.yaml}, owner: {$ref: owner.yaml}}}"
                    .to_owned())
            }
            _ => Err("does not exist".to_owned()),
        }
    }
}

#[test]
fn a_description_may_be_several_documents() {
    let text = "openapi: 3.0.0\npaths: {/pets: {$ref: paths/pets.yaml}}";
    let description = load(text, RootLocation::Directory("api.yaml".to_owned()), &PartDocuments).unwrap();
    assert_eq!(
        description.operations[0].input_schema["properties"]["limit"],
        json!({"$ref": "#/$defs/Number"})
    );
    assert_eq!(description.operations[0].output_schema, Some(json!({"$ref": "#/$defs/pet"}).into()));
    let pet = json!({"type": "object", "properties": {"parent": {"$ref": "#/$defs/pet"}, "owner": {}}});
    assert_eq!(description.definitions["pet"], pet);
    assert_eq!(description.definitions["Number"], json!({"type": "integer"}));
}

#[test]
fn cyclic_references_of_all_kinds_are_parsed() {
    let again = |name: &str| json!({"$ref": format!("#/components/{name}/A")});
    let read = description(&json!({
        "openapi": "3.0.0",
        "paths": {"/a": {"post": {"parameters": [again("parameters")], "requestBody": again("requestBodies"),
            "responses": {"200": again("responses"), "201": {"content": {"a/json": {"schema": again("schemas")}}}}}}},
        "components": {
            "parameters": {"A": again("parameters")}, "requestBodies": {"A": again("requestBodies")},
            "responses": {"A": again("responses")},
            "schemas": {"A": {"allOf": [again("schemas")], "properties": {"a": again("schemas")}}},
        },
    }));
    let operation = &read.operations[0];
    let output = read.output_schema(operation).unwrap();
    let checked = ArgumentSchema::compile(output).unwrap();
    assert!(checked.prepare(json!({"a": {"a": {}}})).is_ok());
    assert!(operation.body.is_some() && operation.parameters.is_empty());
}

/// Arbitrary documents made of the keywords of descriptions.
fn arbitrary_document() -> impl Strategy<Value = Value> {
    let keyword = prop_oneof![
        "[a-z]{0,3}",
        proptest::sample::select(vec![
            "$ref",
            "get",
            "post",
            "parameters",
            "name",
            "in",
            "schema",
            "type",
            "properties",
            "required",
            "allOf",
            "oneOf",
            "items",
            "requestBody",
            "content",
            "application/json",
            "multipart/form-data",
            "responses",
            "200",
            "default",
            "enum",
            "nullable",
            "servers",
            "url",
            "security",
            "tags",
            "formData",
            "body",
        ])
        .prop_map(str::to_owned),
    ];
    let text = prop_oneof![
        "[a-z{}/]{0,5}",
        proptest::sample::select(vec![
            "#/paths",
            "#/paths/~1a",
            "#/components/schemas/A",
            "#/components/schemas/B",
            "#",
            "other.json",
            "object",
            "array",
            "string",
            "path",
            "query",
            "file:///etc/passwd",
            "binary",
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((keyword.clone(), inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_path_item_is_parsed_or_refused(item in arbitrary_document(), a in arbitrary_document(), b in arbitrary_document(), is_swagger2 in any::<bool>()) {
        let paths = json!({"/a": item, "/{b}": {"parameters": a, "post": b, "get": {"requestBody": a, "responses": b}}});
        let document = if is_swagger2 {
            json!({"swagger": "2.0", "paths": paths, "definitions": {"A": a, "B": b}})
        } else {
            json!({"openapi": "3.1.0", "paths": paths, "components": {"schemas": {"A": a, "B": b}}})
        };
        let read = description(&document);
        for operation in &read.operations {
            let input = read.input_schema(operation);
            if let Ok(arguments) = ArgumentSchema::compile(input) {
                let _ = arguments.prepare(json!({"b": "x", "body": {"a": [1, {}]}}));
            }
            for slot in operation.path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
                prop_assert!(operation.parameters.iter().any(|operation_at| operation_at.location == ParameterLocation::Path && operation_at.name == slot));
            }
            let restored: Operation = serde_json::from_value(serde_json::to_value(operation).unwrap()).unwrap();
            prop_assert_eq!(&restored, operation);
        }
    }

    #[test]
    fn any_document_is_parsed_or_refused(document in arbitrary_document()) {
        let _ = load(&document.to_string(), RootLocation::Directory("x".to_owned()), &SingleDocument);
    }
}
