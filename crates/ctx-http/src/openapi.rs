//! `GET /openapi.json`: the API described from the catalog itself.
//!
//! The structure is utoipa's; the schemas are the tools' own, put in as they are, because OpenAPI
//! 3.1 speaks JSON Schema and a typed model of it would lose keywords.

use crate::routes::{is_unwrapped, listed};
use ctx_core::{Catalog, Entry};
use serde_json::{Map, Value, json};
use utoipa::openapi::path::{OperationBuilder, PathItemBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, HttpMethod, InfoBuilder, OpenApiBuilder, PathItem, PathsBuilder, Ref,
    Required, ResponseBuilder, ResponsesBuilder,
};

const ERROR: &str = "Error";

/// The API as it is with this catalog.
pub(crate) fn document(catalog: &Catalog) -> Value {
    let mut schemas = own_schemas();
    let mut paths = PathsBuilder::new()
        .path("/health", item(HttpMethod::Get, operation("health", "Whether the server is up", "Health")))
        .path("/tools/list", item(HttpMethod::Get, operation("list_tools", "List the tools", "ToolList")));
    for entry in listed(catalog) {
        let name = entry.name.outward();
        schemas.insert(request_name(entry), entry.spec.input_schema.clone());
        schemas.insert(response_name(entry), response_schema(entry));
        paths = paths.path(format!("/tools/{name}"), tool_item(entry, &name));
    }

    let described = OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Context Harness")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some("Search what you know, call what you can do."))
                .build(),
        )
        .paths(paths.build())
        .components(Some(ComponentsBuilder::new().security_scheme("token", bearer()).build()))
        // Either nothing or the token: which one depends on the server's settings.
        .security(Some([SecurityRequirement::default(), SecurityRequirement::new("token", [""; 0])]))
        .build();
    let mut document = serde_json::to_value(&described).unwrap_or_default();
    document["components"]["schemas"] = Value::Object(schemas);
    document
}

fn tool_item(entry: &Entry, name: &str) -> PathItem {
    let body = RequestBodyBuilder::new()
        .content(
            "application/json",
            ContentBuilder::new().schema(Some(reference(&request_name(entry)))).build(),
        )
        .required(Some(Required::True))
        .build();
    let described = |id: &str| operation(id, &entry.spec.description, &response_name(entry));
    if name == "sources" {
        return PathItemBuilder::new()
            .operation(HttpMethod::Get, described("get_sources").build())
            .operation(HttpMethod::Post, described(name).build())
            .build();
    }
    item(HttpMethod::Post, described(name).request_body(Some(body)))
}

fn operation(id: &str, summary: &str, response: &str) -> OperationBuilder {
    let content = |name: &str| ContentBuilder::new().schema(Some(reference(name))).build();
    let ok =
        ResponseBuilder::new().description("Success").content("application/json", content(response)).build();
    let failed = ResponseBuilder::new()
        .description("Failure; `code` says which")
        .content("application/json", content(ERROR))
        .build();
    OperationBuilder::new()
        .operation_id(Some(id))
        .summary(Some(summary))
        .responses(ResponsesBuilder::new().response("200", ok).response("default", failed).build())
}

fn item(method: HttpMethod, operation: OperationBuilder) -> PathItem {
    PathItemBuilder::new().operation(method, operation.build()).build()
}

fn reference(name: &str) -> Ref {
    Ref::from_schema_name(name)
}

fn bearer() -> SecurityScheme {
    SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build())
}

fn request_name(entry: &Entry) -> String {
    format!("{}_request", entry.name.outward())
}

fn response_name(entry: &Entry) -> String {
    format!("{}_response", entry.name.outward())
}

fn response_schema(entry: &Entry) -> Value {
    let own = entry.spec.output_schema.clone().unwrap_or_else(|| json!({}));
    if is_unwrapped(entry) {
        return own;
    }
    json!({"type": "object", "properties": {"result": own}, "required": ["result"]})
}

/// The shapes that are not a tool's.
fn own_schemas() -> Map<String, Value> {
    let object = |properties: Value| {
        let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
        json!({"type": "object", "required": required, "properties": properties})
    };
    let text = || json!({"type": "string"});
    let tool = object(json!({
        "name": text(), "description": text(), "builtin": {"type": "boolean"}, "parameters": {"type": "object"},
    }));
    let error = object(json!({"code": text(), "message": text()}));
    Map::from_iter([
        (ERROR.to_owned(), object(json!({ "error": error }))),
        ("Health".to_owned(), object(json!({"status": text(), "version": text()}))),
        ("ToolList".to_owned(), object(json!({"tools": {"type": "array", "items": tool}}))),
    ])
}
