//! `GET /openapi.json`: describes the HTTP API from the catalog.
//!
//! The structure is built with utoipa. The tools' schemas are inserted as JSON, because OpenAPI 3.1 uses JSON
//! Schema, and a typed model of it would lose keywords.

use ctx_core::{Catalog, CatalogEntry, ResultFormat};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn, PathItemBuilder};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, Content, ContentBuilder, HttpMethod, InfoBuilder, OpenApiBuilder, PathItem,
    PathsBuilder, Ref, Required, ResponseBuilder, ResponsesBuilder,
};

const ERROR: &str = "Error";
const EVENTS: &str = "Events";
/// Description of an event stream, which OpenAPI cannot express as a schema.
const EVENTS_DESCRIPTION: &str = "Server-Sent Events: any number of `progress` \
    ({\"progress\", \"total\", \"message\"}) and `log` ({\"level\", \"message\"}), then one `result` (the JSON body) \
    or one `error` (the body of a failure).";

/// The OpenAPI description of the API with this catalog.
pub(crate) fn document(catalog: &Catalog) -> Value {
    let mut schemas = route_schemas();
    let mut paths = PathsBuilder::new()
        .path(
            "/health",
            path_item(HttpMethod::Get, operation("health", "Whether the server is up", "Health")),
        )
        .path(
            "/tools/list",
            path_item(HttpMethod::Get, operation("list_tools", "List the tools", "ToolList")),
        );
    paths = paths
        .path(
            "/agents/list",
            path_item(HttpMethod::Get, operation("list_agents", "List the agents", "AgentList")),
        )
        .path("/agents/{name}/prompt", prompt_item());
    for entry in catalog.client_tools() {
        let name = entry.name.outward();
        schemas.insert(request_name(entry), Arc::unwrap_or_clone(entry.spec.input_schema.get()));
        schemas.insert(response_name(entry), response_schema(entry));
        paths = paths.path(format!("/tools/{name}"), tool_item(entry, &name));
    }

    let description = OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Context Harness")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some("Search what you know, call what you can do."))
                .build(),
        )
        .paths(paths.build())
        .components(Some(ComponentsBuilder::new().security_scheme("token", bearer_scheme()).build()))
        // No credentials or the token: the settings of the server decide.
        .security(Some([SecurityRequirement::default(), SecurityRequirement::new("token", [""; 0])]))
        .build();
    let mut document = serde_json::to_value(&description).unwrap_or_default();
    document["components"]["schemas"] = Value::Object(schemas);
    document
}

fn tool_item(entry: &CatalogEntry, name: &str) -> PathItem {
    let response = response_name(entry);
    let operation =
        |id: &str, contents: &[(&str, &str)]| operation_with(id, &entry.spec.description, contents);
    let media_types = [("application/json", response.as_str()), ("text/event-stream", EVENTS)];
    if name == "sources" {
        return PathItemBuilder::new()
            .operation(HttpMethod::Get, operation("get_sources", &media_types[..1]).build())
            .operation(HttpMethod::Post, operation(name, &media_types).build())
            .build();
    }
    let body = request_body(&request_name(entry), Required::True);
    path_item(HttpMethod::Post, operation(name, &media_types).request_body(Some(body)))
}

fn prompt_item() -> PathItem {
    let name = ParameterBuilder::new()
        .name("name")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("Name of the agent, from `/agents/list`"))
        .schema(Some(reference("AgentName")))
        .build();
    let body = request_body("AgentArguments", Required::False);
    let summary = "Resolve an agent to its prompt";
    let operation = operation("prompt_agent", summary, "Prompt").parameter(name).request_body(Some(body));
    path_item(HttpMethod::Post, operation)
}

fn request_body(schema: &str, required: Required) -> RequestBody {
    RequestBodyBuilder::new().content("application/json", content(schema)).required(Some(required)).build()
}

fn operation(id: &str, summary: &str, response: &str) -> OperationBuilder {
    operation_with(id, summary, &[("application/json", response)])
}

