//! `GET /openapi.json`: describes the HTTP API from the catalog.
//!
//! The structure is built with utoipa. The tools' schemas are inserted as JSON, because OpenAPI 3.1 uses JSON
//! Schema, and a typed model of it would lose keywords.

use ctx_core::{AnswerForm, Catalog, Entry};
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
    let mut schemas = own_schemas();
    let mut paths = PathsBuilder::new()
        .path("/health", item(HttpMethod::Get, operation("health", "Whether the server is up", "Health")))
        .path("/tools/list", item(HttpMethod::Get, operation("list_tools", "List the tools", "ToolList")));
    paths = paths
        .path("/agents/list", item(HttpMethod::Get, operation("list_agents", "List the agents", "AgentList")))
        .path("/agents/{name}/prompt", prompt_item());
    for entry in catalog.listed() {
        let name = entry.name.outward();
        schemas.insert(request_name(entry), Arc::unwrap_or_clone(entry.spec.input_schema.get()));
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
        // No credentials or the token: the settings of the server decide.
        .security(Some([SecurityRequirement::default(), SecurityRequirement::new("token", [""; 0])]))
        .build();
    let mut document = serde_json::to_value(&described).unwrap_or_default();
    document["components"]["schemas"] = Value::Object(schemas);
    document
}

fn tool_item(entry: &Entry, name: &str) -> PathItem {
    let response = response_name(entry);
    let described =
        |id: &str, contents: &[(&str, &str)]| operation_with(id, &entry.spec.description, contents);
    let followed = [("application/json", response.as_str()), ("text/event-stream", EVENTS)];
    if name == "sources" {
        return PathItemBuilder::new()
            .operation(HttpMethod::Get, described("get_sources", &followed[..1]).build())
            .operation(HttpMethod::Post, described(name, &followed).build())
            .build();
    }
    let body = request_body(&request_name(entry), Required::True);
    item(HttpMethod::Post, described(name, &followed).request_body(Some(body)))
}

fn prompt_item() -> PathItem {
    let name = ParameterBuilder::new()
        .name("name")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("The agent, as `/agents/list` names it"))
        .schema(Some(reference("AgentName")))
        .build();
    let body = request_body("AgentArguments", Required::False);
    let summary = "Resolve an agent to what a model is told";
    let described = operation("prompt_agent", summary, "Prompt").parameter(name).request_body(Some(body));
    item(HttpMethod::Post, described)
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
        .description("Failure; `code` says which")
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
    let own = entry.spec.output_schema.as_ref().map(|schema| Arc::unwrap_or_clone(schema.get()));
    let own = own.unwrap_or_else(|| json!({}));
    match AnswerForm::of(&entry.name) {
        AnswerForm::Unwrapped => own,
        AnswerForm::Wrapped => {
            json!({"type": "object", "properties": {"result": own, "logs": logs()}, "required": ["result"]})
        }
        AnswerForm::Detailed => object(json!({"result": own, "logs": logs(), "meta": meta()})),
    }
}

fn object(properties: Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({"type": "object", "required": required, "properties": properties})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn logs() -> Value {
    let level = json!({"enum": ["trace", "debug", "info", "warn", "error"]});
    json!({"type": "array", "items": object(json!({"level": level, "message": text()}))})
}

/// Schema of `meta`: what a call did inside.
fn meta() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    object(json!({"calls": count(), "bytes_kept": count()}))
}

/// Schemas of the routes that are not tools.
fn own_schemas() -> Map<String, Value> {
    let tool = object(json!({
        "name": text(), "description": text(), "builtin": {"type": "boolean"}, "parameters": {"type": "object"},
    }));
    let mut error = object(json!({"error": object(json!({"code": text(), "message": text()}))}));
    error["properties"]["logs"] = logs();
    error["properties"]["meta"] = meta();
    let texts = || json!({"type": "array", "items": text()});
    let argument = object(json!({"name": text(), "description": text(), "required": {"type": "boolean"}}));
    let agent = object(json!({
        "name": text(), "description": text(), "tools": texts(),
        "source": {"enum": ["toml", "lua", "rust", "mcp"]}, "arguments": {"type": "array", "items": argument},
    }));
    let message = object(json!({"role": {"enum": ["user", "assistant", "system"]}, "content": text()}));
    let messages = json!({"type": "array", "items": message});
    Map::from_iter([
        (ERROR.to_owned(), error),
        (EVENTS.to_owned(), json!({"type": "string", "description": EVENTS_DESCRIPTION})),
        ("AgentArguments".to_owned(), json!({"type": "object"})),
        ("AgentList".to_owned(), object(json!({"agents": {"type": "array", "items": agent}}))),
        ("AgentName".to_owned(), text()),
        ("Prompt".to_owned(), object(json!({"system": text(), "tools": texts(), "messages": messages}))),
        ("Health".to_owned(), object(json!({"status": text(), "version": text()}))),
        ("ToolList".to_owned(), object(json!({"tools": {"type": "array", "items": tool}}))),
    ])
}