/// An operation with these media types in its successful response, each with its schema.
fn operation_with(id: &str, summary: &str, contents: &[(&str, &str)]) -> OperationBuilder {
    let ok = contents
        .iter()
        .fold(ResponseBuilder::new().description("Success"), |ok, (media_type, schema)| {
            ok.content(*media_type, content(schema))
        })
        .build();
    let failed = ResponseBuilder::new()
        .description("Failure; `code` is its kind")
        .content("application/json", content(ERROR))
        .build();
    OperationBuilder::new()
        .operation_id(Some(id))
        .summary(Some(summary))
        .responses(ResponsesBuilder::new().response("200", ok).response("default", failed).build())
}

fn content(schema: &str) -> Content {
    ContentBuilder::new().schema(Some(reference(schema))).build()
}

fn path_item(method: HttpMethod, operation: OperationBuilder) -> PathItem {
    PathItemBuilder::new().operation(method, operation.build()).build()
}

fn reference(name: &str) -> Ref {
    Ref::from_schema_name(name)
}

fn bearer_scheme() -> SecurityScheme {
    SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build())
}

fn request_name(entry: &CatalogEntry) -> String {
    format!("{}_request", entry.name.outward())
}

fn response_name(entry: &CatalogEntry) -> String {
    format!("{}_response", entry.name.outward())
}

fn response_schema(entry: &CatalogEntry) -> Value {
    let own = entry.spec.output_schema.as_ref().map(|schema| Arc::unwrap_or_clone(schema.get()));
    let own = own.unwrap_or_else(|| json!({}));
    match ResultFormat::of(&entry.name) {
        ResultFormat::Unwrapped => own,
        ResultFormat::Wrapped => {
            json!({"type": "object", "properties": {"result": own, "logs": logs_schema()}, "required": ["result"]})
        }
        ResultFormat::Detailed => {
            object_schema(json!({"result": own, "logs": logs_schema(), "meta": meta_schema()}))
        }
    }
}

fn object_schema(properties: Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({"type": "object", "required": required, "properties": properties})
}

fn string_schema() -> Value {
    json!({"type": "string"})
}

fn logs_schema() -> Value {
    let level = json!({"enum": ["trace", "debug", "info", "warn", "error"]});
    json!({"type": "array", "items": object_schema(json!({"level": level, "message": string_schema()}))})
}

/// Schema of `meta`: what a call did inside.
fn meta_schema() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    object_schema(json!({"calls": count(), "bytes_kept": count()}))
}

/// Schemas of the routes that are not tools.
fn route_schemas() -> Map<String, Value> {
    let tool = object_schema(json!({
        "name": string_schema(), "description": string_schema(),
        "builtin": {"type": "boolean"}, "parameters": {"type": "object"},
    }));
    let mut error = object_schema(
        json!({"error": object_schema(json!({"code": string_schema(), "message": string_schema()}))}),
    );
    error["properties"]["logs"] = logs_schema();
    error["properties"]["meta"] = meta_schema();
    let texts = || json!({"type": "array", "items": string_schema()});
    let argument = object_schema(
        json!({"name": string_schema(), "description": string_schema(), "required": {"type": "boolean"}}),
    );
    let agent = object_schema(json!({
        "name": string_schema(), "description": string_schema(), "tools": texts(),
        "source": {"enum": ["toml", "lua", "rust", "mcp"]}, "arguments": {"type": "array", "items": argument},
    }));
    let message =
        object_schema(json!({"role": {"enum": ["user", "assistant", "system"]}, "content": string_schema()}));
    let messages = json!({"type": "array", "items": message});
    Map::from_iter([
        (ERROR.to_owned(), error),
        (EVENTS.to_owned(), json!({"type": "string", "description": EVENTS_DESCRIPTION})),
        ("AgentArguments".to_owned(), json!({"type": "object"})),
        ("AgentList".to_owned(), object_schema(json!({"agents": {"type": "array", "items": agent}}))),
        ("AgentName".to_owned(), string_schema()),
        (
            "Prompt".to_owned(),
            object_schema(json!({"system": string_schema(), "tools": texts(), "messages": messages})),
        ),
        ("Health".to_owned(), object_schema(json!({"status": string_schema(), "version": string_schema()}))),
        ("ToolList".to_owned(), object_schema(json!({"tools": {"type": "array", "items": tool}}))),
    ])
}
